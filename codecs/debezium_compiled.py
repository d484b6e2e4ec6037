"""Decode the commonest messages of Debezium with compiled code: `compiled._row_images`.

This takes creates, updates and rows of snapshots, without schema, whose old image has the
columns of the new one, if no value is unavailable and the key does not change.  All other
messages, and those damaged anywhere, are left to `codecs.debezium`.  Both return the same changes.
"""

from collections.abc import Callable

from ikebana.codecs.change import Change, Wanted
from ikebana.codecs.unavailable import Unavailable

try:
    from ikebana.compiled._row_images import Rows
except ImportError:
    Rows = None  # type: ignore[assignment,misc]

# Messages with schemas always miss: after so many misses in a row it gives up.
_MOST_MISSES = 64


class Compiled:
    """Decodes the messages that it can, and returns None for the others."""

    def __init__(
        self,
        wanted: Wanted,
        unavailable: Unavailable,
        kafka_key: Callable[[bytes | None], bytes | None],
    ) -> None:
        self._may_lack = unavailable.may_be_in_json
        # A value that nobody reads is known to be unavailable nevertheless.
        self._reads_all = wanted.columns is None
        self._kafka_key = kafka_key
        self._event = Rows(wanted.columns, wanted.key, before=wanted.before).event
        self._misses = 0

    @staticmethod
    def fits(wanted: Wanted) -> bool:
        """Whether there is such a decoder for what is wanted."""
        read = wanted.read(wanted.key)
        encoded = wanted.encodings if read is None else set(wanted.encodings) & set(read)
        return Rows is not None and wanted.tables is None and not encoded

    def changes(self, key: bytes | None, value: bytes) -> list[Change] | None:
        """Decode the change of a message; None if `codecs.debezium` has to."""
        if self._misses > _MOST_MISSES or (not self._reads_all and self._may_lack(value)):
            return None
        if (found := self._event(value)) is None:
            self._misses += 1
            return None
        self._misses = 0
        replaces, own, after, before = found
        if self._reads_all and (
            self._may_lack(after) or (before is not None and self._may_lack(before))
        ):
            return None
        return [Change("upsert", own or self._kafka_key(key), after, before, (), replaces)]
