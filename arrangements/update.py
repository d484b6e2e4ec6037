"""Updates `(data, time, diff)`, their times, and the operations on streams of them.

A collection as of time t has each data with the sum of its diffs over the updates with
time <= t.  Two streams of updates are equal if their consolidations are equal.

Data are equal if their canonical JSON is equal: 1 equals 1.0, and does not equal True, unlike in
Python.  Data without a JSON form are compared by Python's `==`.

A time is an integer.  Times are totally ordered, so a frontier is one time: all updates still to
come have times with `frontier <= time`.  A micro-batch closes an interval `[lower, upper)`, and
the `lower` of each is the `upper` of the one before.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from decimal import Decimal
from functools import total_ordering
from typing import Any, Generic, NamedTuple, TypeVar

Data = TypeVar("Data", bound=Hashable)
Time = int

# Stored and sent diffs are between this and its negative, times between 0 and this.
LARGEST = (1 << 63) - 1
TOO_LARGE = "a diff is beyond 64 bits"
"""The reason in the error record of a product of diffs that is too large."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The times `lower <= time < upper`; empty when the two are equal."""

    lower: Time
    upper: Time

    def __post_init__(self) -> None:
        assert self.lower <= self.upper, f"interval runs backwards: {self.lower}, {self.upper}"

    def __contains__(self, time: Time) -> bool:
        return self.lower <= time < self.upper

    def __bool__(self) -> bool:
        return self.lower < self.upper


class Update(NamedTuple, Generic[Data]):
    """The multiplicity of `data` changes by `diff` at `time`.

    >>> key, value = Update(("tea", 5), time=3, diff=1).data
    >>> key, value
    ('tea', 5)
    """

    data: Data
    time: int
    diff: int


def consolidate(updates: Iterable[Update[Data]]) -> list[Update[Data]]:
    """Sum diffs of equal `(data, time)` pairs, drop sums of zero, and order by time.

    Takes and returns updates `(data, time, diff)`; no result has diff 0.

    >>> consolidate([Update("a", 3, 1), Update("b", 3, 1), Update("a", 3, -1)])
    [Update(data='b', time=3, diff=1)]
    """
    sums: dict[tuple[int, Hashable], Update[Data]] = {}
    for update in updates:
        at = update.time, _identity(update.data)
        earlier = sums.get(at)
        sums[at] = update if earlier is None else earlier._replace(diff=earlier.diff + update.diff)
    # Stable: data of one time stay in order of first appearance.
    return sorted(
        (update for update in sums.values() if update.diff), key=lambda update: update.time
    )


def sums(
    updates: Iterable[tuple[bytes | None, bytes, int, int]],
) -> dict[tuple[bytes | None, bytes, int], int]:
    """Sum the diffs of equal (key, value, time), in order of first appearance; zeros stay.

    >>> sums([(b"1", b"{}", 3, 1), (b"1", b"{}", 3, -1)])
    {(b'1', b'{}', 3): 0}
    """
    result: dict[tuple[bytes | None, bytes, int], int] = {}
    for key, value, time, diff in updates:
        at = key, value, time
        result[at] = result.get(at, 0) + diff
    return result


