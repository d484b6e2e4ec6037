"""Decode Debezium's change events in JSON, as its connectors write them, or flattened to rows.

An event is an upsert of `after` (op c, u, r: a snapshot's rows are upserts too), a delete (d), a
truncate (t), or none of a row (heartbeats, transactions, schema changes, logical messages, other
tables).  Key and value of each message may be bare, or wrapped as {"schema", "payload"}.  A null
value is a delete of its key, which repeats the delete before it.  It is ignored if there is no
Kafka key, as with a table without a key, and if the input selects `tables`, because it does not
say which table its key belongs to.  An event without `op` is defined by its images: `after` alone
is a create, `before` alone or a null `after` a delete, both are an update.

If `key` names columns, the key is in the row.  An update with other values of `before` in these
columns is a delete of the old key, then an upsert of the new one; a column that `before` lacks
has not changed.  The key of a delete or a tombstone is taken from the Kafka key if that has
these columns and the row lacks them.  If `key` names no columns, the Kafka key is the key:
Debezium itself writes a changed key as a delete and a create.

A column with the placeholder of an unavailable value (as text, base64, a map or an
array) is absent.  `before` is complete unless one of its columns is absent, or it lacks a column
that the `after` of the update has; the declared and the read columns do not matter for this.  A
complete `before` is trusted, although for a table without REPLICA IDENTITY FULL, Postgres's may
have nulls for unknown values.

The schema of a message defines the meaning of its columns' values; where it leaves that open, or
is not there, `encodings` do; without these a value stays as it is.  So a decimal without a schema
is base64 text like any other: declare the column's encoding as decimal:SCALE, or set Debezium's
decimal.handling.mode to string.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ikebana.codecs import canonical
from ikebana.codecs.canonical import FAULTS, require_readable
from ikebana.codecs.change import Change, Headers, Ignored, Needs
from ikebana.codecs.column_encodings import Schema
from ikebana.codecs.debezium_rows import (
    NAME,
    SCHEMA_FIRST,
    SCHEMA_LENGTH,
    VALUE,
    DebeziumEvents,
    Image,
    Opening,
    PayloadPlan,
    Row,
    Rows,
    Unavailable,
    full_name,
    is_wrapped,
    keys_in_json,
    unavailable_of,
)
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import ADDED_PREFIX, OF_COCKROACH
from ikebana.errors import ConfigError

try:
    from ikebana.compiled._row_images import Rows as CompiledRows
except ImportError:
    CompiledRows = None  # type: ignore[assignment,misc]

_NOTHING = Raw()
# As many columns as wide tables have.
_REMEMBERED = 1_000


class Source(msgspec.Struct):
    """The part of an event's `source` that names the table."""

    db: str | None = None
    schema: str | None = None
    table: str | None = None
    collection: str | None = None


class Envelope(msgspec.Struct):
    """An event with undecoded images, and the fields by which other messages are recognized."""

    op: str | UnsetType | None = UNSET
    before: Raw = _NOTHING
    after: Raw = _NOTHING
    source: Raw = _NOTHING
    ts_ms: Raw = _NOTHING
    status: Raw = _NOTHING
    id: Raw = _NOTHING
    ddl: Raw = _NOTHING
    tableChanges: Raw = _NOTHING
    resolved: Raw = _NOTHING


_Event = tuple[Envelope, PayloadPlan]


