"""The progress record: for each batch of a diff topic, the times that it closes.

Topic `<topic>.progress` has one record for each batch, keyed by the batch's number.  A reader
that has read every partition up to `ends` has exactly the updates of all times before `upper`.
`lower` is the `upper` of the batch before; `count` is the number of update records of the batch.
"""

import re
from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

from ikebana.codecs.errors import DecodeError

VERSION = 1
# The changelog mode of a topic.  upserts: every key has at most one value, with count 1.
# collection: no count is negative.  changes: sums may be negative by design.
Promise = Literal["upserts", "collection", "changes"]
# The kind of times: milliseconds of a clock, or numbers of records and positions in logs.
Times = Literal["clock", "offset"]
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


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


def decode(message: bytes | None) -> ProgressRecord:
    """Decode the Kafka value of a progress record.

    Raises:
        DecodeError: it is no progress record, or has another version.
    """
    return decode_record(message, ProgressRecord, "progress record", VERSION)


def decode_record(message: bytes | None, kind: type[_Struct], what: str, version: int) -> _Struct:
    """Decode a JSON record that names its version; errors call it `what`.

    Raises:
        DecodeError: it is no such record, or has another version.
    """
    # The version is checked first, because another version may have any other fields.
    has = _decode(message, _Versioned, what).version
    if has != version:
        raise DecodeError(what, f"version {has} is not {version}")
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
