"""A manifest: the list of runs that make up a shard at a version.

It is authoritative, and is stored in Spark's state row of the shard and in the Kafka commit
record.  Each state has an id.  A local copy can be brought up to date only if the id of its state
is among those of the manifest's `runs`.  Version numbers only order and name files.
"""

from collections.abc import Sequence

import msgspec

from ikebana.arrangements.run import RunEntry

FORMAT = 1
"""The form of the entries and of the files that a manifest names."""

# The number of runs of one length that are merged into one.
MERGE_WIDTH = 8
# A new base is written when changes have this many times the bytes of the base, and are large or
# in many runs.
GROWTH = 1.5
MANY_BYTES = 1 << 20
# Beyond this many bytes in all files, also as soon as half of them are certainly deleted.
MANY_GONE = 1 << 17


class Dropped(msgspec.Struct, frozen=True):
    """A file that the manifest of `batch` no longer names."""

    batch: int
    name: str


class Manifest(msgspec.Struct, frozen=True):
    """The runs of one shard, oldest first; the first may be a base (its lower is 0)."""

    checkpoint: str
    shard: int
    version: int = 0
    runs: list[RunEntry] = []
    dropped: list[Dropped] = []
    format: int = FORMAT

    @property
    def state(self) -> str | None:
        """The id of the state at this version; None if it is empty."""
        return self.runs[-1].state if self.runs else None

    @property
    def size(self) -> int:
        """The size of the named files in bytes."""
        return sum(run.size for run in self.runs)


def to_merge(runs: Sequence[RunEntry]) -> int:
    """Count the runs at the end of the list that are due to be merged into one; 0 for none.

    When the runs after the first have together 1.5 times its size, all are merged into a new base,
    so that files have at most two and a half times the size of their contents; while these runs
    are small, this waits until there are eight.  All are merged sooner if half of their bytes are
    deleted, such as entries that have waited for their time.  Otherwise runs of equally many
    versions are merged eight by eight, so that a change is rewritten about log(versions) times
    before it reaches a base.
    """
    rest = runs[1:]
    size = sum(run.size for run in rest)
    is_many = size >= MANY_BYTES or len(rest) >= MERGE_WIDTH
    if rest and is_many and size >= GROWTH * runs[0].size:
        return len(runs)
    if rest and size + runs[0].size >= MANY_GONE and _mostly_gone(runs):
        return len(runs)
    if len(rest) < MERGE_WIDTH:
        return 0
    versions = [run.upper - run.lower for run in rest]
    length, count = min(versions[-MERGE_WIDTH:]), 0
    # The merged run has eight times the length, and may itself be the eighth of its length.
    while len(versions) - count >= MERGE_WIDTH - bool(count):
        group = (
            versions[-MERGE_WIDTH:] if not count else versions[-count - MERGE_WIDTH + 1 : -count]
        )
        if max(group) >= MERGE_WIDTH * length:
            break
        count += len(group)
        length *= MERGE_WIDTH
    return count


def _mostly_gone(runs: Sequence[RunEntry]) -> bool:
    """Whether at least half of the bytes of keys and values are certainly deleted."""
    return 2 * sum(run.gone for run in runs) >= sum(run.plain for run in runs) > 0
