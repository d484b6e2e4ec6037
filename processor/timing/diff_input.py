"""Diff topics as inputs: the batches of such topics that one of our batches reads.

A diff topic is read up to what its progress has closed.  Several are read up to the
least of their frontiers, so that a batch has, of each, exactly the updates of its own
interval.  Where a frontier lies within another topic's batch, that one is read by both of
ours, and each takes the updates of its times.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ikebana.codecs.progress import ProgressRecord


class Closed(NamedTuple):
    """A progress record, and the offset behind it in its topic."""

    record: ProgressRecord
    after: int


class Span(NamedTuple):
    """What a batch reads of a diff topic: from its own positions up to `reads`.

    The next batch begins to read at `positions`, and to look for progress at
    `progress_at`; None: there, nothing has changed.
    """

    reads: dict[int, int]
    positions: dict[int, int] | None
    progress_at: int | None


def reach(
    closed: Sequence[Closed], positions: Mapping[int, int], lower: int, limit: int | None
) -> int:
    """The frontier up to which a batch that begins at `lower` can read a topic.

    It reads at most about `limit` offsets, or one batch of the topic if that is more.
    """
    found = lower
    for record, _ in closed:
        if record.upper <= lower:
            continue
        size = sum(max(0, end - positions.get(p, 0)) for p, end in record.ends.items())
        if found > lower and limit is not None and size > limit:
            break
        found = record.upper
    return found


def span(closed: Iterable[Closed], upper: int, lower: int) -> Span:
    """The offsets that a batch [lower, upper) reads of a topic that is closed up to `upper`."""
    reads: dict[int, int] = {}
    positions, progress_at = None, None
    for record, after in closed:
        if record.upper <= upper:
            positions, progress_at = dict(record.ends), after
        if record.upper > lower and upper > lower:
            reads = dict(record.ends)
            if record.upper >= upper:
                break
    return Span(reads, positions, progress_at)
