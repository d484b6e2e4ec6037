"""Publish and read the progress of outputs."""

from collections.abc import Collection, Iterable

from confluent_kafka.admin import AdminClient

from ikebana.codecs.progress import ProgressRecord
from ikebana.errors import CheckpointError
from ikebana.processor.batch.formatting import progress_messages
from ikebana.processor.deciding.commits import Marker
from ikebana.processor.deciding.publishing import closings
from ikebana.processor.kafka import topics
from ikebana.processor.kafka.client import enqueue
from ikebana.processor.kafka.markers import last_message
from ikebana.processor.kafka.progress_record import progress_record
from ikebana.processor.kafka.reader import Reader
from ikebana.processor.kafka.transactions import TransactionalProducer
from ikebana.processor.planning.plan import Plan


def last_progress(reader: Reader, topic: str) -> ProgressRecord | None:
    """Read the last progress record of a topic; None if there is none, or none is left."""
    message = last_message(reader, topic, 0)
    return None if message is None else progress_record(message, CheckpointError)


def publish(
    plan: Plan,
    lease: TransactionalProducer,
    admin: AdminClient,
    found: Iterable[Marker],
    new: Collection[str] = (),
    begin: int = 0,
) -> list[ProgressRecord]:
    """Publish the progress of a batch, from its markers, for all outputs in one transaction.

    `new` outputs have had no progress before, and begin at the time `begin`.  The end offsets
    are high watermarks taken after the batch's last commit returned: all of its updates lie
    before them.
    """
    described = topics.describe(admin, [output.topic for output in plan.published])
    partitions = {name: topic.partitions for name, topic in described.items()}
    batch = closings(plan, list(found), topics.high_watermarks(admin, partitions), new, begin)
    with lease.transaction() as producer:
        for output, record, times in batch:
            enqueue(producer, output.progress_topic, key=record.key(), value=record.encode())
            for message in progress_messages(output, record.lower, record.upper, times):
                enqueue(producer, output.topic, value=message)
    return [closing.record for closing in batch]
