"""A query that fails for no reason of ours is started again, and nothing is lost or doubled."""

from random import Random

import pytest

from support.pipeline_processes import PipelineOver, upserts

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(600)]


def test_a_query_whose_workers_die_again_and_again_is_started_again(
    pipeline_over: PipelineOver,
) -> None:
    """A task that fails four times ends the query, in the middle of a shard's transaction.

    The run takes its own pipeline over and goes on.
    """
    pipeline = pipeline_over(2, upserts(600, 200, Random(1)), limit=200)
    with pipeline.start(fault="before_commit:1:0:worker:4") as run:
        run.wait_for("starting again in 1 s")
        assert "the process that owns shard 0 was lost" in run.text
        pipeline.wait_until_read()
        assert run.stop() == 0, run.text
    assert pipeline.judged() == {}


@pytest.mark.full
def test_a_query_whose_jvm_dies_is_started_again_in_another(pipeline_over: PipelineOver) -> None:
    """The end of a JVM that nobody has asked for is as little the run's own."""
    pipeline = pipeline_over(2, upserts(600, 200, Random(1)))
    with pipeline.start() as run:
        pipeline.wait_until_read()
        assert run.kill_jvm()
        run.wait_for("Spark's JVM ended by itself; starting again in 1 s")
        pipeline.send(upserts(100, 200, Random(2)))
        pipeline.wait_until_read()
        assert run.stop() == 0, run.text
    assert pipeline.judged() == {}
