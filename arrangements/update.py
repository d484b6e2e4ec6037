"""An update `(data, time, diff)` and the three things that are done to streams of them.

A collection at a time t is the sum of the diffs of each data over the updates with
time <= t.  Two streams of updates are equal when their consolidations are.  Nothing
here looks inside data: it only has to be hashable and comparable by equality.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

Data = TypeVar("Data", bound=Hashable)


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
    sums: dict[tuple[int, Data], int] = {}
    for data, time, diff in updates:
        sums[time, data] = sums.get((time, data), 0) + diff
    found = [Update(data, time, diff) for (time, data), diff in sums.items() if diff]
    # Stable: data of one time stay in order of first appearance.
    return sorted(found, key=lambda update: update.time)


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


def accumulate(updates: Iterable[Update[Data]], as_of: int) -> dict[Data, int]:
    """Sum diffs over times <= `as_of`; data whose sum is zero are absent.

    >>> accumulate([Update("a", 1, 1), Update("b", 2, 1), Update("a", 3, -1)], 2)
    {'a': 1, 'b': 1}
    """
    sums: dict[Data, int] = {}
    for data, time, diff in updates:
        if time <= as_of:
            sums[data] = sums.get(data, 0) + diff
    return {data: count for data, count in sums.items() if count}


def negate(updates: Iterable[Update[Data]]) -> list[Update[Data]]:
    """Turn every diff around: the sum with the original is the empty collection."""
    return [update._replace(diff=-update.diff) for update in updates]
