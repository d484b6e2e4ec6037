"""Rows and keys in Debezium's JSON: the columns to read, unavailable values, the row's key.

A column with the placeholder of an unavailable value (a text, base64, a map or an
array) is absent from its row, whether it is read or not.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Raw

from ikebana.codecs import canonical
from ikebana.codecs.canonical import is_exact, object_of
from ikebana.codecs.change import Change, Headers, Ignored, Needs
from ikebana.codecs.column_encodings import Schema, bare, encodings, of_columns
from ikebana.codecs.connect_json import Opening, PayloadPlan
from ikebana.codecs.encodings import Convert, of_extended_json
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.row_images import require_bounded
from ikebana.codecs.unavailable import PLACEHOLDER, Unavailable

try:
    from ikebana.compiled._json_text import Canonical
except ImportError:
    Canonical = None  # type: ignore[assignment,misc]

Row = dict[str, Any]

KEY, VALUE = "Debezium key", "Debezium value"
FAULTS = (DecodeError, *canonical.REFUSALS)

_REMEMBERED = 64
_IDENTIFIER = "_id"
"""The field that identifies a document of MongoDB."""


def convert_columns(row: Row, plan: PayloadPlan) -> None:
    """Convert the columns of a row that the plan names, in place."""
    for name, convert in plan:
        if (value := row.get(name)) is not None:
            try:
                row[name] = convert(value)
            except DecodeError as error:
                raise DecodeError(VALUE, f'column "{name}": {error.reason}') from None


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
        self.bare = self._plan(bare(self._declared))
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
        absent = self._taken_out(row) if careful else ()
        if self._columns is not None and (careful or not self._exact):
            row = {name: row[name] for name in row if name in self._columns}
        convert_columns(row, plan)
        return Image(row, absent, document)

    def names(self, raw: Raw) -> AbstractSet[str]:
        """List the names of all columns of a row that is no document."""
        columns: dict[str, Raw] = self._names(raw)
        return columns.keys()

    def _taken_out(self, row: Row) -> tuple[str, ...]:
        """Remove unavailable values from a row, and return their names."""
        is_one = self._unavailable.is_one
        absent = tuple(name for name, value in row.items() if is_one(value))
        for name in absent:
            del row[name]
        return absent


class KeyDecoder:
    """Makes the keys of rows from the Kafka key, or from the columns that the input names.

    `decode` returns the data of a Kafka key.  `quick` returns the canonical bytes of a usual key
    in a tuple, None in it for a null; or None if the key has to be decoded.  Both may raise
    `FAULTS`.
    """

    def __init__(
        self,
        needs: Needs,
        quick: Callable[[bytes, Headers], tuple[bytes | None, ...] | None],
        decode: Callable[[bytes, Headers], Any],
    ) -> None:
        self.columns = needs.key
        self._may_lack = needs.diffs
        self._quick, self._decode = quick, decode

    def of_kafka(self, key: bytes | None, headers: Headers = None) -> bytes | None:
        """Decode the row's key from the Kafka key; None if that lacks it."""
        if key is None:
            return None
        try:
            if (usual := self._quick(key, headers)) is not None:
                return usual[0]
            data = self._decode(key, headers)
            if data is None:
                return None
            if not self.columns:
                return canonical.write(data)
            # Other writers than Debezium write a key of one column as a value without its
            # name.
            row = data if isinstance(data, dict) else {}
            return self.of_row(row) if all(name in row for name in self.columns) else None
        except FAULTS as error:
            raise DecodeError(KEY, canonical.refused(KEY, error).reason) from None

    def of_row(self, row: Row) -> bytes:
        """Make the key from the columns of a row."""
        try:
            return canonical.key(row, self.columns)
        except KeyError as error:
            raise DecodeError(VALUE, f'key column "{error.args[0]}" is missing') from None

    def needed(self, key: bytes | None, headers: Headers = None) -> bytes | None:
        """Decode the row's key from the Kafka key, which must have it if rows need a key."""
        row_key = self.of_kafka(key, headers)
        if row_key is None and (self.columns or not self._may_lack):
            raise DecodeError(KEY, "the Kafka key is null, or lacks the key's columns")
        return row_key

    def tombstone(self, key: bytes | None, headers: Headers = None) -> Sequence[Change] | Ignored:
        """Decode a null value: a delete of its key, or ignored if the key is not known."""
        row_key = self.of_kafka(key, headers)
        return Ignored("tombstone") if row_key is None else [Change("delete", row_key)]


def keys_in_json(needs: Needs) -> KeyDecoder:
    """Make the `KeyDecoder` for Kafka keys in JSON."""
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
        if text is None or (written := text(key)) is None:
            return None
        return (written,) if written[:1] == b"{" and not may_be_encoded(written) else None

    def decode(key: bytes, _: Headers) -> Any:
        data, plan = opening.open(key)
        if isinstance(data, dict):
            if is_of_documents and data.keys() == {"id"} and isinstance(data["id"], str):
                return {_IDENTIFIER: of_extended_json(document(data["id"].encode()))}
            convert_columns(data, plan)
        return data

    return KeyDecoder(needs, quick, decode)


def without_operation(has: Callable[[str], bool], row: Any) -> Ignored:
    """Classify a message without an operation, by the fields that it has, and its row if any."""
    if has("status") and has("id") and not row:
        return Ignored("transaction")
    if (has("ddl") or has("tableChanges")) and not row:
        return Ignored("ddl")
    if has("ts_ms") and not has("source") and not row:
        return Ignored("heartbeat")
    raise DecodeError(VALUE, 'field "op" is missing')


class DebeziumTables:
    """Tests whether the input selects a table."""

    def __init__(self, pattern: str) -> None:
        matches = re.compile(pattern).fullmatch
        self._selects = lru_cache(_REMEMBERED)(lambda name: matches(name) is not None)

    def selects(self, *parts: str | None) -> bool:
        """Whether the table of these parts is selected; the last part is its own name."""
        if not parts[-1]:
            raise DecodeError(VALUE, "the table's name is missing")
        return self._selects(require_bounded(VALUE, ".".join(part for part in parts if part)))
