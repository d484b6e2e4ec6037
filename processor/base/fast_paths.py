"""The fast paths of a run, and why some are off.

Results are right without any of them, at several times the cost: so a run says which it has.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ikebana.processor.base import compiled_parts


class FastPath(NamedTuple):
    """One fast path; `why_not` says why it is off, and is empty if it is on."""

    name: str
    why_not: str = ""


OWNERS = "owners"
"""Processes that keep the databases of shards open between batches."""
_MISSED = "Spark's Python has found no host: see spark.python.daemon.module"


def missed_owners(paths: Sequence[FastPath]) -> tuple[FastPath, ...]:
    """Return the fast paths after a batch that ran without owners, although the run has some."""
    return tuple(
        FastPath(path.name, path.why_not or _MISSED) if path.name == OWNERS else path
        for path in paths
    )


def compiled_code() -> FastPath:
    """Return whether all loops over records are compiled."""
    absent = compiled_parts.absent()
    return FastPath("compiled code", f"not built or off: {', '.join(absent)}" if absent else "")


def in_words(paths: Sequence[FastPath]) -> str:
    """Say in one line which fast paths are on and which are off.

    >>> in_words([FastPath("owners"), FastPath("class archive", "SPARK_HOME is another Spark")])
    'fast paths: owners yes, class archive no (SPARK_HOME is another Spark)'
    """
    parts = (f"{name} no ({why_not})" if why_not else f"{name} yes" for name, why_not in paths)
    return f"fast paths: {', '.join(parts)}"
