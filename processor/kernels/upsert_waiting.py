"""The upserts that wait in the store, because the interval has not closed their times.

Their keys in the store begin with a time, so due upserts come first.  Upserts of plain values are
stored in blocks of neighbours in time, under the rank of the first of them; the rest of a block
that is partly due is stored again.  Each other upsert has a separate entry.
"""

# Decision (upserts wait in blocks): Plain values wait in blocks of neighbours in time; errors,
# old images and messages of several rows have entries of their own. A block is no entry of one
# key, so a rescale takes it apart by keys.

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

import msgspec

from ikebana.arrangements.store import PrefixStore
from ikebana.arrangements.update import Interval
from ikebana.codecs import canonical
from ikebana.processor.base.rows import Partial, Truncate, Upserts, times_of
from ikebana.processor.kernels.layout import OfKeys, ShardOf, packed_time

# The values that upserts of a key carry, and the order in which they apply.
#
# An upsert's value is bytes, None for a tombstone, `Partial` if it lacks columns, or `Bad` if it
# could not be decoded.  `combined` unites two upserts of the same key and time, and `value_after`
# returns the value that follows from an upsert and the value before it.

# Decision (an upsert's state is its value): Most time went to waiting for objects outside of the
# processor's cache: fewer passes and prefetching helped more than less bytecode.


class Bad(NamedTuple):
    """An upsert with a value that could not be decoded, as its error record.

    `good` has the value of the last good upsert before it at the same time; empty if there
    was none.
    """

    record: bytes
    good: "tuple[bytes | Partial | None] | tuple[()]" = ()


UpsertValue = bytes | Bad | Partial | None
SPECIAL = (Bad, Partial)
# No upsert has set the value yet.
NOTHING_SAID = Bad(b"")


# Where an upsert comes from: the rank of its topic among all, its partition and its offset.
MessageRank = tuple[int, int, int]


class UpsertRow(NamedTuple):
    """An upsert of a key with its time and its rank; a key of None is a truncate."""

    time: int
    order: int
    partition: int
    offset: int
    key: bytes | None
    upsert: UpsertValue
    before: int | None = None
    sequence: bytes | None = None


def rows_of(chunk: Upserts | Truncate) -> Iterable[UpsertRow]:
    """Yield the upserts of a chunk one by one."""
    order, partition = chunk.input_order, chunk.partition
    if isinstance(chunk, Truncate):
        yield UpsertRow(chunk.time, order, partition, chunk.offset, None, None)
        return
    for index, (time, offset, key, upsert) in enumerate(
        zip(
            times_of(chunk.times, len(chunk.keys)),
            chunk.offsets,
            chunk.keys,
            values_of(chunk),
            strict=True,
        )
    ):
        said = chunk.before.get(index), chunk.sequences.get(index)
        yield UpsertRow(time, order, partition, offset, key, upsert, *said)


def rank_of(row: UpsertRow) -> tuple[int, int, int, int]:
    """The time of a row, then its order among those of the same time."""
    return row[:4]


def values_of(chunk: Upserts) -> Sequence[UpsertValue]:
    """The values of a chunk's upserts, in their order."""
    if not (chunk.bad or chunk.failed or chunk.partial):
        return chunk.values
    values: list[UpsertValue] = list(chunk.values)
    for index, record in chunk.bad.items():
        values[index] = Bad(record)
    for index, record in chunk.failed.items():
        values[index] = Bad(record, (None,))
    for index, partial in chunk.partial.items():
        values[index] = partial
    return values


def value_after(upsert: UpsertValue, value: bytes | None) -> bytes | None:
    """The value of a key after an upsert, given the value before it."""
    if isinstance(upsert, Bad):
        if not upsert.good:
            return value
        upsert = upsert.good[0]
    if isinstance(upsert, Partial):
        return (
            None
            if value is None
            else canonical.complete_object(upsert.value, value, upsert.absent)
        )
    return upsert


