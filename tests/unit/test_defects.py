"""Defects that this project has had, one test for each, on whole plans.

D are results that were wrong, S what stopped a pipeline or fell over.  Three need more than a
plan: S2 (a run whose workers are slow or lost ended) is in `unit/test_restarts.py`, S8 (missing
rights were found late, or in a traceback) in `kafka/test_preflight.py`, S9 (a pipeline that
started on empty topics never came up) in `unit/test_first_batch.py`.  What was refused without
need is in `test_defects_of_use.py`.
"""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from ikebana import (
    Column,
    ConfigError,
    DeltaJoin,
    Input,
    JoinInput,
    Linear,
    Output,
    Plan,
    PlanError,
    Reduce,
    StateMachine,
    Update,
    Upsert,
    accumulate,
    consolidate,
    evaluate,
    steps,
)
from ikebana.codecs import diff
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import OutputFormat
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.planning.checking import checked
from ikebana.testing import Run, Topics

ABSENT = "__debezium_unavailable_value"


def plan_of(source: Input, *operators: Any, out: OutputFormat = "diff", push: bool = True) -> Plan:
    """A pipeline of one input and one output, that of the last operator."""
    shown = operators[-1].name if operators else source.name
    return checked(
        Plan("p", (source,), operators, (Output("out", shown, "out", out),), pushdown=push)
    )


def told(plan: Plan, records: Iterable[Any]) -> tuple[list[Any], list[str]]:
    """The values (value, time, diff) of the output, and the reasons of the errors."""
    found = evaluate(plan, {plan.inputs[0].name: records})
    values = [(u.data[1], u.time, u.diff) for u in found["out"]]
    return values, [u.data["reason"] for u in found["errors"]]


def envelope(op: str, before: Any, after: Any) -> Any:
    return {"op": op, "before": before, "after": after}


@pytest.mark.parametrize("push", [True, False])
def test_d1_a_select_of_a_younger_column_loses_no_delete(push: bool) -> None:  # noqa: FBT001
    """D1: the old image was taken as partial when a select named a column that it lacks."""
    source = Input("t", ("t",), "debezium-json", mode="diffs", key=("id",))
    select = Linear("l", "t", (steps.select(id="id::BIGINT", new="new::VARCHAR"),))
    row = {"id": 1, "new": None}
    records = [
        (None, envelope("c", None, {"id": 1}), 0),
        (None, envelope("d", {"id": 1}, None), 1),
    ]

    assert told(plan_of(source, select, push=push), records) == ([(row, 0, 1), (row, 1, -1)], [])


@pytest.mark.parametrize("operators", [(), (Linear("l", "t", (steps.project("id", "v"),)),)])
def test_d2_deletes_of_dms_count_with_and_without_a_select(operators: Any) -> None:
    """D2: in `mode: diffs` a delete was an error unless a select stood in front."""
    columns = Column("id", "BIGINT"), Column("v", "BIGINT")
    source = Input("t", ("t",), "dms", mode="diffs", key=("id",), columns=columns)
    row = {"id": 1, "v": 2}

    def message(operation: str) -> Any:
        metadata = {"record-type": "data", "operation": operation}
        return {"metadata": {**metadata, "schema-name": "d", "table-name": "t"}, "data": row}

    records = [(None, message("insert"), 0), (None, message("delete"), 1)]

    assert told(plan_of(source, *operators), records) == ([(row, 0, 1), (row, 1, -1)], [])


def test_d3_a_tombstone_without_a_key_says_nothing() -> None:
    """D3: each delete of a table without key left an error record behind."""
    source = Input("t", ("t",), "debezium-json", mode="diffs", key=("id",))
    row = {"id": 1}
    records = [
        (None, envelope("c", None, row), 0),
        (None, envelope("d", row, None), 1),
        (None, None, 1),
    ]

    assert told(plan_of(source), records) == ([(row, 0, 1), (row, 1, -1)], [])


def test_d4_functions_get_floats() -> None:
    """D4: a number of more than 15 digits came back to a function as a Decimal."""

    def add(states: list[float], event: int, _: int) -> list[float]:
        return [(states[0] if states else 0.0) + event * 0.1]

    values, reasons = told(
        plan_of(Input("a", ("a",)), StateMachine("s", "a", add)), [("k", n, n) for n in range(6)]
    )

    assert reasons == []
    assert values[-1] == (1.5, 5, 1)


