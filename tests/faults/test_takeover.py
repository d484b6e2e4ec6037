"""Two instances on one checkpoint, step by step, without Spark: who commits what."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ikebana.errors import FencedError
from ikebana.processor import task as shard_batch
from ikebana.processor.checkpoint.checkpoint import Birth, newborn
from ikebana.processor.checkpoint.layout import Logged
from ikebana.processor.configuring.settings import Settings
from ikebana.processor.deciding.commits import Marker
from ikebana.processor.kafka.broker import Broker
from ikebana.processor.kafka.inputs import Inputs
from ikebana.processor.kafka.takeover import Takeover, take_over
from ikebana.processor.planning.plan import Input, Output, Plan, Upsert
from ikebana.processor.rows.envelope import Tick, pack
from ikebana.processor.rows.placing import shard_of
from ikebana.processor.rows.rows import Upserts
from ikebana.processor.task import Job, encode_state
from ikebana.processor.timing.reclock import SourceOffset
from support.output_judge import settled
from support.pipeline_processes import create

pytestmark = [pytest.mark.full, pytest.mark.kafka]

SHARDS = 2
KEYS = [next(b"k%d" % i for i in range(99) if shard_of(b"k%d" % i, SHARDS) == s) for s in (0, 1)]


@dataclass
class Instances:
    """One checkpoint whose log is a list, and the steps of instances that run on it."""

    plan: Plan
    settings: Settings
    birth: Birth
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
        return take_over(self.plan, self.settings, self.birth, look, accepted, "a test")

    def mint(self) -> SourceOffset:
        """Log one more batch."""
        at = len(self.log)
        start = self.birth.start
        self.log.append(replace_offset(start, batch=at, lower=at, upper=at + 1))
        return self.log[-1]

    def run(self, taken: Takeover, shard: int, batch: int) -> Marker:
        """Run one task of a batch: the shard's key gets the batch's number as its value."""
        offset = self.log[batch]
        job = Job(
            plan=self.plan,
            kafka=self.settings.kafka,
            sink_kafka={},
            checkpoint=self.birth.id,
            epoch=0,
            incarnation=taken.incarnation,
            first_batch=0,
            location=self.settings.checkpoint,
            local=f"{self.settings.checkpoint}-local",
            labels=(0, 1),
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
        marker = shard_batch.run(job, shard, state, [pack(tick), pack(upserts)])
        # Spark's state row of the batch; a replay starts from the one before.
        self.states[shard][batch + 1 :] = [encode_state(marker.manifest)]
        return marker

    def updates(self) -> list[tuple[bytes, bytes, dict[str, bytes]]]:
        """What the output holds, for readers of committed records."""
        messages = settled(self.settings.kafka["bootstrap.servers"], self.plan.outputs[0].topic)
        return [(m.key(), m.value(), dict(m.headers() or ())) for m in messages]


def replace_offset(start: SourceOffset, *, batch: int, lower: int, upper: int) -> SourceOffset:
    return SourceOffset(
        batch, lower, upper, start.positions, start.plan, topic_ids=start.topic_ids
    )


@pytest.fixture
def instances(broker: Broker, topic_name: Callable[[str], str], tmp_path: Path) -> Instances:
    """A checkpoint on which one instance has committed batch 0 of both shards."""
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
    location = str(tmp_path / "checkpoint")
    birth = newborn(location, plan, SHARDS, Inputs(plan, kafka).start())
    return Instances(plan, Settings(location, kafka, shards=SHARDS), birth)


def test_what_the_older_instance_commits_while_it_is_taken_over_is_not_done_again(
    instances: Instances,
) -> None:
    """R5. The older one's task comes between the newer one's look at a marker and its own.

    The newer instance fences shard 0 and reads its marker, of batch 0.  Then a task of
    the older instance begins: it fences the newer one, finds no greater incarnation and
    commits batch 1.  If the newer instance now wrote the marker that it had read, of
    batch 0, batch 1 would be made a second time.
    """
    older = instances.take_over()
    instances.mint()
    for shard in range(SHARDS):
        instances.run(older, shard, 0)
    instances.committed = 0
    instances.mint()
    newer = instances.take_over(accepted=lambda: void(instances.run(older, 0, 1)))
    with pytest.raises(FencedError, match="has taken over"):
        instances.run(older, 1, 1)
    for shard in range(SHARDS):
        instances.run(newer, shard, 1)
    expected = [
        (key, value, {"time": time, "diff": diff})
        for key in KEYS
        for value, time, diff in [(b"0", b"0", b"1"), (b"0", b"1", b"-1"), (b"1", b"1", b"1")]
    ]
    assert sorted(instances.updates(), key=repr) == sorted(expected, key=repr)


def test_a_batch_that_is_logged_while_it_is_taken_over_is_no_roll_back(
    instances: Instances,
) -> None:
    """The older one logs and commits batch 1 right after the newer one has read the log.

    The marker of batch 1 lies beyond the log that the newer one saw; the checkpoint is
    sound all the same.
    """
    older = instances.take_over()
    instances.mint()
    for shard in range(SHARDS):
        instances.run(older, shard, 0)
    instances.committed = 0

    def look() -> Logged:
        found = instances.logged()
        instances.mint()
        instances.run(older, 0, 1)
        return found

    newer = instances.take_over(look=look)
    for shard in range(SHARDS):
        instances.run(newer, shard, 1)
    assert len(instances.updates()) == 6


def test_a_batch_is_adopted_without_reading_if_all_shards_have_committed_it(
    instances: Instances,
) -> None:
    """R19. Killed before Spark committed batch 1: with one shard missing it is read again."""
    first = instances.take_over()
    instances.mint()
    for shard in range(SHARDS):
        instances.run(first, shard, 0)
    instances.committed = 0
    offset = instances.mint()
    instances.run(first, 0, 1)
    second = instances.take_over()
    assert second.adopted != offset.digest()
    instances.run(second, 1, 1)
    assert instances.take_over().adopted == offset.digest()


def void(_: object) -> None:
    """Drop a result."""
