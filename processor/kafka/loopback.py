"""The exchange topic (`loopback`), which moves updates between shards.

It has one partition for each shard, and no retention.  The updates of a batch are readable when
the batch is committed, and the next batch reads up to the high watermark, because no transaction
of the pipeline is open between two batches.  Records before the oldest batch that may be
replayed are deleted.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ikebana.processor.checkpoint.commits import Marker
from ikebana.processor.kafka import topics
from ikebana.processor.kafka.client import REQUEST_S, enqueue


def produce(producer: Producer, topic: str, shard: int, chunk: bytes) -> None:
    """Add a packed row for a shard to the open transaction."""
    enqueue(producer, topic, key=None, value=chunk, partition=shard)


def ends(admin: AdminClient, topic: str, shards: int) -> dict[int, int]:
    """Read the end offset of each shard's partition."""
    return topics.high_watermarks(admin, {topic: shards})[topic]


class Ends:
    """Caches the end offsets of the topic after a batch.

    One request for each batch is enough, because nothing is written between two batches.
    """

    def __init__(self) -> None:
        self._last: tuple[int, Mapping[int, int]] | None = None

    def after(self, batch: int, ask: Callable[[], Mapping[int, int]]) -> Mapping[int, int]:
        """Return the end offsets after a batch, from `ask` if they are not cached."""
        if self._last is None or self._last[0] != batch:
            self._last = batch, ask()
        return self._last[1]


class Trimming:
    """Deletes records from the topic that no batch will read again."""

    def __init__(self, admin: AdminClient, topic: str, retained: int) -> None:
        self._admin = admin
        self._topic = topic
        self._unread = UnreadHops(retained)

    def after(self, batch: Iterable[Marker]) -> None:
        """Note where a committed batch began to read, and trim up to the oldest retained."""
        due = self._unread.after(batch)
        if not due:
            return
        asked = [TopicPartition(self._topic, partition, at) for partition, at in due.items()]
        try:
            answers = self._admin.delete_records(asked, request_timeout=REQUEST_S)
            for answer in answers.values():
                answer.result()
        except KafkaException:
            # A later batch trims again, up to a later offset.
            return
        self._unread.trimmed(due)


class UnreadHops:
    """Remembers where replayable batches began to read, so that earlier records can be trimmed."""

    def __init__(self, retained: int) -> None:
        self._retained = retained
        self._begins: deque[Mapping[int, int]] = deque()
        self._trimmed: Mapping[int, int] = {}

    def after(self, batch: Iterable[Marker]) -> Mapping[int, int]:
        """Note a committed batch; return the offsets up to which partitions can be trimmed."""
        self._begins.append({marker.shard: marker.hops_from for marker in batch})
        if len(self._begins) <= self._retained:
            return {}
        oldest = self._begins.popleft()
        return {p: at for p, at in oldest.items() if at > self._trimmed.get(p, 0)}

    def trimmed(self, due: Mapping[int, int]) -> None:
        """Note that partitions have been trimmed up to these offsets."""
        self._trimmed = {**self._trimmed, **due}
