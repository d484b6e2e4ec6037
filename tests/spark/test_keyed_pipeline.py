"""State machines and reductions through Kafka and Spark, over a restart."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ikebana.codecs import canonical
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.kafka.broker import Broker
from support.output_judge import committed
from support.pipeline_processes import Pipeline, create, produce

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]

Message = tuple[bytes, bytes | None]


class KeyedPipeline(Pipeline):
    """A pipeline file of its own instead of the one that fault tests use."""

    def document(self) -> dict[str, Any]:
        return document(self)


def document(pipeline: Pipeline) -> dict[str, Any]:
    """The status of orders by their events, and what customers' orders come to, two ways.

    How many orders have each status hops once, how many statuses have how many twice.
    """
    name = pipeline.name
    return {
        "pipeline": name,
        "inputs": {
            "events": {"topic": pipeline.source},
            "orders": {
                "topic": pipeline.source + ".orders",
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
            "statuses": {
                "reduce": "status",
                "by": "value",
                "aggregates": {"orders": "count(*)"},
            },
            "sizes": {
                "reduce": "statuses",
                "by": "orders",
                "aggregates": {"statuses": "count(*)"},
            },
            "all": {"concat": ["good", "sizes"]},
            "medians": {"reduce": "orders", "by": "customer", "function": "reductions:middle"},
        },
        "outputs": {
            "status": {"from": "status", "topic": f"{name}.status"},
            "totals": {"from": "totals", "topic": f"{name}.totals", "format": "upsert"},
            "good": {"from": "good", "topic": f"{name}.good"},
            "statuses": {"from": "statuses", "topic": f"{name}.statuses"},
            "all": {"from": "all", "topic": f"{name}.all"},
            "medians": {"from": "medians", "topic": f"{name}.medians"},
        },
        "kafka": {"bootstrap.servers": pipeline.servers},
        "source": {"max_records_per_batch": 150},
        "run": {
            "checkpoint": str(pipeline.place),
            "local_directory": str(pipeline.folder / "local"),
            "shards": 2,
            "master": "local[2]",
            "driver_memory": "512m",
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


def collection(servers: str, topic: str) -> Counter[tuple[Any, Any]]:
    """What a diff topic comes to."""
    counts: Counter[tuple[Any, Any]] = Counter()
    for message in committed(servers, topic):
        diff = int(dict(message.headers())["diff"])
        counts[canonical.decode(message.key()), canonical.decode(message.value())] += diff
    return Counter({data: count for data, count in counts.items() if count})


def test_keyed_operators_keep_their_state_over_restarts_and_deaths(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """What comes out of three runs, two of which died, is what `evaluate` says of all messages."""
    servers, choice = broker.bootstrap_servers, Random(3)
    pipeline = KeyedPipeline(tmp_path, servers, topic_name("keyed"), topic_name("events"))
    rows: dict[int, dict[str, Any]] = {}
    given: dict[str, list[Message]] = {"events": [], "orders": []}
    for topic in (pipeline.source, pipeline.source + ".orders"):
        create(servers, topic, 1)

    for point in (None, "after_commit", "emit"):
        more = {"events": events(choice, 300), "orders": changes(choice, 200, rows)}
        produce(servers, pipeline.source, more["events"])
        produce(servers, pipeline.source + ".orders", more["orders"])
        for name, messages in more.items():
            given[name] += messages
        if point is not None:
            batch = max(pipeline.log("commits")) + 2
            with pipeline.start("--once", fault=f"{point}:{batch}:1") as run:
                run.wait_for_fault()
        pipeline.drained()

    plan = parse(json.dumps(document(pipeline)), "file", environ={}).plan
    found = Evaluation(plan).advance(
        {name: [(key, value, 1) for key, value in all_] for name, all_ in given.items()}, 2
    )
    expected = {
        name: Counter({u.data: u.diff for u in updates}) for name, updates in found.items()
    }
    customers = Counter(row["customer"] for row in rows.values())
    last = {
        message.key(): message.value() for message in committed(servers, f"{pipeline.name}.totals")
    }
    totals = {json.loads(key): json.loads(value) for key, value in last.items() if value}

    for name in ("status", "good", "medians", "statuses", "all"):
        assert collection(servers, f"{pipeline.name}.{name}") == expected[name], name
    assert {name for name, _ in expected["medians"]} == set(customers)
    assert {name: row["orders"] for name, row in totals.items()} == customers
    assert {name: row["total"] for name, row in totals.items()} == {
        name: round(sum(r["amount"] for r in rows.values() if r["customer"] == name), 2)
        for name in customers
    }