def played(plan: Plan, *messages: tuple[str, bytes | None, bytes]) -> Run:
    """A pipeline that reads one message a batch, and then closes what waits."""
    topics = Topics()
    run = Run(plan, topics)
    for topic, key, value in messages:
        topics.send(topic, key, value)
        run.read()
    for _ in range(3):
        run.batch(run.last.upper + 1, heartbeat=True)
    return run


def test_d5_no_tombstone_stands_while_a_row_of_the_key_remains() -> None:
    """D5: a tombstone followed each delete, and compaction removed the rows that were left."""
    plan = plan_of(Input("a", ("a",), "debezium-json", mode="diffs"), out="debezium-json")
    one, two = {"k": 1, "n": 1}, {"k": 1, "n": 2}
    changes = [envelope("c", None, one), envelope("c", None, two), envelope("d", one, None)]

    run = played(plan, *(("a", b'{"k":1}', json.dumps(each).encode()) for each in changes))

    assert [m.key for m in run.written.messages["out"] if m.value is None] == []


def test_d6_a_second_value_of_a_key_is_an_error_whenever_it_comes() -> None:
    """D6: an `upsert` output took the last of several values, without a word."""
    columns = Column("k", "BIGINT"), Column("v", "VARCHAR")
    sides = JoinInput("x", "a"), JoinInput("y", "b")
    plan = Plan(
        "t",
        tuple(Input(name, (name,), mode="append", columns=columns) for name in "ab"),
        (DeltaJoin("j", sides, ("x.k = y.k",), (("v", "y.v"),), key="x.k"),),
        (Output("out", "j", "out", "upsert"),),
    )

    run = played(
        plan,
        ("a", None, b'{"k":1,"v":"a"}'),
        ("b", None, b'{"k":1,"v":"first"}'),
        ("b", None, b'{"k":1,"v":"second"}'),
    )

    assert [m.value for m in run.written.messages["out"]] == [b'{"v":"first"}']
    (error,) = run.written.updates["errors"]
    assert b"the key has more than one value" in error.value


def test_d7_true_is_not_1() -> None:
    """D7: `consolidate` and `accumulate` took 1 for True, and cancelled one with the other."""
    updates: list[Update[Any]] = [
        Update(("k", 1), 0, 1),
        Update(("k", 1), 1, -1),
        Update(("k", True), 1, 1),
    ]

    assert [repr(u) for u in consolidate(updates)] == [repr(u) for u in updates]
    ((datum, count),) = accumulate(updates, 1).items()
    assert (datum[1] is True, count) == (True, 1)


def test_d8_a_diff_that_would_not_count_is_refused() -> None:
    """D8: `evaluate` dropped a record's diff: a retraction to an upsert became an insertion."""
    with pytest.raises(ConfigError, match=r"record 1 .*it has a diff"):
        evaluate(plan_of(Input("a", ("a",)), Upsert("u", "a")), {"a": [("k", 1, 0, -1)]})


@pytest.mark.parametrize("operators", [(), (Linear("l", "u", (steps.project("id", "a"),)),)])
def test_d9_minimal_images_are_completed_whoever_reads_them(operators: Any) -> None:
    """D9: where whole rows were read, each message was an error, or the old value stayed."""
    columns = Column("id", "BIGINT"), Column("a", "BIGINT")
    source = Input("t", ("t",), "maxwell", columns=columns, options=(("row_image", "minimal"),))
    key = {"primary_key": [1], "primary_key_columns": ["id"]}
    message = {"database": "d", "table": "t", "type": "insert", "ts": 1, **key}
    change = {**message, "type": "update", "data": {"id": 1}, "old": {}}
    records = [(None, {**message, "data": {"id": 1, "a": 2}}, 0), (None, change, 1)]

    assert told(plan_of(source, Upsert("u", "t"), *operators), records) == (
        [({"id": 1, "a": 2}, 0, 1)],
        [],
    )


