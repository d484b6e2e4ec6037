"""What each thread has opened of its own, such as readers and connections."""

import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    """What has to be closed."""

    def close(self) -> None:
        """Give up what it has, once or several times, in any thread."""
        ...


Opened = TypeVar("Opened", bound=Closable)


class OfThreads(Generic[Opened]):
    """What each thread has opened, by name; closed when the thread ends, or all of it at once."""

    def __init__(self) -> None:
        self._own = _Own()
        # Of all threads that have not ended.
        self._all: set[Opened] = set()

    def get(self, name: str, opened: Callable[[], Opened]) -> Opened:
        """Return what this thread has under a name, which is opened the first time."""
        present: Opened | None = self._own.named.get(name)
        if present is not None:
            return present
        fresh = self._own.named[name] = opened()
        self._all.add(fresh)
        # Only the thread has `named`, so it is gone when the thread ends.  No frame that may raise
        # keeps it in a variable: whoever keeps the error would keep it, too.
        ending = weakref.finalize(self._own.named, _let_go, fresh, self._all)
        # When Python ends, other threads may still read.
        ending.atexit = False
        return fresh

    def close(self) -> None:
        """Close what all threads have."""
        # A copy, because threads may end meanwhile.
        for each in tuple(self._all):
            each.close()
        self._all.clear()


class _Named(dict[str, Any]):
    """What a thread has; a plain dict could not be referred to weakly."""


class _Own(threading.local):
    """Has what a thread has, until it ends."""

    def __init__(self) -> None:
        self.named = _Named()


def _let_go(opened: Opened, among: set[Opened]) -> None:
    """Close what a thread had that has ended."""
    among.discard(opened)
    opened.close()
