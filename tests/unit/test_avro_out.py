"""Outputs in Avro: types of SQL become types of Avro, rows and keys the data of these."""

import io
import json
from typing import Any

import fastavro
import pytest

from ikebana import (
    AsOfJoin,
    Column,
    DeltaJoin,
    Input,
    JoinInput,
    Linear,
    Output,
    Plan,
    PlanError,
    Reduce,
    Upsert,
    steps,
)
from ikebana.codecs import canonical
from ikebana.codecs.avro import AvroDecoder
from ikebana.codecs.avro_out import key_schema, schemas, value_schema, writers
from ikebana.codecs.change import Needs
from ikebana.codecs.debezium_avro import DebeziumAvro
from ikebana.codecs.debezium_out import EnvelopeOrigin, to_envelopes
from ikebana.codecs.output_messages import (
    Ids,
    OutputMessage,
    OutputShape,
    encoded,
    framed,
    namespace_of,
)
from ikebana.codecs.sql_type import parsed
from ikebana.processor.kafka.own_topics import subjects_of
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.outputs import shape_of
from ikebana.testing import Run
from support.avro_messages import KnownSchemas

MICROS = {
    "type": "long",
    "logicalType": "timestamp-micros",
    "connect.version": 1,
    "connect.name": "io.debezium.time.MicroTimestamp",
}


def shaped(columns: dict[str, str], key: str = "BIGINT", *, envelope: bool = False) -> OutputShape:
    """A shape with these types."""
    return OutputShape(
        "shop.rows", parsed(key), tuple((n, parsed(t)) for n, t in columns.items()), envelope
    )


def given(shape: OutputShape) -> KnownSchemas:
    """The schemas of a shape by their ids: 1 of keys, 2 of values."""
    return KnownSchemas(dict(enumerate(map(json.loads, schemas(shape)), 1)))


def written(shape: OutputShape, value: Any, key: Any = 1) -> OutputMessage:
    """The message of a row, framed."""
    row = None if value is None else canonical.encode(value)
    message = OutputMessage(canonical.encode(key), row, [("time", b"7")])
    done, violations = encoded(writers(shape), [message])
    assert violations == []
    return framed(done, Ids(1, 2))[0]


def refused(shape: OutputShape, value: Any, key: Any = 1) -> str:
    """Why a row is not written."""
    message = OutputMessage(canonical.encode(key), canonical.encode(value), [("time", b"7")])
    done, [violation] = encoded(writers(shape), [message])
    assert done == []
    assert (violation.key, violation.time) == (canonical.encode(key), 7)
    return violation.reason


def read(shape: OutputShape, message: bytes | None, part: Any = "value") -> Any:
    """A message as our own input reads it."""
    assert message is not None
    return AvroDecoder(given(shape), part=part).decode(message)


