"""One checkpoint on which instances take over and run tasks, step by step, without Spark."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Message

from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.rows import Tick, Upserts, pack
from ikebana.processor.base.sharding import shard_of
from ikebana.processor.checkpoint.checkpoint import CheckpointMetadata, Logged, metadata_of
from ikebana.processor.checkpoint.commits import CommitRecord
from ikebana.processor.engine.task import Job, OpenShards, encode_state
from ikebana.processor.kafka.broker import Broker
from ikebana.processor.kafka.inputs import Inputs
from ikebana.processor.kafka.takeover import Takeover, take_over
from ikebana.processor.planning.plan import Input, Output, Plan, Upsert
from ikebana.processor.topics.source_offset import SourceOffset
from support.output_judge import committed, settled
from support.pipeline_processes import create

# Runs a batch of a shard as `OpenShards.run` does.
Way = Callable[[Job, int, bytes | None, list[bytes]], CommitRecord]

SHARDS = 2
KEYS = [next(b"k%d" % i for i in range(99) if shard_of(b"k%d" % i, SHARDS) == s) for s in (0, 1)]


@dataclass
class Instances:
    """One checkpoint whose log is a list, and the steps of instances that run on it."""

    plan: Plan
    settings: Settings
    metadata: CheckpointMetadata
    log: list[SourceOffset] = field(default_factory=list)
    committed: int = -1
    states: dict[int, list[bytes | None]] = field(
        default_factory=lambda: {shard: [None] for shard in range(SHARDS)}
    )

    def logged(self) -> Logged:
        last = self.log[-1] if self.log else None
        return Logged(last, len(self.log) - 1, self.committed)

    def take_over(
        self,
        look: Callable[[], Logged] | None = None,
        accepted: Callable[[], None] = lambda: None,
    ) -> Takeover:
        look = look or self.logged
        return take_over(self.plan, self.settings, self.metadata, look, accepted, "a test")

    def mint(self) -> SourceOffset:
        """Log one more batch."""
        at = len(self.log)
        start = self.metadata.start
        self.log.append(replace_offset(start, batch=at, lower=at, upper=at + 1))
        return self.log[-1]

    def run(self, taken: Takeover, shard: int, batch: int, way: Way | None = None) -> CommitRecord:
        """Run one task of a batch: the shard's key gets the batch's number as its value."""
        offset = self.log[batch]
        job = Job(
            plan=self.plan,
            kafka=self.settings.kafka,
            writing_kafka=self.settings.writing_kafka,
            checkpoint=self.metadata.id,
            epoch=0,
            incarnation=taken.incarnation,
            first_batch=0,
            location=self.settings.checkpoint,
            local=f"{self.settings.checkpoint}-local",
            groups=(0, 1),
            seeds={},
            retained=10,
            max_batch_s=60,
        )
        tick = Tick(
            batch=batch,
            lower=offset.lower,
            upper=offset.upper,
            offset=offset.digest(),
            plan=self.plan.fingerprint(),
            intervals={"current": (offset.lower, offset.upper)},
            behind=0,
            adopted=False,
        )
        value = b"%d" % batch
        upserts = Upserts("changes", 0, 0, offset.lower, [KEYS[shard]], [value], [batch])
        state = self.states[shard][batch]
        way = way or OpenShards(most=0).run
        commit = way(job, shard, state, [pack(tick), pack(upserts)])
        # Spark's state row of the batch; a replay starts from the one before.
        self.states[shard][batch + 1 :] = [encode_state(commit.manifest)]
        return commit

    def updates(self) -> list[tuple[bytes, bytes, dict[str, bytes]]]:
        """What the output holds for readers of committed records, once no transaction is open."""
        return self._read(settled)

    def updates_now(self) -> list[tuple[bytes, bytes, dict[str, bytes]]]:
        """What the output holds for readers of committed records now."""
        return self._read(committed)

    def _read(
        self, read: Callable[[str, str], list[Message]]
    ) -> list[tuple[bytes, bytes, dict[str, bytes]]]:
        messages = read(self.settings.kafka["bootstrap.servers"], self.plan.outputs[0].topic)
        return [(m.key(), m.value(), dict(m.headers() or ())) for m in messages]


def replace_offset(start: SourceOffset, *, batch: int, lower: int, upper: int) -> SourceOffset:
    return SourceOffset(
        batch, lower, upper, start.positions, start.plan, topic_ids=start.topic_ids
    )


def made(broker: Broker, topic_name: Callable[[str], str], folder: Path) -> Instances:
    """Make a checkpoint on which nothing has run."""
    source, name = topic_name("in"), topic_name("taken")
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    create(broker.bootstrap_servers, source, 1)
    plan = Plan(
        name,
        (Input("changes", (source,), key_format="bytes"),),
        (Upsert("current", "changes"),),
        (Output("out", "current", name + ".out"),),
        time="offset",
    )
    location = str(folder / "checkpoint")
    metadata = metadata_of(location, plan, SHARDS, Inputs(plan, kafka).start())
    return Instances(plan, Settings(location, kafka, shards=SHARDS), metadata)
