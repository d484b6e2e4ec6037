"""State machines and reductions through Kafka and Spark, over a restart."""

import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.engine.evaluate import Evaluation
from support.output_judge import committed
from support.pipeline_processes import WrittenOver
from support.shops import shown

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]

Message = tuple[bytes, bytes | None]
UPDATES = ("status", "good", "statuses", "all", "medians")


def sections(name: str) -> dict[str, Any]:
    """The status of orders by their events, and what customers' orders come to, two ways.

    How many orders have each status exchanges once, how many statuses have how many twice.
    """
    by_status = {"by": "value", "aggregates": {"orders": "count(*)"}}
    return {
        "inputs": {
            "events": {"topic": f"{name}.events"},
            "orders": {
                "topic": f"{name}.orders",
                "format": "debezium-json",
                "mode": "diffs",
                "columns": {"customer": "VARCHAR", "amount": "DECIMAL(12,2)"},
            },
        },
        "operators": {
            "status": {"state_machine": "events", "step": "machines:next_status"},
            "totals": {
                "reduce": "orders",
                "by": "customer",
                "aggregates": {
                    "orders": "count(*)",
                    "total": "sum(amount)",
                    "largest": "top(2, amount)",
                },
            },
            "good": {"linear": "totals", "where": "orders > 3"},
            "statuses": {"reduce": "status", **by_status},
            "sizes": {
                "reduce": "statuses",
                "by": "orders",
                "aggregates": {"statuses": "count(*)"},
            },
            "all": {"concat": ["good", "sizes"]},
            "medians": {"reduce": "orders", "by": "customer", "function": "reductions:middle"},
        },
        "outputs": {
            "totals": {"from": "totals", "topic": f"{name}.totals", "format": "upsert"},
            **{each: {"from": each, "topic": f"{name}.{each}"} for each in UPDATES},
        },
    }


def events(choice: Random, count: int) -> list[Message]:
    """Events of orders, many of them not in their turn."""
    kinds = ["place", "pay", "ship", "deliver", "cancel", "refund"]
    return [
        (b"%d" % choice.randrange(40), json.dumps(choice.choice(kinds)).encode())
        for _ in range(count)
    ]


def changes(choice: Random, count: int, rows: dict[int, dict[str, Any]]) -> list[Message]:
    """Inserts, updates that may change the customer, and deletes, with full old images."""
    found: list[Message] = []
    for _ in range(count):
        key = choice.randrange(60)
        before = rows.get(key)
        after: dict[str, Any] | None = {
            "id": key,
            "customer": f"c{choice.randrange(9)}",
            "amount": choice.randrange(1000) / 100,
        }
        op = "c" if before is None else "u"
        if before is not None and choice.random() < 0.3:
            op, after = "d", None
        if after is None:
            del rows[key]
        else:
            rows[key] = after
        event = {"op": op, "before": before, "after": after}
        found.append((b'{"id":%d}' % key, json.dumps(event).encode()))
    return found


def test_keyed_operators_keep_their_state_over_restarts_and_deaths(
    written_over: WrittenOver,
) -> None:
    """What comes out of three runs, two of which died, is what `evaluate` says of all messages."""
    choice = Random(3)
    pipeline = written_over("events", "orders", partitions=1, limit=150)
    pipeline = pipeline.having(sections(pipeline.name))
    rows: dict[int, dict[str, Any]] = {}
    given: dict[str, list[Message]] = {"events": [], "orders": []}

    for point in (None, "after_commit", "emit"):
        more = {"events": events(choice, 300), "orders": changes(choice, 200, rows)}
        for name, messages in more.items():
            pipeline.send_to(name, messages)
            given[name] += messages
        if point is not None:
            pipeline.dies(f"{point}:{max(pipeline.log('commits')) + 2}:1")
        pipeline.drained()

    plan = parse(json.dumps(pipeline.document()), "file", environ={}).plan
    found = Evaluation(plan).advance(
        {name: [(key, value, 1) for key, value in all_] for name, all_ in given.items()}, 2
    )
    expected = {
        name: Counter({u.data: u.diff for u in updates}) for name, updates in found.items()
    }
    customers = Counter(row["customer"] for row in rows.values())
    last = {
        message.key(): message.value()
        for message in committed(pipeline.servers, f"{pipeline.name}.totals")
    }
    totals = {json.loads(key): json.loads(value) for key, value in last.items() if value}

    for name in UPDATES:
        assert shown(pipeline, name) == expected[name], name
    assert {name for name, _ in expected["medians"]} == set(customers)
    assert {name: row["orders"] for name, row in totals.items()} == customers
    assert {name: row["total"] for name, row in totals.items()} == {
        name: round(sum(r["amount"] for r in rows.values() if r["customer"] == name), 2)
        for name in customers
    }
