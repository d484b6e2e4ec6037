"""What the processes that serve a run over sockets have in common: owners of shards, and readers.

Such a process is a fork of the host.  It serves one request after the other, and ends when
the host ends, however that dies; the host starts another one for a killed one.
"""

import os
import pickle
import resource
import select
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from ikebana.processor.ground import calls
from ikebana.processor.spark import worker
from ikebana.processor.spark.workers import messages
from ikebana.processor.spark.workers.messages import Answer, ClosedError, Missing, Raised, Sealed

Content = TypeVar("Content")
# All of a request is sent in one go; one that was stopped meanwhile is not waited for.
_SENT_WITHIN_S = 120.0


def serve(
    name: str,
    listener: socket.socket,
    lifeline: int,
    answer: Callable[[socket.socket], None],
    close: Callable[[], None],
) -> None:
    """Become the process `name`; answer connections until `lifeline` is at its end."""
    _become(name)
    worker.settle()
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    waiting.register(lifeline, select.POLLIN)
    while True:
        if lifeline in dict(waiting.poll()):
            close()
            return
        connection, _ = listener.accept()
        with connection, suppress(ClosedError, OSError):
            connection.settimeout(_SENT_WITHIN_S)
            answer(connection)


class Known(Generic[Content]):
    """The last content that requests have named by its digest: a run has one at a time."""

    def __init__(self) -> None:
        self._digest = ""
        self._content: Content | None = None

    def answer(
        self, connection: socket.socket, digest: str, do: Callable[[Content], Answer]
    ) -> None:
        """Ask for the content if it is not known, do something with it, and send the answer."""
        sealed = None
        if self._content is None or self._digest != digest:
            messages.send(connection, Missing())
            sealed = messages.receive(connection, Sealed)
        # The request may have waited behind others, and who has asked may have given up.
        if _is_closed(connection):
            return
        try:
            found = self._opened(digest, sealed)
            calls.arm()
            answer = do(found)
        except BaseException as error:  # noqa: BLE001 -- who has asked raises it
            kind = type(error)
            told = str(error), traceback.format_exc()
            answer = Raised(kind.__module__, kind.__qualname__, *told)
        messages.send(connection, answer)

    def _opened(self, digest: str, sealed: Sealed | None) -> Content:
        if sealed is not None:
            os.environ.update(sealed.environment)
            sys.path.extend(path for path in sealed.path if path not in sys.path)
            self._content = pickle.loads(sealed.content)
            self._digest = digest
        assert self._content is not None
        return self._content


def _is_closed(connection: socket.socket) -> bool:
    # Nothing is sent behind a request, so there is something to read only at the end.
    ended = select.poll()
    ended.register(connection, select.POLLIN)
    return bool(ended.poll(0))


def _become(name: str) -> None:
    """Take a name of its own, no input, and all files that it may open.

    What functions print goes where errors go.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
