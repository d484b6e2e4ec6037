"""Open messages of Kafka Connect's JSON converter: bare, or wrapped as {"schema", "payload"}.

Each message may be either.  {"payload": {...}} alone is wrapped too: its schema is known
elsewhere.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from ikebana.codecs import canonical
from ikebana.codecs.column_encodings import Schema
from ikebana.codecs.encodings import Convert

PayloadPlan = tuple[tuple[str, Convert], ...]
"""The conversions of columns, by name; other columns stay as they are."""

_NAMES, _FAR = (b'"schema"', b'"payload"'), 64
_REMEMBERED = 64


class Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    """A wrapped message of Kafka Connect's JSON converter, with or without its schema."""

    payload: Raw
    schema: Raw = Raw()


class Opening:
    """Opens messages, bare or wrapped with a schema, as values of one type.

    Parsing a schema costs more than a row, so the bytes of the last schema are compared: a
    message with the same prefix, followed by one JSON value, has that schema.
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
        """Decode a message, or its payload, and find the conversions of its columns."""
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
            # A bare row or key may have a column "payload" with a value that is no object.
            return wrapped if bytes(wrapped.payload)[:1] == b"{" else None
        return wrapped if bytes(wrapped.schema)[:1] in (b"{", b"n") else None

    def _read_schema(self, schema: bytes) -> PayloadPlan:
        return self._bare if schema in (b"", b"null") else self._planned(self._schema(schema))
