"""Write messages of outputs in JSON by JSON Schemas of a registry.

The schemas follow from the types of the output's columns, like those of `avro_out`.

| SQL | JSON Schema |
|---|---|
| BOOLEAN | boolean |
| TINYINT, SMALLINT, INTEGER, UTINYINT, USMALLINT | integer, of Connect's type int32 |
| BIGINT, UINTEGER | integer, of Connect's type int64 |
| UBIGINT, HUGEINT, UHUGEINT, DECIMAL(p, s) | number, Connect's Decimal |
| FLOAT, DOUBLE | number, of Connect's types float32 and float64 |
| BLOB | string in base64, of Connect's type bytes |
| DATE, TIMESTAMP WITH TIME ZONE, UUID | string, in the formats date, date-time, uuid |
| STRUCT, list and array, MAP | object, array, object of Connect's type map |
| JSON | anything |
| VARCHAR and all others | string |

Each field of a row may be null, and those of a key may not.  Objects have no other fields than
these, so by the rules of registries a further column that may be null is compatible.  JSON has no
number that is not finite: such a value is none of its type.

Form: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/serdes-json.html
"""

import functools
from decimal import Decimal
from math import isfinite
from typing import Any

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.avro_schema import MessagePart, Schemas
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.output_messages import (
    Forms,
    OutputShape,
    ToDatum,
    ToJson,
    Writers,
    avro_scalars,
)
from ikebana.codecs.sql_type import Array, List, Map, SqlType, Struct
from ikebana.codecs.sql_type import Decimal as DecimalType

KIND = "JSON"
"""The name of the format in registries."""
name_problem = "has a name that JSON has not"
_DRAFT = "http://json-schema.org/draft-07/schema#"
_FRAME = 5


def carries(kind: SqlType) -> bool:
    """Whether names within a type are valid in JSON: all are."""
    return True


def schemas(shape: OutputShape) -> tuple[str, str]:
    """The schemas of keys and of values, as a registry gets them."""
    of_key, of_value = names(shape)
    key = _schema(shape.key_type)
    if isinstance(shape.key_type, Struct):
        key = _object({name: _schema(of) for name, of in shape.key_type.fields})
        key["required"] = list(key["properties"])
    value = _object({name: _nullable(_schema(of)) for name, of in shape.columns})
    texts = (
        {"$schema": _DRAFT, "title": of_key, **key},
        {"$schema": _DRAFT, "title": of_value, **value},
    )
    return msgspec.json.encode(texts[0]).decode(), msgspec.json.encode(texts[1]).decode()


def names(shape: OutputShape) -> tuple[str, str]:
    """The titles of the schemas of keys and of values."""
    return f"{shape.space}.Key", f"{shape.space}.Value"


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "additionalProperties": False}


def _nullable(schema: Any) -> Any:
    return {"oneOf": [{"type": "null"}, schema]} if schema else schema


def _schema(kind: SqlType) -> dict[str, Any]:
    match kind:
        case DecimalType(_, scale):
            return _decimal(scale)
        case List(of) | Array(of):
            return {"type": "array", "items": _nullable(_schema(of))}
        case Map(_, of):
            of_values = _nullable(_schema(of))
            return {"type": "object", "connect.type": "map", "additionalProperties": of_values}
        case Struct(fields):
            return _object({name: _nullable(_schema(of)) for name, of in fields})
    return dict(_SCALARS.get(str(kind), _TEXT))


def _decimal(scale: int) -> dict[str, Any]:
    meaning = {"title": "org.apache.kafka.connect.data.Decimal", "connect.type": "bytes"}
    return {"type": "number", **meaning, "connect.parameters": {"scale": str(scale)}}


_TEXT = {"type": "string"}
_INT32 = {"type": "integer", "connect.type": "int32"}
_INT64 = {"type": "integer", "connect.type": "int64"}
_SCALARS: dict[str, dict[str, Any]] = {
    "BOOLEAN": {"type": "boolean"},
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"), _INT32),
    **dict.fromkeys(("BIGINT", "UINTEGER"), _INT64),
    **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT"), _decimal(0)),
    "FLOAT": {"type": "number", "connect.type": "float32"},
    "DOUBLE": {"type": "number", "connect.type": "float64"},
    "BLOB": {"type": "string", "contentEncoding": "base64", "connect.type": "bytes"},
    "DATE": {"type": "string", "format": "date"},
    "TIMESTAMP WITH TIME ZONE": {"type": "string", "format": "date-time"},
    "UUID": {"type": "string", "format": "uuid"},
    "JSON": {},
}
_NUMBERS = {"UBIGINT", "HUGEINT", "UHUGEINT"}
_FLOATS = {"FLOAT", "DOUBLE"}
# Types with the same data in Avro and in JSON; for others Avro only checks the value.
_AS_IN_AVRO = {"BOOLEAN", *(n for n, of in _SCALARS.items() if of in (_INT32, _INT64))}


@functools.lru_cache(maxsize=64)
def writers(shape: OutputShape) -> Writers:
    """The writers of keys and values of a shape."""
    return Forms(_scalars).writers(shape, canonical.encode, canonical.encode)


def _scalars(kind: SqlType) -> ToDatum:
    """The function that makes JSON of a value in any form of its type: see `ScalarForms`."""
    name, judge = str(kind), avro_scalars(kind)
    if name == "JSON":
        return lambda value: value
    if name in _AS_IN_AVRO:
        return judge
    if name in _NUMBERS or isinstance(kind, DecimalType):
        return lambda value: _number(value, judge(value))
    if name in _FLOATS:
        return lambda value: _number(value, _finite(judge(value)))

    def text(value: Any) -> Any:
        # What is a count or bytes in Avro stays as it is.
        datum = judge(value)
        return datum if isinstance(datum, str) else value

    return text


def _finite(number: float) -> float:
    if not isfinite(number):
        raise ValueError
    return number


def _number(value: Any, _: object) -> Any:
    """A number that was judged, and may be written as a text."""
    return canonical.canonical_number(Decimal(value)) if isinstance(value, str) else value


def back(_: Schemas, __: MessagePart) -> ToJson:
    """A reader of keys, or values, as canonical JSON: the bytes after the id of their schema."""

    def in_json(message: bytes) -> bytes:
        if message[:1] != b"\0" or len(message) < _FRAME:
            raise DecodeError("JSON", "it does not begin with the id of a schema")
        return canonical.canonical(message[_FRAME:])

    return in_json
