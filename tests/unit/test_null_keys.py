"""Records with a null key share one error slot, which one without a value empties."""

from typing import Any

import pytest

from ikebana import Input, Output, Plan, Upsert, evaluate
from ikebana.codecs.formats import Format, KeyFormat
from ikebana.processor.planning.plan import EventTime, StateMachine
from ikebana.testing import Run
from support.connector_histories import KNOWN, in_avro

REASON = "could not decode key: it is null"


def plan_of(value_format: Format = "json", key_format: KeyFormat = "json", **more: Any) -> Plan:
    source = Input("t", ("t",), value_format, key_format=key_format, **more)
    return Plan("p", (source,), (Upsert("u", "t"),), (Output("o", "u", "o"),))


def offsets(run: Run) -> list[int]:
    return [error["offset"] for error in run.errors()]


@pytest.mark.parametrize("value_format", ["json", "bytes"])
@pytest.mark.parametrize("key_format", ["json", "bytes"])
@pytest.mark.parametrize("at_once", [True, False])
def test_records_without_a_key_share_an_error_slot(
    value_format: Format,
    key_format: KeyFormat,
    at_once: bool,  # noqa: FBT001
) -> None:
    """The last one is shown; rows beside them are as ever."""
    run = Run(plan_of(value_format, key_format), shards=3)
    told = []
    for key, value in [
        (b"1", b"5"),
        (None, b"6"),
        (b"2", b"7"),
        (None, b"8"),
        (None, None),
        (None, None),
    ]:
        run.topics.send("t", key, value)
        if not at_once:
            run.read()
            told.append(offsets(run))
    run.read()

    assert run.errors() == []
    assert len(run.collection("o")) == 2
    if not at_once:
        assert told == [[], [1], [1], [3], [], []]


def test_the_error_of_a_null_key_outlives_all_that_a_pipeline_goes_through() -> None:
    """Restarts, other numbers of shards, a lost checkpoint, and an edit that adds an output."""
    run = Run(plan_of(), shards=2)
    run.topics.send("t", None, b"6")
    run.topics.send("t", b"1", b"5")
    run.read()
    before = run.errors()
    assert [error["reason"] for error in before] == [REASON]

    run.restart(shards=3)
    run.read()
    assert run.errors() == before
    run.recover()
    run.read()
    assert run.errors() == before
    wider = plan_of()
    wider = Plan("p", wider.inputs, wider.operators, (*wider.outputs, Output("v", "u", "v")))
    run.restart(wider)
    run.read()
    assert run.errors() == before
    run.topics.send("t", None, None)
    run.read()

    assert run.errors() == []
    assert run.collection("v") == [(1, 5)]


def test_the_error_of_a_null_key_ends_with_its_input() -> None:
    """An edit without the upsert takes it back, once."""
    both = plan_of()
    other = Input("s", ("s",))
    both = Plan(
        "p",
        (*both.inputs, other),
        (*both.operators, Upsert("w", "s")),
        (*both.outputs, Output("w", "w", "w")),
    )
    run = Run(both)
    run.topics.send("t", None, b"6")
    run.topics.send("s", None, b"6")
    run.read()
    assert sorted(error["topic"] for error in run.errors()) == ["s", "t"]

    run.restart(Plan("p", (other,), (Upsert("w", "s"),), (Output("w", "w", "w"),)))
    run.read()

    assert [error["topic"] for error in run.errors()] == ["s"]


def test_a_state_machine_knows_nothing_of_null_keys() -> None:
    """Its function is not called; the slot is as that of an upsert."""
    plan = plan_of()
    machine = StateMachine("m", "t", lambda states, event, time: [event])
    run = Run(Plan("p", plan.inputs, (machine,), (Output("o", "m", "o"),)))
    for key, value, expected in [
        (b"1", b"5", 0),
        (None, b"6", 1),
        (None, None, 0),
        (None, None, 0),
    ]:
        run.topics.send("t", key, value)
        run.read()
        assert len(run.errors()) == expected

    assert [key for key, _ in run.collection("o")] == [1]


@pytest.mark.parametrize("of", ["value::BIGINT", "(key->>'x')::BIGINT"])
def test_event_times_do_not_matter_to_null_keys(of: str) -> None:
    """An error without an event time counts at once, as that of a value which cannot be read."""
    found = evaluate(
        plan_of(event_time=EventTime(of)), {"t": [(None, b"7", 0), (None, b"8", 0)]}, 100
    )

    assert [(u.data["offset"], u.diff) for u in found["errors"]] == [(2, 1)]


def test_keys_in_avro_may_be_null_too() -> None:
    """A row that has its key in itself needs none."""
    row = in_avro(1, {"id": 1})
    records: list[Any] = [(None, row, 0), (None, row, 1), (None, None, 2)]
    for key, errors, rows in (((), [(0, 1), (1, -1), (1, 1), (2, -1)], 0), (("id",), [(2, 1)], 1)):
        plan = plan_of("avro", "avro", key=key)

        found = evaluate(plan, {"t": records}, schemas=KNOWN)

        assert [(u.time, u.diff) for u in found["errors"]] == errors
        assert len(found["o"]) == rows


def test_the_error_record_says_that_the_key_is_null() -> None:
    """Under whatever key it lies."""
    found = evaluate(plan_of(), {"t": [(None, b"6", 0)]})

    assert [(u.data["key"], u.data["reason"]) for u in found["errors"]] == [(None, REASON)]
