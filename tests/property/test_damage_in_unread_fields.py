"""Whether a message is an error does not depend on what is read."""

import functools
import json
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ikebana import Column, Input, Linear, Output, Plan, Reduce, Upsert
from ikebana.arrangements.update import Update, consolidate
from ikebana.codecs import canonical, plain
from ikebana.codecs import debezium as debezium_json
from ikebana.codecs.formats import Format
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.linear.steps import project
from ikebana.testing import Run
from support.strategies import unhurried


def bare(row: str) -> str:
    return row


def debezium(row: str) -> str:
    return f'{{"before":null,"after":{row},"op":"c","source":{{"lsn":1}},"ts_ms":2}}'


def with_schema(row: str) -> str:
    return f'{{"schema":null,"payload":{debezium(row)}}}'


def maxwell(row: str) -> str:
    return f'{{"database":"d","table":"t","type":"insert","ts":1,"data":{row}}}'


def goldengate(row: str) -> str:
    return f'{{"table":"D.T","op_type":"I","pos":"1","after":{row}}}'


def dms(row: str) -> str:
    metadata = '{"record-type":"data","operation":"insert","table-name":"t"}'
    return f'{{"data":{row},"metadata":{metadata}}}'


def canal(row: str) -> str:
    # Of these types any text is a value.
    types = '{"id":"bigint","n":"json","t":"varchar(9)","x":"json"}'
    return f'{{"data":[{row}],"mysqlType":{types},"type":"INSERT","ts":1,"isDdl":false}}'


FORMATS: dict[str, tuple[Format, Any]] = {
    "json": ("json", bare),
    "debezium": ("debezium-json", debezium),
    "with schema": ("debezium-json", with_schema),
    "flat": ("debezium-flat-json", bare),
    "maxwell": ("maxwell", maxwell),
    "goldengate": ("goldengate", goldengate),
    "dms": ("dms", dms),
    "canal": ("canal", canal),
}
# What may be wrong with a value, and what only looks so.
VALUES = [
    *(b"1e400", b"-1E+309", b"1e308", b"1e99999999999", b"1e-99999999999999999999", b"0e9999"),
    *(b"9" * 5_000, b"9" * 4_000, b"9" * 220 + b"e99", b"0." + b"1" * 500, b"-" + b"7" * 310),
    *(b'"\xff"', b'"\xed\xa0\x80"', b'"\xc3"', b'"gr\xc3\xb6\xc3\x9fe"', b'"\\ud800"'),
    *(b'"\\ud83d\\ude00"', b'"\x01"', b'"\\q"', b'"\\u00"', b'"1e400 \xc3\xa9"', b'"a"b"'),
    *(b"NaN", b"Infinity", b"01", b"1.", b"tru", b"[1}", b"[1e400]", b'{"a":{"b":1e400}}'),
    *(b'{"\xff":1}', b'{"\\ud800":1}', b"[" * 190 + b"]" * 190, b"[" * 250 + b"]" * 250),
    *(b"null", b"7", b'"7"', b"1.50", b'"8f1e4005-0e123"', b"", b"1 x"),
]
# Any value is of these types, so that no message is an error because of them.
ANY = {"n": "JSON plain", "t": "VARCHAR", "x": "JSON plain"}
TYPED = ("n BIGINT", "t VARCHAR", "x JSON")


@functools.cache
def plan_of(form: str, columns: tuple[str, ...], declared: tuple[str, ...]) -> Plan:
    """A plan that reads some columns; of all formats but JSON the key is in the row."""
    value_format, _ = FORMATS[form]
    key = () if value_format == "json" else ("id",)
    # Where columns are declared, those of the key are, too.
    listed = (*(f"{name} BIGINT" for name in key if declared), *declared)
    columns_of = tuple(Column(*each.split()) for each in listed)
    source = Input("t", ("t",), value_format, key=key, columns=columns_of)
    steps = (Linear("l", "u", (project(*columns),)),)
    return Plan("p", (source,), (Upsert("u", "t"), *steps), (Output("o", "l", "o"),))


