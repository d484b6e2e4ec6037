"""One micro-batch of one shard, from packed rows to a committed transaction.

What runs in a task, whole: the kernels, the delta file and the Kafka transaction are
in one process and one function, so nothing can be committed that was not computed to
the end.  Order of events:

1. fence earlier holders of the shard's transactional id, then read its marker;
2. the marker is of this batch: adopt its manifest and emit nothing;
3. else compute, write the delta file, and commit updates and marker in one
   transaction;
4. return the marker; Spark commits the state row that holds its manifest.

A crash before the commit in 3 leaves nothing that counts; after it, the replay takes
way 2.  Nothing here knows Spark.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ikebana.arrangements.errors import CheckpointError
from ikebana.arrangements.files import Folder
from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.manifest import Manifest
from ikebana.arrangements.rocks import LocalDatabases
from ikebana.arrangements.shard import opened
from ikebana.codecs.progress import pack_times
from ikebana.processor.batch import hops
from ikebana.processor.batch.dataflow import Emitted, advance
from ikebana.processor.ground import faults
from ikebana.processor.ground.stopwatch import Stopwatch
from ikebana.processor.kafka import loopback, markers
from ikebana.processor.kafka.markers import Marker
from ikebana.processor.kafka.reader import Reader
from ikebana.processor.kafka.transactions import Transactions
from ikebana.processor.planning import progress
from ikebana.processor.planning.plan import Plan
from ikebana.processor.rows.envelope import Records, Tick, pack, unpack
from ikebana.processor.rows.rows import size_of


@dataclass(frozen=True, slots=True)
class Job:
    """What every task of a running pipeline knows; it is sent to the executors.

    `labels` are the groups that Spark places into partitions 0, 1, ...: the i-th is
    shard i.  `seeds` are manifests that a shard starts from when Spark holds no state
    of it yet.
    """

    plan: Plan
    kafka: Mapping[str, str]
    sink_kafka: Mapping[str, str]
    checkpoint: str
    epoch: int
    incarnation: int
    first_batch: int
    location: str
    local: str
    labels: tuple[int, ...]
    seeds: Mapping[int, bytes]
    retained: int
    max_batch_s: float


def run(job: Job, shard: int, state: bytes | None, rows: Iterable[bytes]) -> Marker:
    """Bring one shard through one batch; see the module's description.

    Raises:
        FencedError: a newer instance of the pipeline has taken over.
        CheckpointError: the state is not the one that the marker before says.
    """
    tick, records = _unpacked(rows)
    producer = Transactions(
        {**job.kafka, **job.sink_kafka},
        markers.task_id(job.checkpoint, shard),
        job.max_batch_s,
    )
    topic = job.plan.markers_topic
    last = markers.last_marker(_reader(_frozen(job.kafka)), topic, shard)
    if adopted := _checked(job, tick, shard, last):
        return adopted
    manifest = _committed(job, shard, state)
    if last is not None and last.epoch == job.epoch and last.manifest != manifest:
        raise CheckpointError(
            f"shard {shard} of the checkpoint is at version {manifest.version}, its marker "
            f"of batch {last.batch} says {last.manifest.version}: the checkpoint's state was "
            "rolled back or replaced",
            hint="Use the checkpoint as it was left, or start with a new one and new output "
            "topics.",
        )
    files = Folder.at(job.location, "shards", f"{shard:04d}")
    local = LocalDatabases(Path(job.local), f"{job.checkpoint}-{job.epoch}")
    intervals = tick.interval_of()
    watch = Stopwatch()
    with opened(files, local, manifest) as store:
        watch.lap("catch_up")
        store.clean(tick.batch, job.retained)
        watch.lap("store")
        emitted = store.attempt(
            lambda part: advance(
                job.plan,
                part,
                records,
                intervals,
                hydrating=tick.hydrating,
                hydrates=tick.hydrates,
                released=tick.released,
            )
        )
        watch.lap("compute")
        after = store.commit(tick.batch, job.retained)
    watch.lap("store")
    with producer.transaction() as sender:
        counts = {}
        for output in job.plan.published:
            faults.point("emit", tick.batch, shard)
            counts[output.name] = (
                producer.produce_messages(output.topic, emitted.messages[output.name].messages)
                if output.name in emitted.messages
                else producer.produce(output.topic, emitted.updates[output.name])
            )
        for target, row in hops.chunks(emitted.hops, len(job.labels)):
            loopback.produce(sender, job.plan.loopback_topic, target, pack(row))
        # What is not known yet is how long the commit takes.
        watch.lap("send")
        outputs = progress.output_intervals(job.plan, intervals)
        marker = _marker(job, tick, shard, records, counts, outputs, after, emitted, watch.laps)
        markers.produce_marker(sender, topic, marker)
        faults.point("before_commit", tick.batch, shard)
    faults.point("after_commit", tick.batch, shard)
    return marker


def _marker(
    job: Job,
    tick: Tick,
    shard: int,
    records: Sequence[Records],
    counts: dict[str, int],
    outputs: Mapping[str, Interval],
    manifest: Manifest,
    emitted: Emitted,
    took: Mapping[str, float],
) -> Marker:
    times = {name: pack_times(found.times) for name, found in emitted.messages.items()}
    return Marker(
        checkpoint=job.checkpoint,
        epoch=job.epoch,
        incarnation=job.incarnation,
        shard=shard,
        batch=tick.batch,
        lower=tick.lower,
        upper=tick.upper,
        offset=tick.offset,
        plan=tick.plan,
        records=sum(map(size_of, records)),
        behind=tick.behind,
        counts=counts,
        manifest=manifest,
        counted=dict(emitted.counted),
        times={name: packed for name, packed in times.items() if packed},
        intervals={name: (each.lower, each.upper) for name, each in outputs.items()},
        hops_from=tick.hops_from.get(shard, 0),
        seen=emitted.seen,
        hydrated=emitted.hydrated,
        waiting=emitted.waiting,
        facts={name: pack_times(counts) for name, counts in emitted.facts.items()},
        took={phase: round(seconds, 6) for phase, seconds in took.items()},
    )


def encode_state(manifest: Manifest) -> bytes:
    """A manifest as Spark's state row holds it."""
    return msgspec.json.encode(manifest)