def combined(earlier: UpsertValue, upsert: UpsertValue) -> UpsertValue:
    """Unite an upsert with an earlier one of the same key and time."""
    if isinstance(upsert, Bad):
        if upsert.good:
            return upsert
        # The value of the last good upsert stays.
        return Bad(upsert.record, earlier.good if isinstance(earlier, Bad) else (earlier,))
    if not isinstance(upsert, Partial):
        return upsert
    if isinstance(earlier, Bad):
        return combined(earlier.good[0], upsert) if earlier.good else upsert
    if earlier is None:
        return Bad(upsert.record, (None,))
    if isinstance(earlier, Partial):
        value = canonical.complete_object(upsert.value, earlier.value, upsert.absent)
        both = tuple(name for name in upsert.absent if name in earlier.absent)
        return Partial(value, both, upsert.record)
    return canonical.complete_object(upsert.value, earlier, upsert.absent)


class Waiting(msgspec.Struct, array_like=True):
    """A stored upsert with a time that is not closed yet; a key of None is a truncate."""

    key: bytes | None
    value: bytes | None
    bad: bytes | None
    failed: bool = False
    partial: Partial | None = None
    before: int | None = None
    sequence: bytes | None = None


PlainUpsert = tuple[int, int, int, int, bytes, bytes | None]
"""An upsert of a plain value: its rank in four numbers, its key and its value."""

plain_rank = itemgetter(0, 1, 2, 3)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Waiting).decode
# The rank of a row, and which of its message's rows it is.
_PLACE = struct.Struct(">5Q")
# A block is this byte, with which no other entry begins, and rows in order of their ranks.
_BLOCK_TAG = b"b"
_BLOCK = 256
# Several entries of one place, from shards that became one, are this byte and a list of them.
_SEVERAL_TAG = b"s"
_several_of = msgspec.msgpack.Decoder(list[bytes]).decode
_block_of = msgspec.msgpack.Decoder(list[PlainUpsert]).decode


Waited = Counter[tuple[int, ...]]
"""How many entries a batch has stored, by rank."""


def keep(waiting: PrefixStore, row: UpsertRow, waited: Waited) -> None:
    """Store a row; the rows of a message have one rank, and are counted."""
    upsert = row.upsert
    entry = Waiting(row.key, None, None, before=row.before, sequence=row.sequence)
    if isinstance(upsert, Bad):
        entry.bad, entry.failed = upsert.record, bool(upsert.good)
    elif isinstance(upsert, Partial):
        entry.partial = upsert
    else:
        entry.value = upsert
    waiting.put(_place(rank_of(row), waited), _encode(entry))


def keep_plain(waiting: PrefixStore, rows: Sequence[PlainUpsert], waited: Waited) -> None:
    """Store rows of different messages, sorted by their ranks, in blocks."""
    for at in range(0, len(rows), _BLOCK):
        block = rows[at : at + _BLOCK]
        waiting.put(_free_place(waiting, block[0][:4], waited), _block(block))


def _place(rank: tuple[int, int, int, int], waited: Waited) -> bytes:
    waited[rank] += 1
    return _PLACE.pack(*rank, waited[rank] - 1)


def _free_place(waiting: PrefixStore, rank: tuple[int, int, int, int], waited: Waited) -> bytes:
    """A place without an entry.

    After shards became one, other rows of a message may wait under its rank, in an entry that is
    not due yet.
    """
    place = _place(rank, waited)
    while waiting.get_many([place]) != [None]:
        place = _place(rank, waited)
    return place


def take_due(
    waiting: PrefixStore, interval: Interval, waited: Waited
) -> tuple[list[UpsertRow], list[PlainUpsert]]:
    """Remove the rows with times that the interval closes; return rows, and plain ones."""
    rows: list[UpsertRow] = []
    plain: list[PlainUpsert] = []
    left: list[list[PlainUpsert]] = []
    sizes: dict[bytes, int] = {}
    # Nothing waits for earlier times, but the scan would step over deleted entries.
    for place, entry in waiting.scan(b"", packed_time(interval.lower)):
        time, order, partition, offset, _ = _PLACE.unpack(place)
        # Places are in order of time, so the first one beyond the frontier ends it.
        if time >= interval.upper:
            break
        sizes[place] = len(entry)
        for each in _entries_in(entry):
            if each[:1] == _BLOCK_TAG:
                block = _rows_in(each)
                cut = bisect_left(block, interval.upper, key=_time_of)
                plain += block[:cut]
                left.append(block[cut:])
            else:
                upsert = _decode(each)
                rank = time, order, partition, offset
                said = upsert.before, upsert.sequence
                rows.append(UpsertRow(*rank, upsert.key, _upsert_of(upsert), *said))
    for place, size in sizes.items():
        waiting.delete(place, size)
    for block in left:
        keep_plain(waiting, block, waited)
    return rows, plain


