"""Check the types of columns that nobody reads, mostly without decoding them.

A full check needs a column's value, and canonical values of all declared columns would cost as
much as reading few columns saves.  So each message first goes through a decoder that accepts only
the usual forms of each type and builds no values.  If it accepts a message, only the columns
that are read are decoded; otherwise all declared columns are decoded, and checked.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ikebana.codecs.change import Change, Codec, Headers, Ignored
from ikebana.processor.topics.usual_forms import Usual


class Wide(Change):
    """A change with all checked columns, which has yet to be narrowed to those that are read."""

    __slots__ = ()


class Vouched:
    """A codec of Debezium's JSON that decodes unread columns only if it must check them.

    `narrow` decodes the columns that are read, `wide` also those that are checked.
    """

    def __init__(self, narrow: Codec, wide: Codec, usual: Usual) -> None:
        self._narrow = narrow
        self._wide = wide
        self._usual = usual
        image = usual.row | None
        # Events inside a payload or a text have no "op" at the top, so they go the wide way.
        event: Any = msgspec.defstruct(
            "Event", [("op", str), ("before", image, None), ("after", image, None)]
        )
        self._decode = msgspec.json.Decoder(event).decode

    def key(self, key: bytes | None) -> bytes | None:
        """Decode the Kafka key alone into the canonical key."""
        return self._narrow.key(key)

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        """Decode a message into changes with the columns that are read, or more (`Wide`)."""
        if value is None or self._vouches(value):
            return self._narrow.changes(key, value, headers)
        changes = self._wide.changes(key, value, headers)
        return changes if isinstance(changes, Ignored) else [Wide(*change) for change in changes]

    def _vouches(self, value: bytes) -> bool:
        """Whether all declared columns of both images have the usual forms."""
        try:
            event = self._decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return self._usual.fit([row for row in (event.before, event.after) if row is not None])