def decode_state(state: bytes) -> Manifest:
    """The manifest in a state row."""
    return msgspec.json.decode(state, type=Manifest)


def _unpacked(rows: Iterable[bytes]) -> tuple[Tick, list[Records]]:
    ticks: list[Tick] = []
    records: list[Records] = []
    for row in rows:
        chunk = unpack(row)
        if isinstance(chunk, Tick):
            ticks.append(chunk)
        else:
            records.append(chunk)
    # Whatever came without its tick is a part of the batch: it must not be committed.
    assert len(ticks) == 1, f"a shard got {len(ticks)} ticks in one batch"
    return ticks[0], records


def _checked(job: Job, tick: Tick, shard: int, last: Marker | None) -> Marker | None:
    """The marker if it is of this batch; raises if the shard is not ours to go on with."""
    if last is None:
        raise CheckpointError(
            f'the marker of shard {shard} is gone from topic "{job.plan.markers_topic}"',
            hint="The topic must be compacted and without retention, and nobody else may "
            "write to it.",
        )
    if last.incarnation != job.incarnation:
        raise markers.replaced(job.plan.name, job.incarnation, last.incarnation)
    if last.batch == tick.batch:
        if (last.offset, last.plan) != (tick.offset, tick.plan):
            raise CheckpointError(
                f"batch {tick.batch} was committed to Kafka with another offset or plan "
                f"than the checkpoint logs (shard {shard})",
                hint="The checkpoint was rolled back or replaced; use it as it was left.",
            )
        return last
    if last.batch != tick.batch - 1 or tick.adopted:
        raise CheckpointError(
            f"shard {shard} committed batch {last.batch} last, and is asked for batch "
            f"{tick.batch}",
            hint="The checkpoint was rolled back or replaced; use it as it was left.",
        )
    return None


def _committed(job: Job, shard: int, state: bytes | None) -> Manifest:
    """The manifest that Spark holds, or the one to start from."""
    if state is not None:
        return decode_state(state)
    if (seed := job.seeds.get(shard)) is not None:
        return decode_state(seed)
    return Manifest(job.checkpoint, shard)


@functools.lru_cache(maxsize=4)
def _reader(settings: frozenset[tuple[str, str]]) -> Reader:
    # A worker lives through many batches and connecting takes longer than asking.
    return Reader(dict(settings))


def _frozen(settings: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(settings.items())
