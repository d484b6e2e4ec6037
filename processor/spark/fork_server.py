"""A server that has imported the modules of Spark's Python processes, and forks these.

A start of Spark runs half a dozen Python processes, each of which would spend two to three
CPU seconds on imports.  One kind of them must answer within ten seconds, and no setting of
Spark's changes that.  A fork of this process takes milliseconds and shares its memory.

    python -m ikebana.processor.spark.fork_server DESCRIPTOR MODULE…

The server imports the modules, listens on an inherited socket for the requests of `stand_in`,
and ends at the end of its standard input.  It has one thread, and opens only files that a fork
can use.
"""

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from contextlib import suppress
from typing import NamedTuple

from ikebana.processor.spark.stand_in import INT, STREAMS


class Request(NamedTuple):
    """A request for a Python process: a module, and its arguments on the command line."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    streams: list[int]


def main() -> None:
    """Serve requests; in a forked process, run the requested module."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        importlib.import_module(module)
    # All forks share the objects of this process; a garbage collection would copy their pages.
    gc.collect()
    gc.freeze()
    request = _Server(listener).serve()
    if request is not None:
        _become(request)


class _Server:
    """Forks a process for each request, and reports the exit status to the requester."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._askers: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._ended, wake = socket.socketpair()
        self._wake = wake
        for end in (self._ended, wake):
            end.settimeout(0)
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._ended, selectors.EVENT_READ)

    def serve(self) -> Request | None:
        """Serve until the end; return the request in a forked process, None in the server."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno())
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    if not os.read(0, 1024):
                        return None
                elif key.fileobj is self._ended:
                    self._reap()
                elif (request := self._accept()) is not None:
                    return request

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            self._ended.recv(1024)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                process, status = ended
                code = os.waitstatus_to_exitcode(status)
                _tell(self._askers.pop(process), code if code >= 0 else 128 - code)

    def _accept(self) -> Request | None:
        asker, _ = self._listener.accept()
        request = _received(asker)
        if request is None:
            asker.close()
            return None
        process = os.fork()
        if process == 0:
            self._forget(asker)
            return request
        for stream in request.streams:
            os.close(stream)
        self._askers[process] = asker
        with suppress(OSError):
            asker.sendall(process.to_bytes(INT, "big"))
        return None

    def _forget(self, asker: socket.socket) -> None:
        """Close the server's own files in a forked process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for end in (self._listener, self._ended, self._wake, asker, *self._askers.values()):
            end.close()


def _received(asker: socket.socket) -> Request | None:
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
    return None if missing else Request(**json.loads(body), streams=streams)


def _tell(asker: socket.socket, status: int) -> None:
    with suppress(OSError), asker:
        asker.sendall(status.to_bytes(INT, "big"))


def _become(request: Request) -> None:
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
    # The module runs again, as the main module.
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
