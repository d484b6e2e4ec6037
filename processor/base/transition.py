"""A transition of a pipeline: to another plan, or to the state that a lost checkpoint had.

Something new (an operator, a join, an output, a whole state) needs the past that came before it.
It gets this in portions, as of one time, while everything else goes on and outputs that change are
frozen at that time; then these get the difference.  `NEXT` is the table of the phases of that, and
the phase is logged with each batch.

In a rebuild all of the state is new.  It begins at a time beyond all times that the lost state
has written.  The inputs are read once more, up to the ends that they had when the recovery was
decided, and the contents of outputs are read from their own topics.  The hold of an output adds up
the results of the plan minus these contents, and writes the sum, the difference, in the last
batch.  So all outputs have one consistent state from that time on.  Times between the end of an
output's progress and that time are given up: the output keeps its old contents there, although
outputs may have been closed up to different times.

Updates of a batch of the lost checkpoint that was not closed are retracted at their own times,
since readers have not seen these times as complete.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from ikebana.processor.base.offsets import Offsets, Positions, have_reached


class Phase(StrEnum):
    """The phase of a transition in a batch: the first in this order that is not done."""

    REBUILD = "rebuild"
    """Inputs and outputs' own topics are read for a new state; all outputs are frozen."""
    REBUILT = "rebuilt"
    """The last batch of a rebuild: outputs get the difference."""
    FILL = "fill"
    """Portions of the state go through the old plan and the new one."""
    JOIN = "join"
    """New joins get portions of the rows from before they began."""
    WRITE = "write"
    """Outputs write a large difference in portions."""
    CLOSE = "close"
    """Outputs hold what they get at the transition's time until this is closed."""
    SETTLED = "settled"
    """Nothing is under way."""


# By phase, the phases that may follow, and why each does.  A phase may also last.  An edit at time
# 0, from before the first closed time, has nothing to close.
NEXT: Mapping[Phase, Mapping[Phase, str]] = {
    Phase.SETTLED: {Phase.FILL: "another plan"},
    Phase.FILL: {
        Phase.JOIN: "new joins",
        Phase.WRITE: "large",
        Phase.CLOSE: "not large",
        Phase.SETTLED: "at time 0",
    },
    Phase.JOIN: {Phase.WRITE: "large", Phase.CLOSE: "not large", Phase.SETTLED: "at time 0"},
    Phase.WRITE: {Phase.CLOSE: "written"},
    Phase.CLOSE: {Phase.SETTLED: "closed", Phase.WRITE: "large", Phase.FILL: "another plan"},
    Phase.REBUILD: {Phase.REBUILT: "all is read"},
    Phase.REBUILT: {Phase.SETTLED: "written", Phase.FILL: "another plan"},
}


class ReadBackSpan(msgspec.Struct, array_like=True, frozen=True):
    """Offsets of a partition: a batch reads from `start` up to `to`, all batches up to `end`."""

    start: int
    to: int
    end: int


# By topic, by partition.
ReadBack = dict[str, dict[int, ReadBackSpan]]


class Rebuilding(msgspec.Struct, frozen=True):
    """What a rebuild knows of the lost checkpoint.

    * `until`: the offsets up to which inputs are read for it, by topic and partition.
    * `stands`: the time up to which each output was closed before.
    * `unclosed`: the numbers of update records that outputs have at later times.
    """

    until: Positions
    stands: dict[str, int]
    unclosed: dict[str, int] = {}

    def readable(self, ends: Offsets) -> Positions:
        """Limit the ends of inputs to the offsets that are read for the new state."""
        return {
            topic: {p: min(end, by[p]) for p, end in ends[topic].items() if p in by}
            for topic, by in self.until.items()
            if topic in ends
        }

    def is_read(self, positions: Offsets) -> bool:
        """Whether `positions` have reached the offsets up to which inputs are read."""
        return have_reached(positions, self.until)


