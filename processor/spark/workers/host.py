"""The host of a machine: it has imported the modules of Spark's Python processes, and forks these.

A start of Spark runs half a dozen Python processes, each of which would spend two to three
CPU seconds on imports.  One kind of them must answer within ten seconds, and no setting of
Spark's changes that.  A fork of the host takes milliseconds and shares its memory.

    python -m ikebana.processor.spark.workers.host KIND:DESCRIPTOR,… MODULE…

The host listens on inherited sockets, and ends when its lifeline does: for a driver's host, which
`Workers` starts beside the JVM, the lifeline is standard input.  At the socket of the kind `forks`
it serves requests of `stand_in`.  Each other socket belongs to an `owner` of shards or a `reader`
of batches: it is forked when a client connects to its socket, and again if it dies; it ends when
the host does.  The host has one thread, and opens only files that a fork can use.
"""

import functools
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ikebana.processor.base import processes
from ikebana.processor.spark.workers.stand_in import FORKS, INT, STREAMS

# Decision (Pythons are forks of a host): Each Python imported pandas, Arrow and pyspark anew, and
# one kind must answer within ten seconds, which no setting changes. `PYSPARK_PYTHON` is a program
# that hands its streams to the host; without a host it is an ordinary Python.

# The modules that Spark's Python processes run, and our modules that they load.
EVERYWHERE = (
    "pyspark.worker",
    "ikebana.processor.spark.keyed_operator",
    "ikebana.processor.spark.workers.serving",
    "ikebana.processor.spark.source",
)
MODULES = (
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
    *EVERYWHERE,
)
"""The modules of a driver's host: Spark's planners do not run on executors."""
# Owners finish a batch and close their databases before they end; the driver waits as long.
END_OF_OWNERS_S = 5.0
_LOOK_EVERY_S = 0.005
_STDIN = 0


