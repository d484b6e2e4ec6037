"""A join added to a running pipeline's file, and one removed, through Kafka and Spark."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ikebana.codecs import canonical
from ikebana.processor.checkpoint.checkpoint import Checkpoint
from ikebana.processor.kafka.broker import Broker
from support.output_judge import committed, progress_of
from support.pipeline_processes import create, produce, written

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]

Rows = dict[int, dict[str, int]]
FIRST = {
    "delta_join": {"o": "orders", "c": "customers"},
    "where": ["o.customer = c.id", "o.amount > 10"],
    "select": {"amount": "o.amount", "level": "c.level"},
    "key": "o.id",
}
SECOND = {**FIRST, "where": [*FIRST["where"], "c.level < o.amount"], "select": {"id": "o.id"}}


def test_a_new_join_begins_from_what_is_there_while_the_old_one_goes_on(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """It has the state of its inputs from the arrangements, and then all changes."""
    servers, choice = broker.bootstrap_servers, Random(7)
    name = topic_name("shop")
    columns = {"orders": ("id", "customer", "amount"), "customers": ("id", "level")}
    for relation in columns:
        create(servers, f"{name}.{relation}", 2)

    def sections(**joins: dict[str, Any]) -> str:
        return json.dumps(
            {
                "inputs": {
                    f"{relation}_in": {
                        "topic": f"{name}.{relation}",
                        "columns": dict.fromkeys(own, "BIGINT"),
                    }
                    for relation, own in columns.items()
                },
                "operators": {
                    **{relation: {"upsert": f"{relation}_in"} for relation in columns},
                    **joins,
                },
                "outputs": {of: {"from": of, "topic": f"{name}.{of}"} for of in joins},
            }
        )

    state: dict[str, Rows] = {relation: {} for relation in columns}

    def change(count: int) -> None:
        sent: dict[str, list[tuple[bytes, bytes | None]]] = {of: [] for of in columns}
        for _ in range(count):
            relation = choice.choice(list(columns))
            key = choice.randrange(30)
            row = {"id": key, "customer": choice.randrange(30), "amount": choice.randrange(40)}
            row |= {"level": choice.randrange(40)}
            kept = {column: row[column] for column in columns[relation]}
            gone = choice.random() < 0.2
            value = None if gone else json.dumps(kept).encode()
            state[relation].pop(key, None)
            if not gone:
                state[relation][key] = kept
            sent[relation].append((b"%d" % key, value))
        for relation, messages in sent.items():
            produce(servers, f"{name}.{relation}", messages)

    def joined() -> list[tuple[dict[str, int], dict[str, int]]]:
        orders, customers = state["orders"], state["customers"]
        return [
            (order, customers[order["customer"]])
            for order in orders.values()
            if order["customer"] in customers and order["amount"] > 10
        ]

    pipeline = written(tmp_path, servers, name, {})
    one = replace(pipeline, sections=sections(first=FIRST))
    change(150)
    one.drained()
    both = replace(pipeline, sections=sections(first=FIRST, second=SECOND))
    change(40)
    both.drained()

    firsts = [(o["id"], {"amount": o["amount"], "level": c["level"]}) for o, c in joined()]
    seconds = [(o["id"], {"id": o["id"]}) for o, c in joined() if c["level"] < o["amount"]]
    assert shown(servers, f"{name}.first") == counted(firsts)
    assert shown(servers, f"{name}.second") == counted(seconds)
    begun = progress_of(servers, f"{name}.second")
    assert begun[0].lower == 0
    assert {message.upper for message in begun} != {0}

    # The output under another name writes the same topic, and has nothing to add to it.
    again = json.loads(sections(first=FIRST, second=SECOND, third=SECOND))
    again["outputs"]["third"]["topic"] = f"{name}.second"
    del again["outputs"]["second"]
    replace(pipeline, sections=json.dumps(again)).drained()
    assert shown(servers, f"{name}.second") == counted(seconds)

    # The first is gone, and the second goes on with what both had.
    alone = replace(pipeline, sections=sections(second=SECOND))
    change(40)
    alone.drained()

    seconds = [(o["id"], {"id": o["id"]}) for o, c in joined() if c["level"] < o["amount"]]
    assert shown(servers, f"{name}.second") == counted(seconds)
    birth = Checkpoint(str(pipeline.place)).birth()
    assert birth is not None
    assert "hold-in first" in birth.released


def counted(rows: list[tuple[int, dict[str, int]]]) -> Counter[bytes]:
    """Rows, each as often as it is there."""
    return Counter(canonical.encode([key, row]) for key, row in rows)


def shown(servers: str, topic: str) -> Counter[bytes]:
    """What a diff topic accumulates to."""
    found: Counter[bytes] = Counter()
    for message in committed(servers, topic):
        data = [canonical.decode(message.key()), canonical.decode(message.value())]
        found[canonical.encode(data)] += int(dict(message.headers())["diff"])
    return Counter({data: count for data, count in found.items() if count})
