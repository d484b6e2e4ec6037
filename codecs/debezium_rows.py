"""What Debezium's messages have in common: wrapper, unavailable values, rows, keys, and rules.

A message of Kafka Connect's JSON converter is bare, or wrapped as {"schema", "payload"}: each may
be either.  {"payload": {...}} alone is wrapped too: its schema is known elsewhere.

Debezium writes a placeholder for an unknown value, such as an unchanged TOAST column.  It has
another form for each type of column (a text, base64, a map or an array).  First the bytes of a
message are searched for these forms; values are tested only if one is found.  A column with the
placeholder is absent from its row, whether it is read or not.
"""

import re
import struct
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache, partial
from hashlib import md5
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

import msgspec
from msgspec import Raw

from ikebana.codecs import canonical
from ikebana.codecs.canonical import is_exact, object_of
from ikebana.codecs.change import Change, Headers, Ignored, Needs
from ikebana.codecs.column_encodings import Schema, bare_conversions, encodings, of_columns
from ikebana.codecs.encodings import Convert, of_extended_json
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.keys import DataDecoder, KeyDecoder
from ikebana.codecs.row_images import Tables, convert_columns, delete_changes, update_changes
from ikebana.errors import ConfigError

try:
    from ikebana.compiled._json_text import Canonical
except ImportError:
    Canonical = None  # type: ignore[assignment,misc]

Row = dict[str, Any]

NAME = "Debezium"
VALUE = f"{NAME} value"

_REMEMBERED = 64
_IDENTIFIER = "_id"
"""The field that identifies a document of MongoDB."""
PayloadPlan = tuple[tuple[str, Convert], ...]
"""The conversions of columns, by name; other columns stay as they are."""

PLACEHOLDER = "__debezium_unavailable_value"
# Bytes that are rare in texts and JSON, the rarest first; in Avro 244 is the "z" of an array of
# numbers, and 190 is in the float of a "_".
_RARE = b"\xf4\xbeQZXJqYWKzVGjxNMk_"
_ARRAY = ord("[")
_WRAPPED, _FAR = (b'"schema"', b'"payload"'), 64
SCHEMA_FIRST = b'{"schema":'
SCHEMA_LENGTH = len(SCHEMA_FIRST)
"""How the JSON converter of Kafka Connect begins a message with its schema."""


class Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    """A wrapped message of Kafka Connect's JSON converter, with or without its schema."""

    payload: Raw
    schema: Raw = Raw()


class Opening:
    """Opens messages, bare or wrapped with a schema, as values of one type.

    Parsing a schema costs more than a row, so the bytes of the last schema are compared: a
    message with the same prefix, followed by one JSON value, has that schema.
    """

    def __init__(
        self, kind: Any, bare: PayloadPlan, planned: Callable[[Schema], PayloadPlan]
    ) -> None:
        self._decode = canonical.decoder(kind)
        self._wrapped = canonical.decoder(Wrapped)
        self._schema = canonical.decoder(Schema)
        self._bare = bare
        self._planned = planned
        self._plan_of = lru_cache(_REMEMBERED)(self._read_schema)
        self._last: tuple[bytes, PayloadPlan] = (b"", bare)

    def open(self, message: bytes) -> tuple[Any, PayloadPlan]:
        """Decode a message, or its payload, and find the conversions of its columns."""
        prefix, plan = self._last
        if prefix and message.startswith(prefix) and message.endswith(b"}"):
            try:
                return self._decode(Raw(memoryview(message)[len(prefix) : -1])), plan
            except canonical.REFUSALS:
                pass
        if (wrapped := self._unwrap(message) if is_wrapped(message) else None) is None:
            return self._decode(message), self._bare
        schema = bytes(wrapped.schema)
        plan = self._plan_of(schema)
        decoded = self._decode(wrapped.payload)
        if message.startswith(prefix := b'{"schema":' + schema + b',"payload":'):
            self._last = (prefix, plan)
        return decoded, plan

    def payload(self, message: bytes) -> bytes | None:
        """The payload of a message with the last schema, if that converts no column.

        It may be no JSON, if the message is none.
        """
        prefix, plan = self._last
        if plan or not prefix or not (message.startswith(prefix) and message.endswith(b"}")):
            return None
        return message[len(prefix) : -1]

    def _unwrap(self, message: bytes) -> Wrapped | None:
        try:
            wrapped: Wrapped = self._wrapped(message)
        except msgspec.ValidationError:
            return None
        if not wrapped.schema:
            # A bare row or key may have a column "payload" with a value that is no object.
            return wrapped if bytes(wrapped.payload)[:1] == b"{" else None
        return wrapped if bytes(wrapped.schema)[:1] in (b"{", b"n") else None

    def _read_schema(self, schema: bytes) -> PayloadPlan:
        return self._bare if schema in (b"", b"null") else self._planned(self._schema(schema))


