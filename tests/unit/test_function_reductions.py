"""Reductions by a function in plans: from the file to what comes out, and what is refused."""

from typing import Any

import pytest

import reductions
from ikebana import (
    Column,
    Input,
    Linear,
    Output,
    Pipeline,
    Plan,
    PlanError,
    Reduce,
    ReduceRows,
    Update,
    Upsert,
    evaluate,
    steps,
)
from ikebana.codecs.formats import OutputFormat
from ikebana.processor.authoring import pipeline
from ikebana.processor.checkpoint import parts
from ikebana.processor.engine.evaluate import Evaluation, LiteralRecord
from ikebana.processor.explain.explanation import explained
from ikebana.processor.explain.text import text
from ikebana.processor.planning import outputs
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import Operator
from support.cut_evaluations import cut_at_every_time

ORDERS = Input(
    "orders",
    ("orders",),
    "debezium-json",
    mode="diffs",
    columns=(Column("customer", "VARCHAR"), Column("amount", "DECIMAL(12,2)")),
)
MEDIANS = ReduceRows("medians", "orders", by="customer", function=reductions.middle)
FLIGHTS = Input("flights", ("flights",), "debezium-json", mode="diffs")
JOURNEYS = ReduceRows("journeys", "flights", by="passenger", function="reductions:journeys")


def order(op: str, before: Any, after: Any, time: int) -> tuple[Any, Any, int]:
    def row(image: Any) -> Any:
        return image and {"customer": image[0], "amount": image[1]}

    key = (before or after)[2]
    return {"id": key}, {"op": op, "before": row(before), "after": row(after)}, time


ORDER_CHANGES: list[tuple[Any, Any, int]] = [
    order("c", None, ("ann", 10, 1), 1),
    order("c", None, ("ann", 30, 2), 1),
    order("c", None, ("bob", 7, 3), 2),
    order("u", ("ann", 30, 2), ("bob", 30, 2), 3),
    order("c", None, ("bob", 7, 4), 4),
    order("d", ("ann", 10, 1), None, 5),
]


def plan_of(
    *operators: Operator, source: Input = ORDERS, output_format: OutputFormat = "diff"
) -> Plan:
    output = Output("out", operators[-1].name, "out", output_format)
    return checked(Plan("p", (source,), operators, (output,)))


def test_medians_follow_every_change() -> None:
    """An order moves from one customer to another, equal ones count twice, the last goes."""
    found = evaluate(plan_of(MEDIANS), {"orders": ORDER_CHANGES})

    assert found["errors"] == []
    assert found["out"] == [
        Update(("ann", 20), 1, 1),
        Update(("bob", 7), 2, 1),
        Update(("ann", 20), 3, -1),
        Update(("ann", 10), 3, 1),
        Update(("bob", 7), 3, -1),
        Update(("bob", 18.5), 3, 1),
        Update(("bob", 18.5), 4, -1),
        Update(("bob", 7), 4, 1),
        Update(("ann", 10), 5, -1),
    ]


@pytest.mark.parametrize("pushdown", [True, False])
def test_it_does_not_depend_on_the_cut(pushdown: bool) -> None:  # noqa: FBT001
    """One batch or six, pushed down or not, the same updates come out."""
    plan = plan_of(MEDIANS)
    cut = cut_at_every_time(plan, ORDER_CHANGES, optimized=pushdown)

    assert cut == evaluate(plan, {"orders": ORDER_CHANGES})["out"]


def flight(op: str, row: Any, time: int) -> tuple[Any, Any, int]:
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {"id": row["id"]}, {"op": op, **images}, time


def leg(number: int, begin: str, end: str, departs: int, arrives: int) -> dict[str, Any]:
    where = {"from": begin, "to": end, "departs": departs, "arrives": arrives}
    return {"id": number, "passenger": "ann", **where}


LEGS = [
    leg(1, "JFK", "ORD", 10, 100),
    leg(2, "ORD", "DEN", 150, 300),
    leg(3, "DEN", "SFO", 900, 990),
]


