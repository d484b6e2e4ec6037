"""What this project has refused without need, or made awkward, one test for each.

N are messages, types and texts that are out there and were not taken, A what was awkward for
whoever writes plans in Python.
"""

import json
from typing import Any

import pytest

import ikebana
from ikebana import (
    Column,
    Concat,
    ConfigError,
    DeltaJoin,
    Evaluation,
    Input,
    JoinInput,
    Linear,
    Output,
    Plan,
    Reduce,
    Upsert,
    evaluate,
    steps,
)
from ikebana.arrangements.update import LARGEST
from ikebana.codecs import cdcv2
from ikebana.codecs.formats import OutputFormat
from ikebana.errors import PlanError
from support.avro_messages import message as avro

ROW = {"id": 1, "a": 2}
NOTE = Column("note", "VARCHAR")


def plan_of(source: Input, *operators: Any, out: OutputFormat = "diff") -> Plan:
    """A pipeline of one input and one output, that of the last operator."""
    shown = operators[-1].name if operators else source.name
    return Plan("p", (source,), operators, (Output("out", shown, "out", out),))


def told(plan: Plan, *records: Any, **rest: Any) -> tuple[list[Any], list[str]]:
    """The values (value, time, diff) of the output, and the reasons of the errors."""
    found = evaluate(plan, {plan.inputs[0].name: records}, **rest)
    values = [(u.data[1], u.time, u.diff) for u in found["out"]]
    return values, [u.data["reason"] for u in found["errors"]]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"payload": {"op": "c", "before": None, "after": ROW}}, id="no schema"),
        pytest.param({"before": None, "after": ROW}, id="no op"),
    ],
)
def test_n1_envelopes_may_lack_a_schema_or_an_operation(value: Any) -> None:
    """N1: both were refused, with the reason that `op` is missing."""
    source = Input("t", ("t",), "debezium-json")

    assert told(plan_of(source, Upsert("u", "t")), ({"id": 1}, value, 0)) == ([(ROW, 0, 1)], [])


def test_n2_a_value_without_bytes_is_a_choice() -> None:
    """N2: it was an error record where others ignore it."""
    quiet = Input("t", ("t",), "debezium-json")
    strict = Input("t", ("t",), "debezium-json", options=(("empty_value", "error"),))

    assert told(plan_of(quiet, Upsert("u", "t")), ({"id": 1}, b"", 0)) == ([], [])
    _, reasons = told(plan_of(strict, Upsert("u", "t")), ({"id": 1}, b"", 0))
    assert len(reasons) == 1


def row_schema(*younger: Any) -> dict[str, Any]:
    fields = [{"name": "id", "type": "long"}, *younger]
    return {"type": "record", "name": "Value", "fields": fields}


def test_n3_debezium_avro_takes_a_readers_schema() -> None:
    """N3: columns that are younger than a message had no default."""
    younger = {"name": "a", "type": "long", "default": 7}

    def enveloped(row: Any) -> dict[str, Any]:
        fields = [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "op", "type": "string"},
        ]
        return {"type": "record", "name": "Envelope", "fields": fields}

    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    written = enveloped(row_schema())
    source = Input(
        "t", ("t",), "debezium-avro", "avro", schema=json.dumps(enveloped(row_schema(younger)))
    )
    message = {"before": None, "after": {"id": 1}, "op": "c"}
    record = (avro(1, key, {"id": 1}), avro(2, written, message), 0)

    assert told(plan_of(source, Upsert("u", "t")), record, schemas={1: key, 2: written}) == (
        [({"id": 1, "a": 7}, 0, 1)],
        [],
    )


def test_n3_dms_leaves_out_what_is_null() -> None:
    """N3: a deleted row with a null was an error; declared columns say what is null."""
    columns = Column("id", "BIGINT"), Column("a", "BIGINT")
    source = Input("t", ("t",), "dms", mode="diffs", key=("id",), columns=(*columns, NOTE))
    metadata = {"record-type": "data", "schema-name": "d", "table-name": "t"}
    inserted, deleted = ({**metadata, "operation": name} for name in ("insert", "delete"))
    row = {**ROW, "note": None}

    assert told(
        plan_of(source),
        (None, {"metadata": inserted, "data": ROW}, 0),
        (None, {"metadata": deleted, "data": ROW}, 1),
    ) == ([(row, 0, 1), (row, 1, -1)], [])


