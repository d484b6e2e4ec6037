"""The demo's topics: written with a plain producer, read with a plain reader."""

from collections.abc import Iterable

from confluent_kafka import Producer

from ikebana.arrangements.update import Update
from ikebana.codecs import diff
from ikebana.codecs.progress import ProgressRecord
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.progress_topic import last_progress
from ikebana.processor.kafka.reader import Range, Reader
from ikebana.processor.plan import Output

Pair = tuple[bytes, bytes]


def write(servers: str, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    """Make a topic of one partition and write records into it, in order."""
    settings = {"bootstrap.servers": servers}
    topics.create(client.admin(settings), topic, 1, 1, {})
    producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 50, "log_level": 0})
    for key, value in records:
        client.enqueue(producer, topic, key=key, value=value)
    producer.flush()


def updates(servers: str, output: Output) -> tuple[list[Update[Pair]], ProgressRecord]:
    """All updates of closed times, and the last progress record."""
    reader = Reader({"bootstrap.servers": servers})
    last = last_progress(reader, output.progress_topic)
    assert last is not None, f"{output.progress_topic} is empty"
    ranges = [Range(output.topic, p, 0, end) for p, end in last.ends.items()]
    found = []
    for _, messages in reader.read(ranges):
        for message in messages:
            time, change = diff.read_headers(message.headers())
            found.append(Update((message.key() or b"", message.value()), time, change))
    reader.close()
    return found, last