def outcome(plan: Plan, messages: list[bytes], pushed: bool, compiled: bool) -> Any:  # noqa: FBT001
    """The updates, and the errors without their reasons' details."""
    records: list[Any] = [(b'{"id":1}', value, at) for at, value in enumerate(messages)]
    with ExitStack() as stack:
        if not compiled:
            for module, name in (
                (canonical, "CompiledRows"),
                (debezium_json, "CompiledRows"),
                (plain, "Canonical"),
            ):
                stack.enter_context(patch.object(module, name, None))
            stack.enter_context(patch.object(canonical, "_doubtful", canonical.doubtful_in_python))
        evaluation = Evaluation(plan, optimized=pushed)
        made = evaluation.advance({"t": records}, 100)
    updates = consolidate(
        Update(json.dumps(u.data, sort_keys=True), u.time, u.diff) for u in made["o"]
    )
    errors = sorted((u.data["offset"], u.data["key"], u.time, u.diff) for u in made["errors"])
    return sorted(updates), errors


@pytest.mark.parametrize("form", FORMATS)
@settings(unhurried, max_examples=max(15, settings().max_examples // 4))
@given(
    st.sampled_from(VALUES),
    st.sampled_from(["n", "t", "x", "beside", "at once"]),
    st.lists(st.sampled_from("ntx"), min_size=1, max_size=2, unique=True).map(sorted),
)
def test_damage_is_an_error_whoever_reads_it(
    form: str, value: bytes, place: str, columns: list[str]
) -> None:
    """In a column or beside the row: pushed down or not, declared or not, compiled or not."""
    _, write = FORMATS[form]
    row = {"id": 1, "n": 5, "t": "a", "x": None}
    good = write(json.dumps(row)).encode()
    if place == "beside":
        damaged = good[:-1] + b',"beside":' + value + b"}"
    elif place == "at once":
        damaged = good + value
    else:
        damaged = write(json.dumps({**row, place: "?"})).encode()
        damaged = damaged.replace(b'"?"', value)
    messages = [good, damaged, write(json.dumps({**row, "n": 6})).encode()]
    some, all_ = ((f"{name} {ANY[name]}" for name in names) for names in (columns, ANY))

    outcomes = {
        declared: {
            json.dumps(
                outcome(plan_of(form, tuple(columns), declared), messages, pushed, compiled)
            )
            for pushed in (True, False)
            for compiled in (True, False)
        }
        for declared in ((), tuple(some), tuple(all_), TYPED)
    }

    assert [len(same) for same in outcomes.values()] == [1, 1, 1, 1]
    del outcomes[TYPED]
    assert len({json.dumps(json.loads(same)[1]) for (same,) in outcomes.values()}) == 1


@pytest.mark.parametrize("damaged", [b'{"b":2,"x":"\xff"}', b'{"b":2,"x":"ok","y":1e400}'])
def test_an_edit_that_reads_one_more_column_changes_no_other_output(damaged: bytes) -> None:
    """The message was an error before, although nobody read the column."""

    def plan(*more: Linear) -> Plan:
        columns = (Column("b", "BIGINT"), Column("x", "VARCHAR"))
        outputs = (Output("o", "sums", "o"), *(Output(each.name, each.name, "w") for each in more))
        sums = Reduce("sums", "u", (("n", "count(*)"),), by="b")
        source = Input("t", ("t",), columns=columns)
        return Plan("p", (source,), (Upsert("u", "t"), sums, *more), outputs)

    run = Run(plan())
    run.send("t", 1, {"b": 1, "x": "a"})
    run.read()
    run.topics.send("t", b"1", damaged)
    run.read()
    before = run.collection("o"), run.errors()

    run.restart(plan(Linear("w", "u", (project("x"),))))
    run.read()

    assert before[0] == [(1, {"n": 1})]
    assert (run.collection("o"), run.errors()) == before
