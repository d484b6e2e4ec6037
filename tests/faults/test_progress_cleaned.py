"""Progress topics that have lost old records."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ikebana.processor.kafka.broker import Broker
from support.output_judge import judge, truth_of
from support.pipeline_processes import Pipeline, create, delete_before, produce, upserts

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]


def test_progress_goes_on_without_a_gap_when_old_records_of_it_were_deleted(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """First all records are deleted, in the worst moment; then those of the first half.

    The worst moment is between publishing batch 3 and Spark's commit: the replay can
    no longer see in the one topic that the batch was published; the other topic, which
    was written in the same transaction, still says so.
    """
    servers, source = broker.bootstrap_servers, topic_name("cleaned")
    create(servers, source, 2)
    produce(servers, source, upserts(1000, 100, Random(1)))
    pipeline = Pipeline(tmp_path, servers, topic_name("progress"), source, limit=150)
    with pipeline.start(fault="after_progress:3:*:all") as run:
        run.wait_for_fault()
        run.wait(30)
    delete_before(servers, pipeline.target + ".progress", {0: -1})
    assert pipeline.progress() == []
    pipeline.drained()
    first = pipeline.progress()[0].batch
    assert first == 4
    assert judge(servers, pipeline.target, truth_of(servers, source)) == {}
    assert judge(servers, pipeline.name + ".errors", {}) == {}

    # A record and the end of its transaction take an offset each.
    delete_before(servers, pipeline.target + ".progress", {0: 2 * (first + 2)})
    remaining = pipeline.progress()
    assert remaining
    assert remaining[0].batch > first
    produce(servers, source, upserts(300, 100, Random(2)))
    pipeline.drained()
    assert pipeline.progress()[-1].batch > remaining[-1].batch
    assert judge(servers, pipeline.target, truth_of(servers, source)) == {}
    assert judge(servers, pipeline.name + ".errors", {}) == {}
