"""Decode Debezium's change events in Avro, key and value, as its connectors write them.

The changes are those that `codecs.debezium` returns for the same events in JSON; its docstring
describes operations, tombstones and keys.  Two things differ:

* Avro has every column in `before`: for a table without REPLICA IDENTITY FULL, Postgres's has
  nulls or defaults for unknown values.
* A reader schema, which is that of the whole event, fills fields that an older writer did not
  have with its defaults.

A column with the placeholder of an unavailable value (text, bytes, a map or an array)
is absent.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from ikebana.codecs.avro import AvroDecoder, framing_of, keys_in_avro
from ikebana.codecs.avro_compiler import ALL, Fields, Take
from ikebana.codecs.avro_schema import Schemas
from ikebana.codecs.canonical import FAULTS
from ikebana.codecs.change import Change, Headers, Ignored, Needs
from ikebana.codecs.column_encodings import encodings
from ikebana.codecs.debezium_rows import (
    NAME,
    VALUE,
    DebeziumEvents,
    Image,
    Row,
    full_name,
    unavailable_of,
)
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.keys import KeyDecoder
from ikebana.codecs.row_images import Tables, delete_changes, update_changes

# Marks an event with images that may lack columns; no field has this name.
_MAY_LACK = ""
_SOURCE = ("db", "schema", "table", "collection")
# More tables than a server has; their names come from messages.
_MOST_SOURCES = 10_000
_OTHERS = ("ts_ms", "status", "id", "ddl", "tableChanges", "resolved")


class DebeziumAvro(DebeziumEvents[Row]):
    """Decodes the messages of a Debezium connector with converters to Avro.

    `needs.options` may have "framing"; "reader_schema", the JSON of the schema to pin for
    values; "unavailable_placeholder", if the connector's is not the default.

    Raises:
        ConfigError: the framing is not known, the reader schema is no Avro schema, or the
            placeholder is empty.
    """

    def __init__(self, schemas: Schemas, needs: Needs) -> None:
        framing = framing_of(needs)
        super().__init__(needs, KeyDecoder(NAME, needs, keys_in_avro(schemas, needs)))
        # Some events are decoded with all of their columns, and all images must be records.
        self._picked, self._reads_old = needs.columns, True
        self._keys_in_headers = framing == "headers"
        declared = encodings(needs.encodings)
        unavailable = unavailable_of(needs)
        self._may_be_unavailable = unavailable.may_be_in_avro
        read = needs.read(needs.key)
        columns = None if read is None else _only(read)
        old = columns if needs.before else _only(needs.key)
        reader_schema = needs.options.get("reader_schema")

        def values(
            after: Fields, before: Fields, takes: Sequence[Take | None] = ()
        ) -> AvroDecoder:
            fields = {
                **_only(("op", *_OTHERS)),
                "after": after,
                "before": before,
                # The source must exist even if its table does not matter.
                "source": Fields({} if self._tables.all else _only(_SOURCE)),
            }
            return AvroDecoder(schemas, reader_schema, framing, needs=Fields(fields), takes=takes)

        # Old rows are converted only if they, or their keys, are read.
        judges = needs.judges
        self._values = values(
            Fields(columns, declared, judges=judges),
            Fields(old, declared, judges=judges),
            _takes_of(needs),
        )
        self._compiled = CompiledAvro(needs, self._values, self._keys.needed, self._tables)
        # Unread columns are searched for the placeholder too.
        self._careful = values(
            Fields(None, declared, unavailable.is_one, columns, judges),
            Fields(None, declared, unavailable.is_one, old, judges),
        )

    def key(self, key: bytes | None) -> bytes | None:
        # Headers, which may name the schema, are not available here.
        return None if self._keys_in_headers else self._keys.of_kafka(key)

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        headers = list(headers) if headers else None
        event: Row | None = None
        careful = value is not None and self._may_be_unavailable(value)
        if value is not None and not careful:
            try:
                if (usual := self._compiled.changes(key, value, headers)) is not None:
                    return usual
            except FAULTS:
                # The same fault occurs again below.
                pass
        try:
            event = None if value is None else self._opened(value, headers, careful=careful)
            return self._changes(event, key, headers)
        except FAULTS as error:
            fault = self._keys.refused(VALUE, error, _images(event), key, headers)
        codec = fault.codec if fault.codec.startswith(NAME) else f"{NAME} {fault.codec}"
        raise DecodeError(codec, fault.reason, key=fault.key)

    def _opened(self, value: bytes, headers: Headers, *, careful: bool) -> Row | None:
        event = (self._careful if careful else self._values).decode(value, headers)
        if event is None or isinstance(event, dict):
            if careful and event:
                event[_MAY_LACK] = True
            return event
        raise DecodeError(VALUE, "expected a record")

    def _has(self, event: Row, name: str) -> bool:
        return name in event

    def _operation(self, event: Row) -> str | None:
        return event.get("op")

    def _table(self, event: Row) -> str | None:
        return _table_of(event.get("source"))

    def _read(self, event: Row, name: str) -> Image | None:
        return _image(event, name)


def _table_of(source: Any) -> str | None:
    names = source if isinstance(source, dict) else {}
    parts = [names.get(name) for name in _SOURCE]
    if not all(part is None or isinstance(part, str) for part in parts):
        raise DecodeError(VALUE, 'field "source" has a name that is no text')
    database, schema, table, collection = parts
    return full_name(database, schema, table or collection)


def _images(event: Row | None) -> Iterator[Row]:
    """The images of an event that may have the row's key."""
    for name in ("after", "before"):
        if image := _image(event or {}, name):
            yield image.row


