"""Decode the usual events of Debezium in Avro faster: from a message to canonical images at once.

This takes creates, updates, deletes and rows of snapshots of the schemas that `avro_program`
covers, if no value is unavailable.  All other messages, and damaged ones, are left to
`codecs.debezium_avro`.  Both return the same changes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ikebana.codecs.avro import AvroDecoder
from ikebana.codecs.avro_program import Take
from ikebana.codecs.change import Change, Headers, Ignored, Wanted

SOURCE = ("db", "schema", "table", "collection")
# As many tables as a server has; their names come from messages.
_MOST_SOURCES = 10_000


def takes_of(wanted: Wanted) -> list[Take | None]:
    """What `Events` needs of a message."""
    key = wanted.key
    return [
        Take(("op",)),
        Take(("after",), wanted.columns, record=True),
        Take(("after",), key, whole=True) if key else None,
        # That it is a record matters even where it is not read.
        Take(("before",), wanted.columns if wanted.before else (), record=True),
        Take(("before",), key, whole=True) if key else None,
        Take(("source",), SOURCE) if wanted.tables is not None else None,
    ]


class Events:
    """Decodes the messages that it can, and returns None for the others.

    `values` decodes messages with what `takes_of` says; `key_of` decodes the Kafka key where the
    row's key is not in the row; `in_wanted_table` tests the source of an event.
    """

    def __init__(
        self,
        wanted: Wanted,
        values: AvroDecoder,
        key_of: Callable[[bytes | None, Headers], bytes | None],
        in_wanted_table: Callable[[Any], bool],
    ) -> None:
        self._parts, self._key_of = values.parts, key_of
        self._keyed, self._before = bool(wanted.key), wanted.before
        self._of_tables = wanted.tables is not None
        self._in_wanted_table = in_wanted_table
        self._sources: dict[bytes | None, bool] = {}

    def changes(
        self, key: bytes | None, value: bytes, headers: Headers
    ) -> Sequence[Change] | Ignored | None:
        """Decode a message.

        Raises:
            DecodeError: it is damaged, and `codecs.debezium_avro` says how.
        """
        parts = self._parts(value, headers)
        if parts is None:
            return None
        op, after, new_key, before, old_key, source = parts
        updates = op == b'"u"'
        if not self._before:
            before = None
        if op == b'"d"':
            if ignored := self._ignored(source):
                return ignored
            if old_key is None:
                old_key = self._key_of(key, headers)
            return [Change("delete", old_key, None, before, replaces=True)]
        if after is None or not (updates or op == b'"c"' or op == b'"r"'):
            return None
        if ignored := self._ignored(source):
            return ignored
        if not self._keyed:
            new_key = old_key = self._key_of(key, headers)
        if not updates:
            before = None
        elif old_key is not None and old_key != new_key:
            return [
                Change("delete", old_key, None, before, replaces=True),
                Change("upsert", new_key, after),
            ]
        return [Change("upsert", new_key, after, before, (), updates)]

    def _ignored(self, source: bytes | None) -> Ignored | None:
        """Whether an event is of a table that is not wanted."""
        if not self._of_tables:
            return None
        wanted = self._sources.get(source)
        if wanted is None:
            if len(self._sources) >= _MOST_SOURCES:
                self._sources.clear()
            wanted = self._in_wanted_table(source and msgspec.json.decode(source))
            self._sources[source] = wanted
        return None if wanted else Ignored("table")
