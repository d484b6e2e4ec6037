"""Decode the commonest messages of Debezium faster: envelope and images in one pass.

This takes creates, updates and rows of snapshots, without schema, if a few columns are read, no
value is unavailable, and the key does not change.  All other messages, and damaged ones, are
left to `codecs.debezium`.  Both return the same changes.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import astuple

from ikebana.codecs import canonical
from ikebana.codecs.change import Change, Wanted
from ikebana.codecs.fields import fit_a_struct
from ikebana.codecs.unavailable import Unavailable

# With more columns than these, structs are not faster.
_MOST_COLUMNS = 16
# Messages with schemas always miss: after so many misses in a row it gives up.
_MOST_MISSES = 64
_OPS = frozenset("cur")


class _Names(msgspec.Struct):
    """The names of all columns of both images."""

    before: dict[str, Raw] = {}
    after: dict[str, Raw] = {}


class Quick:
    """Decodes the messages that it can, and returns None for the others."""

    def __init__(
        self,
        wanted: Wanted,
        unavailable: Unavailable,
        kafka_key: Callable[[bytes | None], bytes | None],
    ) -> None:
        columns = wanted.columns or ()
        self._may_lack = unavailable.may_be_in_json
        self._kafka_key = kafka_key
        self._before = wanted.before
        self._names = canonical.decoder(_Names) if wanted.diffs else None
        self._misses = 0
        names = {column: f"f{at}" for at, column in enumerate(columns)}
        row = msgspec.defstruct(
            "Row",
            [(name, object, UNSET) for name in names.values()],
            rename={name: column for column, name in names.items()},
        )
        image = row | None
        # The parser skips old images unless they, or their keys, are read.
        self._reads_old = wanted.before or bool(wanted.key)
        old = image if self._reads_old else msgspec.Raw
        self._decode = canonical.decoder(
            msgspec.defstruct(
                "Event", [("op", str), ("before", old, None), ("after", image, None)]
            )
        )
        self._key = wanted.key
        self._key_values = attrgetter(*(names[column] for column in wanted.key), "__class__")

    @staticmethod
    def fits(wanted: Wanted) -> bool:
        """Whether this decoder can decode what is wanted."""
        columns = wanted.columns
        return (
            columns is not None
            and 0 < len(columns) <= _MOST_COLUMNS
            and set(wanted.key) <= set(columns)
            and fit_a_struct(columns)
            and not set(wanted.encodings) & set(columns)
            and wanted.tables is None
        )

    def changes(self, key: bytes | None, value: bytes) -> list[Change] | None:
        """Decode the change of a message; None if `codecs.debezium` has to."""
        if self._misses > _MOST_MISSES or self._may_lack(value):
            return None
        try:
            event = self._decode(value)
        except canonical.REFUSALS:
            self._misses += 1
            return None
        self._misses = 0
        row, old, op = event.after, event.before, event.op
        if op not in _OPS or row is None:
            return None
        before: bytes | None = None
        own: bytes | None = None
        if self._key and (own := self._own(row)) is None:
            return None
        if op == "u" and self._reads_old and old is not None:
            # As bytes: in Python true is equal to 1.
            if self._key and self._own(old) != own:
                return None
            if self._before and self._is_whole(old, row, value):
                before = canonical.write(old)
        after = canonical.write(row)
        return [Change("upsert", own or self._kafka_key(key), after, before, (), op == "u")]

    def _own(self, row: Any) -> bytes | None:
        """Make the key from a row's columns; None if it lacks one."""
        *values, _ = self._key_values(row)
        if UNSET in values:
            return None
        return canonical.write(dict(zip(self._key, values, strict=True)))

    def _is_whole(self, old: Any, row: Any, value: bytes) -> bool:
        """Whether the old image has all columns that the new one has."""
        if self._names is not None:
            names = self._names(value)
            return bool(names.after.keys() <= names.before.keys())
        values = zip(astuple(row), astuple(old), strict=True)
        return not any(there is UNSET and here is not UNSET for here, there in values)
