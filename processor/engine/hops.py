"""Hops: exchange updates between shards, so that they arrive one micro-batch later.

The updates go through the exchange topic of the pipeline, which has one partition for each
shard, as packed rows that the source hands on without decoding.  A shard writes them in the
transaction of its batch, so they exist if and only if the batch is committed.
"""

from collections.abc import Collection, Iterator, Mapping

from ikebana.processor.base.by_shard import columns_by_shard
from ikebana.processor.base.columns import columns_of
from ikebana.processor.base.rows import NO_KEY, KeyedUpdate, Updates


def chunks(
    hops: Mapping[str, Collection[KeyedUpdate]], shards: int
) -> Iterator[tuple[int, Updates]]:
    """The updates to each operator as rows for the shards of their keys."""
    for name, updates in hops.items():
        for at, rows in columns_by_shard(updates, shards, NO_KEY):
            yield at, Updates([], *columns_of(rows), inlets=[name], counted=True)