def _takes_of(needs: Needs) -> list[Take | None]:
    """The parts of a message that `CompiledAvro` needs."""
    key, nulls = needs.key, needs.nulls()
    return [
        Take(("op",)),
        Take(("after",), needs.columns, nulls, record=True),
        Take(("after",), key, key) if key else None,
        # It must be a record even if it is not read.
        Take(("before",), needs.columns if needs.before else (), nulls, record=True),
        Take(("before",), key, key) if key else None,
        Take(("source",), _SOURCE) if needs.tables is not None else None,
    ]


class CompiledAvro:
    """Decodes the usual events by programs, from a message to canonical images at once.

    It takes creates, updates, deletes and rows of snapshots of the schemas that have a
    program, if no value is unavailable, and returns None for all others.  `DebeziumAvro` decodes
    these, and reports faults; both return the same changes.

    `values` decodes messages with the takes of `_takes_of`; `key_of` decodes the Kafka key if the
    row's key is not in the row; `tables` tests the source of an event.
    """

    def __init__(
        self,
        needs: Needs,
        values: AvroDecoder,
        key_of: Callable[[bytes | None, Headers], bytes | None],
        tables: Tables,
    ) -> None:
        self._parts, self._key_of = values.parts, key_of
        self._keyed, self._before = bool(needs.key), needs.before
        self._tables = tables
        self._sources: dict[bytes | None, bool] = {}

    def changes(
        self, key: bytes | None, value: bytes, headers: Headers
    ) -> Sequence[Change] | Ignored | None:
        """Decode a message.

        Raises:
            DecodeError: it is damaged, and `DebeziumAvro` says how.
        """
        parts = self._parts(value, headers)
        if parts is None:
            return None
        op, after, new_key, before, old_key, source = parts
        updates = op == b'"u"'
        if not self._before:
            before = None
        if op == b'"d"':
            if ignored := self._ignored(source):
                return ignored
            if old_key is None:
                old_key = self._key_of(key, headers)
            return [delete_changes(old_key, before)]
        if after is None or not (updates or op == b'"c"' or op == b'"r"'):
            return None
        if ignored := self._ignored(source):
            return ignored
        if not self._keyed:
            new_key = old_key = self._key_of(key, headers)
        if not updates:
            before = None
        elif old_key is not None and old_key != new_key:
            return update_changes(old_key, new_key, after, before, ())
        return [Change("upsert", new_key, after, before, (), updates)]

    def _ignored(self, source: bytes | None) -> Ignored | None:
        """`Ignored` if the event's table is not selected."""
        if self._tables.all:
            return None
        is_selected = self._sources.get(source)
        if is_selected is None:
            if len(self._sources) >= _MOST_SOURCES:
                self._sources.clear()
            name = _table_of(source and msgspec.json.decode(source))
            is_selected = self._tables.has(name)
            self._sources[source] = is_selected
        return None if is_selected else Ignored("table")


def _only(names: Sequence[str]) -> dict[str, Fields]:
    return dict.fromkeys(names, ALL)


def _image(event: Row, name: str) -> Image | None:
    """The row of an image without its absent columns, and the names of these; None for null."""
    row = event.get(name)
    if row is None:
        return None
    if not isinstance(row, dict):
        raise DecodeError(VALUE, f'field "{name}" is no record')
    if _MAY_LACK not in event:
        return Image(row)
    absent = tuple(each for each, value in row.items() if value is UNSET)
    return Image({each: value for each, value in row.items() if value is not UNSET}, absent)
