"""JSON values as bytes that sort in the order of the values, ascending or descending.

The order is: false, true, numbers by value, texts by their UTF-8, arrays and objects by
their canonical bytes.  Numbers are exact, however large and however many digits they
have.  No value's bytes begin another's.

Values of some SQL types sort otherwise than their JSON: bytes are in base64, a fraction of a
second comes before a zone, a year may have five digits.  Such a value is a pair: bytes in the
order of the type, and the canonical bytes of the value, which `value_of` returns.  The planner
describes the order of a type as a `SortOrder`: the empty text for types that sort as their JSON
does, a name for other scalars, and a tuple for nested types.  Within lists and rows null comes
last, as in DuckDB.
"""

import re
import struct
from base64 import b64decode
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import msgspec

from ikebana.codecs import canonical

# "" | "double" | "instant" | "time" | "bytes" | "interval" | ("enum", names) | ("list", Order)
# | ("row", pairs)
SortOrder = str | tuple[Any, ...]

# Beyond this exponent canonical JSON has integers only.
_LARGEST_EXPONENT = 308

_FALSE, _TRUE, _BELOW_ZERO, _IS_ZERO, _ABOVE_ZERO, _TEXT, _OTHER, _TYPED = (
    b"%d" % n for n in range(8)
)
# Each byte of data is raised by one, so that data can end in a zero: then none is the prefix of
# another, and inverting all bits reverses the order.  UTF-8 has no byte 255.
_UP = bytes((byte + 1) % 256 for byte in range(256))
_DOWN = bytes((byte - 1) % 256 for byte in range(256))
_TURNED = bytes(255 - byte for byte in range(256))
_YEAR = struct.Struct(">I")
_YEAR_BIAS = 1 << 31
_TIME = struct.Struct(">Qi")
_PLACE = struct.Struct(">I")
_DAY_SECONDS = 86_400
_LAST, _SOME, _NULL = b"\0", b"\1", b"\2"

# Infinite numbers and NaN, below and above other numbers.
_NOT_FINITE = {"-Infinity": b"2\0\1", "Infinity": b"4\xff\1", "NaN": b"4\xff\2"}

# Years before 0 have a sign; the only offset that occurs is UTC.
_INSTANT = re.compile(r"(-?\d+)-(\d\d-\d\d)(?:[T ]([0-9:.]+))?(?:Z|\+00)?")
_INFINITE = {"-infinity": b"\0", "infinity": b"\2"}
# As SQL writes it: 1 year 2 months -3 days 04:05:06.000789.
_INTERVAL = re.compile(
    r"(?:(-?\d+) years? ?)?(?:(-?\d+) months? ?)?(?:(-?\d+) days? ?)?"
    r"(?:(-)?(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?"
)
# No length has more microseconds: of months and days there are 2 to the power of 31.
_INTERVAL_BYTES = 10
_INTERVAL_BIAS = 1 << 78
_TIME_OF_DAY = re.compile(
    r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?"
)
_SPELLED = {written: text for text, written in _NOT_FINITE.items()}
_EXPONENT = struct.Struct(">Q")
_EXPONENT_BIAS = 1 << 63
_LENGTH = struct.Struct(">I")


def ordered(value: Any, *, descending: bool, order: SortOrder = "") -> bytes:
    """A value, as `canonical.decoder` gives it, as bytes that are in the order of values.

    `order` is the order of the values' type, if that is not the one of JSON.

    >>> ordered(9, descending=False) < ordered(10, descending=False)
    True
    >>> late, early = "2024-01-01T12:00:00.5Z", "2024-01-01T12:00:00Z"
    >>> early < late
    False
    >>> ordered(early, descending=False, order="instant") < ordered(
    ...     late, descending=False, order="instant"
    ... )
    True
    """
    if order == "double":
        ascending = _by_type(value, order)
    else:
        ascending = _pair(value, order) if order else _ascending(value)
    return b"-" + ascending.translate(_TURNED) if descending else b"+" + ascending


