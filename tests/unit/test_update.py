"""Updates: what it means to consolidate, to accumulate and to negate them."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.update import Update, accumulate, consolidate, negate
from ikebana.codecs.canonical import JsonArray

_updates = st.lists(
    st.builds(Update, st.sampled_from("abc"), st.integers(0, 4), st.integers(-3, 3))
)
_as_of = st.integers(-1, 5)


@pytest.mark.parametrize(
    ("updates", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([("a", 1, 1), ("a", 1, -1)], [], id="cancel"),
        pytest.param([("a", 1, 0)], [], id="a diff of zero is no update"),
        pytest.param([("a", 1, 1), ("a", 1, 1)], [("a", 1, 2)], id="equal data and time add up"),
        pytest.param(
            [("a", 2, 1), ("a", 1, -1)], [("a", 1, -1), ("a", 2, 1)], id="times stay apart"
        ),
        pytest.param(
            [("b", 1, 1), ("a", 1, 1), ("c", 0, 1)],
            [("c", 0, 1), ("b", 1, 1), ("a", 1, 1)],
            id="data of one time stay in order of first appearance",
        ),
    ],
)
def test_consolidate_sums_equal_data_and_time_in_order_of_time(
    updates: list[tuple[str, int, int]], expected: list[tuple[str, int, int]]
) -> None:
    """Diffs of equal (data, time) are one sum, zeros are gone, times ascend."""
    assert consolidate(Update(*update) for update in updates) == expected


@pytest.mark.parametrize(
    ("updates", "as_of", "expected"),
    [
        pytest.param([("a", 3, 1)], 2, {}, id="later times do not count"),
        pytest.param([("a", 3, 1)], 3, {"a": 1}, id="the time itself counts"),
        pytest.param([("a", 1, 1), ("a", 2, -1)], 2, {}, id="a sum of zero is absent"),
        pytest.param([("a", 1, -2)], 1, {"a": -2}, id="a negative sum is shown"),
    ],
)
def test_accumulate_sums_what_has_happened_by_a_time(
    updates: list[tuple[str, int, int]], as_of: int, expected: dict[str, int]
) -> None:
    """The collection at a time is the sum over times up to and including it."""
    assert accumulate((Update(*update) for update in updates), as_of) == expected


def test_negate_turns_every_diff_around() -> None:
    """Data and time stay, the diff changes its sign."""
    assert negate([Update("a", 1, 2), Update("b", 0, -1)]) == [("a", 1, -2), ("b", 0, 1)]


@given(_updates)
def test_consolidated_updates_hold_no_zero_and_no_repeat(updates: list[Update[str]]) -> None:
    """No output has diff 0, no two have equal data and time, and times ascend."""
    found = consolidate(updates)

    assert all(update.diff for update in found)
    assert len({(update.data, update.time) for update in found}) == len(found)
    assert [update.time for update in found] == sorted(update.time for update in found)


@given(_updates)
def test_consolidate_done_twice_is_consolidate(updates: list[Update[str]]) -> None:
    """What is consolidated stays as it is."""
    once = consolidate(updates)
    assert consolidate(once) == once


@given(_updates, _updates)
def test_consolidate_may_be_done_to_parts_first(
    first: list[Update[str]], second: list[Update[str]]
) -> None:
    """Consolidating parts and then the whole gives the same updates as the whole at once."""
    parts = consolidate([*consolidate(first), *consolidate(second)])
    assert sorted(parts) == sorted(consolidate([*first, *second]))


@given(_updates, _as_of)
def test_consolidate_preserves_every_collection(updates: list[Update[str]], as_of: int) -> None:
    """Accumulated at any time, updates and their consolidation are the same."""
    assert accumulate(consolidate(updates), as_of) == accumulate(updates, as_of)


@given(_updates, _updates, _as_of)
def test_accumulate_is_linear(
    first: list[Update[str]], second: list[Update[str]], as_of: int
) -> None:
    """The collection of a sum is the sum of the collections."""
    sums = accumulate(first, as_of)
    for data, diff in accumulate(second, as_of).items():
        sums[data] = sums.get(data, 0) + diff
    assert accumulate([*first, *second], as_of) == {k: d for k, d in sums.items() if d}


@given(_updates)
def test_input_and_its_negation_are_the_empty_collection(updates: list[Update[str]]) -> None:
    """Negation is an inverse, and is its own."""
    assert consolidate([*updates, *negate(updates)]) == []
    assert negate(negate(updates)) == updates


def test_data_are_equal_when_their_canonical_json_is() -> None:
    """1 is 1.0 and 0.1 is its decimal; 1 is neither true nor "1", at any depth."""
    data: list[Any] = [1, True, "1", ("k", 1), ("k", True), JsonArray([0]), JsonArray([False])]
    updates: list[Update[Any]] = [Update(each, 0, 1) for each in data]
    again: list[Update[Any]] = [
        Update(1.0, 0, 1),
        Update(Decimal(1), 0, 1),
        Update(("k", 1.0), 0, -1),
    ]

    assert consolidate(updates) == updates
    found = accumulate([*updates, *again], 0)
    assert [*found.items()] == [
        *((1, 3), (True, 1), ("1", 1), (("k", True), 1)),
        *((JsonArray([0]), 1), (JsonArray([False]), 1)),
    ]
    assert found != accumulate(updates, 0)
    assert (found[Decimal(1)], found[True]) == (3, 1)
    tenth: list[Update[Any]] = [Update(0.1, 0, 1), Update(Decimal("0.1"), 0, -1)]
    assert consolidate(tenth) == []
