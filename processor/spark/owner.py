"""A process that owns some of a run's shards: it computes and commits all of their batches.

Spark gives the task of a shard to any Python worker that is idle, so what a worker keeps open
of a shard is in the wrong process half of the time.  Where a run has a fork server, a worker
passes the batch on to the process that owns the shard (`owners.py`), which keeps open what the
next batch needs (`processor/open_shards.py`).

An owner is a fork of the fork server.  It serves one request after the other, so a shard never
has two batches at a time: if Spark repeats a task whose worker was killed, the request waits
until the first one has ended, and then adopts what that has committed.  An owner ends when the
fork server ends, however that dies; the fork server starts another one for a killed owner.
"""

import os
import pickle
import resource
import select
import socket
import sys
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from ikebana.processor.ground import calls
from ikebana.processor.open_shards import OpenShards
from ikebana.processor.spark import left_rows, owner_messages, worker
from ikebana.processor.spark.owner_messages import Ask, ClosedError, Done, JobIsMissing, SealedJob
from ikebana.processor.task import Job, encode_state

PROCESS_NAME = "ikebana-owner"
# A worker sends all rows in one go; one that was stopped meanwhile is not waited for.
_SENT_WITHIN_S = 120.0


def serve(listener: socket.socket, lifeline: int) -> None:
    """Serve the requests of workers until the descriptor `lifeline` is at its end."""
    _become_process()
    worker.settle()
    owner = _Owner()
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    waiting.register(lifeline, select.POLLIN)
    while True:
        if lifeline in dict(waiting.poll()):
            owner.shards.close()
            return
        connection, _ = listener.accept()
        with connection, suppress(ClosedError, OSError):
            connection.settimeout(_SENT_WITHIN_S)
            owner.answer(connection)


class _Owner:
    def __init__(self) -> None:
        self.shards = OpenShards()
        # The last job, by its digest: one run has one job at a time.
        self._job: tuple[str, Job] | None = None

    def answer(self, connection: socket.socket) -> None:
        """Receive a request, run it, and send the answer."""
        ask = owner_messages.receive(connection, Ask)
        rows = deque(owner_messages.received(connection, size) for size in ask.rows)
        if self._job is None or self._job[0] != ask.job:
            owner_messages.send(connection, JobIsMissing())
            sealed = owner_messages.receive(connection, SealedJob)
        else:
            sealed = None
        # The request may have waited behind others, and its task may have been given up.
        if _is_closed(connection):
            return
        try:
            job = self._opened(ask.job, sealed)
            calls.arm()
            given = left_rows.found(_taken(rows))
            marker = self.shards.run(job, ask.shard, ask.state, given)
            answer: msgspec.Struct = Done(
                encode_state(marker.manifest), msgspec.json.encode(marker)
            )
        except BaseException as error:  # noqa: BLE001 -- the worker raises it
            answer = owner_messages.Raised(
                type(error).__module__,
                type(error).__qualname__,
                str(error),
                traceback.format_exc(),
            )
        owner_messages.send(connection, answer)

    def _opened(self, digest: str, sealed: SealedJob | None) -> Job:
        if sealed is not None:
            os.environ.update(sealed.environment)
            sys.path.extend(path for path in sealed.path if path not in sys.path)
            self._job = digest, pickle.loads(sealed.job)
        assert self._job is not None
        return self._job[1]


def _taken(rows: deque[bytes]) -> Iterator[bytes]:
    """Yield the rows, and keep none that has been unpacked."""
    while rows:
        yield rows.popleft()


def _is_closed(connection: socket.socket) -> bool:
    # Nothing is sent behind a request, so there is something to read only at the end.
    ended = select.poll()
    ended.register(connection, select.POLLIN)
    return bool(ended.poll(0))


def _become_process() -> None:
    """Take a name of its own, no input, and all files that it may open.

    What functions print goes where errors go.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with suppress(OSError):
        Path("/proc/self/comm").write_text(PROCESS_NAME)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
