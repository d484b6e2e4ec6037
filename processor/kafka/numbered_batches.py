"""Write numbered batches of messages into a topic, each exactly once.


A writer has a name, and a log beside the topic: a compacted topic of one partition.  Its last
record has the last batch that the writer has committed.  A batch and its record are one Kafka
transaction.  If it is not known whether a batch was committed, it is written again: the broker
ends the transaction of an earlier instance, and the log then says whether the batch is there.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec

from ikebana.codecs.upsert_out import OutputMessage
from ikebana.errors import CheckpointError, SourceError
from ikebana.processor.kafka import client, markers, topics
from ikebana.processor.kafka.client import TRANSACTIONS, enqueue
from ikebana.processor.kafka.reader import RangeReader
from ikebana.processor.kafka.transactions import TransactionalProducer

# How long a transaction may take; after a crash, readers wait for the next start, or so long.
_TIMEOUT_S = 300.0
# The brokers' own number of replicas.
_USUAL = -1


class Written(msgspec.Struct, frozen=True):
    """The last batch of a writer: its number, and the number and digest of its messages."""

    batch: int
    messages: int
    digest: str


def log_of(topic: str, writer: str) -> str:
    """Return the name of the topic with a writer's log.

    >>> log_of("orders", "billing")
    'orders.writer-billing'
    """
    return f"{topic}.writer-{writer}"


def digest_of(messages: Sequence[OutputMessage]) -> str:
    """Compute a digest of keys and values that does not depend on their order."""
    total = 0
    for key, value, _ in messages:
        hashed = blake2b(msgspec.msgpack.encode((key, value)), digest_size=16)
        total += int.from_bytes(hashed.digest())
    return f"{total % 2**128:032x}"


def is_written(topic: str, writer: str, last: Written | None, batch: Written) -> bool:
    """Decide whether a batch was committed before, from the last batch of its writer.

    Raises:
        CheckpointError: the batch belongs to another numbering.
    """
    if last is None or batch.batch > last.batch:
        return False
    if batch.batch == last.batch and batch.digest == last.digest:
        return True
    difference = (
        "with other messages" if batch.batch == last.batch else f"and {last.batch} after it"
    )
    raise CheckpointError(
        f'cannot write batch {batch.batch} of writer "{writer}" into "{topic}": batch '
        f"{batch.batch} is there already, {difference}",
        hint="The checkpoint of the query is another one than before, or its rows depend on "
        "chance. Go on with the checkpoint of before, or give the writer another name: all "
        "batches of this checkpoint are then written.",
    )


def write_batch(
    settings: Mapping[str, str],
    topic: str,
    writer: str,
    number: int,
    messages: Sequence[OutputMessage],
) -> bool:
    """Write a batch in one transaction, unless it is there; return whether it was written.

    Raises:
        SourceError: there is no such topic, or the brokers did not take the batch.
        CheckpointError: the numbers are those of another query.
        FencedError: another instance of this writer has taken over.
    """
    client_settings = dict(settings)
    client.reach(client_settings)
    admin = client.admin(client_settings)
    if topic not in topics.describe(admin, [topic]):
        raise SourceError(
            f'cannot write into "{topic}": there is no such topic',
            hint="Create it, with as many partitions as its readers need.",
        )
    log = log_of(topic, writer)
    topics.create(admin, log, 1, _USUAL, markers.TOPIC_SETTINGS)
    producer = TransactionalProducer(client_settings, f"{TRANSACTIONS}{log}", _TIMEOUT_S)
    batch = Written(number, len(messages), digest_of(messages))
    reader = RangeReader(client_settings)
    try:
        end = producer.end_of(log, 0)
        last = markers.last_record(reader, log, 0, Written, end)
    finally:
        reader.close()
    if is_written(topic, writer, last, batch):
        return False
    with producer.transaction() as kafka:
        producer.produce_messages(topic, messages)
        enqueue(kafka, log, key=b"batch", value=msgspec.json.encode(batch), partition=0)
    return True
