"""Read single records for people: at a place, or some of the earliest and newest of a topic.

The time of each read is bounded: a record may have been deleted.
"""

import threading
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Message as KafkaMessage

from ikebana.errors import SourceError
from ikebana.processor.authoring.proposing.formats import Sample
from ikebana.processor.base.noted import Place
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.reader import Range, RangeReader, timestamp_of
from ikebana.processor.topics.messages import Message

_PARTITIONS = 8
_EACH_END = 50
# Messages may be large, and a run that looks at a few keeps its memory for other things.
_FEW = 10
_FEW_PARTITIONS = 3
_PATIENCE_S = 10.0


class Record(NamedTuple):
    """The key and the value of a record, as they are in Kafka."""

    key: bytes | None
    value: bytes | None


class Records:
    """Reads records for several threads, one after the other, with one consumer."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._reader: RangeReader | None = None
        self._lock = threading.Lock()

    def at(self, place: Place) -> Record | None:
        """Read the record at a place; None if it has been deleted.

        Raises: AwayError, if the brokers do not answer.
        """
        with self._lock:
            if self._reader is None:
                self._reader = RangeReader(self._settings)
            return record_at(self._reader, place)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None


def record_at(reader: RangeReader, place: Place) -> Record | None:
    """Read the record at a place; None if it, or its topic, has been deleted."""
    topic, partition, offset = place
    try:
        low, high = reader.watermarks(topic, partition)
        if not low <= offset < high:
            return None
        single = Range(topic, partition, offset, offset + 1)
        for _, messages in reader.read([single], _PATIENCE_S):
            for message in messages:
                return Record(message.key(), message.value())
    except SourceError:
        return None
    return None


def sampled(settings: Mapping[str, str], topic: str) -> list[Sample]:
    """Read the first and the last messages of the first partitions that have any.

    Raises:
        SourceError: there is no such topic, or its messages did not come in time.
    """
    return [
        Sample(m.key(), m.value(), tuple(m.headers() or ()))
        for m in _read(settings, topic, _EACH_END, _EACH_END)
    ]


def newest(settings: Mapping[str, str], topic: str) -> list[Message]:
    """Read the last messages of the first partitions that have any.

    Raises:
        SourceError: there is no such topic, or its messages did not come in time.
    """
    return _messages(settings, topic, 0, _EACH_END)


def some(settings: Mapping[str, str], topic: str) -> list[Message]:
    """Read a few of the first and last messages of a few partitions that have any.

    Raises:
        SourceError: there is no such topic, or its messages did not come in time.
    """
    return _messages(settings, topic, _FEW, _FEW, _FEW_PARTITIONS)


def _messages(
    settings: Mapping[str, str], topic: str, first: int, last: int, partitions: int = _PARTITIONS
) -> list[Message]:
    return [
        Message(m.offset(), m.key(), m.value(), m.headers(), timestamp_of(m))
        for m in _read(settings, topic, first, last, partitions)
    ]


def _read(
    settings: Mapping[str, str], topic: str, first: int, last: int, most: int = _PARTITIONS
) -> list[KafkaMessage]:
    """Read messages of the first partitions that have any, `most` of them."""
    admin = client.admin(settings)
    described = topics.describe(admin, [topic])
    if topic not in described:
        raise SourceError(
            f'there is no topic "{topic}" at {settings["bootstrap.servers"]}',
            hint="Name one with --topic, and its brokers with --brokers.",
        )
    partitions = {topic: described[topic].partitions}
    begins, ends = (
        topics.beginnings(admin, partitions)[topic],
        topics.ends(admin, partitions)[topic],
    )
    ranges = []
    for partition in [p for p, end in sorted(ends.items()) if begins[p] < end][:most]:
        low, high = begins[partition], ends[partition]
        middle = min(low + first, high)
        ranges.append(Range(topic, partition, low, middle))
        ranges.append(Range(topic, partition, max(middle, high - last), high))
    reader = RangeReader(settings)
    try:
        # A reader can read only one range of a partition at a time.
        return [
            message
            for some in (ranges[::2], ranges[1::2])
            for _, messages in reader.read([r for r in some if r.start < r.end], _PATIENCE_S)
            for message in messages
        ]
    finally:
        reader.close()
