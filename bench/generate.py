"""The benchmark's input: updates over keys as a topic of JSON upserts, always the same.

Half of the picks of a key are uniform, half favour low keys; 5% are tombstones, 5%
repeat the key's value.  Values are about 120 bytes.
"""

import json
import random
from collections.abc import Iterator

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic


def upserts(records: int, keys: int, seed: int = 1) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield (key, value or None)."""
    draw = random.Random(seed)
    current: dict[int, bytes | None] = {}
    for at in range(records):
        uniform = draw.random() < 0.5
        key = int(keys * (draw.random() if uniform else draw.random() ** 4))
        kind = draw.random()
        value: bytes | None
        if kind < 0.05:
            value = None
        elif kind < 0.10 and current.get(key) is not None:
            value = current[key]
        else:
            value = _value(key, at, draw)
        current[key] = value
        yield b'{"id": %d}' % key, value


def distinct(keys: int, seed: int = 1) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield one upsert for each key."""
    draw = random.Random(seed)
    for key in range(keys):
        yield b'{"id": %d}' % key, _value(key, key, draw)


def _value(key: int, at: int, draw: random.Random) -> bytes:
    return json.dumps(
        {
            "id": key,
            "name": f"customer-{key:08d}-{draw.randrange(1 << 40):010x}-padding-padding-pad",
            "amount": draw.randrange(10_000_000) / 100,
            "updated": 1_700_000_000_000 + at,
        }
    ).encode()


def make_topic(servers: str, topic: str, partitions: int = 4) -> None:
    """Make a topic, whose records stay, however old the times are that they carry."""
    admin = AdminClient({"bootstrap.servers": servers})
    new = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
    admin.create_topics([new])[topic].result()


def fill(servers: str, topic: str, records: Iterator[tuple[bytes, bytes | None]]) -> None:
    """Write records into a topic."""
    to = producer(servers)
    for key, value in records:
        produce(to, topic, key, value)
    assert to.flush(60) == 0


def producer(servers: str, **settings: object) -> Producer:
    """A producer that puts the records of a key into one partition, in order."""
    return Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 50,
            "batch.size": 1 << 18,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 500_000,
            **settings,
        }
    )


def produce(
    to: Producer, topic: str, key: bytes, value: bytes | None, partition: int = -1
) -> None:
    """Hand a record on, as fast as the broker takes them."""
    while True:
        try:
            to.produce(topic, value, key, partition)
        except BufferError:
            to.poll(0.1)
        else:
            to.poll(0)
            return
