"""Operators that are added (`added_operator`) have all that operators have, by kinds alone."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from added_operator import ADDED, GREATEST, First, Greatest
from ikebana import Column, EventTime, Input, Linear, Output, Plan, Upsert, evaluate, steps
from ikebana.processor.checkpoint import parts
from ikebana.processor.planning import kinds
from ikebana.processor.planning.kind import OperatorKind
from ikebana.processor.planning.plan import Operator
from ikebana.processor.planning.plan_problems import problems_of
from ikebana.testing import Run

COLUMNS = (Column("n", "BIGINT"),)
ORDERS = Input("orders", ("orders",), columns=COLUMNS)
DATED = Input(
    "orders",
    ("orders",),
    columns=COLUMNS,
    event_time=EventTime(clock="kafka", lateness_ms=20, ahead_ms=None),
)
FIRSTS = Output("firsts", "first", "firsts")
LARGE = Output("large", "large", "large")


@pytest.fixture(autouse=True, scope="module")
def _added() -> Iterator[None]:
    """Its row of the table of kinds, and its value in the union of plans."""
    with pytest.MonkeyPatch.context() as patch:
        for value, kind in ADDED.items():
            patch.setitem(kinds.KINDS, value, kind)
        patch.setitem(Plan.__annotations__, "operators", tuple[Operator | First | Greatest, ...])
        patch.delattr(Plan, "__msgspec_cache__", raising=False)
        yield
    if hasattr(Plan, "__msgspec_cache__"):
        delattr(Plan, "__msgspec_cache__")


def plan_of(*least: int, source: Input = ORDERS) -> Plan:
    """The first values of orders and, with a `least`, those that are as large."""
    operators: list[Any] = [First("first", "orders")]
    operators += [Linear("large", "first", (steps.where(f"n >= {at}"),)) for at in least]
    outputs = (FIRSTS, LARGE) if least else (FIRSTS,)
    time: Any = "ingest" if source.is_dated else "offset"
    return Plan("p", (source,), tuple(operators), outputs, time=time)


def test_an_input_has_one_reader_of_any_kind() -> None:
    """A kind need not look for it by itself."""
    operators: list[Any] = [First("first", "orders"), Upsert("rows", "orders")]
    plan = replace(plan_of(), operators=tuple(operators))

    assert list(problems_of(plan)) == [
        (
            "operators.rows.upsert",
            "operator 'first' already reads 'orders'; use it, outputs may share an operator",
        )
    ]
    turned = replace(plan, operators=tuple(reversed(operators)))
    assert [path for path, _ in problems_of(turned)][:1] == ["operators.first.first"]


def firsts_of(sent: list[tuple[int, int]]) -> dict[int, int]:
    """By key, of orders as they came."""
    return dict(reversed(sent))


ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=12)


@given(st.lists(st.tuples(ROWS, st.sampled_from([None, 1, 2, 3]), st.integers(0, 9)), max_size=4))
def test_it_goes_on_through_restarts_rescalings_and_edits(
    lives: list[tuple[list[tuple[int, int]], int | None, int]],
) -> None:
    """At each moment outputs are those of the first values of all that has come."""
    run, sent = Run(plan_of(), shards=2), list[tuple[int, int]]()
    for rows, shards, least in lives:
        run.restart(plan_of(least), shards=shards)
        for key, n in rows:
            run.send("orders", key, {"n": n})
        sent += rows
        run.read()
        expected = firsts_of(sent)
        shown = dict(run.collection("firsts"))
        large = dict(run.collection("large"))
        assert shown == {key: {"n": n} for key, n in expected.items()}
        assert large == {key: row for key, row in shown.items() if row["n"] >= least}


def test_what_waits_goes_to_the_shard_of_its_key() -> None:
    """It is counted, and comes when its time is closed."""
    run = Run(plan_of(source=DATED), shards=1)
    for number in range(12):
        run.topics.send("orders", number % 4, {"n": number}, timestamp=number)
    run.read()
    assert run.waiting == 12
    run.restart(shards=3)
    run.topics.send("orders", 9, {"n": 0}, timestamp=100)
    run.read()

    assert sorted(run.collection("firsts")) == [(key, {"n": key}) for key in range(4)]
    assert run.waiting == 1
    assert {parts.operator_of(p) for store in run.stores for p, _ in store.scan(b"")} == {
        "first first"
    }


def test_it_is_evaluated() -> None:
    """Also what waits at the end of the records."""
    records = [("a", {"n": 1}, 0), ("a", {"n": 2}, 1), ("b", {"n": 3}, 2)]
    found = evaluate(plan_of(), {"orders": records})

    assert [update.data for update in found["firsts"]] == [("a", {"n": 1}), ("b", {"n": 3})]


def greatest_by_group(least: int | None) -> Plan:
    """The greatest order of each group and, with a `least`, those that are as large."""
    orders = Input("orders", ("orders",), columns=(*COLUMNS, Column("of", "BIGINT")))
    operators: list[Any] = [Upsert("order", "orders"), Greatest("greatest", "order", "of")]
    outputs = [Output("shown", "greatest", "shown")]
    if least is not None:
        operators.append(Linear("large", "greatest", (steps.where(f"n >= {least}"),)))
        outputs.append(LARGE)
    return Plan("p", (orders,), tuple(operators), tuple(outputs), time="offset")


CHANGES = st.lists(
    st.tuples(st.integers(0, 6), st.none() | st.tuples(st.integers(0, 9), st.integers(0, 2))),
    max_size=12,
)


@given(
    st.lists(
        st.tuples(CHANGES, st.sampled_from([None, 1, 2, 3]), st.integers(0, 9)),
        max_size=4,
    )
)
def test_one_that_makes_keys_goes_on_through_them_as_well(
    lives: list[tuple[list[tuple[int, tuple[int, int] | None]], int | None, int]],
) -> None:
    """Its rows come through an exchange; what reads it after an edit is filled from its state."""
    run, orders = Run(greatest_by_group(None), shards=2), dict[int, tuple[int, int]]()
    for changes, shards, least in lives:
        run.restart(greatest_by_group(least), shards=shards)
        for key, order in changes:
            orders.pop(key, None)
            if order is not None:
                orders[key] = order
            run.send("orders", key, order and {"n": order[0], "of": order[1]})
        run.read()
        expected = {of: {"n": n, "of": of} for n, of in sorted(orders.values())}
        assert dict(run.collection("shown")) == expected
        large = {of: row for of, row in expected.items() if row["n"] >= least}
        assert dict(run.collection("large")) == large


def test_a_kind_that_nothing_reaches_is_none() -> None:
    """It would keep silent."""
    with pytest.raises(TypeError, match="Deaf is not linear, has no `before` and reads no rows"):

        class Deaf(OperatorKind[Greatest]):
            label = "deaf"
            parts = (GREATEST,)


def test_a_kind_with_state_and_without_a_layout_is_none() -> None:
    """Else a state would be there of which nobody knows the shards, when they become others."""
    with pytest.raises(TypeError, match="Forgetful is not linear and has no parts"):

        class Forgetful(OperatorKind[First]):
            label = "forgetful"
