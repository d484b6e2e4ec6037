"""Debezium's change events in Avro: key and value, as its connectors write them.

The changes are those that `codecs.debezium` gives for the same events in JSON.  An event
is an upsert of `after` (op c, u, r), a delete (d), a truncate (t), or tells of no row
(heartbeats, transactions, schema changes, logical messages, other tables).  A null value
is a delete of its key, except where several tables are told apart (`tables`): it does not
say whose key it is.

Where `key` names columns, the row has the key: an update whose `before` has other values
there is a delete of the old key, then an upsert of the new one; a column that `before`
lacks has not changed.  A delete's or a tombstone's key then comes from the Kafka key if
it has these columns and the row does not.  Otherwise the Kafka key is the key.

A column that is the placeholder of an unavailable value, be it text, bytes, a map or an
array, is absent.  Avro has every column in `before`: for a table without REPLICA IDENTITY
FULL, Postgres's has nulls or defaults where it knows nothing.
"""

from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from hashlib import md5
from typing import Any
from uuid import UUID

from msgspec import UNSET

from ikebana.codecs import canonical
from ikebana.codecs.avro import ALL, AvroDecoder, Fields, Schemas, framing_of
from ikebana.codecs.change import Change, Headers, Ignored, Wanted
from ikebana.codecs.debezium import PLACEHOLDER, Tables
from ikebana.codecs.encodings import encoding
from ikebana.codecs.errors import DecodeError

Row = dict[str, Any]

_FAULTS = (DecodeError, *canonical.REFUSALS)
_SOURCE = ("db", "schema", "table", "collection")
_OTHERS = ("ts_ms", "status", "id", "ddl", "tableChanges")


class DebeziumAvro:
    """Decodes the messages of a Debezium connector whose converters write Avro.

    `wanted.options`: "framing"; "unavailable_placeholder" if the connector's is not the
    default.

    Raises:
        ConfigError: there is no such framing.
    """

    def __init__(self, schemas: Schemas, wanted: Wanted) -> None:
        framing = framing_of(wanted)
        self._columns, self._key_columns = wanted.columns, wanted.key
        self._before = wanted.before
        self._tables = None if wanted.tables is None else Tables(wanted.tables)
        self._told_by_header = framing == "headers"
        encodings = {name: encoding(given) for name, given in wanted.encodings.items()}
        self._keys = AvroDecoder(
            schemas,
            framing=framing,
            part="key",
            wanted=Fields(_only(wanted.key) if wanted.key else None, encodings),
        )
        self._unavailable = _Unavailable(
            wanted.options.get("unavailable_placeholder", PLACEHOLDER)
        )
        columns = None if wanted.columns is None else _only((*wanted.columns, *wanted.key))
        old = columns if wanted.before else _only(wanted.key)

        def values(unavailable: _Unavailable | None) -> AvroDecoder:
            absent = None if unavailable is None else unavailable.is_one
            fields = {
                **_only(("op", *_OTHERS)),
                "after": Fields(columns, encodings, absent),
                # Where nobody asks for an old row, nothing of it is converted.
                "before": Fields(old, encodings, absent),
                "source": Fields(_only(_SOURCE)),
            }
            return AvroDecoder(schemas, framing=framing, wanted=Fields(fields))

        self._values, self._careful = values(None), values(self._unavailable)

    def key(self, key: bytes | None) -> bytes | None:
        # A schema that a header names is not known here.
        return None if self._told_by_header else self._of_kafka(key, None)

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        headers = list(headers) if headers else None
        event: Row | None = None
        try:
            event = None if value is None else self._opened(value, headers)
            return (
                self._tombstone(key, headers) if event is None else self._of(event, key, headers)
            )
        except _FAULTS as error:
            fault = canonical.refused("value", error)
        raise DecodeError(
            f"Debezium {fault.codec}", fault.reason, key=self._readable_key(event, key, headers)
        )

    def _opened(self, value: bytes, headers: Headers) -> Row | None:
        careful = self._unavailable.may_be_in(value)
        event = (self._careful if careful else self._values).decode(value, headers)
        if event is None or isinstance(event, dict):
            return event
        raise DecodeError("value", "expected a record")

    def _of(self, event: Row, key: bytes | None, headers: Headers) -> Sequence[Change] | Ignored:
        if "op" not in event:
            return _other(event)
        op = event["op"]
        if op == "m":
            return Ignored("message")
        if self._tables and not self._in_wanted_table(event.get("source")):
            return Ignored("table")
        if op in ("c", "u", "r"):
            return self._upsert(event, key, headers)
        if op == "d":
            return self._delete(event, key, headers)
        if op == "t":
            return [Change("truncate")]
        raise DecodeError("value", 'field "op" is none of c, u, r, d, t, m')

    def _tombstone(self, key: bytes | None, headers: Headers) -> Sequence[Change] | Ignored:
        if self._tables:
            return Ignored("tombstone")
        if not self._key_columns:
            return [Change("delete", self._needed(key, headers))]
        if key is None:
            raise DecodeError("key", "the Kafka key is null, and the value too")
        found = self._of_kafka(key, headers)
        return Ignored("tombstone") if found is None else [Change("delete", found)]

    def _in_wanted_table(self, source: Any) -> bool:
        assert self._tables
        found = source if isinstance(source, dict) else {}
        parts = [found.get(name) for name in _SOURCE]
        if not all(part is None or isinstance(part, str) for part in parts):
            raise DecodeError("value", 'field "source" has a name that is no text')
        database, schema, table, collection = parts
        return self._tables.wanted(database, schema, table or collection)

    def _upsert(self, event: Row, key: bytes | None, headers: Headers) -> Sequence[Change]:
        row, absent = _taken(event, "after")
        if row is None:
            raise DecodeError("value", 'field "after" is null or missing')
        keyed = bool(self._key_columns)
        new_key = self._of_row(row) if keyed else self._needed(key, headers)
        old_key, before = new_key, None
        if event["op"] == "u" and (keyed or self._before):
            old, gone = _taken(event, "before")
            if old is not None:
                if keyed:
                    old_key = self._of_row({**row, **old})
                before = self._whole(old, gone, {*row, *absent})
        after = self._image(row)
        if self._columns is not None:
            absent = tuple(name for name in absent if name in self._columns)
        if old_key == new_key:
            return [Change("upsert", new_key, after, before, absent, event["op"] == "u")]
        return [
            Change("delete", old_key, None, before, replaces=True),
            Change("upsert", new_key, after, None, absent),
        ]

    def _delete(self, event: Row, key: bytes | None, headers: Headers) -> Sequence[Change]:
        old, gone = _taken(event, "before")
        if self._key_columns and old and all(name in old for name in self._key_columns):
            old_key = self._of_row(old)
        else:
            old_key = self._needed(key, headers)
        before = self._whole(old, gone, set())
        return [Change("delete", old_key, None, before, replaces=True)]

    def _whole(self, old: Row | None, gone: tuple[str, ...], known: set[str]) -> bytes | None:
        """The image of an old row if it is wanted, and has all columns that are."""
        if not self._before or old is None or gone:
            return None
        wanted = known if self._columns is None else set(self._columns)
        return self._image(old) if wanted <= old.keys() else None

    def _image(self, row: Row) -> bytes:
        if self._columns is not None:
            row = {name: row[name] for name in self._columns if name in row}
        return canonical.write(row)

    def _of_row(self, row: Row) -> bytes:
        for name in self._key_columns:
            if name not in row:
                raise DecodeError("value", f'key column "{name}" is missing')
        return canonical.write({name: row[name] for name in self._key_columns})

    def _of_kafka(self, key: bytes | None, headers: Headers) -> bytes | None:
        """The row's key as the Kafka key has it; None if it does not."""
        if key is None:
            return None
        try:
            found = self._keys.decode(key, headers)
            if found is None:
                return None
            if not isinstance(found, dict):
                raise DecodeError("key", "expected a record")
            if not self._key_columns:
                return canonical.write(found)
            lacks = any(name not in found for name in self._key_columns)
            return None if lacks else self._of_row(found)
        except _FAULTS as error:
            raise DecodeError("key", canonical.refused("key", error).reason) from None

    def _needed(self, key: bytes | None, headers: Headers) -> bytes:
        if (found := self._of_kafka(key, headers)) is None:
            raise DecodeError("key", "the Kafka key is null, or lacks the key's columns")
        return found

    def _readable_key(
        self, event: Row | None, key: bytes | None, headers: Headers
    ) -> bytes | None:
        """The row's key as far as it can be had from a message that is at fault."""
        with suppress(*_FAULTS):
            for image in ("after", "before") if event and self._key_columns else ():
                assert event is not None
                row, _ = _taken(event, image)
                if row:
                    return self._of_row(row)
        with suppress(*_FAULTS):
            return self._of_kafka(key, headers)
        return None


