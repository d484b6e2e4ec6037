"""The only keyed operator of the query: a group is a task, with one shard or several.

Each group has a state partition of its own, and one state row with the manifests of its shards.
Each task costs Spark and its Python processes some 25 ms of CPU time in every micro-batch.  So
where shards have owners, all of them are in one group: its task passes rows on, and the owners
compute side by side.  Without owners, each shard has a group of its own.
"""

import functools
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import msgspec
import pandas as pd

from ikebana.processor import task as shard_batch
from ikebana.processor.ground import calls
from ikebana.processor.spark import left_markers, left_rows, task_state, worker
from ikebana.processor.spark.left_markers import markers_folder
from ikebana.processor.spark.owner_messages import Done, pickled
from ikebana.processor.spark.owners import Owners
from ikebana.processor.task import Job

OUTPUT_SCHEMA = "marker binary"
STATE_SCHEMA = "manifest binary"


@dataclass(frozen=True, slots=True)
class Groups:
    """What is sent to every task: the pickled job, the groups, and who owns the shards.

    `labels` are the groups of the shards.  A worker that passes a batch on does not unpickle the
    job.
    """

    job: bytes
    digest: str
    labels: tuple[int, ...]
    owners: Owners | None

    @classmethod
    def of(cls, job: Job, owners: Owners | None) -> Self:
        """Pickle a job."""
        return cls(*pickled(job), job.labels, owners)

    def shards_of(self, label: int) -> list[int]:
        """Return the shards of a group."""
        return [shard for shard, group in enumerate(self.labels) if group == label]

    @property
    def markers_in(self) -> str:
        """The folder in which the only task leaves the markers; empty if there is none."""
        return "" if self.owners is None else markers_folder(self.owners.rows, self.labels)

    def run(
        self, states: Mapping[int, bytes | None], rows: Mapping[int, list[bytes]]
    ) -> list[Done]:
        """Bring shards through a batch; return their results in the order of `rows`."""
        found: Mapping[int, Done | None] = {}
        if self.owners is not None:
            found = self.owners.run(self.job, self.digest, states, rows)
        return [
            found.get(shard) or self._run_here(shard, states[shard], rows[shard]) for shard in rows
        ]

    def _run_here(self, shard: int, state: bytes | None, rows: list[bytes]) -> Done:
        marker = shard_batch.run(_job(self.job), shard, state, left_rows.found(rows))
        return Done(shard_batch.encode_state(marker.manifest), msgspec.json.encode(marker))


def run_group(
    groups: Groups, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """Run the batch on the shards of a group; yield the marker of each as a row.

    The markers' transactions are committed before the rows are yielded and before Spark commits
    the state.  After a crash in between, the replay of the batch adopts the markers; those of
    shards that had not committed compute.
    """
    worker.settle()
    shards = groups.shards_of(int(key[0]))
    calls.arm()
    before = bytes(state.get[0]) if state.exists else None
    parts = [None] * len(shards) if before is None else task_state.parted(before)
    states: dict[int, bytes | None] = dict(zip(shards, parts, strict=True))
    rows: dict[int, list[bytes]] = {shard: [] for shard in shards}
    for frame in frames:
        for shard, chunk in zip(frame["shard"].tolist(), frame["chunk"], strict=True):
            rows[shard].append(chunk)
    done = groups.run(states, rows)
    after = task_state.joined([each.state for each in done])
    if after != before:
        state.update((after,))
    if folder := groups.markers_in:
        left_markers.leave(folder, [each.marker for each in done])
    yield pd.DataFrame({"marker": [each.marker for each in done]})


@functools.lru_cache(maxsize=4)
def _job(content: bytes) -> Job:
    job: Job = pickle.loads(content)
    return job
