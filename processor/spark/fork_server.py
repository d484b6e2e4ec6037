"""A server that has imported the modules of Spark's Python processes, and forks these.

A start of Spark runs half a dozen Python processes, each of which would spend two to three
CPU seconds on imports.  One kind of them must answer within ten seconds, and no setting of
Spark's changes that.  A fork of this process takes milliseconds and shares its memory.

    python -m ikebana.processor.spark.fork_server DESCRIPTOR,… MODULE…

The server imports the modules, listens on an inherited socket for the requests of `stand_in`,
and ends at the end of its standard input.  The further sockets, as `owner:DESCRIPTOR` or
`batch_reader:DESCRIPTOR`, are those of the processes that own shards or read batches: each is
forked when somebody connects to its socket, and again if it dies; it ends when the server does.
The server has one thread, and opens only files that a fork can use.
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
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ikebana.processor.spark.stand_in import INT, STREAMS

# Owners finish a batch and close their databases before they end; the driver waits as long.
END_OF_OWNERS_S = 5.0
_LOOK_EVERY_S = 0.005
# The longest name of a process that Linux shows.
_NAME = 15


class Request(NamedTuple):
    """A request for a Python process: a module, and its arguments on the command line."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    streams: list[int]


class Served(NamedTuple):
    """What a process with a socket of its own needs.

    `kind` is its module, and `lifeline` a pipe that ends with the server.
    """

    kind: str
    listener: socket.socket
    lifeline: int


def main() -> None:
    """Serve requests; in a forked process, run the requested module, or own shards."""
    number, *others = sys.argv[1].split(",")
    listener = socket.socket(fileno=int(number))
    kinds = {
        socket.socket(fileno=int(each)): kind
        for kind, each in (other.split(":") for other in others)
    }
    for module in sys.argv[2:]:
        importlib.import_module(module)
    # All forks share the objects of this process; a garbage collection would copy their pages.
    gc.collect()
    gc.freeze()
    match _Server(listener, kinds).serve():
        case Request() as request:
            _become(request)
        case Served(kind, own, lifeline):
            # Not at the top: a server without such processes may have imported nothing of ours.
            from ikebana.processor.spark import batch_reader, owner

            {"owner": owner, "batch_reader": batch_reader}[kind].serve(own, lifeline)


class _Server:
    """Forks a process for each request, and reports the exit status to the requester."""

    def __init__(self, listener: socket.socket, kinds: dict[socket.socket, str]) -> None:
        self._listener = listener
        self._kinds = kinds
        self._askers: dict[int, socket.socket] = {}
        # The sockets whose process has not been forked, and the others by their process.
        self._unowned = set(kinds)
        self._owners: dict[int, socket.socket] = {}
        self._lifeline, self._life = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._ended, wake = socket.socketpair()
        self._wake = wake
        for end in (self._ended, wake):
            end.settimeout(0)
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._ended, selectors.EVENT_READ)
        for each in kinds:
            self._selector.register(each, selectors.EVENT_READ)

    def serve(self) -> Request | Served | None:
        """Serve until the end; return what to do in a forked process, None in the server."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno())
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    if not os.read(0, 1024):
                        self._end_owners()
                        return None
                elif key.fileobj is self._ended:
                    self._reap()
                elif key.fileobj is not self._listener:
                    assert isinstance(key.fileobj, socket.socket)
                    if (owner := self._fork_owner(key.fileobj)) is not None:
                        return owner
                elif (request := self._accept()) is not None:
                    return request

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            self._ended.recv(1024)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                process, status = ended
                if (owned := self._owners.pop(process, None)) is not None:
                    # Whoever connects to it next, or has connected already, gets another owner.
                    self._unowned.add(owned)
                    self._selector.register(owned, selectors.EVENT_READ)
                    continue
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
            asker.close()
            self._forget()
            os.close(self._lifeline)
            return request
        for stream in request.streams:
            os.close(stream)
        self._askers[process] = asker
        with suppress(OSError):
            asker.sendall(process.to_bytes(INT, "big"))
        return None

    def _fork_owner(self, listener: socket.socket) -> Served | None:
        """Fork the process that belongs to a socket; it accepts the connections that wait."""
        process = os.fork()
        self._unowned.discard(listener)
        if process == 0:
            self._forget()
            return Served(self._kinds[listener], listener, self._lifeline)
        self._owners[process] = listener
        self._selector.unregister(listener)
        return None

    def _end_owners(self) -> None:
        """Let the owners end, and wait for them a while."""
        os.close(self._life)
        deadline = time.monotonic() + END_OF_OWNERS_S
        while self._owners and time.monotonic() < deadline:
            for process in list(self._owners):
                if os.waitpid(process, os.WNOHANG)[0]:
                    del self._owners[process]
            time.sleep(_LOOK_EVERY_S)

    def _forget(self) -> None:
        """Close the server's own files in a forked process, but for an owner's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        os.close(self._life)
        for end in (
            self._listener,
            self._ended,
            self._wake,
            *self._askers.values(),
            *self._unowned,
            *self._owners.values(),
        ):
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
    with suppress(OSError):
        Path("/proc/self/comm").write_text(module[:_NAME])
    # The module runs again, as the main module.
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