def _only(names: Sequence[str]) -> dict[str, Fields]:
    return dict.fromkeys(names, ALL)


def _taken(event: Row, image: str) -> tuple[Row | None, tuple[str, ...]]:
    """A row without its absent columns, and their names."""
    row = event.get(image)
    if row is None:
        return None, ()
    if not isinstance(row, dict):
        raise DecodeError("value", f'field "{image}" is no record')
    absent = tuple(name for name, value in row.items() if value is UNSET)
    return (
        {name: value for name, value in row.items() if value is not UNSET} if absent else row,
        absent,
    )


def _other(event: Row) -> Ignored:
    """What a message without an operation is."""
    row = event.get("before") or event.get("after")
    if "status" in event and "id" in event and not row:
        return Ignored("transaction")
    if ("ddl" in event or "tableChanges" in event) and not row:
        return Ignored("ddl")
    if "ts_ms" in event and "source" not in event and not row:
        return Ignored("heartbeat")
    raise DecodeError("value", 'field "op" is missing')


class _Unavailable:
    """What Debezium writes for a value that it does not know, type by type."""

    def __init__(self, placeholder: str) -> None:
        raw = placeholder.encode()
        encoded = b64encode(raw).decode()
        # Java's UUID.nameUUIDFromBytes, which has no namespace.
        identifier = str(UUID(bytes=md5(raw, usedforsecurity=False).digest(), version=3))
        self._plain = frozenset((placeholder, encoded, f'{{"{placeholder}":"{placeholder}"}}'))
        self._raw = raw
        self._others: list[Any] = [list(raw), [placeholder], [encoded], [raw], [identifier]]
        self._others.append({placeholder: placeholder})
        # As Avro writes an array of these numbers: zigzag, seven bits a byte.
        numbers = b"".join(
            bytes([byte << 1 & 0x7F | 0x80, byte >> 6]) if byte > 63 else bytes([byte << 1])
            for byte in raw
        )
        self._traces = (raw, encoded.encode(), numbers, identifier.encode())

    def may_be_in(self, message: bytes) -> bool:
        """Whether to look at each value; an occurrence in another place is no matter."""
        raw, encoded, numbers, identifier = self._traces
        return raw in message or encoded in message or numbers in message or identifier in message

    def is_one(self, value: Any) -> bool:
        """Whether a value, as Avro has it, is what stands for none."""
        kind = value.__class__
        if kind is str:
            return value in self._plain
        if kind is bytes:
            return bool(value == self._raw)
        return (kind is list or kind is dict) and value in self._others
