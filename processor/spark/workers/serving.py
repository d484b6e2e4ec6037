"""The common part of processes that serve a run over sockets: owners of shards, and readers.

Such a process is a fork of the host.  It serves one request after the other, and ends when the
host ends, however that happens; if it is killed, the host starts another one.
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
from typing import Generic, TypeVar

from ikebana.processor.base import calls
from ikebana.processor.spark import worker
from ikebana.processor.spark.workers import left_rows, messages, network
from ikebana.processor.spark.workers.messages import Answer, MissingContent, Raised, Sealed
from ikebana.processor.spark.workers.owners import EXECUTOR_VARIABLE
from ikebana.processor.spark.workers.stand_in import VARIABLE

Content = TypeVar("Content")
# A request is sent without pauses; a client that was stopped meanwhile is not waited for longer.
_SENT_WITHIN_S = 120.0
_LOCAL_VARIABLES = (VARIABLE, EXECUTOR_VARIABLE, left_rows.VARIABLE, calls.REPORT_VARIABLE)


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
        with suppress(OSError), network.accepted(listener) as connection:
            connection.settimeout(_SENT_WITHIN_S)
            answer(connection)


class CachedContent(Generic[Content]):
    """The last content that requests have named by digest: a run has one at a time."""

    def __init__(self) -> None:
        self._digest = ""
        self._content: Content | None = None

    def answer(
        self, connection: socket.socket, digest: str, do: Callable[[Content], Answer]
    ) -> None:
        """Request the content if it is not there, call `do` with it, and send the answer."""
        sealed = None
        if self._content is None or self._digest != digest:
            messages.send(connection, MissingContent())
            sealed = messages.receive(connection, Sealed)
        # The request may have waited for others, and its client may have given up.
        if _is_closed(connection):
            return

        def run() -> Answer:
            content = self._opened(digest, sealed)
            calls.arm()
            return do(content)

        answer(connection, run)

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


def answer(connection: socket.socket, do: Callable[[], Answer]) -> None:
    """Send the result of a function, or the error that it raises."""
    try:
        result = do()
    except BaseException as error:  # noqa: BLE001 -- who has asked raises it
        kind = type(error)
        details = str(error), traceback.format_exc()
        result = Raised(kind.__module__, kind.__qualname__, *details)
    messages.send(connection, result)


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
    worker.named(name)
    worker.close_streams()
    sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
