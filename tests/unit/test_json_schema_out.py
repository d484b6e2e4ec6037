"""Outputs in JSON by JSON Schemas: messages fit the schemas that a registry gets."""

import json
from typing import Any

import jsonschema
import pytest

from ikebana import Column, Input, Output, Plan, Upsert
from ikebana.codecs import canonical
from ikebana.codecs.change import Change, Needs
from ikebana.codecs.formats import Framed
from ikebana.codecs.json_schema_out import KIND, schemas, writers
from ikebana.codecs.output_messages import Ids, OutputMessage, OutputShape, encoded, framed
from ikebana.codecs.plain import Plain
from ikebana.codecs.sql_type import parsed
from ikebana.processor.kafka.own_topics import subjects_of
from ikebana.processor.planning.checking import checked

TIME = [("time", b"7")]


def shaped(columns: dict[str, str], key: str = "BIGINT") -> OutputShape:
    """A shape with these types."""
    return OutputShape("shop.rows", parsed(key), tuple((n, parsed(t)) for n, t in columns.items()))


def written(shape: OutputShape, value: Any, key: Any = 1) -> tuple[Any, Any]:
    """The key and the value of a message, which fit their schemas."""
    message = OutputMessage(canonical.encode(key), canonical.encode(value), TIME)
    [done], violations = encoded(writers(shape), [message])
    assert violations == []
    assert done.key is not None
    assert done.value is not None
    found = json.loads(done.key), json.loads(done.value)
    for part, schema in zip(found, map(json.loads, schemas(shape)), strict=True):
        jsonschema.Draft7Validator.check_schema(schema)
        jsonschema.validate(part, schema)
    return found


def refused(shape: OutputShape, value: Any, key: Any = 1) -> str:
    """Why a row is not written."""
    message = OutputMessage(canonical.encode(key), canonical.encode(value), TIME)
    done, [violation] = encoded(writers(shape), [message])
    assert done == []
    return violation.reason


@pytest.mark.parametrize(
    ("kind", "value", "schema"),
    [
        ("BOOLEAN", True, {"type": "boolean"}),
        ("INTEGER", 7, {"type": "integer", "connect.type": "int32"}),
        ("BIGINT", 2**63 - 1, {"type": "integer", "connect.type": "int64"}),
        (
            "DECIMAL(9,2)",
            12.5,
            {
                "type": "number",
                "title": "org.apache.kafka.connect.data.Decimal",
                "connect.type": "bytes",
                "connect.parameters": {"scale": "2"},
            },
        ),
        ("DOUBLE", 0.1, {"type": "number", "connect.type": "float64"}),
        ("VARCHAR", "é", {"type": "string"}),
        (
            "BLOB",
            "/w==",
            {"type": "string", "contentEncoding": "base64", "connect.type": "bytes"},
        ),
        ("DATE", "2024-01-31", {"type": "string", "format": "date"}),
        ("TIMESTAMP", "2024-01-31T12:00:00.5", {"type": "string"}),
        ("TIMESTAMPTZ", "2024-01-31T12:00:00Z", {"type": "string", "format": "date-time"}),
        ("JSON", {"b": [1.5, None]}, {}),
        (
            "INTEGER[]",
            [1, None],
            {
                "type": "array",
                "items": {
                    "oneOf": [{"type": "null"}, {"type": "integer", "connect.type": "int32"}]
                },
            },
        ),
        (
            "MAP(VARCHAR, DATE)",
            {"a": None},
            {
                "type": "object",
                "connect.type": "map",
                "additionalProperties": {
                    "oneOf": [{"type": "null"}, {"type": "string", "format": "date"}]
                },
            },
        ),
        (
            "STRUCT(a BOOLEAN)",
            {"a": False},
            {
                "type": "object",
                "properties": {"a": {"oneOf": [{"type": "null"}, {"type": "boolean"}]}},
                "additionalProperties": False,
            },
        ),
    ],
)
def test_each_type_has_one_of_json_schema(kind: str, value: Any, schema: Any) -> None:
    """The schema is that of the table in the docs, and the value is as in every other format."""
    shape = shaped({"v": kind})

    of_value = json.loads(schemas(shape)[1])
    nullable = {"oneOf": [{"type": "null"}, schema]} if schema else {}
    assert of_value["properties"] == {"v": nullable}
    assert of_value["title"] == "shop.rows.Value"
    assert written(shape, {"v": value})[1] == {"v": value}
    assert written(shape, {"v": None})[1] == {"v": None}


@pytest.mark.parametrize(
    ("kind", "value", "meant"),
    [
        ("INTEGER", "12", 12),
        ("DECIMAL(9,2)", "1.50", 1.5),
        ("HUGEINT", str(10**30), 10**30),
        ("BOOLEAN", "t", True),
        ("VARCHAR", {"a": 1}, '{"a":1}'),
        ("DOUBLE", "0.5", 0.5),
    ],
)
def test_other_forms_of_a_value_are_of_its_type(kind: str, value: Any, meant: Any) -> None:
    """So that the message fits its schema."""
    assert written(shaped({"v": kind}), {"v": value})[1] == {"v": meant}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("INTEGER", 2**31),
        ("DOUBLE", "NaN"),
        ("DATE", "2024-02-30"),
        ("INTEGER[]", 1),
        ("STRUCT(a INTEGER)", []),
    ],
)
def test_a_value_of_another_type_is_a_violation(kind: str, value: Any) -> None:
    """It names the column and its type, and no data."""
    assert (
        refused(shaped({"v": kind}), {"v": value}) == f'column "v" is not of type {parsed(kind)}'
    )


def test_columns_are_those_of_the_schema_and_keys_are_never_null() -> None:
    """What a row lacks is null, and what is no column is left out."""
    shape = shaped({"a": "INTEGER", "b": "VARCHAR"}, "STRUCT(id BIGINT)")

    assert written(shape, {"b": "x", "c": 1}, {"id": 1}) == ({"id": 1}, {"a": None, "b": "x"})
    assert refused(shape, {}, {"id": None}).startswith('column "id" is not of type BIGINT')
    assert refused(shape, [1], {"id": 1}) == 'column "value" is not of type STRUCT'
    assert refused(shaped({}), {}, None).startswith('column "key" is not of type BIGINT')
    assert written(shaped({}, "JSON"), {}, [1])[0] == [1]


def test_a_framed_message_is_read_by_an_input() -> None:
    """With the option `framing`."""
    shape = shaped({"a": "INTEGER"})
    message = OutputMessage(b"1", b'{"a":7}', TIME)
    [made] = framed(encoded(writers(shape), [message])[0], Ids(1, 2))

    codec = Framed(Plain("json", "json", Needs()), "confluent")
    [change] = codec.changes(made.key, made.value, made.headers)
    assert isinstance(change, Change)
    assert (change.key, change.after) == (b"1", b'{"a":7}')


def test_any_name_of_a_column_has_a_schema_in_json() -> None:
    """Which none has in Avro; subjects are those of the topic, and the kind is told."""
    columns = (Column("id", "BIGINT"), Column("a b", "INTEGER"))
    source = Input("rows", ("rows",), "debezium-json", columns=columns, key=("id",))
    output = Output("out", "current", "shop.out", "json-schema")
    plan = checked(Plan("p", (source,), (Upsert("current", "rows"),), (output,)))

    of_key, of_value = subjects_of(plan, plan.outputs[0])
    assert (of_key.name, of_value.name, of_value.kind) == ("shop.out-key", "shop.out-value", KIND)
    assert "a b" in json.loads(of_value.schema)["properties"]
