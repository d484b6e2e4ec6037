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

from ikebana.codecs import canonical
from ikebana.codecs.avro import AvroDecoder, framing_of
from ikebana.codecs.avro_compiler import ALL, Fields, Take
from ikebana.codecs.avro_schema import Schemas
from ikebana.codecs.canonical import FAULTS
from ikebana.codecs.change import Change, Headers, Ignored, Needs
from ikebana.codecs.column_encodings import encodings
from ikebana.codecs.debezium_rows import (
    KEY,
    VALUE,
    DebeziumTables,
    KeyDecoder,
    Row,
    derived_operation,
    unavailable_of,
    without_operation,
)
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.row_images import delete_changes, update_changes

# Marks an event with images that may lack columns; no field has this name.
_MAY_LACK = ""
_SOURCE = ("db", "schema", "table", "collection")
# More tables than a server has; their names come from messages.
_MOST_SOURCES = 10_000
_OTHERS = ("ts_ms", "status", "id", "ddl", "tableChanges")


class DebeziumAvro:
    """Decodes the messages of a Debezium connector with converters to Avro.

    `needs.options` may have "framing"; "reader_schema", the JSON of the schema to pin for
    values; "unavailable_placeholder", if the connector's is not the default.

    Raises:
        ConfigError: the framing is not known, the reader schema is no Avro schema, or the
            placeholder is empty.
    """

    def __init__(self, schemas: Schemas, needs: Needs) -> None:
        framing = framing_of(needs)
        self._columns, self._key_columns = needs.columns, needs.key
        self._before, self._diffs = needs.before, needs.diffs
        self._tables = None if needs.tables is None else DebeziumTables(needs.tables)
        self._keys_in_headers = framing == "headers"
        declared = encodings(needs.encodings)
        keys = AvroDecoder(
            schemas,
            framing=framing,
            part="key",
            needs=Fields(_only(needs.key) if needs.key else None, declared),
            takes=[Take((), needs.key, whole=True) if needs.key else Take()],
        )
        self._keys = KeyDecoder(needs, keys.parts, keys.decode)
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
                "source": Fields(_only(_SOURCE) if self._tables else {}),
            }
            return AvroDecoder(schemas, reader_schema, framing, needs=Fields(fields), takes=takes)

        # Old rows are converted only if they, or their keys, are read.
        judges = needs.judges
        self._values = values(
            Fields(columns, declared, judges=judges),
            Fields(old, declared, judges=judges),
            _takes_of(needs),
        )
        self._compiled = CompiledAvro(
            needs, self._values, self._keys.needed, self._in_selected_table
        )
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
            return (
                self._tombstone(key, headers) if event is None else self._of(event, key, headers)
            )
        except FAULTS as error:
            fault = self._keys.refused(VALUE, error, _images(event), key, headers)
        codec = fault.codec if fault.codec in (KEY, VALUE) else f"Debezium {fault.codec}"
        raise DecodeError(codec, fault.reason, key=fault.key)

    def _opened(self, value: bytes, headers: Headers, *, careful: bool) -> Row | None:
        event = (self._careful if careful else self._values).decode(value, headers)
        if event is None or isinstance(event, dict):
            if careful and event:
                event[_MAY_LACK] = True
            return event
        raise DecodeError(VALUE, "expected a record")

    def _of(self, event: Row, key: bytes | None, headers: Headers) -> Sequence[Change] | Ignored:
        op = event.get("op")
        if op is None:
            before = event["before"] is not None if "before" in event else None
            after = event.get("after") is not None
            op = derived_operation(after=after, before=before, diffs=self._diffs)
        if op is None:
            row = event.get("before") or event.get("after")
            return without_operation(event.__contains__, row)
        if op == "m":
            return Ignored("message")
        if self._tables and not self._in_selected_table(event.get("source")):
            return Ignored("table")
        if op in ("c", "u", "r"):
            return self._upsert(event, key, headers, updates=op == "u")
        if op == "d":
            return self._delete(event, key, headers)
        if op == "t":
            return [Change("truncate")]
        raise DecodeError(VALUE, 'field "op" is none of c, u, r, d, t, m')

    def _tombstone(self, key: bytes | None, headers: Headers) -> Sequence[Change] | Ignored:
        return Ignored("tombstone") if self._tables else self._keys.repeated(key, headers)

    def _in_selected_table(self, source: Any) -> bool:
        assert self._tables
        names = source if isinstance(source, dict) else {}
        parts = [names.get(name) for name in _SOURCE]
        if not all(part is None or isinstance(part, str) for part in parts):
            raise DecodeError(VALUE, 'field "source" has a name that is no text')
        database, schema, table, collection = parts
        return self._tables.selects(database, schema, table or collection)

    def _upsert(
        self, event: Row, key: bytes | None, headers: Headers, *, updates: bool
    ) -> Sequence[Change]:
        row, absent = _without_absent(event, "after")
        if row is None:
            raise DecodeError(VALUE, 'field "after" is null or missing')
        keyed = bool(self._key_columns)
        new_key = self._keys.of_row(row) if keyed else self._keys.needed(key, headers)
        if not updates:
            return [Change("upsert", new_key, self._image(row), None, absent)]
        old_key, before = new_key, None
        if keyed or self._before:
            old, gone = _without_absent(event, "before")
            if old is not None:
                if keyed:
                    old_key = self._keys.of_row({**row, **old})
                before = self._whole(old, gone)
        return update_changes(old_key, new_key, self._image(row), before, absent)

    def _delete(self, event: Row, key: bytes | None, headers: Headers) -> Sequence[Change]:
        old, gone = _without_absent(event, "before")
        return [delete_changes(self._keys.of_deleted(old, key, headers), self._whole(old, gone))]

    def _whole(self, old: Row | None, gone: tuple[str, ...]) -> bytes | None:
        """Write the image of an old row; None if it is not read, or a column is unavailable."""
        return None if not self._before or old is None or gone else self._image(old)

    def _image(self, row: Row) -> bytes:
        if self._columns is not None:
            row = {name: row[name] for name in self._columns if name in row}
        return canonical.write(row)


