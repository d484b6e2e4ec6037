"""A compacted input that is compacted between a crash and the replay."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ikebana.processor.kafka.broker import Broker
from support.output_judge import committed, judge, truth_of
from support.pipeline_processes import Pipeline, create, delete_before, produce, upserts
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
    broker: Broker,
    topic_name: Callable[[str], str],
    tmp_path: Path,
    fault: str,
    master: str,
) -> None:
    """R19. Batch 1 is in Kafka, not in Spark's commit log, and then its records are compacted.

    A replay that computed again would find no record, hold another state than the one
    that its updates came from, and later retract values that it never gave out.  So a
    shard that has committed adopts its marker; if all have, nothing is read, and it
    does no harm that the offsets are gone altogether.
    """
    servers, source = broker.bootstrap_servers, topic_name("compacted")
    create(servers, source, 1, COMPACTED)
    choice = Random(fault)
    produce(servers, source, upserts(2 * LIMIT, KEYS, choice))
    pipeline = Pipeline(tmp_path, servers, topic_name("replay"), source, limit=LIMIT)
    pipeline = pipeline.but(master=master)
    with pipeline.start(fault=fault) as run:
        run.wait_for_fault()
        run.wait(30)
    assert [one.batch for one in pipeline.progress()] == [0]
    markers = {
        record.partition(): record.value()
        for record in committed(servers, pipeline.name + ".markers")
    }
    partial = "before_commit" in fault
    committed_it = [b'"batch":1,' in markers[partition] for partition in (1, 2)]
    assert sorted(committed_it) == [not partial, True]

    produce(servers, source, ((b"k%d" % n, b'{"v":"new"}') for n in range(KEYS)))

    def compacted() -> bool:
        # The cleaner leaves the last segment alone: each record begins a new one.
        produce(servers, source, [(b"filler", b"%d" % choice.randrange(1000))])
        return all(m.offset() >= 2 * LIMIT for m in committed(servers, source))

    wait_until(compacted, 60, f"compaction of {source}")
    if not partial:
        delete_before(servers, source, {0: 2 * LIMIT})
    pipeline.drained()
    assert judge(servers, pipeline.target, truth_of(servers, source)) == {}
