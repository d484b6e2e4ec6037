"""Hops: exchange updates between shards, so that they arrive one micro-batch later.

The updates go through the exchange topic of the pipeline, which has one partition for each
shard, as packed rows that the source hands on without decoding.  A shard writes them in the
transaction of its batch, so they exist if and only if the batch is committed.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter

from ikebana.processor.rows.placing import shard_of
from ikebana.processor.rows.rows import NO_KEY, KeyedUpdate, Updates

_AT_ONCE = 1_000
_CHUNK_RECORDS = 5_000
_CHUNK_BYTES = 1 << 20


def chunks(
    hops: Mapping[str, Collection[KeyedUpdate]], shards: int
) -> Iterator[tuple[int, Updates]]:
    """The updates to each operator as rows for the shards of their keys."""
    for name, updates in hops.items():
        rest = iter(updates)
        of: list[list[KeyedUpdate]] = [[] for _ in range(shards)]
        size = 0
        while some := list(islice(rest, _AT_ONCE)):
            for update in some:
                key = update[0]
                of[shard_of(NO_KEY if key is None else key, shards)].append(update)
            size += _size(some)
            for at, own in enumerate(of):
                if len(own) >= _CHUNK_RECORDS or size >= _CHUNK_BYTES * shards:
                    yield from _rows(name, at, own)
                    of[at] = []
            if size >= _CHUNK_BYTES * shards:
                size = 0
        for at, own in enumerate(of):
            yield from _rows(name, at, own)


def _rows(name: str, at: int, updates: Sequence[KeyedUpdate]) -> Iterator[tuple[int, Updates]]:
    """Updates to a shard as rows, each less than two megabytes unless one update is longer."""
    if len(updates) > 1 and _size(updates) >= 2 * _CHUNK_BYTES:
        half = len(updates) // 2
        yield from _rows(name, at, updates[:half])
        yield from _rows(name, at, updates[half:])
    elif updates:
        keys, values, times, diffs = map(list, zip(*updates, strict=True))
        keys = [NO_KEY if key is None else key for key in keys]
        yield at, Updates([], keys, values, times, diffs, inlets=[name], counted=True)


def _size(updates: Sequence[KeyedUpdate]) -> int:
    keys, values = map(itemgetter(0), updates), map(itemgetter(1), updates)
    return sum(map(len, filter(None, keys))) + sum(map(len, values))