def _upsert_of(upsert: Waiting) -> UpsertValue:
    if upsert.bad is not None:
        return Bad(upsert.bad, (None,) if upsert.failed else ())
    return upsert.value if upsert.partial is None else upsert.partial


def times(waiting: PrefixStore) -> list[int]:
    """The times of the upserts that wait, in order."""
    return sorted(time for each in _times_by_entry(waiting, 0) for time in each)


def count(waiting: PrefixStore, upper: int, most: int) -> int:
    """How many upserts wait for times from `upper` on, counted up to about `most`."""
    number = 0
    for each in _times_by_entry(waiting, upper):
        number += len(each)
        if number >= most:
            break
    return number


def _times_by_entry(waiting: PrefixStore, start: int) -> Iterator[Sequence[int]]:
    for place, entry in waiting.scan(b"", packed_time(start)):
        for each in _entries_in(entry):
            if each[:1] == _BLOCK_TAG:
                yield [row[0] for row in _rows_in(each)]
            else:
                yield [_PLACE.unpack(place)[0]]


def upserts_in(place: bytes, entry: bytes) -> list[tuple[int, bytes]]:
    """The times and the keys of the upserts in an entry."""
    upserts: list[tuple[int, bytes]] = []
    for each in _entries_in(entry):
        if each[:1] == _BLOCK_TAG:
            upserts += [(row[0], row[4]) for row in _rows_in(each)]
        else:
            upserts.append((_PLACE.unpack(place)[0], _key_of(each)))
    return upserts


def _divided(_: bytes, entry: bytes, shard_of: ShardOf) -> dict[int, bytes]:
    """Divide an entry by the shards of its upserts' keys."""
    by_shard: dict[int, bytes] = {}
    for each in _entries_in(entry):
        for shard, part in _one_divided(each, shard_of).items():
            by_shard[shard] = _united(by_shard[shard], part) if shard in by_shard else part
    return by_shard


def _one_divided(entry: bytes, shard_of: ShardOf) -> dict[int, bytes]:
    if entry[:1] != _BLOCK_TAG:
        return {shard_of(_key_of(entry)): entry}
    blocks: dict[int, list[PlainUpsert]] = {}
    for row in _rows_in(entry):
        blocks.setdefault(shard_of(row[4]), []).append(row)
    return {shard: _block(rows) for shard, rows in blocks.items()}


def _united(one: bytes, other: bytes) -> bytes:
    """Unite the entries of two shards at one place."""
    if one[:1] == other[:1] == _BLOCK_TAG:
        return _block(sorted([*_rows_in(one), *_rows_in(other)], key=plain_rank))
    return _SEVERAL_TAG + msgspec.msgpack.encode([*_entries_in(one), *_entries_in(other)])


def _entries_in(entry: bytes) -> list[bytes]:
    return _several_of(memoryview(entry)[1:]) if entry[:1] == _SEVERAL_TAG else [entry]


def _key_of(entry: bytes) -> bytes:
    key = _decode(entry).key
    # A truncate belongs to every shard; no source reads one before its time is closed.
    assert key is not None, "a truncate waits"
    return key


def _rows_in(block: bytes) -> list[PlainUpsert]:
    """The rows of a block, in their order."""
    return _block_of(memoryview(block)[1:])


def _block(rows: Sequence[PlainUpsert]) -> bytes:
    return _BLOCK_TAG + msgspec.msgpack.encode(rows)


def _time_of(row: PlainUpsert) -> int:
    return row[0]


ENTRIES = OfKeys(_divided, _united)
"""Upserts that wait, of several keys in an entry."""
