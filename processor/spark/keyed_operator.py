"""The only keyed operator of the query: a group is a shard, and its state row a manifest."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pandas as pd

from ikebana.processor import task as shard_batch
from ikebana.processor.spark import worker
from ikebana.processor.task import Job

OUTPUT_SCHEMA = "marker binary"
STATE_SCHEMA = "manifest binary"


def run_group(
    job: Job, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """Run the batch on the shard of a group; yield the shard's marker as one row.

    The marker's transaction is committed before the row is yielded and before Spark commits
    the state.  After a crash in between, the replay of the batch adopts the marker.
    """
    worker.settle()
    before = bytes(state.get[0]) if state.exists else None
    shard = job.labels.index(int(key[0]))
    rows = (chunk for frame in frames for chunk in frame["chunk"])
    marker = shard_batch.run(job, shard, before, rows)
    after = shard_batch.encode_state(marker.manifest)
    if after != before:
        state.update((after,))
    yield pd.DataFrame({"marker": [msgspec.json.encode(marker)]})
