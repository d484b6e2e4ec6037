"""Write the demo's input topic with a plain producer."""

from collections.abc import Iterable

from confluent_kafka import Producer

from ikebana.processor.kafka import client, topics


def write(servers: str, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    """Create a topic with one partition, and write records into it in order."""
    settings = {"bootstrap.servers": servers}
    topics.create(client.admin(settings), topic, 1, 1, {})
    producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 50, "log_level": 0})
    for key, value in records:
        client.enqueue(producer, topic, key=key, value=value)
    producer.flush()
