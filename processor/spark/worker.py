"""Set up a Python worker of Spark for the work of a batch."""

import functools
import gc


@functools.cache
def settle() -> None:
    """Exempt all imported objects from garbage collection, once in each process.

    Spark's worker collects garbage after every task.  With pandas and pyarrow loaded, each
    collection visits several hundred thousand objects that live as long as the process.  A
    batch makes a million tuples of bytes without cycles, so a search for cycles every 700
    allocations would find nothing either.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
