"""The only keyed operator of the query: a group is a task, with one shard or several.

Each group has a state partition of its own, and one state row: the manifest of its only shard, or
a list of the manifests of its shards, in their order.

Each task costs Spark and its Python processes some 25 ms of CPU time in every micro-batch.  So
on one machine all shards are in one group: its task passes rows on, and the owners of shards
compute side by side.
"""

import functools
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec
import pandas as pd

from ikebana.arrangements.manifest import Manifest
from ikebana.errors import CheckpointError
from ikebana.processor.base import calls, processes
from ikebana.processor.checkpoint.checkpoint import Checkpoint, CheckpointMetadata
from ikebana.processor.engine.task import Job, OpenShards, decode_state, encode_state
from ikebana.processor.spark.workers import daemon, left_rows, owners
from ikebana.processor.spark.workers.network import Done, Pickled
from ikebana.processor.spark.workers.owners import PLACEMENT, HostAddress

# Decision (nothing is shuffled): Partitions of the source are coalesced into one, which satisfies
# what the keyed operator asks of its input: one stage with one task. If tasks have to read, they
# read one after the other.

OUTPUT_SCHEMA = "result binary"
STATE_SCHEMA = "manifest binary"


class GroupResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of a group's batch: the commit records of its shards, as JSON.

    `owned` says whether owners have run it rather than the worker itself; `missed` are the hosts
    that were not reached.
    """

    commits: list[bytes]
    owned: bool
    missed: list[str] = []


@dataclass(frozen=True, slots=True)
class Groups:
    """The data of every task: the pickled job, and the groups of the shards.

    A worker that passes a batch on does not unpickle the job.
    """

    job: Pickled
    groups: tuple[int, ...]

    @classmethod
    def of(cls, job: Job) -> Self:
        """Pickle a job."""
        return cls(Pickled.of(job), job.groups)

    def shards_of(self, number: int) -> list[int]:
        """Return the shards of a group."""
        return [shard for shard, group in enumerate(self.groups) if group == number]

    def run(
        self,
        states: Mapping[int, bytes | None],
        rows: Mapping[int, list[bytes]],
        hosts: Mapping[int, HostAddress],
    ) -> tuple[list[Done], GroupResult]:
        """Bring shards through a batch, in owners on the given hosts, or else on this one.

        The results are in the order of `rows`.  An owner that is not reached is fenced by its
        replacement on this host.  If this worker's own host is gone, the worker ends: Spark then
        starts another daemon, with a new host.
        """
        here = HostAddress.here()
        if here is None or not here.owners:
            done = [self._run_here(shard, states[shard], rows[shard]) for shard in rows]
            return done, GroupResult(_commits(done), owned=False)
        all_here = dict.fromkeys(rows, here)
        results = owners.run({**all_here, **hosts}, self.job, states, rows)
        left = {shard: rows[shard] for shard in rows if results[shard] is None}
        if left:
            results |= owners.run(all_here, self.job, states, left)
        done = [results[shard] or daemon.end_worker() for shard in rows]
        missed = sorted({hosts[shard].text for shard in left if shard in hosts})
        return done, GroupResult(_commits(done), owned=True, missed=missed)

    def _run_here(self, shard: int, state: bytes | None, rows: list[bytes]) -> Done:
        shards = OpenShards(most=0)
        commit = shards.run(_job(self.job.content), shard, state, left_rows.resolve(rows))
        return Done(encode_state(commit.manifest), msgspec.json.encode(commit))


def run_group(
    groups: Groups, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """Run the batch on the shards of a group; yield its result as the only row.

    The commit records' transactions are committed before the row is yielded and before Spark
    commits the state.  After a crash in between, the replay of the batch adopts the commit records
    of shards that had committed, and computes the others.
    """
    processes.exempt_objects()
    shards = groups.shards_of(int(key[0]))
    calls.arm()
    before = bytes(state.get[0]) if state.exists else None
    parts = [None] * len(shards) if before is None else parted(before)
    states: dict[int, bytes | None] = dict(zip(shards, parts, strict=True))
    rows: dict[int, list[bytes]] = {shard: [] for shard in (*shards, PLACEMENT)}
    for frame in frames:
        for shard, chunk in zip(frame["shard"].tolist(), frame["chunk"], strict=True):
            rows[shard].append(chunk)
    placed = rows.pop(PLACEMENT)
    done, result = groups.run(states, rows, owners.hosts_of(placed[0]) if placed else {})
    after = joined([each.state for each in done])
    if after != before:
        state.update((after,))
    yield pd.DataFrame({"result": [msgspec.msgpack.encode(result)]})


def _commits(done: Sequence[Done]) -> list[bytes]:
    return [each.commit for each in done]


@functools.lru_cache(maxsize=4)
def _job(content: bytes) -> Job:
    job: Job = pickle.loads(content)
    return job


# Decision (all shards in one task): A task costs the same for one row or ten thousand, and with
# owners it only passes rows on. Each shard keeps its transaction and files. Where tasks are
# needed (no owners, or encryption) the state is rewritten, as for another number of shards.

_BEGINS_A_LIST = b"["


def joined(states: Sequence[bytes]) -> bytes:
    """Make the state row of a task from the states of its shards, each of which is JSON."""
    return states[0] if len(states) == 1 else b"[" + b",".join(states) + b"]"


def parted(row: bytes) -> list[bytes]:
    """Return the states of the shards in a state row."""
    if not row.startswith(_BEGINS_A_LIST):
        return [row]
    return [bytes(each) for each in msgspec.json.decode(row, type=list[msgspec.Raw])]


def manifests(
    checkpoint: Checkpoint, metadata: CheckpointMetadata, batch: int | None = None
) -> list[Manifest]:
    """Read the manifests of shards from Spark's state store; the query need not run.

    They are those after `batch`, by default the last committed one.  A shard without a state row
    has its seed as the manifest, or an empty one.

    Raises:
        CheckpointError: no batch is committed, or Spark no longer has the state of that batch.
    """
    committed = checkpoint.layout(metadata).logged().committed
    chosen = committed if batch is None else batch
    seeds = metadata.seeds
    by_shard = {n: seeds.get(n, Manifest(metadata.id, n)) for n in range(metadata.shards)}
    if committed < metadata.first_batch:
        return list(by_shard.values())
    if not metadata.first_batch <= chosen <= committed:
        raise CheckpointError(
            f"batch {chosen} is not among the committed ones of this checkpoint: "
            f"{metadata.first_batch} to {committed}"
        )
    for packed in _state_rows(checkpoint.data(metadata), metadata, chosen):
        for state in parted(packed):
            manifest = decode_state(state)
            by_shard[manifest.shard] = manifest
    return list(by_shard.values())


def _state_rows(folder: str, metadata: CheckpointMetadata, batch: int) -> list[bytes]:
    """The manifests in each state row after a batch.  Raises: CheckpointError."""
    # Imported here, because this module's operator runs in workers, which need neither.
    from ikebana.processor.authoring.settings import Settings
    from ikebana.processor.spark.session import Spark

    settings = Settings(
        checkpoint=folder,
        kafka={"bootstrap.servers": "unused"},
        shards=metadata.shards,
        master="local[1]",
    )
    with Spark(settings, "ikebana state") as spark:
        reading = spark.session().read.format("statestore")
        try:
            rows = (
                reading.option("batchId", batch - metadata.first_batch)
                .load(folder)
                .selectExpr("value.groupState.manifest AS manifest")
                .collect()
            )
        except Exception as error:
            raise CheckpointError(
                f"cannot read the state after batch {batch}: {str(error).splitlines()[0]}",
                hint="Spark keeps the last run.retained_batches batches.",
            ) from error
    return [bytes(row.manifest) for row in rows]
