"""Distribute the partitions of a batch over source tasks, by size."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from ikebana.processor.kafka.reader import Range
from ikebana.processor.topics.own_topics import OwnRange
from ikebana.processor.topics.slices import Slice

# The cost of passing on a packed row, as a number of records to read and decode.
_HOP_SIZE = 500
# A further task costs some 20 ms of CPU time, in which several thousand records are read, and a
# process that reads before Spark does costs 1 or 2 ms.  From so many on, one more saves time.
_TASK_SIZE = 2_000

_Piece = list[Slice] | Range | OwnRange


@dataclass
class Share(InputPartition):  # type: ignore[misc]
    """The work of one source task: emit ticks, read slices, pass on exchanged rows (hops).

    With `read_back`, it also retracts contents of outputs' own topics.
    """

    ticks: list[tuple[int, bytes]]
    slices: list[Slice]
    hops: list[Range]
    read_back: list[OwnRange]


def shares_of(
    slices: Sequence[Slice],
    hops: Sequence[Range],
    readers: int,
    read_back: Sequence[OwnRange] = (),
) -> list[Share]:
    """Distribute slices and hops over tasks by size, with as few tasks as are worth their cost.

    Inputs with the same offsets form one piece, so that the offsets are read once.
    """
    pieces = _pieces(slices, hops, read_back)
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
            shares[least].read_back.append(piece)
        else:
            shares[least].hops.append(piece)
    return shares


def is_small(shares: Sequence[Share]) -> bool:
    """Whether the work of all shares is too small to be worth the cost of a task."""
    pieces = (
        piece for each in shares for piece in _pieces(each.slices, each.hops, each.read_back)
    )
    return sum(map(_size, pieces)) < _TASK_SIZE


def united(shares: Sequence[Share]) -> Share:
    """One share with the work of several."""
    result = Share([], [], [], [])
    for each in shares:
        result.ticks += each.ticks
        result.slices += each.slices
        result.hops += each.hops
        result.read_back += each.read_back
    return result


def range_of(piece: Slice) -> Range:
    """Return the offsets of a slice; slices of several inputs may have the same."""
    place = piece.place
    return Range(place.topic, place.partition, place.start, piece.end)


def _pieces(
    slices: Sequence[Slice], hops: Sequence[Range], read_back: Sequence[OwnRange]
) -> list[_Piece]:
    by_range: dict[Range, list[Slice]] = {}
    for each in slices:
        by_range.setdefault(range_of(each), []).append(each)
    return [*by_range.values(), *hops, *read_back]


def _size(piece: _Piece) -> int:
    if isinstance(piece, list):
        return sum(each.size for each in piece)
    if isinstance(piece, OwnRange):
        return piece.end - piece.start
    # A message of the exchange topic is a packed row, which is only passed on.
    return (piece.end - piece.start) * _HOP_SIZE
