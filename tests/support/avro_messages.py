"""Avro as other writers write it: fastavro's bytes, bare and framed by a registry's serialiser."""

import io
from typing import Any

import fastavro


def body(schema: Any, data: Any) -> bytes:
    """What fastavro writes of data that needs no conversion."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), data)
    return out.getvalue()


def message(schema_id: int, schema: Any, data: Any) -> bytes:
    """A message as Confluent's serialiser frames it."""
    return b"\0" + schema_id.to_bytes(4, "big") + body(schema, data)
