"""Updates by the shards that they go to, in portions that a packed row may have."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter

from ikebana.processor.base.columns import Columns, InColumns, columns_of, in_columns_of
from ikebana.processor.base.placing import shard_of
from ikebana.processor.base.rows import NO_KEY, KeyedUpdate, Updates

try:
    from ikebana.compiled._joins import spread, spread_columns
except ImportError:
    spread = spread_columns = None  # type: ignore[assignment]

MOST_RECORDS = 5_000
MOST_BYTES = 1 << 20
_AT_ONCE = 1_000


def by_shard(
    updates: Iterable[KeyedUpdate], shards: int, keyless: bytes | None = None
) -> Iterator[tuple[int, list[KeyedUpdate]]]:
    """Yield (shard, updates), in the order of a shard's updates.

    A portion has at most `MOST_RECORDS`, and at most about `MOST_BYTES` unless one update is
    longer; about so much of each shard is held.  An update without a key goes to the shard of
    `keyless`, or, if that is None, of its value.
    """
    rest = iter(updates)
    held: list[list[KeyedUpdate]] = [[] for _ in range(shards)]
    size = 0
    while some := list(islice(rest, _AT_ONCE)):
        size += (_spread if spread is None else spread)(some, held, keyless)
        is_much = size >= MOST_BYTES * shards
        for at, of_shard in enumerate(held):
            while len(of_shard) >= MOST_RECORDS or (is_much and of_shard):
                yield from ((at, portion) for portion in _bounded(of_shard[:MOST_RECORDS]))
                del of_shard[:MOST_RECORDS]
        if is_much:
            size = 0
    for at, of_shard in enumerate(held):
        yield from ((at, portion) for portion in _bounded(of_shard))


def columns_by_shard(
    updates: Iterable[KeyedUpdate], shards: int, keyless: bytes
) -> Iterator[tuple[int, Columns]]:
    """The same in columns; updates without a key get the key `keyless`."""
    held = [Columns([], [], [], []) for _ in range(shards)]
    size = 0
    for some in in_columns_of(updates, _AT_ONCE):
        lists = list(map(columns_of, held))
        size += (_spread_columns if spread_columns is None else spread_columns)(
            columns_of(some), lists, keyless
        )
        is_much = size >= MOST_BYTES * shards
        for at, of in enumerate(held):
            while len(of) >= MOST_RECORDS or (is_much and of):
                yield from ((at, portion) for portion in _in_bounds(of.part(0, MOST_RECORDS)))
                held[at] = of = of.part(MOST_RECORDS, len(of))
        if is_much:
            size = 0
    for at, of in enumerate(held):
        yield from ((at, portion) for portion in _in_bounds(of))


def _in_bounds(updates: Columns) -> Iterator[Columns]:
    """Halve updates until they are small enough."""
    count = len(updates)
    size = sum(map(len, updates.values)) + sum(map(len, filter(None, updates.keys)))
    if count > 1 and size > MOST_BYTES:
        yield from _in_bounds(updates.part(0, count // 2))
        yield from _in_bounds(updates.part(count // 2, count))
    elif updates:
        yield updates


def _spread(
    updates: Sequence[KeyedUpdate], held: Sequence[list[KeyedUpdate]], keyless: bytes | None
) -> int:
    """Append updates to the list of the shard of each; return their size."""
    shards = len(held)
    for update in updates:
        if (placed := update[0]) is None:
            placed = update[1] if keyless is None else keyless
        held[shard_of(placed, shards)].append(update)
    return _size(updates)


def _spread_columns(columns: InColumns, held: Sequence[InColumns], keyless: bytes) -> int:
    """Append updates to the columns of the shard of each; return their size."""
    size = 0
    for key, value, time, diff in zip(*columns, strict=True):
        placed = keyless if key is None else key
        keys, values, times, diffs = held[shard_of(placed, len(held))]
        keys.append(placed)
        values.append(value)
        times.append(time)
        diffs.append(diff)
        size += len(placed) + len(value)
    return size


def _bounded(updates: list[KeyedUpdate]) -> Iterator[list[KeyedUpdate]]:
    """Halve updates until they are small enough."""
    if len(updates) > 1 and _size(updates) > MOST_BYTES:
        half = len(updates) // 2
        yield from _bounded(updates[:half])
        yield from _bounded(updates[half:])
    elif updates:
        yield updates


def _size(updates: Sequence[KeyedUpdate]) -> int:
    keys, values = map(itemgetter(0), updates), map(itemgetter(1), updates)
    return sum(map(len, filter(None, keys))) + sum(map(len, values))


def hop_chunks(
    hops: Mapping[str, Collection[KeyedUpdate]], shards: int
) -> Iterator[tuple[int, Updates]]:
    """The updates to each operator as rows for the shards of their keys.

    They go through the exchange topic of the pipeline, which has one partition for each shard,
    as packed rows that the source hands on without decoding, and arrive one micro-batch later.  A
    shard writes them in the transaction of its batch, so they exist if and only if the batch is
    committed.
    """
    for name, updates in hops.items():
        for at, rows in columns_by_shard(updates, shards, NO_KEY):
            yield at, Updates([], *columns_of(rows), inlets=[name], counted=True)
