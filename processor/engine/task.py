"""Micro-batches of shards, from packed rows to a committed transaction.

The kernels, the delta file and the Kafka transaction are in one process and one function, so
nothing can be committed that was not computed to the end.  Order of events:

1. fence earlier holders of the shard's transactional id, then read its commit record;
2. the commit record is of this batch: adopt its manifest and emit nothing;
3. else compute, write the delta file, and commit updates and commit record in one
   transaction;
4. return the commit record; Spark commits the state row that holds its manifest.

A crash before the commit in 3 leaves nothing that counts; after it, the replay adopts the batch
as in 2.  Nothing here knows Spark.

Opening a local database, connecting a transactional producer, fencing, and looking at the last
commit record take longer than a small batch itself.  `OpenShards`, in a process that
serves the same shards in every batch, keeps them:

* The *producer* is used until it is fenced.  Until then the commit record that it committed last
  is the last one of the shard, so fencing and reading the commit record again would change
  nothing.  If it has been fenced, it cannot commit, and the attempt has no effect.
* The *database* is compared with the manifest of each batch, open or not.
* The *folder* of the shard's files has been made and synced.

After any error, for another job (another incarnation is one), and for a batch that is already
committed, everything of the shard is closed, and the batch is fenced, looked at and begun as the
first one.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ikebana.arrangements.files import Folder
from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.rocks import LocalDatabases
from ikebana.arrangements.shard import opened
from ikebana.codecs.diff import pack_times
from ikebana.codecs.output_messages import Ids, OutputMessage, framed
from ikebana.processor.base import processes
from ikebana.processor.base.rows import Records, Tick, pack, size_of, unpack
from ikebana.processor.base.sharding import exchange_chunks, owner_of
from ikebana.processor.base.texts import shown
from ikebana.processor.base.transition import Phase, Transition
from ikebana.processor.checkpoint.commits import (
    Adopt,
    CommitRecord,
    Compute,
    FillProgress,
    Holder,
    computable,
    replaced_refusal,
    verdict,
)
from ikebana.processor.checkpoint.refusal import Refusal
from ikebana.processor.engine.budget import Budget
from ikebana.processor.engine.dataflow import Beside, Emitted, advance
from ikebana.processor.kafka import transactions
from ikebana.processor.kafka.client import enqueue
from ikebana.processor.kafka.reader import connected
from ikebana.processor.kafka.transactions import TransactionalProducer
from ikebana.processor.planning.edits import Edit
from ikebana.processor.planning.joins.stages import joined
from ikebana.processor.planning.plan import Plan

# Decision (the operator is the sink): A sink in another Python process sees a normal end of input
# when the operator's process dies, and would commit half a batch. Here the process that computes
# also commits.

# Decision (open producers do not look again): The first batch fences and looks (R5); had another
# committed since, this producer could not. After a failure the next attempt looks before it
# fences, so it does not fence a newer one.


class Stopwatch:
    """Durations in seconds by lap; laps of the same name are added."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> None:
        """Add the time since the last lap to those of this name."""
        now = time.monotonic()
        self.laps[name] = self.laps.get(name, 0.0) + now - self._last
        self._last = now


def fill_progress(
    edit: Edit | None, emitted: Emitted, transition: Transition
) -> FillProgress | None:
    """Compute the progress after a batch in which an edit fills, or joins lack rows.

    A batch that writes portions of outputs is at the last step.  Returns None for any other batch.
    Joins of an edit from before any time was closed come without an edit.
    """
    fills, lacking = transition.fills, transition.joins
    if writes := transition.writing:
        written = sum(len(emitted.updates[name]) for name in writes)
        return FillProgress(0, 1, shown(writes[0]), written)
    if not fills and not lacking:
        return None
    scanned = () if edit is None else edit.scanned
    joins = tuple(lacking)
    if edit is not None:
        origins = joined(edit.after).origins
        joins = tuple(j.name for j in edit.after.joins if j.name in edit.fresh & origins.keys())
    done, keys = len(scanned), 0
    if fills:
        done, keys = emitted.filled or (0, 0)
    else:
        done += sum(join not in lacking or join in emitted.replayed.joins for join in joins)
    names = [*scanned, *joins]
    if not names:
        return None
    return FillProgress(done, len(names), shown(names[min(done, len(names) - 1)]), keys)


