"""Errors as data: the record of a message or row that could not be processed.

It has the reason, the place (topic, partition, offset) if there is one, and the raw key and
value in base64.  The reason never contains the payload.

A record is always smaller than what a Kafka topic takes by default, so no message, however large,
can make one that the error topic refuses.  A longer key or value is cut: then the record also has
its length, and of a key the SHA-256, since a row's error may be known by its key alone.
"""

import base64
import hashlib
from typing import Any

from ikebana.codecs import canonical

LONGEST_VALUE = 384 << 10
"""Of a longer raw value an error record has this many bytes."""
LONGEST_KEY = 96 << 10
"""Of a longer raw key an error record has this many bytes."""
LONGEST_REASON = 4_000
"""Of a longer reason an error record has this many characters."""


def error_record(
    reason: str, place: tuple[str, int, int] | None, key: bytes | None, value: bytes | None
) -> bytes:
    """Make an error record; `place` is (topic, partition, offset), if the message has one."""
    topic, partition, offset = place or (None, None, None)
    record: dict[str, Any] = {
        "reason": reason if len(reason) <= LONGEST_REASON else reason[: LONGEST_REASON - 1] + "…",
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "key": _base64(key, LONGEST_KEY),
        "value": _base64(value, LONGEST_VALUE),
    }
    if key is not None and len(key) > LONGEST_KEY:
        record |= {"key_bytes": len(key), "key_sha256": hashlib.sha256(key).hexdigest()}
    if value is not None and len(value) > LONGEST_VALUE:
        record["value_bytes"] = len(value)
    return canonical.encode(record)


def _base64(raw: bytes | None, most: int) -> str | None:
    return None if raw is None else base64.b64encode(raw[:most]).decode()
