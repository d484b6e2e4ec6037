"""Where reading an input begins: a text in a plan, and the place that it names.

`earliest` and `latest` are the ends of each partition.  A time is that of a timestamp: each
partition begins at its first record that is not earlier.  Offsets are those of the partitions of
one topic.
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from ikebana.codecs.encodings import instant_of, timestamp_of

EARLIEST: Literal["earliest"] = "earliest"
LATEST: Literal["latest"] = "latest"
WORDS = (EARLIEST, LATEST)
FORMS = (
    '"earliest", "latest", a time such as 2024-01-31T12:00:00Z, or an offset for each partition '
    "such as {0: 1200, 1: 900}"
)
_OFFSETS = re.compile(r"\d{1,9}: \d{1,18}(?:, \d{1,9}: \d{1,18})*", re.ASCII)
# Up to the year 9999.
_MILLIS = range(253_402_300_800_000)
_text_of = timestamp_of(3)


class AtTime(NamedTuple):
    """The first records that are not earlier than a time, in milliseconds since 1970."""

    ms: int


class AtOffsets(NamedTuple):
    """An offset for each partition."""

    offsets: Mapping[int, int]


StartPlace = Literal["earliest", "latest"] | AtTime | AtOffsets


def text_of(start: object) -> str:
    """The text of a start: a word, a time in UTC, or offsets.

    A time without a zone is one of UTC; a number has milliseconds since 1970.

    >>> text_of({1: 900, 0: 1200}), text_of("2024-01-31 13:00+01:00"), text_of("2024-01-31")
    ('0: 1200, 1: 900', '2024-01-31T12:00:00Z', '2024-01-31T00:00:00Z')

    Raises:
        ValueError: it is none of these.
    """
    match start:
        case str() if start in WORDS or _OFFSETS.fullmatch(start):
            return start
        case str():
            return _time(_instant(start))
        case bool():
            raise ValueError
        case int():
            return _time(start)
        case Mapping() if start:
            pairs = sorted((_number(p), _number(offset)) for p, offset in start.items())
            return ", ".join(f"{partition}: {offset}" for partition, offset in pairs)
    if callable(text := getattr(start, "isoformat", None)):
        return _time(_instant(text()))
    raise ValueError


def place_of(start: str) -> StartPlace:
    """The place that a text of `text_of` names."""
    if start == EARLIEST:
        return EARLIEST
    if start == LATEST:
        return LATEST
    if _OFFSETS.fullmatch(start):
        pairs = (pair.split(": ") for pair in start.split(", "))
        return AtOffsets({int(partition): int(offset) for partition, offset in pairs})
    return AtTime(_instant(start))


def words(start: str) -> str:
    """Where reading begins, in words that follow "is read from"."""
    match place_of(start):
        case "earliest":
            return "its beginning"
        case "latest":
            return "its end on"
        case AtTime():
            return f"the first record of {start} or later"
        case AtOffsets():
            return f"the offsets {start}"


def _instant(text: str) -> int:
    # Kafka has whole milliseconds: a fraction is rounded up.
    return -(-instant_of(6)(text) // 1000)


def _time(ms: int) -> str:
    if ms not in _MILLIS:
        raise ValueError
    return f"{_text_of(ms)}Z"


def _number(value: object) -> int:
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise ValueError
    return int(text)
