"""Read some of the earliest and newest messages of a topic, in bounded time."""

from collections.abc import Mapping

from ikebana.errors import SourceError
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.reader import Range, Reader
from ikebana.processor.proposing.formats import Sample

_PARTITIONS = 8
_EACH_END = 50
_PATIENCE_S = 10.0


def sampled(settings: Mapping[str, str], topic: str) -> list[Sample]:
    """Read the first and the last messages of the first partitions of a topic.

    Raises:
        SourceError: there is no such topic, or its messages did not come in time.
    """
    return _sampled(settings, topic, _EACH_END)


def newest(settings: Mapping[str, str], topic: str) -> list[Sample]:
    """Read the last messages of the first partitions of a topic.

    Raises:
        SourceError: there is no such topic, or its messages did not come in time.
    """
    return _sampled(settings, topic, 0)


def _sampled(settings: Mapping[str, str], topic: str, first: int) -> list[Sample]:
    described = topics.describe(client.admin(settings), [topic]).get(topic)
    if described is None:
        raise SourceError(
            f'there is no topic "{topic}" at {settings["bootstrap.servers"]}',
            hint="Name one with --topic, and its brokers with --brokers.",
        )
    reader = Reader(settings)
    try:
        ranges = []
        for partition in range(min(described.partitions, _PARTITIONS)):
            low, high = reader.watermarks(topic, partition)
            middle = min(low + first, high)
            ranges.append(Range(topic, partition, low, middle))
            ranges.append(Range(topic, partition, max(middle, high - _EACH_END), high))
        # A reader can read only one range of a partition at a time.
        return [
            Sample(m.key(), m.value(), tuple(m.headers() or ()))
            for some in (ranges[::2], ranges[1::2])
            for _, messages in reader.read([r for r in some if r.start < r.end], _PATIENCE_S)
            for m in messages
        ]
    finally:
        reader.close()
