"""Which shard a row goes to, and how much each of them gets.

The shard of a key is the CRC-32 of its canonical bytes modulo the number of shards;
`ikebana rescale` relies on it.  Updates go there in portions that a packed row may have.

The load of a shard names no key, only the hashes of the most frequent ones (`hash_of`), which one
can compute for a known key.  Keys are sampled only if a shard gets many records, so a small batch
costs nothing and a large one next to nothing.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Literal
from zlib import crc32

import msgspec

from ikebana.processor.base.rows import (
    NO_KEY,
    Columns,
    Facts,
    InColumns,
    Judged,
    KeyedUpdate,
    Records,
    Updates,
    Upserts,
    columns_of,
    in_columns_of,
)

# Decision (hot keys in a sample): A sketch over all records would find keys that are hot over
# hours and in no batch, which hold nobody up. Hashes are plain SHA-256, so `sha256sum` finds a
# key.


LEAST = 10_000
"""If a shard gets fewer records of an input in a batch, their keys are not sampled."""
_SAMPLE = 1_000
_STEP = 2_654_435_761
# Fewer records are not reported in the commit record.
_LEAST_REPORTED = 500
_DIGITS = 12


class Hot(msgspec.Struct, array_like=True, frozen=True):
    """The load of a shard from an input, or in an operator, and its most frequent key.

    * `records`: `count` records of the input `of`, or updates that came to the operator `of` by an
      exchange; about `most` of them have the key with this `hash`.  Without a hash the keys were
      not sampled.
    * `matches`: the key with this `hash` has met `most` data in lookups of the join `of`; `count`
      is the same.
    """

    kind: Literal["records", "matches"]
    of: str
    count: int
    most: int = 0
    hash: str = ""

    @property
    def share(self) -> float:
        """The share of the most frequent key in all records."""
        return self.most / self.count if self.count else 0.0


def hash_of(key: bytes) -> str:
    """Hash a key: the first digits of its SHA-256.

    >>> hash_of(b'{"id":7}')
    'a3c90e3b7448'
    """
    return hashlib.sha256(key).hexdigest()[:_DIGITS]


def hot_keys(rows: Iterable[Records]) -> list[Hot]:
    """The load and the hottest key of each input, and of each operator after an exchange."""
    chunks: dict[str, list[Sequence[bytes | None]]] = {}
    for row in rows:
        match row:
            case Upserts() | Facts():
                chunks.setdefault(row.input, []).append(row.keys)
            case Updates():
                for name in row.inlets:
                    chunks.setdefault(name, []).append(row.keys)
            case _:
                pass
    return [
        _hottest(of, keys, count)
        for of, keys in chunks.items()
        if (count := sum(map(len, keys))) >= _LEAST_REPORTED
    ]


def _hottest(of: str, chunks: Sequence[Sequence[bytes | None]], count: int) -> Hot:
    if count < LEAST:
        return Hot("records", of, count)
    sample: Counter[bytes | None] = Counter()
    for keys in chunks:
        among = len(keys)
        # Steps of a large prime: with small steps, keys that come in turns would be missed.
        sample.update(keys[at * _STEP % among] for at in range(-(-among * _SAMPLE // count)))
    ((key, hits),) = sample.most_common(1)
    most = count * hits // sample.total()
    return Hot("records", of, count, most, hash_of(NO_KEY if key is None else key))


def added_up(hot: Iterable[Hot]) -> list[Hot]:
    """Add up the loads of shards, or stages of a join, with the hottest key of all.

    >>> one = Hot("records", "orders", 30_000, 20_000, "3fe2")
    >>> added_up([one, Hot("records", "orders", 10_000)])
    [Hot(kind='records', of='orders', count=40000, most=20000, hash='3fe2')]
    """
    by_name: dict[tuple[str, str], Hot] = {}
    for each in hot:
        name = each.kind, each.of
        before = by_name.get(name)
        if before is None:
            by_name[name] = each
            continue
        # A key lies in one shard.
        most = max(before, each, key=lambda hot: hot.most)
        if each.kind == "records":
            most = msgspec.structs.replace(most, count=before.count + each.count)
        by_name[name] = most
    return list(by_name.values())


def shard_of(key: bytes, shards: int) -> int:
    """Compute the shard that keeps `key`."""
    return crc32(key) % shards


def owner_of(shard: int, shards: int) -> Callable[[bytes], bool]:
    """Return a function that says whether this shard keeps a key."""
    return lambda key: shard_of(key, shards) == shard


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """A partition of an input, from offset `start` on, and the times of its messages.

    * `base`: the time of all messages.  With `each`, it is the time of the message at offset
      `start`, and each further offset is one later.
    * If messages have times of their own, `base` and `upper` are the batch's interval, and
      `latest` is the latest accepted time (a later one is too far ahead of the clock).
    * `order`: the rank of the topic among the topics of its input.
    * `partitions`: the number of partitions of the input.
    * `since`: updates of a topic of updates are read from this time on, and earlier ones than
      `base` count at `base`: an edit may add the topic later.  None: from `base` on.
    * `again`: another input reads the messages or has read them, so nothing of them is counted.
    * `reported`: that input has also recorded the errors of messages without a key.
    * `judged`: the messages that did not get their own times when they were first read; None if
      they are read for the first time.
    """

    topic: str
    partition: int
    order: int
    start: int
    base: int
    each: bool
    partitions: int = 1
    upper: int = 0
    latest: int | None = None
    since: int | None = None
    again: bool = False
    reported: bool = False
    judged: tuple[Judged, ...] | None = None

    def times(self, offsets: Sequence[int]) -> list[int]:
        """Compute the times of the messages at these offsets."""
        if not self.each:
            return [self.base] * len(offsets)
        shift = self.base - self.start
        return [shift + offset for offset in offsets]


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


def exchange_chunks(
    exchanges: Mapping[str, Collection[KeyedUpdate]], shards: int
) -> Iterator[tuple[int, Updates]]:
    """The updates to each operator as rows for the shards of their keys.

    They go through the exchange topic of the pipeline, which has one partition for each shard,
    as packed rows that the source hands on without decoding, and arrive one micro-batch later.  A
    shard writes them in the transaction of its batch, so they exist if and only if the batch is
    committed.
    """
    for name, updates in exchanges.items():
        for at, rows in columns_by_shard(updates, shards, NO_KEY):
            yield at, Updates([], *columns_of(rows), inlets=[name], counted=True)
