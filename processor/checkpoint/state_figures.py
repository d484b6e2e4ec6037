"""Count the state of a checkpoint in its files, without Spark or Kafka.


The manifest that lists the files of a shard is in Spark's state store.  But the names of files
have their versions, and every attempt at a version writes the same content.  So a chain of files
with consecutive versions from 0 on is the shard after the last batch that was computed.  If there
is a gap, nothing is counted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ikebana.arrangements import run as runs
from ikebana.arrangements.files import FileStore
from ikebana.errors import StateFileError
from ikebana.processor.checkpoint.checkpoint import CheckpointFiles
from ikebana.processor.checkpoint.parts import operator_of

# Kernels store the entries of keys under this prefix; queues and counts have others.
_OF_A_KEY = b"k"


@dataclass(slots=True)
class Figures:
    """The counts of one part of the state: entries, bytes and keys."""

    entries: int = 0
    keys: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class StateFigures:
    """The size of all state files, and the counts of each part, None if they were not counted."""

    files_bytes: int
    parts: Mapping[str, Figures] | None = field(default=None)


def uncounted(layout: CheckpointFiles, shards: int) -> StateFigures:
    """Measure only the files, which include older ones that are not part of the state."""
    sizes = [layout.shard(shard).sizes() for shard in range(shards)]
    return StateFigures(sum(sum(each.values()) for each in sizes))


def counted(
    layout: CheckpointFiles, shards: int, tell: Callable[[int], None] = lambda _: None
) -> StateFigures:
    """Read the state and count each of its parts; `tell` gets the numbers of entries read.

    The pipeline may be running.  If it removes a file meanwhile, or a file is damaged, the parts
    are not counted.
    """
    alone = uncounted(layout, shards)
    figures: dict[str, Figures] = {}
    try:
        for shard in range(shards):
            files = layout.shard(shard)
            line = newest_line(files.names())
            if line is None:
                return alone
            _count(files, line, figures, tell)
    except StateFileError:
        return alone
    return StateFigures(alone.files_bytes, figures)


def newest_line(names: Iterable[str]) -> list[str] | None:
    """Find the chain of files from version 0 to the newest; None if there is a gap.

    >>> base, old, delta = (
    ...     "000000000002-000000000000-base-aa.run",
    ...     "000000000001-000000000000-delta-bb.run",
    ...     "000000000003-000000000002-delta-cc.run",
    ... )
    >>> newest_line([old, base, delta]) == [base, delta], newest_line([old, delta])
    (True, None)
    """
    by_lower: dict[int, tuple[int, str]] = {}
    newest = 0
    for name in names:
        bounds = None if name.startswith(".") else runs.bounds(name)
        if bounds is not None:
            lower, upper = bounds
            newest = max(newest, upper)
            by_lower[lower] = max(by_lower.get(lower, (0, "")), (upper, name))
    line, version = [], 0
    while version in by_lower:
        version, name = by_lower[version]
        line.append(name)
    return line if version == newest else None


def _count(
    files: FileStore, line: list[str], by_part: dict[str, Figures], tell: Callable[[int], None]
) -> None:
    read = 0
    for place, entry in runs.merge(files, line):
        if entry is None:
            continue
        operator = operator_of(place)
        figures = by_part.get(operator)
        if figures is None:
            figures = by_part[operator] = Figures()
        figures.entries += 1
        figures.bytes += len(place) + len(entry)
        at = len(operator.encode()) + 1
        figures.keys += place[at : at + 1] == _OF_A_KEY
        read += 1
        if read % 10_000 == 0:
            tell(10_000)
