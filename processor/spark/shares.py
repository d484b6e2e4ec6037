"""Distribute the partitions of a batch over source tasks, by size."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from ikebana.processor.kafka.reader import Range
from ikebana.processor.topics.own_topics import OwnRange
from ikebana.processor.topics.slices import Slice

# The cost of passing on a packed row, as a number of records that are read and decoded.
_HOP_SIZE = 500
# A further task costs some 20 ms of CPU time, in which several thousand records are read, and a
# process that reads before Spark does costs 1 or 2 ms.  From so many on, one more saves time.
_TASK_SIZE = 2_000

_Piece = list[Slice] | Range | OwnRange


@dataclass
class Share(InputPartition):  # type: ignore[misc]
    """The work of one source task: emit ticks, read slices, pass on exchanged rows (hops).

    With `own`, it also takes back what outputs have had in their own topics.
    """

    ticks: list[tuple[int, bytes]]
    slices: list[Slice]
    hops: list[Range]
    own: list[OwnRange]


def shares_of(
    slices: Sequence[Slice], hops: Sequence[Range], readers: int, own: Sequence[OwnRange] = ()
) -> list[Share]:
    """Distribute slices and hops over tasks by size, with as few tasks as are worth their cost.

    Inputs with the same offsets form one piece, whose offsets are read once.
    """
    pieces = _pieces(slices, hops, own)
    worth = 1 + sum(map(_size, pieces)) // _TASK_SIZE
    count = max(1, min(readers, len(pieces), worth))
    shares = [Share([], [], [], []) for _ in range(count)]
    sizes = [0] * count
    for piece in sorted(pieces, key=_size, reverse=True):
        least = sizes.index(min(sizes))
        sizes[least] += _size(piece)
        if isinstance(piece, list):
            shares[least].slices += piece
        elif isinstance(piece, OwnRange):
            shares[least].own.append(piece)
        else:
            shares[least].hops.append(piece)
    return shares


def is_small(shares: Sequence[Share]) -> bool:
    """Whether a task of its own for the work of all would not be worth its cost."""
    pieces = (piece for each in shares for piece in _pieces(each.slices, each.hops, each.own))
    return sum(map(_size, pieces)) < _TASK_SIZE


def united(shares: Sequence[Share]) -> Share:
    """One share with the work of all."""
    found = Share([], [], [], [])
    for each in shares:
        found.ticks += each.ticks
        found.slices += each.slices
        found.hops += each.hops
        found.own += each.own
    return found


def range_of(piece: Slice) -> Range:
    """Return the offsets of a slice; slices of several inputs may have the same."""
    place = piece.place
    return Range(place.topic, place.partition, place.start, piece.end)


def _pieces(
    slices: Sequence[Slice], hops: Sequence[Range], own: Sequence[OwnRange]
) -> list[_Piece]:
    by_range: dict[Range, list[Slice]] = {}
    for each in slices:
        by_range.setdefault(range_of(each), []).append(each)
    return [*by_range.values(), *hops, *own]


def _size(piece: _Piece) -> int:
    if isinstance(piece, list):
        return sum(each.size for each in piece)
    if isinstance(piece, OwnRange):
        return piece.end - piece.start
    # A message of the exchange topic is a packed row, which is only passed on.
    return (piece.end - piece.start) * _HOP_SIZE
