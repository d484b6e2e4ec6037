"""A batch as Spark's offset log has it: the durable mapping from Kafka's offsets to our times."""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from ikebana.processor.base.rebuilding import Rebuilding, under_way
from ikebana.processor.planning import progress
from ikebana.processor.topics.input_times import InputTimes

# By topic, by partition.
Positions = dict[str, dict[int, int]]


class ReadBackSpan(msgspec.Struct, array_like=True, frozen=True):
    """Offsets of a partition: a batch reads from `start` up to `to`, all batches up to `end`."""

    start: int
    to: int
    end: int


# By topic, by partition.
ReadBack = dict[str, dict[int, ReadBackSpan]]


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
    * `hydrating`: the new joins that still lack rows from before they began, with the time at
      which they begin; with `hydrates`, this batch gives them a portion of these rows, or of
      the state if it `fills`.
    * `began`: the joins that have got these rows, with the same times, until these are closed.
    * `edits`: how often the plan has been edited.
    * `editing`: the frontier of the last edit, until all operators are past it, else 0; with
      `fills`, this batch takes a portion of the state through the old and the new plan.  That
      of an edit before the first closed time is 0 too.
      Several edits may be made at one frontier, one after the other.
    * `filled`: this is the batch after the last portion, in which frozen outputs go on.
    * `read_back`: while an edit or a rebuild retracts contents of outputs, the positions in
      their topics.
    * `writes`: the outputs that are frozen at the edit's time and write a portion of the updates
      that they get at it; `wrote`: those that did in the batch before, and are closed by this one.
    * `rebuilding`: the rebuild of the state of a lost checkpoint.
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
    hydrating: dict[str, int] = {}
    hydrates: bool = False
    edits: int = 0
    editing: int = 0
    fills: bool = False
    began: dict[str, int] = {}
    filled: bool = False
    firsts: Positions = {}
    read_back: ReadBack = msgspec.field(default_factory=dict, name="own")
    writes: list[str] = []
    wrote: list[str] = []
    rebuilding: Rebuilding | None = None

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON object that Spark logs."""
        built: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return built

    @classmethod
    def from_json(cls, logged: Mapping[str, Any]) -> "SourceOffset":
        """Convert from the JSON object that Spark logged."""
        return msgspec.convert(logged, cls, strict=False)

    @property
    def begun_at_edit(self) -> tuple[str, ...]:
        """The joins that an earlier edit began at the same frontier."""
        return tuple(sorted(join for join, at in self.began.items() if at == self.editing))

    @property
    def asks_shards(self) -> bool:
        """Whether the next batch depends on the progress that shards report of this one."""
        return bool(self.hydrating or self.editing or self.fills)

    def records_since(self, before: "SourceOffset") -> int:
        """Count the offsets that batches after `before`, up to this one, have read."""
        read, first = before.positions, self.begins
        return sum(
            end - read.get(topic, {}).get(partition, first.get(topic, {}).get(partition, 0))
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
    is_under_way = last.hydrating or last.fills or last.writes or under_way(last.rebuilding)
    return progress.is_level(last.frontiers) and not is_under_way
