"""Decode the changes of rows that Maxwell writes (MySQL).

insert, update and bootstrap-insert upsert `data`; delete removes its row.  `old` has the old
values of the columns that an update changed, so the old row is `data` overlaid with `old`.  An
update with a key column in `old` moves the row.  Maxwell writes no tombstones, and no event
for a truncate.

The key's columns are the declared ones, else `primary_key_columns`, which Maxwell writes with
`output_primary_key_columns`.  If the key is not declared, all columns are decoded.

The options have to match the settings of MySQL and Maxwell:

* `row_image`: `full`, or `minimal` if binlog_row_image is minimal or noblob.  With `minimal`,
  a declared column that `data` lacks is absent.  So columns have to be declared, rows have only
  these, and no old row is complete.  The rows of a bootstrap are always complete.
* `output_nulls`: `true`, or `false` if Maxwell leaves out nulls.  With `false`, a declared
  column that `data` lacks is null.  An update has no `before`, because a column that `old`
  lacks was null or is unchanged.  For the same reason it excludes minimal images, and a key
  column must never be null.
"""

from collections.abc import Sequence

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.change import Change, Ignored, Needs
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.row_images import (
    RowImageCodec,
    RowImages,
    are_minimal,
    damaged_decoder,
    delete_changes,
    option,
    update_changes,
)
from ikebana.errors import ConfigError

_NAME = "Maxwell"
ROWS = frozenset({"insert", "update", "delete", "bootstrap-insert"})
SNAPSHOT = frozenset({"bootstrap-start", "bootstrap-complete"})
_DDL = frozenset(
    ("database-create", "database-alter", "database-drop", "table-create", "table-alter")
)


class _Message(msgspec.Struct, gc=False):
    type: str
    database: str | None = None
    table: str | None = None
    primary_key_columns: tuple[str, ...] | None = None
    data: msgspec.Raw = msgspec.Raw()
    old: msgspec.Raw = msgspec.Raw(b"{}")


_message = canonical.decoder(_Message)
_damaged = damaged_decoder(_Message, "database", "table", "primary_key_columns", "data")


class Maxwell(RowImageCodec):
    """Decodes Maxwell's messages.

    >>> message = b'{"database": "shop", "table": "orders", "type": "update",'
    >>> message += b' "data": {"id": 1, "n": 2}, "old": {"n": 1}}'
    >>> Maxwell(Needs(key=("id",), before=True)).changes(None, message, None)[0]._asdict()
    ... # doctest: +NORMALIZE_WHITESPACE
    {'kind': 'upsert', 'key': b'{"id":1}', 'after': b'{"id":1,"n":2}',
     'before': b'{"id":1,"n":1}', 'absent': (), 'replaces': True, 'sequence': ()}

    Raises:
        ConfigError: an option has a value that is not one of its choices, or options do not go
            together.
    """

    name = _NAME

    def __init__(self, needs: Needs) -> None:
        self._full = not are_minimal(needs)
        self._nulls = option(needs, "output_nulls", "true", "false") == "true"
        images = RowImages(_NAME, needs, minimal=not self._full, nulls=not self._nulls)
        super().__init__(needs, images, "database", "table")
        self._before = needs.before and self._full
        if not (self._full or self._nulls):
            raise ConfigError(
                "minimal row images without nulls do not tell null from unchanged",
                hint="set output_nulls=true in Maxwell, and in the options",
            )

    def _decode(self, value: bytes) -> Sequence[Change] | Ignored:
        message = _message(value)
        kind = message.type
        if kind in _DDL:
            return Ignored("ddl")
        if not self._tables.all and not self._tables.has(message.database, message.table):
            return Ignored("table")
        if kind == "table-drop":
            return Ignored("dropped table")
        if kind in SNAPSHOT:
            return Ignored("snapshot")
        if kind not in ROWS:
            raise DecodeError(_NAME, "field `type` is none of Maxwell's types")
        if not message.data:
            raise DecodeError(_NAME, "field `data` is missing")
        images = self._images
        key_alone = kind == "delete" and not self._before
        data = (images.read_key if key_alone else images.read)(message.data)
        names = images.key_columns(message.primary_key_columns or ())
        key = images.key(data, names)
        if kind == "delete":
            # Without nulls, the other columns of the key's row may be null.
            key_alone = self._nulls and images.shows_key_alone(
                images.names_of(message.data), names
            )
            whole = self._before and not key_alone
            return [delete_changes(key, images.row(data) if whole else None)]
        after = images.row(data)
        absent: tuple[str, ...] = ()
        if not self._full and kind != "bootstrap-insert":
            absent = images.declared.absent(data)
        if kind != "update":
            return [Change("upsert", key, after, None, absent)]
        before, old_key = None, key
        if self._before and self._nulls:
            old = images.read(message.old)
            before = images.row({**data, **old})
        else:
            old = images.read_key(message.old)
        if not old.keys().isdisjoint(names):
            old_key = images.key({**data, **old}, names)
        return update_changes(old_key, key, after, before, absent)

    def _readable_key(self, value: bytes) -> bytes | None:
        message = _damaged(value)
        if not self._tables.has(message.database, message.table):
            return None
        return self._images.readable_key(message.data, message.primary_key_columns)
