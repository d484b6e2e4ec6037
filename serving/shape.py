"""The shape of a collection: fields of keys and values and their kinds, over all of its history.

A shape only grows, so it is right as of every time, and a query over some rows has the same
columns as one over all.  It is written with each batch.

| kind | of |
|---|---|
| `NULL` | null alone |
| `BOOLEAN`, `VARCHAR` | true and false; strings, and what is no JSON |
| `BIGINT`, `HUGEINT` | integers of 64 bits, of 128 bits |
| `DOUBLE` | numbers of which some are no integers |
| `JSON` | lists, objects, greater numbers, and values of several kinds |
"""

# Decision (columns of SQL are those ever seen): They are learned while batches are written.
# DuckDB found them in the rows that a query read, so types depended on the filter, and the first
# key told what keys are like. A scan of all keys would read what a lookup avoids.

import math
from collections.abc import Collection
from typing import Any

import msgspec

from ikebana.codecs.canonical import canonical
from ikebana.codecs.errors import DecodeError

_MOST_FIELDS = 1_000
_MOST_KNOWN = 10_000
_END = 2**63
# Their canonical bytes are what msgspec writes, unless there is something to escape.
_PLAIN = frozenset({int, str})
_LOOKED_UP = frozenset({"BIGINT", "VARCHAR"})
_NUMBERS = ("BIGINT", "HUGEINT", "DOUBLE")
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Side(msgspec.Struct, array_like=True, frozen=True):
    """The shape of all keys, or of all values.

    `fields` are the fields of objects with their kinds; `other` is the kind of all that are no
    objects, None if there are none.  `uniform`: all objects have the same fields; `canonical`: all
    are in canonical bytes.
    """

    fields: dict[str, str] = {}
    objects: bool = False
    other: str | None = None
    uniform: bool = True
    canonical: bool = True

    def columns(self) -> dict[str, str] | None:
        """Return the columns by name; None if the key or value is one column."""
        named = self.objects and self.other is None and 0 < len(self.fields) <= _MOST_FIELDS
        # SQL has no such names.
        spelt = all(name and "\0" not in name for name in self.fields)
        return self.fields if named and spelt else None

    def alone(self) -> str | None:
        """Return the kind of a single column for all; None if there were no values."""
        if self.objects:
            return "JSON"
        return self.other

    def only(self, columns: Collection[str]) -> "Side":
        """Return the shape with some fields only; values that are no objects become `{}`."""
        fields = {name: kind for name, kind in self.fields.items() if name in columns}
        return Side(fields, self.objects or self.other is not None, uniform=False)

    def looked_up(self) -> dict[str, str] | None:
        """Return the fields that determine a key's bytes, with their kinds, for lookups.

        Keys that are no objects have the one field `key`.  None if keys with equal fields may
        have different bytes.
        """
        if not self.canonical or (self.objects and self.other is not None):
            return None
        fields = self.fields if self.objects else {"key": self.other or "JSON"}
        is_exact = (
            self.uniform
            and fields
            and len({name.lower() for name in fields}) == len(fields)
            and _LOOKED_UP.issuperset(fields.values())
        )
        return fields if is_exact else None


class Shape(msgspec.Struct, array_like=True, frozen=True):
    """The shapes of the keys and of the values of a collection."""

    keys: Side = Side()
    values: Side = Side()


class Seen:
    """Learns one side of a shape; a known combination of fields and types costs one lookup."""

    def __init__(self, side: Side, *, exact: bool = False) -> None:
        self.side = side
        self._exact = exact
        # By names and types of all fields: those that are integers, and whether the bytes are
        # canonical if they are what msgspec would write.
        self._forms: dict[Any, tuple[tuple[str, ...], bool]] = {}

    def add(self, data: bytes) -> None:
        """Add a key or a value.  With `exact`, also learn whether it is canonical."""
        try:
            value = _decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            value = _text_or_json(data)
        if type(value) is not dict:
            self.side = _with_other(self.side, value)
            self._canonical(data, value, plain=type(value) in _PLAIN)
            return
        form = (*value, *map(type, value.values()))
        if form not in self._forms:
            self._learn(form, value)
            self.side = _with_object(self.side, value)
        integers, plain = self._forms[form]
        self._canonical(data, value, plain=plain)
        for name in integers:
            if not -_END <= value[name] < _END:
                self.side = _with_object(self.side, value)
                return

    def _learn(self, form: Any, document: dict[str, Any]) -> None:
        if len(self._forms) >= _MOST_KNOWN:
            self._forms.clear()
        integers = tuple(name for name, value in document.items() if type(value) is int)
        plain = list(document) == sorted(document) and _PLAIN.issuperset(
            map(type, document.values())
        )
        self._forms[form] = integers, plain

    def _canonical(self, data: bytes, value: Any, *, plain: bool) -> None:
        if self._exact and self.side.canonical and not _is_canonical(data, value, plain=plain):
            self.side = msgspec.structs.replace(self.side, canonical=False)


class _Large:
    """A placeholder for JSON that Python's types cannot represent."""


def _text_or_json(data: bytes) -> Any:
    try:
        canonical(data)
    except DecodeError:
        return ""
    return _Large()


def _is_canonical(data: bytes, value: Any, *, plain: bool) -> bool:
    if plain and data.isascii() and b"\\" not in data:
        return _encode(value) == data
    try:
        return canonical(data) == data
    except DecodeError:
        # Its text becomes a string that no constant has to find.
        return False


def _with_object(side: Side, document: dict[str, Any]) -> Side:
    fields = dict(side.fields)
    for name, value in document.items():
        if name in fields or len(fields) <= _MOST_FIELDS:
            fields[name] = _both(fields.get(name), _kind(value))
    uniform = side.uniform and (not side.objects or side.fields.keys() == document.keys())
    return msgspec.structs.replace(side, fields=fields, objects=True, uniform=uniform)


def _with_other(side: Side, value: Any) -> Side:
    other = _both(side.other, _kind(value))
    return side if other == side.other else msgspec.structs.replace(side, other=other)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "BOOLEAN"
        case str():
            return "VARCHAR"
        case int():
            if -_END <= value < _END:
                return "BIGINT"
            return "HUGEINT" if -(2**127) < value < 2**127 else "JSON"
        case float() if math.isfinite(value):
            return "DOUBLE"
        case _:
            return "JSON"


def _both(one: str | None, other: str) -> str:
    if one is None or one in ("NULL", other):
        return other
    if other == "NULL":
        return one
    if one in _NUMBERS and other in _NUMBERS:
        return max(one, other, key=_NUMBERS.index)
    return "JSON"
