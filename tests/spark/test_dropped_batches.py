"""Logged batches that no shard has committed, through Kafka and Spark: when they are dropped."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ikebana.processor.kafka.broker import Broker
from support.output_judge import progress_of
from support.pipeline_processes import create, delete_before, written
from support.shops import counted, narrow, send_orders, shown

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]


def test_an_edit_whose_topic_is_lost_meanwhile_is_withdrawn_by_the_file_of_before(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """It died in a batch that no shard has committed, and a start dies while it drops that."""
    servers, name = broker.bootstrap_servers, topic_name("shop")
    create(servers, f"{name}.orders", 2)
    orders = {key: {"customer": key % 5, "amount": key} for key in range(300)}
    send_orders(servers, name, {key: orders[key] for key in range(200)})
    pipeline = written(tmp_path, servers, name, {}, limit=60)
    first = replace(pipeline, sections=narrow(name, {"a": "amount"}))
    first.drained()
    wider = replace(pipeline, sections=narrow(name, {"a": "amount", "c": "customer"}))
    batch = max(first.log("offsets")) + 3
    with wider.start("--once", fault=f"before_commit:{batch}:*:all") as run:
        run.wait(120)
    assert run.once.exists(), run.text
    assert 'reading "orders" again from the beginning' in run.text
    logged = max(first.log("offsets"))
    assert logged > max(first.log("commits"))
    delete_before(servers, f"{name}.orders", {0: -1, 1: -1})

    with wider.start("--once") as run:
        assert run.wait(120) != 0
    assert "the records before are gone" in run.text
    with first.start("--once", fault=f"before_dropped:{logged}:*:all") as run:
        run.wait(120)
    assert run.once.exists(), run.text
    assert max(first.log("offsets")) == logged
    send_orders(servers, name, {key: orders[key] for key in range(200, 300)})
    end = first.drained()

    assert f"dropping batch {logged} of the plan of before" in end.text
    rows = [(key, {"a": row["amount"]}) for key, row in orders.items()]
    assert shown(servers, f"{name}.slim") == counted(rows)
    records = progress_of(servers, f"{name}.slim")
    assert [each.lower for each in records[1:]] == [each.upper for each in records[:-1]]


def test_a_batch_that_was_too_large_is_made_anew_by_a_lower_limit(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """With the limit that it had, it is run as it is in the log."""
    servers, name = broker.bootstrap_servers, topic_name("shop")
    create(servers, f"{name}.orders", 2)
    orders = {key: {"customer": key % 5, "amount": key} for key in range(300)}
    send_orders(servers, name, orders)
    large = written(tmp_path, servers, name, {}, limit=1_000)
    large = replace(large, sections=narrow(name, {"a": "amount"}))
    for at in ("first", "second"):
        once = replace(large, folder=tmp_path / at)
        once.folder.mkdir()
        with once.start("--once", fault="before_commit:0:*:all") as run:
            run.wait(120)
        assert run.once.exists(), run.text
        assert "dropping" not in run.text
    logged = max(large.log("offsets"))
    assert logged > max(large.log("commits"), default=-1)

    end = replace(large, limit=100).drained()

    assert f"dropping batch {logged} of 300 records, which is more than" in end.text
    assert len(large.log("commits")) >= logged + 3
    rows = [(key, {"a": row["amount"]}) for key, row in orders.items()]
    assert shown(servers, f"{name}.slim") == counted(rows)