class Debezium(DebeziumEvents[_Event]):
    """Decodes the messages of a Debezium connector.

    `needs.options` may have "unavailable_placeholder", if the connector's is not the default.

    Raises:
        ConfigError: the placeholder is empty.

    >>> event = b'{"op": "u", "before": {"id": 1, "n": 1}, "after": {"id": 1, "n": 2}}'
    >>> Debezium(Needs(before=True)).changes(b'{"id": 1}', event, None)[0]._asdict()
    ... # doctest: +NORMALIZE_WHITESPACE
    {'kind': 'upsert', 'key': b'{"id":1}', 'after': b'{"id":1,"n":2}',
     'before': b'{"id":1,"n":1}', 'absent': (), 'replaces': True, 'sequence': ()}
    """

    def __init__(self, needs: Needs) -> None:
        super().__init__(needs, keys_in_json(NAME, needs))
        self._declared = needs.declared
        unavailable = unavailable_of(needs)
        self._rows = Rows(needs.read(needs.key), unavailable, needs.encodings, needs.judges)
        self._key_rows = Rows(needs.key, unavailable, needs.encodings)
        # Old rows are parsed only if they, or their keys, are read.
        self._old_rows = self._rows if needs.before else self._key_rows
        # Drift compares the columns that are read.  Diffs need complete old images.
        self._compares_names = needs.diffs and needs.columns is not None
        self._opening = Opening(Envelope | None, self._rows.bare, self._planned)
        self._names = canonical.decoder(Source | None)
        fits = CompiledJson.fits(needs)
        self._compiled = CompiledJson(needs, unavailable, self._keys.needed) if fits else None

    def key(self, key: bytes | None) -> bytes | None:
        # Debezium writes a changed key as a delete and a create, so a Kafka key that has the
        # key's columns is the key of the row.
        return self._keys.of_kafka(key)

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        try:
            if value:
                if usual := self._usual(key, value):
                    return usual
                require_readable(value)
            return self._changes(self._opened(value), key, None)
        except FAULTS as error:
            raise self._keys.refused(VALUE, error, self._images(value), key) from None

    def _usual(self, key: bytes | None, value: bytes) -> list[Change] | None:
        """Decode a message by compiled code; None if that leaves it to Python."""
        if self._compiled is None:
            return None
        wrapped = value[:SCHEMA_LENGTH] == SCHEMA_FIRST
        event = self._opening.payload(value) if wrapped else value
        return None if event is None else self._compiled.changes(key, event)

    def _opened(self, value: bytes | None) -> _Event | None:
        envelope, plan = (None, ()) if value is None else self._opening.open(value)
        return None if envelope is None else (envelope, plan)

    def _has(self, event: _Event, name: str) -> bool:
        return bool(getattr(event[0], name))

    def _operation(self, event: _Event) -> str | None:
        return None if (op := event[0].op) is UNSET else op

    def _table(self, event: _Event) -> str | None:
        source = event[0].source
        names = (self._names(source) if source else None) or Source()
        return full_name(names.db, names.schema, names.table or names.collection)

    def _read(self, event: _Event, name: str) -> Image | None:
        envelope, plan = event
        if name == "after":
            return self._rows.read(envelope.after, plan)
        return self._old_rows.read(envelope.before, plan)

    def _is_row(self, event: _Event, old: Image, key: bytes | None) -> bool:
        # Only this image and the declared columns show which columns the table had.
        if old.document:
            return True
        names = self._rows.names(event[0].before)
        of_key = canonical.decode(key) if key and self._declared else None
        if not isinstance(of_key, dict):
            return bool(names)
        return not self._declared.shows_key_alone(names, of_key)

    def _is_whole(self, event: _Event, old: Image, new: Image) -> bool:
        if old.document or new.document:
            return True
        if self._compares_names:
            return self._rows.names(event[0].after) <= self._rows.names(event[0].before)
        return {*new.row, *filter(self._rows.reads, new.absent)} <= old.row.keys()

    def _planned(self, schema: Schema) -> PayloadPlan:
        images = {field.field: field for field in schema.fields or ()}
        image = images.get("after") or images.get("before")
        return self._rows.planned(image) if image else ()

    def _images(self, value: bytes | None) -> Iterator[Row]:
        """The images of a message that may have the row's key."""
        envelope, plan = self._opened(value) or (None, ())
        for raw in (envelope.after, envelope.before) if envelope else ():
            if image := self._key_rows.read(raw, plan):
                yield image.row


