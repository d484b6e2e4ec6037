"""Joins of literal updates: ties, self loops, and what an as-of join does not revise."""

from typing import Any

import msgspec
import pytest

from ikebana.arrangements.update import Update, accumulate
from ikebana.processor.planning.joins.query import AsOfJoin
from support.delta_path_oracle import Given, run
from support.known_joins import GRAPH, MARKET, TRIANGLES, planned, priced

both_plans = pytest.mark.parametrize("strategy", ["lookup", "intersect"])


def triangles(strategy: str, *edges: tuple[tuple[int, int], int, int]) -> list[Update[Any]]:
    join = msgspec.structs.replace(TRIANGLES, strategy=strategy)
    given = {"edges": Given(("src", "dst"), [Update(*edge) for edge in edges])}
    return run(planned(join, GRAPH), GRAPH, given)


@both_plans
def test_three_edges_at_one_time_are_one_triangle(strategy: str) -> None:
    """Not three, though each of them could have been the last."""
    found = triangles(strategy, ((1, 2), 5, 1), ((1, 3), 5, 1), ((2, 3), 5, 1))

    assert found == [Update((1, 2, 3), 5, 1)]


@both_plans
def test_a_self_loop_is_a_triangle_of_itself(strategy: str) -> None:
    """Twice the loop is eight times the triangle, and without the loop there is none."""
    found = triangles(strategy, ((7, 7), 0, 1), ((7, 7), 1, 1), ((7, 7), 2, -2))

    assert [accumulate(found, time) for time in range(3)] == [
        {(7, 7, 7): 1},
        {(7, 7, 7): 8},
        {},
    ]


def as_of(
    join: AsOfJoin,
    orders: list[tuple[tuple[int, str | None, int], int, int]],
    prices: list[tuple[tuple[str, int], int, int]],
) -> list[Update[Any]]:
    given = {
        "orders": Given(("number", "product", "limit"), [Update(*order) for order in orders]),
        "prices": Given(("product", "price"), [Update(*price) for price in prices]),
    }
    return run(planned(join, MARKET), MARKET, given)


PRICES = [(("tea", 5), 1, 1), (("tea", 5), 3, -1), (("tea", 7), 3, 1)]


@pytest.mark.parametrize(
    ("retract", "expected"),
    [
        pytest.param("current", [Update((1, 5), 2, 1), Update((1, 7), 4, -1)], id="current"),
        pytest.param("locked", [Update((1, 5), 2, 1), Update((1, 5), 4, -1)], id="locked"),
    ],
)
def test_a_retraction_meets_the_right_as_it_is_or_what_was_emitted(
    retract: Any, expected: list[Update[Any]]
) -> None:
    """Price 5 at 1, order at 2, price 7 at 3, order retracted at 4."""
    order = (1, "tea", 9)

    found = as_of(priced(retract=retract), [(order, 2, 1), (order, 4, -1)], PRICES)

    assert found == expected


@pytest.mark.parametrize(("at", "price"), [("alt", 7), ("neu", 5)])
def test_a_price_of_the_order_s_own_time_is_seen_or_not(at: Any, price: int) -> None:
    """By default it is."""
    assert as_of(priced(at=at), [((1, "tea", 9), 3, 1)], PRICES) == [Update((1, price), 3, 1)]


@pytest.mark.parametrize(
    ("order", "prices"),
    [
        pytest.param((1, "tea", 9), [5], id="a match"),
        pytest.param((1, "milk", 9), [None], id="no such key"),
        pytest.param((1, None, 9), [None], id="null is equal to nothing"),
        pytest.param((1, "tea", 5), [None], id="a condition on both that is not met"),
        pytest.param((-1, "tea", 9), [], id="a condition on the left says what there is"),
    ],
)
def test_an_outer_join_has_null_for_what_matches_nothing(
    order: tuple[int, str | None, int], prices: list[int | None]
) -> None:
    """A match is made by all conditions that read the right."""
    join = priced("p.price < o.limit", "o.number > 0", outer=True)

    found = as_of(join, [(order, 2, 1)], PRICES)

    assert found == [Update((order[0], price), 2, 1) for price in prices]


def test_several_right_values_give_several_results_and_multiplicities_multiply() -> None:
    """Two prices, one of them twice, and three orders."""
    prices = [(("tea", 5), 1, 2), (("tea", 6), 1, 1)]

    found = as_of(priced(), [((1, "tea", 9), 2, 3)], prices)

    assert accumulate(found, 2) == {(1, 5): 6, (1, 6): 3}
