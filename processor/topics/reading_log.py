"""Which records of an input with event times were late or too far ahead when they were read.

An edit may have to read the records again, and each has to count at the same time as before.  A
record counts at its own time, unless it was late, and counted at the frontier, or too far ahead
of the clock.  The log has both kinds as ranges of offsets.  It also has some of the frontiers,
each with the offsets up to which the input had been read.  No record after these offsets counts
before the frontier, so a second reading that is past them may close all times before it.
"""

# Decision (a log of the first reading): Which records were late depends on the batches of then,
# which no topic tells. Places in each key's state are not enough for partial images and state
# machines; a first pass over the topic does not tell who was late.

import msgspec

from ikebana.processor.base.offsets import Offsets, Positions, have_reached
from ikebana.processor.base.rows import Judged

# Every batch logs all of it, so it must stay small.
MOST_JUDGED = 1_000
_MOST_OFFSETS = 3_000
_MOST_REACHED = 256
_LEAST_REACHED = 8


class Reached(msgspec.Struct, array_like=True, frozen=True):
    """A frontier: no record at or after these offsets counts before it."""

    frontier: int
    positions: Positions


class ReadingLog(msgspec.Struct, frozen=True, omit_defaults=True):
    """The log of one input.

    * `judged`: the late and too early records, by topic and partition, in order of offsets.
    * `reached`: in order of frontiers.
    * `every`: one of so many batches that move the frontier is in `reached`; `count` have come
      since the last one.
    * `is_full`: there were more such records than fit into the log, which is therefore empty.
    """

    judged: dict[str, dict[int, list[Judged]]] = {}
    reached: list[Reached] = []
    every: int = 1
    count: int = 0
    is_full: bool = False

    def with_judged(self, topic: str, partition: int, judged: Judged) -> "ReadingLog":
        """Add a range of offsets from a batch; batches come in their order."""
        if self.is_full:
            return self
        earlier = self.judged.get(topic, {}).get(partition, [])
        added = sorted([*earlier, judged], key=lambda each: each.first)
        merged = added[:1]
        for each in added[1:]:
            last = merged[-1]
            if (last.lower, last.latest) == (each.lower, each.latest):
                # The frontier has not moved in between, so it holds for all offsets between them.
                merged[-1] = msgspec.structs.replace(last, last=max(last.last, each.last))
            else:
                merged.append(each)
        of_topic = {**self.judged.get(topic, {}), partition: merged}
        return msgspec.structs.replace(self, judged={**self.judged, topic: of_topic})

    def with_frontier(self, frontier: int, positions: Offsets) -> "ReadingLog":
        """Add the frontier after a batch, and the offsets up to which it has read."""
        earlier = self.reached
        if frontier <= (earlier[-1].frontier if earlier else 0) or self.is_full:
            return self
        if self.count + 1 < self.every:
            return msgspec.structs.replace(self, count=self.count + 1)
        newest = Reached(frontier, {topic: dict(by) for topic, by in positions.items()})
        reached, every = [*earlier, newest], self.every
        offsets = sum(map(len, positions.values()))
        most = max(_LEAST_REACHED, min(_MOST_REACHED, _MOST_OFFSETS // max(offsets, 1)))
        if len(reached) > most:
            reached, every = reached[1::2], 2 * every
        return msgspec.structs.replace(self, reached=reached, every=every, count=0)

    def limited(self) -> "ReadingLog":
        """The log itself; an empty one marked as full if it has too many ranges."""
        count = sum(len(ranges) for by in self.judged.values() for ranges in by.values())
        return ReadingLog(is_full=True) if count > MOST_JUDGED else self

    def closed(self, positions: Offsets) -> int:
        """The frontier of a second reading that has reached these offsets."""
        return max(
            (each.frontier for each in self.reached if have_reached(positions, each.positions)),
            default=0,
        )

    def within(self, topic: str, partition: int, start: int, end: int) -> tuple[Judged, ...]:
        """The logged ranges that overlap the offsets from `start` up to `end`."""
        ranges = self.judged.get(topic, {}).get(partition, ())
        return tuple(each for each in ranges if each.first < end and each.last >= start)
