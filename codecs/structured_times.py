"""Debezium's structured times: objects of the parts of a date, a time or a duration.

Its `time.precision.mode=structured` writes them.  The parts show the kind of an object: only
dates have years, only values with a zone an offset, only durations parts in the plural.
"""

from collections.abc import Mapping
from typing import Any

from ikebana.codecs.encodings import INTEGERS, decimals, expected, zoned_time, zoned_timestamp

_INFINITE = {"POSITIVE_INFINITY": "infinity", "NEGATIVE_INFINITY": "-infinity"}


def structured(value: Any) -> str | None:
    """The normal form of a structured date, time, timestamp or duration; null stays null.

    Raises: DecodeError.

    >>> structured({"year": 2024, "month": 1, "day": 31, "hour": 9, "minute": 5, "second": 7})
    '2024-01-31T09:05:07'
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise expected("an object of the parts of a time", value)
    if (infinite := value.get("specialValue")) is not None and infinite in _INFINITE:
        return _INFINITE[infinite]
    if "years" in value:
        return _duration(value)
    date = _date(value) if "year" in value else ""
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
    raise expected("an object of the parts of a time", part)


def _date(value: Mapping[str, Any]) -> str:
    year, month, day = (_part(value, name) for name in ("year", "month", "day"))
    return f"{format(year, '04d' if 0 <= year <= 9999 else '+05d')}-{month:02d}-{day:02d}"


def _duration(value: Mapping[str, Any]) -> str:
    days = "".join(f"{_part(value, f'{name}s')}{name[0].upper()}" for name in _DAYS)
    hours, minutes = _part(value, "hours"), _part(value, "minutes")
    nanos = _part(value, "seconds") * 10**9 + _part(value, "nanos")
    seconds, rest = divmod(abs(nanos), 10**9)
    return f"P{days}T{hours}H{minutes}M{'-' if nanos < 0 else ''}{seconds}{decimals(rest, 9)}S"


_DAYS = ("year", "month", "day")
