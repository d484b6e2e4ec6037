"""Garbage collection for processes that make millions of records without cycles."""

import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

_SELDOM = 100_000
_calls = itertools.count(1)
# By then a process has what it starts with, what its first batches import, and what others do.
_FREEZES = (1, 5, 25)


def seldom_collect() -> None:
    """Look for cycles of objects a hundred times less often than Python does by itself.

    Records are tuples of bytes, which go when nothing refers to them any more.  A search for
    cycles every 700 of them visits all that are there, finds none, and takes a third of the time
    in which a topic is read.
    """
    gc.set_threshold(_SELDOM, 20, 50)


def collect_at_times() -> None:
    """Collect the cycles that have come since the first call; to be called from time to time.

    What stands for an object of Spark's JVM keeps it there until Python has collected it, and
    refers to itself.  So a process that collects seldom would keep the plan of each batch, some
    hundred kilobytes.  Other processes collect by themselves.
    """
    if gc.get_threshold()[0] != _SELDOM:
        return
    # Not by gc.get_freeze_count(), which takes 20 ms to count what is frozen.
    call = next(_calls)
    if call > 1:
        gc.collect()
    if call in _FREEZES:
        # What is there by now is large, stays, and need not be searched again.
        gc.freeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no cycles within a `with` block that makes many records; then go on as before.

    For libraries, whose users decide how often their process looks.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
