"""Progress topics that have lost old records."""

from random import Random

import pytest

from support.output_judge import judge
from support.pipeline_processes import PipelineOver, delete_before, upserts

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]


def test_progress_goes_on_without_a_gap_when_old_records_of_it_were_deleted(
    pipeline_over: PipelineOver,
) -> None:
    """First all records are deleted, in the worst moment; then those of the first half.

    The worst moment is between publishing batch 3 and Spark's commit: the replay can
    no longer see in the one topic that the batch was published; the other topic, which
    was written in the same transaction, still says so.
    """
    pipeline = pipeline_over(2, upserts(1000, 100, Random(1)), limit=150)
    with pipeline.start(fault="after_progress:3:*:all") as run:
        run.wait_for_fault()
        run.wait(30)
    delete_before(pipeline.servers, pipeline.target + ".progress", {0: -1})
    assert pipeline.progress() == []
    pipeline.drained()
    first = pipeline.progress()[0].batch
    assert first == 4
    assert pipeline.judged() == {}
    assert judge(pipeline.servers, pipeline.name + ".errors", {}) == {}

    # A record and the end of its transaction take an offset each.
    delete_before(pipeline.servers, pipeline.target + ".progress", {0: 2 * (first + 2)})
    remaining = pipeline.progress()
    assert remaining
    assert remaining[0].batch > first
    pipeline.send(upserts(300, 100, Random(2)))
    pipeline.drained()
    assert pipeline.progress()[-1].batch > remaining[-1].batch
    assert pipeline.judged() == {}
    assert judge(pipeline.servers, pipeline.name + ".errors", {}) == {}
