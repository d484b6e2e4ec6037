"""Two instances on one checkpoint: the older one stops and says why."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ikebana.processor.kafka.broker import Broker
from support.output_judge import judge, truth_of
from support.pipeline_processes import Load, Pipeline, create

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]
FENCED = 3


def test_the_older_of_two_instances_stops_and_nothing_is_doubled(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """R5, R20. Both run under load; the older one is fenced at its next batch at the latest."""
    servers, source = broker.bootstrap_servers, topic_name("two")
    create(servers, source, 2)
    load = Load(servers, source, keys=500, rate=200)
    load.start()
    pipeline = Pipeline(tmp_path, servers, topic_name("twice"), source, "ingest")
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
    assert judge(servers, pipeline.target, truth_of(servers, source)) == {}


def test_the_older_of_two_idle_instances_stops(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """R20. Without records neither runs a batch, and the next heartbeat is due in both at once.

    The older one must not wait for it to learn that it was replaced: it might log the
    batch first and so stop the newer one.
    """
    servers, source = broker.bootstrap_servers, topic_name("idle")
    create(servers, source, 1)
    pipeline = Pipeline(tmp_path, servers, topic_name("idlers"), source, "ingest")
    pipeline = pipeline.but(heartbeat="25s")
    with pipeline.start() as older:
        pipeline.wait_for_batch(0)
        with pipeline.start() as newer:
            assert older.wait(15) == FENCED, older.text
            assert "taken over" in older.text
            pipeline.wait_for_batch(1)
            assert newer.stop() == 0, newer.text
    assert judge(servers, pipeline.target, {}) == {}
