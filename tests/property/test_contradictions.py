"""Values that contradict the schema in their message: the same whoever reads them."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ikebana import Column, Input, Linear, Output, Plan, Upsert
from ikebana.codecs import avro_compiler
from ikebana.codecs.formats import Format, KeyFormat
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.linear.steps import project
from support.avro_messages import KnownSchemas, message
from support.connect_avro import schema_of
from support.connector_values import Node, node_of, struct
from support.strategies import unhurried


def named(kind: str, name: str, **more: Any) -> Node:
    """A node of a schema with a semantic type of Debezium."""
    return {"type": kind, "name": f"io.debezium.{name}", **more}


DATE = named("int32", "time.Date")
DECIMAL = {
    **{"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"},
    "parameters": {"scale": "2"},
}
VARIABLE = struct("io.debezium.data.VariableScaleDecimal", scale=node_of("int32"), value=DECIMAL)
NODES: dict[str, Node] = {
    "date": DATE,
    "instant": named("int64", "time.MicroTimestamp"),
    "zoned": named("string", "time.ZonedTimestamp"),
    "iso": named("string", "time.IsoDate"),
    "decimal": DECIMAL,
    "number": {**VARIABLE, "name": "io.debezium.data.VariableScaleDecimal"},
    "dates": {"type": "array", "items": DATE},
    "row": struct("row", d=DATE, z=named("string", "time.ZonedTime")),
    "map": {"type": "map", "keys": node_of("string"), "values": DATE},
    "json": named("string", "data.Json"),
}
JSON_VALUES = [
    *(19_000, -1, 10**18, 1.5, True, None, "xx", "", "2024-01-31", "2024-01-31T01:02:03Z"),
    *("AQ==", "!!", [], [19_000, "x", None], {}, {"d": 1, "z": "x"}, {"d": "x", "z": "01:02:03Z"}),
    *({"scale": 1, "value": "AQ=="}, {"scale": "x", "value": "AQ=="}, {"a": 10**15}, [10**15]),
]
AVRO_VALUES: dict[str, list[Any]] = {
    "date": [19_000, 2**31 - 1, -(2**31)],
    "instant": [0, 2**63 - 1, -(2**63)],
    "zoned": ["2024-01-31T01:02:03Z", "xx", ""],
    "iso": ["2024-01-31Z", "xx"],
    "decimal": [b"", b"\1", b"\x7f" * 4_000],
    "number": [{"scale": 1, "value": b"\1"}, {"scale": 2**31 - 1, "value": b"\1"}],
    "dates": [[], [19_000, 2**31 - 1]],
    "row": [{"d": 1, "z": "01:02:03Z"}, {"d": 2**31 - 1, "z": "x"}],
    "map": [{}, {"a": 2**31 - 1}],
    "json": ["{}", "{"],
}
TYPES = {"date": "DATE", "zoned": "TIMESTAMPTZ", "decimal": "DECIMAL(9,2)", "json": "JSON"}
MYSQL = ("bigint", "decimal(9,2)", "datetime", "time", "varbinary(9)", "varchar(9)", "")
TEXTS = ("5", "1.50", "xx", "", "2024-01-31 01:02:03.400", "0000-00-00 00:00:00", "☃", "99:00:00")
READS = (("c0",), ("c1",), ("c0", "c1"), ("id",))


def plan(form: Format, columns: tuple[Column, ...], read: tuple[str, ...]) -> Plan:
    """A plan that reads some of the columns."""
    key: KeyFormat = "avro" if form.endswith("avro") else "json"
    source = Input("t", ("t",), form, key=("id",), key_format=key, columns=columns)
    steps = (project(*read),)
    return Plan(
        "p", (source,), (Upsert("u", "t"), Linear("l", "u", steps)), (Output("o", "l", "o"),)
    )


def declared(kinds: list[str | None]) -> tuple[Column, ...]:
    """The columns, as far as they are declared."""
    listed = {f"c{at}": kind for at, kind in enumerate(kinds) if kind is not None}
    known = {"id": "BIGINT", **listed} if listed else {}
    return tuple(Column(name, kind) for name, kind in known.items())


def require_same(
    form: Format, kinds: list[str | None], messages: list[Any], known: KnownSchemas | None = None
) -> None:
    """Whoever reads which columns, the same messages are errors; results are those unpushed."""
    columns = declared(kinds)
    records = [(b'{"id":%d}' % at, value, at) for at, value in enumerate(messages)]
    errors = set()
    names = {column.name for column in columns}
    for read in READS:
        if columns and not names.issuperset(read):
            continue
        both = set()
        for pushed in (True, False):
            evaluation = Evaluation(plan(form, columns, read), optimized=pushed, schemas=known)
            made = evaluation.advance({"t": records}, 100)
            failed = sorted({u.data["offset"] for u in made["errors"]})
            both.add(json.dumps([made["o"], failed], sort_keys=True, default=str))
            errors.add(tuple(failed))
        assert len(both) == 1, (read, both)
    assert len(errors) == 1, errors


kinds_of = st.sampled_from((None, "declared", "VARCHAR"))


@pytest.mark.parametrize("flat", [False, True])
@settings(unhurried, max_examples=max(15, settings().max_examples // 2))
@given(
    st.lists(st.sampled_from(sorted(NODES)), min_size=2, max_size=2),
    st.lists(st.sampled_from(JSON_VALUES), min_size=2, max_size=6),
    st.lists(kinds_of, min_size=2, max_size=2),
)
@example(["date", "date"], ["xx", 19_000], [None, None])
def test_in_json_with_a_schema(
    flat: bool,  # noqa: FBT001
    names: list[str],
    values: list[Any],
    kinds: list[str | None],
) -> None:
    """Declared or not, alone or beside others, flattened or not, at every depth."""
    nodes = {f"c{at}": NODES[name] for at, name in enumerate(names)}
    row = struct("Row", id=node_of("int64"), **nodes)
    schema = row if flat else struct("Envelope", before=row, after=row, op=node_of("string"))
    messages = []
    for at, (one, other) in enumerate(zip(values, reversed(values), strict=True)):
        after = {"id": at, "c0": one, "c1": other}
        event = after if flat else {"before": None, "after": after, "op": "c"}
        messages.append(json.dumps({"schema": schema, "payload": event}).encode())
    form: Format = "debezium-flat-json" if flat else "debezium-json"
    types = [
        TYPES.get(n, "JSON") if k == "declared" else k for n, k in zip(names, kinds, strict=True)
    ]

    require_same(form, types, messages)


@pytest.mark.parametrize("program", [False, True])
@pytest.mark.parametrize("flat", [False, True])
@settings(unhurried, max_examples=max(10, settings().max_examples // 4))
@given(st.data())
def test_in_avro(flat: bool, program: bool, data: st.DataObject) -> None:  # noqa: FBT001
    """By programs, and by fastavro."""
    names = data.draw(st.lists(st.sampled_from(sorted(NODES)), min_size=2, max_size=2))
    kinds = data.draw(st.lists(kinds_of, min_size=2, max_size=2))
    nodes = {f"c{at}": NODES[name] for at, name in enumerate(names)}
    row = struct("Row", id=node_of("int64"), **nodes)
    schema = row if flat else struct("Envelope", before=row, after=row, op=node_of("string"))
    known = KnownSchemas({1: schema_of(schema)})
    messages = []
    for at in range(data.draw(st.integers(2, 4))):
        values = [data.draw(st.sampled_from(AVRO_VALUES[name])) for name in names]
        after = {"id": at, "c0": values[0], "c1": values[1]}
        event = after if flat else {"before": after, "after": after, "op": "c"}
        messages.append(message(1, known.schemas[1], event))
    types = [
        TYPES.get(n, "JSON") if k == "declared" else k for n, k in zip(names, kinds, strict=True)
    ]

    with pytest.MonkeyPatch.context() as patch:
        if not program:
            patch.setattr(avro_compiler, "Program", None)
        require_same("avro" if flat else "debezium-avro", types, messages, known)


@settings(unhurried, max_examples=max(20, settings().max_examples))
@given(
    st.lists(st.sampled_from(MYSQL), min_size=2, max_size=2),
    st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(TEXTS)), min_size=1, max_size=6),
    st.lists(st.sampled_from((None, "BIGINT", "TIMESTAMP", "VARCHAR")), min_size=2, max_size=2),
)
def test_in_canals_texts(
    mysql: list[str], rows: list[tuple[str, str]], kinds: list[str | None]
) -> None:
    """By their types of MySQL, and without them."""
    types = {f"c{at}": kind for at, kind in enumerate(mysql) if kind}
    messages = [
        json.dumps(
            {
                "type": "INSERT",
                "mysqlType": {"id": "bigint", **types},
                "data": [{"id": str(at), "c0": one, "c1": other}],
            }
        ).encode()
        for at, (one, other) in enumerate(rows)
    ]

    require_same("canal", kinds, messages)


@pytest.mark.parametrize("pushed", [True, False])
@pytest.mark.parametrize("read", [("c0",), ("id",)])
@pytest.mark.parametrize(("kind", "fails"), [("BIGINT", True), ("VARCHAR", False), (None, False)])
def test_a_declared_column_refuses_what_contradicts_its_schema(
    kind: str | None,
    fails: bool,  # noqa: FBT001
    read: tuple[str, ...],
    pushed: bool,  # noqa: FBT001
) -> None:
    """Even what its type would take as it is; elsewhere the value stays as the message has it."""
    row = struct("Row", id=node_of("int64"), c0=DATE)
    schema = struct("Envelope", before=row, after=row, op=node_of("string"))
    payload = {"before": None, "after": {"id": 1, "c0": "5"}, "op": "c"}
    columns = declared([kind])
    evaluation = Evaluation(plan("debezium-json", columns, read), optimized=pushed)

    made = evaluation.advance({"t": [(None, {"schema": schema, "payload": payload}, 0)]}, 1)

    shown: dict[str, Any] = {"id": 1} if read == ("id",) else {"c0": "5"}
    assert [update.data[1] for update in made["o"]] == ([] if fails else [shown])
    assert len(made["errors"]) == fails
