"""A batch as Spark's offset log has it: the durable mapping from Kafka's offsets to our times.

The offset before the first batch says where a new checkpoint begins to read.  An input with a
history begins with its files.  A diff topic that was compacted begins at a snapshot, and its
earlier contents are not known.  So the plan begins at the latest time of the snapshots: earlier
updates of all inputs count at that time, and outputs have no earlier times.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ikebana.codecs.diff import SnapshotRecord, topic_of
from ikebana.processor.base.offsets import Positions, offset_in
from ikebana.processor.base.transition import NO_TRANSITION, Transition
from ikebana.processor.planning import progress
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.input_times import Base, InputTimes, RowFile


class SourceOffset(msgspec.Struct, frozen=True):
    """A batch as the offset log has it: its interval, its plan, and the offsets it reads up to.

    * `positions`: the offsets up to which topics are read, by topic and partition; for an input
      that is read again by `Plan.position_key`.
    * `plan`: the fingerprint of the plan.
    * `frontiers`: the frontier of each operator after the batch.
    * `begins`: the first offsets of partitions that no earlier batch has read.
    * `firsts`: the first offsets that were read of topics that an edit has added.
    * `topic_ids`: the ids of the topics, by which a recreated topic is recognized.
    * `behind`: the number of offsets that later batches have to read.
    * `exchanges`: the offsets up to which the exchange topic is read, by shard.
    * `input_times`: the knowledge about inputs with times of their own.
    * `now`: the clock, if times are dated, else 0.
    * `transition`: the edit of the plan, or the rebuild of a lost state, that is under way.
    """

    batch: int
    lower: int
    upper: int
    positions: Positions
    plan: str
    frontiers: dict[str, int] = {}
    begins: Positions = {}
    topic_ids: dict[str, str] = {}
    behind: int = 0
    exchanges: dict[int, int] = {}
    input_times: dict[str, InputTimes] = msgspec.field(default_factory=dict, name="known")
    now: int = 0
    firsts: Positions = {}
    transition: Transition = NO_TRANSITION

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON object that Spark logs."""
        built: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return built

    @classmethod
    def from_json(cls, logged: Mapping[str, Any]) -> "SourceOffset":
        """Convert from the JSON object that Spark logged."""
        return msgspec.convert(logged, cls, strict=False)

    def records_since(self, before: "SourceOffset") -> int:
        """Count the offsets that batches after `before`, up to this one, have read."""
        return sum(
            end - offset_in(topic, partition, before.positions, self.begins)
            for topic, ends in self.positions.items()
            for partition, end in ends.items()
        )

    def digest(self) -> str:
        """Hash this offset for commit records: a replay of the same batch has the same hash."""
        plain = msgspec.json.encode(self.to_json(), order="sorted")
        return hashlib.sha256(plain).hexdigest()[:16]


def is_settled(last: SourceOffset) -> bool:
    """Whether no update is in flight between operators, so that another plan may continue.

    All portions of an earlier edit, and of new joins, are then done.  The time of the edit need
    not be closed: outputs hold its updates, and the next edit adds to them.
    """
    return progress.is_level(last.frontiers) and last.transition.is_settled


# Decision (checkpoints begin at a topic's beginning): Rows of other inputs may be older than a
# snapshot, and would be late. Readers of one topic, which have no such inputs, begin at the
# newest snapshot.


def started(
    plan: Plan,
    positions: Positions,
    topic_ids: Mapping[str, str],
    snapshots: Mapping[str, SnapshotRecord],
    histories: Mapping[str, Sequence[RowFile]] = {},
) -> SourceOffset:
    """Make the offset before the first batch.

    It begins at the `snapshots` by topic, and has the files of the `histories` by input.
    """
    begin = max((record.time for record in snapshots.values()), default=0)
    times = {}
    for source in plan.inputs:
        if source.traits.kind == "updates" and (snapshot := snapshots.get(source.topics[0])):
            times[source.name] = InputTimes(
                progress_at=snapshot.progress_at,
                checkpoint=snapshot.last.checkpoint,
                base=Base(topic_of(source.topics[0]), snapshot.starts, snapshot.ends),
            )
        if files := histories.get(source.name):
            times[source.name] = InputTimes(
                base=Base(
                    source.history_topic,
                    dict.fromkeys(range(len(files)), 0),
                    {at: file.rows for at, file in enumerate(files)},
                    [*files],
                )
            )
    return SourceOffset(
        batch=-1,
        lower=begin,
        upper=begin,
        positions={**positions, **{topic: dict(r.last.ends) for topic, r in snapshots.items()}},
        plan=plan.fingerprint(),
        frontiers=dict.fromkeys(progress.edges(plan), begin) if begin else {},
        topic_ids=dict(topic_ids),
        input_times=times,
    )