@pytest.mark.parametrize(
    ("kind", "value", "schema", "datum"),
    [
        ("BOOLEAN", True, "boolean", True),
        ("INTEGER", -(2**31), "int", -(2**31)),
        ("BIGINT", 2**63 - 1, "long", 2**63 - 1),
        (
            "UBIGINT",
            2**64 - 1,
            {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0},
            b"\x00" + b"\xff" * 8,
        ),
        (
            "HUGEINT",
            -(10**38) + 1,
            {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
            (-(10**38) + 1).to_bytes(16, "big", signed=True),
        ),
        (
            "DECIMAL(9,2)",
            -12.5,
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            (-1250).to_bytes(2, "big", signed=True),
        ),
        ("FLOAT", 0.5, "float", 0.5),
        ("DOUBLE", 0.1, "double", 0.1),
        ("VARCHAR", "é", "string", "é"),
        ("ENUM('a', 'b')", "b", "string", "b"),
        ("BLOB", "/w==", "bytes", b"\xff"),
        ("DATE", "1969-12-31", {"type": "int", "logicalType": "date"}, -1),
        ("TIMESTAMP", "1970-01-01T00:00:00.000001", MICROS, 1),
        ("TIMESTAMP_MS", "1970-01-01T00:00:01", MICROS, 1_000_000),
        (
            "TIMESTAMPTZ",
            "1970-01-01T00:00:00.5Z",
            {"type": "long", "logicalType": "timestamp-micros"},
            500_000,
        ),
        (
            "TIMESTAMP_NS",
            "1970-01-01T00:00:00.000000001",
            {
                **MICROS,
                "logicalType": "timestamp-nanos",
                "connect.name": "io.debezium.time.NanoTimestamp",
            },
            1,
        ),
        (
            "TIME",
            "00:00:01.5",
            {
                **MICROS,
                "logicalType": "time-micros",
                "connect.name": "io.debezium.time.MicroTime",
            },
            1_500_000,
        ),
        (
            "UUID",
            "123e4567-e89b-12d3-a456-426614174000",
            {
                "type": "string",
                "logicalType": "uuid",
                "connect.version": 1,
                "connect.name": "io.debezium.data.Uuid",
            },
            "123e4567-e89b-12d3-a456-426614174000",
        ),
        (
            "JSON",
            {"b": [1.5]},
            {
                "type": "string",
                "connect.version": 1,
                "connect.name": "io.debezium.data.Json",
            },
            '{"b":[1.5]}',
        ),
        ("INTEGER[]", [1, None], {"type": "array", "items": ["null", "int"]}, [1, None]),
        (
            "MAP(VARCHAR, BIGINT)",
            {"a": 1},
            {"type": "map", "values": ["null", "long"]},
            {"a": 1},
        ),
        (
            "STRUCT(a INTEGER, b STRUCT(c DATE)[])",
            {"a": 1, "b": [{"c": "1970-01-02"}]},
            {
                "type": "record",
                "name": "Value_v",
                "fields": [
                    {"name": "a", "type": ["null", "int"], "default": None},
                    {
                        "name": "b",
                        "type": [
                            "null",
                            {
                                "type": "array",
                                "items": [
                                    "null",
                                    {
                                        "type": "record",
                                        "name": "Value_v_b",
                                        "fields": [
                                            {
                                                "name": "c",
                                                "type": [
                                                    "null",
                                                    {"type": "int", "logicalType": "date"},
                                                ],
                                                "default": None,
                                            }
                                        ],
                                    },
                                ],
                            },
                        ],
                        "default": None,
                    },
                ],
            },
            {"a": 1, "b": [{"c": 1}]},
        ),
    ],
)
def test_each_type_has_one_of_avro(kind: str, value: Any, schema: Any, datum: Any) -> None:
    """The schema is that of the table in the docs, and the bytes are those of the datum."""
    shape = shaped({"v": kind})

    [column] = value_schema(shape)["fields"]
    assert column == {"name": "v", "type": ["null", schema], "default": None}
    body = io.BytesIO()
    bare = json.loads(schemas(shape)[1].replace('"logicalType"', '"meant"'))
    fastavro.schemaless_writer(body, fastavro.parse_schema(bare), {"v": datum})
    message = written(shape, {"v": value})
    assert message.value == b"\0\0\0\0\2" + body.getvalue()
    if kind != "JSON":
        assert read(shape, message.value) == canonical.decode(canonical.encode({"v": value}))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("INTEGER", "12"),
        ("BOOLEAN", 1),
        ("DECIMAL(9,2)", "1.500"),
        ("DOUBLE", "NaN"),
        ("DATE", "2024-01-31T00:00:00"),
        ("DATE", "+10000-01-01"),
        ("DATE", "infinity"),
        ("TIMESTAMP", "2024-01-31 01:00:00+01:00"),
        ("TIMESTAMP", "-0001-12-31T00:00:00"),
        ("TIMESTAMP", "infinity"),
        ("VARCHAR", {"a": 1}),
        ("HUGEINT", 0),
        ("DECIMAL(38,38)", 0),
        ("TIME", "24:00:00"),
    ],
)
def test_other_forms_of_a_value_are_the_same_value(kind: str, value: Any) -> None:
    """Rows of a declared input keep the form of their messages, and are read so by SQL."""
    shape = shaped({"v": kind})
    shown = {
        "12": 12,
        1: True,
        "1.500": 1.5,
        "2024-01-31T00:00:00": "2024-01-31",
        "2024-01-31 01:00:00+01:00": "2024-01-31T00:00:00",
    }
    meant = '{"a":1}' if isinstance(value, dict) else shown.get(value, value)

    assert read(shape, written(shape, {"v": value}).value) == {"v": meant}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("INTEGER", 2**31),
        ("UTINYINT", -1),
        ("TIMESTAMP", "+300000-01-01T00:00:00"),
        ("TIMESTAMP_NS", "2263-01-01T00:00:00"),
        ("BIGINT", 1.5),
        ("INTEGER", True),
        ("UBIGINT", 10**20),
        ("HUGEINT", 10**38),
        ("DECIMAL(4,2)", 1.239),
        ("DECIMAL(4,2)", 100),
        ("DECIMAL(4,2)", "Infinity"),
        ("FLOAT", 1e39),
        ("BOOLEAN", 2),
        ("BOOLEAN", []),
        ("DOUBLE", "x"),
        ("BLOB", "?"),
        ("DATE", "2024-02-30"),
        ("DATE", "2024-01-31T10:00:00"),
        ("TIMESTAMP", "2024-01-31T00:00:00.0000001"),
        ("TIMESTAMP", 7),
        ("TIME", "25:00:00"),
        ("INTEGER[]", 1),
        ("MAP(VARCHAR, INTEGER)", []),
        ("STRUCT(a INTEGER)", []),
    ],
)
def test_a_value_of_another_type_is_a_violation(kind: str, value: Any) -> None:
    """It names the column and its type, and no data."""
    assert (
        refused(shaped({"v": kind}), {"v": value}) == f'column "v" is not of type {parsed(kind)}'
    )


