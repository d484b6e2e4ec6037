"""Decode the flat JSON messages of Canal, which captures changes of MySQL.

A message has several rows.  INSERT and UPDATE upsert `data[i]`, DELETE removes it; `old[i]`
has what changed columns had before, so that the old row is `data[i]` overlaid with `old[i]`
(columns that did not change may be there too).  Canal leaves out `old` if nothing has
changed.  An UPDATE with another key in the old row moves the row.  TRUNCATE empties the table;
other DDL says nothing.  Canal marks neither snapshots nor transactions, and writes no
tombstones.  If one row cannot be decoded, the whole message cannot.

The key's columns are the declared ones, else `pkNames`.  If the key is not declared, all columns
are decoded.

All of Canal's values are text or null; other writers of its messages (Flink, SeaTunnel) have
numbers, booleans, arrays and objects too, which stay unchanged.  The conversion of a text follows
from the column's declared encoding, else from its type in `mysqlType`, else from its declared
type, else from its `sqlType` (java.sql.Types).  The last is the least reliable: Canal derives it
from the last row of a message, and gives a text that is null there the type of bytes.

* integers of any size, year and (as MySQL has them) booleans: numbers;
* decimal, float and double: exact numbers;
* datetime and timestamp: "2024-01-31T12:34:56.5"; dates that do not exist, such as
  "0000-00-00 00:00:00", stay as they are; a time loses trailing zeros of its fraction;
* binary and blob, which Canal writes as ISO-8859-1: base64;
* a text that is not of its type is an error in the key and in a declared column, and stays as it
  is in others, read or not;
* everything else stays text: bit, character types, dates; json too, unless the column is declared
  as JSON, which has an encoding.  Canal writes an enum or a
  set as its number: of an enum this is a number, of a set (a bit mask) text.

The option `row_image` is `full`, or `minimal` where binlog_row_image is minimal or noblob.
Then a declared column that `data[i]` lacks is absent, so that columns have to be declared,
rows have these alone, and no old row is full.  (Of wholly minimal images Canal leaves out
the key; they are refused.)
"""

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import GenericAlias
from typing import Any

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.canonical import object_of
from ikebana.codecs.change import Change, Ignored, Needs
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.row_images import (
    NULL,
    RowImage,
    RowImageCodec,
    RowImages,
    are_minimal,
    damaged_decoder,
    delete_changes,
    update_changes,
)
from ikebana.codecs.sql_type import Decimal, parsed

_NAME = "Canal"
_ROWS = frozenset({"INSERT", "UPDATE", "DELETE"})
_DDL = frozenset({"CREATE", "ALTER", "QUERY", "RENAME", "CINDEX", "DINDEX"})
_TRANSACTION = frozenset({"GTID", "XACOMMIT", "XAROLLBACK"})
# The heartbeats of Canal, and of TiDB, which writes messages of the same form.
_HEARTBEAT = frozenset({"MHEARTBEAT", "TIDB_WATERMARK"})


class _Message(msgspec.Struct, gc=False):
    type: str
    isDdl: bool = False
    database: str | None = None
    table: str | None = None
    pkNames: tuple[str, ...] | None = None
    sqlType: msgspec.Raw = NULL
    mysqlType: msgspec.Raw = NULL
    data: msgspec.Raw = NULL
    old: msgspec.Raw = NULL


_message = canonical.decoder(_Message)
_damaged = damaged_decoder(
    _Message, "database", "table", "pkNames", "sqlType", "mysqlType", "data"
)
_Conversion = Callable[[str], Any]
_Types = tuple[dict[str, int | None], dict[str, str | None]]


