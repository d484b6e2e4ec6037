"""Debezium's change events in JSON, as its connectors write them.

An event is an upsert of `after` (op c, u, r: a snapshot's rows are upserts too), a
delete (d), a truncate (t), or tells of no row (heartbeats, transactions, schema changes,
logical messages, other tables).  Key and value may each be bare or wrapped as
{"schema", "payload"}, from one message to the next.  A null value is a delete of its
key, which repeats the one before it; only where several tables are told apart
(`tables`) it is ignored, since it does not say whose key it is.

Where `key` names columns, the row has the key: an update whose `before` has other values
there is a delete of the old key, then an upsert of the new one; a column that `before`
lacks has not changed.  A delete's or a tombstone's key then comes from the Kafka key if
it has these columns and the row does not.  Otherwise the Kafka key is the key: Debezium
itself writes a changed one as a delete and a create.

A column that is the placeholder of an unavailable value, be it a text, base64, a map or
an array, is absent.  `before` is taken at its word: for a table without REPLICA IDENTITY
FULL, Postgres's may have nulls where it knows nothing.

A schema says what the columns' values mean; without one `encodings` do, and what neither
names stays as it is.  In particular a decimal without a schema is base64 text like any
other: declare the column's encoding as decimal:SCALE, or set Debezium's
decimal.handling.mode to string.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import md5
from typing import Any, TypedDict
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ikebana.codecs import canonical
from ikebana.codecs.change import Change, Headers, Ignored, Wanted
from ikebana.codecs.debezium_quick import Quick
from ikebana.codecs.encodings import Convert, Schema, encoding, of_fields
from ikebana.codecs.errors import DecodeError

Row = dict[str, Any]
Plan = tuple[tuple[str, Convert], ...]
"""The columns whose values are to be converted, and how."""

PLACEHOLDER = "__debezium_unavailable_value"
KEY, VALUE = "Debezium key", "Debezium value"
FAULTS = (DecodeError, *canonical.REFUSALS)

_NOTHING = Raw()
_NAMES, _FAR = (b'"schema"', b'"payload"'), 64
_REMEMBERED = 64
# Up to here, looking at each value is quicker than looking for the placeholder's bytes.
_FEW = 8


class Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    """A message of Kafka Connect's JSON converter that carries its schema."""

    schema: Raw
    payload: Raw


class Opening:
    """Opens messages that are bare, or wrapped with a schema, as values of one type.

    The last schema is compared rather than parsed: a prefix that is equal, and a rest that
    is one JSON value, are a message with that schema.
    """

    def __init__(self, kind: Any, bare: Plan, planned: Callable[[Schema], Plan]) -> None:
        self._decode = canonical.decoder(kind)
        self._wrapped = canonical.decoder(Wrapped)
        self._schema = canonical.decoder(Schema)
        self._bare = bare
        self._planned = planned
        self._plan_of = lru_cache(_REMEMBERED)(self._read_schema)
        self._last: tuple[bytes, Plan] = (b"", bare)

    def open(self, message: bytes) -> tuple[Any, Plan]:
        """The message or its payload, and how its columns are to be converted."""
        prefix, plan = self._last
        if prefix and message.startswith(prefix) and message.endswith(b"}"):
            try:
                return self._decode(Raw(memoryview(message)[len(prefix) : -1])), plan
            except canonical.REFUSALS:
                pass
        # The first quotation mark of an object begins its first name.
        first = message.find(b'"', 0, _FAR)
        named = first < 0 or message.startswith(_NAMES, first)
        if (wrapped := self._unwrap(message) if named else None) is None:
            return self._decode(message), self._bare
        schema = bytes(wrapped.schema)
        plan = self._plan_of(schema)
        decoded = self._decode(wrapped.payload)
        if message.startswith(prefix := b'{"schema":' + schema + b',"payload":'):
            self._last = (prefix, plan)
        return decoded, plan

    def _unwrap(self, message: bytes) -> Wrapped | None:
        try:
            wrapped: Wrapped = self._wrapped(message)
        except msgspec.ValidationError:
            return None
        return wrapped if bytes(wrapped.schema)[:1] in (b"{", b"n") else None

    def _read_schema(self, schema: bytes) -> Plan:
        return self._bare if schema == b"null" else self._planned(self._schema(schema))