class CompiledJson:
    """Decodes the commonest messages with compiled code, and returns None for the others.

    It takes creates, updates and rows of snapshots, without their schema, if the old image has the
    columns of the new one, no value is unavailable and the key does not change.  `Debezium`
    decodes all other messages, and reports faults; both return the same changes.
    """

    def __init__(
        self,
        needs: Needs,
        unavailable: Unavailable,
        kafka_key: Callable[[bytes | None], bytes | None],
    ) -> None:
        self._may_lack = unavailable.may_be_in_json
        # Unavailable values must be noticed even if they are not read.
        self._reads_all = needs.columns is None
        self._kafka_key = kafka_key
        rows = CompiledRows(needs.columns, needs.key, before=needs.before)
        if nulls := needs.nulls():
            rows.require(nulls)
        self._event = rows.event

    @staticmethod
    def fits(needs: Needs) -> bool:
        """Whether the compiled decoder covers these needs."""
        read = needs.read(needs.key)
        encoded = needs.encodings if read is None else set(needs.encodings) & set(read)
        return CompiledRows is not None and needs.tables is None and not encoded

    def changes(self, key: bytes | None, value: bytes) -> list[Change] | None:
        """Decode the change of a message; None if `Debezium` has to."""
        if not self._reads_all and self._may_lack(value):
            return None
        if (event := self._event(value)) is None:
            return None
        replaces, row_key, after, before = event
        if self._reads_all and (
            self._may_lack(after) or (before is not None and self._may_lack(before))
        ):
            return None
        return [Change("upsert", row_key or self._kafka_key(key), after, before, (), replaces)]


# Events flattened to rows, as Debezium's ExtractNewRecordState writes them.
#
# A value is the row itself, an upsert of its key.  A null value is a delete, and so is a row with
# a true "__deleted".  If there is a field "__op", it is the operation.  Fields with names that
# begin with the prefix "__" are no columns of the row unless they are declared.  Keys, schemas,
# encodings and absent columns are as in other events.
#
# A null value is a delete even if the input selects `tables`, because no other message may report
# the delete.  A null value without a Kafka key is therefore an error.  If a deleted row is written
# out, it is the `before` of the delete.  Heartbeats and schema changes cannot be distinguished
# from rows in this format.  A row that lacks columns of the key, as "__deleted" alone does, is no
# such `before`.

# Debezium writes this field so, whatever the prefix of added fields is.
_DELETED = "__deleted"
_FLAT = f"flat {NAME}"
_NAMED = ("op", "table", "db", "schema", "source_table", "source_db", "source_schema")


