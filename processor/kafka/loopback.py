"""The loopback topic, through which updates move between shards from batch to batch.

A partition a shard, without retention.  What a batch has written is there when the batch
is committed, and the next one reads up to the high watermark: between two batches no
transaction of the pipeline is open.  What lies before the oldest batch that can be run
again is deleted.
"""

from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ikebana.processor.deciding.commits import Marker
from ikebana.processor.deciding.trimming import Unread
from ikebana.processor.kafka import topics
from ikebana.processor.kafka.client import enqueue

_REQUEST_S = 10.0


def produce(producer: Producer, topic: str, shard: int, chunk: bytes) -> None:
    """Add a packed row for a shard to the open transaction."""
    enqueue(producer, topic, key=None, value=chunk, partition=shard)


def ends(admin: AdminClient, topic: str, shards: int) -> dict[int, int]:
    """Up to where each shard's partition is written."""
    return topics.high_watermarks(admin, {topic: shards})[topic]


class Ends:
    """Up to where the topic is written after a batch, which is asked for once for each.

    Nothing is written to it between two batches.
    """

    def __init__(self) -> None:
        self._known: tuple[int, Mapping[int, int]] | None = None

    def after(self, batch: int, ask: Callable[[], Mapping[int, int]]) -> Mapping[int, int]:
        """Up to where each shard's partition is written after a batch, as `ask` says."""
        if self._known is None or self._known[0] != batch:
            self._known = batch, ask()
        return self._known[1]


class Trimming:
    """Deletes records from the topic that no batch will read again."""

    def __init__(self, admin: AdminClient, topic: str, retained: int) -> None:
        self._admin = admin
        self._topic = topic
        self._unread = Unread(retained)

    def after(self, batch: Iterable[Marker]) -> None:
        """Note where a committed batch began to read, and trim up to the oldest retained."""
        due = self._unread.after(batch)
        if not due:
            return
        asked = [TopicPartition(self._topic, partition, at) for partition, at in due.items()]
        try:
            answers = self._admin.delete_records(asked, request_timeout=_REQUEST_S)
            for answer in answers.values():
                answer.result()
        except KafkaException:
            # Nothing depends on it: a later batch tries again, from further on.
            return
        self._unread.trimmed(due)
