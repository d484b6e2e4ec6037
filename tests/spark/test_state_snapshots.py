"""Spark keeps snapshots of its state, so that it need not read a file of every batch there was."""

from random import Random

import pytest

from support.pipeline_processes import PipelineOver, upserts
from support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

# All shards are in one task, which has one state.
TASKS = 1
OFTEN = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
}


def test_spark_writes_snapshots_of_its_state(pipeline_over: PipelineOver) -> None:
    """Where it could not, it ended the query after some 240 batches."""
    pipeline = pipeline_over(1, upserts(2_000, 50, Random(1)), spark=OFTEN, limit=100)
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
