"""Decode Debezium's change events in Avro, key and value, as its connectors write them.

The changes are those that `codecs.debezium` returns for the same events in JSON; its docstring
describes operations, tombstones and keys.  Two things differ:

* Avro has every column in `before`: for a table without REPLICA IDENTITY FULL, Postgres's has
  nulls or defaults for unknown values.
* A reader schema, which is that of the whole event, fills fields that an older writer did not
  have with its defaults.

A column whose value is the placeholder of an unavailable value (text, bytes, a map or an array)
is absent.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec import UNSET

from ikebana.codecs import canonical
from ikebana.codecs.avro import AvroDecoder
from ikebana.codecs.avro_compiler import ALL, Fields
from ikebana.codecs.avro_events import SOURCE, Events, takes_of
from ikebana.codecs.avro_program import Take
from ikebana.codecs.avro_schema import Schemas
from ikebana.codecs.avro_upserts import framing_of
from ikebana.codecs.change import Change, Headers, Ignored, Wanted
from ikebana.codecs.column_encodings import encodings
from ikebana.codecs.debezium import unavailable_of
from ikebana.codecs.debezium_rows import DebeziumTables
from ikebana.codecs.errors import DecodeError

Row = dict[str, Any]

_FAULTS = (DecodeError, *canonical.REFUSALS)
# Marks an event whose images may lack columns; no field has this name.
_MAY_LACK = ""
_OTHERS = ("ts_ms", "status", "id", "ddl", "tableChanges")


class DebeziumAvro:
    """Decodes the messages of a Debezium connector whose converters write Avro.

    `wanted.options` may have "framing"; "reader_schema", the JSON of the schema to pin for
    values; "unavailable_placeholder", if the connector's is not the default.

    Raises:
        ConfigError: the framing is not known, the reader schema is no Avro schema, or the
            placeholder is empty.
    """

    def __init__(self, schemas: Schemas, wanted: Wanted) -> None:
        framing = framing_of(wanted)
        self._columns, self._key_columns = wanted.columns, wanted.key
        self._before = wanted.before
        self._tables = None if wanted.tables is None else DebeziumTables(wanted.tables)
        self._told_by_header = framing == "headers"
        declared = encodings(wanted.encodings)
        self._keys = AvroDecoder(
            schemas,
            framing=framing,
            part="key",
            wanted=Fields(_only(wanted.key) if wanted.key else None, declared),
            takes=[Take((), wanted.key, whole=True) if wanted.key else Take()],
        )
        self._may_lack = wanted.diffs
        unavailable = unavailable_of(wanted)
        self._may_be_unavailable = unavailable.may_be_in_avro
        read = wanted.read(wanted.key)
        columns = None if read is None else _only(read)
        old = columns if wanted.before else _only(wanted.key)
        reader_schema = wanted.options.get("reader_schema")

        def values(
            after: Fields, before: Fields, takes: Sequence[Take | None] = ()
        ) -> AvroDecoder:
            fields = {
                **_only(("op", *_OTHERS)),
                "after": after,
                "before": before,
                # That there is a source matters even where its table does not.
                "source": Fields(_only(SOURCE) if self._tables else {}),
            }
            return AvroDecoder(schemas, reader_schema, framing, wanted=Fields(fields), takes=takes)

        # Old rows are converted only if they, or their keys, are read.
        self._values = values(Fields(columns, declared), Fields(old, declared), takes_of(wanted))
        self._events = Events(wanted, self._values, self._needed, self._in_wanted_table)
        # Unread columns are searched for the placeholder too.
        looking = Fields(None, declared, unavailable.is_one, columns)
        self._careful = values(looking, Fields(None, declared, unavailable.is_one, old))

    def key(self, key: bytes | None) -> bytes | None:
        # A schema that a header names is not known here.
        return None if self._told_by_header else self._of_kafka(key, None)

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        headers = list(headers) if headers else None
        event: Row | None = None
        careful = value is not None and self._may_be_unavailable(value)
        if value is not None and not careful:
            try:
                if (found := self._events.changes(key, value, headers)) is not None:
                    return found
            except _FAULTS:
                # What is wrong, is found again below.
                pass
        try:
            event = None if value is None else self._opened(value, headers, careful=careful)
            return (
                self._tombstone(key, headers) if event is None else self._of(event, key, headers)
            )
        except _FAULTS as error:
            fault = canonical.refused("value", error)
        raise DecodeError(
            f"Debezium {fault.codec}", fault.reason, key=self._readable_key(event, key, headers)
        )

    def _opened(self, value: bytes, headers: Headers, *, careful: bool) -> Row | None:
        event = (self._careful if careful else self._values).decode(value, headers)
        if event is None or isinstance(event, dict):
            if careful and event:
                event[_MAY_LACK] = True
            return event
        raise DecodeError("value", "expected a record")

    def _of(self, event: Row, key: bytes | None, headers: Headers) -> Sequence[Change] | Ignored:
        op = event.get("op")
        if op is None:
            op = _op_of(event)
        if op is None:
            return _other(event)
        if op == "m":
            return Ignored("message")
        if self._tables and not self._in_wanted_table(event.get("source")):
            return Ignored("table")
        if op in ("c", "u", "r"):
            return self._upsert(event, key, headers, updates=op == "u")
        if op == "d":
            return self._delete(event, key, headers)
        if op == "t":
            return [Change("truncate")]
        raise DecodeError("value", 'field "op" is none of c, u, r, d, t, m')

    def _tombstone(self, key: bytes | None, headers: Headers) -> Sequence[Change] | Ignored:
        if self._tables:
            return Ignored("tombstone")
        found = self._of_kafka(key, headers)
        return Ignored("tombstone") if found is None else [Change("delete", found)]

    def _in_wanted_table(self, source: Any) -> bool:
        assert self._tables
        found = source if isinstance(source, dict) else {}
        parts = [found.get(name) for name in SOURCE]
        if not all(part is None or isinstance(part, str) for part in parts):
            raise DecodeError("value", 'field "source" has a name that is no text')
        database, schema, table, collection = parts
        return self._tables.wanted(database, schema, table or collection)

    def _upsert(
        self, event: Row, key: bytes | None, headers: Headers, *, updates: bool
    ) -> Sequence[Change]:
        row, absent = _taken(event, "after")
        if row is None:
            raise DecodeError("value", 'field "after" is null or missing')
        keyed = bool(self._key_columns)
        new_key = self._of_row(row) if keyed else self._needed(key, headers)
        old_key, before = new_key, None
        if updates and (keyed or self._before):
            old, gone = _taken(event, "before")
            if old is not None:
                if keyed:
                    old_key = self._of_row({**row, **old})
                before = self._whole(old, gone)
        after = self._image(row)
        if old_key == new_key:
            return [Change("upsert", new_key, after, before, absent, updates)]
        return [
            Change("delete", old_key, None, before, replaces=True),
            Change("upsert", new_key, after, None, absent),
        ]

    def _delete(self, event: Row, key: bytes | None, headers: Headers) -> Sequence[Change]:
        old, gone = _taken(event, "before")
        if self._key_columns and old and all(name in old for name in self._key_columns):
            old_key: bytes | None = self._of_row(old)
        else:
            old_key = self._needed(key, headers)
        before = self._whole(old, gone)
        return [Change("delete", old_key, None, before, replaces=True)]

    def _whole(self, old: Row | None, gone: tuple[str, ...]) -> bytes | None:
        """Write the image of an old row; None if it is not read, or a column is unavailable."""
        return None if not self._before or old is None or gone else self._image(old)

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
        """Decode the row's key from the Kafka key; None if that lacks it."""
        if key is None:
            return None
        try:
            if (parts := self._keys.parts(key, headers)) is not None:
                return parts[0]
            found = self._keys.decode(key, headers)
            if found is None:
                return None
            if not self._key_columns:
                return canonical.write(found)
            # A key that is no record has one column, whose name is not known.
            row = found if isinstance(found, dict) else {}
            lacks = any(name not in row for name in self._key_columns)
            return None if lacks else self._of_row(row)
        except _FAULTS as error:
            raise DecodeError("key", canonical.refused("key", error).reason) from None

    def _needed(self, key: bytes | None, headers: Headers) -> bytes | None:
        found = self._of_kafka(key, headers)
        if found is None and (self._key_columns or not self._may_lack):
            raise DecodeError("key", "the Kafka key is null, or lacks the key's columns")
        return found

    def _readable_key(
        self, event: Row | None, key: bytes | None, headers: Headers
    ) -> bytes | None:
        """Decode the row's key from a message that is damaged elsewhere; None if it cannot."""
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
    """Split an image into the row without its absent columns, and the names of these."""
    row = event.get(image)
    if row is None:
        return None, ()
    if not isinstance(row, dict):
        raise DecodeError("value", f'field "{image}" is no record')
    absent: tuple[str, ...] = ()
    if _MAY_LACK in event:
        absent = tuple(name for name, value in row.items() if value is UNSET)
    if absent:
        row = {name: value for name, value in row.items() if value is not UNSET}
    return row, absent


def _op_of(event: Row) -> str | None:
    """Derive the missing operation of an event from its images; None if it has none."""
    if event.get("after") is not None:
        # Without a field `before`, it is open whether there was an old row.
        return "c" if "before" in event and event["before"] is None else "u"
    return "d" if event.get("before") is not None else None


def _other(event: Row) -> Ignored:
    """Classify a message without an operation."""
    row = event.get("before") or event.get("after")
    if "status" in event and "id" in event and not row:
        return Ignored("transaction")
    if ("ddl" in event or "tableChanges" in event) and not row:
        return Ignored("ddl")
    if "ts_ms" in event and "source" not in event and not row:
        return Ignored("heartbeat")
    raise DecodeError("value", 'field "op" is missing')
