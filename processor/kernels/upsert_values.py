"""The values that upserts of a key carry, and the order in which they apply.

An upsert's value is bytes, None for a tombstone, `Partial` if it lacks columns, or `Bad` if it
could not be decoded.  `combined` unites two upserts of the same key and time, and `value_after`
returns the value that follows from an upsert and the value before it.
"""

# Decision (an upsert's state is its value): Most time went to waiting for objects outside of the
# processor's cache: fewer passes and prefetching helped more than less bytecode.

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ikebana.codecs import canonical
from ikebana.processor.base.rows import Partial, Truncate, Upserts, times_of


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
Source = tuple[int, int, int]


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
        return None if value is None else canonical.completed(upsert.value, value, upsert.absent)
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
        value = canonical.completed(upsert.value, earlier.value, upsert.absent)
        both = tuple(name for name in upsert.absent if name in earlier.absent)
        return Partial(value, both, upsert.record)
    return canonical.completed(upsert.value, earlier, upsert.absent)
