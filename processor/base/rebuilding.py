"""The rebuild of a lost checkpoint's state from the topics that the pipeline reads and writes.

The new state begins at a time `begin` beyond all times that the lost one has written.  Its inputs
are read once more, up to the ends that they had when the recovery was decided.  Meanwhile outputs
are frozen at the end of their progress.  The hold of an output adds up the results of the plan
minus the contents of the output's own topic; the batch that `ends` the rebuild writes the sum, the
difference, at `begin`.  So all outputs have one consistent state from that time on.  Times between
the end of an output's progress and `begin` are given up: the output keeps its old contents there,
although outputs may have been closed up to different times.

Updates of a batch of the lost checkpoint that was not closed are retracted at their own times,
since readers have not seen these times as complete.
"""

from collections.abc import Mapping

import msgspec

# By topic, by partition.
_Positions = dict[str, dict[int, int]]


class Rebuilding(msgspec.Struct, frozen=True):
    """A rebuild of a state.

    * `begin`: the time at which the new state begins, beyond all updates in the topics of outputs,
      and at which these get the difference.
    * `until`: the offsets up to which inputs are read for it, by topic and partition.
    * `stands`: the time up to which each output was closed before.
    * `unclosed`: the numbers of update records that outputs have at later times.
    * `ends`: whether the batch is the last one of the rebuild.
    """

    begin: int
    until: _Positions
    stands: dict[str, int]
    unclosed: dict[str, int] = {}
    ends: bool = False

    def readable(self, ends: Mapping[str, Mapping[int, int]]) -> _Positions:
        """Limit the ends of inputs to the offsets that are read for the new state."""
        return {
            topic: {p: min(end, by[p]) for p, end in ends[topic].items() if p in by}
            for topic, by in self.until.items()
            if topic in ends
        }

    def for_shards(self) -> "Rebuilding":
        """Leave out the fields that shards do not need."""
        return msgspec.structs.replace(self, until={})

    def after(
        self, positions: Mapping[str, Mapping[int, int]], upper: int, *, is_level: bool
    ) -> "Rebuilding":
        """Decide whether a batch that reads up to `positions` is the last one.

        If it `is_level`, no updates are between operators, and the topics of outputs are read to
        their ends.
        """
        is_read = all(
            positions.get(topic, {}).get(partition, 0) >= end
            for topic, by in self.until.items()
            for partition, end in by.items()
        )
        # The difference has a time of its own, before the last upper.
        return msgspec.structs.replace(self, ends=is_read and is_level and upper > self.begin)


def under_way(rebuilding: Rebuilding | None) -> Rebuilding | None:
    """The rebuild that continues after a batch; None without one, or after its last batch."""
    return None if rebuilding is None or rebuilding.ends else rebuilding