def convert_columns(row: Row, plan: Plan) -> None:
    """Convert the columns of a row that have to be, in place."""
    for name, convert in plan:
        if (value := row.get(name)) is not None:
            try:
                row[name] = convert(value)
            except DecodeError as error:
                raise DecodeError(VALUE, f'column "{name}": {error.reason}') from None


class Rows:
    """Reads the columns of rows that are wanted, converts them, sets aside the absent."""

    def __init__(self, columns: frozenset[str] | None, placeholder: str) -> None:
        self.columns = columns
        # Of a TypedDict, fields that it does not name are skipped.
        typed: Any = TypedDict
        row: Any = dict[str, Any]
        if columns is not None:
            row = typed("Row", dict.fromkeys(columns, Any), total=False)
        # MongoDB's documents are texts of JSON.
        self._decode = canonical.decoder(row | str | None)
        self._document = canonical.decoder(row)
        raw = placeholder.encode()
        encoded = b64encode(raw).decode()
        # Java's UUID.nameUUIDFromBytes, which has no namespace.
        identifier = str(UUID(bytes=md5(raw, usedforsecurity=False).digest(), version=3))
        self.texts = frozenset((placeholder, encoded, f'{{"{placeholder}":"{placeholder}"}}'))
        arrays = [list(raw), [placeholder], [encoded], [identifier]]
        self._others = (*arrays, {placeholder: placeholder})
        self._trace, self._encoded_trace = raw, encoded.encode()
        # No writer of JSON escapes any of these.
        plain = re.fullmatch(r"\w*", placeholder, re.ASCII) and "/" not in encoded
        self._every = not plain or (columns is not None and len(columns) <= _FEW)

    def plan(self, conversions: Mapping[str, Convert]) -> Plan:
        """Those of the conversions that concern a column that is read."""
        return tuple(
            (name, convert)
            for name, convert in conversions.items()
            if self.columns is None or name in self.columns
        )

    def read(self, image: Raw, plan: Plan) -> tuple[Row | None, tuple[str, ...]]:
        """The row's columns, None for no row, and the names of those that are absent."""
        row = self._decode(image) if image else None
        if row is None:
            return None, ()
        if row.__class__ is str:
            row = self._document(row.encode())
        absent = self._absent(row) if self._every or self._suspicious(bytes(image)) else ()
        convert_columns(row, plan)
        return row, absent

    def _suspicious(self, image: bytes) -> bool:
        return self._trace in image or self._encoded_trace in image or b"[" in image

    def _absent(self, row: Row) -> tuple[str, ...]:
        """Take what is unavailable out of a row."""
        absent = []
        for name, value in row.items():
            kind = value.__class__
            if kind is str:
                if value in self.texts:
                    absent.append(name)
            elif (kind is list or kind is dict) and value in self._others:
                absent.append(name)
        for name in absent:
            del row[name]
        return tuple(absent)


