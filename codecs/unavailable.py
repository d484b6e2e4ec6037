"""What Debezium writes for a value that it does not know, such as an unchanged TOAST column.

It is a placeholder, in a form for each type of column.  Whether any may be in a message is
seen in its bytes, also in columns that nobody reads; values are looked at only then.
"""

import re
from base64 import b64encode
from hashlib import md5
from typing import Any
from uuid import UUID

PLACEHOLDER = "__debezium_unavailable_value"


class Unavailable:
    """The forms of a placeholder, and its traces in messages."""

    def __init__(self, placeholder: str) -> None:
        raw = placeholder.encode()
        encoded = b64encode(raw).decode()
        # Java's UUID.nameUUIDFromBytes, which has no namespace.
        identifier = str(UUID(bytes=md5(raw, usedforsecurity=False).digest(), version=3))
        self._texts = frozenset((placeholder, encoded, f'{{"{placeholder}":"{placeholder}"}}'))
        self._raw = raw
        self._others: list[Any] = [list(raw), [placeholder], [encoded], [raw], [identifier]]
        self._others.append({placeholder: placeholder})
        # As Avro writes an array of these numbers: zigzag, seven bits a byte.
        numbers = b"".join(
            bytes([byte << 1 & 0x7F | 0x80, byte >> 6]) if byte > 63 else bytes([byte << 1])
            for byte in raw
        )
        self._traces = (raw, encoded.encode(), identifier.encode())
        self._numbers_in_avro = numbers
        written = rb"\s*,\s*".join(b"%d" % byte for byte in raw[:2])
        self._numbers_in_json = re.compile(rb"\[\s*" + written).search
        # No writer of JSON escapes any of these.
        self._plain = bool(re.fullmatch(r"\w+", placeholder, re.ASCII)) and "/" not in encoded

    def may_be_in_json(self, message: bytes) -> bool:
        """Whether to look at each value; an occurrence in another place is no matter."""
        if not self._plain or self._numbers_in_json(message):
            return True
        raw, encoded, identifier = self._traces
        return raw in message or encoded in message or identifier in message

    def may_be_in_avro(self, message: bytes) -> bool:
        """The same, of a message in Avro."""
        raw, encoded, identifier = self._traces
        if raw in message or encoded in message or identifier in message:
            return True
        return self._numbers_in_avro in message

    def is_one(self, value: Any) -> bool:
        """Whether a value stands for none."""
        kind = value.__class__
        if kind is str:
            return value in self._texts
        if kind is bytes:
            return bool(value == self._raw)
        return (kind is list or kind is dict) and value in self._others
