"""Set up a Python worker of Spark for the work of a batch."""

import gc
import itertools

from ikebana.processor.ground.garbage import seldom_collect

_calls = itertools.count(1)
# By then a process has imported and cached what its kind of task needs.
_SETTLES = (1, 4, 16)


def settle() -> None:
    """Exempt all objects from garbage collection that there are in the first tasks of a process.

    Spark's worker collects garbage after every task.  With pandas and pyarrow loaded, each
    collection visits several hundred thousand objects that live as long as the process.
    """
    if next(_calls) not in _SETTLES:
        return
    gc.collect()
    gc.freeze()
    seldom_collect()
