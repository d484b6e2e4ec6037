"""Decode the changes of rows that AWS Database Migration Service (DMS) writes to Kafka.

load, insert and update upsert `data`; delete removes its row.  Of the control records,
truncate-table empties the table, and the others, drop-table too, are DDL.  DMS writes no
tombstones.  Its data records never name the key's columns, so the key has to be declared.

DMS leaves out null columns unless IncludeNullAndEmpty is set.  So `data` is taken as the whole
row, and a declared column that it lacks is null; otherwise an update to null would be lost.
(The source has to log whole rows, as DMS requires; columns that it does not log would be null
too.)  If no columns are declared, the row has the columns of `data`.  The old row of a delete
is read in the same way, unless `data` has only the key: then the source has not logged the
whole row, and `before` is None.

A changed key shows only in the old image.  Options say where that is:

* `before_image`: the field that has it as an object (BeforeImageSettings), by default
  `before-image`.
* `before_prefix`: the prefix, such as `BI_`, of the columns in `data` that have it
  (add-before-image-columns).  There is none by default, because a column of the table may
  begin with it.
* `before_filter`: `all` if DMS's ColumnFilter is `all`.  Only then a column that the old image
  lacks was certainly null.  Otherwise (`pk-only`, DMS's default, and `non-lob`) changes have
  `before` only if columns are declared and the old image has all of them.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.canonical import fit_a_struct
from ikebana.codecs.change import Change, Ignored, Needs
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.row_images import (
    NULL,
    RowImage,
    RowImageCodec,
    RowImages,
    delete_changes,
    option,
    update_changes,
)
from ikebana.errors import ConfigError

_NAME = "DMS"
_UPSERTS = frozenset({"load", "insert", "update"})


class _Metadata(msgspec.Struct, gc=False, rename="kebab"):
    record_type: str
    operation: str
    schema_name: str | None = None
    table_name: str | None = None


class _BadMetadata(msgspec.Struct, rename="kebab"):
    """The part of the metadata that names the table, if the rest is damaged."""

    schema_name: Any = None
    table_name: Any = None


class Dms(RowImageCodec):
    """Decodes the messages of AWS DMS.

    Raises:
        ConfigError: an option has a value that is not one of its choices.
    """

    name = _NAME

    def __init__(self, needs: Needs) -> None:
        self._all = option(needs, "before_filter", "pk-only", "non-lob", "all") == "all"
        # All declared columns are decoded, to see which of them an old image lacks.
        looks = needs.before and not self._all
        images = RowImages(_NAME, needs, exact=not looks, looks=looks, nulls=True)
        super().__init__(needs, images, "schema-name", "table-name")
        self._prefix = needs.options.get("before_prefix", "")
        self._key = needs.key
        self._before = needs.before
        old = images.names if needs.before else needs.key
        prefixed = [self._prefix + name for name in old or ()] if self._prefix else []
        self._read = canonical.decoder(images.type_of(*prefixed))
        self._read_old = images.read if needs.before else images.read_key
        field = needs.options.get("before_image", "before-image")
        self._message = canonical.decoder(_message_with(field, _Metadata))
        self._bad_message = canonical.decoder(_message_with(field, _BadMetadata))

    def _decode(self, value: bytes) -> Sequence[Change] | Ignored:
        message = self._message(value)
        metadata = message.metadata
        control = metadata.record_type == "control"
        if control and metadata.operation not in ("truncate-table", "drop-table"):
            return Ignored("ddl")
        if not self._tables.all and not self._tables.has(
            metadata.schema_name, metadata.table_name
        ):
            return Ignored("table")
        if control:
            dropped = metadata.operation == "drop-table"
            return Ignored("dropped table") if dropped else [Change("truncate")]
        if metadata.record_type != "data":
            raise DecodeError(_NAME, "field `record-type` is neither data nor control")
        operation = metadata.operation
        if operation not in _UPSERTS and operation != "delete":
            raise DecodeError(_NAME, "field `operation` is none of those of data records")
        if not message.data:
            raise DecodeError(_NAME, "field `data` is missing")
        images = self._images
        names = images.key_columns(())
        data, old = self._without_old(self._read(message.data))
        data, old = images.converted(data), images.converted(old)
        if message.before != NULL:
            old = {**old, **self._read_old(message.before)}
        if operation == "delete":
            # Both the old image and `data` may have only the key.
            row = {**data, **old}
            before = self._old_row(old) or self._deleted_row(data, message.data)
            return [delete_changes(images.key(row, names), before)]
        key = images.key(data, names)
        after = images.row(data)
        if operation != "update":
            return [Change("upsert", key, after)]
        old_key = key if old.keys().isdisjoint(names) else images.key({**data, **old}, names)
        return update_changes(old_key, key, after, self._old_row(old), ())

    def _without_old(self, data: RowImage) -> tuple[RowImage, RowImage]:
        """Split `data` into the columns of the row, and the old ones, by their prefix."""
        prefix = self._prefix
        row: RowImage = {}
        old: RowImage = {}
        if not prefix:
            return data, old
        for name, value in data.items():
            if self._is_old(name):
                old[name.removeprefix(prefix)] = value
            else:
                row[name] = value
        return row, old

    def _old_row(self, old: RowImage) -> bytes | None:
        if not self._before or not old:
            return None
        declared = self._images.declared
        whole = self._all or (bool(declared) and not declared.absent(old))
        return self._images.row(old) if whole else None

    def _deleted_row(self, data: RowImage, raw: msgspec.Raw) -> bytes | None:
        if not self._before:
            return None
        there = [name for name in self._images.names_of(raw) if not self._is_old(name)]
        key_alone = self._images.shows_key_alone(there, self._key)
        return None if key_alone else self._images.row(data)

    def _is_old(self, name: str) -> bool:
        return bool(self._prefix) and name.startswith(self._prefix)

    def _readable_key(self, value: bytes) -> bytes | None:
        message = self._bad_message(value)
        metadata = message.metadata
        if not self._tables.has(metadata.schema_name, metadata.table_name):
            return None
        return self._images.readable_key(message.data, ())


def _message_with(before_image: str, metadata: type[msgspec.Struct]) -> Any:
    """Make the type of a message; DMS's settings name the field of its old image."""
    if before_image in ("data", "metadata", "control") or not fit_a_struct([before_image]):
        raise ConfigError(f'option "before_image" is "{before_image}", which it cannot be')
    return msgspec.defstruct(
        "Message",
        [
            ("metadata", metadata),
            ("data", msgspec.Raw, msgspec.Raw()),
            ("before", msgspec.Raw, NULL),
        ],
        rename={"before": before_image},
    )
