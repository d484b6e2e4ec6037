"""Convert the values of fastavro to canonical JSON data.

The semantic types of Kafka Connect and Debezium (`connect.name`) come before Avro's logical types:
decimals are exact numbers, timestamp-* are in UTC with a "Z", local-timestamp-* without, a
duration is an interval of ISO 8601, and bytes become base64 text.
"""

import struct
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

from msgspec import UNSET

from ikebana.codecs import canonical
from ikebana.codecs.column_encodings import DECIMAL, PRECISION, Meaning, meaning_of_name
from ikebana.codecs.encodings import COUNTED, Convert, decimals
from ikebana.codecs.errors import DecodeError


def _in_utc(name: str) -> Convert:
    convert = COUNTED[name]

    def in_utc(value: Any) -> str:
        text: str = convert(value)
        return text if text.endswith("infinity") else f"{text}Z"

    return in_utc


def _timestamp(unit: str, utc: str, local: str) -> dict[str, Meaning]:
    name = f"timestamp-{unit}"
    return {name: Meaning(utc, _in_utc(name)), f"local-{name}": Meaning(local, COUNTED[name])}


_LOGICAL = {
    "date": Meaning("DATE", COUNTED["date"]),
    "time-millis": Meaning("TIME", COUNTED["time-millis"]),
    "time-micros": Meaning("TIME", COUNTED["time-micros"]),
    **_timestamp("millis", "TIMESTAMPTZ", "TIMESTAMP"),
    **_timestamp("micros", "TIMESTAMPTZ", "TIMESTAMP"),
    **_timestamp("nanos", "TIMESTAMP_NS", "TIMESTAMP_NS"),
}


class Unfit(Exception):
    """A value that does not fit its field; `path` has the names, the innermost first."""

    def __init__(self, name: str, error: Exception) -> None:
        self.path: list[str] = [*getattr(error, "path", ()), name]
        self.reason: str = getattr(error, "reason", "it is out of range")


_REFUSALS = (Unfit, DecodeError, ArithmeticError, ValueError)


def meaning_of(schema: Mapping[str, Any]) -> Convert | None:
    """The conversion that a schema's semantic or logical type asks for, if it has one."""
    meaning = semantics_of(schema)
    return None if meaning is None else meaning.convert


def semantics_of(schema: Mapping[str, Any]) -> Meaning | None:
    """The meaning of a schema's semantic or logical type; None if it has none."""
    name, logical = schema.get("connect.name"), schema.get("logicalType")
    if meaning := meaning_of_name(name, schema.get("connect.parameters")):
        return meaning
    kind = schema["type"]
    if logical == "decimal" and kind in ("bytes", "fixed"):
        parts = {"scale": schema.get("scale", 0), PRECISION: schema.get("precision")}
        return meaning_of_name(DECIMAL, {name: str(part) for name, part in parts.items()})
    if logical == "uuid":
        fixed = kind == "fixed" and schema["size"] == 16
        return Meaning("UUID", _uuid if fixed else None) if fixed or kind == "string" else None
    if logical == "duration" and kind == "fixed" and schema["size"] == _DURATION.size:
        return Meaning("INTERVAL", _duration)
    if logical in _LOGICAL and kind in ("int", "long"):
        return _LOGICAL[logical]
    return None


def applied(convert: Convert | None, value: Any) -> Any:
    """Convert a value, if there is a conversion."""
    return convert(value) if convert else value


def after(first: Convert | None, second: Convert) -> Convert:
    """Compose two conversions."""
    return second if first is None else lambda value: second(first(value))


def either(first: Convert, second: Convert | None) -> Convert:
    """The first conversion, or the second one for values that the first one refuses."""

    def convert(value: Any) -> Any:
        try:
            return first(value)
        except _REFUSALS:
            return applied(second, value)

    return convert


def unless(absent: Callable[[Any], bool], convert: Convert | None) -> Convert:
    """A conversion to UNSET for values that pass the test `absent`."""
    return lambda value: UNSET if absent(value) else applied(convert, value)


def picked(names: Sequence[str] | None, converts: Sequence[tuple[str, Convert]]) -> Convert | None:
    """The conversion of a record: its fields `names`, None for all, some of them converted."""
    if names is None and not converts:
        return None

    def record(value: dict[str, Any]) -> dict[str, Any]:
        # Not in place, because a default is one object that all messages share.
        row = value.copy() if names is None else {name: value[name] for name in names}
        name = ""
        try:
            for name, convert in converts:
                if (field := row[name]) is not None:
                    row[name] = convert(field)
        except _REFUSALS as error:
            raise Unfit(name, error) from None
        return row

    return record


def each(convert: Convert | None, kind: type) -> Convert | None:
    """The conversion of the items of a list, or of the values of a dict."""
    if convert is None:
        return None
    if kind is list:
        return lambda value: [None if item is None else convert(item) for item in value]
    return lambda value: {
        name: None if item is None else convert(item) for name, item in value.items()
    }


def as_bytes(value: bytes | str) -> bytes:
    """Bytes, also of a default."""
    # A default of type bytes is a text: its code points are the bytes.
    return value.encode("latin-1") if isinstance(value, str) else value


def base64(value: bytes | str) -> str:
    """Bytes as base64 text."""
    return b2a_base64(as_bytes(value), newline=False).decode()


def _uuid(value: bytes | str) -> str:
    text = as_bytes(value).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _duration(value: bytes | str) -> str:
    months, days, millis = _DURATION.unpack(as_bytes(value))
    seconds, rest = divmod(millis, 1_000)
    return f"P{months}M{days}DT{seconds}{decimals(rest, 3)}S"


_DURATION = struct.Struct("<III")


def _double(value: float) -> Any:
    if value.is_integer() and -1e15 < value < 1e15:
        return int(value)
    return canonical.number(repr(value)) if isfinite(value) else canonical.spelling(value)


def _float(value: float) -> Any:
    # The shortest decimal that names this float of 32 bits, as Java writes it.
    if isfinite(value):
        for digits in range(6, 9):
            if _FLOAT.unpack(_FLOAT.pack(near := float(f"{value:.{digits}g}")))[0] == value:
                return _double(near)
    return _double(value)


_FLOAT = struct.Struct("<f")
CONVERTS: dict[str, Convert] = {"bytes": base64, "float": _float, "double": _double}
