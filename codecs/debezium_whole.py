"""Decode the commonest messages of Debezium faster where all columns are read.

This takes creates, updates and rows of snapshots, without schema, whose images have the columns
of the messages before them, if no value is unavailable and the key does not change.  All other
messages, and damaged ones, are left to `codecs.debezium`.  Both return the same changes.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from ikebana.codecs import canonical
from ikebana.codecs.change import Change, Wanted
from ikebana.codecs.fields import fit_a_struct
from ikebana.codecs.shapes import Learned, Shape
from ikebana.codecs.unavailable import Unavailable

_OPS = frozenset("cur")


class _Sample(msgspec.Struct):
    """An event whose new image shows the columns."""

    op: str
    after: Raw


class Whole:
    """Decodes the messages that it can, and returns None for the others."""

    def __init__(
        self,
        wanted: Wanted,
        unavailable: Unavailable,
        kafka_key: Callable[[bytes | None], bytes | None],
    ) -> None:
        self._may_lack = unavailable.may_be_in_json
        self._kafka_key = kafka_key
        self._before, self._key = wanted.before, wanted.key
        self._learned = Learned(self._made, whole=wanted.key)
        self._sample = canonical.decoder(_Sample)
        self._decode: Callable[[bytes], Any] | None = None
        self._settle: Callable[[Any], None] = lambda _: None
        self._key_values = self._old_values = attrgetter("__class__", "__class__")

    @staticmethod
    def fits(wanted: Wanted) -> bool:
        """Whether this decoder can decode what is wanted."""
        all_columns = wanted.columns is None and not wanted.encodings
        return all_columns and wanted.tables is None and fit_a_struct(wanted.key)

    def changes(self, key: bytes | None, value: bytes) -> list[Change] | None:
        """Decode the change of a message; None if `codecs.debezium` has to."""
        learned = self._learned
        if learned.gives_up:
            return None
        if self._decode is None:
            self._learn(value, missed=True)
            if self._decode is None:
                return None
        try:
            event = self._decode(value)
            row, old, op = event.after, event.before, event.op
            if op not in _OPS or row is None:
                return None
            self._settle(row)
            before: bytes | None = None
            own: bytes | None = None
            if self._key:
                own = self._own(self._key_values(row))
            if op == "u" and old is not None:
                if self._key:
                    values = self._old_values(old)
                    if UNSET in values or self._own(values) != own:
                        return None
                if self._before:
                    self._settle(old)
                    before = canonical.write(old)
            after = canonical.write(row)
        except canonical.REFUSALS:
            self._learn(value, missed=True)
            return None
        if learned.fitted():
            self._learn(value, missed=False)
        if self._may_lack(after) or (before is not None and self._may_lack(before)):
            return None
        return [Change("upsert", own or self._kafka_key(key), after, before, (), op == "u")]

    def _own(self, values: tuple[Any, ...]) -> bytes:
        """Make the row's key from the values of its columns."""
        # The values are followed by the class, so that one of them is a tuple too.
        return canonical.write(dict(zip(self._key, values, strict=False)))

    def _learn(self, value: bytes, *, missed: bool) -> None:
        """Learn the columns from a message."""
        try:
            image = self._sample(value).after
        except canonical.REFUSALS:
            image = Raw(b"null")
        self._learned.learn(image, missed=missed)

    def _made(self, shape: Shape) -> None:
        if not set(self._key) <= shape.fields.keys():
            self._decode = None
            return
        self._settle = shape.settle
        self._key_values = attrgetter(*(shape.fields[name] for name in self._key), "__class__")
        old: Any = Raw
        if self._before:
            old, self._old_values = shape.row | None, self._key_values
        elif self._key:
            names = {f"f{at}": name for at, name in enumerate(self._key)}
            fields = [(field, object, UNSET) for field in names]
            old = msgspec.defstruct("Old", fields, rename=names) | None
            self._old_values = attrgetter(*names, "__class__")
        event = msgspec.defstruct(
            "Event", [("op", str), ("after", shape.row | None), ("before", old, None)]
        )
        self._decode = canonical.decoder(event)
