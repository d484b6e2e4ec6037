"""How the records of an input with event times were judged when they were read.

An edit may have to read them again.  A record counts at its own time, but for a late one, which
counts at the frontier that there was, and one that was too far ahead of the clock then.  Both are
logged here, as ranges of offsets.  So are some of the frontiers with the offsets that had been
read by then.  By definition no record behind these offsets counts before the frontier.  So whoever
has read again as far may close all times before it.
"""

# Decision (a log of the first reading): Which records were late depends on the batches of then,
# which no topic tells. Places in each key's state are not enough for partial images and state
# machines; a first pass over the topic does not tell who was late.

from collections.abc import Mapping

import msgspec

from ikebana.processor.base.judged import Judged

# Every batch logs all of it, so it must stay small.
MOST_JUDGED = 1_000
_MOST_OFFSETS = 3_000
_MOST_REACHED = 256
_LEAST_REACHED = 8

Positions = Mapping[str, Mapping[int, int]]


class Reached(msgspec.Struct, array_like=True, frozen=True):
    """A frontier that no record at or behind these offsets counts before."""

    frontier: int
    positions: dict[str, dict[int, int]]


class ReadingLog(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of one input.

    * `judged`: by topic and partition, in order of offsets.
    * `reached`: in order of frontiers.
    * `every`: so many batches that move the frontier come for one that is in `reached`, and
      `count` of them have come since.
    * `is_full`: more records were judged than are logged, so it is not known how.
    """

    judged: dict[str, dict[int, list[Judged]]] = {}
    reached: list[Reached] = []
    every: int = 1
    count: int = 0
    is_full: bool = False

    def with_judged(self, topic: str, partition: int, found: Judged) -> "ReadingLog":
        """Add records that a batch has judged; batches come in their order."""
        if self.is_full:
            return self
        known = self.judged.get(topic, {}).get(partition, [])
        added = sorted([*known, found], key=lambda each: each.first)
        merged = added[:1]
        for each in added[1:]:
            last = merged[-1]
            if (last.lower, last.latest) == (each.lower, each.latest):
                # The frontier has not moved in between, so it is that of all between them.
                merged[-1] = msgspec.structs.replace(last, last=max(last.last, each.last))
            else:
                merged.append(each)
        of_topic = {**self.judged.get(topic, {}), partition: merged}
        return msgspec.structs.replace(self, judged={**self.judged, topic: of_topic})

    def with_frontier(self, frontier: int, positions: Positions) -> "ReadingLog":
        """Add the frontier after a batch, and the offsets up to which it has read."""
        known = self.reached
        if frontier <= (known[-1].frontier if known else 0) or self.is_full:
            return self
        if self.count + 1 < self.every:
            return msgspec.structs.replace(self, count=self.count + 1)
        found = Reached(frontier, {topic: dict(by) for topic, by in positions.items()})
        reached, every = [*known, found], self.every
        offsets = sum(map(len, positions.values()))
        most = max(_LEAST_REACHED, min(_MOST_REACHED, _MOST_OFFSETS // max(offsets, 1)))
        if len(reached) > most:
            reached, every = reached[1::2], 2 * every
        return msgspec.structs.replace(self, reached=reached, every=every, count=0)

    def limited(self) -> "ReadingLog":
        """The log, without what was judged if that is too much."""
        count = sum(len(found) for by in self.judged.values() for found in by.values())
        return ReadingLog(is_full=True) if count > MOST_JUDGED else self

    def closed(self, positions: Positions) -> int:
        """The times before this are complete for who has read again up to these offsets."""
        return max((each.frontier for each in self.reached if _covers(positions, each)), default=0)

    def within(self, topic: str, partition: int, start: int, end: int) -> tuple[Judged, ...]:
        """What was judged of the offsets from `start` up to `end`."""
        found = self.judged.get(topic, {}).get(partition, ())
        return tuple(each for each in found if each.first < end and each.last >= start)


def _covers(positions: Positions, reached: Reached) -> bool:
    return all(
        positions.get(topic, {}).get(partition, 0) >= offset
        for topic, by in reached.positions.items()
        for partition, offset in by.items()
    )
