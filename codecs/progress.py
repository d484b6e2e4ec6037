"""The progress record: what a reader of a diff topic may rely on, batch by batch.

One record a batch in `<topic>.progress`, keyed by the batch's number.  A reader that
has seen `upper` has, once it has read every partition up to `ends`, exactly the
updates of every time before `upper`.  `lower` is the `upper` of the batch before;
`count` is the number of update records of the batch.
"""

import re
from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

from ikebana.codecs.errors import DecodeError

VERSION = 1
# What a reader may rely on besides.  upserts: every key holds at most one value, once.
# collection: no count is negative.  changes: sums may go below zero by design.
Promise = Literal["upserts", "collection", "changes"]


class ProgressRecord(msgspec.Struct, frozen=True):
    """A closed batch of an output."""

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

    def key(self) -> bytes:
        """The Kafka key: the batch's number."""
        return b"%d" % self.batch

    def encode(self) -> bytes:
        """The Kafka value."""
        return msgspec.json.encode(self)


def decode(message: bytes | None) -> ProgressRecord:
    """Read the Kafka value of a progress record.

    Raises:
        DecodeError: it is none, or one of another version.
    """
    # First the version: of another one, nothing else is known.
    version = _decode(message, _Versioned).version
    if version != VERSION:
        raise DecodeError("progress record", f"version {version} is not {VERSION}")
    return _decode(message, ProgressRecord)


class _Versioned(msgspec.Struct):
    version: int = VERSION


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def _decode(message: bytes | None, kind: type[_Struct]) -> _Struct:
    try:
        return msgspec.json.decode(message or b"", type=kind)
    except msgspec.MsgspecError as error:
        # It would quote a value that is none of an enumeration's.
        reason = re.sub(r"^Invalid enum value '.*'", "Invalid enum value", str(error), flags=re.S)
        raise DecodeError("progress record", reason) from None
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} of a string is not UTF-8"
        raise DecodeError("progress record", reason) from None
    except RecursionError:
        raise DecodeError("progress record", "it is nested too deeply") from None


def pack_times(times: dict[int, int]) -> list[int]:
    """Counts by time as alternating steps of time and counts, which are small numbers."""
    packed: list[int] = []
    last = 0
    for time, count in sorted(times.items()):
        packed += (time - last, count)
        last = time
    return packed


def add_times(times: dict[int, int], packed: Sequence[int]) -> None:
    """Add what `pack_times` has packed."""
    time = 0
    for step, count in zip(packed[::2], packed[1::2], strict=True):
        time += step
        times[time] = times.get(time, 0) + count
