"""Convert the values of columns in messages to one normal form.

A source may write a date as days, a time or timestamp as a count of milli-, micro- or
nanoseconds, a decimal as the bytes of its digits.  The normal forms are: dates "2024-01-31";
times "12:34:56.789"; timestamps "2024-01-31T12:34:56.789", or with a zone in UTC and with "Z" at
the end; fractions without trailing zeros; decimals as exact numbers; bytes as base64 text.
Postgres's "infinity" stays, and the numbers that Debezium writes for infinite timestamps, and
Postgres itself for infinite dates, become it.

The encoding of a column comes from the semantic type in a schema, or from the pipeline file
(`codecs.column_encodings`).

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any
from uuid import UUID

from ikebana.codecs import canonical
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
INFINITE_DAYS = {2**31 - 1: "infinity", -(2**31): "-infinity"}
"""The extreme values of 32 bits, which are no finite dates of Postgres."""
INFINITE_MICROS = {9_223_372_036_825_200_000: "infinity", -9_223_372_036_832_400_000: "-infinity"}
"""The microseconds of infinite timestamps in Postgres's driver, and so in Debezium."""
INFINITE_NANOS = {2**63 - 1: "infinity", -(2**63): "-infinity"}
"""The nanoseconds of infinite timestamps in Debezium."""


def from_base64(value: Any) -> bytes:
    """Decode bytes from a text of base64, as in JSON."""
    if value.__class__ is not str:
        raise unexpected_value("base64 text", value)
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise unexpected_value("base64 text", value) from None


def from_bytes(value: Any) -> bytes:
    """Check that a value is bytes, as in Avro."""
    if isinstance(value, bytes):
        return value
    raise unexpected_value("bytes", value)


def scale_of(text: str) -> int | None:
    """The scale in a text; None if it is no integer, or too large."""
    number = int(text) if re.fullmatch(r"-?\d{1,5}", text, re.ASCII) else None
    return number if number in _SCALES else None


def or_unchanged(convert: Convert) -> Convert:
    """A conversion that leaves a value unchanged if `convert` cannot convert it."""

    def attempt(value: Any) -> Any:
        try:
            return convert(value)
        except DecodeError:
            return value

    return attempt


def unexpected_value(what: str, value: Any) -> DecodeError:
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
    raise unexpected_value(what, value)


def far_date(days: int) -> tuple[int, date]:
    """Return the year of the day `days` days after the first of 1970, and a date.

    The calendar repeats every 400 years: the date, which Python has, is of the same month and day.

    >>> far_date(-719_529)
    (-1, datetime.date(399, 12, 31))
    """
    cycles, rest = divmod(_EPOCH_DAY + days - 1, _CYCLE_DAYS)
    near = date.fromordinal(rest + 1)
    return near.year + cycles * _CYCLE, near


def clock(second: int) -> str:
    """Write a second of a day.

    >>> clock(3_661)
    '01:01:01'
    """
    return f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


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
    return canonical.canonical_number(Decimal(unscaled).scaleb(-scale, _WIDE))


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
            raise unexpected_value("an object of scale and value", value)
        return _exact(binary(value.get("value")), _integer(value.get("scale"), "a scale"))

    return convert


def _matched(pattern: re.Pattern[str], value: Any, what: str) -> re.Match[str]:
    if value.__class__ is str and (match := pattern.fullmatch(value)):
        return match
    raise unexpected_value(what, value)


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
        raise unexpected_value(what, value) from None
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


# Texts of dates and times as counts of days and parts of a second, as Avro has them.
#
# This reverses `date_of`, `time_of` and `timestamp_of`.  It also accepts other forms of these
# types in JSON: a zone or an offset, which are converted to UTC, a blank in place of the T, and a
# date with the time 00:00.

