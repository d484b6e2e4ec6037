"""An update `(data, time, diff)` and the three things that are done to streams of them.

A collection at a time t is the sum of the diffs of each data over the updates with
time <= t.  Two streams of updates are equal when their consolidations are.

Data are equal when their canonical JSON is: 1 is 1.0 and is not true, whatever Python says.
Data that have no JSON form are equal when Python says so.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, MutableMapping
from decimal import Decimal
from typing import Any, Generic, NamedTuple, TypeVar

Data = TypeVar("Data", bound=Hashable)

# A diff that is stored or sent lies between this and its negative, a time between 0 and this.
LARGEST = (1 << 63) - 1
TOO_LARGE = "a diff is beyond 64 bits"
"""What an operator says of a product that it cannot give."""


class Update(NamedTuple, Generic[Data]):
    """The multiplicity of `data` changes by `diff` at `time`."""

    data: Data
    time: int
    diff: int


def consolidate(updates: Iterable[Update[Data]]) -> list[Update[Data]]:
    """Sum diffs of equal `(data, time)` pairs, drop those that cancel, order by time.

    >>> consolidate([Update("a", 3, 1), Update("b", 3, 1), Update("a", 3, -1)])
    [Update(data='b', time=3, diff=1)]
    """
    sums: dict[tuple[int, Hashable], Update[Data]] = {}
    for update in updates:
        at = update.time, _identity(update.data)
        known = sums.get(at)
        sums[at] = update if known is None else known._replace(diff=known.diff + update.diff)
    # Stable: data of one time stay in order of first appearance.
    return sorted(
        (update for update in sums.values() if update.diff), key=lambda update: update.time
    )


def sums(
    updates: Iterable[tuple[bytes | None, bytes, int, int]],
) -> dict[tuple[bytes | None, bytes, int], int]:
    """The diffs of equal (key, value, time) summed, in order of first appearance.

    >>> sums([(b"1", b"{}", 3, 1), (b"1", b"{}", 3, -1)])
    {(b'1', b'{}', 3): 0}
    """
    found: dict[tuple[bytes | None, bytes, int], int] = {}
    for key, value, time, diff in updates:
        at = key, value, time
        found[at] = found.get(at, 0) + diff
    return found


class Collection(MutableMapping[Data, int]):
    """A collection as a mapping from data to counts; equal to any equal mapping.

    >>> Collection([(1, 2), (True, 1), (1.0, 1)])
    {1: 3, True: 1}
    """

    def __init__(self, counts: Iterable[tuple[Data, int]] = ()) -> None:
        self._counts: dict[Hashable, tuple[Data, int]] = {}
        for data, count in counts:
            of = _identity(data)
            first, before = self._counts.get(of, (data, 0))
            self._counts[of] = first, before + count
        for of in [of for of, (_, count) in self._counts.items() if not count]:
            del self._counts[of]

    def __getitem__(self, data: Data) -> int:
        return self._counts[_identity(data)][1]

    def __setitem__(self, data: Data, count: int) -> None:
        self._counts[_identity(data)] = data, count

    def __delitem__(self, data: Data) -> None:
        del self._counts[_identity(data)]

    def __iter__(self) -> Iterator[Data]:
        return (data for data, _ in self._counts.values())

    def __len__(self) -> int:
        return len(self._counts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return len(self) == len(other) and all(
            self._counts.get(_identity(data), (data, None))[1] == count
            for data, count in other.items()
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{data!r}: {count}" for data, count in self.items()) + "}"


def pieces(diff: int) -> Iterator[int]:
    """A sum of diffs as diffs that can be stored and sent, of which none is 0.

    >>> [*pieces(-3)], [*pieces(0)], [*pieces(2**64)]
    ([-3], [], [9223372036854775807, 9223372036854775807, 2])
    """
    while diff > LARGEST or diff < -LARGEST:
        yield LARGEST if diff > 0 else -LARGEST
        diff -= LARGEST if diff > 0 else -LARGEST
    if diff:
        yield diff


def within(diff: int) -> int:
    """The diff, or its sign if it is too large: what an error record of it counts."""
    return diff if -LARGEST <= diff <= LARGEST else (1 if diff > 0 else -1)


def accumulate(updates: Iterable[Update[Data]], as_of: int) -> Collection[Data]:
    """Sum diffs over times <= `as_of`; data whose sum is zero are absent.

    >>> accumulate([Update("a", 1, 1), Update("b", 2, 1), Update("a", 3, -1)], 2)
    {'a': 1, 'b': 1}
    """
    return Collection((data, diff) for data, time, diff in updates if time <= as_of)


def _identity(data: Any) -> Hashable:
    """What two data have in common exactly if they are equal."""
    kind = type(data)
    if kind is bytes or kind is str or kind is int:
        return data  # type: ignore[no-any-return]
    match data:
        case bool():
            return bool, data
        case float() if math.isfinite(data):
            # Its text, since that is what JSON has of it.
            return Decimal(str(data))
        case tuple() | list():
            return tuple, tuple(map(_identity, data))
        case dict():
            fields = ((name, _identity(value)) for name, value in data.items())
            return dict, frozenset(fields)
        case _:
            return data  # type: ignore[no-any-return]


def negate(updates: Iterable[Update[Data]]) -> list[Update[Data]]:
    """Negate every diff: the sum with the original is the empty collection."""
    return [update._replace(diff=-update.diff) for update in updates]
