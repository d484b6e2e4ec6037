"""The snapshot record, which commits a snapshot of a diff topic.

Topic `<topic>.snapshot` has snapshots of the collection of a diff topic.  Each snapshot is the
collection as of one time, the last one of a closed batch, as updates of that time in the `diff`
format, in the partitions from 1 on.  Partition 0 has one JSON record for each snapshot, written
after all of it: updates that no record names belong to a snapshot that was never completed.
A reader of a snapshot, and then of the updates of the diff topic from `last.ends` on, has the
collection at every time from the time of the snapshot on.
"""

# Decision (a snapshot's record): It is in a partition and a transaction of its own, and last:
# readers of progress take each record for a batch, and updates need not fit one transaction. Its
# digest is a sum of hashes, of no order, so interleaved partitions can be checked.

import msgspec

from ikebana.codecs.progress import ProgressRecord, decode_record

VERSION = 1


class SnapshotRecord(msgspec.Struct, frozen=True):
    """A complete snapshot.

    * `last`: the progress record of the last batch that the snapshot has.
    * `progress_at`: the offset of that record in the progress topic.
    * `topic_id`: the id of the diff topic, which differs if the topic was recreated.
    * `starts`, `ends`: the offsets of the snapshot in the partitions of the snapshot topic.
    * `count`: the number of its updates; `digest`: their hash, of any order.
    """

    last: ProgressRecord
    progress_at: int
    topic_id: str
    starts: dict[int, int]
    ends: dict[int, int]
    count: int
    digest: str
    version: int = VERSION

    @property
    def time(self) -> int:
        """The time of all updates of the snapshot."""
        return self.last.upper - 1

    def encode(self) -> bytes:
        """Encode the Kafka value."""
        return msgspec.json.encode(self)

    def closing(self) -> ProgressRecord:
        """Return a progress record that closes the snapshot: a batch of its time alone.

        The updates of the snapshot come before this batch, which has no updates itself.
        """
        return msgspec.structs.replace(self.last, lower=self.time, count=0)


def topic_of(topic: str) -> str:
    """Return the name of the topic that has the snapshots of a diff topic."""
    return topic + ".snapshot"


def decode(message: bytes | None) -> SnapshotRecord:
    """Decode the Kafka value of a snapshot record.

    Raises:
        DecodeError: it is no snapshot record, or has another version.
    """
    return decode_record(message, SnapshotRecord, "snapshot record", VERSION)
