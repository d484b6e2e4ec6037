"""Encode values of SQL types as bytes that sort as SQL sorts the values.


A value is JSON, which may sort differently: bytes are in base64, a fraction of a second comes
before a zone, a year may have five digits.  So the planner describes the order of a type as an
`Order`: the empty text for types that sort as their JSON does, a name for other scalars, and a
tuple for nested types.  Within lists and rows null comes last, as in DuckDB.


No encoding is a prefix of another one.
"""

import re
import struct
from base64 import b64decode
from collections.abc import Callable
from typing import Any

# "" | "double" | "instant" | "time" | "bytes" | "interval" | ("enum", names) | ("list", Order)
# | ("row", pairs)
Order = str | tuple[Any, ...]

_YEAR = struct.Struct(">I")
_YEAR_BIAS = 1 << 31
_TIME = struct.Struct(">Qi")
_PLACE = struct.Struct(">I")
_DAY_SECONDS = 86_400
_END, _VALUE, _NULL = b"\0", b"\1", b"\2"

NOT_FINITE = {"-Infinity": b"2\0\1", "Infinity": b"4\xff\1", "NaN": b"4\xff\2"}
"""The encodings of infinite numbers and NaN, beside those of `kernels.order` for other numbers."""

# Years before 0 have a sign; the only offset that occurs is UTC.
_INSTANT = re.compile(r"(-?\d+)-(\d\d-\d\d)(?:[T ]([0-9:.]+))?(?:Z|\+00)?")
_INFINITE = {"-infinity": b"\0", "infinity": b"\2"}
# As SQL writes it: 1 year 2 months -3 days 04:05:06.000789.
_LENGTH = re.compile(
    r"(?:(-?\d+) years? ?)?(?:(-?\d+) months? ?)?(?:(-?\d+) days? ?)?"
    r"(?:(-)?(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?"
)
# No length has more microseconds: of months and days there are 2 to the power of 31.
_LENGTH_BYTES = 10
_LENGTH_BIAS = 1 << 78
_TIME_OF_DAY = re.compile(
    r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?"
)


def ascending(value: Any, order: Order, plain: Callable[[Any], bytes]) -> bytes:
    """Encode a value of `canonical.decoder`; `plain` encodes any JSON.

    >>> late, early = "2024-01-01T12:00:00.5Z", "2024-01-01T12:00:00Z"
    >>> ascending(late, "instant", repr) > ascending(early, "instant", repr)
    True
    """
    match order:
        case "":
            return plain(value)
        case "double":
            # Finite numbers as in JSON; infinity and NaN below and above them.
            return NOT_FINITE[value] if isinstance(value, str) else plain(value)
        case "instant":
            return _instant(value)
        case "time":
            return _time_of_day(value)
        case "bytes":
            return _bytes(value)
        case "interval":
            return _interval(value)
        case ("enum", names):
            return _PLACE.pack(names.index(value))
        case ("list", of):
            return b"".join(_part(each, of, plain) for each in value) + _END
        case ("row", parts):
            return b"".join(_part(value.get(name), of, plain) for name, of in parts)
    raise AssertionError(f"no order is {order!r}")


def _part(value: Any, order: Order, plain: Callable[[Any], bytes]) -> bytes:
    return _NULL if value is None else _VALUE + ascending(value, order, plain)


def _instant(text: str) -> bytes:
    """Encode a date, or a timestamp with or without zone."""
    if text in _INFINITE:
        return _INFINITE[text]
    match = _INSTANT.fullmatch(text)
    assert match is not None, f"no instant is {text!r}"
    rest = f"{match[2]} {match[3] or ''}".encode()
    return b"\1" + _YEAR.pack(int(match[1]) + _YEAR_BIAS) + rest + _END


def _time_of_day(text: str) -> bytes:
    """Encode a time with a zone: it sorts by instant, then from east to west."""
    match = _TIME_OF_DAY.fullmatch(text)
    assert match is not None, f"no time with a zone is {text!r}"
    hours, minutes, seconds, fraction, sign, *of_zone = match.groups()
    offset = sum(int(n or 0) * unit for n, unit in zip(of_zone, (3_600, 60, 1), strict=True))
    offset = -offset if sign == "-" else offset
    local = int(hours) * 3_600 + int(minutes) * 60 + int(seconds)
    micros = (local - offset + _DAY_SECONDS) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return _TIME.pack(micros, -offset + _DAY_SECONDS)


def _interval(text: str) -> bytes:
    """Encode a length of time: a month has 30 days, and a day 24 hours, as SQL compares them."""
    match = _LENGTH.fullmatch(text)
    assert match is not None, f"no interval is {text!r}"
    years, months, days, sign, hours, minutes, seconds, fraction = match.groups()
    micros = (int(hours or 0) * 3_600 + int(minutes or 0) * 60 + int(seconds or 0)) * 1_000_000
    micros += int((fraction or "").ljust(6, "0"))
    whole_days = (int(years or 0) * 12 + int(months or 0)) * 30 + int(days or 0)
    micros = whole_days * _DAY_SECONDS * 1_000_000 + (-micros if sign else micros)
    return (micros + _LENGTH_BIAS).to_bytes(_LENGTH_BYTES, "big")


def _bytes(text: str) -> bytes:
    # A byte after each zero is greater than the end, which is two zeros.
    return b64decode(text).replace(b"\0", b"\0\xff") + b"\0\0"
