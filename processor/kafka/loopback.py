"""The loopback topic: what hops from shard to shard between two micro-batches.

A partition a shard, without retention.  What a batch has written is there when the batch
is committed, and the next one reads up to the high watermark: between two batches no
transaction of the pipeline is open.  What lies before the oldest batch that can be run
again is deleted.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ikebana.processor.kafka import topics
from ikebana.processor.kafka.client import enqueue
from ikebana.processor.kafka.markers import Marker

_REQUEST_S = 10.0


def produce(producer: Producer, topic: str, shard: int, chunk: bytes) -> None:
    """Add a packed row for a shard to the open transaction."""
    enqueue(producer, topic, key=None, value=chunk, partition=shard)


def ends(admin: AdminClient, topic: str, shards: int) -> dict[int, int]:
    """Up to where each shard's partition is written."""
    return topics.high_watermarks(admin, {topic: shards})[topic]


class Trimming:
    """Deletes from the topic what no batch will read again."""

    def __init__(self, admin: AdminClient, topic: str, retained: int) -> None:
        self._admin = admin
        self._topic = topic
        self._retained = retained
        self._begins: deque[Mapping[int, int]] = deque()
        self._trimmed: Mapping[int, int] = {}

    def after(self, batch: Iterable[Marker]) -> None:
        """Note where a committed batch began to read, and trim up to the oldest retained."""
        self._begins.append({marker.shard: marker.hops_from for marker in batch})
        if len(self._begins) <= self._retained:
            return
        oldest = self._begins.popleft()
        due = {p: at for p, at in oldest.items() if at > self._trimmed.get(p, 0)}
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
        self._trimmed = {**self._trimmed, **due}