def _images(event: Row | None) -> Iterator[Row]:
    """The images of an event that may have the row's key."""
    for name in ("after", "before"):
        row, _ = _without_absent(event or {}, name)
        if row:
            yield row


def _takes_of(needs: Needs) -> list[Take | None]:
    """The parts of a message that `CompiledAvro` needs."""
    key = needs.key
    return [
        Take(("op",)),
        Take(("after",), needs.columns, record=True),
        Take(("after",), key, whole=True) if key else None,
        # It must be a record even if it is not read.
        Take(("before",), needs.columns if needs.before else (), record=True),
        Take(("before",), key, whole=True) if key else None,
        Take(("source",), _SOURCE) if needs.tables is not None else None,
    ]


class CompiledAvro:
    """Decodes the usual events by programs, from a message to canonical images at once.

    It takes creates, updates, deletes and rows of snapshots of the schemas that have a
    program, if no value is unavailable, and returns None for all others.  `DebeziumAvro` decodes
    these, and reports faults; both return the same changes.

    `values` decodes messages with the takes of `_takes_of`; `key_of` decodes the Kafka key if the
    row's key is not in the row; `in_selected_table` tests the source of an event.
    """

    def __init__(
        self,
        needs: Needs,
        values: AvroDecoder,
        key_of: Callable[[bytes | None, Headers], bytes | None],
        in_selected_table: Callable[[Any], bool],
    ) -> None:
        self._parts, self._key_of = values.parts, key_of
        self._keyed, self._before = bool(needs.key), needs.before
        self._of_tables = needs.tables is not None
        self._in_selected_table = in_selected_table
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
        if not self._of_tables:
            return None
        is_selected = self._sources.get(source)
        if is_selected is None:
            if len(self._sources) >= _MOST_SOURCES:
                self._sources.clear()
            is_selected = self._in_selected_table(source and msgspec.json.decode(source))
            self._sources[source] = is_selected
        return None if is_selected else Ignored("table")


def _only(names: Sequence[str]) -> dict[str, Fields]:
    return dict.fromkeys(names, ALL)


def _without_absent(event: Row, image: str) -> tuple[Row | None, tuple[str, ...]]:
    """Split an image into the row without its absent columns, and the names of these."""
    row = event.get(image)
    if row is None:
        return None, ()
    if not isinstance(row, dict):
        raise DecodeError(VALUE, f'field "{image}" is no record')
    absent: tuple[str, ...] = ()
    if _MAY_LACK in event:
        absent = tuple(name for name, value in row.items() if value is UNSET)
    if absent:
        row = {name: value for name, value in row.items() if value is not UNSET}
    return row, absent