def test_a_journey_is_made_of_several_flights_and_a_passenger_has_several() -> None:
    """A flight that is cancelled takes its journeys along, and an impossible one is an error."""
    astray = leg(4, "LHR", "CDG", 400, 450)
    records = [
        *(flight("c", row, 1) for row in LEGS),
        flight("c", astray, 2),
        flight("d", astray, 3),
        flight("d", LEGS[1], 4),
        flight("d", LEGS[2], 4),
    ]

    found = evaluate(plan_of(JOURNEYS, source=FLIGHTS), {"flights": records})

    both = [
        ("ann", {"from": "DEN", "to": "SFO", "minutes": 90}),
        ("ann", {"from": "JFK", "to": "DEN", "minutes": 290}),
    ]
    assert found["out"] == [
        *(Update(one, 1, 1) for one in both),
        *(Update(one, 2, -1) for one in both),
        *(Update(one, 3, 1) for one in both),
        *(Update(one, 4, -1) for one in both),
        Update(("ann", {"from": "JFK", "to": "ORD", "minutes": 90}), 4, 1),
    ]
    assert [(u.data["reason"], u.time, u.diff) for u in found["errors"]] == [
        ("operator journeys: a passenger cannot be in two places", 2, 1),
        ("operator journeys: a passenger cannot be in two places", 3, -1),
    ]


def test_operators_go_on_from_what_a_function_gives() -> None:
    """Linear ones by its fields, and another reduction, in the same pass."""
    plan = plan_of(
        JOURNEYS,
        Linear("long", "journeys", (steps.where("minutes::INTEGER > 60"),)),
        Reduce("travelled", "long", (("journeys", "count(*)"), ("to", 'max("to")'))),
        source=FLIGHTS,
    )

    found = evaluate(plan, {"flights": [flight("c", row, 1) for row in LEGS]})

    assert found["errors"] == []
    assert found["out"] == [Update(("ann", {"journeys": 2, "to": "SFO"}), 1, 1)]


def test_a_function_reduces_what_another_reduction_gives() -> None:
    """And an upsert by its own key, whose columns are all decoded."""
    rows = Input("rows", ("rows",))
    plan = plan_of(
        Upsert("current", "rows"),
        Reduce("totals", "current", (("total", "sum(amount)"),)),
        ReduceRows("same", "totals", function=only_rows),
        source=rows,
    )
    whole = plan_of(
        Upsert("current", "rows"), ReduceRows("same", "current", function=only_rows), source=rows
    )
    records: dict[str, list[LiteralRecord]] = {"rows": [("a", {"amount": 5, "b": [1]}, 1)]}

    assert evaluate(plan, records)["out"] == [Update(("a", [{"total": 5}]), 1, 1)]
    assert evaluate(whole, records)["out"] == [Update(("a", [{"amount": 5, "b": [1]}]), 1, 1)]


def only_rows(key: Any, rows: reductions.Rows) -> list[Any]:
    """The rows as one list."""
    return [[row for row, _ in rows]]


def no_key(data: Any) -> Any:
    return None, data[1]


def test_what_has_no_key_is_reduced_together() -> None:
    """It is all of one key, null."""
    bare = Linear("bare", "orders", (steps.map_(no_key),))
    plan = plan_of(bare, ReduceRows("medians", "bare", function=reductions.middle))

    found = evaluate(plan, {"orders": ORDER_CHANGES[:2]})

    assert found["out"] == [Update((None, 20), 1, 1)]


def test_what_is_valid_later_is_given_later() -> None:
    """A reduction holds what is of the future, and lets go of what has expired."""
    plan = plan_of(
        Upsert("current", "rows"),
        Linear("valid", "current", (steps.valid_between(None, "until"),)),
        ReduceRows("lists", "valid", function=only_rows),
        source=Input("rows", ("rows",), columns=(Column("until", "BIGINT"),)),
    )

    found = evaluate(plan, {"rows": [("a", {"until": 9}, 1)]})

    shown = ("a", [{"until": 9}])
    assert found["out"] == [Update(shown, 1, 1), Update(shown, 9, -1)]


def test_a_pipeline_file_names_the_function() -> None:
    """What it says is the plan in Python, with the function by name."""
    written = """
pipeline: p
inputs:
  orders:
    topic: orders
    format: debezium-json
    mode: diffs
    columns: {customer: VARCHAR, amount: "DECIMAL(12,2)"}
operators:
  medians: {reduce: orders, by: customer, function: "reductions:middle"}
outputs:
  out: {from: medians, topic: out}
kafka: {bootstrap.servers: localhost:9092}
run: {checkpoint: ./checkpoint}
"""
    read = pipeline.parse(written, "p.yaml", environ={})
    made = plan_of(MEDIANS)

    assert read.plan == made.portable()
    assert read.plan.fingerprint() == made.fingerprint()
    assert evaluate(read.plan, {"orders": ORDER_CHANGES}) == evaluate(
        made, {"orders": ORDER_CHANGES}
    )
    said = text(explained(*read))
    assert "function: reductions:middle" in said
    assert "all rows of each key, and what its function gives of them" in said
    assert "all. The function of medians is given whole rows" in said


