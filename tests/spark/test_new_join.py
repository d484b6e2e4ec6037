"""A join added to a running pipeline's file, and one removed, through Kafka and Spark."""

import json
from random import Random
from typing import Any

import pytest

from ikebana.processor.checkpoint.checkpoint import Checkpoint
from support.output_judge import progress_of
from support.pipeline_processes import WrittenOver
from support.shops import counted, shown

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
    written_over: WrittenOver,
) -> None:
    """It has the state of its inputs from the arrangements, and then all changes."""
    choice = Random(7)
    columns = {"orders": ("id", "customer", "amount"), "customers": ("id", "level")}
    pipeline = written_over(*columns)
    servers, name = pipeline.servers, pipeline.name

    def sections(**joins: dict[str, Any]) -> dict[str, Any]:
        return {
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
            pipeline.send_to(relation, messages)

    def joined() -> list[tuple[dict[str, int], dict[str, int]]]:
        orders, customers = state["orders"], state["customers"]
        return [
            (order, customers[order["customer"]])
            for order in orders.values()
            if order["customer"] in customers and order["amount"] > 10
        ]

    one = pipeline.having(sections(first=FIRST))
    change(150)
    one.drained()
    both = pipeline.having(sections(first=FIRST, second=SECOND))
    change(40)
    both.drained()

    firsts = [(o["id"], {"amount": o["amount"], "level": c["level"]}) for o, c in joined()]
    seconds = [(o["id"], {"id": o["id"]}) for o, c in joined() if c["level"] < o["amount"]]
    assert shown(pipeline, "first") == counted(firsts)
    assert shown(pipeline, "second") == counted(seconds)
    begun = progress_of(servers, f"{name}.second")
    assert begun[0].lower == 0
    assert {message.upper for message in begun} != {0}

    # The output under another name writes the same topic, and has nothing to add to it.
    again = sections(first=FIRST, second=SECOND, third=SECOND)
    again["outputs"]["third"]["topic"] = f"{name}.second"
    del again["outputs"]["second"]
    pipeline.having(again).drained()
    assert shown(pipeline, "second") == counted(seconds)

    # The first is gone, and the second goes on with what both had.
    alone = pipeline.having(sections(second=SECOND))
    change(40)
    alone.drained()

    seconds = [(o["id"], {"id": o["id"]}) for o, c in joined() if c["level"] < o["amount"]]
    assert shown(pipeline, "second") == counted(seconds)
    metadata = Checkpoint(str(pipeline.place)).metadata()
    assert metadata is not None
    assert "hold-in first" in metadata.released
