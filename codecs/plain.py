"""Plain keyed upserts: `json`, compared as data, and `bytes`, compared as they are.

Both have the key in the Kafka key and the value in the Kafka value; a null value is a
tombstone.  What cannot be decoded becomes an error record: key, reason, topic,
partition, offset and the raw bytes in base64; the reason never holds the payload.
"""

import base64
from typing import Literal

from ikebana.codecs import canonical
from ikebana.codecs.errors import DecodeError


def decode_part(
    part: Literal["key", "value"], data_format: str, message: bytes | None
) -> tuple[bytes | None, str | None]:
    """Decode a key or a value: canonical bytes, or the reason why not.

    >>> decode_part("value", "json", b'{"b": 1.0, "a": 2}')
    (b'{"a":2,"b":1}', None)
    >>> decode_part("value", "json", b'')
    (None, 'could not decode value as JSON: Input data was truncated')
    """
    if message is None or data_format == "bytes":
        return message, None
    try:
        return canonical.canonical(message), None
    except DecodeError as error:
        return None, f"could not decode {part} as {error.codec}: {error.reason}"


def decode_error(
    reason: str, place: tuple[str, int, int], key: bytes | None, value: bytes | None
) -> bytes:
    """The error record of a message at `place` = (topic, partition, offset)."""
    topic, partition, offset = place
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