class Keys:
    """The keys of rows: of the Kafka key, or of columns that the pipeline file names."""

    def __init__(self, wanted: Wanted) -> None:
        self.columns = wanted.key
        rows = Rows(frozenset(wanted.key) if wanted.key else None, PLACEHOLDER)
        self._opening = Opening(
            dict[str, Any] | None,
            rows.plan({name: encoding(given) for name, given in wanted.encodings.items()}),
            lambda schema: rows.plan(of_fields(schema)),
        )

    def of_kafka(self, key: bytes | None) -> bytes | None:
        """The row's key as the Kafka key has it; None if it does not."""
        if key is None:
            return None
        try:
            found, plan = self._opening.open(key)
            if found is None:
                return None
            convert_columns(found, plan)
            if not self.columns:
                return canonical.write(found)
            return self.of_row(found) if all(name in found for name in self.columns) else None
        except FAULTS as error:
            raise DecodeError(KEY, canonical.refused(KEY, error).reason) from None

    def of_row(self, row: Row) -> bytes:
        """The key that a row's columns are."""
        try:
            return canonical.write({name: row[name] for name in self.columns})
        except KeyError as error:
            raise DecodeError(VALUE, f'key column "{error.args[0]}" is missing') from None

    def needed(self, key: bytes | None) -> bytes:
        """The row's key as the Kafka key has it, which it must."""
        if (found := self.of_kafka(key)) is None:
            raise DecodeError(KEY, "the Kafka key is null, or lacks the key's columns")
        return found

    def tombstone(self, key: bytes | None) -> Sequence[Change] | Ignored:
        """What a null value says."""
        if key is not None and self.columns and self.of_kafka(key) is None:
            return Ignored("tombstone")
        return [Change("delete", self.needed(key))]


class Source(msgspec.Struct):
    """Where a row is from, as far as it says whose it is."""

    db: str | None = None
    schema: str | None = None
    table: str | None = None
    collection: str | None = None


class Envelope(msgspec.Struct):
    """An event, with the images of its row as they are, and what else may come instead."""

    op: str | UnsetType = UNSET
    before: Raw = _NOTHING
    after: Raw = _NOTHING
    source: Raw = _NOTHING
    ts_ms: Raw = _NOTHING
    status: Raw = _NOTHING
    id: Raw = _NOTHING
    ddl: Raw = _NOTHING
    tableChanges: Raw = _NOTHING


class Tables:
    """Whether a table is one that is wanted."""

    def __init__(self, pattern: str) -> None:
        matches = re.compile(pattern).fullmatch
        self._wanted = lru_cache(_REMEMBERED)(lambda name: matches(name) is not None)

    def wanted(self, *parts: str | None) -> bool:
        """Whether the table of these parts is wanted; the last one is its own name."""
        if not parts[-1]:
            raise DecodeError(VALUE, "the table's name is missing")
        return self._wanted(".".join(part for part in parts if part))