def test_n4_where_old_images_tell_all_no_key_is_needed() -> None:
    """N4: `mode: diffs` wanted the key of tables that have none."""
    source = Input("t", ("t",), "debezium-json", mode="diffs")
    changes = [
        (None, {"op": "c", "before": None, "after": ROW}, 0),
        (None, {"op": "d", "before": ROW, "after": None}, 1),
    ]

    assert told(plan_of(source), *changes) == ([(ROW, 0, 1), (ROW, 1, -1)], [])


def test_n5_declared_types_say_what_canals_texts_become() -> None:
    """N5: without `mysqlType` in the message they were refused."""
    columns = Column("id", "BIGINT"), Column("a", "BIGINT")
    source = Input("t", ("t",), "canal", key=("id",), columns=columns)
    message = {"database": "d", "table": "t", "type": "INSERT", "isDdl": False, "old": None}
    value = {**message, "data": [{"id": "1", "a": "2"}]}

    assert told(plan_of(source, Upsert("u", "t")), (None, value, 0)) == ([(ROW, 0, 1)], [])


def test_n5_what_is_written_as_debezium_json_can_be_read() -> None:
    """N5: keys that are no objects could be written and not be read."""
    writing = Evaluation(plan_of(Input("t", ("t",)), Upsert("u", "t"), out="debezium-json"))
    writing.advance({"t": [(5, ROW, 0)]}, 1)
    (message,) = writing.messages["out"]
    reading = plan_of(Input("t", ("t",), "debezium-json"), Upsert("u", "t"))

    found = evaluate(reading, {"t": [(message.key, message.value, 0)]})

    assert (found["out"], found["errors"]) == ([((5, ROW), 0, 1)], [])


@pytest.mark.parametrize(
    "step",
    [
        steps.valid_between(None, str(LARGEST)),
        steps.join_function(lambda data: [(data, None, 1), (data, LARGEST, -1)]),
    ],
)
def test_n6_the_last_time_is_a_time(step: Any) -> None:
    """N6: SQL took 2^63-1 for no bound, where a function retracts."""
    rows = Linear("l", "u", (steps.Sql(valid_from="0"), step))
    evaluation = Evaluation(plan_of(Input("t", ("t",)), Upsert("u", "t"), rows))
    evaluation.advance({"t": [(1, ROW, 0)]}, 1)

    assert evaluation.pending() == [LARGEST]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("BIGINT", 1.5),
        ("BIGINT", True),
        ("BOOLEAN", 2),
        ("DECIMAL(12,2)", 1.239),
        ("DATE", "2024-01-01T12:00:00"),
        ("BIGINT[]", [1.5]),
    ],
)
def test_n7_what_does_not_fit_a_type_is_an_error(kind: str, value: Any) -> None:
    """N7: it was rounded, cut, or taken for another."""
    source = Input("t", ("t",), columns=(Column("v", kind),))

    values, reasons = told(plan_of(source, Upsert("u", "t")), (1, {"v": value}, 0))

    assert (values, len(reasons)) == ([], 1)


def test_n7_a_timestamps_zone_counts() -> None:
    """N7: the offset was dropped, and the time was two hours off."""
    source = Input("t", ("t",), columns=(Column("v", "TIMESTAMP"),))
    read = Linear("l", "u", (steps.select(v="v"),))
    record = (1, {"v": "2024-01-01T00:00:00+02:00"}, 0)

    assert told(plan_of(source, Upsert("u", "t"), read), record) == (
        [({"v": "2023-12-31T22:00:00"}, 0, 1)],
        [],
    )


@pytest.mark.parametrize(
    ("call", "kind"), [("sum(note)", "VARCHAR"), ("avg(note = 'x')", "BOOLEAN")]
)
def test_a_sum_of_what_is_no_number_is_refused_when_the_plan_is_made(call: str, kind: str) -> None:
    """Every row was an error record."""
    source, current = Input("t", ("t",), columns=(NOTE,)), Upsert("u", "t")

    with pytest.raises(PlanError, match=f"takes numbers, and its argument is of {kind}: cast"):
        told(plan_of(source, current, Reduce("r", "u", (("total", call),), by="1")))


def test_n8_an_error_names_operator_aggregate_and_cause() -> None:
    """N8: "argument 'a0' is no number" and "raised TypeError" named nothing."""

    def add(data: Any) -> Any:
        return data + 1

    source, current = Input("t", ("t",)), Upsert("u", "t")
    total = Reduce("r", "u", (("total", "sum(a)"),), by="1")

    _, (reason,) = told(plan_of(source, current, total), (1, {"a": "x"}, 0))
    assert reason == 'operator r: an argument of sum "total" is no number'
    mapped = Linear("l", "u", (steps.map_(add),))
    _, (reason,) = told(plan_of(source, current, mapped), (1, 1, 0))
    assert reason.startswith("operator l: map ")
    assert "raised TypeError: can only concatenate tuple" in reason


