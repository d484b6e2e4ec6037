"""Hops: exchange updates between shards, so that they arrive one micro-batch later.

The updates go through the exchange topic of the pipeline, which has one partition for each
shard, as packed rows that the source hands on without decoding.  A shard writes them in the
transaction of its batch, so they exist if and only if the batch is committed.
"""

from collections.abc import Collection, Iterator, Mapping

from ikebana.processor.rows.placing import shard_of
from ikebana.processor.rows.rows import NO_KEY, KeyedUpdate, Updates

_CHUNK_RECORDS = 5_000
_CHUNK_BYTES = 1 << 20


def chunks(
    hops: Mapping[str, Collection[KeyedUpdate]], shards: int
) -> Iterator[tuple[int, Updates]]:
    """The updates to each operator as rows for the shards of their keys."""
    for name, updates in hops.items():
        rows = [_row(name) for _ in range(shards)]
        sizes = [0] * shards
        for key, value, time, diff in updates:
            if key is None:
                key = NO_KEY
            at = shard_of(key, shards)
            row = rows[at]
            row.keys.append(key)
            row.values.append(value)
            row.times.append(time)
            row.diffs.append(diff)
            sizes[at] += len(key) + len(value)
            if len(row.keys) >= _CHUNK_RECORDS or sizes[at] >= _CHUNK_BYTES:
                yield at, row
                rows[at], sizes[at] = _row(name), 0
        yield from ((at, row) for at, row in enumerate(rows) if row.keys)


def _row(name: str) -> Updates:
    return Updates([], [], [], [], [], inlets=[name], counted=True)
