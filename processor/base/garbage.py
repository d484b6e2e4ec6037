"""Garbage collection for processes that make millions of records without cycles."""

import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

_SELDOM = 100_000
_calls = itertools.count(1)
# After these calls a process has imported and cached what it keeps: at first, and after batches.
_FREEZES = (1, 5, 25)


def seldom_collect() -> None:
    """Look for cycles of objects a hundred times less often than Python does by itself.

    Records are tuples of bytes, which are freed by reference counts.  By default a search for
    cycles after every 700 of them visits all of them, finds none, and takes a third of the time in
    which a topic is read.
    """
    gc.set_threshold(_SELDOM, 20, 50)


def collect_at_times() -> None:
    """Collect the cycles since the first call; to be called from time to time.

    A proxy of an object in Spark's JVM refers to itself, and keeps the object alive until Python
    has collected the proxy.  So a process that collects seldom would keep the plan of each batch,
    some hundred kilobytes.  Other processes collect by themselves.
    """
    if gc.get_threshold()[0] != _SELDOM:
        return
    # Not by gc.get_freeze_count(), which takes 20 ms to count frozen objects.
    call = next(_calls)
    if call > 1:
        gc.collect()
    if call in _FREEZES:
        # The present objects are many, stay, and need not be searched again.
        gc.freeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """Suspend the search for cycles in a `with` block that makes many records.

    This is for library calls: users of a library decide about collection in their process.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
