"""Plain keyed upserts: `json`, compared as data, and `bytes`, compared as they are.

Both have the key in the Kafka key and the value in the Kafka value; a null value is a
delete.  With wanted columns, a JSON object is an object of these fields alone, and what
is no object is one without fields.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from ikebana.codecs import canonical
from ikebana.codecs.change import Change, Headers, Wanted
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.fields import projection

PlainFormat = Literal["json", "bytes"]


class Plain:
    """Decodes keys and values that stand for themselves."""

    def __init__(self, key_format: PlainFormat, value_format: PlainFormat, wanted: Wanted) -> None:
        self._raw_key = key_format == "bytes"
        self._raw_value = value_format == "bytes"
        self._value: Callable[[bytes], bytes] = bytes
        if value_format == "json":
            self._value = (
                canonical.canonical if wanted.columns is None else projection(wanted.columns)
            )

    def key(self, key: bytes | None) -> bytes | None:
        """The canonical key.  Raises: DecodeError, also if there is none."""
        if key is None:
            raise DecodeError("key", "it is null")
        if self._raw_key:
            return key
        try:
            return canonical.canonical(key)
        except DecodeError as error:
            raise DecodeError("key as JSON", error.reason) from None

    def keys(self, keys: Sequence[bytes | None]) -> list[bytes]:
        """`key` of each.  Raises: DecodeError, if any of them is at fault."""
        if None in keys:
            raise DecodeError("key", "it is null")
        if self._raw_key:
            return keys  # type: ignore[return-value]
        return canonical.canonical_many(keys)  # type: ignore[arg-type]

    def values(self, values: Sequence[bytes | None]) -> list[bytes | None]:
        """The canonical values.  Raises: DecodeError, if any of them is at fault."""
        if self._raw_value:
            return values  # type: ignore[return-value]
        decode = self._value
        return [None if value is None else decode(value) for value in values]

    def changes(self, key: bytes | None, value: bytes | None, headers: Headers) -> list[Change]:
        """One upsert, or one delete."""
        decoded = self.key(key)
        if value is None:
            return [Change("delete", decoded)]
        try:
            return [Change("upsert", decoded, self._value(value))]
        except DecodeError as error:
            raise DecodeError("value as JSON", error.reason, key=decoded) from None
