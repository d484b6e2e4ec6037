"""Errors as data: the record of a message or row that could not be processed.

It has the reason, the place (topic, partition, offset) if there is one, and the raw key and
value in base64.  The reason never contains the payload.
"""

import base64

from ikebana.codecs import canonical


def error_record(
    reason: str, place: tuple[str, int, int] | None, key: bytes | None, value: bytes | None
) -> bytes:
    """Make an error record; `place` is (topic, partition, offset), if the message has one."""
    topic, partition, offset = place or (None, None, None)
    return canonical.encode(
        {
            "reason": reason,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "key": _base64(key),
            "value": _base64(value),
        }
    )


def _base64(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()
