"""Commit records, called markers in the code: a shard's last committed batch.

They are not Kafka's own transaction markers.  Each shard has one partition of the markers topic,
whose last record is authoritative: it has the batch that the shard last committed to Kafka, the
counts of the batch, and its manifest.  It is written in the same transaction as the batch's
updates.  A replay adopts it instead of computing the batch again, because the input may have been
compacted meanwhile.  Partition 0 belongs to the driver, and its last record is the driver's
lease.  The topic is compacted and has no retention, so markers outlast any downtime.
"""

from typing import TypeVar

import msgspec
from confluent_kafka import Message, Producer

from ikebana.errors import CheckpointError
from ikebana.processor.checkpoint.commits import Lease, Marker
from ikebana.processor.kafka.client import TRANSACTIONS, enqueue
from ikebana.processor.kafka.reader import Range, RangeReader

TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.5",
}
Record = TypeVar("Record", bound=msgspec.Struct)


def driver_id(checkpoint: str) -> str:
    """Return the transactional id of the driver; its holder has the lease."""
    return f"{TRANSACTIONS}{checkpoint}-driver"


def task_id(checkpoint: str, shard: int) -> str:
    """Return the transactional id of a shard's task."""
    return f"{TRANSACTIONS}{checkpoint}-{shard}"


def trial_id(checkpoint: str) -> str:
    """Return an unused transactional id, with which `preflight` tests the right to use them."""
    return f"{TRANSACTIONS}{checkpoint}-trial"


def partition_of(shard: int) -> int:
    """Return the partition of a shard's markers; partition 0 belongs to the driver."""
    return shard + 1


def shards_of(partitions: int) -> int:
    """Return the number of shards for which a topic with so many partitions was created."""
    return partitions - 1


def last_marker(
    reader: RangeReader, topic: str, shard: int, end: int | None = None
) -> Marker | None:
    """Read the last committed marker of a shard; for `end` see `last_record`."""
    return last_record(reader, topic, partition_of(shard), Marker, end)


def last_markers(reader: RangeReader, topic: str, shards: int) -> list[Marker]:
    """Read the last committed markers of all shards at once."""
    partitions = [partition_of(shard) for shard in range(shards)]
    # A marker and the end of its transaction are two offsets.
    ranges = [
        Range(topic, partition, max(low, high - 4), high)
        for partition, (low, high) in zip(
            partitions, reader.all_watermarks(topic, partitions), strict=True
        )
    ]
    last = {at: messages[-1] for at, messages in reader.read(ranges)}
    markers: list[Marker] = []
    for shard, at in enumerate(ranges):
        if at in last:
            markers.append(_decoded(last[at], Marker))
        elif at.start < at.end and (marker := last_marker(reader, topic, shard)) is not None:
            # Aborted records after it hid it from the first reading.
            markers.append(marker)
    return markers


def size_of(reader: RangeReader, topic: str, shards: int, batch: int) -> int:
    """Read how many bytes the shards got in a batch, as far as it is their last one."""
    last = last_markers(reader, topic, shards)
    return sum(marker.size for marker in last if marker.batch == batch)


def last_lease(reader: RangeReader, topic: str, end: int | None = None) -> Lease | None:
    """Read the last committed lease; for `end` see `last_record`."""
    return last_record(reader, topic, 0, Lease, end)


def last_record(
    reader: RangeReader, topic: str, partition: int, kind: type[Record], end: int | None = None
) -> Record | None:
    """Read and decode the last committed record of a partition.

    A caller that has fenced others, and acts on the record, has to pass an `end` from after that
    (`TransactionalProducer.end_of`): the end that readers see may be old.
    """
    message = last_message(reader, topic, partition, end)
    return None if message is None else _decoded(message, kind)


def _decoded(message: Message, kind: type[Record]) -> Record:
    try:
        return msgspec.json.decode(message.value() or b"", type=kind)
    except msgspec.MsgspecError as error:
        raise CheckpointError(
            f"cannot read {message.topic()}[{message.partition()}]@{message.offset()}: {error}",
            hint="Another version of ikebana or another program wrote this record. Use the "
            "version that last ran the pipeline, and let nobody else write to the topic.",
        ) from None


def last_message(
    reader: RangeReader, topic: str, partition: int, end: int | None = None
) -> Message | None:
    """Read the last committed message of a partition, searching backwards from its end.

    The cost does not grow with the topic.  The caller has just fenced the writers of the
    partition, so no transaction is open before the high watermark.
    """
    low, high = reader.watermarks(topic, partition)
    messages = reader.tail(topic, partition, low, high if end is None else end)
    return messages[-1] if messages else None


def produce_marker(producer: Producer, topic: str, marker: Marker) -> None:
    """Add a marker to the open transaction."""
    enqueue(
        producer,
        topic,
        key=b"shard-%d" % marker.shard,
        value=msgspec.json.encode(marker),
        partition=partition_of(marker.shard),
    )


def produce_lease(producer: Producer, topic: str, lease: Lease) -> None:
    """Add a lease to the open transaction."""
    enqueue(producer, topic, key=b"driver", value=msgspec.json.encode(lease), partition=0)
