"""Messages of outputs in Avro, upserts and Debezium's envelopes: written, and read back.

`output_messages` or `debezium_out` makes the messages in JSON, which are then encoded by the
schemas of an `OutputShape`; these follow from the types of the output's columns:

| SQL | Avro |
|---|---|
| BOOLEAN | boolean |
| TINYINT, SMALLINT, INTEGER, UTINYINT, USMALLINT | int |
| BIGINT, UINTEGER | long |
| UBIGINT | decimal(20, 0) |
| HUGEINT, UHUGEINT | decimal(38, 0) |
| DECIMAL(p, s) | decimal(p, s) |
| FLOAT, DOUBLE | float, double |
| BLOB | bytes |
| DATE | int, date |
| TIME | long, time-micros |
| TIMESTAMP, TIMESTAMP_S, TIMESTAMP_MS; TIMESTAMP WITH TIME ZONE | long, timestamp-micros |
| TIMESTAMP_NS | long, timestamp-nanos |
| UUID | string, uuid |
| STRUCT | record |
| list, array | array |
| MAP | map |
| VARCHAR, ENUM, INTERVAL, TIME WITH TIME ZONE, JSON | string |

Where Avro's types leave the meaning open to Kafka Connect, `connect.name` has the name that
Debezium's converters use and its sinks know: there is none for an instant with a zone.  Parts of
lists, maps and structs may be null.

Each field of a row may be null and has null as its default.  So when a column is added, readers
with the older or the newer schema read messages of both.  The fields of a key are never null,
because the key columns of tables are not.

Messages are read back by the schemas that they were written with, as the messages in JSON that
they were encoded from.  A column that a row lacked is null afterwards.

Avro's types: https://avro.apache.org/docs/1.12.0/specification/
"""

import functools
import io
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import fastavro
import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.avro import AvroDecoder
from ikebana.codecs.avro_schema import (
    Framing,
    MessagePart,
    Schemas,
    converted,
    locate,
    of_items,
    of_record,
)
from ikebana.codecs.encodings import Convert
from ikebana.codecs.output_messages import (
    Forms,
    OutputShape,
    ToJson,
    Writers,
    avro_scalars,
    has_names,
)
from ikebana.codecs.sql_type import Array, List, Map, SqlType, Struct
from ikebana.codecs.sql_type import Decimal as DecimalType

_JSON = "io.debezium.data.Json"
_FRAMING: Framing = "confluent"

KIND = "AVRO"
"""The name of the format in registries."""
carries = has_names
name_problem = "has a name that Avro has not (letters, digits and _)"
_decode = canonical.decoder(Any)


def schema_of(kind: SqlType, name: str) -> Any:
    """The Avro schema of a type; `name` is the name of the record, if it becomes one.

    >>> from ikebana.codecs.sql_type import parsed
    >>> schema_of(parsed("DECIMAL(9,2)"), "price")
    {'type': 'bytes', 'logicalType': 'decimal', 'precision': 9, 'scale': 2}
    """
    match kind:
        case DecimalType(width, scale):
            return _decimal(width, scale)
        case List(of) | Array(of):
            return {"type": "array", "items": nullable(schema_of(of, name))}
        case Map(_, of):
            return {"type": "map", "values": nullable(schema_of(of, name))}
        case Struct(fields):
            return record(name, [field(each, of, f"{name}_{each}") for each, of in fields])
    return _SCALARS.get(str(kind), "string")


def record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    """The schema of a record."""
    return {"type": "record", "name": name, "fields": fields}


def field(name: str, kind: SqlType, record_name: str) -> dict[str, Any]:
    """A field that may be null; its default is null."""
    return {"name": name, "type": nullable(schema_of(kind, record_name)), "default": None}


def nullable(schema: Any) -> list[Any]:
    """The schema of a value that may be null."""
    return ["null", schema]