def test_a_field_within_a_column_is_named() -> None:
    """By its path."""
    shape = shaped({"v": "STRUCT(a STRUCT(b INTEGER)[])"})

    assert refused(shape, {"v": {"a": [{"b": "x"}]}}) == 'column "v.a.b" is not of type INTEGER'
    assert refused(shape, [1]) == 'column "value" is not of type STRUCT'


def test_columns_that_a_row_lacks_are_null_and_others_are_left_out() -> None:
    """The columns are those of the schema, in whatever row."""
    shape = shaped({"a": "INTEGER", "b": "VARCHAR"})

    assert read(shape, written(shape, {"b": "x", "c": 1}).value) == {"a": None, "b": "x"}
    assert written(shape, None).value is None


@pytest.mark.parametrize(
    ("kind", "key", "schema"),
    [
        ("BIGINT", 7, "long"),
        ("VARCHAR", "a", "string"),
        (
            "STRUCT(id BIGINT, day DATE)",
            {"id": 7, "day": "2024-01-31"},
            {
                "type": "record",
                "name": "shop.rows.Key",
                "fields": [
                    {"name": "id", "type": "long"},
                    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
                ],
            },
        ),
    ],
)
def test_a_key_is_never_null(kind: str, key: Any, schema: Any) -> None:
    """Nor is any part of it; a row with such a key is a violation."""
    shape = shaped({"v": "INTEGER"}, kind)

    assert key_schema(shape) == schema
    assert read(shape, written(shape, {"v": 1}, key).key, "key") == key
    lacking: Any = {**key, "day": None} if isinstance(key, dict) else None
    name = "day" if isinstance(key, dict) else "key"
    assert refused(shape, {"v": 1}, lacking).startswith(f'column "{name}" is not of type')


def test_a_key_of_which_nothing_is_known_is_json() -> None:
    """As text, null too."""
    shape = shaped({"v": "INTEGER"}, "JSON")

    for key, text in ((7, "7"), (None, "null"), ({"b": 1, "a": 2}, '{"a":2,"b":1}')):
        assert read(shape, written(shape, {"v": 1}, key).key, "key") == text


def test_envelopes_are_read_as_those_of_debezium() -> None:
    """By the input of this name, with the old image."""
    shape = shaped({"n": "DECIMAL(9,2)"}, "STRUCT(id BIGINT)", envelope=True)
    key = b'{"id":1}'
    messages, _ = to_envelopes(
        [
            (key, b'{"n":1}', 7, 1),
            (key, b'{"n":1}', 8, -1),
            (key, b'{"n":2.5}', 8, 1),
            (key, b'{"n":2.5}', 9, -1),
        ],
        EnvelopeOrigin("p", "o"),
    )
    done, violations = encoded(writers(shape), messages)
    codec = DebeziumAvro(given(shape), Needs(before=True))

    found = [codec.changes(each.key, each.value, each.headers) for each in framed(done, Ids(1, 2))]

    assert violations == []
    changes = [change for each in found if isinstance(each, list | tuple) for change in each]
    assert [(c.kind, c.key, c.before, c.after) for c in changes] == [
        ("upsert", key, None, b'{"n":1}'),
        ("upsert", key, b'{"n":1}', b'{"n":2.5}'),
        ("delete", key, b'{"n":2.5}', None),
        ("delete", key, None, None),
    ]


