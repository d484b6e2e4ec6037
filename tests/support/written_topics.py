"""Output topics that are written by hand, as a pipeline writes them."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from confluent_kafka import TopicPartition

from ikebana.codecs import diff
from ikebana.codecs.diff import ProgressRecord, Promise
from ikebana.processor.kafka import client, topics
from support.waiting import wait_until

# Partition, key, value, time, diff.
Row = tuple[int, bytes | None, bytes, int, int]

FIRST: list[Row] = [
    (0, b'"frank"', b'"mcsherry"', 1, 1),
    (0, b'"frank"', b'"zappa"', 5, 1),
    (0, b'"frank"', b'"mcsherry"', 5, -1),
    (1, b'"david"', b'{"born": 1947}', 7, 1),
]
SECOND: list[Row] = [(1, b'"david"', b'{"born": 1947}', 12, -1)]


class Result(NamedTuple):
    """What a command over topics printed, and how it ended."""

    status: int
    out: str
    err: str


Command = Callable[..., Result]


class Written:
    """A diff topic of two partitions and its progress, written by hand."""

    def __init__(
        self,
        servers: str,
        name: str,
        promise: Promise = "upserts",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`settings` are those of the client, if it needs more than the servers."""
        self.servers = servers
        self.name = name
        self.promise = promise
        self.settings = {"bootstrap.servers": servers, **(settings or {})}
        self.admin = client.admin(self.settings)
        for topic, partitions in ((name, 2), (name + ".progress", 1)):
            topics.create(self.admin, topic, partitions, 1, {"retention.ms": "-1"})
        self.batches = 0
        self.upper = 0
        self.columns: dict[str, str] = {}
        """What progress tells of types."""
        self.connect()

    def connect(self) -> None:
        """Make a producer, which knows the topic as it is now."""
        self.producer = client.transactional_producer(self.settings, self.name, 60)

    def partitions(self) -> int:
        """How many partitions the topic has."""
        return topics.describe(self.admin, [self.name])[self.name].partitions

    def updates(self, rows: list[Row]) -> None:
        """Commit updates that no progress covers."""
        self._produce(rows)
        self.producer.commit_transaction(30)

    def aborted(self, rows: list[Row]) -> None:
        """Write updates that were never committed."""
        self._produce(rows)
        assert self.producer.flush(30) == 0
        self.producer.abort_transaction(30)

    def progress(self, upper: int, count: int) -> ProgressRecord:
        """Close a batch of all that is there."""
        ends = topics.high_watermarks(self.admin, {self.name: self.partitions()})[self.name]
        said = (self.batches, self.upper, upper, count)
        record = ProgressRecord(
            "c", "p", self.name, *said, ends, self.promise, columns=self.columns
        )
        self.publish(record)
        self.batches += 1
        self.upper = upper
        return record

    def publish(self, record: ProgressRecord) -> None:
        """Commit a progress record, and wait until it can be read."""
        topic = {self.name + ".progress": 1}
        self.producer.begin_transaction()
        self.producer.produce(self.name + ".progress", record.encode(), record.key())
        self.producer.commit_transaction(30)
        # Brokers end a transaction in its partitions after the commit has returned.
        wait_until(
            lambda: topics.ends(self.admin, topic) == topics.high_watermarks(self.admin, topic),
            30,
            "progress that can be read",
        )

    def batch(self, rows: list[Row], upper: int) -> ProgressRecord:
        """Write a batch and close it."""
        self.updates(rows)
        return self.progress(upper, len(rows))

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records at the beginning of a partition, as retention does."""
        at = TopicPartition(topic, partition, offset)
        for answer in self.admin.delete_records([at]).values():
            answer.result(30)

    def _produce(self, rows: list[Row]) -> None:
        self.producer.begin_transaction()
        for partition, key, value, time, change in rows:
            headers = diff.headers(time, change)
            self.producer.produce(self.name, value, key, partition=partition, headers=headers)