def _decimal(width: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": width, "scale": scale}


def _logical(kind: str, logical: str, meaning: str | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": kind, "logicalType": logical}
    if meaning is not None:
        schema |= {"connect.version": 1, "connect.name": f"io.debezium.{meaning}"}
    return schema


_MICROS = _logical("long", "timestamp-micros", "time.MicroTimestamp")
# The schemas of types without parts; those of others are texts.
_SCALARS: dict[str, Any] = {
    "BOOLEAN": "boolean",
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"), "int"),
    **dict.fromkeys(("BIGINT", "UINTEGER"), "long"),
    "UBIGINT": _decimal(20, 0),
    **dict.fromkeys(("HUGEINT", "UHUGEINT"), _decimal(38, 0)),
    "FLOAT": "float",
    "DOUBLE": "double",
    "BLOB": "bytes",
    "DATE": _logical("int", "date"),
    "TIME": _logical("long", "time-micros", "time.MicroTime"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS"), _MICROS),
    "TIMESTAMP WITH TIME ZONE": _logical("long", "timestamp-micros"),
    "TIMESTAMP_NS": _logical("long", "timestamp-nanos", "time.NanoTimestamp"),
    "UUID": _logical("string", "uuid", "data.Uuid"),
    "JSON": {"type": "string", "connect.version": 1, "connect.name": _JSON},
}


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
    key, value = _writer(key_schema(shape)), _writer(value_schema(shape))
    return Forms(avro_scalars).writers(shape, key, value)


def _writer(schema: Any) -> Callable[[Any], bytes]:
    parsed = fastavro.parse_schema(schema)

    def write(datum: Any) -> bytes:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, parsed, datum)
        return body.getvalue()

    return write


def _as_text(schema: Any) -> str:
    return msgspec.json.encode(schema).decode()


def back(schemas: Schemas, part: MessagePart) -> ToJson:
    """A reader of keys, or values, as canonical JSON."""
    decoder = AvroDecoder(schemas, framing=_FRAMING, part=part)
    converts: dict[int | str, Convert | None] = {}

    def in_json(message: bytes) -> bytes:
        data = decoder.decode(message)
        schema, _ = locate(_FRAMING, part, message)
        if schema not in converts:
            converts[schema] = _with_json(schemas.parsed(schema), {})
        return canonical.write(converted(converts[schema], data))

    return in_json


def _with_json(schema: Any, by_name: dict[str, Convert | None]) -> Convert | None:
    """A conversion of texts that have JSON to that JSON, at any depth; None if there are none."""
    if isinstance(schema, str):
        return by_name.get(schema)
    if isinstance(schema, list):
        # A union for a column, which may be null.
        parts = [_with_json(branch, by_name) for branch in schema if branch != "null"]
        return parts[0] if len(parts) == 1 else None
    if schema.get("connect.name") == _JSON:
        return _decode
    match schema["type"]:
        case "array":
            return of_items(_with_json(schema["items"], by_name), list)
        case "map":
            return of_items(_with_json(schema["values"], by_name), dict)
        case "record":
            converts = {f["name"]: _with_json(f["type"], by_name) for f in schema["fields"]}
            fields = [(name, convert) for name, convert in converts.items() if convert]
            by_name[schema["name"]] = of_record(None, fields)
            return by_name[schema["name"]]
    return None


class InsertedRows:
    """The rows of each key, to find rows that are retracted with other columns.

    When the columns of an output change, its earlier rows are retracted by messages with the new
    columns.

    >>> rows = InsertedRows()
    >>> rows.change(b"1", b'{"a":1,"b":2}', 1), rows.change(b"1", b'{"a":1,"c":null}', -1)
    ((b'{"a":1,"b":2}', 1), (b'{"a":1,"b":2}', -1))
    """

    def __init__(self) -> None:
        self._rows: dict[bytes | None, Counter[bytes]] = {}

    def change(self, key: bytes | None, row: bytes, count: int) -> tuple[bytes, int]:
        """Insert or retract a row; return the row as it was inserted."""
        rows = self._rows.setdefault(key, Counter())
        if count < 0 and row not in rows:
            image = _decode(row)
            row = next((each for each in sorted(rows) if _agree(_decode(each), image)), row)
        rows[row] += count
        if not rows[row]:
            del rows[row]
        if not rows:
            del self._rows[key]
        return row, count


def _agree(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two rows are equal in the columns of both; others are null where `row` has none."""
    return all(row.get(name) == value for name, value in other.items())
