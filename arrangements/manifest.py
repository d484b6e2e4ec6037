"""A manifest: the list of runs that make up a shard at a version; it is authoritative.

It is what Spark's state row of the shard holds, and what a Kafka marker carries.  A
state is named by an id; the ids along `runs` are the line that a local copy must be
on to be of use.  Version numbers only order and name files: ids decide.
"""

from collections.abc import Sequence

import msgspec

from ikebana.arrangements.run import Run

FORMAT = 1

# So many runs of one length are merged into one.
MERGE_WIDTH = 8


class Dropped(msgspec.Struct, frozen=True):
    """A file that the manifest of `batch` ceased to name."""

    batch: int
    name: str


class Manifest(msgspec.Struct, frozen=True):
    """The runs of one shard, oldest first; the first may be a base (its lower is 0)."""

    checkpoint: str
    shard: int
    version: int = 0
    runs: list[Run] = []
    dropped: list[Dropped] = []
    format: int = FORMAT

    @property
    def state(self) -> str | None:
        """The id of the state at this version; None while it is empty."""
        return self.runs[-1].state if self.runs else None

    @property
    def size(self) -> int:
        """Bytes of the files that it names."""
        return sum(run.size for run in self.runs)


def to_merge(runs: Sequence[Run]) -> int:
    """How many runs at the end of the list are due to become one; 0 for none.

    When what follows the first run outweighs it, all are merged and the first is a new
    base.  Else runs of equally many versions are merged eight by eight, so that a
    change is rewritten about log(versions) times before it reaches a base.
    """
    rest = runs[1:]
    if len(rest) < MERGE_WIDTH:
        return 0
    if sum(run.size for run in rest) >= runs[0].size:
        return len(runs)
    versions = [run.upper - run.lower for run in rest]
    length, count = min(versions[-MERGE_WIDTH:]), 0
    # Eight of one length become one of eight times that, which may be the eighth again.
    while len(versions) - count >= MERGE_WIDTH - bool(count):
        group = (
            versions[-MERGE_WIDTH:] if not count else versions[-count - MERGE_WIDTH + 1 : -count]
        )
        if max(group) >= MERGE_WIDTH * length:
            break
        count += len(group)
        length *= MERGE_WIDTH
    return count