class Multiset(MutableMapping[Data, int]):
    """A collection as a mapping from data to counts; equal to any equal mapping.

    >>> Multiset([(1, 2), (True, 1), (1.0, 1)])
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
    """Split a sum of diffs into diffs that can be stored and sent, none of which is 0.

    >>> [*pieces(-3)], [*pieces(0)], [*pieces(2**64)]
    ([-3], [], [9223372036854775807, 9223372036854775807, 2])
    """
    while diff > LARGEST or diff < -LARGEST:
        yield LARGEST if diff > 0 else -LARGEST
        diff -= LARGEST if diff > 0 else -LARGEST
    if diff:
        yield diff


def within(diff: int) -> int:
    """Return the diff, or its sign if it is too large: the count of an error record about it."""
    return diff if -LARGEST <= diff <= LARGEST else (1 if diff > 0 else -1)


def accumulate(updates: Iterable[Update[Data]], as_of: int) -> Multiset[Data]:
    """Sum diffs over times <= `as_of`: the collection as of then, without data that sum to 0.

    Takes updates `(data, time, diff)`, in any order, and returns counts by data.

    >>> accumulate([Update("a", 1, 1), Update("b", 2, 1), Update("a", 3, -1)], 2)
    {'a': 1, 'b': 1}
    """
    return Multiset((data, diff) for data, time, diff in updates if time <= as_of)


def _identity(data: Any) -> Hashable:
    """Make a hashable value that is equal for equal data, and differs for different data."""
    kind = type(data)
    if kind is bytes or kind is str or kind is int:
        return data  # type: ignore[no-any-return]
    match data:
        case bool():
            return bool, data
        case float() if math.isfinite(data):
            # JSON has the shortest text of a float, so that defines equality.
            return Decimal(str(data))
        case tuple() | list():
            return tuple, tuple(map(_identity, data))
        case dict():
            fields = ((name, _identity(value)) for name, value in data.items())
            return dict, frozenset(fields)
        case _:
            return data  # type: ignore[no-any-return]


def negate(updates: Iterable[Update[Data]]) -> list[Update[Data]]:
    """Negate every diff: the sum with the original is the empty collection.

    >>> negate([Update("a", 3, 2)])
    [Update(data='a', time=3, diff=-2)]
    """
    return [update._replace(diff=-update.diff) for update in updates]


# Alt/Neu times: just before a time, and just after it.
#
# Alt t < Neu t, and both compare like t with any other time.  With them an as-of join can be
# written as a plain join: `differentiate` lets each update exist only from Alt t to Neu t, the
# join matches it with the other side as of t, and `integrate` turns the results into updates at t.
#
# Join and meet are those of the lattice of times; times are totally ordered here, so they are the
# later and the earlier time.
#
# Source of the method: the AltNeu times of differential dataflow's `dogsdogsdogs`.


@total_ordering
class AltNeu:
    """A time `time`, or the moment just after it if it is `neu`."""

    __slots__ = ("neu", "time")

    def __init__(self, time: int, *, neu: bool) -> None:
        self.time = time
        self.neu = neu

    def __eq__(self, other: object) -> bool:
        match other:
            case AltNeu():
                return (self.time, self.neu) == (other.time, other.neu)
            case int():
                return self.time == other
            case _:
                return NotImplemented

    def __lt__(self, other: object) -> bool:
        match other:
            case AltNeu():
                return (self.time, self.neu) < (other.time, other.neu)
            case int():
                return self.time < other
            case _:
                return NotImplemented

    def __hash__(self) -> int:
        # It may equal a plain time, so it must have the same hash.
        return hash(self.time)

    def __repr__(self) -> str:
        return f"{'Neu' if self.neu else 'Alt'}({self.time})"

    def join(self, other: "AltNeu") -> "AltNeu":
        """Compute the least time that is not before either."""
        return max(self, other)

    def meet(self, other: "AltNeu") -> "AltNeu":
        """Compute the greatest time that is not after either."""
        return min(self, other)


def alt(time: int) -> AltNeu:
    """Make the moment just before the updates of a time."""
    return AltNeu(time, neu=False)


def neu(time: int) -> AltNeu:
    """Make the moment just after the updates of a time."""
    return AltNeu(time, neu=True)


class Instant(NamedTuple):
    """An update at an Alt/Neu time."""

    data: Any
    time: AltNeu
    diff: int


def differentiate(updates: Iterable[Update[Any]]) -> list[Instant]:
    """Let every update exist for an instant: +diff at Alt of its time, -diff at Neu.

    Takes updates `(data, time, diff)`, and returns two instants for each.

    >>> differentiate([Update("a", 3, 2)])
    [Instant(data='a', time=Alt(3), diff=2), Instant(data='a', time=Neu(3), diff=-2)]
    """
    return [
        instant
        for data, time, diff in updates
        for instant in (Instant(data, alt(time), diff), Instant(data, neu(time), -diff))
    ]


def integrate(instants: Iterable[Instant]) -> list[Update[Any]]:
    """Undo `differentiate`: keep the instants at Alt, as updates of their time; drop those at Neu.

    For any updates x, `integrate(differentiate(x)) == x`.

    >>> integrate(differentiate([Update("a", 3, 2)]))
    [Update(data='a', time=3, diff=2)]
    """
    return [Update(data, time.time, diff) for data, time, diff in instants if not time.neu]
