"""Two instances on one checkpoint: the older one stops and says why."""

import pytest

from support.pipeline_processes import Load, PipelineOver

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]
FENCED = 3


def test_the_older_of_two_instances_stops_and_nothing_is_doubled(
    pipeline_over: PipelineOver,
) -> None:
    """R5, R20. Both run under load; the older one is fenced at its next batch at the latest."""
    pipeline = pipeline_over(2, domain="ingest")
    load = Load(pipeline.servers, pipeline.source, keys=500, rate=200)
    load.start()
    with pipeline.start() as older:
        pipeline.wait_for_batch(2)
        with pipeline.start() as newer:
            assert older.wait(60) == FENCED, older.text
            assert "taken over" in older.text
            before = pipeline.progress()[-1].batch
            pipeline.wait_for_batch(before + 3)
            load.stop()
            pipeline.wait_until_read()
            assert newer.stop() == 0, newer.text
    assert pipeline.judged() == {}


def test_the_older_of_two_idle_instances_stops(pipeline_over: PipelineOver) -> None:
    """R20. Without records neither runs a batch, and the next heartbeat is due in both at once.

    The older one must not wait for it to learn that it was replaced: it might log the
    batch first and so stop the newer one.
    """
    pipeline = pipeline_over(1, domain="ingest").but(heartbeat="25s")
    with pipeline.start() as older:
        pipeline.wait_for_batch(0)
        with pipeline.start() as newer:
            assert older.wait(15) == FENCED, older.text
            assert "taken over" in older.text
            pipeline.wait_for_batch(1)
            assert newer.stop() == 0, newer.text
    assert pipeline.judged() == {}