def test_d10_the_greatest_of_times_is_the_latest() -> None:
    """D10: `min`, `max` and `top` compared the texts of times, dates and bytes."""
    source = Input("a", ("a",), columns=(Column("stamp", "TIMESTAMPTZ"), Column("day", "DATE")))
    aggregates = (("stamp", "max(stamp)"), ("day", "max(day)"))
    plan = plan_of(source, Upsert("u", "a"), Reduce("r", "u", aggregates, by="1"))
    early = {"stamp": "2024-01-01T12:00:00Z", "day": "9999-12-31"}
    late = {"stamp": "2024-01-01T12:00:00.5Z", "day": "10000-01-01"}

    ((value, _, _),), reasons = told(plan, [(1, late, 0), (2, early, 0)])

    assert reasons == []
    assert value == late


@pytest.mark.parametrize("push", [True, False])
def test_d11_a_partial_image_is_one_whoever_reads_it(push: bool) -> None:  # noqa: FBT001
    """D11: a column that was left out was an error without pushdown, and a row with it."""
    columns = Column("id", "BIGINT"), Column("a", "BIGINT"), Column("big", "VARCHAR")
    source = Input("t", ("t",), "debezium-json", columns=columns)
    plan = plan_of(source, Upsert("u", "t"), Linear("l", "u", (steps.select(a="a"),)), push=push)
    change = envelope("u", None, {"id": 1, "a": 5, "big": ABSENT})

    values, reasons = told(plan, [({"id": 1}, change, 0)])

    assert values == []
    assert reasons == ["the message leaves columns as they are, of a row that is not there"]


@pytest.mark.parametrize("shards", [1, 3])
def test_d12_errors_are_as_many_in_any_number_of_shards(shards: int) -> None:
    """D12: rows without key were an error for each shard that had one."""
    source = Input("i", ("i",), mode="append")
    where = Linear("l", "i", (steps.Sql(where=("value::BIGINT > 0",)),))
    topics = Topics()
    for _ in range(6):
        topics.send("i", None, b'"x"')
    run = Run(plan_of(source, where), topics, shards)
    run.read()

    assert sum(update.diff for update in run.written.updates["errors"]) == 6


def test_d13_data_of_a_diff_topic_are_canonical_or_errors() -> None:
    """D13: equal data in two spellings never cancelled, and what is no JSON had no place."""
    plan = plan_of(Input("a", ("a",), "diff"))
    equal = [(b"1", b'{"a": 1.0}', 0, 1), (b" 1", b'{"a":1}', 0, -1)]

    found = evaluate(plan, {"a": [*equal, (b"1", b"{", 0, 1)]})

    assert found["out"] == []
    ((record, _, _),) = found["errors"]
    assert (record["topic"], record["partition"], record["offset"]) == ("a", 0, 3)


def joined_by(kind: str) -> Plan:
    """Updates that are joined with each other by a column of a type."""
    sides = JoinInput("x", "a"), JoinInput("y", "a")
    join = DeltaJoin("j", sides, ("x.v = y.v",), (), key="y.key")
    return plan_of(Input("a", ("a",), "diff", columns=(Column("v", kind),)), join)


def test_d14_joins_compare_what_texts_say() -> None:
    """D14: '1 month' is '30 days' in SQL, and joins compared the texts."""
    with pytest.raises(PlanError, match="INTERVAL"):
        joined_by("INTERVAL")
    records = [(n, {"v": text}, 0, 1) for n, text in enumerate(("12:00:00+02", "12:00:00+02:00"))]

    assert evaluate(joined_by("TIMETZ"), {"a": records})["out"] == [
        ((0, {}), 0, 2),
        ((1, {}), 0, 2),
    ]


def test_s1_diffs_beyond_64_bits_stop_nothing() -> None:
    """S1: they could not be packed, so each retry failed; a reader took what none may write."""
    source = Input("i", ("i",), columns=(Column("n", "BIGINT"),))
    counted = steps.Sql(select=(("c", "1"),), key="1", diff="n")
    plan = plan_of(
        source,
        Upsert("u", "i"),
        Linear("l", "u", (counted,)),
        Reduce("r", "l", (("n", "count(*)"),), by="c"),
    )
    topics = Topics()
    for key in range(5):
        topics.send("i", b"%d" % key, b'{"n":%d}' % 2**62)
    run = Run(plan, topics, shards=2)
    run.read()
    for _ in range(3):
        run.batch(run.last.upper + 1, heartbeat=True)

    assert run.written.updates["errors"] == []
    assert run.written.updates["out"][-1].value == b'{"n":%d}' % (5 * 2**62)
    with pytest.raises(DecodeError, match="beyond 64 bits"):
        diff.read_headers([("time", b"1"), ("diff", b"%d" % 2**63)])


