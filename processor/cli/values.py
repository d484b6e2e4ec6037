"""Keys and values, which are bytes, as JSON data that a person can read."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

# Milliseconds since 1970 in the years 2001 to 2286; other times are no wall clock.
EPOCH_MS = range(10**12, 10**13)


def shown(raw: bytes) -> Any:
    """JSON data as what they are, other text as a string, other bytes as base64.

    >>> shown(b'{"a":1}'), shown(b"N12345"), shown(b"\\xff")
    ({'a': 1}, 'N12345', {'base64': '/w=='})
    """
    try:
        return json.loads(raw)
    except ValueError:
        pass
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def iso(time: int) -> str:
    """A time in milliseconds as a date and a time of day, another one as it is.

    >>> iso(1_700_000_000_500), iso(42)
    ('2023-11-14T22:13:20.500Z', '42')
    """
    if time not in EPOCH_MS:
        return str(time)
    return datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def moment(time: int) -> str:
    """A time as it is and, in milliseconds, as a date and a time of day, too.

    >>> moment(1_700_000_000_500), moment(42)
    ('1700000000500 (2023-11-14T22:13:20.500Z)', '42')
    """
    return f"{time} ({iso(time)})" if time in EPOCH_MS else str(time)
