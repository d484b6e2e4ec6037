"""The messages of outputs with one value a key: upserts, and their form with a registry's schemas.

For each time and key with a changed value an upsert says the new value, or is a tombstone if
there is none.  The messages come in the order of times, then keys; applied in this order they
make the collection at every time.

This takes all updates of a time and key together, but no state: if a key has one value, its
updates show the old value.  Consolidated, they are +1 of the new value, -1 of the old one, or
both.  Anything else is a violation: the key gets no message at this time, because no value would
be right.  Some violations do not show in the updates of one time, such as a second value that
comes while the first one stays; if a collection may have these, `processor.kernels.single_value`
finds them with state.

Formats with schemas in a registry have an `OutputShape`, the types of an output's messages.  A
`WrittenCodec` makes schemas of them, and encodes messages in JSON by these schemas.  `encoded` is
common to all such formats: a message that does not fit its schema is a violation, so it is left
out, and its reason names the column.  A body has no prefix: `framed` adds the ids that a registry
gives to the schemas.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from ikebana.codecs import canonical
from ikebana.codecs.cdcv2 import Fact
from ikebana.codecs.diff import UpdateHeaders, time_header
from ikebana.codecs.encodings import days_of, from_base64, instant_of, time_of_day
from ikebana.codecs.errors import DecodeError, error_record
from ikebana.codecs.sql_type import JSON, Array, List, Map, Scalar, SqlType, Struct
from ikebana.codecs.sql_type import Decimal as DecimalType

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
"""Matches names of records and fields, in Avro and in Protobuf."""


class OutputMessage(NamedTuple):
    """A Kafka message; the value of a tombstone is None."""

    key: bytes | None
    value: bytes | None
    headers: UpdateHeaders


class Violation(NamedTuple):
    """A key with updates at a time that cannot be written; the reason contains no data."""

    key: bytes | None
    time: int
    reason: str


def to_upserts(
    updates: Iterable[Fact], _origin: object = None, _empty: object = None
) -> tuple[list[OutputMessage], list[Violation]]:
    """Write the updates of closed times as upserts, in order of time and key.

    >>> messages, _ = to_upserts([(b"1", b'"a"', 7, -1), (b"1", b'"b"', 7, 1)])
    >>> messages
    [OutputMessage(key=b'1', value=b'"b"', headers=[('time', b'7')])]
    """
    messages, violations = [], []
    for time, key, diffs in changed(updates):
        if (reason := violation(key, diffs)) is not None:
            violations.append(Violation(key, time, reason))
            continue
        value = next((value for value, diff in diffs.items() if diff > 0), None)
        messages.append(OutputMessage(key, value, [time_header(time)]))
    return messages, violations


write = to_upserts


def reader() -> Callable[[bytes | None, bytes | None], list[tuple[bytes, int]]]:
    """Read upserts back: the old value of a key comes from the messages before, in its partition.

    >>> read = reader()
    >>> read(b"1", b'"a"'), read(b"1", b'"b"'), read(b"1", None)
    ([(b'"a"', 1)], [(b'"a"', -1), (b'"b"', 1)], [(b'"b"', -1)])
    """
    values: dict[bytes | None, bytes] = {}

    def read(key: bytes | None, value: bytes | None) -> list[tuple[bytes, int]]:
        before = values.pop(key, None)
        changes = [] if before is None else [(before, -1)]
        if value is not None:
            values[key] = value
            changes.append((value, 1))
        return changes

    return read


def violation(key: bytes | None, diffs: Mapping[bytes, int]) -> str | None:
    """Say why the consolidated diffs of a key's values cannot be an upsert; None if they can."""
    if key is None:
        return "there is no key"
    match sorted(diffs.values()):
        case [1] | [-1] | [-1, 1]:
            return None
        case [-1, -1, *_]:
            return "more than one value goes"
        case [*_, 1, 1]:
            return "more than one value comes"
        case _:
            return "a value comes or goes more than once"


