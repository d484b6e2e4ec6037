"""The `diff` format: topics of updates, and beside them those of progress and of snapshots.

An update is a Kafka record.  Key and value are the key and the value of the data; the headers
`time` and `diff` are ASCII integers.  The value is never null: a retraction has the value that it
retracts.

Topic `<topic>.progress` has one record for each batch, keyed by the batch's number: the times that
it closes.  A reader that has read every partition up to `ends` has exactly the updates of all
times before `upper`.  `lower` is the `upper` of the batch before; `count` is the number of update
records of the batch.

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

import functools
import re
from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

import msgspec

from ikebana.arrangements.update import LARGEST
from ikebana.codecs.errors import DecodeError

VERSION = 1
"""The version of the records of progress and of snapshots."""
# The changelog mode of a topic.  upserts: every key has at most one value, with count 1.
# collection: no count is negative.  changes: sums may be negative by design.
Promise = Literal["upserts", "collection", "changes"]
# The kind of times: milliseconds of a clock, or numbers of records and positions in logs.
Times = Literal["clock", "offset"]
_Struct = TypeVar("_Struct", bound=msgspec.Struct)
UpdateHeaders = list[tuple[str, bytes]]
_INTEGER = re.compile(rb"-?[0-9]{1,19}").fullmatch


def headers(time: int, diff: int) -> UpdateHeaders:
    """Write time and diff as headers.

    >>> headers(7, -1)
    [('time', b'7'), ('diff', b'-1')]
    """
    return [time_header(time), diff_header(diff)]


def time_header(time: int) -> tuple[str, bytes]:
    """Write a time as a header."""
    return "time", b"%d" % time


def diff_header(diff: int) -> tuple[str, bytes]:
    """Write a diff as a header."""
    return "diff", b"%d" % diff


def read_headers(headers: Iterable[tuple[str, bytes | str | None]] | None) -> tuple[int, int]:
    """Read time and diff from headers.

    >>> read_headers([("time", b"7"), ("diff", b"-1")])
    (7, -1)

    Raises:
        DecodeError: one of them is missing or is no integer, the diff is 0, or one of them
            is beyond 64 bits.
    """
    return _time_and_diff(tuple(headers or ()))


def read_time(headers: Iterable[tuple[str, bytes | str | None]] | None) -> int:
    """Read the time from the headers of a message without a diff.  Raises: DecodeError."""
    return _integer(dict(headers or ()), "time")


def _integer(values: dict[str, bytes | str | None], name: str) -> int:
    if name not in values:
        raise DecodeError("diff record", f'header "{name}" is missing')
    value = values[name]
    text = value.encode("ascii", "replace") if isinstance(value, str) else value
    if text is None or (number := _number(text)) is None:
        raise DecodeError("diff record", f'header "{name}" is no integer')
    if not -LARGEST <= number <= LARGEST:
        raise DecodeError("diff record", f'header "{name}" is beyond 64 bits')
    return number


# Neighbours mostly have the same times and diffs.
@functools.lru_cache(10_000)
def _time_and_diff(headers: tuple[tuple[str, bytes | str | None], ...]) -> tuple[int, int]:
    values = dict(headers)
    time, diff = _integer(values, "time"), _integer(values, "diff")
    if diff == 0:
        raise DecodeError("diff record", 'header "diff" is 0')
    return time, diff


def _number(text: bytes) -> int | None:
    # int() alone would also accept spaces, underscores and a plus sign.
    return int(text) if _INTEGER(text) else None


class ProgressRecord(msgspec.Struct, frozen=True):
    """A closed batch of an output; `times` is None if the kind of times is unknown.

    `columns` has the SQL types of the columns of values, by name, as far as they are known.  If
    the batch ends a recovery, the times from `lower` up to `given_up` show the contents of the
    output when its checkpoint was lost; otherwise this is 0.
    """

    checkpoint: str
    pipeline: str
    topic: str
    batch: int
    lower: int
    upper: int
    count: int
    ends: dict[int, int]
    promise: Promise
    version: int = VERSION
    times: Times | None = None
    columns: dict[str, str] = {}
    given_up: int = 0

    def key(self) -> bytes:
        """Encode the Kafka key: the batch's number."""
        return b"%d" % self.batch

    def encode(self) -> bytes:
        """Encode the Kafka value."""
        return msgspec.json.encode(self)


def decode_progress(message: bytes | None) -> ProgressRecord:
    """Decode the Kafka value of a progress record.

    Raises:
        DecodeError: it is no progress record, or has another version.
    """
    return _decode_record(message, ProgressRecord, "progress record")


def _decode_record(message: bytes | None, kind: type[_Struct], what: str) -> _Struct:
    """Decode a JSON record that names its version; errors call it `what`."""
    # The version is checked first, because another version may have any other fields.
    has = _decode(message, _Versioned, what).version
    if has != VERSION:
        raise DecodeError(what, f"version {has} is not {VERSION}")
    return _decode(message, kind, what)


class _Versioned(msgspec.Struct):
    version: int = VERSION


def _decode(message: bytes | None, kind: type[_Struct], what: str) -> _Struct:
    try:
        return msgspec.json.decode(message or b"", type=kind)
    except msgspec.MsgspecError as error:
        # The error would quote a value that the enumeration lacks, which is payload.
        reason = re.sub(r"^Invalid enum value '.*'", "Invalid enum value", str(error), flags=re.S)
        raise DecodeError(what, reason) from None
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} of a string is not UTF-8"
        raise DecodeError(what, reason) from None
    except RecursionError:
        raise DecodeError(what, "it is nested too deeply") from None


def pack_times(times: dict[int, int]) -> list[int]:
    """Pack counts by time as a list: the step from the time before, then the count, and so on.

    Steps are smaller numbers than times, so they take fewer bytes.

    >>> pack_times({1_000: 2, 1_003: 1})
    [1000, 2, 3, 1]
    """
    packed: list[int] = []
    last = 0
    for time, count in sorted(times.items()):
        packed += (time - last, count)
        last = time
    return packed


def add_times(times: dict[int, int], packed: Sequence[int]) -> None:
    """Add counts that `pack_times` has packed to `times`, in place."""
    time = 0
    for step, count in zip(packed[::2], packed[1::2], strict=True):
        time += step
        times[time] = times.get(time, 0) + count


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


def decode_snapshot(message: bytes | None) -> SnapshotRecord:
    """Decode the Kafka value of a snapshot record.

    Raises:
        DecodeError: it is no snapshot record, or has another version.
    """
    return _decode_record(message, SnapshotRecord, "snapshot record")
