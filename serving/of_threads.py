"""Resources per thread, such as readers and connections."""

import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    """A resource that must be closed."""

    def close(self) -> None:
        """Release it; may be called more than once, and in any thread."""
        ...


Opened = TypeVar("Opened", bound=Closable)


class OfThreads(Generic[Opened]):
    """Resources of each thread, by name; closed when the thread ends, or all at once."""

    def __init__(self) -> None:
        self._local = _Local()
        # Of all threads that have not ended.
        self._all: set[Opened] = set()

    def get(self, name: str, opened: Callable[[], Opened]) -> Opened:
        """Return this thread's resource of a name; opens it the first time."""
        present: Opened | None = self._local.named.get(name)
        if present is not None:
            return present
        fresh = self._local.named[name] = opened()
        self._all.add(fresh)
        # Only the thread has `named`, so it is gone when the thread ends.  No frame that may raise
        # keeps it in a variable: whoever keeps the error would keep it, too.
        ending = weakref.finalize(self._local.named, _let_go, fresh, self._all)
        # When Python ends, other threads may still read.
        ending.atexit = False
        return fresh

    def close(self) -> None:
        """Close the resources of all threads."""
        # A copy, because threads may end meanwhile.
        for each in tuple(self._all):
            each.close()
        self._all.clear()


class _Named(dict[str, Any]):
    """The resources of a thread; a plain dict has no weak references."""


class _Local(threading.local):
    """Holds the resources of a thread until it ends."""

    def __init__(self) -> None:
        self.named = _Named()


def _let_go(opened: Opened, among: set[Opened]) -> None:
    """Close a resource of a thread that has ended."""
    among.discard(opened)
    opened.close()
