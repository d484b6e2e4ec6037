"""Parse texts of dates and times into counts of days and parts of a second, as Avro has them.

This reverses `encodings.date_of`, `time_of` and `timestamp_of`.  It also accepts other forms
of these types in JSON: a zone or an offset, which are converted to UTC, a blank in place of the
T, and a date with the time 00:00.
"""

import re
from collections.abc import Callable
from datetime import date

INFINITE_DAYS = {2**31 - 1: "infinity", -(2**31): "-infinity"}
"""The extreme values of 32 bits, which are no finite dates of Postgres."""
INFINITE_MICROS = {9_223_372_036_825_200_000: "infinity", -9_223_372_036_832_400_000: "-infinity"}
"""The microseconds of infinite timestamps in Postgres's driver, and so in Debezium."""
INFINITE_NANOS = {2**63 - 1: "infinity", -(2**63): "-infinity"}
"""The nanoseconds of infinite timestamps in Debezium."""


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


_EPOCH_DAY = date(1970, 1, 1).toordinal()
_CYCLE, _CYCLE_DAYS = 400, 146_097
_DAY = 86_400
_UNITS = {digits: int(10**digits) for digits in range(10)}
_CLOCK = r"(\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?"
_ZONE = r"(?: ?(?:[Zz]|([+-])(\d{2}):?(\d{2})?))?"
_TIME = re.compile(_CLOCK, re.ASCII)
_INSTANT = re.compile(rf"([+-]?\d{{4,9}})-(\d{{2}})-(\d{{2}})(?:[Tt ]{_CLOCK})?{_ZONE}", re.ASCII)
_INFINITE = {
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
        if (infinite := _INFINITE.get(digits, {}).get(text)) is not None:
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