class Canal(RowImageCodec):
    """Decodes Canal's flat messages.

    Raises:
        ConfigError: an option has a value that is not one of its choices, or images are minimal
            and no column is declared.
    """

    name = _NAME

    def __init__(self, needs: Needs) -> None:
        self._full = not are_minimal(needs)
        images = RowImages(_NAME, needs, minimal=not self._full)
        super().__init__(needs, images, "database", "table")
        self._before = needs.before and self._full
        self._key = needs.key
        self._judges = needs.judges
        self._sql_types = canonical.decoder(_all_of(images.names, int | None) | None)
        self._mysql_types = canonical.decoder(_all_of(images.names, str | None) | None)
        row = _all_of(images.names, Any)
        key_row = _all_of(images.key_names, Any)
        old_row = (row if self._before else key_row) | None
        self._names = canonical.decoder(list[dict[str, msgspec.Raw]])
        self._rows = canonical.decoder(GenericAlias(list, row))
        self._key_rows = canonical.decoder(GenericAlias(list, key_row))
        self._old_rows = canonical.decoder(GenericAlias(list, old_row) | None)

    def _decode(self, value: bytes) -> Sequence[Change] | Ignored:
        message = _message(value)
        event = message.type
        if event in _DDL or (message.isDdl and event not in ("TRUNCATE", "ERASE")):
            return Ignored("ddl")
        if event in _HEARTBEAT:
            return Ignored("heartbeat")
        if event in _TRANSACTION:
            return Ignored("transaction")
        if not self._tables.all and not self._tables.has(message.database, message.table):
            return Ignored("table")
        if event == "TRUNCATE":
            return [Change("truncate")]
        if event == "ERASE":
            return Ignored("dropped table")
        if event not in _ROWS:
            raise DecodeError(_NAME, "field `type` is none of Canal's event types")
        if message.data == NULL:
            raise DecodeError(_NAME, "field `data` is missing")
        rows = self._rows(message.data)
        if not rows:
            raise DecodeError(_NAME, "field `data` has no rows")
        names = self._images.key_columns(message.pkNames or ())
        key_alone = event == "DELETE" and not self._before
        columns = names if key_alone else self._to_convert(names)
        types = self._types(message)
        images = [self._converted(row, columns, names, types) for row in rows]
        if event == "INSERT":
            return [self._insert(image, names) for image in images]
        if event == "DELETE":
            there = self._names(message.data)
            pairs = zip(images, there, strict=True)
            return [self._delete(image, each, names) for image, each in pairs]
        old_rows = self._old_rows(message.old) or [None] * len(rows)
        if len(old_rows) != len(rows):
            raise DecodeError(_NAME, "field `old` has another number of rows than `data`")
        old_images = [self._converted(old or {}, columns, names, types) for old in old_rows]
        return [
            change
            for image, old in zip(images, old_images, strict=True)
            for change in self._update(image, old, names)
        ]

    def _insert(self, image: RowImage, names: Sequence[str]) -> Change:
        after, absent = self._after(image)
        return Change("upsert", self._images.key(image, names), after, None, absent)

    def _delete(self, image: RowImage, there: RowImage, names: Sequence[str]) -> Change:
        # TiCDC may write the key's columns alone.
        whole = self._before and not self._images.shows_key_alone(there, names)
        return delete_changes(
            self._images.key(image, names), self._images.row(image) if whole else None
        )

    def _update(self, image: RowImage, old: RowImage, names: Sequence[str]) -> Sequence[Change]:
        key = self._images.key(image, names)
        after, absent = self._after(image)
        old_image = {**image, **old}
        old_key = key if old.keys().isdisjoint(names) else self._images.key(old_image, names)
        before = self._images.row(old_image) if self._before else None
        return update_changes(old_key, key, after, before, absent)

    def _after(self, image: RowImage) -> tuple[bytes, tuple[str, ...]]:
        absent = () if self._full else self._images.declared.absent(image)
        return self._images.row(image), absent

    def _types(self, message: Any) -> _Types:
        return self._sql_types(message.sqlType) or {}, self._mysql_types(message.mysqlType) or {}

    def _to_convert(self, key: Sequence[str]) -> Sequence[str] | None:
        """List the columns to convert, None for all."""
        columns = self._images.to_convert
        return None if columns is None else tuple(dict.fromkeys((*columns, *key)))

    def _converted(
        self, row: RowImage, columns: Sequence[str] | None, key: Sequence[str], types: _Types
    ) -> RowImage:
        """Convert the columns of the row by their types; `key` has its key columns."""
        sql_types, mysql_types = types
        declared = self._images.declared
        image: RowImage = dict(row)
        for name in row if columns is None else columns:
            text = row.get(name)
            # Other writers than Canal write numbers and booleans as such.
            if text.__class__ is not str or self._images.is_encoded(name):
                continue
            # The type of an enum lists all of its names; its beginning is enough.
            mysql_type = (mysql_types.get(name) or "")[:64]
            conversion = _conversion(mysql_type, declared.type_of(name), sql_types.get(name))
            try:
                image[name] = text if conversion is None else conversion(text)
            except (ValueError, ArithmeticError):
                if name in key or self._judges(name):
                    raise DecodeError(_NAME, self._unreadable(name, conversion)) from None
        return self._images.converted(image)

    def _unreadable(self, name: str, conversion: _Conversion | None) -> str:
        # The name of an undeclared column is payload, which errors must not quote.
        declared = self._images.declared.type_of(name) is not None
        column = f"column `{name}`" if declared or name in self._key else "a column"
        if conversion not in _WHAT:
            return f"neither `mysqlType` nor `sqlType` has {column}: declare its type"
        return f"{column} is no {_WHAT[conversion]}"

    def _readable_key(self, value: bytes) -> bytes | None:
        message = _damaged(value)
        rows = self._key_rows(message.data)
        # An error has one key, and a message of several rows has several.
        if len(rows) != 1 or not self._tables.has(message.database, message.table):
            return None
        names = self._images.readable_columns(message.pkNames)
        return self._images.key(
            self._converted(rows[0], names, names, self._types(message)), names
        )