class Debezium:
    """Decodes the messages of a Debezium connector.

    `wanted.options`: "unavailable_placeholder" if the connector's is not the default.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._keys = Keys(wanted)
        self._before = wanted.before
        self._tables = Tables(wanted.tables) if wanted.tables is not None else None
        placeholder = wanted.options.get("unavailable_placeholder", PLACEHOLDER)
        self._columns = None if wanted.columns is None else frozenset(wanted.columns)
        key = frozenset(wanted.key)
        self._unwanted = () if self._columns is None else tuple(key - self._columns)
        self._rows = Rows(None if self._columns is None else self._columns | key, placeholder)
        self._key_rows = Rows(key, placeholder)
        # Nothing of an old row is parsed unless somebody asks for it.
        self._old_rows = self._rows if wanted.before else self._key_rows if key else None
        self._opening = Opening(
            Envelope | None,
            self._rows.plan({name: encoding(given) for name, given in wanted.encodings.items()}),
            self._planned,
        )
        self._source = canonical.decoder(Source | None)
        self._quick = (
            Quick(wanted, self._rows.texts, self._keys.needed) if Quick.fits(wanted) else None
        )

    def key(self, key: bytes | None) -> bytes | None:
        # Debezium tells a changed key as a delete and a create, so a key that has the
        # columns is that of the row.
        return self._keys.of_kafka(key)

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        try:
            if self._quick and value and (found := self._quick.changes(key, value)):
                return found
            return self._changes(key, value)
        except FAULTS as error:
            fault = canonical.refused(VALUE, error)
        raise DecodeError(fault.codec, fault.reason, key=self._readable_key(key, value))

    def _changes(self, key: bytes | None, value: bytes | None) -> Sequence[Change] | Ignored:
        envelope, plan = (None, ()) if value is None else self._opening.open(value)
        if envelope is None:
            return Ignored("tombstone") if self._tables else self._keys.tombstone(key)
        op = envelope.op
        if op is UNSET:
            return _other(envelope)
        if op == "m":
            return Ignored("message")
        if self._tables and not self._in_wanted_table(self._tables, envelope.source):
            return Ignored("table")
        if op in ("c", "u", "r"):
            return self._upsert(key, envelope, plan)
        if op == "d":
            return self._delete(key, envelope, plan)
        if op == "t":
            return [Change("truncate")]
        raise DecodeError(VALUE, 'field "op" is none of c, u, r, d, t, m')

    def _in_wanted_table(self, tables: Tables, source: Raw) -> bool:
        found = (self._source(source) if source else None) or Source()
        return tables.wanted(found.db, found.schema, found.table or found.collection)

    def _upsert(self, key: bytes | None, envelope: Envelope, plan: Plan) -> Sequence[Change]:
        row, absent = self._rows.read(envelope.after, plan)
        if row is None:
            raise DecodeError(VALUE, 'field "after" is null or missing')
        keyed = bool(self._keys.columns)
        new_key = self._keys.of_row(row) if keyed else self._keys.needed(key)
        old_key, before = new_key, None
        if envelope.op == "u" and self._old_rows:
            old, gone = self._old_rows.read(envelope.before, plan)
            if old is not None:
                old_key = self._keys.of_row({**row, **old}) if keyed else new_key
                known = self._columns is not None or row.keys() <= old.keys() >= set(absent)
                before = self._whole(old) if known and not gone else None
        after = self._image(row)
        if absent and self._unwanted:
            absent = tuple(name for name in absent if name not in self._unwanted)
        if old_key == new_key:
            return [Change("upsert", new_key, after, before, absent, envelope.op == "u")]
        return [
            Change("delete", old_key, None, before, replaces=True),
            Change("upsert", new_key, after, None, absent),
        ]

    def _delete(self, key: bytes | None, envelope: Envelope, plan: Plan) -> Sequence[Change]:
        old, gone = self._old_rows.read(envelope.before, plan) if self._old_rows else (None, ())
        if self._keys.columns and old and all(name in old for name in self._keys.columns):
            old_key = self._keys.of_row(old)
        else:
            old_key = self._keys.needed(key)
        before = self._whole(old) if old is not None and not gone else None
        return [Change("delete", old_key, None, before, replaces=True)]

    def _whole(self, old: Row) -> bytes | None:
        """The image of an old row if it is wanted, and has all columns that are."""
        complete = self._columns is None or self._columns <= old.keys()
        return self._image(old) if self._before and complete else None

    def _image(self, row: Row) -> bytes:
        for name in self._unwanted:
            row.pop(name, None)
        return canonical.write(row)

    def _planned(self, schema: Schema) -> Plan:
        images = {field.field: field for field in schema.fields or ()}
        image = images.get("after") or images.get("before")
        return self._rows.plan(of_fields(image)) if image else ()

    def _readable_key(self, key: bytes | None, value: bytes | None) -> bytes | None:
        """The row's key as far as it can be had from a message that is at fault."""
        if self._keys.columns and value is not None:
            with suppress(*FAULTS):
                envelope, plan = self._opening.open(value)
                for image in (envelope.after, envelope.before) if envelope else ():
                    row, _ = self._key_rows.read(image, plan)
                    if row:
                        return self._keys.of_row(row)
        with suppress(*FAULTS):
            return self._keys.of_kafka(key)
        return None


def _other(event: Envelope) -> Ignored:
    """What a message without an operation is."""
    row = event.before or event.after
    if event.status and event.id and not row:
        return Ignored("transaction")
    if (event.ddl or event.tableChanges) and not row:
        return Ignored("ddl")
    if event.ts_ms and not event.source and not row:
        return Ignored("heartbeat")
    raise DecodeError(VALUE, 'field "op" is missing')