@dataclass(frozen=True, slots=True)
class Job:
    """What every task of a running pipeline knows; it is sent to the executors.

    `groups` has for each shard the group that Spark runs it in.  `seeds` are the manifests from
    which shards start when Spark has no state yet.  `edit` is the last change of the plan, which
    may be unfinished.  `schemas` has by output the ids of its schemas in a registry.
    """

    plan: Plan
    kafka: Mapping[str, str]
    writing_kafka: Mapping[str, str]
    checkpoint: str
    epoch: int
    incarnation: int
    first_batch: int
    location: str
    local: str
    groups: tuple[int, ...]
    seeds: Mapping[int, bytes]
    retained: int
    max_batch_s: float
    edit: Edit | None = None
    schemas: Mapping[str, Ids] = field(default_factory=dict)

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self.groups)


@dataclass(frozen=True, slots=True)
class _ShardBatch:
    """A batch of a shard: its tick, its records, and the manifest in Spark's state."""

    shard: int
    tick: Tick
    records: Sequence[Records]
    manifest: Manifest
    size: int
    """The size of the packed rows."""


@dataclass(frozen=True, slots=True)
class ShardPlace:
    """Where a shard's files and its local database are."""

    files: Folder
    databases: LocalDatabases


def _request(job: Job, shard: int, state: bytes | None, rows: Iterable[bytes]) -> _ShardBatch:
    """Unpack what a shard is asked to do; `state` is the manifest in Spark's state row."""
    tick, records, size = unpacked(rows)
    return _ShardBatch(shard, tick, records, _committed(job, shard, state), size)


def _begun(job: Job, asked: _ShardBatch) -> tuple[TransactionalProducer, Adopt | Compute]:
    """Fence all other producers of a shard, read its last commit record, and decide what to do.

    Raises:
        FencedError: a newer instance of the pipeline has taken over.
        CheckpointError: the state is not the one that the commit record before says.
    """
    producer = TransactionalProducer(
        dict(job.writing_kafka),
        transactions.task_id(job.checkpoint, asked.shard),
        job.max_batch_s,
    )
    end = producer.end_of(job.plan.commits_topic, transactions.partition_of_shard(asked.shard))
    last = last_commit(job, asked.shard, end)
    decision = verdict(_holder(job, asked), asked.tick, last, asked.manifest)
    if isinstance(decision, Refusal):
        raise decision.error()
    return producer, decision


def _holder(job: Job, asked: _ShardBatch) -> Holder:
    """The instance that runs a shard."""
    return Holder(job.plan, job.epoch, job.incarnation, asked.shard)


def last_commit(job: Job, shard: int, end: int | None = None) -> CommitRecord | None:
    """Read the last commit record of a shard; `end` is that of `transactions.last_record`."""
    return transactions.last_commit(connected(job.kafka), job.plan.commits_topic, shard, end)


@dataclass(frozen=True, slots=True)
class Computed:
    """A computed batch with its delta file written, and nothing of it committed."""

    tick: Tick
    records: int
    emitted: Emitted
    manifest: Manifest
    watch: Stopwatch


def compute(
    job: Job, tick: Tick, manifest: Manifest, records: Sequence[Records], place: ShardPlace
) -> Computed:
    """Run the kernels on the state that a manifest names, and write what they change."""
    watch = Stopwatch()
    with opened(place.files, place.databases, manifest) as store:
        watch.lap("catch_up")
        store.clean(tick.batch, job.retained)
        watch.lap("store")
        emitted = store.attempt(
            lambda part: advance(
                job.plan,
                part,
                records,
                tick.interval_of(),
                beside=Beside(
                    transition=tick.transition,
                    edit=job.edit,
                    released=tick.released,
                    owns=owner_of(manifest.shard, job.shards),
                    budget=Budget(job.max_batch_s),
                ),
            )
        )
        watch.lap("compute")
        after = store.commit(tick.batch, job.retained)
    watch.lap("store")
    return Computed(tick, sum(map(size_of, records)), emitted, after, watch)


