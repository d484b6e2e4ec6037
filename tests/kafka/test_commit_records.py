"""The last commit records of all shards, read at once."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from ikebana.arrangements.manifest import Manifest
from ikebana.processor.checkpoint.commits import Marker
from ikebana.processor.kafka import transactions
from ikebana.processor.kafka.broker import Broker
from ikebana.processor.kafka.reader import RangeReader
from ikebana.processor.kafka.transactions import TransactionalProducer
from support.pipeline_processes import create

pytestmark = pytest.mark.kafka


class Counted:
    """A consumer whose requests for offsets are counted."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.requests = 0

    def offsets_for_times(self, *arguments: Any) -> Any:
        self.requests += 1
        return self._consumer.offsets_for_times(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


def marker(shard: int, batch: int) -> Marker:
    return Marker(
        checkpoint="c",
        epoch=0,
        incarnation=1,
        shard=shard,
        batch=batch,
        lower=batch,
        upper=batch + 1,
        offset="o",
        plan="p",
        records=1,
        behind=0,
        counts={},
        manifest=Manifest("c", shard),
    )


@pytest.mark.parametrize("shards", [1, 12])
def test_commit_records_are_found_by_two_requests_whatever_the_number_of_shards(
    broker: Broker, topic_name: Callable[[str], str], shards: int
) -> None:
    """The driver asks for beginnings and ends of all partitions at once, and reads what is last.

    Shards without a commit record have none; what was aborted since does not hide the last one.
    """
    servers, topic = broker.bootstrap_servers, topic_name("markers")
    create(servers, topic, shards + 1)
    producer = TransactionalProducer({"bootstrap.servers": servers}, topic, 60)
    committed = range(0, shards, 2)
    for batch in (1, 2):
        with producer.transaction() as sender:
            for shard in committed:
                transactions.produce_marker(sender, topic, marker(shard, batch))
    for _ in range(3):
        # A record that is aborted.
        producer.end_of(topic, transactions.partition_of_shard(0))

    with closing(RangeReader({"bootstrap.servers": servers})) as reader:
        reader._consumer = counted = Counted(reader._consumer)
        found = transactions.last_markers(reader, topic, shards)
        of_all = counted.requests
        one_by_one = [reader.watermarks(topic, partition) for partition in range(shards + 1)]
        assert reader.all_watermarks(topic, range(shards + 1)) == one_by_one

    assert [(each.shard, each.batch) for each in found] == [(shard, 2) for shard in committed]
    # The one that was aborted is looked for further back.
    assert of_all == 2 + 2
