"""Convert the values of columns in messages to one normal form.

A source may write a date as days, a time or timestamp as a count of milli-, micro- or
nanoseconds, a decimal as the bytes of its digits.  The normal forms are: dates "2024-01-31";
times "12:34:56.789"; timestamps "2024-01-31T12:34:56.789", or with a zone in UTC and with "Z" at
the end; fractions without trailing zeros; decimals as exact numbers; bytes as base64 text.
Postgres's "infinity" stays, and the numbers that Debezium writes for infinite timestamps, and
Postgres itself for infinite dates, become it.

The encoding of a column comes from the semantic type in a schema (`codecs.semantic_types`), or
from the pipeline file (`codecs.column_encodings`).

Years before 0 and after 9999 are written as in ISO 8601, "-0001-12-31" and "+10000-01-01": some
of Postgres's infinite times arrive so.  A time may be negative or longer than a day, as MySQL's
may be.

These values are not converted: XML, UUID, enumerations, sets, vectors and ISO intervals (texts),
years (integers), bits (bytes, least significant first) and geometries (objects).  JSON is a text,
and a duration a number of micro- or nanoseconds, unless the column is declared as one
(`codecs.column_encodings`).
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

from ikebana.codecs import canonical
from ikebana.codecs.counts_of_time import (
    INFINITE_DAYS,
    INFINITE_MICROS,
    INFINITE_NANOS,
    clock,
    far_date,
)
from ikebana.codecs.errors import DecodeError

Convert = Callable[[Any], Any]

# Up to here, doubles hold the integer and the power of ten exactly, so their quotient is the
# double nearest to the decimal.
_EXACT_UNSCALED = 10**15
_EXACT_SCALE = 22
# Postgres's decimals are the longest: 16,383 digits after the point, and a double's before it.
_LONGEST_DECIMAL = 7_000
_SCALES = range(-400, 16_384)
_WIDE = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 -- a timestamp without zone
_EPOCH_DAY, _DAY = _EPOCH.toordinal(), 86_400
_CYCLE, _CYCLE_DAYS = 400, 146_097
INTEGERS = range(-(2**63), 2**63)
"""The integers of 64 bits."""
_WHOLE = len(_EPOCH.isoformat())
# The lengths of UTC timestamps with fractions that Python reads completely.
_USUAL = range(_WHOLE + 1, _WHOLE + 9)

_CLOCK = r"([01]\d|2[0-4]):([0-5]\d)(?::([0-5]\d)(?:[.,](\d{1,9}))?)?"
_ZONE = r"(?:[Zz]|([+-])(\d{2}):?(\d{2})?(?::?(\d{2}))?)"
_ZONED_TIME = re.compile(_CLOCK + _ZONE, re.ASCII)
_ZONED_TIMESTAMP = re.compile(r"([+-]?\d{4,9})-(\d{2})-(\d{2})[Tt ]" + _CLOCK + _ZONE, re.ASCII)
_ZONED_DATE = re.compile(r"([+-]?\d{4,9}-\d{2}-\d{2})" + _ZONE + "?", re.ASCII)

_INFINITE = ("infinity", "-infinity")


def from_base64(value: Any) -> bytes:
    """Decode bytes from a text of base64, as in JSON."""
    if value.__class__ is not str:
        raise expected("base64 text", value)
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise expected("base64 text", value) from None


def from_bytes(value: Any) -> bytes:
    """Check that a value is bytes, as in Avro."""
    if isinstance(value, bytes):
        return value
    raise expected("bytes", value)


def scale_of(text: str) -> int | None:
    """The scale in a text; None if it is no integer, or too large."""
    number = int(text) if re.fullmatch(r"-?\d{1,5}", text, re.ASCII) else None
    return number if number in _SCALES else None


def tolerant(convert: Convert) -> Convert:
    """A conversion that leaves a value unchanged if `convert` cannot convert it."""

    def attempt(value: Any) -> Any:
        try:
            return convert(value)
        except DecodeError:
            return value

    return attempt


def expected(what: str, value: Any) -> DecodeError:
    """The error of a value that is something else than expected."""
    return DecodeError("value", f"expected {what}, found {_TYPES.get(type(value), 'bytes')}")


_TYPES = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a fraction",
    Decimal: "a fraction",
    str: "text",
    list: "an array",
    dict: "an object",
}


def _integer(value: Any, what: str) -> int:
    # isinstance would accept True as a number of days.
    if value.__class__ is int and value in INTEGERS:
        return value
    raise expected(what, value)


def _day(days: int) -> str:
    if -_EPOCH_DAY < days <= date.max.toordinal() - _EPOCH_DAY:
        return date.fromordinal(_EPOCH_DAY + days).isoformat()
    year, near = far_date(days)
    return f"{format(year, '04d' if 0 <= year <= 9999 else '+05d')}{near.isoformat()[4:]}"


def date_of(value: Any) -> str | None:
    """A number of days since 1970 as a date."""
    days = None if value is None else _integer(value, "a number of days")
    return None if days is None else INFINITE_DAYS.get(days) or _day(days)


def decimals(part: int, digits: int) -> str:
    """The decimals of a second: `part` in units of the last of so many digits; none of zero."""
    return f".{part:0{digits}d}".rstrip("0") if part else ""


def time_of(digits: int) -> Convert:
    """The conversion of a count since midnight, in seconds with `digits` decimals."""
    unit = 10**digits

    def convert(value: Any) -> str | None:
        if value is None:
            return None
        count = _integer(value, "a number of parts of a second")
        seconds, part = divmod(abs(count), unit)
        return f"{'-' if count < 0 else ''}{clock(seconds)}{decimals(part, digits)}"

    return convert


def timestamp_of(digits: int) -> Convert:
    """The conversion of a count since 1970, in seconds with `digits` decimals."""
    unit = 10**digits
    first = -(_EPOCH_DAY - 1) * _DAY * unit
    last = (date.max.toordinal() - _EPOCH_DAY + 1) * _DAY * unit
    micros = 10 ** (6 - digits) if digits <= 6 else None

    def convert(value: Any) -> str | None:
        if value is None:
            return None
        count = _integer(value, "a number of parts of a second")
        if micros and first <= count < last:
            text = (_EPOCH + timedelta(0, 0, count * micros)).isoformat()
            return text if len(text) == _WHOLE else text.rstrip("0")
        infinite = INFINITE_MICROS.get(count * micros) if micros else INFINITE_NANOS.get(count)
        if infinite:
            return infinite
        seconds, part = divmod(count, unit)
        days, second = divmod(seconds, _DAY)
        return f"{_day(days)}T{clock(second)}{decimals(part, digits)}"

    return convert


def _exact(digits: bytes, scale: int) -> int | float | Decimal:
    if len(digits) > _LONGEST_DECIMAL or scale not in _SCALES:
        raise DecodeError("value", "a number has too many digits")
    unscaled = int.from_bytes(digits, "big", signed=True)
    if 0 <= scale <= _EXACT_SCALE and -_EXACT_UNSCALED < unscaled < _EXACT_UNSCALED:
        quotient = unscaled / 10**scale
        return int(quotient) if quotient.is_integer() else quotient
    return canonical.exact(Decimal(unscaled).scaleb(-scale, _WIDE))


_NUMBERS = (int, float, Decimal)


def decimal_of(scale: int, binary: Callable[[Any], bytes]) -> Convert:
    """The conversion of the bytes of a decimal's digits, which `binary` decodes, to the number.

    A number stays unchanged: Kafka Connect's JSON has one with `decimal.format=NUMERIC`.
    """

    def convert(value: Any) -> int | float | Decimal | None:
        if value is None or value.__class__ in _NUMBERS:
            return value
        return _exact(binary(value), scale)

    return convert


def variable_decimal(binary: Callable[[Any], bytes]) -> Convert:
    """The conversion of an object with a scale and digits to the number."""

    def convert(value: Any) -> int | float | Decimal | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise expected("an object of scale and value", value)
        return _exact(binary(value.get("value")), _integer(value.get("scale"), "a scale"))

    return convert


def _matched(pattern: re.Pattern[str], value: Any, what: str) -> re.Match[str]:
    if value.__class__ is str and (match := pattern.fullmatch(value)):
        return match
    raise expected(what, value)


def _second(parts: Sequence[str]) -> tuple[int, str]:
    """Compute the second of the day in UTC, and the fraction in normal form."""
    hours, minutes, seconds, fraction, sign, *offset = parts
    east = [int(part or 0) * (-1 if sign == "-" else 1) for part in offset]
    second = (int(hours) - east[0]) * 3600 + (int(minutes) - east[1]) * 60 + int(seconds or 0)
    return second - east[2], f".{fraction}".rstrip(".0") if fraction else ""


def zoned_time(value: Any, zone: str = "Z") -> str | None:
    """A time in ISO 8601 with its zone, as the time in UTC."""
    if value is None:
        return None
    second, fraction = _second(_matched(_ZONED_TIME, value, "a time with its zone").groups())
    return f"{clock(second % _DAY)}{fraction}{zone}"


def zoned_timestamp(value: Any, zone: str = "Z") -> str | None:
    """A timestamp in ISO 8601 with its zone, as the timestamp in UTC."""
    if value is None or value in _INFINITE:
        return value  # type: ignore[no-any-return]
    what = "a timestamp with its zone"
    if value.__class__ is str and len(value) in _USUAL and value[10] == "T" and value[-1] == "Z":
        with suppress(ValueError):
            text = datetime.fromisoformat(value).isoformat().removesuffix("+00:00")
            return (text if len(text) == _WHOLE else text.rstrip("0")) + zone
    year, month, day, *parts = _matched(_ZONED_TIMESTAMP, value, what).groups()
    second, fraction = _second(parts)
    cycles, near = divmod(int(year) - 1, _CYCLE)
    try:
        first = date(near + 1, int(month), int(day)).toordinal() + cycles * _CYCLE_DAYS
    except ValueError:
        raise expected(what, value) from None
    days, second = divmod(second, _DAY)
    return f"{_day(first + days - _EPOCH_DAY)}T{clock(second)}{fraction}{zone}"


def iso_date(value: Any) -> str | None:
    """A date in ISO 8601 without the zone that may follow it."""
    return None if value is None else _matched(_ZONED_DATE, value, "a date")[1]


def duration(value: Any) -> str | None:
    """A number of microseconds as a duration of ISO 8601; texts stay, parts are rounded."""
    if value is None or value.__class__ is str:
        return value
    whole = round(value) if isinstance(value, float | Decimal) else value
    seconds, part = divmod(abs(count := _integer(whole, "a number of microseconds")), 10**6)
    return f"PT{'-' if count < 0 else ''}{seconds}{decimals(part, 6)}S"


DIGITS = {"millis": 3, "micros": 6, "nanos": 9}
"""How many digits of a second a unit has."""
COUNTED: dict[str, Convert] = {
    "date": date_of,
    **{f"time-{unit}": time_of(digits) for unit, digits in DIGITS.items()},
    **{f"timestamp-{unit}": timestamp_of(digits) for unit, digits in DIGITS.items()},
}
"""The conversions of counts of a unit, by the encodings that name them."""
