"""The one linear operator, `join_function`, and all others as cases of it.

A logic is a function of one datum: `logic(data)` gives (data', time', diff') triples,
and an update (data, time, diff) becomes (data', max(time, time'), diff * diff'); a time'
of None is no later time.  It follows that the operator is linear, keeps no state, and that two
of them in a row are one: `followed_by`.

Source of the method: differential dataflow's `join_function`, as in
github.com/TimelyDataflow/differential-dataflow, file
`collection.rs`.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

from ikebana.arrangements.update import Update

Data = TypeVar("Data", bound=Hashable)
Triple = tuple[Any, int | None, int]
Logic = Callable[[Any], Iterable[Triple]]


def join_function(updates: Iterable[Update[Any]], logic: Logic) -> Iterator[Update[Any]]:
    """Apply `logic` to every update by itself.

    >>> list(join_function([Update(3, 5, 2)], lambda x: [(2 * x, 3 * x, x), (2 * x, 4 * x, -x)]))
    [Update(data=6, time=9, diff=6), Update(data=6, time=12, diff=-6)]
    """
    for data, time, diff in updates:
        for result, later, count in logic(data):
            if count:
                moved = time if later is None or later < time else later
                yield Update(result, moved, diff * count)


def followed_by(first: Logic, second: Logic) -> Logic:
    """The logic of `first`, then `second`, in one pass with no list in between."""

    def both(data: Any) -> Iterator[Triple]:
        for between, time, diff in first(data):
            if not diff:
                continue
            for result, later, count in second(between):
                yield result, _later(time, later), diff * count

    return both


def _later(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def mapping(function: Callable[[Any], Any]) -> Logic:
    """Map each datum to one datum."""
    return lambda data: ((function(data), None, 1),)


def filtering(predicate: Callable[[Any], object]) -> Logic:
    """Keep the data for which `predicate` is true."""
    return lambda data: ((data, None, 1),) if predicate(data) else ()


def flat_mapping(function: Callable[[Any], Iterable[Any]]) -> Logic:
    """Map each datum to any number of data."""
    return lambda data: ((result, None, 1) for result in function(data))


def exploding(function: Callable[[Any], Iterable[tuple[Any, int]]]) -> Logic:
    """Map each datum to data with multiplicities, which may be negative or zero."""
    return lambda data: ((result, None, diff) for result, diff in function(data))


def valid_between(
    lower: Callable[[Any], int | None] | None, upper: Callable[[Any], int | None] | None
) -> Logic:
    """Keep each datum from `lower` (included) until `upper` (excluded).

    A bound of None that a function returns is never satisfied; no function is no bound.
    An empty or inverted interval yields nothing.  An interval that has begun before the
    update's time begins with the update, and one that has ended by then yields two
    updates that cancel.
    """

    def logic(data: Any) -> Iterable[Triple]:
        begin = None if lower is None else lower(data)
        end = None if upper is None else upper(data)
        if (lower is not None and begin is None) or (upper is not None and end is None):
            return ()
        if begin is not None and end is not None and begin >= end:
            return ()
        if end is None:
            return ((data, begin, 1),)
        return ((data, begin, 1), (data, end, -1))

    return logic
