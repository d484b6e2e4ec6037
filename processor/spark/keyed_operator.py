"""The only keyed operator of the query: a group is a shard, and its state row a manifest."""

import functools
import hashlib
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import msgspec
import pandas as pd

from ikebana.processor import task as shard_batch
from ikebana.processor.ground import calls
from ikebana.processor.spark import worker
from ikebana.processor.spark.owner_messages import Done
from ikebana.processor.spark.owners import Owners
from ikebana.processor.task import Job

OUTPUT_SCHEMA = "marker binary"
STATE_SCHEMA = "manifest binary"


@dataclass(frozen=True, slots=True)
class Groups:
    """What is sent to every task: the pickled job, and who owns the shards.

    A worker that passes a batch on does not unpickle the job.
    """

    job: bytes
    digest: str
    labels: tuple[int, ...]
    owners: Owners | None

    @classmethod
    def of(cls, job: Job, owners: Owners | None) -> Self:
        """Pickle a job."""
        content = pickle.dumps(job)
        return cls(content, hashlib.sha256(content).hexdigest(), job.labels, owners)


def run_group(
    groups: Groups, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """Run the batch on the shard of a group; yield the shard's marker as one row.

    The marker's transaction is committed before the row is yielded and before Spark commits
    the state.  After a crash in between, the replay of the batch adopts the marker.
    """
    worker.settle()
    calls.arm()
    before = bytes(state.get[0]) if state.exists else None
    shard = groups.labels.index(int(key[0]))
    rows = [chunk for frame in frames for chunk in frame["chunk"]]
    done = None
    if groups.owners is not None:
        done = groups.owners.run(groups.job, groups.digest, shard, before, rows)
    if done is None:
        marker = shard_batch.run(_job(groups.job), shard, before, rows)
        done = Done(shard_batch.encode_state(marker.manifest), msgspec.json.encode(marker))
    if done.state != before:
        state.update((done.state,))
    yield pd.DataFrame({"marker": [done.marker]})


@functools.lru_cache(maxsize=4)
def _job(content: bytes) -> Job:
    job: Job = pickle.loads(content)
    return job