def changed(updates: Iterable[Fact]) -> Iterator[tuple[int, bytes | None, dict[bytes, int]]]:
    """Yield each (time, key) with changed values, in this order, with the diffs by value."""
    groups: dict[tuple[int, bytes | None], dict[bytes, int]] = {}
    for key, value, time, diff in updates:
        at = time, key
        group = groups.get(at)
        if group is None:
            groups[at] = {value: diff}
        else:
            group[value] = group.get(value, 0) + diff
    for at in sorted(groups, key=_by_time_and_key):
        diffs = {value: diff for value, diff in groups[at].items() if diff}
        if diffs:
            yield *at, diffs


def _by_time_and_key(at: tuple[int, bytes | None]) -> tuple[int, bool, bytes]:
    return at[0], at[1] is not None, at[1] or b""


def violation_record(output: str, violation: Violation) -> bytes:
    """Make the error record of a violation in an output."""
    reason = f"output {output} at time {violation.time}: {violation.reason}"
    return error_record(reason, None, violation.key, None)


class MisfitError(Exception):
    """A value is not of the type of its column; `path` names the field."""

    def __init__(self, path: str, kind: SqlType | str) -> None:
        super().__init__(f'column "{path}" is not of type {kind}')


class OutputShape(NamedTuple):
    """The types of an output's messages: its key, and the columns of its rows.

    `space` is the namespace of the records.  A key of unknown type is JSON.  With
    `envelope`, values are Debezium's.
    """

    space: str
    key_type: SqlType
    columns: tuple[tuple[str, SqlType], ...]
    envelope: bool = False


class Writers(NamedTuple):
    """Encode the JSON of keys and of values as messages.  They raise: MisfitError."""

    key: Callable[[bytes], bytes]
    value: Callable[[bytes], bytes]


def encoded(
    writers: Writers, messages: Iterable[OutputMessage]
) -> tuple[list[OutputMessage], list[Violation]]:
    """Encode messages in JSON; a message without a key keeps none."""
    done: list[OutputMessage] = []
    violations: list[Violation] = []
    for key, value, headers in messages:
        try:
            body = None if value is None else writers.value(value)
            done.append(OutputMessage(None if key is None else writers.key(key), body, headers))
        except MisfitError as error:
            time = int(next(of for name, of in headers if name == "time") or 0)
            violations.append(Violation(key, time, str(error)))
    return done, violations


ToJson = Callable[[bytes], bytes]
"""Reads a key, or a value, back as canonical JSON.  It raises: DecodeError."""


class Ids(NamedTuple):
    """The ids that a registry has given to the schemas of an output's keys and values."""

    key: int
    value: int


def framed(messages: Sequence[OutputMessage], ids: Ids) -> list[OutputMessage]:
    """Add Confluent's prefix: a byte of 0, and the id of the schema in four bytes.

    >>> framed([OutputMessage(b"k", None, [])], Ids(1, 2))
    [OutputMessage(key=b'\\x00\\x00\\x00\\x00\\x01k', value=None, headers=[])]
    """
    of_key, of_value = (b"\0" + number.to_bytes(4, "big") for number in ids)
    return [
        OutputMessage(
            None if key is None else of_key + key,
            None if value is None else of_value + value,
            headers,
        )
        for key, value, headers in messages
    ]


def namespace_of(topic: str) -> str:
    """A namespace of Avro or Protobuf for the messages of a topic.

    >>> namespace_of("shop.orders-by-day.2024")
    'shop.orders_by_day._2024'
    """
    return ".".join(map(_as_name, topic.split(".")))


def _as_name(part: str) -> str:
    text = "".join(c if NAME.fullmatch(c) or c.isdigit() else "_" for c in part)
    return text if NAME.fullmatch(text) else f"_{text}"


