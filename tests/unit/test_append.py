"""Inputs whose messages are rows that stay: what they give, and what they cannot be."""

import pytest

from ikebana import (
    AsOfJoin,
    Column,
    EventTime,
    Input,
    JoinInput,
    Linear,
    Output,
    Plan,
    PlanError,
    StateMachine,
    Upsert,
    evaluate,
    steps,
)
from ikebana.codecs.formats import Format, KeyFormat
from ikebana.processor.planning import outputs
from ikebana.processor.planning.checking import checked
from support.avro_messages import message

CLICKS = Input("clicks", ("clicks",), mode="append", columns=(Column("n", "BIGINT"),))


def plan_of(source: Input, *operators: Linear) -> Plan:
    """Rows as they come, or what a step makes of them."""
    shown = operators[-1].name if operators else source.name
    return checked(Plan("p", (source,), operators, (Output("out", shown, "out"),)))


def test_every_message_is_a_row() -> None:
    """Also one that says what another has said, and one without a key; nothing is retracted."""
    found = evaluate(
        plan_of(CLICKS),
        {"clicks": [("a", {"n": 1}, 0), ("a", {"n": 2}, 1), ("a", {"n": 2}, 1), (None, 5, 2)]},
    )

    assert found["out"] == [
        (("a", {"n": 1}), 0, 1),
        (("a", {"n": 2}), 1, 2),
        ((None, 5), 2, 1),
    ]
    assert found["errors"] == []


@pytest.mark.parametrize("keys", ["json", "avro"])
def test_rows_in_avro_need_no_key_either(keys: KeyFormat) -> None:
    """Whatever keys would be; a body that is cut off is an error, and has no key."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    source = Input("rows", ("rows",), "avro", keys, mode="append")
    row = message(1, schema, {"n": 7})

    found = evaluate(
        plan_of(source), {"rows": [(None, row, 0), (None, row[:-1], 0)]}, schemas={1: schema}
    )

    assert found["out"] == [((None, {"n": 7}), 0, 1)]
    assert [update.data["reason"] for update in found["errors"]] == [
        "could not decode Avro value: its body is cut off"
    ]


def test_steps_run_where_rows_are_decoded_and_errors_stay() -> None:
    """A value that cannot be read is an error record for ever; a tombstone is no row."""
    large = Linear("large", "clicks", (steps.where("n > 1"), steps.select(twice="2 * n")))

    found = evaluate(
        plan_of(CLICKS, large),
        {"clicks": [("a", {"n": 1}, 0), ("a", {"n": 2}, 0), ("b", b"{", 0), ("b", None, 1)]},
    )

    assert found["out"] == [(("a", {"twice": 4}), 0, 1)]
    assert [(update.time, update.diff) for update in found["errors"]] == [(0, 1)]


def test_rows_have_times_of_their_own() -> None:
    """Out of order, they count at the times of their column."""
    dated = Input(
        "clicks",
        ("clicks",),
        mode="append",
        columns=(Column("n", "BIGINT"),),
        event_time=EventTime(of="n", ahead_ms=None),
    )

    found = evaluate(plan_of(dated), {"clicks": [("a", {"n": 7}, 0), (None, {"n": 3}, 0)]})

    assert found["out"] == [((None, {"n": 3}), 3, 1), (("a", {"n": 7}), 7, 1)]


def test_events_meet_the_rows_of_their_time() -> None:
    """What they are for: the left of an as-of join that only grows keeps no state."""
    plan = Plan(
        "p",
        (CLICKS, Input("prices", ("prices",), columns=(Column("price", "BIGINT"),))),
        (
            Upsert("price", "prices"),
            AsOfJoin(
                "priced",
                JoinInput("c", "clicks"),
                JoinInput("p", "price"),
                ("c.key = p.key",),
                (("n", "c.n"), ("price", "p.price")),
            ),
        ),
        (Output("out", "priced", "out"),),
    )

    found = evaluate(
        plan,
        {
            "clicks": [("a", {"n": 1}, 2), ("a", {"n": 2}, 4)],
            "prices": [("a", {"price": 5}, 1), ("a", {"price": 7}, 3)],
        },
    )

    assert found["out"] == [
        (("a", {"n": 1, "price": 5}), 2, 1),
        (("a", {"n": 2, "price": 7}), 4, 1),
    ]
    assert outputs.promise(plan, plan.outputs[0]) == "collection"


def test_rows_that_stay_promise_a_collection() -> None:
    """No count is ever negative."""
    plan = plan_of(CLICKS)

    assert outputs.promise(plan, plan.outputs[0]) == "collection"


@pytest.mark.parametrize("form", ["debezium-json", "maxwell", "diff"])
def test_changes_cannot_be_rows_that_stay(form: Format) -> None:
    """What they change would be shown for ever."""
    with pytest.raises(PlanError, match="mode"):
        plan_of(Input("clicks", ("clicks",), form, mode="append"))


def test_a_machine_does_not_read_a_collection() -> None:
    """It reads events of an input in the mode that keeps no rows."""
    with pytest.raises(PlanError, match="is a collection, by its mode"):
        checked(
            Plan(
                "p",
                (CLICKS,),
                (StateMachine("m", "clicks", lambda states, _: states),),
                (Output("out", "m", "out"),),
            )
        )
