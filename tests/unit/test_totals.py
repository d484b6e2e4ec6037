"""Totals: reductions of all rows, which have a result where there are no rows."""

import pytest

import ikebana as ik
from ikebana.errors import PlanError
from ikebana.processor.planning.plan import Reduce
from ikebana.testing import Run, evaluate

COLUMNS = [ik.Column("n", "BIGINT")]


def totals(*, is_total: bool = True) -> ik.Pipeline:
    """The sum of all orders, as a total or by a constant."""
    shop = ik.Pipeline("shop")
    orders = shop.topic("orders", columns=COLUMNS).upsert()
    by = None if is_total else "0"
    orders.reduce(by=by, total=is_total, name="all", n="count(*)", sum="sum(n)").to("all")
    return shop


NONE = (0, {"n": 0, "sum": None})


@pytest.mark.parametrize("shards", [1, 3])
def test_there_is_a_result_before_and_after_all_rows(shards: int) -> None:
    records = [("a", {"n": 2}, 3), ("b", {"n": 5}, 4), ("a", None, 6), ("b", None, 6)]

    found = evaluate(totals().plan(), {"orders": records}, 9, shards=shards)

    one, two = (0, {"n": 1, "sum": 2}), (0, {"n": 2, "sum": 7})
    assert [tuple(update) for update in found["all"]] == [
        *((NONE, 0, 1), (NONE, 3, -1), (one, 3, 1), (one, 4, -1), (two, 4, 1)),
        *((two, 6, -1), (NONE, 6, 1)),
    ]


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_one_shard_has_it_whatever_dies_and_how_many_there_are(shards: int) -> None:
    """Of all shards the one that keeps its key, also after a restart with others."""
    run = Run(totals(), shards=shards)
    run.crash()
    run.restart()
    run.batch(5, heartbeat=True)
    run.read()
    assert run.collection("all") == [NONE]

    run.restart(shards=shards + 1)
    run.send("orders", 1, {"n": 4})
    run.read()
    assert run.collection("all") == [(0, {"n": 1, "sum": 4})]

    run.send("orders", 1, None)
    run.read()
    assert run.collection("all") == [NONE]


@pytest.mark.parametrize("rows", [0, 3])
def test_a_reduction_may_become_a_total(rows: int) -> None:
    run = Run(totals(is_total=False), shards=3)
    run.batch(5, heartbeat=True)
    for number in range(rows):
        run.send("orders", number, {"n": 1})
    run.read()

    run.restart(totals())
    run.read()

    assert run.collection("all") == [(0, {"n": rows, "sum": rows or None})]


def test_a_total_is_another_plan_than_a_reduction() -> None:
    """A batch of one is none of the other."""
    assert totals().plan().fingerprint() != totals(is_total=False).plan().fingerprint()


def test_a_total_takes_no_key() -> None:
    plan = totals().plan()
    wrong = Reduce("all", plan.operators[0].name, (), "n", total=True)

    with pytest.raises(PlanError) as told:
        evaluate(ik.Plan("shop", plan.inputs, (plan.operators[0], wrong), plan.outputs), {})

    assert "operators.all.by: a total is of all rows, and has no other key" in str(told.value)
