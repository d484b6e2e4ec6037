"""Decode the changes of rows that the JSON formatter of Oracle GoldenGate writes.

These are operation-modelled messages: I and U upsert `after`, D removes the row of `before`, T
empties the table.  The options `op_insert`, `op_update`, `op_delete` and `op_truncate` set
other letters.  An update with another key in `before` than in `after` moves the row; a key
column that only one of them has is unchanged.

The key's columns are the declared ones, else `primary_keys`, which GoldenGate writes with
includePrimaryKeys.  If the key is not declared, all columns are decoded.

The option `row_image` is `minimal` (GoldenGate's default: updates carry the key and what
has changed, deletes the key), or `full` (NOCOMPRESSUPDATES and NOCOMPRESSDELETES, no
omitted nulls).  The first rule that applies determines the absent columns of a minimal update:

1. If columns are declared: the declared columns that `after` lacks.  Rows then have only
   declared columns.
2. If `after` has marks (`<column>_isMissing`): the marked columns.  GoldenGate marks all columns
   or none.
3. If `before` has all columns of `after` and more: the others.

If none applies, more columns may be absent, and the message is refused; the remedy is to declare
columns, or to set `row_image` to `full`.  A marked column is absent (in `before`: unknown) in
every image.  Changes have `before` if images are full.  A minimal image counts if it has every
declared column; or, if none are declared, if no mark in it is true, or by rule 3.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.change import Change, Ignored, Needs
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.row_images import (
    NULL,
    RowImage,
    RowImageCodec,
    RowImages,
    damaged_decoder,
    delete_changes,
    option,
    update_changes,
)
from ikebana.errors import ConfigError

_NAME = "GoldenGate"
_MARK = "_isMissing"
_MARK_BYTES = _MARK.encode()
_LETTERS = {"insert": "I", "update": "U", "delete": "D", "truncate": "T"}


class _Message(msgspec.Struct, gc=False):
    op_type: str
    table: str | None = None
    primary_keys: tuple[str, ...] | None = None
    before: msgspec.Raw = NULL
    after: msgspec.Raw = NULL


_message = canonical.decoder(_Message)
_damaged = damaged_decoder(_Message, "table", "primary_keys", "before", "after")


class GoldenGate(RowImageCodec):
    """Decodes GoldenGate's messages.

    Raises:
        ConfigError: an option has a value that is not one of its choices.
    """

    name = _NAME

    def __init__(self, needs: Needs) -> None:
        self._full = option(needs, "row_image", "minimal", "full") == "full"
        images = RowImages(_NAME, needs, minimal=not self._full, exact=False)
        super().__init__(needs, images, "table")
        self._before = needs.before
        self._operations = {
            needs.options.get(f"op_{name}", letter): name for name, letter in _LETTERS.items()
        }
        if len(self._operations) < len(_LETTERS):
            raise ConfigError("two operations of GoldenGate have the same letter")
        # Without declared columns and full images, the columns of both images show what is absent
        # from `after`, so all are decoded.
        knows_columns = self._full or bool(needs.declared)
        self._read_all = images.decoder(dict[str, Any])
        self._read = images.read if knows_columns else self._read_all
        self._read_old = self._read if needs.before or not knows_columns else images.read_key

    def _decode(self, value: bytes) -> Sequence[Change] | Ignored:
        message = _message(value)
        if not self._tables.all and not self._tables.has(message.table):
            return Ignored("table")
        operation = self._operations.get(message.op_type)
        if operation is None:
            raise DecodeError(_NAME, "field `op_type` is none of the operations")
        if operation == "truncate":
            return [Change("truncate")]
        images = self._images
        names = images.key_columns(message.primary_keys or ())
        # Marks double the columns to decode, so they are decoded only if there are any.
        marked = _MARK_BYTES in value
        before, not_before = self._image(message.before, self._read_old, marked=marked)
        if operation == "delete":
            if before is None:
                raise DecodeError(_NAME, "field `before` is missing")
            # Whole updates (NOCOMPRESSUPDATES) do not make deletes whole (NOCOMPRESSDELETES).
            key_alone = images.shows_key_alone(images.names_of(message.before), names)
            old = None if key_alone else self._old(before, not_before)
            return [delete_changes(images.key(before, names), old)]
        after, not_after = self._image(message.after, self._read, marked=marked)
        if after is None:
            raise DecodeError(_NAME, "field `after` is missing")
        if operation == "insert":
            row = images.row(after)
            return [Change("upsert", images.key(after, names), row, None, not_after or ())]
        before = before or {}
        key = images.key({**before, **after}, names)
        old_key = images.key({**after, **before}, names) if before else key
        absent = self._absent(before, after, not_after)
        old = self._old(before, not_before, more_than=after)
        return update_changes(old_key, key, images.row(after), old, absent)

    def _image(
        self, raw: msgspec.Raw, read: Callable[[msgspec.Raw], RowImage], *, marked: bool
    ) -> tuple[RowImage | None, tuple[str, ...] | None]:
        """Split an image into its columns and the marked ones, None if there are no marks."""
        if raw == NULL:
            return None, None
        if not marked:
            return read(raw), None
        image: RowImage = self._read_all(raw)
        marks = [
            name
            for name, value in image.items()
            if name.endswith(_MARK)
            and isinstance(value, bool)
            and self._images.declared.type_of(name) is None
        ]
        missing = tuple(name.removesuffix(_MARK) for name in marks if image[name])
        gone = {*marks, *missing}
        row = {name: value for name, value in image.items() if name not in gone}
        return row, missing if marks else None

    def _absent(
        self, before: RowImage, after: RowImage, marked: tuple[str, ...] | None
    ) -> tuple[str, ...]:
        if self._images.declared and not self._full:
            return self._images.declared.absent(after)
        if self._full or marked is not None:
            return marked or ()
        if before.keys() > after.keys():
            return tuple(name for name in before if name not in after)
        raise DecodeError(
            _NAME, "it cannot be told which columns it leaves out: declare columns, or row_image"
        )

    def _old(
        self, before: RowImage, marked: tuple[str, ...] | None, more_than: RowImage | None = None
    ) -> bytes | None:
        if not self._before or not before or marked:
            return None
        if self._full:
            whole = True
        elif self._images.declared:
            whole = not self._images.declared.absent(before)
        else:
            more = more_than is not None and before.keys() > more_than.keys()
            whole = marked is not None or more
        return self._images.row(before) if whole else None

    def _readable_key(self, value: bytes) -> bytes | None:
        message = _damaged(value)
        if not self._tables.has(message.table):
            return None
        image = message.before if message.after == NULL else message.after
        return self._images.readable_key(image, message.primary_keys)
