"""Write messages of outputs in Avro: upserts, and Debezium's envelopes.

`upsert_out` or `debezium_out` makes the messages in JSON, which are then encoded by the schemas of
an `OutputShape`; these follow from the types of the output's columns.

Each field of a row may be null and has null as its default.  So when a column is added, readers
with the older or the newer schema read messages of both.  The fields of a key are never null,
because the key columns of tables are not.
"""

import functools
import io
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.avro_back import InJson
from ikebana.codecs.avro_types import (
    Datum,
    datum_of,
    field,
    nullable,
    record,
    schema_of,
)
from ikebana.codecs.shape import MisfitError, OutputShape, Writers, has_names
from ikebana.codecs.sql_type import JSON, SqlType, Struct

KIND = "AVRO"
"""The name of the format in registries."""
carries = has_names
back = InJson
name_problem = "has a name that Avro has not (letters, digits and _)"


def schemas(shape: OutputShape) -> tuple[str, str]:
    """The schemas of keys and of values, as a registry gets them."""
    return _as_text(key_schema(shape)), _as_text(value_schema(shape))


def names(shape: OutputShape) -> tuple[str, str]:
    """The full names of the records of keys and of values; the key has to be one."""
    return key_schema(shape)["name"], value_schema(shape)["name"]


def key_schema(shape: OutputShape) -> Any:
    """The schema of keys.  A key of unknown type is a text with the JSON.

    >>> from ikebana.codecs.sql_type import parsed
    >>> key_schema(OutputShape("shop.orders", parsed("BIGINT"), ()))
    'long'
    """
    if not isinstance(shape.key_type, Struct):
        return schema_of(shape.key_type, f"{shape.space}.Key")
    parts = shape.key_type.fields
    fields = [{"name": name, "type": schema_of(of, f"Key_{name}")} for name, of in parts]
    return record(f"{shape.space}.Key", fields)


def value_schema(shape: OutputShape) -> Any:
    """The schema of values."""
    fields = [field(name, of, f"Value_{name}") for name, of in shape.columns]
    row = record(f"{shape.space}.Value", fields)
    return _envelope(shape.space, row) if shape.envelope else row


def _envelope(space: str, row: dict[str, Any]) -> dict[str, Any]:
    source = [{"name": name, "type": of} for name, of in _SOURCE]
    return record(
        f"{space}.Envelope",
        [
            {"name": "before", "type": nullable(row), "default": None},
            {"name": "after", "type": nullable(row["name"]), "default": None},
            {"name": "source", "type": record(f"{space}.Source", source)},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": nullable("long"), "default": None},
        ],
    )


_SOURCE = (
    *(("connector", "string"), ("name", "string"), ("ts_ms", "long")),
    *(("db", "string"), ("table", "string")),
)


@functools.lru_cache(maxsize=64)
def writers(shape: OutputShape) -> Writers:
    """The writers of keys and values of a shape."""
    write_key, write_value = _writer(key_schema(shape)), _writer(value_schema(shape))
    key_datum, row = _key_datum(shape.key_type), _row_datum(shape.columns)

    def key_of(message: bytes) -> bytes:
        return write_key(key_datum(_decode(message)))

    def envelope_of(message: bytes) -> bytes:
        event = _decode(message)
        return write_value({**event, "before": row(event["before"]), "after": row(event["after"])})

    def value_of(message: bytes) -> bytes:
        datum = row(_decode(message))
        if datum is None:
            raise MisfitError("value", "STRUCT")
        return write_value(datum)

    return Writers(key_of, envelope_of if shape.envelope else value_of)


def _key_datum(kind: SqlType) -> Datum:
    if not isinstance(kind, Struct):
        only = datum_of(kind, "key")
        # In a key that is JSON, null is a value.
        null = "null" if kind == JSON else None
        return lambda value: null if value is None and null else _there(only(value), "key", kind)
    parts = [(name, of, datum_of(of, name)) for name, of in kind.fields]

    def datum(value: Any) -> Any:
        if not isinstance(value, dict):
            raise MisfitError("key", kind)
        return {name: _there(each(value.get(name)), name, of) for name, of, each in parts}

    return datum


def _there(datum: Any, name: str, kind: SqlType) -> Any:
    """A part of a key, which must not be null."""
    if datum is None:
        raise MisfitError(name, f"{kind} without null")
    return datum


def _row_datum(columns: Sequence[tuple[str, SqlType]]) -> Datum:
    parts = [(name, datum_of(of, name)) for name, of in columns]

    def datum(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise MisfitError("value", "STRUCT")
        return {name: each(value.get(name)) for name, each in parts}

    return datum


_decode = canonical.decoder(Any)


def _writer(schema: Any) -> Callable[[Any], bytes]:
    parsed = fastavro.parse_schema(schema)

    def write(datum: Any) -> bytes:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, parsed, datum)
        return body.getvalue()

    return write


def _as_text(schema: Any) -> str:
    return msgspec.json.encode(schema).decode()
