"""The processes that serve a run over sockets: owners of shards, and readers of batches.

Such a process is a fork of the host.  It serves one request after the other, and ends when the
host ends, however that happens; if it is killed, the host starts another one.

An *owner* computes and commits all batches of some shards.  Spark gives the task of a shard to
any idle Python worker, so a database that a worker keeps open would be in the wrong process half
of the time.  If a run has a host, a worker passes the batch on to the owner (`owners.py`), which
keeps resources open for the next batch (`processor/engine/task.py`).  A shard never has two
batches at a time: if Spark repeats a task after its worker was killed, the request waits until the
first one has ended, and then adopts its committed batch.

A *reader* reads parts of batches in place of Spark's tasks.  A task costs Spark and its Python
workers some 20 ms of CPU time in every micro-batch, and passing on its rows costs as much again.
So the driver has batches read before Spark runs them (`source.py`), and Spark passes on only the
places of the rows (`left_rows.py`).
"""

import os
import pickle
import resource
import select
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec

from ikebana.processor.base import calls, processes
from ikebana.processor.engine.task import Job, OpenShards, encode_state
from ikebana.processor.kafka.reader import connected
from ikebana.processor.spark.source_task import SourceConfig, packed_rows
from ikebana.processor.spark.workers import left_rows, network
from ikebana.processor.spark.workers.network import (
    Ask,
    Done,
    Fetch,
    FetchedRow,
    MissingContent,
    Raised,
    ReadRows,
    Sealed,
    WorkerAnswer,
)
from ikebana.processor.spark.workers.owners import EXECUTOR_VARIABLE, HostAddress
from ikebana.processor.spark.workers.stand_in import VARIABLE

# Decision (shards have owners): Spark gives a task to any idle worker, so a worker that kept a
# shard's database and producer would often be the wrong one. A lock that workers hand over would
# open and fence in half of the batches (not tried).

# Decision (batches are read before Spark runs them): `partitions` is called when a batch is
# logged, so processes of the run read it side by side. What fails is left to Spark's tasks. Not
# the owners: a batch's records displaced what a batch had left warm in their memory.

Content = TypeVar("Content")
OWNER_NAME, READER_NAME = "ikebana-owner", "ikebana-reader"
# A request is sent without pauses; a client that was stopped meanwhile is not waited for longer.
_SENT_WITHIN_S = 120.0
_LOCAL_VARIABLES = (VARIABLE, EXECUTOR_VARIABLE, left_rows.VARIABLE, calls.REPORT_VARIABLE)


def serve_owner(listener: socket.socket, lifeline: int) -> None:
    """Serve the requests of workers until the descriptor `lifeline` is at its end."""
    shards, jobs = OpenShards(), _CachedContent[Job]()

    def answer(connection: socket.socket) -> None:
        ask = network.receive(connection, Ask)
        rows = deque(network.received(connection, size) for size in ask.rows)

        def run(job: Job) -> Done:
            commit = shards.run(job, ask.shard, ask.state, left_rows.resolve(_drained(rows)))
            return Done(encode_state(commit.manifest), msgspec.json.encode(commit))

        jobs.answer(connection, ask.job, run)

    _serve(OWNER_NAME, listener, lifeline, answer, shards.close)


def _drained(rows: deque[bytes]) -> Iterator[bytes]:
    """Yield the rows, and drop each so that its memory is freed after unpacking."""
    while rows:
        yield rows.popleft()


def serve_reader(listener: socket.socket, lifeline: int) -> None:
    """Serve the requests of the driver until the descriptor `lifeline` is at its end."""
    configs = _CachedContent[SourceConfig]()
    # Where other machines fetch rows of this host; empty if there are no others.
    host = HostAddress.here()
    port = listener.getsockname()[1] if listener.family != socket.AF_UNIX else 0
    address = f"{host.place}:{port}" if host is not None and port else ""

    def answer(connection: socket.socket) -> None:
        asked = network.receive_asked(connection)
        if isinstance(asked, Fetch):
            _answer(
                connection, lambda: FetchedRow(left_rows.read(asked.path, asked.start, asked.size))
            )
            return

        def read(config: SourceConfig) -> ReadRows:
            packed = packed_rows(
                config, pickle.loads(asked.share), connected(config.reading_kafka)
            )
            folder = config.rows_folder or os.environ.get(left_rows.VARIABLE, "")
            left_rows.forget_before(folder, asked.batch)
            return ReadRows(left_rows.leave_large_rows(packed, folder, asked.batch, address))

        configs.answer(connection, asked.config, read)

    _serve(READER_NAME, listener, lifeline, answer, lambda: None)


def _serve(
    name: str,
    listener: socket.socket,
    lifeline: int,
    answer: Callable[[socket.socket], None],
    close: Callable[[], None],
) -> None:
    """Become the process `name`; answer connections until `lifeline` is at its end."""
    _become(name)
    processes.exempt_objects()
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    waiting.register(lifeline, select.POLLIN)
    while True:
        if lifeline in dict(waiting.poll()):
            close()
            return
        with suppress(OSError), network.accepted(listener) as connection:
            connection.settimeout(_SENT_WITHIN_S)
            answer(connection)


class _CachedContent(Generic[Content]):
    """The last content that requests have named by digest: a run has one at a time."""

    def __init__(self) -> None:
        self._digest = ""
        self._content: Content | None = None

    def answer(
        self, connection: socket.socket, digest: str, do: Callable[[Content], WorkerAnswer]
    ) -> None:
        """Request the content if it is not there, call `do` with it, and send the answer."""
        sealed = None
        if self._content is None or self._digest != digest:
            network.send(connection, MissingContent())
            sealed = network.receive(connection, Sealed)
        # The request may have waited for others, and its client may have given up.
        if _is_closed(connection):
            return

        def run() -> WorkerAnswer:
            content = self._opened(digest, sealed)
            calls.arm()
            return do(content)

        _answer(connection, run)

    def _opened(self, digest: str, sealed: Sealed | None) -> Content:
        if sealed is not None:
            # The client may be on another machine, so this machine's own variables stay.
            local = {name: os.environ[name] for name in _LOCAL_VARIABLES if name in os.environ}
            os.environ.update({**sealed.environment, **local})
            sys.path.extend(path for path in sealed.path if path not in sys.path)
            self._content = pickle.loads(sealed.content)
            self._digest = digest
        assert self._content is not None
        return self._content


def _answer(connection: socket.socket, do: Callable[[], WorkerAnswer]) -> None:
    """Send the result of a function, or the error that it raises."""
    try:
        result = do()
    except BaseException as error:  # noqa: BLE001 -- who has asked raises it
        kind = type(error)
        details = str(error), traceback.format_exc()
        result = Raised(kind.__module__, kind.__qualname__, *details)
    network.send(connection, result)


def _is_closed(connection: socket.socket) -> bool:
    # Nothing follows a request, so the socket is readable only at its end.
    ended = select.poll()
    ended.register(connection, select.POLLIN)
    return bool(ended.poll(0))


def _become(name: str) -> None:
    """Set the name of this process, close its input, and raise its limit of open files.

    Output of functions goes to standard error.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    processes.named(name)
    processes.close_streams()
    sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
