"""Set up a Python process for the work of a batch: a worker of Spark, or one of a host."""

# Decision (imports are frozen): Spark collects garbage after every task, so a worker takes its
# imports out of the collector.

import gc
import itertools
import os
from contextlib import suppress
from pathlib import Path

from ikebana.processor.base.processes import seldom_collect

_calls = itertools.count(1)
# After these tasks a process has imported and cached the objects for its kind of task.
_SETTLES = (1, 4, 16)
# The longest name of a process that Linux shows.
_NAME = 15


def settle() -> None:
    """Exempt the objects of the first tasks of a process from garbage collection.

    Spark's worker collects garbage after every task.  With pandas and pyarrow loaded, each
    collection visits several hundred thousand objects that live as long as the process.
    """
    if next(_calls) not in _SETTLES:
        return
    gc.collect()
    gc.freeze()
    seldom_collect()


def named(name: str) -> None:
    """Give this process a name."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name[:_NAME])


def close_streams() -> None:
    """Close the input, and print to standard error."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
