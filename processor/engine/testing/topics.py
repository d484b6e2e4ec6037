"""Topics in memory, with the progress that pipelines publish for them."""

from collections import Counter, defaultdict
from typing import Any

from ikebana.codecs import canonical, diff
from ikebana.codecs.diff import ProgressRecord, SnapshotRecord, topic_of
from ikebana.processor.checkpoint.inputs import first_offsets
from ikebana.processor.checkpoint.refusal import Refusal
from ikebana.processor.planning.plan import Input
from ikebana.processor.topics.batch_selection import ClosedProgress
from ikebana.processor.topics.messages import Message


class Topics:
    """Topics in memory; several pipelines may read and write the same ones.

    >>> topics = Topics()
    >>> topics.create("orders", partitions=2)
    >>> topics.send("orders", 1, {"product": "tea"}, partition=1)
    >>> topics.ends("orders")
    {0: 0, 1: 1}
    """

    def __init__(self) -> None:
        # None stands for an offset that has no message: the end of a transaction takes one.
        self.messages: defaultdict[str, defaultdict[int, list[Message | None]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self.closed: defaultdict[str, list[ClosedProgress]] = defaultdict(list)
        """The progress of the topics that hold updates in the format `diff`."""
        self.snapshots: dict[str, SnapshotRecord] = {}
        """The last snapshot of each topic that was compacted."""

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic, or add partitions up to this number."""
        for partition in range(partitions):
            self.messages[topic][partition]

    def send(
        self,
        topic: str,
        key: Any,
        value: Any,
        *,
        partition: int = 0,
        headers: diff.UpdateHeaders | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Append a message: bytes are sent as they are, other data as JSON, None as null.

        A value of None is a tombstone.  The `timestamp` is in milliseconds.
        """
        held = self.messages[topic][partition]
        held.append(Message(len(held), _bytes(key), _bytes(value), headers, timestamp))

    def update(
        self, topic: str, key: Any, value: Any, time: int, change: int, *, partition: int = 0
    ) -> None:
        """Append an update in the output format `diff`.

        Readers of the topic see it when `close` has closed its time.
        """
        headers = diff.headers(time, change)
        # In an update None is the value null; tombstones have no meaning there.
        value = canonical.encode(value) if value is None else value
        self.send(topic, key, value, partition=partition, headers=headers)

    def close(self, topic: str, upper: int) -> None:
        """Close all times before `upper` in a topic of updates: no more updates come at these."""
        closed = self.closed[topic]
        lower = closed[-1].record.upper if closed else 0
        ends = self.ends(topic)
        self.publish(
            ProgressRecord("c", topic, topic, len(closed), lower, upper, 0, ends, "changes")
        )

    def publish(self, record: ProgressRecord) -> None:
        """Append a record of progress."""
        closed = self.closed[record.topic]
        closed.append(ClosedProgress(record, len(closed) + 1))

    def last(self, topic: str) -> ProgressRecord | None:
        """The last record of progress of a topic of updates, if there is any."""
        closed = self.closed[topic]
        return closed[-1].record if closed else None

    def compact(self, topic: str) -> None:
        """Compact a topic of updates up to its last closed batch: new runs begin there.

        The updates before are gone for them.
        """
        last, after = self.closed[topic][-1]
        counts: Counter[tuple[bytes | None, bytes]] = Counter()
        for partition, end in last.ends.items():
            for message in self.messages[topic][partition][:end]:
                if message is not None and message.value is not None:
                    _, change = diff.read_headers(message.headers)
                    counts[message.key, message.value] += change
        data = {datum: count for datum, count in counts.items() if count}
        name = topic_of(topic)
        starts = {1: len(self.messages[name][1])}
        for (key, value), count in data.items():
            self.send(name, key, value, partition=1, headers=diff.headers(last.upper - 1, count))
        ends = {1: len(self.messages[name][1])}
        self.snapshots[topic] = SnapshotRecord(last, after - 1, "", starts, ends, len(data), "")

    def end_transaction(self, topic: str, partition: int = 0) -> None:
        """Append the marker that Kafka writes at the end of a transaction; it takes an offset."""
        self.messages[topic][partition].append(None)

    def first(self, source: Input, topic: str) -> dict[int, int]:
        """The offset of each partition at which an input begins to read a topic.

        Raises:
            SourceError: its start names an offset that is not there.
        """
        held, ends = self.messages[topic], self.ends(topic)

        def at(ms: int) -> dict[int, int]:
            later = {
                partition: [
                    message.offset
                    for message in messages
                    if message is not None and (message.timestamp or 0) >= ms
                ]
                for partition, messages in held.items()
            }
            return {partition: offsets[0] for partition, offsets in later.items() if offsets}

        offsets = first_offsets(source, topic, dict.fromkeys(ends, 0), ends, at)
        if isinstance(offsets, Refusal):
            raise offsets.error()
        return offsets

    def ends(self, topic: str) -> dict[int, int]:
        """The end offset of each partition of a topic."""
        return {partition: len(held) for partition, held in self.messages[topic].items()}


def _bytes(data: Any) -> bytes | None:
    return data if data is None or isinstance(data, bytes) else canonical.encode(data)
