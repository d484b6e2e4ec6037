"""A batch as Spark's offset log has it: the durable mapping from Kafka's offsets to our times."""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from ikebana.processor.base.offsets import Positions, offset_in
from ikebana.processor.base.transition import NO_TRANSITION, Transition
from ikebana.processor.planning import progress
from ikebana.processor.topics.input_times import InputTimes


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
    * `hops`: the offsets up to which the exchange topic is read, by shard.
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
    hops: dict[int, int] = {}
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
        """Hash this offset for markers, by which a replay of the same batch is recognized."""
        plain = msgspec.json.encode(self.to_json(), order="sorted")
        return hashlib.sha256(plain).hexdigest()[:16]


def is_settled(last: SourceOffset) -> bool:
    """Whether no update is in flight between operators, so that another plan may continue.

    All portions of an earlier edit, and of new joins, are then done.  The time of the edit need
    not be closed: outputs hold its updates, and the next edit adds to them.
    """
    return progress.is_level(last.frontiers) and last.transition.is_settled