def has_names(kind: SqlType) -> bool:
    """Whether all fields within a type have valid names of Avro, and maps have texts as keys."""
    match kind:
        case Struct(fields):
            return all(NAME.fullmatch(name) and has_names(of) for name, of in fields)
        case List(of) | Array(of) | Map(Scalar("VARCHAR"), of):
            return has_names(of)
        case Map(_, of):
            # Keys of JSON objects are texts.
            return has_names(of)
    return True


# Values in JSON as the data of their types.  A format with schemas has a function for types
# without parts, its `ScalarForms`; lists, maps and structs are the same in all of them.
#
# Avro's form is also the judge of whether a value is of its type: dates are counts of days, times
# and timestamps of parts of a second, decimals and BLOBs are bytes, and what has no other form is
# a text.

ToDatum = Callable[[Any], Any]
ScalarForms = Callable[[SqlType], ToDatum]
"""From a type without parts to a function that makes the data of a value in JSON.

The value is not null, and has canonical numbers; the function raises one of `_NO_FIT` for a value
of another type."""
_NO_FIT = (ArithmeticError, DecodeError, TypeError, ValueError)
_decode = canonical.decoder(Any)


class Forms(NamedTuple):
    """The data of a format: its scalars, and whether what is in lists and maps may be null."""

    scalars: ScalarForms
    nulls: bool = True

    def writers(
        self, shape: OutputShape, key: Callable[[Any], bytes], value: Callable[[Any], bytes]
    ) -> Writers:
        """Make the writers of a shape, whose data `key` and `value` encode."""
        key_datum, row = self._of_key(shape.key_type), self._of_row(shape.columns)

        def envelope_of(message: bytes) -> bytes:
            event = _decode(message)
            images = {name: row(event[name]) for name in ("before", "after")}
            return value({**event, **images})

        def value_of(message: bytes) -> bytes:
            return value(_not_null(row(_decode(message)), "value", "STRUCT"))

        return Writers(
            lambda message: key(key_datum(_decode(message))),
            envelope_of if shape.envelope else value_of,
        )

    def _of(self, kind: SqlType, path: str) -> ToDatum:
        """Make a function from values in JSON to data; null stays null.

        The function raises: MisfitError, for a value that does not fit the type.
        """
        match kind:
            case List(of) | Array(of):
                convert = _list(self._of_item(of, path, kind))
            case Map(_, of):
                convert = _map(self._of_item(of, path, kind))
            case Struct(fields):
                convert = _struct([(name, self._of(of, f"{path}.{name}")) for name, of in fields])
            case _:
                convert = self.scalars(kind)
        return _fitting(convert, path, kind)

    def _of_item(self, of: SqlType, path: str, kind: SqlType) -> ToDatum:
        each = self._of(of, path)
        return each if self.nulls else lambda value: _not_null(each(value), path, kind)

    def _of_row(self, columns: Sequence[tuple[str, SqlType]]) -> ToDatum:
        parts = [(name, self._of(of, name)) for name, of in columns]
        return _fitting(_struct(parts), "value", "STRUCT")

    def _of_key(self, kind: SqlType) -> ToDatum:
        """The same of keys: neither they nor their parts are null.

        In a key that is JSON, null is a value.
        """
        if kind == JSON:
            return self.scalars(kind)
        datum = self._of(kind, "key")
        if isinstance(kind, Struct):
            parts = [(name, self._of_part(name, of)) for name, of in kind.fields]
            datum = _fitting(_struct(parts), "key", kind)
        return lambda value: _not_null(datum(value), "key", kind)

    def _of_part(self, name: str, of: SqlType) -> ToDatum:
        part = self._of(of, name)
        return lambda value: _not_null(part(value), name, of)


