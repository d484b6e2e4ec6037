"""Messages and rows that cannot be processed: a codec's error, and errors as data.

An error record has the reason, the place (topic, partition, offset) if there is one, and the raw
key and value in base64.  The reason never contains the payload.

A record always stays below the default limit of a Kafka topic, so the error topic takes the
record of any message.  A longer key or value is cut: then the record also has its length, and for
a key the SHA-256, since the key alone may identify the error of a row.
"""

# Decision (errors of operators have no value): With a value they would differ by what the planner
# pushed down.

import base64
import hashlib
from typing import Any

import msgspec

LONGEST_VALUE = 384 << 10
"""The most bytes of a raw value in an error record."""
LONGEST_KEY = 96 << 10
"""The most bytes of a raw key in an error record."""
LONGEST_REASON = 4_000
"""The most characters of a reason in an error record."""


class DecodeError(Exception):
    """A message cannot be decoded; the reason names field and type, never the payload.

    The caller knows topic, partition and offset, and makes a record of the error topic.  So an
    undecodable message does not stop the pipeline.
    """

    def __init__(self, codec: str, reason: str, *, key: bytes | None = None) -> None:
        super().__init__(f"could not decode {codec}: {reason}")
        self.codec = codec
        self.reason = reason
        self.key = key
        """The canonical key of the row, if that could be decoded although the rest could not."""


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
    return msgspec.json.encode(record, order="sorted")


def _base64(raw: bytes | None, most: int) -> str | None:
    return None if raw is None else base64.b64encode(raw[:most]).decode()