def is_wrapped(message: bytes) -> bool:
    """Whether a message may be wrapped: its first name is that of a wrapper, or far away."""
    # The first quotation mark of an object begins its first name.
    first = message.find(b'"', 0, _FAR)
    return first < 0 or message.startswith(_WRAPPED, first)


class Unavailable:
    """The forms of a placeholder, and a search for them in messages."""

    def __init__(self, placeholder: str) -> None:
        raw = placeholder.encode()
        encoded = b64encode(raw).decode()
        # The same as Java's UUID.nameUUIDFromBytes, which has no namespace.
        identifier = str(UUID(bytes=md5(raw, usedforsecurity=False).digest(), version=3))
        self._texts = frozenset((placeholder, encoded, f'{{"{placeholder}":"{placeholder}"}}'))
        self._raw = raw
        self._others: list[Any] = [list(raw), [placeholder], [encoded], [raw], [identifier]]
        self._others.append({placeholder: placeholder})
        # Arrays of decimals have one for each byte: its digits, with a scale if that varies.
        digits = [bytes([byte]) for byte in raw]
        in_json = [b64encode(each).decode() for each in digits]
        self._others += [in_json, digits]
        self._others += [[{"scale": 0, "value": each} for each in of] for of in (in_json, digits)]
        # Avro writes the numbers of an array like this: zigzag, seven bits a byte.
        numbers = b"".join(
            bytes([byte << 1 & 0x7F | 0x80, byte >> 6]) if byte > 63 else bytes([byte << 1])
            for byte in raw
        )
        texts = [raw, encoded.encode()]
        # A search for one byte is far quicker, so the rarest byte is searched first.
        self._texts_in_json = [(_rarest(text), text) for text in texts]
        self._identifier, self._digit = identifier.encode(), b'"%b"' % in_json[0].encode()
        first = raw[:2]
        floats = [struct.pack(f"<{len(first)}{kind}", *first) for kind in "fd"]
        # A decimal has its length in front, and so has one with a scale of its own.
        traces = (*texts, numbers, *floats, b"\2%c" % first[:1])
        self._traces = [(_rarest(text), text) for text in traces]
        written = rb"\s*,\s*".join(rb"%d(?:\.0)?" % byte for byte in first)
        self._numbers_in_json = re.compile(rb"\[\s*" + written).search
        # Writers of JSON escape none of these characters, so the text can be searched.
        self._plain = bool(re.fullmatch(r"\w+", placeholder, re.ASCII)) and "/" not in encoded

    def may_be_in_json(self, message: bytes) -> bool:
        """Whether a message in JSON may have a placeholder; a false alarm only costs time."""
        if not self._plain:
            return True
        if _ARRAY in message:
            if self._identifier in message or self._digit in message:
                return True
            if self._numbers_in_json(message):
                return True
        # A generator for any() would take longer than the searches.
        for rare, text in self._texts_in_json:
            if rare in message and message.find(text) >= 0:
                return True
        return False

    def may_be_in_avro(self, message: bytes) -> bool:
        """Whether a message in Avro may have a placeholder; a false alarm only costs time."""
        for rare, text in self._traces:
            if rare in message and message.find(text) >= 0:
                return True
        return message.find(self._identifier) >= 0

    def is_one(self, value: Any) -> bool:
        """Whether a value is a placeholder."""
        kind = value.__class__
        if kind is str:
            return value in self._texts
        if kind is bytes:
            return bool(value == self._raw)
        return (kind is list or kind is dict) and value in self._others


