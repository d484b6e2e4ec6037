"""What Kafka says of a message, as columns of its row: its metadata.

A row has those columns that are read.  They belong to the message that has set the row: an upsert
with the same value has other metadata, and so is another row.
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
from ikebana.processor.topics.messages import Message, Origin
from ikebana.processor.topics.upserts import DecodedUpserts

_moment = timestamp_of(3)
_fields_of = canonical.decoder(dict[str, Any])


def _headers(given: Headers) -> dict[str, str | None]:
    """Headers by name, their values in base64; of several with one name the last."""
    found: dict[str, str | None] = {}
    for name, value in given or ():
        raw = value.encode() if isinstance(value, str) else value
        found[name] = None if raw is None else b64encode(raw).decode()
    return found


_VALUES: Mapping[Metadata, Callable[[Message, Origin], Any]] = {
    "timestamp": lambda message, _: _moment(message.timestamp),
    "partition": lambda _, origin: origin.partition,
    "offset": lambda message, _: message.offset,
    "headers": lambda message, _: _headers(message.headers),
    "topic": lambda _, origin: origin.topic,
}


class MetadataColumns:
    """Adds the metadata that is read of an input's messages to their rows."""

    def __init__(self, source: Input, reading: Reading) -> None:
        self._columns = [
            (name, _VALUES[kind])
            for name, kind in source.metadata
            if reading.columns is None or name in reading.columns
        ]

    def __bool__(self) -> bool:
        return bool(self._columns)

    def row(self, row: bytes, message: Message, origin: Origin) -> bytes:
        """A row with metadata; a value that is no object has no columns, and stays."""
        if row[:1] != b"{":
            return row
        own = {name: value(message, origin) for name, value in self._columns}
        return canonical.write({**_fields_of(row), **own})

    def add(self, decoded: DecodedUpserts, messages: Sequence[Message], origin: Origin) -> None:
        """Add metadata to the values of upserts."""
        by_offset = {message.offset: message for message in messages}
        for at, (value, offset) in enumerate(zip(decoded.values, decoded.offsets, strict=True)):
            if value is not None:
                decoded.values[at] = self.row(value, by_offset[offset], origin)
            if at in decoded.partial:
                partial = decoded.partial[at]
                row = self.row(partial.value, by_offset[offset], origin)
                decoded.partial[at] = msgspec.structs.replace(partial, value=row)