_INTEGER = re.compile(r"-?[0-9]{1,40}").fullmatch
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?").fullmatch
_TIME = re.compile(r"(-?[0-9]{1,3}:[0-9]{2}:[0-9]{2})(\.[0-9]+)?").fullmatch
_TIMESTAMP = re.compile(
    r"([0-9]{4}-([0-9]{2})-([0-9]{2}))[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]+)?"
).fullmatch


def _integer(text: str) -> int:
    if not _INTEGER(text):
        raise ValueError
    return int(text)


def _number(text: str) -> Any:
    if not _NUMBER(text):
        raise ValueError
    return canonical.number(text)


def _time(text: str) -> str:
    if (match := _TIME(text)) is None:
        raise ValueError
    return match[1] + _fraction(match[2])


def _timestamp(text: str) -> str:
    if (match := _TIMESTAMP(text)) is None:
        raise ValueError
    date, month, day, time, fraction = match.groups()
    if month == "00" or day == "00":
        return text
    return f"{date}T{time}{_fraction(fraction)}"


def _fraction(digits: str | None) -> str:
    return digits.rstrip("0").rstrip(".") if digits else ""


def _binary(text: str) -> str:
    return b64encode(text.encode("latin-1")).decode()


def _or_text(conversion: _Conversion) -> _Conversion:
    """A conversion of MySQL's forms; other forms, such as zones, are left to the column's type."""

    def convert(text: str) -> Any:
        try:
            return conversion(text)
        except (ValueError, ArithmeticError):
            return text

    return convert


def _not_convertible(text: str) -> Any:
    raise ValueError


_WHAT: dict[_Conversion | None, str] = {
    _integer: "integer",
    _number: "number",
    _time: "time",
    _timestamp: "timestamp",
    _binary: "ISO-8859-1 text",
}
_BY_MYSQL_TYPE: dict[str, _Conversion | None] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "integer", "bigint"), _integer),
    **dict.fromkeys(("year", "bool", "boolean"), _integer),
    **dict.fromkeys(("decimal", "dec", "numeric", "fixed", "float", "double", "real"), _number),
    **dict.fromkeys(("datetime", "timestamp"), _timestamp),
    "time": _time,
    **dict.fromkeys(("binary", "varbinary"), _binary),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), _binary),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), None),
    **dict.fromkeys(("json", "bit", "set", "date"), None),
}
# The types of DuckDB that cannot read every text.
_BY_DECLARED_TYPE: dict[str, _Conversion | None] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), _integer),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), _integer),
    "BOOLEAN": _integer,
    **dict.fromkeys(("FLOAT", "DOUBLE"), _or_text(_number)),
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"),
        _or_text(_timestamp),
    ),
    **dict.fromkeys(("TIME", "TIME WITH TIME ZONE"), _or_text(_time)),
    "BLOB": _binary,
}
_BY_SQL_TYPE: dict[int, _Conversion | None] = {
    # TINYINT, SMALLINT, INTEGER, BIGINT, BOOLEAN
    **dict.fromkeys((-6, 5, 4, -5, 16), _integer),
    # NUMERIC, DECIMAL, FLOAT, REAL, DOUBLE
    **dict.fromkeys((2, 3, 6, 7, 8), _number),
    # TIME, TIMESTAMP
    92: _time,
    93: _timestamp,
    # BINARY, VARBINARY, LONGVARBINARY, BLOB
    **dict.fromkeys((-2, -3, -4, 2004), _binary),
}


@lru_cache(maxsize=1024)
def _conversion(mysql_type: str, declared: str | None, sql_type: int | None) -> _Conversion | None:
    """Find the conversion of a column's text; None if it stays text."""
    name = _TYPE_NAME(mysql_type.lower())
    if name is not None and name[0] in _BY_MYSQL_TYPE:
        return _BY_MYSQL_TYPE[name[0]]
    if name is None and declared is not None:
        kind = parsed(declared)
        return _number if isinstance(kind, Decimal) else _BY_DECLARED_TYPE.get(str(kind))
    if sql_type is None:
        # Other types of MySQL stay text.  Without any type, the meaning is unknown.
        return None if name else _not_convertible
    return _BY_SQL_TYPE.get(sql_type)


def _all_of(names: Sequence[str] | None, kind: Any) -> Any:
    """Make the type of an object with these fields, each of type `kind`; None for all fields."""
    return dict[str, kind] if names is None else object_of(dict.fromkeys(names, kind))


_TYPE_NAME = re.compile("[a-z]+").match
