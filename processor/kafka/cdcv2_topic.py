"""Read a CDCv2 topic once, from its beginning to its current end."""

from collections.abc import Iterator, Mapping

from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import fact_codec
from ikebana.errors import SourceError
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.reader import Range, Reader
from ikebana.processor.verifying.cdcv2_reader import Cdcv2Reader, Published


def published(settings: Mapping[str, str], topic: str, form: str) -> Iterator[Published]:
    """Yield complete times in order, up to the time that progress covers now.

    Raises:
        SourceError: the topic does not exist, or records at its beginning were deleted, or it
            has messages in another format.
        ContradictionError: two of its facts contradict each other.
    """
    admin = client.admin(settings)
    found = topics.describe(admin, [topic])
    if topic not in found:
        raise SourceError(
            f'cannot read topic "{topic}": it does not exist',
            hint="Check its name and --bootstrap-servers.",
        )
    partitions = {topic: found[topic].partitions}
    begins, ends = topics.beginnings(admin, partitions), topics.ends(admin, partitions)
    for partition, begin in sorted(begins[topic].items()):
        if begin > 0:
            raise SourceError(
                f'cannot accumulate "{topic}": the beginning of {topic}[{partition}] was deleted',
                hint="CDCv2 topics need retention.ms=-1 and retention.bytes=-1.",
            )
    ranges = [Range(topic, partition, 0, end) for partition, end in ends[topic].items()]
    reader, facts, decode = Reader(settings), Cdcv2Reader(), fact_codec(form).decode
    try:
        for at, messages in reader.read(ranges):
            for message in messages:
                try:
                    facts.feed(decode(message.value()))
                except DecodeError as error:
                    raise SourceError(
                        f"cannot read {topic}[{at.partition}]@{message.offset()}: {error.reason}",
                        hint=f"Is it a topic of {form}? --format says what to expect.",
                    ) from None
            yield from facts.take()
    finally:
        reader.close()
