"""Set up a Python worker of Spark for the work of a batch."""

import functools
import gc


@functools.cache
def settle() -> None:
    """Take what is imported out of the garbage collector's sight, once a process.

    Spark's worker collects garbage after every task, and with pandas and pyarrow loaded
    each collection walks several hundred thousand objects that live as long as the
    process.  A batch makes a million tuples of bytes in no cycle: looking for cycles
    among them every 700 allocations finds nothing either.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