def _send(
    job: Job, producer: TransactionalProducer, computed: Computed, size: int
) -> CommitRecord:
    """Commit the updates of a batch and its commit record in one transaction."""
    plan, emitted = job.plan, computed.emitted
    batch, shard = computed.tick.batch, computed.manifest.shard
    with producer.transaction() as sender:
        counts = {}
        for output in plan.published:
            processes.fault_point("emit", batch, shard)
            counts[output.name] = (
                producer.produce_messages(output.topic, _messages(job, emitted, output.name))
                if output.name in emitted.messages
                else producer.produce(output.topic, emitted.updates[output.name])
            )
        for target, row in exchange_chunks(emitted.exchanges, job.shards):
            enqueue(sender, plan.exchange_topic, key=None, value=pack(row), partition=target)
        # How long the commit takes is not known yet.
        computed.watch.lap("send")
        commit = _commit_record(job, computed, counts, size)
        transactions.produce_commit(sender, plan.commits_topic, commit)
        processes.fault_point("before_commit", batch, shard)
    processes.fault_point("after_commit", batch, shard)
    return commit


def _messages(job: Job, emitted: Emitted, name: str) -> Sequence[OutputMessage]:
    """The messages of an output, framed with their schema ids if a registry has the schemas."""
    messages = emitted.messages[name].messages
    return framed(messages, job.schemas[name]) if name in job.schemas else messages


def _commit_record(
    job: Job, computed: Computed, counts: dict[str, int], size: int
) -> CommitRecord:
    tick, emitted, manifest = computed.tick, computed.emitted, computed.manifest
    transition = tick.transition
    times = {name: pack_times(formatted.times) for name, formatted in emitted.messages.items()}
    return CommitRecord(
        checkpoint=job.checkpoint,
        epoch=job.epoch,
        incarnation=job.incarnation,
        shard=manifest.shard,
        batch=tick.batch,
        lower=tick.lower,
        upper=tick.upper,
        offset=tick.offset,
        plan=tick.plan,
        records=computed.records,
        behind=tick.behind,
        counts=_closed(computed, counts),
        manifest=manifest,
        counted=dict(emitted.counted),
        times={name: packed for name, packed in times.items() if packed},
        intervals={name: (each.lower, each.upper) for name, each in emitted.intervals.items()},
        exchanges_from=tick.exchanges_from.get(manifest.shard, 0),
        seen=emitted.seen,
        transition=transition,
        replayed=emitted.replayed,
        waiting=emitted.waiting,
        noted=list(emitted.noted),
        size=size,
        hot=list(emitted.hot),
        facts={name: pack_times(counts) for name, counts in emitted.facts.items()},
        filling=fill_progress(job.edit, emitted, transition),
        took={lap: round(seconds, 6) for lap, seconds in computed.watch.laps.items()},
    )


def _closed(computed: Computed, counts: Mapping[str, int]) -> dict[str, int]:
    """By output, how many updates the batch closes: those written now and those before."""
    transition, before = computed.tick.transition, computed.emitted.written_before
    # Updates that are written in portions are published with the batch that closes them.
    closed = {
        name: 0 if name in transition.writing else count + before.get(name, 0)
        for name, count in counts.items()
    }
    of = transition.rebuilding
    if of is not None and transition.phase is Phase.REBUILT and computed.manifest.shard == 0:
        # The lost checkpoint wrote these, and no progress has counted them.
        return {name: count + of.unclosed.get(name, 0) for name, count in closed.items()}
    return closed


def encode_state(manifest: Manifest) -> bytes:
    """A manifest as Spark's state row holds it."""
    return msgspec.json.encode(manifest)


def decode_state(state: bytes) -> Manifest:
    """The manifest in a state row."""
    return msgspec.json.decode(state, type=Manifest)


def unpacked(rows: Iterable[bytes]) -> tuple[Tick, list[Records], int]:
    """The tick of a batch, its records for one shard, and their size as packed rows."""
    ticks: list[Tick] = []
    records: list[Records] = []
    size = 0
    for row in rows:
        size += len(row)
        chunk = unpack(row)
        if isinstance(chunk, Tick):
            ticks.append(chunk)
        else:
            records.append(chunk)
    # Without its tick the batch is incomplete, and must not be committed.
    assert len(ticks) == 1, f"a shard got {len(ticks)} ticks in one batch"
    return ticks[0], records, size


