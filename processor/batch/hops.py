"""Hops: updates on their way to the shards of their keys, one micro-batch later.

They go through the loopback topic of the pipeline, which has a partition a shard, as the
packed rows that the source would have made of them; it hands them on unread.  They are
written in the transaction of the shard that emits them, so they are there if and only if
its batch is.
"""

from collections.abc import Iterator, Mapping, Sequence

from ikebana.processor.rows.placing import shard_of
from ikebana.processor.rows.rows import KeyedUpdate, Updates, add, keyed

_CHUNK_RECORDS = 5_000
_CHUNK_BYTES = 1 << 20


def chunks(
    hops: Mapping[str, Sequence[KeyedUpdate]], shards: int
) -> Iterator[tuple[int, Updates]]:
    """The updates to each operator as rows for the shards of their keys."""
    for name, updates in hops.items():
        rows = [_row(name) for _ in range(shards)]
        sizes = [0] * shards
        for update in keyed(updates):
            key = update.key
            assert key is not None
            at = shard_of(key, shards)
            row = rows[at]
            add(row, update)
            sizes[at] += len(key) + len(update.value)
            if len(row.keys) >= _CHUNK_RECORDS or sizes[at] >= _CHUNK_BYTES:
                yield at, row
                rows[at], sizes[at] = _row(name), 0
        yield from ((at, row) for at, row in enumerate(rows) if row.keys)


def _row(name: str) -> Updates:
    return Updates([], [], [], [], [], inlets=[name], hop=True)
