"""Killed at the exact points between which the order of events matters."""

from dataclasses import replace
from random import Random

import pytest

from support.output_judge import judge
from support.pipeline_processes import PipelineOver, upserts

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.mark.parametrize("domain", ["ingest", "offset"])
def test_whatever_dies_and_whenever_each_batch_counts_once(
    pipeline_over: PipelineOver, domain: str
) -> None:
    """R1, R19. One checkpoint goes through all points of death; the traces that it must survive:

    * emit: the worker dies with its transaction half written.  Spark's next attempt
      aborts it; nothing behind the operator can take what came for the whole.
    * before_commit: the updates are written, the transaction is open.
    * after_commit: the updates count, Spark knows nothing of it: the commit record is adopted.
    * before_progress: all shards have committed, no reader knows it yet.
    * after_progress: readers know it, Spark does not: it is not published again.

    A dead worker is Spark's to replace, and the query goes on.  If all of the session
    dies, the next start goes on.
    """
    pipeline = pipeline_over(3, upserts(7000, 800, Random(domain)), domain=domain, limit=100)
    batch = 1
    points = ["emit", "before_commit", "after_commit", "before_progress", "after_progress"]
    for point in points if domain == "ingest" else points[1:]:
        shard = "*" if "progress" in point else str(len(point) % 2)
        if domain == "ingest" and "progress" not in point:
            with pipeline.start(fault=f"{point}:{batch}:{shard}") as run:
                run.wait_for_fault()
                pipeline.wait_for_batch(batch + 1)
                assert run.poll() is None, run.text
        else:
            with pipeline.start(fault=f"{point}:{batch}:{shard}:all") as run:
                run.wait_for_fault()
                run.wait(30)
        batch = len(pipeline.progress()) + 1
    replace(pipeline, limit=5000).drained()
    assert pipeline.judged() == {}
    assert judge(pipeline.servers, pipeline.name + ".errors", {}) == {}