def _committed(job: Job, shard: int, state: bytes | None) -> Manifest:
    """The manifest that Spark holds, or the one to start from."""
    if state is not None:
        return decode_state(state)
    if (seed := job.seeds.get(shard)) is not None:
        return decode_state(seed)
    return Manifest(job.checkpoint, shard)


# A producer has some five threads and as many connections, a database some 30 open files.
_MOST_OPEN = 64


@dataclass(frozen=True, slots=True)
class _Open:
    """The open resources of a shard, and its last commit record, which it has written or read."""

    job: Job
    producer: TransactionalProducer
    commit: CommitRecord
    place: ShardPlace


class OpenShards:
    """The shards that this process serves; at most `most` of them stay open.

    Not thread-safe: it serves one batch of one shard after the other.
    """

    def __init__(self, most: int = _MOST_OPEN) -> None:
        self._most = most
        # In the order of their last use.
        self._open: dict[int, _Open] = {}
        self._databases: tuple[tuple[str, str], LocalDatabases] | None = None
        self._failed: set[int] = set()

    def run(
        self, job: Job, shard: int, state: bytes | None, rows: Iterable[bytes]
    ) -> CommitRecord:
        """Bring one shard through one batch; see the module's description.

        Raises:
            FencedError: a newer instance of the pipeline has taken over.
            CheckpointError: the state is not the one that the last commit record names.
        """
        asked = _request(job, shard, state, rows)
        # Whatever fails, nothing of the shard is used again.
        earlier = self._open.pop(shard, None)
        try:
            done = self._run(job, asked, earlier)
        except BaseException:
            self._failed.add(shard)
            if self._databases is not None:
                self._databases[1].close(shard)
            raise
        self._failed.discard(shard)
        self._open[shard] = done
        while len(self._open) > self._most:
            del self._open[next(iter(self._open))]
        return done.commit

    def close(self) -> None:
        """Close everything."""
        self._open.clear()
        if self._databases is not None:
            self._databases[1].close_all()

    def _run(self, job: Job, asked: _ShardBatch, earlier: _Open | None) -> _Open:
        if earlier is not None and earlier.job == job:
            going_on = computable(_holder(job, asked), asked.tick, earlier.commit, asked.manifest)
            if going_on is not None:
                return _computed(job, earlier.producer, asked, going_on, earlier.place)
        if asked.shard in self._failed:
            _stop_if_replaced(job, asked.shard)
        files = Folder.at(job.location, "shards", f"{asked.shard:04d}")
        place = ShardPlace(files, self._databases_of(job))
        producer, decision = _begun(job, asked)
        if isinstance(decision, Adopt):
            return _Open(job, producer, decision.commit, place)
        return _computed(job, producer, asked, decision, place)

    def _databases_of(self, job: Job) -> LocalDatabases:
        """The databases in the folder that a job names; those of another folder are closed."""
        folder = job.local, f"{job.checkpoint}-{job.epoch}"
        if self._databases is None or self._databases[0] != folder:
            if self._databases is not None:
                self._databases[1].close_all()
            root, name = folder
            self._databases = folder, LocalDatabases(Path(root), name, self._most)
        return self._databases[1]


def _computed(
    job: Job,
    producer: TransactionalProducer,
    asked: _ShardBatch,
    decision: Compute,
    place: ShardPlace,
) -> _Open:
    """Compute a batch, and commit it."""
    done = compute(job, asked.tick, decision.manifest, asked.records, place)
    return _Open(job, producer, _send(job, producer, done, asked.size), place)


def _stop_if_replaced(job: Job, shard: int) -> None:
    """Stop if a newer instance has taken over, before it is fenced.

    An older instance learns that it was replaced when its open producer cannot commit.  If its
    next attempt fenced the newer one to look at the commit record, the newer one's batch would
    fail.
    """
    last = last_commit(job, shard)
    if last is not None and last.incarnation > job.incarnation:
        raise replaced_refusal(job.plan.name, job.incarnation, last.incarnation).error()
