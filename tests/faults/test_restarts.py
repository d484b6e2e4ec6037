"""A query that fails for no reason of ours is started again, and nothing is lost or doubled."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ikebana.processor.kafka.broker import Broker
from support.output_judge import judge, truth_of
from support.pipeline_processes import Pipeline, create, produce, upserts

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(600)]


def test_a_query_whose_workers_die_again_and_again_is_started_again(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """A task that fails four times ends the query, in the middle of a shard's transaction.

    The run takes its own pipeline over and goes on.
    """
    servers, source = broker.bootstrap_servers, topic_name("restarts")
    create(servers, source, 2)
    produce(servers, source, upserts(600, 200, Random(1)))
    pipeline = Pipeline(tmp_path, servers, topic_name("restarted"), source, limit=200)
    with pipeline.start(fault="before_commit:1:0:worker:4") as run:
        run.wait_for("starting again in 1 s")
        assert "the process that owns shard 0 was lost" in run.text
        pipeline.wait_until_read()
        assert run.stop() == 0, run.text
    assert judge(servers, pipeline.target, truth_of(servers, source)) == {}


@pytest.mark.full
def test_a_query_whose_jvm_dies_is_started_again_in_another(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The end of a JVM that nobody has asked for is as little the run's own."""
    servers, source = broker.bootstrap_servers, topic_name("restarts")
    create(servers, source, 2)
    produce(servers, source, upserts(600, 200, Random(1)))
    pipeline = Pipeline(tmp_path, servers, topic_name("restarted"), source)
    with pipeline.start() as run:
        pipeline.wait_until_read()
        assert run.kill_jvm()
        run.wait_for("Spark's JVM ended by itself; starting again in 1 s")
        produce(servers, source, upserts(100, 200, Random(2)))
        pipeline.wait_until_read()
        assert run.stop() == 0, run.text
    assert judge(servers, pipeline.target, truth_of(servers, source)) == {}
