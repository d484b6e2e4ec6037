"""Rows of twelve columns, in JSON and in Avro, of which work and time are measured."""

import io
from typing import Any

import fastavro

from ikebana.codecs.avro_schema import self_contained


def row(at: int) -> dict[str, Any]:
    """A row of twelve columns."""
    texts = {f"text_{n}": f"text {at + n}" for n in range(4)}
    shares = {f"share_{n}": (at * 7 + n) % 1000 / 8 + 0.125 for n in range(4)}
    return {"id": at, **texts, **shares, "count": at * 31, "status": None, "paid": at % 2 == 0}


def event(at: int) -> dict[str, Any]:
    """An update as Debezium writes it."""
    source = {"db": "shop", "table": "orders", "ts_ms": 1_700_000_000_000 + at}
    return {"before": row(at), "after": row(at + 1), "source": source, "op": "u", "ts_ms": at}


ROW = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": name, "type": ["null", {int: "long", float: "double", bool: "boolean"}.get(
            type(value), "string")]}
        for name, value in row(0).items()
    ],
}  # fmt: skip
EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Row"]},
        {"name": "op", "type": "string"},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


class Known:
    """Schemas by id, as a registry has them."""

    def parsed(self, id: int | str) -> object:  # noqa: A002
        return self_contained({1: KEY, 2: EVENT}[int(id)])


def in_avro(number: int, schema: Any, data: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), data)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()
