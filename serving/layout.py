"""What a served arrangement stores: entries of an ordered database, as keys and values.

| key | value |
|---|---|
| `m` | the `Meta`: times, totals, the place in the topic |
| `c` subject | the *state* of a subject now: its values, each with its count |
| `h` subject, time | an *undo*: how the subject was before its updates of this time |
| `t` time, number | a part of the updates of this time; the first has the totals before them |

A *subject* is the key of an update.  Updates without a key cannot be found by one, so each of
their values is a subject of its own.  Subjects are ordered by the bytes of their keys; subjects
without a key come first.

An undo is the earlier state itself, or, if that state has many values, the diffs to subtract.

A number of msgpack has 64 bits at most.  Counts may be larger (a topic has them in pieces): an
entry with such a count stores all of its counts as text; in `StoredTotals` only the total may be
text.  The diffs of a time are stored in pieces, as in the topic.

The `Meta` also has the *shape* of the collection: the fields of its keys and values with their
kinds, over all of its history.  A shape only grows, so it is right as of every time, and a query
over some rows has the same columns as one over all.

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
import struct
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Self

import msgspec

from ikebana.codecs.canonical import canonical
from ikebana.codecs.diff import Times
from ikebana.codecs.errors import DecodeError

META = b"m"
CURRENT = b"c"
HISTORY = b"h"
TIMES = b"t"

_KEYLESS = b"\x00"
_KEYED = b"\x01"
CURRENT_OF_KEY = CURRENT + _KEYED
# Values of a subject with their counts; a count is never 0.
ValueCounts = dict[bytes, int]

EMPTY = b"\x00"
"""A state without values."""
_ONE = b"\x01"
_SEVERAL = b"\x02"
_DIFFS = b"\x03"
# The same as the two before, with counts as text.
_LARGE = b"\x04"
_LARGE_DIFFS = b"\x05"
VERSION = 1
LEAST_TIME = -(2**63)

_time = struct.Struct(">Q")
_part = struct.Struct(">I")
encode = msgspec.msgpack.Encoder().encode
"""Encodes the metadata of an arrangement, or a part of a time, with large diffs in pieces."""
_decode_state = msgspec.msgpack.Decoder(ValueCounts).decode
_decode_large = msgspec.msgpack.Decoder(dict[bytes, str]).decode

# The integers that msgpack can encode.
_NUMBERS = range(-(2**63), 2**64)

_MOST_FIELDS = 1_000
_MOST_KNOWN = 10_000
_END = 2**63
# Their canonical bytes are what msgspec writes, unless there is something to escape.
_PLAIN = frozenset({int, str})
_LOOKED_UP = frozenset({"BIGINT", "VARCHAR"})
_NUMERIC = ("BIGINT", "HUGEINT", "DOUBLE")
_read_json = msgspec.json.Decoder().decode
_as_json = msgspec.json.Encoder().encode


class SideShape(msgspec.Struct, array_like=True, frozen=True):
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

    def only(self, columns: Collection[str]) -> "SideShape":
        """Return the shape with some fields only; values that are no objects become `{}`."""
        fields = {name: kind for name, kind in self.fields.items() if name in columns}
        return SideShape(fields, self.objects or self.other is not None, uniform=False)

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

    keys: SideShape = SideShape()
    values: SideShape = SideShape()


class CollectionSize(NamedTuple):
    """The size of a collection at a time.

    `keys` subjects have a value, `data` distinct (key, value) have a count, `total` is the sum
    of the counts, and `bytes` the length of all keys and values, each once.
    """

    keys: int = 0
    data: int = 0
    total: int = 0
    bytes: int = 0


class StoredTotals(msgspec.Struct, array_like=True, frozen=True):
    """`CollectionSize` in their stored form: a total beyond 64 bits is text."""

    keys: int = 0
    data: int = 0
    total: int | str = 0
    bytes: int = 0

    @classmethod
    def of(cls, totals: CollectionSize) -> Self:
        """Convert totals to their stored form.

        >>> StoredTotals.of(CollectionSize(1, 1, 2**64, 5))
        StoredTotals(keys=1, data=1, total='18446744073709551616', bytes=5)
        """
        keys, data, total, size = totals
        return cls(keys, data, total if total in _NUMBERS else str(total), size)

    def read(self) -> CollectionSize:
        """Return the totals."""
        return CollectionSize(self.keys, self.data, int(self.total), self.bytes)


class Meta(msgspec.Struct, array_like=True, frozen=True):
    """The metadata of an arrangement: readable times, totals, and its position in the topic."""

    topic: str
    form: str
    since: int
    upper: int
    last: int
    """The greatest time of an update; from it to `upper` nothing changes."""
    expired: int
    """History of this time and earlier ones has been deleted."""
    totals: StoredTotals
    position: bytes
    """The place in the topic after the last closed batch, as its reader writes it."""
    version: int = VERSION
    shape: Shape = Shape()
    """The shape of its keys and values over all of its history."""
    times: Times | None = None
    """The kind of its times, if the topic's progress has it."""
    columns: dict[str, str] = {}
    """The SQL types of columns of its values, as far as the topic's progress has them."""

    @property
    def bounds(self) -> tuple[int, int] | tuple[None, None]:
        """`since` and `upper`, or nothing before the first closed batch."""
        return (None, None) if self.upper == LEAST_TIME else (self.since, self.upper)