def _fitting(convert: ToDatum, path: str, kind: SqlType | str) -> ToDatum:
    def datum(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except _NO_FIT:
            raise MisfitError(path, kind) from None

    return datum


def _not_null(datum: Any, path: str, kind: SqlType | str) -> Any:
    if datum is None:
        raise MisfitError(path, f"{kind} without null")
    return datum


def _list(each: ToDatum) -> ToDatum:
    return lambda value: [each(part) for part in _instance(value, list)]


def _map(each: ToDatum) -> ToDatum:
    return lambda value: {name: each(part) for name, part in _instance(value, dict).items()}


def _struct(parts: Sequence[tuple[str, ToDatum]]) -> ToDatum:
    def datum(value: Any) -> Any:
        row = _instance(value, dict)
        return {name: each(row.get(name)) for name, each in parts}

    return datum


def _instance(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value


def avro_scalars(kind: SqlType) -> ToDatum:
    """The function that makes data of Avro: see `ScalarForms`."""
    if isinstance(kind, DecimalType):
        return _unscaled(kind.width, kind.scale)
    return _DATA.get(str(kind), _text)


def _text(value: Any) -> str:
    """A text, or the JSON of anything else, as SQL reads it as VARCHAR."""
    return value if value.__class__ is str else canonical.write(value).decode()


def _json(value: Any) -> str:
    return canonical.write(value).decode()


_BOOLEANS = {True: True, False: False, "true": True, "false": False, "t": True, "f": False}
_BOOLEANS |= {"1": True, "0": False}


def _boolean(value: Any) -> bool:
    # 1 and 0 are keys of this mapping, too, since they equal True and False.
    if value.__class__ in (bool, int, str) and value in _BOOLEANS:
        return _BOOLEANS[value]
    raise ValueError


def _whole(least: int, most: int) -> ToDatum:
    def convert(value: Any) -> int:
        number = int(value) if value.__class__ is str else value
        if number.__class__ is not int or not least <= number <= most:
            raise ValueError
        return number

    return convert


def _number(value: Any) -> float:
    if value.__class__ is bool:
        raise ValueError
    return float(value)


def _single(value: Any) -> float:
    number = _number(value)
    if abs(number) > _LARGEST_SINGLE and abs(number) != float("inf"):
        raise ValueError
    return number


_LARGEST_SINGLE = 3.4028235677973366e38


def _unscaled(width: int, scale: int) -> ToDatum:
    """The bytes of a decimal's digits, `scale` of them behind the point."""
    most = 10**width

    def convert(value: Any) -> bytes:
        if value.__class__ is bool:
            raise ValueError
        exact = Decimal(value) if value.__class__ in (int, str) else Decimal(str(value))
        sign, digits, exponent = exact.as_tuple()
        if not isinstance(exponent, int):
            raise ValueError
        number: int = int("".join(map(str, digits)))
        shift = exponent + scale
        if shift > width:
            if number:
                raise ValueError
            shift = 0
        if shift >= 0:
            number *= int(10**shift)
        else:
            number, rest = divmod(number, int(10 ** min(-shift, len(digits) + 1)))
            if rest:
                raise ValueError
        if number >= most:
            raise ValueError
        number = -number if sign else number
        return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)

    return convert


def _then(first: ToDatum, second: ToDatum) -> ToDatum:
    return lambda value: second(first(value))


_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
_LONG = _whole(-(2**63), 2**63 - 1)
# The functions that make the data of types without parts; those of others make texts.
_DATA: dict[str, ToDatum] = {
    "BOOLEAN": _boolean,
    **{name: _whole(-(2**bits // 2), 2**bits // 2 - 1) for name, bits in _BITS.items()},
    **{f"U{name}": _whole(0, 2**bits - 1) for name, bits in _BITS.items()},
    "UBIGINT": _then(_whole(0, 2**64 - 1), _unscaled(20, 0)),
    **dict.fromkeys(("HUGEINT", "UHUGEINT"), _unscaled(38, 0)),
    "FLOAT": _single,
    "DOUBLE": _number,
    "BLOB": from_base64,
    "DATE": days_of,
    "TIME": time_of_day,
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP WITH TIME ZONE"),
        _then(instant_of(6), _LONG),
    ),
    "TIMESTAMP_NS": _then(instant_of(9), _LONG),
    "JSON": _json,
}
