"""State machines and reductions in plans: what they mean, and what of them is refused."""

import base64
from typing import Any

import pytest

import machines
from ikebana import (
    Column,
    Input,
    Linear,
    Output,
    Plan,
    PlanError,
    Reduce,
    StateMachine,
    Update,
    Upsert,
    evaluate,
    steps,
)
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import Operator
from support.cut_evaluations import cut_at_every_time

EVENTS = Input("events", ("events",))
ORDERS = Input(
    "orders",
    ("orders",),
    "debezium-json",
    mode="diffs",
    columns=(Column("customer", "VARCHAR"), Column("amount", "DECIMAL(12,2)")),
)
TOTALS = (("orders", "count(*)"), ("total", "sum(amount)"), ("largest", "max(amount)"))


def machine_plan(machine: StateMachine) -> Plan:
    return Plan("p", (EVENTS,), (machine,), (Output("out", machine.name, "out"),))


def order(op: str, key: int, before: Any, after: Any, time: int) -> tuple[Any, Any, int]:
    def row(image: Any) -> Any:
        return image and {"id": key, "customer": image[0], "amount": image[1]}

    return {"id": key}, {"op": op, "before": row(before), "after": row(after)}, time


def test_a_machine_shows_what_its_states_are() -> None:
    """An order goes through its life, and an event that is not its turn is an error."""
    plan = machine_plan(StateMachine("status", "events", machines.next_status))

    found = evaluate(
        plan,
        {"events": [(1, "place", 1), (1, "ship", 2), (1, "pay", 3), (1, None, 4)]},
    )

    assert found["out"] == [
        Update((1, "placed"), 1, 1),
        Update((1, "placed"), 3, -1),
        Update((1, "paid"), 3, 1),
        Update((1, "paid"), 4, -1),
    ]
    assert [(u.data["reason"], u.time, u.diff) for u in found["errors"]] == [
        (found["errors"][0].data["reason"], 2, 1),
        (found["errors"][0].data["reason"], 3, -1),
    ]
    assert "illegal transition" in found["errors"][0].data["reason"]


def test_linear_operators_go_on_from_a_machine() -> None:
    """What it shows is a collection like any other."""
    plan = Plan(
        "p",
        (EVENTS,),
        (
            StateMachine("count", "events", machines.one_more),
            Linear("many", "count", (steps.where("value::INTEGER > 1"),)),
        ),
        (Output("out", "many", "out"),),
    )

    found = evaluate(plan, {"events": [("a", 0, 1), ("a", 0, 2), ("a", 0, 3), ("b", 0, 3)]})

    assert found["out"] == [
        Update(("a", 2), 2, 1),
        Update(("a", 2), 3, -1),
        Update(("a", 3), 3, 1),
    ]


def test_an_undecodable_event_is_an_error_until_the_next() -> None:
    """It changes nothing, and is retracted when the key's next event is applied."""
    plan = machine_plan(StateMachine("count", "events", machines.one_more))

    found = evaluate(plan, {"events": [("a", 0, 1), ("a", b"{", 2), ("a", 0, 3)]})

    assert [(u.time, u.diff) for u in found["errors"]] == [(2, 1), (3, -1)]
    assert found["out"][-1] == Update(("a", 2), 3, 1)


def fails_on_two(states: list[Any], event: Any, time: int) -> list[Any]:
    """A machine that does not know one of its events."""
    if event == 2:
        raise ValueError("two")
    return [event]


@pytest.mark.parametrize("each_by_itself", [True, False])
def test_an_event_that_a_machine_fails_on_is_found_by_its_place(
    each_by_itself: bool,  # noqa: FBT001
) -> None:
    """Also when it has waited; the record is the same when it is retracted."""
    other = Input("other", ("first", "second"))
    operators = Upsert("u", "other"), StateMachine("last", "events", fails_on_two)
    plan = Plan("p", (other, EVENTS), operators, (Output("out", "last", "out"),))
    records: list[tuple[Any, Any, int]] = [("a", 1, 1), ("a", 2, 2), ("a", 3, 3)]
    evaluation = Evaluation(plan)
    if each_by_itself:
        calls = [evaluation.advance({"events": [each]}, each[2] + 1) for each in records]
    else:
        calls = [evaluation.advance({"events": records}, 0), evaluation.finish()]

    errors = [update for found in calls for update in found["errors"]]
    assert [(u.time, u.diff) for u in errors] == [(2, 1), (3, -1)]
    for error in errors:
        assert error.data["reason"].startswith("operator last: step ")
        assert error.data["reason"].endswith("fails_on_two raised ValueError: two")
        place = [error.data[part] for part in ("topic", "partition", "offset", "key")]
        assert place == ["events", 0, 2, base64.b64encode(b'"a"').decode()]


