"""Decode the row images of change messages in JSON, and write them as canonical bytes.

An image is a JSON object of columns.  It stays undecoded (`msgspec.Raw`) until its table is
known to be selected.  Then only the columns that are read and those of the key are decoded if
both are known in advance, otherwise all.  Column names are case-sensitive.

A column that a full image lacks is left out of the row: it is not null, because the table did
not have the column yet.  If images need not be full, an image lacks the declared columns that
are not in it, read or not.
"""

# Decision (old images of updates only): What PostgreSQL sends of a deleted row looks whole and is
# not.

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.canonical import is_exact, object_of, require_readable
from ikebana.codecs.change import Change, DeclaredColumns, Headers, Ignored, Needs
from ikebana.codecs.column_encodings import bare_conversions, encodings
from ikebana.codecs.encodings import Convert
from ikebana.codecs.errors import DecodeError
from ikebana.errors import ConfigError

RowImage = dict[str, Any]
"""The values of columns, by name."""

_TOMBSTONE = Ignored("tombstone")
# No database has longer names of tables, with their schemas and catalogs.
_LONGEST_NAME = 1_000
_REMEMBERED = 64
NULL = msgspec.Raw(b"null")
"""A null image."""


class RowImages:
    """Decodes and writes the row images of one codec.

    With `minimal`, images need not be full: a row has only declared columns, and those that its
    image lacks are absent.  With `looks`, all declared columns are decoded, to see which of them
    an image has, although rows may have other columns.  With `nulls`, a declared column that an
    image lacks is null.  Without `exact`, images may have more columns than `names`, because the
    codec decodes them itself.
    """

    def __init__(
        self,
        codec: str,
        needs: Needs,
        *,
        minimal: bool = False,
        looks: bool = False,
        nulls: bool = False,
        exact: bool = True,
    ) -> None:
        self._codec = codec
        self._key = needs.key
        self._keyless = needs.diffs
        self.declared: DeclaredColumns = needs.declared
        """The declared columns, which determine what an image lacks."""
        to_look_for = self.declared.to_look_for() if minimal or looks else ()
        self._columns = needs.columns
        if needs.columns is None and minimal and to_look_for:
            self._columns = to_look_for
        self._nulls = needs.declared.nulls(needs.columns) if nulls else needs.nulls()
        self.names = None
        """The columns to decode of an image, None for all."""
        if self._columns is not None and needs.key:
            self.names = tuple(dict.fromkeys((*self._columns, *needs.key, *to_look_for)))
        self.key_names = needs.key or None
        """The columns to decode of an image if only the key is needed, None for all."""
        self.to_convert = None if self._columns is None else (*self._columns, *needs.key)
        """The columns with values that are used, None for all."""
        self._converts = {
            name: convert
            for name, convert in bare_conversions(encodings(needs.encodings)).items()
            if self.to_convert is None or name in self.to_convert
        }
        # Whether a decoded image has only columns that are read.
        self._only_read = self._columns is None or (
            exact
            and self.names is not None
            and set(self.names) == set(self._columns)
            and is_exact(dict.fromkeys(self.names))
        )
        self.read = self.decoder(self.type_of())
        self.names_of: Callable[[bytes | msgspec.Raw], RowImage] = canonical.decoder(
            dict[str, msgspec.Raw]
        )
        """Decodes an image only to see which columns it has."""
        self.read_key = self.decoder(
            object_of(self.key_names and dict.fromkeys(self.key_names, Any))
        )

    def decoder(self, kind: Any) -> Callable[[bytes | msgspec.Raw], RowImage]:
        """Make a decoder of images as a type, with the declared encodings of columns.

        It raises: `canonical.REFUSALS`, DecodeError.
        """
        decode: Callable[[bytes | msgspec.Raw], RowImage] = canonical.decoder(kind)
        return (lambda raw: self.converted(decode(raw))) if self._converts else decode

    def converted(self, image: RowImage) -> RowImage:
        """Convert the columns of an image that have a declared encoding, in place.

        Raises: DecodeError.
        """
        convert_columns(self._codec, image, self._converts.items())
        return image

    def is_encoded(self, name: str) -> bool:
        """Whether a column has a declared encoding."""
        return name in self._converts

    def type_of(self, *further: str) -> Any:
        """Make the type that an image is decoded as, with further columns."""
        if self.names is None:
            return dict[str, Any]
        read = {*(self.to_convert or ()), *further}
        return object_of({n: Any if n in read else msgspec.Raw for n in (*self.names, *further)})

    def key_columns(self, names: Sequence[str]) -> Sequence[str]:
        """Find the key's columns: the declared ones, else those that the message names.

        There may be none if rows need no key.

        Raises:
            DecodeError: there are none, and rows need a key.
        """
        columns = self._key or names
        if not (columns or self._keyless):
            raise DecodeError(self._codec, "it does not tell the key's columns: declare `key`")
        return columns

    def key(self, image: RowImage, columns: Sequence[str]) -> bytes | None:
        """Make the key of a row; None if rows need no key.

        Raises:
            DecodeError: the image lacks one of the key's columns.
        """
        if not columns:
            return None
        try:
            return canonical.key(image, columns)
        except KeyError:
            pass
        if not self._key:
            # The column's name comes from the message, so it is payload and not quoted.
            raise DecodeError(self._codec, "a column of the key is missing from the row")
        lacking = ", ".join(f"`{name}`" for name in columns if name not in image)
        raise DecodeError(self._codec, f"the row lacks {lacking} of the key")

    def row(self, image: RowImage) -> bytes:
        """Write a row with the columns of an image that are read."""
        if not self._only_read:
            image = {n: image[n] for n in self._columns or () if n in image}
        return canonical.write({**self._nulls, **image} if self._nulls else image)

    def shows_key_alone(self, names: Collection[str], key: Sequence[str]) -> bool:
        """Whether the image of a deleted row has only the key, in a table with more columns.

        Some sources log no more of it.  Declared columns say which columns the table has; without
        them it is taken to have more.

        Raises:
            DecodeError: no columns are declared, and nothing but the image retracts the row.
        """
        if self.declared:
            return self.declared.shows_key_alone(names, key)
        alone = {*names} <= {*key}
        if alone and names and self._keyless:
            reason = "the old image has only the key, and the table may have more: declare columns"
            raise DecodeError(self._codec, reason)
        return alone

    def readable_columns(self, names: Any) -> Sequence[str]:
        """Find the key's columns in a message with another fault; raises as decoding."""
        return self._key or self.key_columns(msgspec.convert(names or (), tuple[str, ...]))

    def readable_key(self, image: bytes | msgspec.Raw, names: Any) -> bytes | None:
        """Decode a row's key in a message with another fault; raises as decoding does."""
        return self.key(self.read_key(image), self.readable_columns(names))