@pytest.mark.parametrize("beside", [{"n": "count(*)"}, {"total": True}])
def test_a_function_stands_without_aggregates_and_total(beside: dict[str, Any]) -> None:
    """It has no result where there are no rows."""
    collection = Pipeline("p").topic("t").upsert()

    with pytest.raises(PlanError, match=r"operators\.r\.function: .* not both"):
        collection.reduce(reductions.middle, name="r", **beside)


def test_another_function_is_another_plan() -> None:
    """Its checkpoint is not taken for this one's."""
    other = plan_of(ReduceRows("medians", "orders", by="customer", function=reductions.journeys))

    assert plan_of(MEDIANS).fingerprint() != other.fingerprint()


def test_it_promises_a_collection_since_it_may_give_several_values() -> None:
    """Where aggregates, of which a key has one, promise upserts."""
    counted = plan_of(Reduce("counted", "orders", (("n", "count(*)"),), by="customer"))
    plan = plan_of(MEDIANS)

    assert outputs.promise(counted, counted.outputs[0]) == "upserts"
    assert outputs.promise(plan, plan.outputs[0]) == "collection"


def test_every_entry_of_a_shard_tells_its_key() -> None:
    """So that a rescale finds its new shard."""
    evaluation = Evaluation(plan_of(MEDIANS))
    evaluation.advance({"orders": ORDER_CHANGES[:3]}, 3)
    entries = list(evaluation.stores[0].scan(b""))

    assert {parts.operator_of(place) for place, _ in entries} == {"reduce-rows medians"}
    keys = [b'"ann"', b'"bob"']
    assert {shard for shard, _ in parts.to_new_shards(entries, keys.index)} == {0, 1}


CURRENT = Upsert("current", "rows")


@pytest.mark.parametrize(
    ("source", "operators", "path", "problem"),
    [
        pytest.param(
            Input("rows", ("rows",)),
            (CURRENT, ReduceRows("r", "current", function="reductions:nothing")),
            "operators.r.function",
            'module "reductions" has no "nothing"',
            id="no such function",
        ),
        pytest.param(
            Input("rows", ("rows",)),
            (CURRENT, ReduceRows("r", "current", function="reductions")),
            "operators.r.function",
            "is not of the form module:function",
            id="not a name of one",
        ),
        pytest.param(
            Input("rows", ("rows",)),
            (CURRENT, Reduce("r", "current")),
            "operators.r.aggregates",
            "at least one is needed, or a function",
            id="neither",
        ),
        pytest.param(
            Input("rows", ("rows",)),
            (CURRENT, ReduceRows("r", "current", by="a +", function="reductions:middle")),
            "operators.r.by",
            "syntax error",
            id="a key that is no SQL",
        ),
        pytest.param(
            Input("rows", ("rows",)),
            (CURRENT, ReduceRows("r", "r", function="reductions:middle")),
            "operators.r",
            "it reads its own results",
            id="a circle",
        ),
        pytest.param(
            Input("rows", ("rows",), "bytes"),
            (CURRENT, ReduceRows("r", "current", function="reductions:middle")),
            "operators.r.reduce",
            "a function is not given a value in bytes",
            id="values in bytes",
        ),
        pytest.param(
            Input("rows", ("rows",), key_format="bytes"),
            (CURRENT, ReduceRows("r", "current", function="reductions:middle")),
            "operators.r.by",
            "a function is not given a key in bytes",
            id="keys in bytes",
        ),
    ],
)
def test_what_is_refused(
    source: Input, operators: tuple[Operator, ...], path: str, problem: str
) -> None:
    """By name, with the place."""
    with pytest.raises(PlanError) as raised:
        plan_of(*operators, source=source)

    assert problem in dict(raised.value.problems)[path]


def test_a_function_that_no_other_process_finds_is_refused_where_it_has_to() -> None:
    """It runs here, but not in a pipeline."""
    plan = plan_of(ReduceRows("r", "orders", function=lambda key, rows: []))

    with pytest.raises(PlanError) as raised:
        plan.portable()

    assert "is no function of a module" in dict(raised.value.problems)["operators.r.function"]
