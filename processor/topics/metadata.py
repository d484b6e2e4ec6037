"""Metadata of messages, such as offset and timestamp, as columns of their rows.

Only the columns that are read are added.  They belong to the message that set the row: an upsert
with an equal value has other metadata, and so is another row.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ikebana.codecs import canonical
from ikebana.codecs.change import Headers
from ikebana.codecs.encodings import timestamp_of
from ikebana.processor.planning.plan import Input, Metadata
from ikebana.processor.planning.planner import Reading
from ikebana.processor.topics.messages import Message, MessageOrigin
from ikebana.processor.topics.upserts import DecodedUpserts

_moment = timestamp_of(3)
_fields_of = canonical.decoder(dict[str, Any])


def _headers(headers: Headers) -> dict[str, str | None]:
    """Headers by name, their values in base64; of several with one name the last."""
    result: dict[str, str | None] = {}
    for name, value in headers or ():
        raw = value.encode() if isinstance(value, str) else value
        result[name] = None if raw is None else b64encode(raw).decode()
    return result


_VALUES: Mapping[Metadata, Callable[[Message, MessageOrigin], Any]] = {
    "timestamp": lambda message, _: _moment(message.timestamp),
    "partition": lambda _, origin: origin.partition,
    "offset": lambda message, _: message.offset,
    "headers": lambda message, _: _headers(message.headers),
    "topic": lambda _, origin: origin.topic,
}


class MetadataColumns:
    """Adds metadata of messages to the rows of an input, as far as it is read."""

    def __init__(self, source: Input, reading: Reading) -> None:
        self._columns = [
            (name, _VALUES[kind])
            for name, kind in source.metadata
            if reading.columns is None or name in reading.columns
        ]

    def __bool__(self) -> bool:
        return bool(self._columns)

    def row(self, row: bytes, message: Message, origin: MessageOrigin) -> bytes:
        """A row with metadata; a value that is no object has no columns, and stays."""
        if row[:1] != b"{":
            return row
        columns = {name: value(message, origin) for name, value in self._columns}
        return canonical.write({**_fields_of(row), **columns})

    def add(
        self, decoded: DecodedUpserts, messages: Sequence[Message], origin: MessageOrigin
    ) -> None:
        """Add metadata to the values of upserts."""
        by_offset = {message.offset: message for message in messages}
        for at, (value, offset) in enumerate(zip(decoded.values, decoded.offsets, strict=True)):
            if value is not None:
                decoded.values[at] = self.row(value, by_offset[offset], origin)
            if at in decoded.partial:
                partial = decoded.partial[at]
                row = self.row(partial.value, by_offset[offset], origin)
                decoded.partial[at] = msgspec.structs.replace(partial, value=row)