def convert_columns(codec: str, row: RowImage, conversions: Iterable[tuple[str, Convert]]) -> None:
    """Convert columns of a row, in place; nulls stay.  Raises: DecodeError, of a column."""
    for name, convert in conversions:
        if (value := row.get(name)) is not None:
            try:
                row[name] = convert(value)
            except DecodeError as error:
                raise DecodeError(codec, f'column "{name}": {error.reason}') from None


class Tables:
    """Selects tables by their full names; messages have the parts of the names in `fields`.

    Raises:
        ConfigError: `tables` is no regular expression.
    """

    def __init__(self, codec: str, needs: Needs, *fields: str) -> None:
        self._codec = codec
        self._fields = fields
        self.all = needs.tables is None
        """Whether every table is selected."""
        try:
            match = re.compile(needs.tables or "").fullmatch
        except re.error as error:
            raise ConfigError(f"tables is no regular expression: {error}") from None
        self._selects = lru_cache(_REMEMBERED)(lambda name: match(name) is not None)

    def has(self, *parts: Any) -> bool:
        """Whether a table is selected, by the parts of its name.

        Raises:
            DecodeError: a part is missing, or is no text.
        """
        if self.all:
            return True
        for field, part in zip(self._fields, parts, strict=True):
            if not isinstance(part, str):
                raise DecodeError(self._codec, f"field `{field}` is missing")
        if len(name := ".".join(parts)) > _LONGEST_NAME:
            raise DecodeError(self._codec, "the table's name is too long")
        return self._selects(name)