_UNITS = {digits: int(10**digits) for digits in range(10)}
_LOOSE_CLOCK = r"(\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?"
_LOOSE_ZONE = r"(?: ?(?:[Zz]|([+-])(\d{2}):?(\d{2})?))?"
_TIME = re.compile(_LOOSE_CLOCK, re.ASCII)
_INSTANT = re.compile(
    rf"([+-]?\d{{4,9}})-(\d{{2}})-(\d{{2}})(?:[Tt ]{_LOOSE_CLOCK})?{_LOOSE_ZONE}", re.ASCII
)
_INFINITE_COUNTS = {
    digits: {text: count for count, text in counts.items()}
    for digits, counts in ((6, INFINITE_MICROS), (9, INFINITE_NANOS))
}
_INFINITE_DAY = {text: days for days, text in INFINITE_DAYS.items()}


def days_of(text: str) -> int:
    """Count the days from 1970-01-01 to a date.

    >>> days_of("1970-01-31"), days_of("-0001-12-31")
    (30, -719529)

    Raises:
        ValueError: the text is no date.
    """
    if (days := _INFINITE_DAY.get(text)) is not None:
        return days
    count = instant_of(0)(text)
    if count % _DAY:
        raise ValueError
    return count // _DAY


def time_of_day(text: str) -> int:
    """Count the microseconds from midnight to a time without a zone.

    >>> time_of_day("00:00:01.5")
    1500000

    Raises:
        ValueError: the text is no time of a day.
    """
    if (match := _TIME.fullmatch(text)) is None:
        raise ValueError
    return _parts(match.groups(), 6)


def instant_of(digits: int) -> Callable[[str], int]:
    """Make a function that counts from 1970 to an instant, in seconds with `digits` decimals.

    >>> instant_of(6)("1970-01-01T00:00:01.5"), instant_of(3)("1970-01-01 01:00+01:00")
    (1500000, 0)
    """

    unit = _UNITS[digits]

    def count(text: str) -> int:
        if (infinite := _INFINITE_COUNTS.get(digits, {}).get(text)) is not None:
            return infinite
        if (match := _INSTANT.fullmatch(text)) is None:
            raise ValueError
        year, month, day, *clock = match.groups()
        sign, hours, minutes = clock[4:]
        cycles, near = divmod(int(year) - 1, _CYCLE)
        days = date(near + 1, int(month), int(day)).toordinal() + cycles * _CYCLE_DAYS
        east = (int(hours or 0) * 60 + int(minutes or 0)) * (-60 if sign == "-" else 60)
        seconds = (days - _EPOCH_DAY) * _DAY - east
        return seconds * unit + _parts(clock[:4], digits)

    return count


def _parts(clock: "list[str | None] | tuple[str | None, ...]", digits: int) -> int:
    hours, minutes, seconds, fraction = clock
    hour, minute, second = int(hours or 0), int(minutes or 0), int(seconds or 0)
    if minute > 59 or second > 59 or hour * 3600 + minute * 60 + second > _DAY:
        raise ValueError
    rest = (fraction or "").rstrip("0")
    if len(rest) > digits:
        raise ValueError
    whole = hour * 3600 + minute * 60 + second
    return whole * _UNITS[digits] + (int(rest.ljust(digits, "0")) if rest else 0)


# Debezium's structured times: objects of the parts of a date, a time or a duration.
#
# Its `time.precision.mode=structured` writes them.  The parts show the kind of an object: only
# dates have years, only values with a zone an offset, only durations parts in the plural.

_SPECIAL = {"POSITIVE_INFINITY": "infinity", "NEGATIVE_INFINITY": "-infinity"}
_DATE_PARTS = ("year", "month", "day")


