"""Decode keyed upserts: the Kafka key is the row's key, the value the row; null is a delete.

Plain ones are `json`, compared as data, and `bytes`, compared byte by byte.  If only some columns
are read, a JSON object keeps only these fields, and any other JSON value becomes an object without
fields.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from ikebana.codecs import canonical
from ikebana.codecs.canonical import projection
from ikebana.codecs.change import Change, Headers, Needs
from ikebana.codecs.column_encodings import bare_conversions, encodings
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.keys import DataDecoder
from ikebana.codecs.row_images import convert_columns

try:
    from ikebana.compiled._json_text import Canonical
except ImportError:
    Canonical = None  # type: ignore[assignment,misc]

PlainFormat = Literal["json", "bytes"]

_decode = canonical.decoder(Any)


class Plain:
    """Decodes messages with the row's key and value as Kafka key and value.

    >>> [change] = Plain("json", "json", Needs()).changes(b"1", b'{"b": 1.0, "a": 2}', None)
    >>> change.kind, change.key, change.after
    ('upsert', b'1', b'{"a":2,"b":1}')
    """

    def __init__(self, key_format: PlainFormat, value_format: PlainFormat, needs: Needs) -> None:
        self._raw_key = key_format == "bytes"
        self._raw_value = value_format == "bytes"
        # Each caches the names of the last object.
        self._keys, self._values = _canonical_many(), _canonical_many()
        self._whole = needs.columns is None and not needs.encodings
        self._value: Callable[[bytes], bytes] = bytes
        if value_format == "json":
            value = canonical.canonical if needs.columns is None else projection(needs.columns)
            self._value = _encoded(value, needs) if needs.encodings else value

    def key(self, key: bytes | None) -> bytes | None:
        """Decode a key to canonical bytes.  Raises: DecodeError, also if there is no key."""
        if key is None:
            raise DecodeError("key", "it is null")
        if self._raw_key:
            return key
        try:
            return canonical.canonical(key)
        except DecodeError as error:
            raise DecodeError("key as JSON", error.reason) from None

    def keys(self, keys: Sequence[bytes | None]) -> list[bytes]:
        """Decode keys as `key` does.  Raises: DecodeError, if one cannot be decoded."""
        if None in keys:
            raise DecodeError("key", "it is null")
        if self._raw_key:
            return keys  # type: ignore[return-value]
        return self._keys(keys)  # type: ignore[arg-type]

    def values(self, values: Sequence[bytes | None]) -> list[bytes | None]:
        """Decode values to canonical bytes.  Raises: DecodeError, if one cannot be decoded."""
        if self._raw_value:
            return values  # type: ignore[return-value]
        if self._whole:
            if None not in values:
                return self._values(values)  # type: ignore[arg-type, return-value]
            texts = iter(self._values([v for v in values if v is not None]))
            return [None if value is None else next(texts) for value in values]
        decode = self._value
        return [None if value is None else decode(value) for value in values]

    def changes(self, key: bytes | None, value: bytes | None, headers: Headers) -> list[Change]:
        """Decode a message into one upsert or one delete."""
        decoded = self.key(key)
        if value is None:
            return [Change("delete", decoded)]
        return [self._row(decoded, value)]

    def row(self, value: bytes, headers: Headers) -> Change:
        """Decode a row that needs no key, and has none."""
        return self._row(None, value)

    def _row(self, key: bytes | None, value: bytes) -> Change:
        try:
            return Change("upsert", key, self._value(value))
        except DecodeError as error:
            raise DecodeError("value as JSON", error.reason, key=key) from None


def _canonical_many() -> Callable[[Sequence[bytes]], list[bytes]]:
    if Canonical is None:
        return canonical.canonical_many
    texts = Canonical().texts
    return lambda messages: texts(messages, canonical.canonical)  # type: ignore[return-value]


def _encoded(value: Callable[[bytes], bytes], needs: Needs) -> Callable[[bytes], bytes]:
    """A decoder of a row by `value`, and then of its columns by their declared encodings."""
    declared = bare_conversions(encodings(needs.encodings)).items()

    def decode(message: bytes) -> bytes:
        row = _decode(text := value(message))
        if not isinstance(row, dict):
            return text
        convert_columns("JSON", row, declared)
        return canonical.write(row)

    return decode


class KeyedUpserts:
    """Decodes keyed upserts by the schemas of a registry; `needs.key` has the key columns.

    If there are any, the key is in the row, and only the key of a delete is taken from the Kafka
    key.  A key in JSON may be any data; a key in bytes is taken as it is.  Keys and values may
    need the headers of their message.

    `parts` of `keys` begins with the key, and `parts` of `values` is the row, and its key.
    """

    def __init__(
        self, encoding: str, needs: Needs, key_format: str, keys: DataDecoder, values: DataDecoder
    ) -> None:
        self._columns, self._key_columns = needs.columns, needs.key
        self._codec = f"{encoding} value"
        self._key_codec = _KEYS.get(key_format, f"{encoding} key")
        self._raw_key = key_format == "bytes"
        self._keys = _JSON_KEYS if key_format == "json" else keys
        self._values = values

    def key(self, key: bytes | None) -> bytes | None:
        """Decode a Kafka key to the key of a row; None if its columns have it."""
        return None if self._key_columns else self._of_kafka(key, None)

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change]:
        """Decode a message into one upsert or one delete.  Raises: DecodeError."""
        headers = list(headers) if headers else None
        row_key = None if self._key_columns and value is not None else self._of_kafka(key, headers)
        if value is None:
            return [Change("delete", row_key)]
        return [self._row(row_key, value, headers)]

    def row(self, value: bytes, headers: Headers) -> Change:
        """Decode a row that needs no key, except one from its columns.  Raises: DecodeError."""
        return self._row(None, value, list(headers) if headers else None)

    def _row(self, row_key: bytes | None, value: bytes, headers: Headers) -> Change:
        """Decode a row with the key of its message, unless its columns have the key."""
        if (parts := self._values.parts(value, headers)) and (image := parts[0]) is not None:
            return Change("upsert", parts[1] if self._key_columns else row_key, image)
        try:
            row = self._values.decode(value, headers)
            if self._key_columns:
                row_key = self._key_of(row, self._codec)
            if self._columns is not None:
                if not isinstance(row, dict):
                    raise DecodeError(self._codec, "expected a record")
                row = {name: row[name] for name in self._columns if name in row}
            return Change("upsert", row_key, canonical.write(row))
        except canonical.FAULTS as error:
            fault = canonical.decode_error(self._codec, error)
            raise DecodeError(fault.codec, fault.reason, key=row_key) from None

    def _of_kafka(self, key: bytes | None, headers: Headers) -> bytes:
        if key is None:
            raise DecodeError(self._key_codec, "it is null")
        if self._raw_key:
            return key
        if (parts := self._keys.parts(key, headers)) and parts[0] is not None:
            return parts[0]
        try:
            data = self._keys.decode(key, headers)
        except canonical.REFUSALS as error:
            raise canonical.decode_error(self._key_codec, error) from None
        return self._key_of(data, self._key_codec) if self._key_columns else canonical.write(data)

    def _key_of(self, row: Any, codec: str) -> bytes:
        if not isinstance(row, dict):
            raise DecodeError(codec, "expected a record")
        if lacking := [f"`{name}`" for name in self._key_columns if name not in row]:
            raise DecodeError(codec, f"it lacks {', '.join(lacking)} of the key")
        return canonical.key(row, self._key_columns)


_KEYS = {"json": "JSON key", "bytes": "key"}
_JSON_KEYS = DataDecoder(lambda key, _: _decode(key))