class Transition(msgspec.Struct, frozen=True, omit_defaults=True):
    """The transition that a batch belongs to, as it is logged and sent to every shard.

    * `edits`: how often the plan has been edited.
    * `at`: the time at which new parts begin, and at which outputs are frozen and get the
      difference: the frontier of the last edit, or that of a rebuild, until all operators are
      past it, else 0.  That of an edit before the first closed time is 0 too.  Several edits may
      be made at one frontier, one after the other.
    * `phase`, and `was`: the phase of this batch, and of the one before.
    * `takes`: this batch takes a portion of the past, for the edit while it fills, else for the
      joins.
    * `joins`: the new joins that still lack rows from before they began.
    * `began`: the joins that have got these rows, until the time is closed: no output has their
      initial results yet.
    * `read_back`: while contents of outputs are retracted, the positions in their topics.
    * `writing`: the outputs that are frozen at the time and write a portion of the updates that
      they get at it; `wrote`: those that did in the batch before, and are closed by this one.
    * `rebuilding`: what a rebuild of a lost state knows.
    """

    edits: int = 0
    at: int = 0
    phase: Phase = Phase.SETTLED
    was: Phase = Phase.SETTLED
    takes: bool = False
    joins: list[str] = []
    began: list[str] = []
    read_back: ReadBack = {}
    writing: list[str] = []
    wrote: list[str] = []
    rebuilding: Rebuilding | None = None

    def is_behind(self, edits: int) -> bool:
        """Whether the plan, edited so often, has an edit of which no batch is logged."""
        return self.edits < edits

    @property
    def fills(self) -> bool:
        """Whether the batch takes portions of the state through the old and the new plan."""
        return self.phase is Phase.FILL

    @property
    def is_filled(self) -> bool:
        """Whether the batch before has taken the last portion, so that frozen outputs go on."""
        return self.was is Phase.FILL and not self.fills

    @property
    def rebuilds(self) -> bool:
        """Whether the batch belongs to a rebuild, which may end with it."""
        return self.phase in (Phase.REBUILD, Phase.REBUILT)

    @property
    def is_edit(self) -> bool:
        """Whether the batch belongs to an edit, which has the time 0 if none was closed before."""
        return bool(self.at or self.fills or self.is_filled) and not self.rebuilds

    @property
    def asks_shards(self) -> bool:
        """Whether the next batch depends on the progress that shards report of this one."""
        return self.phase in (Phase.FILL, Phase.JOIN, Phase.WRITE, Phase.CLOSE)

    @property
    def gives_up(self) -> int:
        """In the last batch of a rebuild, the time before which outputs give times up; else 0."""
        return self.at if self.phase is Phase.REBUILT else 0

    def freezes(self, output: str) -> bool:
        """Whether progress reports neither times nor end offsets of an output."""
        return self.phase is Phase.REBUILD or output in self.writing

    @property
    def is_settled(self) -> bool:
        """Whether another plan may follow: no portion is missing, and outputs hold the rest."""
        return Phase.FILL in NEXT[self.phase]

    @property
    def join_times(self) -> dict[str, int]:
        """The joins that lack rows, with the time at which they begin."""
        return dict.fromkeys(self.joins, self.at)

    def next(self, phase: Phase, **changes: Any) -> "Transition":
        """Move to the phase of the next batch, which the table of phases allows."""
        result = msgspec.structs.replace(self, phase=phase, was=self.phase, **changes)
        assert result.follows(self), f"no transition goes from {self.phase} to {phase}"
        return result

    def follows(self, before: "Transition") -> bool:
        """Whether the table of phases has a way from the batch before to this one."""
        is_edge = self.phase is before.phase or self.phase in NEXT[before.phase]
        return self.was is before.phase and is_edge

    def for_shards(self) -> "Transition":
        """Leave out the fields that shards do not need."""
        of = self.rebuilding
        rebuilding = None if of is None else msgspec.structs.replace(of, until={})
        return msgspec.structs.replace(self, read_back={}, rebuilding=rebuilding)


NO_TRANSITION = Transition()


class Replayed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What shards report of a transition in a batch, from which the next one is minted.

    * `joins`: the new joins that have all rows from before they began.
    * `large`: the outputs with more at the transition's time than a batch should write.
    * `is_filled`: the shard has taken the last portion of an edit.
    """

    joins: list[str] = []
    large: list[str] = []
    is_filled: bool = False

    @classmethod
    def by_all(cls, reports: Sequence["Replayed"]) -> "Replayed":
        """What is done in all shards, and is large in any."""
        joins = set.intersection(*({*each.joins} for each in reports))
        large = {name for each in reports for name in each.large}
        return cls(sorted(joins), sorted(large), all(each.is_filled for each in reports))


NOTHING_REPLAYED = Replayed()