ORDER_CHANGES: list[tuple[Any, Any, int]] = [
    order("c", 1, None, ("ann", 10.5), 1),
    order("c", 2, None, ("ann", 0.1), 1),
    order("c", 3, None, ("bob", 0.2), 2),
    order("u", 2, ("ann", 0.1), ("bob", 0.1), 3),
    order("d", 1, ("ann", 10.5), None, 4),
]


def totals_plan(*after: Operator, shown: str = "totals") -> Plan:
    reduction = Reduce("totals", "orders", TOTALS, by="customer")
    return Plan("p", (ORDERS,), (reduction, *after), (Output("out", shown, "out"),))


def test_a_reduction_follows_every_change() -> None:
    """Rows move from one key to another, sums are exact, and an empty key is gone."""
    found = evaluate(totals_plan(), {"orders": ORDER_CHANGES})

    assert found["errors"] == []
    assert found["out"] == [
        Update(("ann", {"orders": 2, "total": 10.6, "largest": 10.5}), 1, 1),
        Update(("bob", {"orders": 1, "total": 0.2, "largest": 0.2}), 2, 1),
        Update(("ann", {"orders": 2, "total": 10.6, "largest": 10.5}), 3, -1),
        Update(("ann", {"orders": 1, "total": 10.5, "largest": 10.5}), 3, 1),
        Update(("bob", {"orders": 1, "total": 0.2, "largest": 0.2}), 3, -1),
        Update(("bob", {"orders": 2, "total": 0.3, "largest": 0.2}), 3, 1),
        Update(("ann", {"orders": 1, "total": 10.5, "largest": 10.5}), 4, -1),
    ]


@pytest.mark.parametrize("pushdown", [True, False])
def test_it_does_not_depend_on_the_cut(pushdown: bool) -> None:  # noqa: FBT001
    """One batch or five, pushed down or not, the same updates come out."""
    plan = totals_plan()
    cut = cut_at_every_time(plan, ORDER_CHANGES, optimized=pushdown)

    assert cut == evaluate(plan, {"orders": ORDER_CHANGES})["out"]


def test_a_reduction_of_a_reduction() -> None:
    """By the same key, in the same pass: customers with two orders or more."""
    plan = totals_plan(
        Linear("several", "totals", (steps.where("orders > 1"),)),
        Reduce("again", "several", (("customers", "count(*)"),)),
        shown="again",
    )

    found = evaluate(plan, {"orders": ORDER_CHANGES})

    assert found["out"] == [
        Update(("ann", {"customers": 1}), 1, 1),
        Update(("ann", {"customers": 1}), 3, -1),
        Update(("bob", {"customers": 1}), 3, 1),
    ]


def test_whether_any_or_all_are_true_is_a_boolean_for_what_comes_after() -> None:
    """Customers of whom some orders are large, but not all."""
    whether = (("any", "bool_or(amount > 1)"), ("all", "bool_and(amount > 1)"))
    some = Linear("some", "totals", (steps.where('"any" AND NOT "all"'),))
    reduction = Reduce("totals", "orders", whether, by="customer")
    plan = Plan("p", (ORDERS,), (reduction, some), (Output("out", "some", "out"),))

    found = evaluate(plan, {"orders": ORDER_CHANGES})

    assert found["out"] == [
        Update(("ann", {"any": True, "all": False}), 1, 1),
        Update(("ann", {"any": True, "all": False}), 3, -1),
    ]
    assert found["errors"] == []


def test_what_is_valid_later_is_counted_later() -> None:
    """A reduction holds what is of the future, and lets go of what has expired."""
    plan = Plan(
        "p",
        (Input("rows", ("rows",), columns=(Column("until", "BIGINT"),)),),
        (
            Upsert("current", "rows"),
            Linear("valid", "current", (steps.valid_between(None, "until"),)),
            Reduce("counted", "valid", (("n", "count(*)"),)),
        ),
        (Output("out", "counted", "out"),),
    )

    found = evaluate(plan, {"rows": [("a", {"until": 9}, 1)]})

    assert found["out"] == [Update(("a", {"n": 1}), 1, 1), Update(("a", {"n": 1}), 9, -1)]


