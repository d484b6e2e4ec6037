"""Write and read times for people: as whole numbers, or as dates if they are of a clock."""

from datetime import UTC, datetime
from itertools import pairwise

# Milliseconds since 1970 in the years 2001 to 2286; other times are not of a wall clock.
EPOCH_MS = range(10**12, 10**13)

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def iso(time: int) -> str:
    """Write a time in milliseconds as a date and time of day, and any other as a number.

    >>> iso(1_700_000_000_500), iso(42)
    ('2023-11-14T22:13:20.500Z', '42')
    """
    if time not in EPOCH_MS:
        return str(time)
    return datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def moment(time: int) -> str:
    """Write a time as a number, and a time in milliseconds also as a date and time of day.

    >>> moment(1_700_000_000_500), moment(42)
    ('1700000000500 (2023-11-14T22:13:20.500Z)', '42')
    """
    return f"{time} ({iso(time)})" if time in EPOCH_MS else str(time)


def span(milliseconds: int) -> str:
    """Write a duration in its two largest units.

    >>> span(740), span(1_500), span(1_241_760), span(7_200_000), span(183_600_000)
    ('740 ms', '1.5 s', '20 min 41 s', '2 h', '2 d 3 h')
    """
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.3g} s"
    for (size, unit), (smaller, lesser) in pairwise(_UNITS):
        if milliseconds >= size:
            whole, rest = divmod(milliseconds, size)
            more = rest // smaller
            return f"{whole} {unit}" + (f" {more} {lesser}" if more else "")
    raise AssertionError(milliseconds)


def parsed(text: str) -> int:
    """Read a time: a whole number, or a date with or without a time of day, in UTC by default.

    >>> parsed("42"), parsed("2013-07-02"), parsed("2013-07-02T02:00:00.5+02:00")
    (42, 1372723200000, 1372723200500)

    Raises:
        ValueError: the text is neither.
    """
    try:
        return int(text)
    except ValueError:
        read = datetime.fromisoformat(text)
    zoned = read if read.tzinfo is not None else read.replace(tzinfo=UTC)
    return round(zoned.timestamp() * 1000)