def test_a_column_that_is_added_is_read_by_both_schemas() -> None:
    """Since its default is null."""
    before, after = shaped({"a": "INTEGER"}), shaped({"a": "INTEGER", "b": "DATE"})
    bodies = [written(shape, {"a": 1, "b": "2024-01-31"}).value for shape in (before, after)]

    for body, writer, reader, row in (
        (bodies[0], before, after, {"a": 1, "b": None}),
        (bodies[1], after, before, {"a": 1}),
    ):
        assert body is not None
        both = value_schema(writer), value_schema(reader)
        assert fastavro.schemaless_reader(io.BytesIO(body[5:]), *both) == row


@pytest.mark.parametrize(
    ("topic", "namespace"),
    [("orders", "orders"), ("shop.2024-orders", "shop._2024_orders"), ("a..b", "a._.b")],
)
def test_a_namespace_is_made_of_a_topic(topic: str, namespace: str) -> None:
    """Each of its parts is a name of Avro."""
    assert namespace_of(topic) == namespace
    shape = OutputShape(namespace, parsed("BIGINT"), (("a", parsed("DATE")),))
    fastavro.parse_schema(value_schema(shape))


ROWS = Input(
    "rows",
    ("rows",),
    columns=(Column("id", "BIGINT"), Column("day", "DATE"), Column("n", "INTEGER")),
)
NAMED = Input("named", ("named",), "debezium-json", columns=ROWS.columns, key=("id", "day"))
PLAIN = Input("plain", ("plain",))
CURRENT, OF_NAMED = Upsert("current", "rows"), Upsert("of_named", "named")


def plan_of(source: str, *operators: Any, **of_output: Any) -> Plan:
    """A plan with one output in Avro."""
    made = (CURRENT, OF_NAMED, *operators)
    output = Output("out", source, "shop.out", **{"format": "avro", **of_output})
    return checked(Plan("p", (ROWS, NAMED), made, (output,)))


@pytest.mark.parametrize(
    ("source", "operators", "kind"),
    [
        pytest.param("current", (), "JSON", id="a Kafka key"),
        pytest.param("of_named", (), "STRUCT(id BIGINT, day DATE)", id="columns of an input"),
        pytest.param(
            "l", (Linear("l", "current", (steps.rekey("id"),)),), "BIGINT", id="an expression"
        ),
        pytest.param(
            "l",
            (Linear("l", "of_named", (steps.select(m="n + 1"), steps.where("m > 2"))),),
            "STRUCT(id BIGINT, day DATE)",
            id="steps that keep the key",
        ),
        pytest.param(
            "l",
            (Linear("l", "of_named", (steps.select(m="n::VARCHAR"), steps.rekey("m"))),),
            "VARCHAR",
            id="a column that a step has made",
        ),
        pytest.param(
            "l",
            (Linear("l", "of_named", (steps.rekey("key"),)),),
            "STRUCT(id BIGINT, day DATE)",
            id="the key itself",
        ),
        pytest.param(
            "r",
            (Reduce("r", "current", (("c", "count(*)"),), by="{'d': day}"),),
            "STRUCT(d DATE)",
            id="a reduction by columns",
        ),
        pytest.param(
            "r",
            (Reduce("r", "of_named", (("c", "count(*)"),)),),
            "STRUCT(id BIGINT, day DATE)",
            id="a reduction by the key",
        ),
        pytest.param(
            "j",
            (
                DeltaJoin(
                    "j",
                    (JoinInput("a", "of_named"), JoinInput("b", "current")),
                    ("a.id = b.id",),
                    (("n", "b.n"),),
                ),
            ),
            "STRUCT(id BIGINT, day DATE)",
            id="the first of a join",
        ),
        pytest.param(
            "j",
            (
                AsOfJoin(
                    "j",
                    JoinInput("a", "of_named"),
                    JoinInput("b", "current"),
                    ("a.id = b.id",),
                    (("n", "b.n"),),
                    key="a.day",
                    retract="locked",
                ),
            ),
            "DATE",
            id="a key of a join",
        ),
    ],
)
def test_the_type_of_a_key_follows_from_what_makes_it(
    source: str, operators: Any, kind: str
) -> None:
    """Where nothing is known it is JSON."""
    plan = plan_of(source, *operators)

    assert shape_of(plan, plan.outputs[0]).key_type == parsed(kind)


