"""Distribute the partitions of a batch over source tasks, by size."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from ikebana.processor.kafka.reader import Range
from ikebana.processor.timing.reclock import Slice

# What handing on a packed row comes to, in records that are read and decoded.
_HOP_SIZE = 500


@dataclass
class Share(InputPartition):  # type: ignore[misc]
    """The work of one source task: emit ticks, read slices, hand on hops."""

    ticks: list[tuple[int, bytes]]
    slices: list[Slice]
    hops: list[Range]


def shares_of(slices: Sequence[Slice], hops: Sequence[Range], readers: int) -> list[Share]:
    """Spread what is read over tasks by size; a task costs more than a partition.

    The inputs that have the same offsets are one piece: these are read once.
    """
    by_range: dict[Range, list[Slice]] = {}
    for each in slices:
        by_range.setdefault(range_of(each), []).append(each)
    pieces: list[list[Slice] | Range] = [*by_range.values(), *hops]
    count = max(1, min(readers, len(pieces)))
    shares = [Share([], [], []) for _ in range(count)]
    sizes = [0] * count
    for piece in sorted(pieces, key=_size, reverse=True):
        least = sizes.index(min(sizes))
        sizes[least] += _size(piece)
        if isinstance(piece, list):
            shares[least].slices += piece
        else:
            shares[least].hops.append(piece)
    return shares


def range_of(piece: Slice) -> Range:
    """The offsets of a slice, which several inputs may have."""
    place = piece.place
    return Range(place.topic, place.partition, place.start, piece.end)


def _size(piece: list[Slice] | Range) -> int:
    if isinstance(piece, list):
        return sum(each.size for each in piece)
    # A message that hops is a packed row, which is only handed on.
    return (piece.end - piece.start) * _HOP_SIZE
