"""The upserts that wait in the store, because the interval has not closed their times.

Their keys in the store begin with the time, so those that are due come first.
"""

import struct

import msgspec

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Part
from ikebana.processor.kernels.upsert_values import Bad, Row, UpsertValue, rank_of
from ikebana.processor.rows.rows import Partial


class Waiting(msgspec.Struct, array_like=True):
    """An upsert whose time is not closed yet, as it is stored; a key of None is a truncate."""

    key: bytes | None
    value: bytes | None
    bad: bytes | None
    failed: bool = False
    partial: Partial | None = None
    before: int | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Waiting).decode
# The rank of a row, and which of its message's rows it is.
_PLACE = struct.Struct(">5Q")


def keep(waiting: Part, row: Row, index: int) -> None:
    """Store a row, the `index`-th of those of its message that wait."""
    upsert = row.upsert
    entry = Waiting(row.key, None, None, before=row.before)
    if isinstance(upsert, Bad):
        entry.bad, entry.failed = upsert.record, bool(upsert.good)
    elif isinstance(upsert, Partial):
        entry.partial = upsert
    else:
        entry.value = upsert
    waiting.put(_PLACE.pack(*rank_of(row), index), _encode(entry))


def packed(time: int) -> bytes:
    """A time as bytes that sort as times do."""
    return time.to_bytes(8, "big")


def take_due(waiting: Part, interval: Interval) -> list[Row]:
    """Take the rows out of the store whose time the interval has closed."""
    rows: list[Row] = []
    taken: dict[bytes, int] = {}
    # Nothing waits for earlier times, but what did may still lie in the way.
    for place, entry in waiting.scan(b"", packed(interval.lower)):
        time, order, partition, offset, _ = _PLACE.unpack(place)
        # Places are in order of time, so the first one beyond the frontier ends it.
        if time >= interval.upper:
            break
        found = _decode(entry)
        upsert: UpsertValue = found.value
        if found.bad is not None:
            upsert = Bad(found.bad, (None,) if found.failed else ())
        elif found.partial is not None:
            upsert = found.partial
        rows.append(Row(time, order, partition, offset, found.key, upsert, found.before))
        taken[place] = len(entry)
    for place, size in taken.items():
        waiting.delete(place, size)
    return rows