def value_of(place: bytes) -> Any:
    """The value that `ordered` encoded.

    Arrays, objects and values with the order of a type come as canonical bytes.
    """
    ascending = place[1:].translate(_TURNED) if place[:1] == b"-" else place[1:]
    if ascending in _SPELLED:
        return _SPELLED[ascending]
    kind, body = ascending[:1], ascending[1:]
    if kind in (_FALSE, _TRUE):
        return kind == _TRUE
    if kind == _TEXT:
        return body[:-1].translate(_DOWN).decode()
    if kind == _TYPED:
        (length,) = _LENGTH.unpack(body[-_LENGTH.size :])
        written = body[: -_LENGTH.size - 1]
        return msgspec.Raw(written[len(written) - length :].translate(_DOWN))
    if kind == _OTHER:
        return msgspec.Raw(body[:-1].translate(_DOWN))
    if kind == _IS_ZERO:
        return 0
    body = body.translate(_TURNED) if kind == _BELOW_ZERO else body
    (biased,) = _EXPONENT.unpack_from(body)
    digits = tuple(body[_EXPONENT.size : -1].translate(_DOWN))
    exponent = biased - _EXPONENT_BIAS - len(digits) + 1
    return canonical_of(Decimal((int(kind == _BELOW_ZERO), digits, exponent)))


def _pair(value: Any, order: SortOrder) -> bytes:
    # A double within an array is written in its canonical form, not as Python spells it.
    written = canonical.encode(value).translate(_UP)
    return _TYPED + _by_type(value, order) + written + b"\0" + _LENGTH.pack(len(written))


def _by_type(value: Any, order: SortOrder) -> bytes:
    match order:
        case "":
            return _ascending(value)
        case "double":
            return _NOT_FINITE[value] if isinstance(value, str) else _ascending(value)
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
            return b"".join(_part(each, of) for each in value) + _LAST
        case ("row", parts):
            return b"".join(_part(value.get(name), of) for name, of in parts)
    raise AssertionError(f"no order is {order!r}")


def _part(value: Any, order: SortOrder) -> bytes:
    return _NULL if value is None else _SOME + _by_type(value, order)


def _instant(text: str) -> bytes:
    """Encode a date, or a timestamp with or without zone."""
    if text in _INFINITE:
        return _INFINITE[text]
    match = _INSTANT.fullmatch(text)
    assert match is not None, f"no instant is {text!r}"
    rest = f"{match[2]} {match[3] or ''}".encode()
    return b"\1" + _YEAR.pack(int(match[1]) + _YEAR_BIAS) + rest + _LAST


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
    match = _INTERVAL.fullmatch(text)
    assert match is not None, f"no interval is {text!r}"
    years, months, days, sign, hours, minutes, seconds, fraction = match.groups()
    micros = (int(hours or 0) * 3_600 + int(minutes or 0) * 60 + int(seconds or 0)) * 1_000_000
    micros += int((fraction or "").ljust(6, "0"))
    whole_days = (int(years or 0) * 12 + int(months or 0)) * 30 + int(days or 0)
    micros = whole_days * _DAY_SECONDS * 1_000_000 + (-micros if sign else micros)
    return (micros + _INTERVAL_BIAS).to_bytes(_INTERVAL_BYTES, "big")


def _bytes(text: str) -> bytes:
    # A byte after each zero is greater than the end, which is two zeros.
    return b64decode(text).replace(b"\0", b"\0\xff") + b"\0\0"


def _ascending(value: Any) -> bytes:
    match value:
        case bool():
            return _TRUE if value else _FALSE
        case int() | float() | Decimal():
            return _ascending_number(decimal_of(value))
        case str():
            return _TEXT + value.encode().translate(_UP) + b"\0"
        case _:
            return _OTHER + canonical.encode(value).translate(_UP) + b"\0"


def _ascending_number(number: Decimal) -> bytes:
    if not number:
        return _IS_ZERO
    # The exponent of the first digit, then the digits without trailing zeros.
    exponent = _EXPONENT.pack(number.adjusted() + _EXPONENT_BIAS)
    digits = bytes(number.as_tuple().digits).rstrip(b"\0").translate(_UP)
    body = exponent + digits + b"\0"
    return _BELOW_ZERO + body.translate(_TURNED) if number < 0 else _ABOVE_ZERO + body


def decimal_of(number: float | Decimal) -> Decimal:
    """A canonical number as the decimal that it is."""
    # A canonical double is the decimal that it is written as.
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


def canonical_of(number: Decimal) -> int | float | Decimal:
    """The canonical form; a sum beyond all doubles that has a fraction is rounded."""
    if number.adjusted() > _LARGEST_EXPONENT:
        return int(number.to_integral_value(ROUND_HALF_EVEN))
    return canonical.canonical_number(number)