def structured(value: Any) -> str | None:
    """The normal form of a structured date, time, timestamp or duration; null stays null.

    Raises: DecodeError.

    >>> structured({"year": 2024, "month": 1, "day": 31, "hour": 9, "minute": 5, "second": 7})
    '2024-01-31T09:05:07'
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise unexpected_value("an object of the parts of a time", value)
    if (infinite := value.get("specialValue")) is not None and infinite in _SPECIAL:
        return _SPECIAL[infinite]
    if "years" in value:
        return _structured_duration(value)
    date = _structured_date(value) if "year" in value else ""
    if "hour" not in value:
        return date
    clock = ":".join(f"{_part(value, name):02d}" for name in ("hour", "minute", "second"))
    clock += f".{_part(value, 'nanos'):09d}"
    # A zone in the text comes first.
    text = f"{date}T{clock}" if date else clock
    convert = zoned_timestamp if date else zoned_time
    if "offsetSeconds" not in value:
        return convert(f"{text}Z", "")
    offset = _part(value, "offsetSeconds")
    minutes, seconds = divmod(abs(offset), 60)
    zone = f"{'-' if offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}"
    return convert(text + zone)


def _part(value: Mapping[str, Any], name: str) -> int:
    part = value.get(name)
    if part is None:
        return 0
    if part.__class__ is int and part in INTEGERS:
        return part
    raise unexpected_value("an object of the parts of a time", part)


def _structured_date(value: Mapping[str, Any]) -> str:
    year, month, day = (_part(value, name) for name in ("year", "month", "day"))
    return f"{format(year, '04d' if 0 <= year <= 9999 else '+05d')}-{month:02d}-{day:02d}"


def _structured_duration(value: Mapping[str, Any]) -> str:
    days = "".join(f"{_part(value, f'{name}s')}{name[0].upper()}" for name in _DATE_PARTS)
    hours, minutes = _part(value, "hours"), _part(value, "minutes")
    nanos = _part(value, "seconds") * 10**9 + _part(value, "nanos")
    seconds, rest = divmod(abs(nanos), 10**9)
    return f"P{days}T{hours}H{minutes}M{'-' if nanos < 0 else ''}{seconds}{decimals(rest, 9)}S"


# MongoDB's Extended JSON: values of documents that JSON has no form for, as objects.
#
# An object such as {"$numberLong": "5"} is its value in the normal forms of columns: identifiers,
# symbols and UUIDs are texts, numbers numbers, dates timestamps in UTC, binary data base64 text.
# The canonical form, the relaxed one and the older one of Debezium are read.  Objects for which a
# column has no form, such as {"$minKey": 1}, stay as they are, and so do values that do not fit.
#
# Source: https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/

_UUID = "4"
_millis = timestamp_of(3)


def of_extended_json(value: Any) -> Any:
    """A value of a document, at any depth without the objects of Extended JSON.

    >>> of_extended_json({"_id": {"$oid": "5f"}, "n": [{"$numberLong": "7"}, {"$date": 0}]})
    {'_id': '5f', 'n': [7, '1970-01-01T00:00:00Z']}
    """
    if isinstance(value, list):
        return [of_extended_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    name = next(iter(value), "")
    if (convert := _OF_MONGO.get(name)) is not None and value.keys() <= {name, "$type"}:
        try:
            return convert(value[name], value.get("$type"))
        except (DecodeError, ArithmeticError, ValueError):
            return value
    return {name: of_extended_json(item) for name, item in value.items()}


def _mongo_text(value: Any, _: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _mongo_number(value: Any, _: Any) -> Any:
    text = _mongo_text(value, None)
    return (
        text if text.lstrip("-") in (canonical.NAN, canonical.INFINITY) else canonical.number(text)
    )


def _mongo_date(value: Any, _: Any) -> str | None:
    count = of_extended_json(value)
    if count.__class__ is str:
        return zoned_timestamp(count)
    text = _millis(count)
    return f"{text}Z"


def _mongo_binary(value: Any, kind: Any) -> str:
    if isinstance(value, dict):
        value, kind = value.get("base64"), value.get("subType")
    raw = from_base64(value)
    return str(UUID(bytes=raw)) if str(kind).lstrip("0") == _UUID else str(value)


_OF_MONGO: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("$oid", "$symbol", "$uuid"), _mongo_text),
    **dict.fromkeys(
        ("$numberInt", "$numberLong", "$numberDouble", "$numberDecimal"), _mongo_number
    ),
    "$date": _mongo_date,
    "$binary": _mongo_binary,
    "$undefined": lambda value, _: None,
}
