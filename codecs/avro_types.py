"""The Avro type of each type of SQL, and the datum of each value in JSON.

| SQL | Avro |
|---|---|
| BOOLEAN | boolean |
| TINYINT, SMALLINT, INTEGER, UTINYINT, USMALLINT | int |
| BIGINT, UINTEGER | long |
| UBIGINT | decimal(20, 0) |
| HUGEINT, UHUGEINT | decimal(38, 0) |
| DECIMAL(p, s) | decimal(p, s) |
| FLOAT, DOUBLE | float, double |
| BLOB | bytes |
| DATE | int, date |
| TIME | long, time-micros |
| TIMESTAMP, TIMESTAMP_S, TIMESTAMP_MS; TIMESTAMP WITH TIME ZONE | long, timestamp-micros |
| TIMESTAMP_NS | long, timestamp-nanos |
| UUID | string, uuid |
| STRUCT | record |
| list, array | array |
| MAP | map |
| VARCHAR, ENUM, INTERVAL, TIME WITH TIME ZONE, JSON | string |

Where Avro's types leave the meaning open to Kafka Connect, `connect.name` has the name that
Debezium's converters use and its sinks know: there is none for an instant with a zone.  Parts of
lists, maps and structs may be null.

Avro's types: https://avro.apache.org/docs/1.12.0/specification/
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ikebana.codecs import canonical
from ikebana.codecs.encodings import days_of, from_base64, instant_of, time_of_day
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.shape import MisfitError
from ikebana.codecs.sql_type import (
    Array,
    Enum,
    List,
    Map,
    SqlType,
    Struct,
)
from ikebana.codecs.sql_type import Decimal as DecimalType

Datum = Callable[[Any], Any]

_NO_FIT = (ArithmeticError, DecodeError, TypeError, ValueError)


def schema_of(kind: SqlType, name: str) -> Any:
    """The Avro schema of a type; `name` is the name of the record, if it becomes one.

    >>> from ikebana.codecs.sql_type import parsed
    >>> schema_of(parsed("DECIMAL(9,2)"), "price")
    {'type': 'bytes', 'logicalType': 'decimal', 'precision': 9, 'scale': 2}
    """
    match kind:
        case DecimalType(width, scale):
            return _decimal(width, scale)
        case List(of) | Array(of):
            return {"type": "array", "items": nullable(schema_of(of, name))}
        case Map(_, of):
            return {"type": "map", "values": nullable(schema_of(of, name))}
        case Struct(fields):
            return record(name, [field(each, of, f"{name}_{each}") for each, of in fields])
    return _SCALARS.get(str(kind), ("string", None))[0]


def record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    """The schema of a record."""
    return {"type": "record", "name": name, "fields": fields}


def field(name: str, kind: SqlType, record_name: str) -> dict[str, Any]:
    """A field that may be null; its default is null."""
    return {"name": name, "type": nullable(schema_of(kind, record_name)), "default": None}


def nullable(schema: Any) -> list[Any]:
    """The schema of a value that may be null."""
    return ["null", schema]


def datum_of(kind: SqlType, path: str) -> Datum:
    """Make a function from values in JSON, with canonical numbers, to Avro's data.

    The function raises: MisfitError, for a value that does not fit the type.
    """
    match kind:
        case List(of) | Array(of):
            return _list(datum_of(of, path), path, kind)
        case Map(_, of):
            return _map(datum_of(of, path), path, kind)
        case Struct(fields):
            parts = [(name, datum_of(of, f"{path}.{name}")) for name, of in fields]
            return _struct(parts, path, kind)
        case DecimalType(width, scale):
            convert = _unscaled(width, scale)
        case Enum():
            convert = _text
        case _:
            convert = _SCALARS.get(str(kind), ("", _text))[1] or _text

    def datum(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except _NO_FIT:
            raise MisfitError(path, kind) from None

    return datum


def _list(each: Datum, path: str, kind: SqlType) -> Datum:
    def datum(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise MisfitError(path, kind)
        return [each(part) for part in value]

    return datum


def _map(each: Datum, path: str, kind: SqlType) -> Datum:
    def datum(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise MisfitError(path, kind)
        return {name: each(part) for name, part in value.items()}

    return datum


def _struct(parts: list[tuple[str, Datum]], path: str, kind: SqlType) -> Datum:
    def datum(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise MisfitError(path, kind)
        return {name: each(value.get(name)) for name, each in parts}

    return datum


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


def _whole(least: int, most: int) -> Datum:
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


def _unscaled(width: int, scale: int) -> Datum:
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


def _decimal(width: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": width, "scale": scale}


def _logical(kind: str, logical: str, meaning: str | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": kind, "logicalType": logical}
    if meaning is not None:
        schema |= {"connect.version": 1, "connect.name": f"io.debezium.{meaning}"}
    return schema


_MICROS = _logical("long", "timestamp-micros", "time.MicroTimestamp"), instant_of(6)
_INT, _LONG = ("int", _whole(-(2**31), 2**31 - 1)), ("long", _whole(-(2**63), 2**63 - 1))
# The schema of a type, and the function that makes its data.
_SCALARS: dict[str, tuple[Any, Datum | None]] = {
    "BOOLEAN": ("boolean", _boolean),
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"), _INT),
    **dict.fromkeys(("BIGINT", "UINTEGER"), _LONG),
    "UBIGINT": (_decimal(20, 0), _unscaled(20, 0)),
    **dict.fromkeys(("HUGEINT", "UHUGEINT"), (_decimal(38, 0), _unscaled(38, 0))),
    "FLOAT": ("float", _single),
    "DOUBLE": ("double", _number),
    "BLOB": ("bytes", from_base64),
    "DATE": (_logical("int", "date"), days_of),
    "TIME": (_logical("long", "time-micros", "time.MicroTime"), time_of_day),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS"), _MICROS),
    "TIMESTAMP WITH TIME ZONE": (_logical("long", "timestamp-micros"), instant_of(6)),
    "TIMESTAMP_NS": (
        _logical("long", "timestamp-nanos", "time.NanoTimestamp"),
        instant_of(9),
    ),
    "UUID": (_logical("string", "uuid", "data.Uuid"), None),
    "JSON": (
        {"type": "string", "connect.version": 1, "connect.name": "io.debezium.data.Json"},
        _json,
    ),
}
