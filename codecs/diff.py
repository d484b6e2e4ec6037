"""Encode and decode the `diff` format: one update a Kafka record.

Kafka key and value are the key and the value of the data; the headers `time` and `diff` are
ASCII integers.  The value is never null: a retraction has the value that it retracts.
"""

import functools
import re
from collections.abc import Iterable

from ikebana.arrangements.update import LARGEST
from ikebana.codecs.errors import DecodeError

Headers = list[tuple[str, bytes]]
_INTEGER = re.compile(rb"-?[0-9]{1,19}").fullmatch


def headers(time: int, diff: int) -> Headers:
    """Write time and diff as headers.

    >>> headers(7, -1)
    [('time', b'7'), ('diff', b'-1')]
    """
    return [time_header(time), diff_header(diff)]


def time_header(time: int) -> tuple[str, bytes]:
    """Write a time as a header."""
    return "time", b"%d" % time


def diff_header(diff: int) -> tuple[str, bytes]:
    """Write a diff as a header."""
    return "diff", b"%d" % diff


def read_headers(headers: Iterable[tuple[str, bytes | str | None]] | None) -> tuple[int, int]:
    """Read time and diff from headers.

    >>> read_headers([("time", b"7"), ("diff", b"-1")])
    (7, -1)

    Raises:
        DecodeError: one of them is missing or is no integer, the diff is 0, or one of them
            is beyond 64 bits.
    """
    return _time_and_diff(tuple(headers or ()))


def read_time(headers: Iterable[tuple[str, bytes | str | None]] | None) -> int:
    """Read the time from the headers of a message without a diff.  Raises: DecodeError."""
    return _integer(dict(headers or ()), "time")


def _integer(values: dict[str, bytes | str | None], name: str) -> int:
    if name not in values:
        raise DecodeError("diff record", f'header "{name}" is missing')
    value = values[name]
    text = value.encode("ascii", "replace") if isinstance(value, str) else value
    if text is None or (number := _number(text)) is None:
        raise DecodeError("diff record", f'header "{name}" is no integer')
    if not -LARGEST <= number <= LARGEST:
        raise DecodeError("diff record", f'header "{name}" is beyond 64 bits')
    return number


# Neighbours mostly have the same times and diffs.
@functools.lru_cache(10_000)
def _time_and_diff(headers: tuple[tuple[str, bytes | str | None], ...]) -> tuple[int, int]:
    values = dict(headers)
    time, diff = _integer(values, "time"), _integer(values, "diff")
    if diff == 0:
        raise DecodeError("diff record", 'header "diff" is 0')
    return time, diff


def _number(text: bytes) -> int | None:
    # int() alone would also accept spaces, underscores and a plus sign.
    return int(text) if _INTEGER(text) else None
