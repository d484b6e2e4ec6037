"""Avro as other writers write it: fastavro's bytes, bare and framed, and schemas by their ids."""

import io
from collections.abc import Mapping
from typing import Any

import fastavro

from ikebana.codecs.avro_schema import SchemaUnknown, self_contained


class KnownSchemas:
    """Schemas by their ids, as a registry has them; `asked` are the ids that were asked for."""

    def __init__(self, schemas: Mapping[int, Any] | Mapping[int | str, Any]) -> None:
        self.schemas: Mapping[Any, Any] = schemas
        self.asked: list[int | str] = []

    def parsed(self, id: int | str) -> object:  # noqa: A002 -- as registries call it
        """The schema of an id."""
        self.asked.append(id)
        if id not in self.schemas:
            raise SchemaUnknown
        return self_contained(self.schemas[id])


def body(schema: Any, data: Any) -> bytes:
    """What fastavro writes of data that needs no conversion."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), data)
    return out.getvalue()


def message(schema_id: int, schema: Any, data: Any) -> bytes:
    """A message as Confluent's serialiser frames it."""
    return b"\0" + schema_id.to_bytes(4, "big") + body(schema, data)
