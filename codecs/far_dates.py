"""Days and seconds of a day as text, also for years that Python's dates do not have."""

from datetime import date

INFINITE_DAYS = {2**31 - 1: "infinity", -(2**31): "-infinity"}
"""The extreme values of 32 bits, which are no finite dates of Postgres."""
INFINITE_MICROS = {9_223_372_036_825_200_000: "infinity", -9_223_372_036_832_400_000: "-infinity"}
"""The microseconds of infinite timestamps in Postgres's driver, and so in Debezium."""
INFINITE_NANOS = {2**63 - 1: "infinity", -(2**63): "-infinity"}
"""The nanoseconds of infinite timestamps in Debezium."""
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_CYCLE, _CYCLE_DAYS = 400, 146_097


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
