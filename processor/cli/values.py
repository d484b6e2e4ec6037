"""Keys and values, which are bytes, as JSON data that a person can read."""

import base64
import json
from typing import Any


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
