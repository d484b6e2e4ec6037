"""Outputs of one row a key through Kafka and Spark: a LEFT JOIN as plain upserts."""

import json
from random import Random
from typing import Any

import pytest

from support.output_judge import committed
from support.pipeline_processes import WrittenOver

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

# By the key of its left, which nothing has to be kept for; and by a column, over all shards.
LOOKUP = "SELECT o.id, o.item, p.price FROM orders o LEFT JOIN prices p ON o.ref = p.key"
TOTALS = (
    "SELECT o.id, o.item, g.most FROM orders o LEFT JOIN "
    "(SELECT item, max(price) AS most FROM prices GROUP BY item) g ON g.item = o.item"
)


def sections(name: str) -> dict[str, Any]:
    """Orders, each with the price that it names, and with the greatest one of its item."""
    orders = {"id": "BIGINT", "item": "VARCHAR", "ref": "JSON"}
    prices = {"item": "VARCHAR", "price": "BIGINT"}
    return {
        "inputs": {
            "orders": {"topic": f"{name}.orders", "columns": orders},
            "prices": {"topic": f"{name}.prices", "columns": prices},
        },
        "operators": {"lookup": {"sql": LOOKUP}, "totals": {"sql": TOTALS, "key": "id"}},
        "outputs": {
            each: {"from": each, "topic": f"{name}.{each}", "format": "upsert"}
            for each in ("lookup", "totals")
        },
    }


class Tables:
    """Random updates and deletes of both tables; an order's id is ten times its key."""

    def __init__(self, choice: Random) -> None:
        self.orders: dict[int, dict[str, Any]] = {}
        self.prices: dict[int, dict[str, Any]] = {}
        self._choice = choice

    def changes(self, count: int) -> dict[str, list[tuple[bytes, bytes | None]]]:
        """Messages by table."""
        choice, found = self._choice, {"orders": [], "prices": []}  # type: ignore[var-annotated]
        for _ in range(count):
            name = choice.choice(["orders", "prices"])
            table, key = getattr(self, name), choice.randrange(12)
            item = choice.choice("abcd")
            row: dict[str, Any] | None = {"item": item, "price": choice.randrange(5)}
            if name == "orders":
                row = {"id": key * 10, "item": item, "ref": choice.randrange(14)}
            if choice.random() < 0.3:
                row = None
            table.pop(key, None)
            if row is not None:
                table[key] = row
            value = None if row is None else json.dumps(row).encode()
            found[name].append((str(key).encode(), value))
        return found

    def lookup(self) -> dict[Any, Any]:
        """What the first view is."""
        return {
            key: {
                "id": row["id"],
                "item": row["item"],
                "price": self.prices.get(row["ref"], {}).get("price"),
            }
            for key, row in self.orders.items()
        }

    def totals(self) -> dict[Any, Any]:
        """What the second one is."""
        return {
            row["id"]: {
                "id": row["id"],
                "item": row["item"],
                "most": max(
                    (p["price"] for p in self.prices.values() if p["item"] == row["item"]),
                    default=None,
                ),
            }
            for row in self.orders.values()
        }


def latest(servers: str, topic: str) -> dict[Any, Any]:
    """The newest value of each key, as any reader of upserts has it."""
    found: dict[Any, Any] = {}
    for message in committed(servers, topic):
        key = json.loads(message.key())
        found.pop(key, None)
        if message.value() is not None:
            found[key] = json.loads(message.value())
    return found


def test_a_left_join_as_upserts_is_exact_under_updates_and_deletes(
    written_over: WrittenOver,
) -> None:
    """By the key of its left and by another one, with a death between two batches."""
    pipeline = written_over("orders", "prices", partitions=1, limit=60)
    servers, name = pipeline.servers, pipeline.name
    pipeline = pipeline.having(sections(name))
    tables = Tables(Random(5))

    def send(count: int) -> None:
        for table, messages in tables.changes(count).items():
            pipeline.send_to(table, messages)

    send(150)
    pipeline.dies("after_commit:2:1")
    for _ in range(2):
        send(80)
        pipeline.drained()

        assert latest(servers, f"{name}.lookup") == tables.lookup()
        assert latest(servers, f"{name}.totals") == tables.totals()
        assert committed(servers, f"{name}.errors") == []