class DebeziumFlat(DebeziumEvents[Image]):
    """Decodes the flattened messages of a Debezium connector.

    `needs.options` may have "prefix", that of fields which are no columns, by default "__";
    "unavailable_placeholder", if the connector's is not the default.

    Raises:
        ConfigError: the prefix or the placeholder is empty.
    """

    def __init__(self, needs: Needs) -> None:
        self._prefix = needs.options.get("prefix", ADDED_PREFIX)
        if not self._prefix:
            raise ConfigError('option "prefix" must not be empty')
        self._marks = {name: self._prefix + name for name in _NAMED}
        super().__init__(needs, keys_in_json(_FLAT, needs), _FLAT, self._marks["op"])
        self._reads_old = True
        self._declared = needs.declared
        columns = None if needs.columns is None else frozenset(needs.columns)
        self._is_read = lru_cache(_REMEMBERED)(
            lambda name: (columns is None or name in columns) and self._is_column(name)
        )
        unavailable = unavailable_of(needs)
        read = needs.read((*needs.key, _DELETED, OF_COCKROACH, *self._marks.values()))
        self._rows = Rows(read, unavailable, needs.encodings, needs.judges)
        self._key_rows = Rows(needs.key, unavailable, needs.encodings)
        self._opening = Opening(Raw, self._rows.bare, self._rows.planned)
        marks = (_DELETED, self._op_name)
        self._compiled: Callable[[bytes], tuple[bytes | None, bytes, bytes] | None] | None = None
        if CompiledJson.fits(needs):
            rows = CompiledRows(None, needs.key, reads=self._is_read, marks=marks)
            self._compiled = rows.marked_row
        self._may_lack = unavailable.may_be_in_json
        self._updates = lru_cache(_REMEMBERED)(self._read_marks)

    def key(self, key: bytes | None) -> bytes | None:
        return None if self._keyed else self._keys.of_kafka(key)

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        try:
            if value is not None:
                if usual := self._usual(key, value):
                    return usual
                require_readable(value)
            image = None if value is None else self._rows.read(*self._opening.open(value))
            if image is None:
                return self._gone(key)
            mark = image.row.get(OF_COCKROACH) if key is None else None
            if isinstance(mark, dict) and "resolved" in mark:
                return Ignored("heartbeat")
            return self._changes(image, key, None)
        except FAULTS as error:
            raise self._keys.refused(self._value, error, self._images(value), key) from None

    def _usual(self, key: bytes | None, value: bytes) -> list[Change] | None:
        """Decode the upsert of a row by compiled code; None if that leaves it to Python."""
        if self._compiled is None or key is None:
            return None
        row = self._opening.payload(value) if is_wrapped(value) else value
        if row is None or self._may_lack(row):
            return None
        if (read := self._compiled(row)) is None:
            return None
        row_key, after, marks = read
        if (updates := self._updates(marks)) is None:
            return None
        return [Change("upsert", row_key or self._keys.needed(key), after, None, (), updates)]

    def _read_marks(self, marks: bytes) -> bool | None:
        """Whether a row with these marks is an update; None if another method has to judge."""
        row = canonical.decode(marks)
        op = row.get(self._op_name)
        if row.get(_DELETED) not in _FALSE or op not in (None, "c", "u", "r"):
            return None
        return bool(op == "u")

    def _gone(self, key: bytes | None) -> Sequence[Change] | Ignored:
        """Decode a null value as a delete; it must have a Kafka key."""
        if key is not None and self._keyed:
            return self._keys.tombstone(key)
        return [Change("delete", self._keys.needed(key))]

    def _has(self, event: Image, name: str) -> bool:
        return name in event.row

    def _operation(self, event: Image) -> str | None:
        op = _text(event.row, self._op_name)
        if op in (None, "c", "u", "r") and event.row.get(_DELETED) in _TRUE:
            return "d"
        return "c" if op is None else op

    def _table(self, event: Image) -> str | None:
        row, marks = event.row, self._marks
        parts = ("db", "schema", "table")
        return full_name(
            *(_text(row, marks[part]) or _text(row, marks[f"source_{part}"]) for part in parts)
        )

    def _read(self, event: Image, name: str) -> Image | None:
        if name == "before":
            return event if self._operation(event) == "d" else None
        if event.row.get(_DELETED) not in _FALSE:
            raise DecodeError(self._value, f'field "{_DELETED}" is neither true nor false')
        if event.absent:
            event = event._replace(absent=tuple(filter(self._is_column, event.absent)))
        return event

    def _is_row(self, event: Image, old: Image, key: bytes | None) -> bool:
        return self._keys.columns_in(old.row)

    def _is_column(self, name: str) -> bool:
        if self._declared.type_of(name) is not None:
            return True
        return name != _DELETED and not name.startswith(self._prefix)

    def _write(self, row: Row) -> bytes:
        is_read = self._is_read
        return canonical.write({name: value for name, value in row.items() if is_read(name)})

    def _images(self, value: bytes | None) -> Iterator[Row]:
        if value is not None and (image := self._key_rows.read(*self._opening.open(value))):
            yield image.row


_TRUE, _FALSE = (True, "true"), (None, False, "false")


def _text(row: Row, name: str) -> str | None:
    text = row.get(name)
    if text is None or isinstance(text, str):
        return text
    raise DecodeError(f"{_FLAT} value", f'field "{name}" is no text')
