"""Rows of twelve columns, in JSON and in Avro, of which work and time are measured."""

from typing import Any

from support.avro_messages import KnownSchemas


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
KNOWN = KnownSchemas({1: KEY, 2: EVENT})
