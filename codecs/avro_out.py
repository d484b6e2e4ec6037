"""Write messages of outputs in Avro: upserts, and Debezium's envelopes.

`upsert_out` or `debezium_out` makes the messages in JSON, which are then encoded by the schemas of
a `AvroShape`; these follow from the types of the output's columns.  A body has no prefix: `framed`
adds the ids that a registry gives to the schemas.

Each field of a row may be null and has null as its default.  So when a column is added, readers
with the older or the newer schema read messages of both.  The fields of a key are never null,
because the key columns of tables are not.

A message that does not fit its schema is a violation: it is left out, and its reason names the
column.
"""

import functools
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import fastavro
import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.avro_types import (
    NAME,
    Datum,
    MisfitError,
    datum_of,
    field,
    nullable,
    record,
    schema_of,
)
from ikebana.codecs.sql_type import JSON, SqlType, Struct
from ikebana.codecs.upsert_out import OutputMessage, Violation


class AvroShape(NamedTuple):
    """The types of an output's messages: its key, and the columns of its rows.

    `space` is the namespace of the records.  A key of unknown type is JSON, and is
    written as a text.  With `envelope`, values are Debezium's.

    >>> from ikebana.codecs.sql_type import parsed
    >>> Shape("shop.orders", parsed("BIGINT"), (("n", parsed("INTEGER")),)).value["name"]
    'shop.orders.Value'
    """

    space: str
    key_type: SqlType
    columns: tuple[tuple[str, SqlType], ...]
    envelope: bool = False

    @property
    def key(self) -> Any:
        """The schema of keys."""
        if not isinstance(self.key_type, Struct):
            return schema_of(self.key_type, f"{self.space}.Key")
        parts = self.key_type.fields
        fields = [{"name": name, "type": schema_of(of, f"Key_{name}")} for name, of in parts]
        return record(f"{self.space}.Key", fields)

    @property
    def value(self) -> Any:
        """The schema of values."""
        fields = [field(name, of, f"Value_{name}") for name, of in self.columns]
        row = record(f"{self.space}.Value", fields)
        return _envelope(self.space, row) if self.envelope else row


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


def namespace_of(topic: str) -> str:
    """A namespace of Avro for the messages of a topic.

    >>> namespace_of("shop.orders-by-day.2024")
    'shop.orders_by_day._2024'
    """
    return ".".join(map(_as_name, topic.split(".")))


def _as_name(part: str) -> str:
    text = "".join(c if NAME.fullmatch(c) or c.isdigit() else "_" for c in part)
    return text if NAME.fullmatch(text) else f"_{text}"


def encoded(
    shape: AvroShape, messages: Iterable[OutputMessage]
) -> tuple[list[OutputMessage], list[Violation]]:
    """Encode messages in JSON by the schemas of a shape; a message without a key keeps none."""
    key_of, value_of = _writers(shape)
    done: list[OutputMessage] = []
    violations: list[Violation] = []
    for key, value, headers in messages:
        try:
            body = None if value is None else value_of(value)
            done.append(OutputMessage(None if key is None else key_of(key), body, headers))
        except MisfitError as error:
            time = int(next(of for name, of in headers if name == "time") or 0)
            violations.append(Violation(key, time, str(error)))
    return done, violations


@functools.lru_cache(maxsize=64)
def _writers(shape: AvroShape) -> tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]:
    """The writers of keys and values of a shape."""
    write_key, write_value = _writer(shape.key), _writer(shape.value)
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

    return key_of, envelope_of if shape.envelope else value_of


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


class Ids(NamedTuple):
    """The ids that a registry has given to the schemas of an output's keys and values."""

    key: int
    value: int


def framed(messages: Sequence[OutputMessage], ids: Ids) -> list[OutputMessage]:
    """Add Confluent's prefix: a byte of 0, and the id of the schema in four bytes.

    >>> framed([OutputMessage(b"k", None, [])], Ids(1, 2))
    [OutputMessage(key=b'\\x00\\x00\\x00\\x00\\x01k', value=None, headers=[])]
    """
    of_key, of_value = (b"\0" + number.to_bytes(4, "big") for number in ids)
    return [
        OutputMessage(
            None if key is None else of_key + key,
            None if value is None else of_value + value,
            headers,
        )
        for key, value, headers in messages
    ]


def as_text(schema: Any) -> str:
    """A schema as a registry gets it."""
    return msgspec.json.encode(schema).decode()