def _rarest(text: bytes) -> int:
    """Choose a byte of a text that few other texts have."""
    return next((byte for byte in _RARE if byte in text), text[0])


def unavailable_of(needs: Needs) -> Unavailable:
    """Make the test for the placeholder of values that are unknown to the connector.

    Raises:
        ConfigError: the placeholder is empty, so that every empty text would be one.
    """
    placeholder = needs.options.get("unavailable_placeholder", PLACEHOLDER)
    if not placeholder:
        raise ConfigError('option "unavailable_placeholder" must not be empty')
    return Unavailable(placeholder)


class Image(NamedTuple):
    """The columns of a row that are read, and the names of all absent columns.

    `document` marks a document of MongoDB; documents have different fields.
    """

    row: Row
    absent: tuple[str, ...] = ()
    document: bool = False


class _Decoders:
    """The decoders of images: objects, or MongoDB's documents, which are texts of JSON."""

    def __init__(self, row: Any) -> None:
        self.image = canonical.decoder(row | str | None)
        self.document = canonical.decoder(row)


class Rows:
    """Decodes the columns of rows that are read, and finds the absent ones among all."""

    def __init__(
        self,
        columns: Sequence[str] | None,
        unavailable: Unavailable,
        declared: Mapping[str, str],
        judges: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Make a decoder of these columns, None for all; `declared` has the encodings of some.

        A value that contradicts a message's schema is an error in a column for which `judges`
        holds.
        """
        self._columns = None if columns is None else frozenset(columns)
        self._declared = encodings(declared)
        self._judges = judges
        self.bare = self._plan(bare_conversions(self._declared))
        """The conversions of columns of rows without a schema."""
        # The fields of a document of MongoDB are JSON, without encodings.
        assumed = {name for name, each in self._declared.items() if each.assumed}
        self._in_documents = tuple(pair for pair in self.bare if pair[0] not in assumed)
        self._unavailable = unavailable
        fields = None if columns is None else dict.fromkeys(columns, Any)
        self._decode, self._decode_all = _Decoders(object_of(fields)), _Decoders(dict[str, Any])
        self._names = canonical.decoder(dict[str, Raw])
        self._exact = is_exact(fields)

    def planned(self, schema: Schema) -> PayloadPlan:
        """The conversions of columns of rows of a schema.  Raises: DecodeError."""
        return self._plan(of_columns(schema, self._declared, self._judges))

    def _plan(self, conversions: Mapping[str, Convert]) -> PayloadPlan:
        return tuple((name, convert) for name, convert in conversions.items() if self.reads(name))

    def reads(self, name: str) -> bool:
        """Whether a column is read."""
        return self._columns is None or name in self._columns

    def read(self, raw: Raw, plan: PayloadPlan) -> Image | None:
        """Decode the image of a row; None for a null image."""
        if not raw:
            return None
        careful = self._unavailable.may_be_in_json(bytes(raw))
        decode = self._decode_all if careful else self._decode
        row = decode.image(raw)
        if row is None:
            return None
        document = row.__class__ is str
        if document:
            row, plan = of_extended_json(decode.document(row.encode())), self._in_documents
        absent = self._remove_unavailable(row) if careful else ()
        if self._columns is not None and (careful or not self._exact):
            row = {name: row[name] for name in row if name in self._columns}
        convert_columns(VALUE, row, plan)
        return Image(row, absent, document)

    def names(self, raw: Raw) -> AbstractSet[str]:
        """List the names of all columns of a row that is no document."""
        columns: dict[str, Raw] = self._names(raw)
        return columns.keys()

    def _remove_unavailable(self, row: Row) -> tuple[str, ...]:
        """Remove unavailable values from a row, and return their names."""
        is_one = self._unavailable.is_one
        absent = tuple(name for name, value in row.items() if is_one(value))
        for name in absent:
            del row[name]
        return absent


STRUCT = b"Struct{"
"""How the text begins that a StringConverter makes of a key."""


def keys_in_json(codec: str, needs: Needs) -> KeyDecoder:
    """Make the `KeyDecoder` for Kafka keys in JSON of a format, which is named so in errors."""
    rows = Rows(needs.key or None, Unavailable(PLACEHOLDER), needs.encodings)
    opening = Opening(Any, rows.bare, rows.planned)
    # The names in a message with its schema, or in a key with encoded columns.
    names = ["schema", "payload", *needs.encodings]
    may_be_encoded = re.compile(
        b"|".join(re.escape(canonical.write(name)) for name in names)
    ).search
    text = None if Canonical is None or needs.key else Canonical().text
    # MongoDB's Kafka keys have the JSON of the identifier as a text `id`.
    is_of_documents, document = needs.key == (_IDENTIFIER,), canonical.decoder(Any)

    def quick(key: bytes, _: Headers) -> tuple[bytes] | None:
        bare = opening.payload(key) if key[:SCHEMA_LENGTH] == SCHEMA_FIRST else key
        if text is None or bare is None or (written := text(bare)) is None:
            return None
        return (written,) if written[:1] == b"{" and not may_be_encoded(written) else None

    def decode(key: bytes, _: Headers) -> Any:
        try:
            data, plan = opening.open(key)
        except canonical.REFUSALS:
            if not key.startswith(STRUCT):
                raise
            reason = "it is the text of a StringConverter: write keys by the JsonConverter"
            raise DecodeError(codec, reason) from None
        if isinstance(data, dict):
            if is_of_documents and data.keys() == {"id"} and isinstance(data["id"], str):
                return {_IDENTIFIER: of_extended_json(document(data["id"].encode()))}
            convert_columns(VALUE, data, plan)
        return data

    return KeyDecoder(codec, needs, DataDecoder(decode, quick))


def derived_operation(*, after: bool | None, before: bool | None, diffs: bool) -> str | None:
    """Derive the missing operation of an event from the images that it has; None if it has none.

    Each is None if the event has no such field.  Without `before` it is unknown whether there was
    an old row, which `diffs` need.  A null `after` alone is a delete, as CockroachDB writes it.

    >>> [derived_operation(after=True, before=each, diffs=False) for each in (True, False, None)]
    ['u', 'c', 'c']
    >>> [derived_operation(after=each, before=None, diffs=False) for each in (False, None)]
    ['d', None]
    """
    if after:
        return "u" if (diffs if before is None else before) else "c"
    return "d" if before or after is False else None


def without_operation(has: Callable[[str], bool]) -> Ignored:
    """Classify a message without an operation, by the fields that it has."""
    if not (has("before") or has("after")):
        if has("status") and has("id"):
            return Ignored("transaction")
        if has("ddl") or has("tableChanges"):
            return Ignored("ddl")
        if has("resolved") or (has("ts_ms") and not has("source")):
            return Ignored("heartbeat")
    raise DecodeError(VALUE, 'field "op" is missing')


def full_name(*parts: str | None) -> str | None:
    """The full name of a table; None if its own name is missing, which is the last part."""
    return ".".join(part for part in parts if part) if parts[-1] else None


Event = TypeVar("Event")


class DebeziumEvents(ABC, Generic[Event]):
    """The changes of events, by rules that are the same in all encodings."""

    def __init__(
        self, needs: Needs, keys: KeyDecoder, codec: str = NAME, op_name: str = "op"
    ) -> None:
        """Make a codec that is named so in errors, with the operation in the field `op_name`."""
        self._value, self._op_name = f"{codec} value", op_name
        self._keys, self._keyed = keys, bool(needs.key)
        self._before, self._diffs = needs.before, needs.diffs
        self._reads_old = needs.before or bool(needs.key)
        self._tables = Tables(self._value, needs, "table")
        columns = needs.columns
        self._picked = None if columns is None or {*needs.key} <= {*columns} else columns
        self._nulls = needs.nulls()

    @abstractmethod
    def _has(self, event: Event, name: str) -> bool:
        """Whether an event has a field, which may be null."""

    @abstractmethod
    def _operation(self, event: Event) -> str | None:
        """The operation of an event; None if it is null or missing."""

    @abstractmethod
    def _table(self, event: Event) -> str | None:
        """The full name of the table, or the collection, of an event."""

    @abstractmethod
    def _read(self, event: Event, name: str) -> Image | None:
        """The image `after` or `before`, of which the columns that are read; None for null."""

    def _is_whole(self, event: Event, old: Image, new: Image) -> bool:
        """Whether an old image, in which nothing is absent, has all columns of the new one."""
        return True

    def _is_row(self, event: Event, old: Image, key: bytes | None) -> bool:
        """Whether the image of a deleted row has more than its key, if the table has more."""
        return True

    def _changes(
        self, event: Event | None, key: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        """Decode an event, None for a null value."""
        if event is None:
            if not self._tables.all:
                return Ignored("tombstone")
            return self._keys.repeated(key, headers)
        if (op := self._operation(event)) is None:
            after, before = (
                self._read(event, name) is not None if self._has(event, name) else None
                for name in ("after", "before")
            )
            op = derived_operation(after=after, before=before, diffs=self._diffs)
        if op is None:
            return without_operation(partial(self._has, event))
        if op == "m":
            return Ignored("message")
        if not self._tables.all and not self._tables.has(self._table(event)):
            return Ignored("table")
        if op in ("c", "u", "r"):
            return self._upsert(event, key, headers, updates=op == "u")
        if op == "d":
            return self._delete(event, key, headers)
        if op == "t":
            return [Change("truncate")]
        name = self._op_name
        raise DecodeError(self._value, f'field "{name}" is none of c, u, r, d, t, m')

    def _upsert(
        self, event: Event, key: bytes | None, headers: Headers, *, updates: bool
    ) -> Sequence[Change]:
        new = self._read(event, "after")
        if new is None:
            raise DecodeError(VALUE, 'field "after" is null or missing')
        new_key = self._keys.of_row(new.row) if self._keyed else self._keys.needed(key, headers)
        if not updates:
            return [Change("upsert", new_key, self._write(new.row), None, new.absent)]
        old_key, before = new_key, None
        if (old := self._old(event)) is not None:
            if self._keyed:
                old_key = self._keys.of_row({**new.row, **old.row})
            if self._before and not old.absent and self._is_whole(event, old, new):
                before = self._write(old.row)
        return update_changes(old_key, new_key, self._write(new.row), before, new.absent)

    def _delete(self, event: Event, key: bytes | None, headers: Headers) -> Sequence[Change]:
        old, before = self._old(event), None
        old_key = self._keys.of_deleted(old.row if old else None, key, headers)
        if self._before and old is not None and not old.absent:
            before = self._write(old.row) if self._is_row(event, old, old_key) else None
        return [delete_changes(old_key, before)]

    def _old(self, event: Event) -> Image | None:
        return self._read(event, "before") if self._reads_old else None

    def _write(self, row: Row) -> bytes:
        """The canonical bytes of the columns that are read."""
        if self._picked is not None:
            row = {name: row[name] for name in self._picked if name in row}
        return canonical.write({**self._nulls, **row} if self._nulls else row)