def test_a1_an_evaluation_goes_step_by_step() -> None:
    """A1: it was not exported, had no `finish`, and told nothing of upserts that wait."""
    evaluation = ikebana.Evaluation(plan_of(Input("t", ("t",)), Upsert("u", "t")))
    evaluation.advance({"t": [(1, ROW, 5)]}, 3)

    assert evaluation.pending() == [5]
    assert evaluation.finish()["out"] == [((1, ROW), 5, 1)]


def test_a2_evaluate_takes_schemas() -> None:
    """A2: messages in Avro were a bare assertion."""
    plan = plan_of(Input("t", ("t",), "avro"), Upsert("u", "t"))
    message = avro(7, row_schema(), {"id": 1})

    assert told(plan, (1, message, 0), schemas={7: row_schema()}) == ([({"id": 1}, 0, 1)], [])
    with pytest.raises(ConfigError, match="there are no schemas"):
        evaluate(plan, {"t": [(1, message, 0)]})


def test_a3_messages_of_outputs_and_of_cdcv2_are_there_in_process() -> None:
    """A3: there was no way to have the ones, nor to feed the others."""
    writing = Evaluation(plan_of(Input("t", ("t",)), Upsert("u", "t"), out="cdcv2-json"))
    writing.advance({"t": [(1, ROW, 3)]}, 4)
    messages = [m.value for m in writing.messages["out"]]

    assert messages == [
        *cdcv2.encode_updates([(b"1", b'{"a":2,"id":1}', 3, 1)], 1 << 20),
        *cdcv2.encode_progress(0, 4, {3: 1}, 1 << 20),
    ]
    assert told(plan_of(Input("t", ("t",), "cdcv2-json")), *messages) == ([(ROW, 3, 1)], [])


def test_a4_a_text_is_one_name() -> None:
    """A4: `Input("a", "ab")` read the topics a and b."""
    text: Any = "ab"

    assert Input("a", text).topics == ("ab",)


def test_a5_lists_are_tuples() -> None:
    """A5: a plan of lists could be made, and failed as unhashable when it ran."""
    several: Any = list
    plan = Plan(
        "p",
        several([Input("t", several(["t"]))]),
        several([Upsert("u", "t")]),
        several([Output("out", "u", "out")]),
    )

    assert told(plan, (1, ROW, 0)) == ([(ROW, 0, 1)], [])


SIDES = JoinInput("x", "t"), JoinInput("y", "t")


def test_a6_a_join_selects_by_a_mapping() -> None:
    """A6: it took pairs alone, where `steps.select` takes a mapping."""
    fields: Any = {"v": "x.value"}

    join = DeltaJoin("j", SIDES, ("x.key = y.key",), fields)

    assert join == DeltaJoin("j", SIDES, ("x.key = y.key",), (("v", "x.value"),))


def test_a7_updates_need_no_mode() -> None:
    """A7: `mode="diffs"` had to be said of formats that have no other."""
    assert Input("t", ("t",), "diff").mode == "diffs"


def test_a8_a_value_needs_no_object_and_a_datum_no_key() -> None:
    """A8: functions can make both; SQL can make a key null."""
    source, current = Input("t", ("t",)), Upsert("u", "t")
    in_python = Linear("l", "u", (steps.map_(lambda data: (None, data[1]["a"])),))
    in_sql = Linear("l", "u", (steps.rekey("NULL"),))

    assert evaluate(plan_of(source, current, in_python), {"t": [(1, ROW, 0)]})["out"] == [
        ((None, 2), 0, 1)
    ]
    assert evaluate(plan_of(source, current, in_sql), {"t": [(1, ROW, 0)]})["out"] == [
        ((None, ROW), 0, 1)
    ]


def test_a9_a_join_may_select_nothing() -> None:
    """A9: its results are then their keys."""
    join = DeltaJoin("j", SIDES, ("x.key = y.key",), ())

    assert told(plan_of(Input("t", ("t",), "diff"), join), (1, ROW, 0, 1)) == ([({}, 0, 1)], [])


def test_a10_operators_that_do_nothing_may_stand() -> None:
    """A10: a `Concat` of one and a `Linear` without steps were refused."""
    nothing = Linear("l", "u", ()), Concat("c", ("l",))

    assert told(plan_of(Input("t", ("t",)), Upsert("u", "t"), *nothing), (1, ROW, 0)) == (
        [(ROW, 0, 1)],
        [],
    )