@pytest.mark.parametrize("form", ["avro", "debezium-avro"])
def test_a_run_writes_and_what_does_not_fit_is_an_error(form: Any) -> None:
    """The error names output, time and column; other rows go on."""
    plan = plan_of("of_named", format=form)
    run = Run(plan)
    for number, day in ((1, "2024-01-31"), (2, None)):
        row = {"id": number, "day": day, "n": 5}
        run.send("named", None, {"op": "c", "before": None, "after": row})
    run.read()

    [message] = run.messages("out")
    body = framed([message], Ids(1, 2))[0].value
    shown = read(shape_of(plan, plan.outputs[0]), body)
    row = {"id": 1, "day": "2024-01-31", "n": 5}
    assert (shown if form == "avro" else shown["after"]) == row
    [error] = run.errors()
    assert "output out at time" in str(error)
    assert 'column "day" is not of type DATE without null' in str(error)


@pytest.mark.parametrize(
    ("source", "operators", "of_output", "path", "problem"),
    [
        pytest.param(
            "of_plain",
            (Upsert("of_plain", "plain"),),
            {},
            "format",
            "declare the columns",
            id="open",
        ),
        pytest.param(
            "l",
            (Linear("l", "current", (steps.select({"a b": "n"}),)),),
            {},
            "format",
            "column 'a b' has a name that Avro has not",
            id="a name",
        ),
        pytest.param(
            "l",
            (Linear("l", "current", (steps.rekey("{'a b': id}"),)),),
            {},
            "format",
            "the key is STRUCT",
            id="a name in a key",
        ),
        pytest.param(
            "current",
            (),
            {"subjects": "record"},
            "subjects",
            "the key has none: make it an object of columns",
            id="a key without a record",
        ),
        pytest.param(
            "of_named",
            (),
            {"record": "a b"},
            "record",
            "is no namespace of Avro",
            id="a namespace",
        ),
        pytest.param(
            "of_named",
            (),
            {"format": "upsert", "subjects": "record"},
            "subjects",
            "has no schemas in a registry",
            id="another format",
        ),
    ],
)
def test_what_has_no_schema_is_refused(
    source: str, operators: Any, of_output: Any, path: str, problem: str
) -> None:
    """With what to do."""
    output = Output("out", source, "shop.out", **{"format": "avro", **of_output})
    made = (CURRENT, OF_NAMED, *operators)

    with pytest.raises(PlanError) as caught:
        checked(Plan("p", (ROWS, NAMED, PLAIN), made, (output,)))

    assert [place for place, _ in caught.value.problems] == [f"outputs.out.{path}"]
    assert problem in caught.value.problems[0][1]


@pytest.mark.parametrize(
    ("of_output", "names"),
    [
        ({}, ["shop.out-key", "shop.out-value"]),
        ({"subjects": "record"}, ["shop.out.Key", "shop.out.Value"]),
        ({"subjects": "record", "record": "a.b"}, ["a.b.Key", "a.b.Value"]),
        (
            {"subjects": "topic-record", "format": "debezium-avro"},
            ["shop.out-shop.out.Key", "shop.out-shop.out.Envelope"],
        ),
    ],
)
def test_subjects_are_named_by_one_of_three_strategies(of_output: Any, names: list[str]) -> None:
    """Those of Confluent's serializers."""
    plan = plan_of("of_named", **of_output)

    assert [subject.name for subject in subjects_of(plan, plan.outputs[0])] == names


def test_names_of_schemas_do_not_make_another_plan() -> None:
    """They may change between runs."""
    assert plan_of("of_named").fingerprint() == plan_of("of_named", record="a.b").fingerprint()
