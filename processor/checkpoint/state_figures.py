"""How much the state of a checkpoint has, counted in its files without Spark or Kafka.

The manifest that says which files make up a shard lies in Spark's state store.  But files
say by their names which versions they hold, and what is written for a version is the same
however often it was tried.  So the files that follow on one another from version 0 on are a
shard, as it was after the last batch that was computed.  Where they do not, nothing is said.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ikebana.arrangements import run as runs
from ikebana.arrangements.files import FileStore, Folder
from ikebana.errors import StateFileError
from ikebana.processor.checkpoint.checkpoint import Checkpoint
from ikebana.processor.checkpoint.parts import operator_of

# Kernels keep what they have of a key below this; beside it are queues and counts of values.
_OF_A_KEY = b"k"


@dataclass(slots=True)
class Figures:
    """What one part of the state has: entries with their bytes, and of how many keys."""

    entries: int = 0
    keys: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class StateFigures:
    """The size of all state files, and what each part has; None where that is not counted."""

    files_bytes: int
    parts: Mapping[str, Figures] | None = field(default=None)


def uncounted(checkpoint: Checkpoint, shards: int) -> StateFigures:
    """The size of the files alone: more than the state has, for files of before are kept."""
    sizes = [_files(checkpoint, shard).sizes() for shard in range(shards)]
    return StateFigures(sum(sum(each.values()) for each in sizes))


def counted(
    checkpoint: Checkpoint, shards: int, tell: Callable[[int], None] = lambda _: None
) -> StateFigures:
    """Read the state and count what each of its parts has; `tell` hears of entries that were read.

    It can be done while the pipeline runs.  If that removes a file meanwhile, or a file is
    damaged, nothing is said of the parts.
    """
    alone = uncounted(checkpoint, shards)
    found: dict[str, Figures] = {}
    try:
        for shard in range(shards):
            files = _files(checkpoint, shard)
            line = newest_line(files.names())
            if line is None:
                return alone
            _count(files, line, found, tell)
    except StateFileError:
        return alone
    return StateFigures(alone.files_bytes, found)


def newest_line(names: Iterable[str]) -> list[str] | None:
    """The files that follow on one another from version 0 to the newest; None if they do not.

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
        known = None if name.startswith(".") else runs.bounds(name)
        if known is not None:
            lower, upper = known
            newest = max(newest, upper)
            by_lower[lower] = max(by_lower.get(lower, (0, "")), (upper, name))
    line, version = [], 0
    while version in by_lower:
        version, name = by_lower[version]
        line.append(name)
    return line if version == newest else None


def _count(
    files: FileStore, line: list[str], found: dict[str, Figures], tell: Callable[[int], None]
) -> None:
    read = 0
    for place, entry in runs.merge(files, line):
        if entry is None:
            continue
        operator = operator_of(place)
        figures = found.get(operator)
        if figures is None:
            figures = found[operator] = Figures()
        figures.entries += 1
        figures.bytes += len(place) + len(entry)
        at = len(operator.encode()) + 1
        figures.keys += place[at : at + 1] == _OF_A_KEY
        read += 1
        if read % 10_000 == 0:
            tell(10_000)


def _files(checkpoint: Checkpoint, shard: int) -> Folder:
    return Folder.at(checkpoint.location, "shards", f"{shard:04d}")
