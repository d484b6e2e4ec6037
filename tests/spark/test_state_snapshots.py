"""Spark keeps snapshots of its state, so that it need not read a file of every batch there was."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ikebana.processor.kafka.broker import Broker
from support.pipeline_processes import create, produce, upserts, written
from support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

# All shards are in one task, which has one state.
TASKS = 1
OFTEN = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
}


def test_spark_writes_snapshots_of_its_state(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Where it could not, it ended the query after some 240 batches."""
    servers, source = broker.bootstrap_servers, topic_name("state")
    create(servers, source, 1)
    produce(servers, source, upserts(2_000, 50, Random(1)))
    name = topic_name("state")
    sections = {
        "inputs": {"changes": {"topic": source, "format": {"key": "bytes"}}},
        "operators": {"current": {"upsert": "changes"}},
        "outputs": {"out": {"from": "current", "topic": f"{name}.out"}},
        "spark": OFTEN,
    }
    pipeline = replace(written(tmp_path, servers, name, {}), sections=json.dumps(sections))
    stores = pipeline.place / "state" / "0"

    with pipeline.start() as run:
        wait_until(
            lambda: all(list((stores / str(task)).glob("*.zip")) for task in range(TASKS)),
            60,
            "a snapshot of the state of each task",
        )
        assert run.stop() == 0, run.text
    # Files beside others would be checksums, each of which takes a process or two to write.
    assert not [path for path in pipeline.place.rglob("*") if path.name.endswith(".crc")]
