"""Row images of change messages in JSON: what is read of them, and how it is written.

An image is a JSON object of columns.  It stays the bytes that it came as (`msgspec.Raw`)
until its table is known to be wanted.  Then only the columns that are read and those of the
key are decoded where both are declared, else all.  Names of columns count exactly as the
message has them, upper and lower case included.

A column that a full image lacks is left out of the row: it is not null, the table did not
have it yet.  What an image lacks that need not be full is told by the declared columns,
whether they are read or not: they are looked for, and their values stay as they are.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.change import Change, Declared, Ignored, Wanted
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.fields import is_exact, object_of
from ikebana.errors import ConfigError

Image = dict[str, Any]
"""Columns with their values."""

_ALL_THAT_FAILS = (*canonical.REFUSALS, DecodeError)
_TOMBSTONE = Ignored("tombstone")
NULL = msgspec.Raw(b"null")
"""What an image is that is there but is none."""


class RowImages:
    """Reads and writes the row images of one codec.

    With `minimal`, an image need not be full: its row has declared columns alone, and
    whichever of them it lacks are absent.  With `looks`, declared columns are looked for
    although rows may have others.  Unless `exact`, images may have been decoded by others
    than `read`.
    """

    def __init__(
        self,
        codec: str,
        wanted: Wanted,
        *,
        minimal: bool = False,
        looks: bool = False,
        exact: bool = True,
    ) -> None:
        self._codec = codec
        self._key = wanted.key
        self._keyless = wanted.diffs
        self.declared: Declared = wanted.declared
        """What says which columns an image lacks."""
        to_look_for = self.declared.to_look_for() if minimal or looks else ()
        self._columns = wanted.columns
        if wanted.columns is None and minimal and to_look_for:
            self._columns = to_look_for
        self.names = None
        """What is decoded of an image, None for all of it."""
        if self._columns is not None and wanted.key:
            self.names = tuple(dict.fromkeys((*self._columns, *wanted.key, *to_look_for)))
        self.key_names = wanted.key or None
        """What is decoded of an image of which only the key matters, None for all of it."""
        self.to_convert = None if self._columns is None else (*self._columns, *wanted.key)
        """The columns whose values anybody reads, None for all."""
        # Whether an image, as it is decoded, has nothing but columns that are read.
        self._only_read = self._columns is None or (
            exact
            and self.names is not None
            and set(self.names) == set(self._columns)
            and is_exact(dict.fromkeys(self.names))
        )
        self.read: Callable[[bytes | msgspec.Raw], Image] = canonical.decoder(self.type_of())
        self.read_key: Callable[[bytes | msgspec.Raw], Image] = canonical.decoder(
            object_of(self.key_names and dict.fromkeys(self.key_names, Any))
        )

    def type_of(self, *further: str) -> Any:
        """The type of an image as it is decoded, with further columns of it."""
        if self.names is None:
            return dict[str, Any]
        read = {*(self.to_convert or ()), *further}
        return object_of({n: Any if n in read else msgspec.Raw for n in (*self.names, *further)})

    def key_columns(self, told: Sequence[str]) -> Sequence[str]:
        """The key's columns: the declared ones, else those that the message tells.

        Where rows need no key there may be neither.

        Raises:
            DecodeError: there are neither.
        """
        columns = self._key or told
        if not (columns or self._keyless):
            raise DecodeError(self._codec, "it does not tell the key's columns: declare `key`")
        return columns

    def key(self, image: Image, columns: Sequence[str]) -> bytes | None:
        """The key of a row; None if it needs none.

        Raises:
            DecodeError: the image lacks one of the key's columns.
        """
        if not columns:
            return None
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
        """The columns that are read and that an image has, which `read` has given."""
        if self._only_read:
            return canonical.write(image)
        return canonical.write({n: image[n] for n in self._columns or () if n in image})

    def row_with_nulls(self, image: Image) -> bytes:
        """The same; a declared column that the image lacks is null."""
        row = self.declared.with_nulls(image)
        if self._columns is not None:
            row = {name: row[name] for name in self._columns if name in row}
        return canonical.write(row)

    def readable_columns(self, told: Any) -> Sequence[str]:
        """The key's columns in a message that is bad elsewhere; raises what reading does."""
        return self._key or self.key_columns(msgspec.convert(told or (), tuple[str, ...]))

    def readable_key(self, image: bytes | msgspec.Raw, told: Any) -> bytes | None:
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


def deleted(key: bytes | None, before: bytes | None) -> Change:
    """The end of a row."""
    return Change("delete", key, None, before, replaces=True)


def moved(
    old_key: bytes | None,
    key: bytes | None,
    after: bytes,
    before: bytes | None,
    absent: tuple[str, ...],
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