def option(needs: Needs, name: str, *choices: str) -> str:
    """Find an option's value, which must be one of the choices; the first is the default.

    Raises:
        ConfigError: the value is none of the choices.
    """
    value = needs.options.get(name, choices[0])
    if value not in choices:
        raise ConfigError(
            f'option "{name}" is "{value}"', hint=f"set it to one of: {', '.join(choices)}"
        )
    return value


def are_minimal(needs: Needs) -> bool:
    """Whether images may lack columns that have not changed, by the option `row_image`.

    Raises:
        ConfigError: they may, and no declared columns show which ones they lack.
    """
    if option(needs, "row_image", "full", "minimal") == "full":
        return False
    if not needs.declared:
        raise ConfigError(
            'option "row_image" is "minimal", and no column is declared',
            hint="Declare the columns of the rows.",
        )
    return True


def delete_changes(key: bytes | None, before: bytes | None) -> Change:
    """Make the delete of a row."""
    return Change("delete", key, None, before, replaces=True)


def update_changes(
    old_key: bytes | None,
    key: bytes | None,
    after: bytes,
    before: bytes | None,
    absent: tuple[str, ...],
) -> list[Change]:
    """Make the changes of an update: an upsert, or if the key changes a delete and an upsert.

    If the key changes and the new image is partial, the absent columns are in the row of the old
    key.
    """
    if old_key == key:
        return [Change("upsert", key, after, before, absent, replaces=True)]
    return [delete_changes(old_key, before), Change("upsert", key, after, None, absent)]


def damaged_decoder(message: type[msgspec.Struct], *fields: str) -> Callable[[bytes], Any]:
    """Make a decoder of the fields that the row's key needs, if others are damaged."""
    parts: list[tuple[str, Any, Any]] = [
        (field.name, msgspec.Raw, field.default)
        if field.type is msgspec.Raw
        else (field.name, Any, None)
        for field in msgspec.structs.fields(message)
        if field.name in fields
    ]
    return canonical.decoder(msgspec.defstruct("Damaged", parts))


class RowImageCodec:
    """A codec of messages with row images, which have the row's key.

    The Kafka key says nothing: it may be another one, and it is the new one if a key changes.
    """

    name: ClassVar[str]
    """The name of the format in errors."""

    def __init__(self, needs: Needs, images: RowImages, *tables: str) -> None:
        """Make a codec of messages that have the parts of the table's name in `tables`."""
        self._images = images
        self._tables = Tables(self.name, needs, *tables)

    def key(self, key: bytes | None) -> bytes | None:
        """Return None: the key is in the value."""
        return None

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        """Decode a message into the changes of its rows, in their order.

        Raises:
            DecodeError: the message cannot be decoded; it has the row's key if that is readable.
        """
        if value is None:
            return _TOMBSTONE
        try:
            require_readable(value)
            return self._decode(value)
        except canonical.FAULTS as error:
            reason = canonical.decode_error(self.name, error).reason
        try:
            readable = self._readable_key(value)
        except canonical.FAULTS:
            readable = None
        raise DecodeError(self.name, reason, key=readable)

    def _decode(self, value: bytes) -> Sequence[Change] | Ignored:
        """Decode a message that is not null."""
        raise NotImplementedError

    def _readable_key(self, value: bytes) -> bytes | None:
        """The key of the one row of a message that cannot be decoded, if it is readable."""
        raise NotImplementedError
