"""A compacted input that is compacted between a crash and the replay."""

from random import Random

import pytest

from support.output_judge import committed
from support.pipeline_processes import PipelineOver, delete_before, upserts
from support.waiting import wait_until

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]

COMPACTED = {
    "cleanup.policy": "compact,delete",
    "retention.ms": "-1",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0001",
    "max.compaction.lag.ms": "100",
}
LIMIT, KEYS = 600, 300


@pytest.mark.parametrize(
    ("fault", "master"),
    [
        pytest.param("before_progress:1:*:all", "local[2]", id="all shards have committed"),
        pytest.param(
            "before_commit>after_commit:1:1:all", "local[2]", id="one shard has committed"
        ),
    ],
)
def test_a_replay_adopts_what_it_could_not_read_again(
    pipeline_over: PipelineOver, fault: str, master: str
) -> None:
    """R19. Batch 1 is in Kafka, not in Spark's commit log, and then its records are compacted.

    A replay that computed again would find no record, hold another state than the one
    that its updates came from, and later retract values that it never gave out.  So a
    shard that has committed adopts its commit record; if all have, nothing is read, and it
    does no harm that the offsets are gone altogether.
    """
    choice = Random(fault)
    pipeline = pipeline_over(1, upserts(2 * LIMIT, KEYS, choice), topic=COMPACTED, limit=LIMIT)
    pipeline = pipeline.but(master=master)
    with pipeline.start(fault=fault) as run:
        run.wait_for_fault()
        run.wait(30)
    assert [one.batch for one in pipeline.progress()] == [0]
    commits = {
        record.partition(): record.value()
        for record in committed(pipeline.servers, pipeline.name + ".commits")
    }
    partial = "before_commit" in fault
    committed_it = [b'"batch":1,' in commits[partition] for partition in (1, 2)]
    assert sorted(committed_it) == [not partial, True]

    pipeline.send((b"k%d" % n, b'{"v":"new"}') for n in range(KEYS))

    def compacted() -> bool:
        # The cleaner leaves the last segment alone: each record begins a new one.
        pipeline.send([(b"filler", b"%d" % choice.randrange(1000))])
        return all(m.offset() >= 2 * LIMIT for m in committed(pipeline.servers, pipeline.source))

    wait_until(compacted, 60, f"compaction of {pipeline.source}")
    if not partial:
        delete_before(pipeline.servers, pipeline.source, {0: 2 * LIMIT})
    pipeline.drained()
    assert pipeline.judged() == {}
