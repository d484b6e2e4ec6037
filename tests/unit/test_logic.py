"""The algebra of linear operators: one operator, and the shorthands that are it."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from ikebana.arrangements.update import Update, consolidate
from ikebana.processor.linear.functions import (
    Logic,
    composed,
    exploding,
    filtering,
    flat_mapping,
    mapping,
)

Triple = tuple[Any, int, int]

NAMES = [("frank", 6, 1), ("frank", 8, 1), ("david", 8, 1), ("frank", 9, -2)]


def join_function(updates: Iterable[Update[Any]], logic: Logic) -> Iterator[Update[Any]]:
    """What a linear operator is: it applies its logic to every update by itself."""
    for data, time, diff in updates:
        for result, later, count in logic(data):
            if count:
                moved = time if later is None or later < time else later
                yield Update(result, moved, diff * count)


def _negated(data: Any) -> list[tuple[Any, None, int]]:
    return [(data, None, -1)]


def run(logic: Logic, *updates: Triple) -> list[Triple]:
    """What comes out, consolidated."""
    found = consolidate(join_function([Update(*update) for update in updates], logic))
    return sorted(tuple(update) for update in found)


def test_a_map_keeps_times_and_diffs() -> None:
    """`x -> (x, len(x))` gives the same history of pairs."""
    found = list(
        join_function([Update(*update) for update in NAMES], mapping(lambda x: (x, len(x))))
    )

    assert found == [
        (("frank", 5), 6, 1),
        (("frank", 5), 8, 1),
        (("david", 5), 8, 1),
        (("frank", 5), 9, -2),
    ]


def test_copies_from_a_time_until_another() -> None:
    """x copies of 2x from time 3x until 4x, for x in 0..9: zero copies are none."""
    found = run(lambda x: [(2 * x, 3 * x, x), (2 * x, 4 * x, -x)], *((x, 0, 1) for x in range(10)))

    assert found == [
        (2, 3, 1),
        (2, 4, -1),
        (4, 6, 2),
        (4, 8, -2),
        (6, 9, 3),
        (6, 12, -3),
        (8, 12, 4),
        (8, 16, -4),
        (10, 15, 5),
        (10, 20, -5),
        (12, 18, 6),
        (12, 24, -6),
        (14, 21, 7),
        (14, 28, -7),
        (16, 24, 8),
        (16, 32, -8),
        (18, 27, 9),
        (18, 36, -9),
    ]


@pytest.mark.parametrize(
    ("logic", "updates", "expected"),
    [
        pytest.param(
            filtering(lambda x: x.startswith("f")),
            NAMES,
            [("frank", 6, 1), ("frank", 8, 1), ("frank", 9, -2)],
            id="filter",
        ),
        pytest.param(
            flat_mapping(str.split),
            [("to be or to", 3, 2)],
            [("be", 3, 2), ("or", 3, 2), ("to", 3, 4)],
            id="flat_map adds up what is equal",
        ),
        pytest.param(flat_mapping(str.split), [("", 3, 2)], [], id="flat_map to nothing"),
        pytest.param(
            exploding(lambda x: [(x, 2), (-x, -1), (0, 0)]),
            [(7, 1, 3), (0, 1, 1)],
            [(-7, 1, -3), (0, 1, 1), (7, 1, 6)],
            id="explode with negative and zero",
        ),
        pytest.param(
            composed(_negated, _negated), [("x", 1, 2)], [("x", 1, 2)], id="twice negated"
        ),
        pytest.param(
            lambda x: [(x, 4, 1)], [("x", 6, 1), ("y", 2, 1)], [("x", 6, 1), ("y", 4, 1)], id="max"
        ),
        pytest.param(lambda x: [(x, 0, 1)], [("x", -3, 1)], [("x", 0, 1)], id="time zero is one"),
    ],
)
def test_shorthands(logic: Logic, updates: list[Triple], expected: list[Triple]) -> None:
    """Each is `join_function` of its own logic: diffs multiply, the later time counts."""
    assert run(logic, *updates) == expected


def test_logics_in_a_row_are_one() -> None:
    """Times are the latest of all, diffs the product of all."""
    first: Logic = lambda x: [(x, 3, 2), (x + 1, None, 1)]  # noqa: E731
    second: Logic = lambda x: [(10 * x, 4, -1), (x, 2, 3)]  # noqa: E731

    assert run(composed(first, second), (1, 0, 5)) == [
        (1, 3, 30),
        (2, 2, 15),
        (10, 4, -10),
        (20, 4, -5),
    ]


def test_what_counts_zero_times_is_not_handed_on() -> None:
    """A logic behind one that gives a diff of zero does not see the data."""
    seen = []

    def second(x: int) -> list[tuple[int, None, int]]:
        seen.append(x)
        return [(x, None, 1)]

    found = run(composed(lambda x: [(x, None, 0), (x + 1, None, 1)], second), (1, 0, 1))

    assert found == [(2, 0, 1)]
    assert seen == [2]


def test_no_list_of_all_results_is_made() -> None:
    """What a logic gives one by one comes out one by one, through a chain as well."""
    taken = []

    def endless(x: int) -> Any:
        while True:
            taken.append(x)
            yield x, None, 1
            x += 1

    found = join_function([Update(0, 0, 1)], composed(endless, mapping(lambda x: -x)))

    assert next(found) == (0, 0, 1)
    assert next(found) == (-1, 0, 1)
    assert taken == [0, 1]
