"""Messages of Kafka Connect's JSON converter: bare, or wrapped as {"schema", "payload"}.

From one message to the next they may be either.  {"payload": {...}} alone is wrapped as
well: it is a message whose schema is known elsewhere.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from ikebana.codecs import canonical
from ikebana.codecs.encodings import Convert, Schema

PayloadPlan = tuple[tuple[str, Convert], ...]
"""The columns whose values are to be converted, and how."""

_NAMES, _FAR = (b'"schema"', b'"payload"'), 64
_REMEMBERED = 64


class Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    """A message of Kafka Connect's JSON converter that carries its schema, or could."""

    payload: Raw
    schema: Raw = Raw()


class Opening:
    """Opens messages that are bare, or wrapped with a schema, as values of one type.

    The last schema is compared rather than parsed: a prefix that is equal, and a rest that
    is one JSON value, are a message with that schema.
    """

    def __init__(
        self, kind: Any, bare: PayloadPlan, planned: Callable[[Schema], PayloadPlan]
    ) -> None:
        self._decode = canonical.decoder(kind)
        self._wrapped = canonical.decoder(Wrapped)
        self._schema = canonical.decoder(Schema)
        self._bare = bare
        self._planned = planned
        self._plan_of = lru_cache(_REMEMBERED)(self._read_schema)
        self._last: tuple[bytes, PayloadPlan] = (b"", bare)

    def open(self, message: bytes) -> tuple[Any, PayloadPlan]:
        """The message or its payload, and how its columns are to be converted."""
        prefix, plan = self._last
        if prefix and message.startswith(prefix) and message.endswith(b"}"):
            try:
                return self._decode(Raw(memoryview(message)[len(prefix) : -1])), plan
            except canonical.REFUSALS:
                pass
        # The first quotation mark of an object begins its first name.
        first = message.find(b'"', 0, _FAR)
        named = first < 0 or message.startswith(_NAMES, first)
        if (wrapped := self._unwrap(message) if named else None) is None:
            return self._decode(message), self._bare
        schema = bytes(wrapped.schema)
        plan = self._plan_of(schema)
        decoded = self._decode(wrapped.payload)
        if message.startswith(prefix := b'{"schema":' + schema + b',"payload":'):
            self._last = (prefix, plan)
        return decoded, plan

    def _unwrap(self, message: bytes) -> Wrapped | None:
        try:
            wrapped: Wrapped = self._wrapped(message)
        except msgspec.ValidationError:
            return None
        if not wrapped.schema:
            # A row, or a key, may have a column of this name.
            return wrapped if bytes(wrapped.payload)[:1] == b"{" else None
        return wrapped if bytes(wrapped.schema)[:1] in (b"{", b"n") else None

    def _read_schema(self, schema: bytes) -> PayloadPlan:
        return self._bare if schema in (b"", b"null") else self._planned(self._schema(schema))
