"""Bring shards through their batches, and keep resources open for each shard's next batch.

Opening a local database, connecting a transactional producer, fencing, and looking at the last
commit record (marker) take longer than a small batch itself.  A process that serves the same
shards in every batch keeps them:

* The *producer* is used until it is fenced.  Until then the marker that it committed last is the
  last one of the shard, so fencing and reading the marker again would change nothing.  If it
  has been fenced, it cannot commit, and the attempt has no effect.
* The *database* is compared with the manifest of each batch, open or not.
* The *folder* of the shard's files has been made and synced.

After any error, for another job (another incarnation is one), and for a batch that is already
committed, everything of the shard is closed, and the batch goes through `task.run`: fence, look,
begin.
"""

# Decision (open producers do not look again): The first batch fences and looks (R5); had another
# committed since, this producer could not. After a failure the next attempt looks before it
# fences, so it does not fence a newer one.

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ikebana.arrangements.databases import OpenDatabases
from ikebana.processor.checkpoint.commits import Marker, replaced
from ikebana.processor.checkpoint.continuing import Adopt, goes_on
from ikebana.processor.engine import task
from ikebana.processor.engine.task import Job, ShardBatch, ShardPlace
from ikebana.processor.kafka.transactions import TransactionalProducer

# A producer has some five threads and as many connections, a database some 30 open files.
MOST_OPEN = 64


@dataclass(frozen=True, slots=True)
class _Open:
    """The open resources of a shard, and the last marker that its producer committed or read."""

    job: Job
    producer: TransactionalProducer
    marker: Marker
    place: ShardPlace


class OpenShards:
    """The shards that this process serves; at most `most` of them stay open.

    Not thread-safe: it serves one batch of one shard after the other.
    """

    def __init__(self, most: int = MOST_OPEN) -> None:
        self._most = most
        # In the order of their last use.
        self._open: dict[int, _Open] = {}
        self._databases: tuple[tuple[str, str], OpenDatabases] | None = None
        self._failed: set[int] = set()

    def run(self, job: Job, shard: int, state: bytes | None, rows: Iterable[bytes]) -> Marker:
        """Bring one shard through one batch, as `task.run` does.

        Raises:
            FencedError: a newer instance of the pipeline has taken over.
            CheckpointError: the state is not the one that the last marker names.
        """
        asked = task.request(job, shard, state, rows)
        # Whatever fails, nothing of the shard is used again.
        earlier = self._open.pop(shard, None)
        try:
            done = self._run(job, asked, earlier)
        except BaseException:
            self._failed.add(shard)
            self._close_database(shard)
            raise
        self._failed.discard(shard)
        self._open[shard] = done
        while len(self._open) > self._most:
            del self._open[next(iter(self._open))]
        return done.marker

    def close(self) -> None:
        """Close everything."""
        self._open.clear()
        if self._databases is not None:
            self._databases[1].close_all()

    def _run(self, job: Job, asked: ShardBatch, earlier: _Open | None) -> _Open:
        if earlier is not None and earlier.job == job:
            decision = goes_on(task.holder(job, asked), asked.tick, earlier.marker, asked.manifest)
            if decision is not None:
                marker = task.computed(job, earlier.producer, asked, decision, earlier.place)
                return _Open(job, earlier.producer, marker, earlier.place)
        if asked.shard in self._failed:
            _stop_if_replaced(job, asked.shard)
        place = task.place_of(job, asked.shard, self._databases_of(job))
        producer, begun = task.begun(job, asked)
        if isinstance(begun, Adopt):
            return _Open(job, producer, begun.marker, place)
        return _Open(job, producer, task.computed(job, producer, asked, begun, place), place)

    def _databases_of(self, job: Job) -> OpenDatabases:
        """The databases in the folder that a job names; those of another folder are closed."""
        folder = job.local, task.name_of_copies(job)
        if self._databases is None or self._databases[0] != folder:
            if self._databases is not None:
                self._databases[1].close_all()
            root, name = folder
            self._databases = folder, OpenDatabases(Path(root), name, self._most)
        return self._databases[1]

    def _close_database(self, shard: int) -> None:
        if self._databases is not None:
            self._databases[1].close(shard)


def _stop_if_replaced(job: Job, shard: int) -> None:
    """Stop if a newer instance has taken over, before it is fenced.

    An older instance learns that it was replaced when its open producer cannot commit.  If its
    next attempt fenced the newer one to look at the marker, the newer one's batch would fail.
    """
    last = task.last_marker(job, shard)
    if last is not None and last.incarnation > job.incarnation:
        raise replaced(job.plan.name, job.incarnation, last.incarnation).error()
