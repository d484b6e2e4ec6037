"""Publishing and reading the progress of outputs."""

from collections.abc import Collection, Iterable

from confluent_kafka.admin import AdminClient

from ikebana.arrangements.errors import CheckpointError
from ikebana.codecs.progress import ProgressRecord, add_times
from ikebana.processor.batch.formatting import progress_messages
from ikebana.processor.kafka import topics
from ikebana.processor.kafka.client import enqueue
from ikebana.processor.kafka.markers import Marker, last_message
from ikebana.processor.kafka.progress_record import progress_record
from ikebana.processor.kafka.reader import Reader
from ikebana.processor.kafka.transactions import Transactions
from ikebana.processor.planning.plan import Plan


def last_progress(reader: Reader, topic: str) -> ProgressRecord | None:
    """The last progress record of a topic; None while there is none (any more)."""
    message = last_message(reader, topic, 0)
    return None if message is None else progress_record(message, CheckpointError)


def publish(
    plan: Plan,
    lease: Transactions,
    admin: AdminClient,
    found: Iterable[Marker],
    new: Collection[str] = (),
) -> list[ProgressRecord]:
    """Publish a batch, from its markers alone, for all outputs in one transaction.

    Those of `new` outputs begin at 0, wherever their operators do: what is before that is
    closed, and empty.

    The end offsets are high watermarks taken after the batch's last commit returned:
    all of its updates lie before them.
    """
    batch = list(found)
    first = batch[0]
    partitions = {
        name: topic.partitions
        for name, topic in topics.describe(admin, [o.topic for o in plan.published]).items()
    }
    ends = topics.high_watermarks(admin, partitions)
    records = [
        ProgressRecord(
            checkpoint=first.checkpoint,
            pipeline=plan.name,
            topic=output.topic,
            batch=first.batch,
            lower=0 if output.name in new else first.intervals[output.name][0],
            upper=first.intervals[output.name][1],
            count=sum(marker.counts.get(output.name, 0) for marker in batch),
            ends=ends[output.topic],
            promise=plan.promise(output),
        )
        for output in plan.published
    ]
    with lease.transaction() as producer:
        for output, record in zip(plan.published, records, strict=True):
            enqueue(producer, output.progress_topic, key=record.key(), value=record.encode())
            times: dict[int, int] = {}
            for marker in batch:
                add_times(times, marker.times.get(output.name, ()))
            for message in progress_messages(output, record.lower, record.upper, times):
                enqueue(producer, output.topic, value=message)
    return records