class ForkRequest(NamedTuple):
    """A request for a Python process: a module, and its arguments on the command line."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    streams: list[int]


def main() -> None:
    """Serve requests; in a forked process, run the requested module, or own shards."""
    sockets = (each.split(":") for each in sys.argv[1].split(","))
    listeners = {socket.socket(fileno=int(number)): kind for kind, number in sockets}
    prepare(sys.argv[2:])
    with _leaving():
        if (become := Host(listeners, _STDIN).serve()) is not None:
            become()


def prepare(modules: Iterable[str]) -> None:
    """Import the modules of later forks, and keep their shared memory from being copied."""
    for module in modules:
        importlib.import_module(module)
    # All forks share the objects of this process; a garbage collection would copy their pages.
    processes.exempt()


def become_host(
    listeners: Mapping[socket.socket, str], lifeline: int, folder: Path, name: str
) -> None:
    """Become a host in a process that was just forked, with its own session and no streams.

    The folder of its sockets is removed at its end.
    """
    with _leaving():
        os.setsid()
        processes.close_streams()
        processes.named(name)
        if (become := Host(listeners, lifeline).serve()) is not None:
            become()
        else:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _leaving() -> Iterator[None]:
    """End this process after a `with` block, without freeing what all forks share.

    That would copy its pages, and take each fork a third of a CPU second.
    """
    status: object = 1
    try:
        yield
        status = 0
    except SystemExit as end:
        status = end.code
    except BaseException:  # noqa: BLE001 -- nobody else would tell it
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(status if isinstance(status, int) else status is not None)


class Host:
    """Forks a process for each request and each socket, and reports its end to the requester."""

    def __init__(self, listeners: Mapping[socket.socket, str], lifeline: int) -> None:
        self._kinds = dict(listeners)
        self._lifeline = lifeline
        # The requesters that wait for the end of a fork, and the sockets of running owners and
        # readers, by process.
        self._askers: dict[int, socket.socket] = {}
        self._served: dict[int, socket.socket] = {}
        # Ends with this process, however that ends; owners and readers end with it.
        self._theirs, self._life = os.pipe()
        self._ended, self._wake = socket.socketpair()
        for end in (self._ended, self._wake):
            end.settimeout(0)
        self._selector = selectors.DefaultSelector()
        watched: tuple[int | socket.socket, ...] = (lifeline, self._ended, *self._kinds)
        for each in watched:
            self._selector.register(each, selectors.EVENT_READ)

    def serve(self) -> Callable[[], None] | None:
        """Serve until the end; return the work of a forked process, None in the host."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno())
        while True:
            for key, _ in self._selector.select():
                become = None
                if key.fileobj == self._lifeline:
                    if not os.read(self._lifeline, 1024):
                        self._end_served()
                        return None
                elif key.fileobj is self._ended:
                    self._reap()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    is_asked = self._kinds[key.fileobj] == FORKS
                    become = (self._asked if is_asked else self._connected)(key.fileobj)
                if become is not None:
                    return become

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            self._ended.recv(1024)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                process, status = ended
                if (listener := self._served.pop(process, None)) is not None:
                    # Whoever connects to it next, or has connected already, gets another one.
                    self._selector.register(listener, selectors.EVENT_READ)
                    continue
                code = os.waitstatus_to_exitcode(status)
                _tell(self._askers.pop(process), code if code >= 0 else 128 - code)

    def _asked(self, listener: socket.socket) -> Callable[[], None] | None:
        """Fork the process that `stand_in` asks for."""
        asker, _ = listener.accept()
        request = _received(asker)
        if request is None:
            asker.close()
            return None
        process = os.fork()
        if process == 0:
            asker.close()
            self._forget(None)
            os.close(self._theirs)
            return functools.partial(_become, request)
        for stream in request.streams:
            os.close(stream)
        self._askers[process] = asker
        with suppress(OSError):
            asker.sendall(process.to_bytes(INT, "big"))
        return None

    def _connected(self, listener: socket.socket) -> Callable[[], None] | None:
        """Fork the process that belongs to a socket; it accepts the connections that wait."""
        process = os.fork()
        if process == 0:
            self._forget(listener)
            return functools.partial(_serve, self._kinds[listener], listener, self._theirs)
        self._served[process] = listener
        self._selector.unregister(listener)
        return None

    def _end_served(self) -> None:
        """Let owners and readers end, and wait for them for a while."""
        os.close(self._life)
        deadline = time.monotonic() + END_OF_OWNERS_S
        while self._served and time.monotonic() < deadline:
            for process in list(self._served):
                if os.waitpid(process, os.WNOHANG)[0]:
                    del self._served[process]
            time.sleep(_LOOK_EVERY_S)

    def _forget(self, but: socket.socket | None) -> None:
        """Close the host's own files in a forked process, except one socket."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        os.close(self._life)
        if self._lifeline != _STDIN:
            os.close(self._lifeline)
        for end in (*self._kinds, self._ended, self._wake, *self._askers.values()):
            if end is not but:
                end.close()


def _serve(kind: str, listener: socket.socket, lifeline: int) -> None:
    # Not at the top: a host without such processes need not have imported them.
    from ikebana.processor.spark.workers import serving

    {"owner": serving.serve_owner, "reader": serving.serve_reader}[kind](listener, lifeline)


def _received(asker: socket.socket) -> ForkRequest | None:
    """Receive a request; None if the requester has gone."""
    try:
        length, streams, _, _ = socket.recv_fds(asker, INT, len(STREAMS))
        if len(length) < INT or len(streams) < len(STREAMS):
            return None
        body = b""
        missing = int.from_bytes(length, "big")
        while missing and (part := asker.recv(missing)):
            body += part
            missing -= len(part)
    except OSError:
        return None
    return None if missing else ForkRequest(**json.loads(body), streams=streams)


def _tell(asker: socket.socket, status: int) -> None:
    with suppress(OSError), asker:
        asker.sendall(status.to_bytes(INT, "big"))


def _become(request: ForkRequest) -> None:
    """Run the requested module in this forked process."""
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    added = [
        path
        for path in request.environment.get("PYTHONPATH", "").split(os.pathsep)
        if path and path not in sys.path
    ]
    sys.path[:0] = added
    module, *_ = sys.argv = request.arguments
    processes.named(module)
    # The module runs again, as the main module.
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