def test_an_upsert_is_reduced_by_another_key() -> None:
    """Its data go to the shards of the keys that `by` makes, and on from there again."""
    plan = Plan(
        "p",
        (EVENTS,),
        (
            Upsert("current", "events"),
            Reduce("by_value", "current", (("n", "count(*)"),), by="value"),
            Reduce("by_count", "by_value", (("values", "count(*)"),), by="n"),
        ),
        (Output("out", "by_value", "out"), Output("again", "by_count", "again")),
    )

    found = evaluate(
        plan, {"events": [("a", "x", 1), ("b", "x", 1), ("c", "y", 2), ("b", "y", 3)]}
    )

    assert found["out"] == [
        Update(("x", {"n": 2}), 1, 1),
        Update(("y", {"n": 1}), 2, 1),
        Update(("x", {"n": 2}), 3, -1),
        Update(("x", {"n": 1}), 3, 1),
        Update(("y", {"n": 1}), 3, -1),
        Update(("y", {"n": 2}), 3, 1),
    ]
    assert found["again"] == [
        Update((2, {"values": 1}), 1, 1),
        Update((1, {"values": 1}), 2, 1),
    ]


def no_key(data: Any) -> Any:
    """The same value without a key."""
    return None, data[1]


def test_what_has_no_key_is_reduced_together() -> None:
    """It is all of one key, null."""
    plan = Plan(
        "p",
        (ORDERS,),
        (
            Linear("bare", "orders", (steps.map_(no_key),)),
            Reduce("counted", "bare", (("n", "count(*)"),)),
        ),
        (Output("out", "counted", "out"),),
    )

    found = evaluate(plan, {"orders": ORDER_CHANGES[:3]})

    assert found["out"] == [
        Update((None, {"n": 2}), 1, 1),
        Update((None, {"n": 2}), 2, -1),
        Update((None, {"n": 3}), 2, 1),
    ]


def test_a_column_that_is_not_of_its_type_is_an_error_of_the_input() -> None:
    """Its datum counts for nothing, and the error leaves with it."""
    changes = [order("c", 1, None, ("ann", "ten"), 1), order("d", 1, ("ann", "ten"), None, 2)]

    found = evaluate(totals_plan(), {"orders": changes})

    assert found["out"] == []
    assert [(u.data["reason"], u.time, u.diff) for u in found["errors"]] == [
        ('input orders: column "amount" is not of type DECIMAL(12,2)', 1, 1),
        ('input orders: column "amount" is not of type DECIMAL(12,2)', 2, -1),
    ]


CURRENT = Upsert("current", "events")


@pytest.mark.parametrize(
    ("operators", "path", "problem"),
    [
        pytest.param(
            (CURRENT, Reduce("r", "current", ())),
            "operators.r.aggregates",
            "at least one is needed",
            id="no aggregate",
        ),
        pytest.param(
            (CURRENT, Reduce("r", "current", (("n", "median(x)"),))),
            "operators.r.aggregates.n",
            '"median(x)" is none of count',
            id="no such aggregate",
        ),
        pytest.param(
            (CURRENT, Reduce("r", "current", (("n", "top(x)"),))),
            "operators.r.aggregates.n",
            "must say how many",
            id="top of how many",
        ),
        pytest.param(
            (CURRENT, Reduce("r", "current", (("n", "count()"),))),
            "operators.r.aggregates.n",
            '"count()" has no argument; count(*) is of all rows',
            id="a count of nothing",
        ),
        pytest.param(
            (CURRENT, Reduce("r", "current", (("n", "sum(x +)"),))),
            "operators.r.aggregates.n",
            "syntax error",
            id="an argument that is no SQL",
        ),
        pytest.param(
            (CURRENT, Reduce("r", "r", (("n", "count(*)"),))),
            "operators.r",
            "it reads its own results",
            id="a circle",
        ),
        pytest.param(
            (StateMachine("m", "nothing", machines.one_more),),
            "operators.m.state_machine",
            "there is no input 'nothing'",
            id="no such input",
        ),
        pytest.param(
            (CURRENT, StateMachine("m", "events", machines.one_more)),
            "operators.m.state_machine",
            "operator 'current' already reads 'events'; use it, outputs may share an operator",
            id="an input that is read",
        ),
        pytest.param(
            (StateMachine("m", "events", "machines:nothing"),),
            "operators.m.step",
            'module "machines" has no "nothing"',
            id="no such function",
        ),
    ],
)
def test_what_is_refused(operators: tuple[Operator, ...], path: str, problem: str) -> None:
    """By name, with the place."""
    with pytest.raises(PlanError) as raised:
        checked(Plan("p", (EVENTS,), operators, (Output("out", operators[-1].name, "out"),)))

    assert problem in dict(raised.value.problems)[path]
