"""Decode Debezium's events flattened to rows, as its ExtractNewRecordState writes them.

A value is the row itself, an upsert of its key.  A null value is a delete, and so is a row with a
true "__deleted".  If there is a field "__op", it is the operation.  Fields with names that begin
with the prefix "__" are no columns of the row unless they are declared.  Keys, schemas,
encodings and absent columns are as in `codecs.debezium`.

A null value is a delete even if the input selects `tables`, because no other message may report
the delete.  A null value without a Kafka key is therefore an error.  If a deleted row is written
out, it is the `before` of the delete.  Heartbeats and schema changes cannot be distinguished
from rows in this format.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec import Raw

from ikebana.codecs import canonical
from ikebana.codecs.canonical import require_readable
from ikebana.codecs.change import Change, Headers, Ignored, Needs
from ikebana.codecs.connect_json import Opening
from ikebana.codecs.debezium import unavailable_of
from ikebana.codecs.debezium_rows import FAULTS, VALUE, DebeziumTables, Row, Rows, keys_in_json
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import ADDED_PREFIX
from ikebana.errors import ConfigError

# Debezium writes this field so, whatever the prefix of added fields is.
_DELETED = "__deleted"
_NAMED = ("op", "table", "db", "schema", "source_table", "source_db", "source_schema")


class DebeziumFlat:
    """Decodes the flattened messages of a Debezium connector.

    `needs.options` may have "prefix", that of fields which are no columns, by default "__";
    "unavailable_placeholder", if the connector's is not the default.

    Raises:
        ConfigError: the prefix or the placeholder is empty.
    """

    def __init__(self, needs: Needs) -> None:
        self._prefix = needs.options.get("prefix", ADDED_PREFIX)
        if not self._prefix:
            raise ConfigError('option "prefix" must not be empty')
        self._keys = keys_in_json(needs)
        self._before = needs.before
        self._tables = DebeziumTables(needs.tables) if needs.tables is not None else None
        self._declared = needs.declared
        self._marks = {name: self._prefix + name for name in _NAMED}
        self._read = None if needs.columns is None else frozenset(needs.columns)
        unavailable = unavailable_of(needs)
        read = needs.read((*needs.key, _DELETED, *self._marks.values()))
        self._rows = Rows(read, unavailable, needs.encodings, needs.judges)
        self._key_rows = Rows(needs.key, unavailable, needs.encodings)
        self._opening = Opening(Raw, self._rows.bare, self._rows.planned)

    def key(self, key: bytes | None) -> bytes | None:
        return None if self._keys.columns else self._keys.of_kafka(key)

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        try:
            if value is not None:
                require_readable(value)
            return self._changes(key, value)
        except FAULTS as error:
            fault = canonical.refused(VALUE, error)
        raise DecodeError(fault.codec, fault.reason, key=self._readable_key(key, value))

    def _changes(self, key: bytes | None, value: bytes | None) -> Sequence[Change] | Ignored:
        if value is None:
            return self._gone(key)
        image = self._rows.read(*self._opening.open(value))
        if image is None:
            return self._gone(key)
        row, absent, _ = image
        op = _text(row, self._marks["op"])
        if op == "m":
            return Ignored("message")
        if self._tables and not self._in_selected_table(row, self._tables):
            return Ignored("table")
        if op == "t":
            return [Change("truncate")]
        if op not in (None, "c", "u", "r", "d"):
            raise DecodeError(VALUE, f'field "{self._marks["op"]}" is none of c, u, r, d, t, m')
        row_key = self._key(row, key)
        if op == "d" or _deleted(row):
            whole = self._before and not absent
            return [Change("delete", row_key, None, self._image(row) if whole else None)]
        absent = tuple(name for name in absent if self._is_column(name))
        return [Change("upsert", row_key, self._image(row), None, absent)]

    def _gone(self, key: bytes | None) -> Sequence[Change] | Ignored:
        """Decode a null value as a delete; it must have a Kafka key."""
        if key is not None and self._keys.columns:
            return self._keys.tombstone(key)
        return [Change("delete", self._keys.needed(key))]

    def _in_selected_table(self, row: Row, tables: DebeziumTables) -> bool:
        parts = [
            _text(row, self._marks[name]) or _text(row, self._marks[f"source_{name}"])
            for name in ("db", "schema", "table")
        ]
        return tables.selects(*parts)

    def _key(self, row: Row, key: bytes | None) -> bytes | None:
        return self._keys.of_row(row) if self._keys.columns else self._keys.needed(key)

    def _is_column(self, name: str) -> bool:
        if self._declared.type_of(name) is not None:
            return True
        return name != _DELETED and not name.startswith(self._prefix)

    def _image(self, row: Row) -> bytes:
        read = self._read
        return canonical.write(
            {
                name: value
                for name, value in row.items()
                if (read is None or name in read) and self._is_column(name)
            }
        )

    def _readable_key(self, key: bytes | None, value: bytes | None) -> bytes | None:
        if self._keys.columns and value is not None:
            with suppress(*FAULTS):
                if image := self._key_rows.read(*self._opening.open(value)):
                    return self._keys.of_row(image.row)
        with suppress(*FAULTS):
            return self._keys.of_kafka(key)
        return None


def _text(row: Row, name: str) -> str | None:
    text = row.get(name)
    if text is None or isinstance(text, str):
        return text
    raise DecodeError(VALUE, f'field "{name}" is no text')


def _deleted(row: Row) -> bool:
    mark: Any = row.get(_DELETED)
    if mark in (None, False, "false"):
        return False
    if mark in (True, "true"):
        return True
    raise DecodeError(VALUE, f'field "{_DELETED}" is neither true nor false')