FILE = """
pipeline: p
kafka: {bootstrap.servers: "localhost:9092"}
inputs: {i: {topic: in, columns: {a: BIGINT}}}
operators:
  u: {upsert: i}
  v: {upsert: i}
OPERATOR
outputs: {o: {from: u, topic: out}}
run: {checkpoint: c}
"""


def problem_of(operator: str) -> str:
    """What is said of a file with one more operator."""
    with pytest.raises(ConfigError) as refused:
        parse(FILE.replace("OPERATOR", operator), "p.yaml", environ={})
    return str(refused.value)


@pytest.mark.parametrize(
    "condition", ["a = 1, a = 2", "a = 1 UNION SELECT 1", "a = 1 AS x", "x.a = y.a, x.a = 1"]
)
def test_s3_what_is_no_condition_is_a_problem_of_its_place(condition: str) -> None:
    """S3: a comma or UNION in a condition was a ValueError, and an alias was dropped."""
    join = "{delta_join: {x: u, y: v}, where: ['x.a = y.a', '%s'], select: {a: x.a}}"

    assert "operators.l.where" in problem_of(f"  l: {{linear: u, where: '{condition}'}}")
    assert "operators.j.where" in problem_of(f"  j: {join % condition}")


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"])
def test_s4_a_column_may_have_any_name(name: str) -> None:
    """S4: quotes, backslashes and control characters in a name crashed decoding."""
    read = steps.select({"v": '"' + name.replace('"', '""') + '"'})

    assert told(
        plan_of(Input("a", ("a",)), Upsert("u", "a"), Linear("l", "u", (read,))),
        [("k", {name: 2}, 0)],
    ) == ([({"v": 2}, 0, 1)], [])


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param("  l: " + "[" * 5_000, id="deep"),
        pytest.param('  l: {upsert: !!int ""}', id="no number"),
        pytest.param('  l: {upsert: "${file:\\0x}"}', id="no file"),
        pytest.param('  l: {upsert: "\\ud800"}', id="half of a character"),
        pytest.param(
            "  l:\n    - &a [x, x, x, x, x, x, x, x, x]\n"
            + "".join(
                f"    - &{name} [{', '.join([f'*{before}'] * 9)}]\n"
                for before, name in zip("abcdefgh", "bcdefghi", strict=True)
            ),
            id="aliases of aliases",
        ),
    ],
)
def test_s5_no_file_ends_in_a_traceback(operator: str) -> None:
    """S5: several files that cannot be read did."""
    assert "p.yaml" in problem_of(operator) or "pipeline" in problem_of(operator)


def leaves(_: Any) -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize("record", [(), ("k",), ("k", 1, 1 << 70), ("k", 1, None)])
def test_s6_what_is_no_record_is_named(record: Any) -> None:
    """S6: it was an IndexError, an OverflowError, or an assertion."""
    with pytest.raises(ConfigError, match='record 1 of input "a"'):
        evaluate(plan_of(Input("a", ("a",)), Upsert("u", "a")), {"a": [record]})


def test_s6_a_function_that_exits_is_an_error_record() -> None:
    """S6: `sys.exit()` in a function ended the worker instead."""
    plan = plan_of(Input("a", ("a",)), Upsert("u", "a"), Linear("l", "u", (steps.map_(leaves),)))

    _, (reason,) = told(plan, [("k", 1, 0)])
    assert reason.endswith("raised SystemExit: 3")


def test_s7_the_name_of_an_aggregate_is_a_constant() -> None:
    """S7: a name that was put together evaded the refusal of what samples."""
    name = "list_aggregate([1, 2], ''reservoir_'' || ''quantile'', 0.5)"

    assert "constant" in problem_of(f"  l: {{linear: u, select: {{x: '{name}'}}}}")
