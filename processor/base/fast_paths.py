"""The fast paths of a run, and why some are off.

Results are right without any of them, at several times the cost: so a run says which it has.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple


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
    names = absent()
    return FastPath("compiled code", f"not built or off: {', '.join(names)}" if names else "")


def in_words(paths: Sequence[FastPath]) -> str:
    """Say in one line which fast paths are on and which are off.

    >>> in_words([FastPath("owners"), FastPath("class archive", "SPARK_HOME is another Spark")])
    'fast paths: owners yes, class archive no (SPARK_HOME is another Spark)'
    """
    parts = (f"{name} no ({why_not})" if why_not else f"{name} yes" for name, why_not in paths)
    return f"fast paths: {', '.join(parts)}"


# Decision (Python says what is right): Modules are optional extensions, and without a compiler
# all runs in Python with the same results. The Python form is the reference and is never removed;
# forms between the two were.

PARTS = (
    "arranged",
    "avro_text",
    "data",
    "half_join",
    "joins",
    "json_text",
    "kafka_records",
    "merging",
    "nesting",
    "picking",
    "placing",
    "putting_together",
    "recent",
    "row_images",
    "taking_apart",
    "upserts",
)


def absent() -> list[str]:
    """List the parts that were not built, or are switched off."""
    return [part for part in PARTS if not _is_there(part)]


def _is_there(part: str) -> bool:
    try:
        return find_spec(f"ikebana.compiled._{part}") is not None
    except ImportError:
        return False
