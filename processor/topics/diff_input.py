"""Choose which batches of diff topics, as inputs, one of our batches reads.

A diff topic is read up to the time that its progress has closed.  Several diff topics are read
up to the least of their frontiers, so that our batch has, of each, exactly the updates of its
own interval.  If our frontier lies within a batch of a topic, two of our batches read that
batch, and each keeps the updates of its own interval.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ikebana.codecs.progress import ProgressRecord


class ClosedProgress(NamedTuple):
    """A progress record, and the offset after it in its topic."""

    record: ProgressRecord
    after: int


class DiffSpan(NamedTuple):
    """The offsets that a batch reads of a diff topic: from its own positions up to `reads`.

    The next batch begins to read updates at `positions`, and progress at `progress_at`; both
    are None if the batch does not move them.
    """

    reads: dict[int, int]
    positions: dict[int, int] | None
    progress_at: int | None


def reach(
    closed: Sequence[ClosedProgress], positions: Mapping[int, int], lower: int, limit: int | None
) -> int:
    """Compute the frontier up to which a batch that begins at `lower` can read a topic.

    The batch reads at most about `limit` offsets, or one batch of the topic if that is more.
    """
    frontier = lower
    for record, _ in closed:
        if record.upper <= lower:
            continue
        size = sum(max(0, end - positions.get(p, 0)) for p, end in record.ends.items())
        if frontier > lower and limit is not None and size > limit:
            break
        frontier = record.upper
    return frontier


def span(closed: Iterable[ClosedProgress], upper: int, lower: int) -> DiffSpan:
    """Compute what a batch [lower, upper) reads of a topic that is closed up to `upper`."""
    reads: dict[int, int] = {}
    positions, progress_at = None, None
    for record, after in closed:
        if record.upper <= upper:
            positions, progress_at = dict(record.ends), after
        if record.upper > lower and upper > lower:
            reads = dict(record.ends)
            if record.upper >= upper:
                break
    return DiffSpan(reads, positions, progress_at)
