"""Row images of change messages in JSON: what is read of them, and how it is written.

An image is a JSON object of columns.  It stays the bytes that it came as (`msgspec.Raw`)
until its table is known to be wanted.  Then only the wanted columns and those of the key
are decoded where both are declared, else all.  Names of columns count exactly as the
message has them, upper and lower case included.

A wanted column that a full image lacks is left out of the row: it is not null, the table
did not have it yet.  An image is the full row only if it has every declared column.
"""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypedDict, cast

import msgspec

from ikebana.arrangements.errors import ConfigError
from ikebana.codecs import canonical
from ikebana.codecs.change import Change, Ignored, Wanted
from ikebana.codecs.errors import DecodeError

Image = dict[str, Any]
"""Columns with their values."""

_ALL_THAT_FAILS = (*canonical.REFUSALS, DecodeError)
_TOMBSTONE = Ignored("tombstone")
NULL = msgspec.Raw(b"null")
"""What an image is that is there but is none."""


def kind(names: Collection[str] | None, value: Any = Any) -> Any:
    """The type of an image of which only the named columns are decoded; None for all."""
    # msgspec does not find names in a TypedDict that are not ASCII.
    if names is None or not all(map(str.isascii, names)):
        return dict[str, value]
    return cast(Any, TypedDict)("Image", dict.fromkeys(names, value), total=False)


class RowImages:
    """Reads and writes the row images of one codec."""

    def __init__(self, codec: str, wanted: Wanted) -> None:
        self._codec = codec
        self.columns = wanted.columns
        """The declared columns, None if there are none."""
        self._key = wanted.key
        self.names = (
            None
            if wanted.columns is None or not wanted.key
            else tuple(dict.fromkeys(wanted.columns + wanted.key))
        )
        """What is decoded of an image, None for all of it."""
        self.key_names = wanted.key or None
        """What is decoded of an image of which only the key matters, None for all of it."""
        # Whether an image, as it is decoded, has nothing but wanted columns.
        self._only_wanted = wanted.columns is None or (
            self.names is not None
            and set(self.names) == set(wanted.columns)
            and kind(self.names) != dict[str, Any]
        )
        self.read: Callable[[bytes | msgspec.Raw], Image] = canonical.decoder(kind(self.names))
        self.read_key: Callable[[bytes | msgspec.Raw], Image] = canonical.decoder(
            kind(self.key_names)
        )

    def key_columns(self, told: Sequence[str]) -> Sequence[str]:
        """The key's columns: the declared ones, else those that the message tells.

        Raises:
            DecodeError: there are neither.
        """
        columns = self._key or told
        if not columns:
            raise DecodeError(self._codec, "it does not tell the key's columns: declare `key`")
        return columns

    def key(self, image: Image, columns: Sequence[str]) -> bytes:
        """The key of a row.

        Raises:
            DecodeError: the image lacks one of the key's columns.
        """
        try:
            return canonical.write({name: image[name] for name in columns})
        except KeyError:
            pass
        if not self._key:
            # What the message says is payload, be it the name of a column.
            raise DecodeError(self._codec, "a column of the key is missing from the row")
        lacking = ", ".join(f"`{name}`" for name in columns if name not in image)
        raise DecodeError(self._codec, f"the row lacks {lacking} of the key")

    def row(self, image: Image) -> bytes:
        """The wanted columns that an image has, which `read` has given."""
        if self._only_wanted:
            return canonical.write(image)
        return canonical.write({n: image[n] for n in self.columns or () if n in image})

    def row_with_nulls(self, image: Image) -> bytes:
        """The wanted columns; one that the image lacks is null."""
        if self.columns is None:
            return canonical.write(image)
        return canonical.write({name: image.get(name) for name in self.columns})

    def absent(self, image: Image) -> tuple[str, ...]:
        """The declared columns that the image lacks."""
        return tuple(name for name in self.columns or () if name not in image)

    def full_row(self, image: Image) -> bytes | None:
        """The wanted columns, None if the image lacks a declared one."""
        return None if self.absent(image) else self.row(image)

    def readable_columns(self, told: Any) -> Sequence[str]:
        """The key's columns in a message that is bad elsewhere; raises what reading does."""
        return self._key or self.key_columns(msgspec.convert(told or (), tuple[str, ...]))

    def readable_key(self, image: bytes | msgspec.Raw, told: Any) -> bytes:
        """The key of a row in a message that is bad elsewhere; raises what reading does."""
        return self.key(self.read_key(image), self.readable_columns(told))


class Tables:
    """Tells the wanted tables by their full names, which messages have in these fields.

    Raises:
        ConfigError: `tables` is no regular expression.
    """

    def __init__(self, codec: str, wanted: Wanted, *fields: str) -> None:
        self._codec = codec
        self._fields = fields
        self.all = wanted.tables is None
        """Whether names need not even be looked at."""
        try:
            self._match = re.compile(wanted.tables or "").fullmatch
        except re.error as error:
            raise ConfigError(f"tables is no regular expression: {error}") from None

    def has(self, *parts: Any) -> bool:
        """Whether a table is wanted, by the parts of its name.

        Raises:
            DecodeError: one of them is missing, or is no text.
        """
        if self.all:
            return True
        for field, part in zip(self._fields, parts, strict=True):
            if not isinstance(part, str):
                raise DecodeError(self._codec, f"field `{field}` is missing")
        return self._match(".".join(parts)) is not None


def option(wanted: Wanted, name: str, *choices: str) -> str:
    """The option's value, one of the choices; the first one unless it is set.

    Raises:
        ConfigError: it is none of them.
    """
    value = wanted.options.get(name, choices[0])
    if value not in choices:
        raise ConfigError(
            f'option "{name}" is "{value}"', hint=f"set it to one of: {', '.join(choices)}"
        )
    return value


def deleted(key: bytes, before: bytes | None) -> Change:
    """The end of a row."""
    return Change("delete", key, None, before, replaces=True)


def moved(
    old_key: bytes, key: bytes, after: bytes, before: bytes | None, absent: tuple[str, ...]
) -> list[Change]:
    """An update: of one row, or from one key to another.

    Of a row that moves with a partial image, what is absent stands in the old key's row.
    """
    if old_key == key:
        return [Change("upsert", key, after, before, absent, replaces=True)]
    return [deleted(old_key, before), Change("upsert", key, after, None, absent)]


def changes_or_refusal(
    codec: str,
    value: bytes | None,
    decode: Callable[[bytes], Sequence[Change] | Ignored],
    readable_key: Callable[[bytes], bytes | None],
) -> Sequence[Change] | Ignored:
    """Decode a message; whatever fails is refused with the row's key, if that is readable.

    Raises:
        DecodeError: decoding has failed.
    """
    if value is None:
        return _TOMBSTONE
    try:
        return decode(value)
    except _ALL_THAT_FAILS as error:
        reason = canonical.refused(codec, error).reason
    try:
        key = readable_key(value)
    except _ALL_THAT_FAILS:
        key = None
    raise DecodeError(codec, reason, key=key)