class StoredUpdate(NamedTuple):
    """The count of (key, value) changes by `diff`, at the time that it is stored under."""

    key: bytes | None
    value: bytes
    diff: int


class TimePart(msgspec.Struct, array_like=True, frozen=True):
    """Some updates of one time, ordered by subject and value, and the totals before the time."""

    before: StoredTotals
    updates: list[StoredUpdate]


def subject(key: bytes | None, value: bytes = b"") -> bytes:
    """Encode the subject of an update of this key and value."""
    return _KEYLESS + value if key is None else _KEYED + key


def key_of(subject: bytes) -> bytes | None:
    """Return the key of a subject; None if it has none.

    >>> key_of(subject(b"N12345")), key_of(subject(None, b"x"))
    (b'N12345', None)
    """
    return None if subject[:1] == _KEYLESS else subject[1:]


def key_size(subject: bytes) -> int:
    """Return the length of the key of a subject, in bytes."""
    return len(subject) - 1 if subject[:1] == _KEYED else 0


def encode_state(state: Mapping[bytes, int]) -> bytes:
    """Encode the values of a subject; most have one value, once."""
    if not state:
        return EMPTY
    if len(state) == 1:
        [(value, count)] = state.items()
        if count == 1:
            return _ONE + value
    return _counted(_SEVERAL, _LARGE, dict(sorted(state.items())))


def decode_state(packed: bytes | None) -> ValueCounts:
    """Decode the values of a subject."""
    if packed is None or packed[:1] == EMPTY:
        return {}
    if packed[:1] == _ONE:
        return {packed[1:]: 1}
    if packed[:1] == _LARGE:
        return _in_numbers(packed)
    return _decode_state(packed[1:])


def encode_diffs(diffs: Mapping[bytes, int]) -> bytes:
    """Encode an undo that has the diffs to subtract."""
    return _counted(_DIFFS, _LARGE_DIFFS, diffs)


def decode_undo(packed: bytes) -> tuple[ValueCounts, bool]:
    """Decode an undo; True says that it is a state, False that it has diffs."""
    if packed[:1] == _DIFFS:
        return _decode_state(packed[1:]), False
    if packed[:1] == _LARGE_DIFFS:
        return _in_numbers(packed), False
    return decode_state(packed), True


def _counted(small: bytes, large: bytes, counts: Mapping[bytes, int]) -> bytes:
    """Encode counts after the first byte of an entry: `large` if one has more than 64 bits."""
    try:
        return small + encode(counts)
    except OverflowError:
        return large + encode({value: str(count) for value, count in counts.items()})


def _in_numbers(packed: bytes) -> ValueCounts:
    return {value: int(count) for value, count in _decode_large(packed[1:]).items()}


def pack_time(time: int) -> bytes:
    """Encode a time of 64 bits so that bytes are in the order of times."""
    return _time.pack(time - LEAST_TIME)


def unpack_time(packed: bytes) -> int:
    """Decode a time."""
    return int(_time.unpack(packed)[0]) + LEAST_TIME


def history_of(subject: bytes) -> bytes:
    """Return the prefix of all undos of a subject.

    No prefix is the beginning of another one, and they are in the order of the subjects.
    """
    return HISTORY + subject.replace(b"\x00", b"\x00\xff") + b"\x00\x01"


def subject_of_history(key: bytes) -> tuple[bytes, int]:
    """Decode the key of an undo: the subject and the time."""
    return key[1:-10].replace(b"\x00\xff", b"\x00"), unpack_time(key[-8:])


def history_bound(subject: bytes) -> bytes:
    """Return where the undos of subjects at or after this one begin.

    `found` may be a part of a subject, such as the prefix of a key.
    """
    return HISTORY + subject.replace(b"\x00", b"\x00\xff")


def at_time(time: int, part: int = 0) -> bytes:
    """Return the key of a part of the updates of a time."""
    return TIMES + pack_time(time) + _part.pack(part)


def time_and_part(key: bytes) -> tuple[int, int]:
    """Decode the key of a part of the updates of a time."""
    return unpack_time(key[1:9]), int(_part.unpack(key[9:])[0])


class ShapeLearner:
    """Learns one side of a shape; a known combination of fields and types costs one lookup."""

    def __init__(self, side: SideShape, *, exact: bool = False) -> None:
        self.side = side
        self._exact = exact
        # By names and types of all fields: those that are integers, and whether the bytes are
        # canonical if they are what msgspec would write.
        self._forms: dict[Any, tuple[tuple[str, ...], bool]] = {}

    def add(self, data: bytes) -> None:
        """Add a key or a value.  With `exact`, also learn whether it is canonical."""
        try:
            value = _read_json(data)
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
        return _as_json(value) == data
    try:
        return canonical(data) == data
    except DecodeError:
        # Its text becomes a string that no constant has to find.
        return False


def _with_object(side: SideShape, document: dict[str, Any]) -> SideShape:
    fields = dict(side.fields)
    for name, value in document.items():
        if name in fields or len(fields) <= _MOST_FIELDS:
            fields[name] = _both(fields.get(name), _kind(value))
    uniform = side.uniform and (not side.objects or side.fields.keys() == document.keys())
    return msgspec.structs.replace(side, fields=fields, objects=True, uniform=uniform)


def _with_other(side: SideShape, value: Any) -> SideShape:
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
    if one in _NUMERIC and other in _NUMERIC:
        return max(one, other, key=_NUMERIC.index)
    return "JSON"
