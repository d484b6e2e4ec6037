"""The placeholder that Debezium writes for an unknown value, such as an unchanged TOAST column.

It has another form for each type of column.  First the bytes of a message are searched for these
forms, also in columns that are not read; values are tested only if one is found.
"""

import re
from base64 import b64encode
from hashlib import md5
from typing import Any
from uuid import UUID

PLACEHOLDER = "__debezium_unavailable_value"


class Unavailable:
    """The forms of a placeholder, and a search for them in messages."""

    def __init__(self, placeholder: str) -> None:
        raw = placeholder.encode()
        encoded = b64encode(raw).decode()
        # The same as Java's UUID.nameUUIDFromBytes, which has no namespace.
        identifier = str(UUID(bytes=md5(raw, usedforsecurity=False).digest(), version=3))
        self._texts = frozenset((placeholder, encoded, f'{{"{placeholder}":"{placeholder}"}}'))
        self._raw = raw
        self._others: list[Any] = [list(raw), [placeholder], [encoded], [raw], [identifier]]
        self._others.append({placeholder: placeholder})
        # Avro writes the numbers of an array like this: zigzag, seven bits a byte.
        numbers = b"".join(
            bytes([byte << 1 & 0x7F | 0x80, byte >> 6]) if byte > 63 else bytes([byte << 1])
            for byte in raw
        )
        texts = [raw, encoded.encode()]
        # A search for one byte is far quicker, so the rarest byte is searched first.
        self._texts_in_json = [(_rarest(text), text) for text in texts]
        self._identifier = identifier.encode()
        self._traces = [(_rarest(text), text) for text in (*texts, numbers)]
        written = rb"\s*,\s*".join(b"%d" % byte for byte in raw[:2])
        self._numbers_in_json = re.compile(rb"\[\s*" + written).search
        # Writers of JSON escape none of these characters, so the text can be searched.
        self._plain = bool(re.fullmatch(r"\w+", placeholder, re.ASCII)) and "/" not in encoded

    def may_be_in_json(self, message: bytes) -> bool:
        """Whether a message in JSON may have a placeholder; a false alarm only costs time."""
        if not self._plain:
            return True
        # Numbers and identifiers occur in arrays.
        if _ARRAY in message and (self._identifier in message or self._numbers_in_json(message)):
            return True
        # A generator for any() would take longer than the searches.
        for rare, text in self._texts_in_json:
            if rare in message and message.find(text) >= 0:
                return True
        return False

    def may_be_in_avro(self, message: bytes) -> bool:
        """Whether a message in Avro may have a placeholder; a false alarm only costs time."""
        for rare, text in self._traces:
            if rare in message and message.find(text) >= 0:
                return True
        return message.find(self._identifier) >= 0

    def is_one(self, value: Any) -> bool:
        """Whether a value is a placeholder."""
        kind = value.__class__
        if kind is str:
            return value in self._texts
        if kind is bytes:
            return bool(value == self._raw)
        return (kind is list or kind is dict) and value in self._others


# Bytes that are rare in texts and JSON, the rarest first; in Avro 244 is the "z" of an array.
_RARE = b"\xf4QZXJqYWKzVGjxNMk"


_ARRAY = ord("[")


def _rarest(text: bytes) -> int:
    """Choose a byte of a text that few other texts have."""
    return next((byte for byte in _RARE if byte in text), text[0])
