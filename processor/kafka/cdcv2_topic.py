"""Read a CDCv2 topic from its beginning, or from a place that an earlier reader has left.

Facts of a time may lie before facts of earlier times.  So reading can go on only at a place
where all facts before it were yielded.  A pipeline publishes the progress of a batch after its
updates, so there is such a place after each batch.
"""

from collections.abc import Iterator, Mapping

import msgspec

from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import fact_codec
from ikebana.errors import SourceError
from ikebana.processor.base.diff_reader import Cdcv2Reader, Published
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.read_topics import ReadTopics
from ikebana.processor.kafka.reader import Range, RangeReader


class FactPlace(msgspec.Struct, frozen=True):
    """A place in a topic: all times before `upper` were read, with all facts before `offsets`."""

    topic_id: str
    upper: int
    offsets: dict[int, int]


class Cdcv2Topic:
    """One pass over a CDCv2 topic.

    Raises:
        SourceError: the topic does not exist, or was deleted, or records that are needed were.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        topic: str,
        form: str,
        place: FactPlace | None = None,
    ) -> None:
        self.topic = topic
        self._form = form
        self._decode = fact_codec(form).decode
        self._topics = ReadTopics(client.admin(settings), topic)
        described = self._topics.described(topic)
        if topic not in described:
            raise SourceError(
                f'cannot read topic "{topic}": it does not exist',
                hint="Check its name and --bootstrap-servers; "
                "the first run of a pipeline makes its topics.",
            )
        self.topic_id = described[topic].id
        if place is None:
            place = FactPlace(self.topic_id, 0, {})
        self.place = place
        """The last place from which reading can go on without missing a fact."""
        self._facts = Cdcv2Reader(place.upper)
        self._positions = dict(place.offsets)
        for partition, begin in sorted(self._topics.offsets(topics.beginnings, topic).items()):
            if begin > self._positions.get(partition, 0):
                raise SourceError(
                    f'cannot accumulate "{topic}": the beginning of {topic}[{partition}] was '
                    "deleted",
                    hint="CDCv2 topics need retention.ms=-1 and retention.bytes=-1.",
                )
        self._reader = RangeReader(settings)

    def published(self) -> Iterator[list[Published]]:
        """Yield complete times in order, up to the time that progress covers now.

        `place` is then after all yielded times, or before some of them.

        Raises:
            SourceError: the topic has messages in another format, or was deleted.
            ContradictionError: two of its facts contradict each other.
        """
        ends = self._topics.offsets(topics.ends, self.topic)
        ranges = [
            Range(self.topic, partition, self._positions.get(partition, 0), end)
            for partition, end in ends.items()
        ]
        for at, messages in self._reader.read(ranges):
            for message in messages:
                try:
                    self._facts.feed(self._decode(message.value()))
                except DecodeError as error:
                    raise SourceError(
                        f"cannot read {self.topic}[{at.partition}]@{message.offset()}: "
                        f"{error.reason}",
                        hint=f"Is it a topic of {self._form}? --format says what to expect.",
                    ) from None
            self._positions[at.partition] = messages[-1].offset() + 1
            if complete := self._facts.take():
                if self._facts.is_level:
                    self.place = FactPlace(self.topic_id, self._facts.upper, dict(self._positions))
                yield complete
        self._positions |= {p: max(end, self._positions.get(p, 0)) for p, end in ends.items()}

    def behind(self) -> int:
        """Count the offsets that were not read yet."""
        ends = self._topics.offsets(topics.ends, self.topic)
        return sum(max(0, end - self._positions.get(p, 0)) for p, end in ends.items())

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()


def published(settings: Mapping[str, str], topic: str, form: str) -> Iterator[Published]:
    """Yield the complete times of a topic once, up to the time that progress covers now.

    Raises:
        SourceError: the topic does not exist, or records at its beginning were deleted, or it
            has messages in another format.
        ContradictionError: two of its facts contradict each other.
    """
    reading = Cdcv2Topic(settings, topic, form)
    try:
        for times in reading.published():
            yield from times
    finally:
        reading.close()
