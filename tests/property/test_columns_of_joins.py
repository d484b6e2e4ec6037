"""Columns that no join reads are not decoded, and nobody can tell."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ikebana import AsOfJoin, Column, DeltaJoin, Input, JoinInput, Linear, Output, Plan, Upsert
from ikebana.arrangements.update import Update, consolidate
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.linear.steps import where
from ikebana.processor.planning import planner

ORDERS = Input("orders", ("orders",), columns=tuple(Column(n, "BIGINT") for n in ("p", "q", "n")))
PRICES = Input("prices", ("prices",), columns=tuple(Column(n, "BIGINT") for n in ("p", "c", "n")))
LEFT, RIGHT = JoinInput("o", "order"), JoinInput("p", "price")
SOME = JoinInput("o", "some")
BY_COLUMN, BY_KEY = "o.p = p.p", "o.p = p.key::BIGINT"
MADE = (("q", "o.q"), ("c", "p.c"))


def as_of(on: str = BY_COLUMN, left: JoinInput = LEFT, **options: Any) -> AsOfJoin:
    """An as-of join of orders with prices."""
    return AsOfJoin("joined", left, RIGHT, on=(on,), select=MADE, **options)


def delta(*conditions: str, left: JoinInput = LEFT) -> DeltaJoin:
    """A delta join of orders with prices."""
    return DeltaJoin("joined", (left, RIGHT), where=conditions, select=MADE, key="o.key")


# What is read of each input, None for all of it.
Columns = tuple[str, ...] | None
JOINS: dict[str, tuple[DeltaJoin | AsOfJoin, Columns, Columns]] = {
    "by a column": (delta(BY_COLUMN), ("p", "q"), ("c", "p")),
    "by the key": (delta(BY_KEY), ("p", "q"), ("c",)),
    "with conditions": (delta(BY_COLUMN, "o.n < 2"), ("n", "p", "q"), ("c", "p")),
    "behind a condition": (delta(BY_COLUMN, left=SOME), ("n", "p", "q"), ("c", "p")),
    "of whole rows": (delta(BY_COLUMN, "o.value is not null"), None, ("c", "p")),
    "as of": (as_of(), ("p", "q"), ("c", "p")),
    "as of, outer": (as_of(BY_KEY, outer=True), ("p", "q"), ("c",)),
    "locked": (as_of(retract="locked"), None, ("c", "p")),
    "locked by a column": (
        as_of(retract="locked", locked_by=("p", "n")),
        ("n", "p", "q"),
        ("c", "p"),
    ),
}


def plan_of(name: str, *, shown: bool = False) -> Plan:
    """A join's results; with `shown` an output has the orders, too."""
    join, *_ = JOINS[name]
    some = (Linear("some", "order", (where("n < 2"),)),) if "some" in str(join) else ()
    outputs = (Output("joined", "joined", "joined"), Output("orders", "order", "orders"))
    return Plan(
        "p",
        (ORDERS, PRICES),
        (Upsert("order", "orders"), Upsert("price", "prices"), *some, join),
        outputs[: 1 + shown],
    )


NUMBERS = st.sampled_from([0, 1, 2, None, "x"])
VALUES = st.none() | st.fixed_dictionaries({}, optional=dict.fromkeys("pqcn", NUMBERS))
RECORDS = st.lists(st.tuples(st.integers(0, 2), VALUES, st.integers(1, 6)), max_size=12)


def outcome(plan: Plan, orders: Any, prices: Any, *, optimized: bool) -> dict[str, Any]:
    """All that the outputs have, with data as text, so that 1 is not true."""
    evaluation = Evaluation(plan, optimized=optimized)
    by_time = [sorted(each, key=lambda record: record[2]) for each in (orders, prices)]
    found = evaluation.advance({"orders": by_time[0], "prices": by_time[1]}, 9)
    return {
        name: consolidate(Update(json.dumps(u.data, sort_keys=True), u.time, u.diff) for u in all_)
        for name, all_ in found.items()
    }


@pytest.mark.parametrize("name", JOINS)
@given(RECORDS, RECORDS)
@example([(0, {"p": 0, "q": 1, "n": 0}, 1), (0, {"p": 0, "q": 1, "n": 1}, 3)], [])
@example(
    [(0, {"p": 0, "q": 1, "n": 0}, 2), (0, {"p": 0, "q": 1, "n": 1}, 5)],
    [(0, {"p": 0, "c": 1, "n": 0}, 1), (0, {"p": 0, "c": 2, "n": 0}, 4)],
)
def test_columns_that_no_join_reads_make_no_difference(
    name: str, orders: Any, prices: Any
) -> None:
    """R17. Also where a row changes in nothing else, and what is locked by whole rows."""
    plan = plan_of(name)

    found = [outcome(plan, orders, prices, optimized=on) for on in (True, False)]

    for each in found:
        for name_of, updates in each.items():
            each[name_of] = sorted(updates)
    assert found[0] == found[1]


@pytest.mark.parametrize("name", JOINS)
def test_only_the_columns_that_joins_read_are_decoded(name: str) -> None:
    """An output of the rows themselves has all of them."""
    _, *expected = JOINS[name]

    found, shown = (planner.physical(plan_of(name, shown=on)).readings for on in (False, True))

    assert [found[each].columns for each in ("orders", "prices")] == expected
    assert [shown[each].columns for each in ("orders", "prices")] == [None, expected[1]]
