"""Types of columns that nobody reads, checked without decoding them.

To check a type takes a column's value, and to make canonical values of all declared columns
would undo what is won by reading a few.  So a message is first gone over by a decoder that
makes nothing of it and takes the usual forms of each type alone.  One that it takes is
decoded as far as it is read; any other with all declared columns, to be checked.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from ikebana.codecs.change import Change, Codec, Headers, Ignored
from ikebana.processor.reading.column_types import Usual


class Wide(Change):
    """A change with all columns that are checked, to be narrowed to those that are read."""

    __slots__ = ()


class Vouched:
    """A codec of Debezium's JSON that decodes what is not read only where it has to be checked.

    `narrow` decodes the columns that are read, `wide` all that are checked as well.
    """

    def __init__(self, narrow: Codec, wide: Codec, usual: Usual) -> None:
        self._narrow = narrow
        self._wide = wide
        self._usual = usual
        image = usual.row | None
        # What stands in a payload, which has the operation, or in a text as a document does,
        # is left to the wide way.
        event: Any = msgspec.defstruct(
            "Event", [("op", str), ("before", image, None), ("after", image, None)]
        )
        self._decode = msgspec.json.Decoder(event).decode

    def key(self, key: bytes | None) -> bytes | None:
        """The canonical key, of the Kafka key alone."""
        return self._narrow.key(key)

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        """What the message says, with the columns that are read, or with more."""
        if value is None or self._vouches(value):
            return self._narrow.changes(key, value, headers)
        found = self._wide.changes(key, value, headers)
        return found if isinstance(found, Ignored) else [Wide(*change) for change in found]

    def _vouches(self, value: bytes) -> bool:
        """Whether all declared columns of both images are of the usual forms."""
        try:
            event = self._decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return self._usual.fit([row for row in (event.before, event.after) if row is not None])
