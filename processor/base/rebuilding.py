"""The state of a lost checkpoint, made anew of the topics that the pipeline reads and has written.

The new state begins at a time `begin` beyond all that the lost one has written.  Its inputs are
read once more, up to the ends that they had when the recovery was decided.  Meanwhile outputs
stand where their progress ends.  What the plan makes, and minus what the output's own topic has,
add up in the hold of the output; what is left of it is the difference, which the batch that
`ends` this writes at `begin`.  So all outputs have one state from that time on.  The times since
an output was closed are given up: it shows what it had, and outputs may have been closed up to
others.

Where a batch of the lost checkpoint was not closed, its updates are taken back at their own
times: nobody has been told yet that these are complete.
"""

from collections.abc import Mapping

import msgspec

# By topic, by partition.
_Positions = dict[str, dict[int, int]]


class Rebuilding(msgspec.Struct, frozen=True):
    """A state that is being made anew.

    * `begin`: the time at which it begins, beyond all updates in the topics of outputs, and at
      which these get the difference.
    * `until`: the offsets up to which inputs are read for it, by topic and partition.
    * `stands`: the time up to which each output was closed before.
    * `unclosed`: the numbers of update records that outputs have at later times.
    * `ends`: whether the batch is the last one of it.
    """

    begin: int
    until: _Positions
    stands: dict[str, int]
    unclosed: dict[str, int] = {}
    ends: bool = False

    def readable(self, ends: Mapping[str, Mapping[int, int]]) -> _Positions:
        """Limit the ends of inputs to what is read for the new state."""
        return {
            topic: {p: min(end, by[p]) for p, end in ends[topic].items() if p in by}
            for topic, by in self.until.items()
            if topic in ends
        }

    def for_shards(self) -> "Rebuilding":
        """Leave out what shards need not know."""
        return msgspec.structs.replace(self, until={})

    def after(
        self, positions: Mapping[str, Mapping[int, int]], upper: int, *, is_level: bool
    ) -> "Rebuilding":
        """Tell whether a batch that reads up to `positions` is the last one.

        If it `is_level`, nothing is on its way between operators, and nothing is left to be read
        of the topics of outputs.
        """
        is_read = all(
            positions.get(topic, {}).get(partition, 0) >= end
            for topic, by in self.until.items()
            for partition, end in by.items()
        )
        # The difference has a time of its own, before the last upper.
        return msgspec.structs.replace(self, ends=is_read and is_level and upper > self.begin)


def under_way(found: Rebuilding | None) -> Rebuilding | None:
    """What goes on after a batch; None if no state is being made anew, or that was the last."""
    return None if found is None or found.ends else found
