"""What outputs have had, taken back out of their own topics by an edit of the plan.

Where nothing else has the old collection of an output that changes (`Edit.own_topics`), its topic
has it, as of the edit's time t: all that is in the topic when the edit's first batch is minted has
times before t, and until the edit is filled the output writes nothing.  So the ends of then are
logged with that batch, and each batch of the fill reads a share.  The updates are negated, and go
straight to the hold of the output.  A topic that has lost its beginning is read from a snapshot
on, which lies in a topic of its own.

The positions are none of inputs: nothing is counted, and no time goes on with them.
"""

# Decision (own topics only where nothing else has it): State is ordered and at hand; a topic
# needs another right. Its records go negated to the output's hold, past all operators: no new
# state, no new kernel. An input of updates would have kept the whole collection.

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ikebana.codecs.snapshot_record import SnapshotRecord, topic_of
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.source_offset import Own, SourceOffset, Span

# The offsets to read of topics, by topic and partition: from the first up to the second.
Ends = Mapping[str, Mapping[int, tuple[int, int]]]


class OwnRange(NamedTuple):
    """Offsets of an output's own topic, or of its snapshots, that a batch takes back.

    All of its updates are of times before `time`, at which the edit begins, or the state that is
    made anew.  Those of times before `open` are closed, and count at the time `at`; later ones
    are taken back at their own times.
    """

    output: str
    topic: str
    partition: int
    start: int
    end: int
    time: int
    open: int
    at: int


def to_read(
    topic: str,
    begins: Mapping[int, int],
    ends: Mapping[int, int],
    snapshot: SnapshotRecord | None,
) -> Ends:
    """What is to be read for the collection of a topic: all of it, or what follows a snapshot."""
    if snapshot is None:
        return {topic: {p: (begins[p], end) for p, end in ends.items()}}
    after = snapshot.last.ends
    return {
        topic_of(topic): {p: (start, snapshot.ends[p]) for p, start in snapshot.starts.items()},
        topic: {p: (after.get(p, 0), end) for p, end in ends.items()},
    }


def begun(ends: Ends) -> Own:
    """The positions before the first batch that reads."""
    return {
        topic: {p: Span(start, start, max(start, end)) for p, (start, end) in by.items()}
        for topic, by in ends.items()
    }


def advanced(own: Mapping[str, Mapping[int, Span]], limit: int | None) -> Own:
    """The positions after another batch, of about `limit` offsets."""
    lag = left(own)
    share = lag if limit is None else min(limit, lag)
    return {
        topic: {
            p: Span(at.to, at.to + -(-(at.end - at.to) * share // lag) if lag else at.to, at.end)
            for p, at in by.items()
        }
        for topic, by in own.items()
    }


def left(own: Mapping[str, Mapping[int, Span]]) -> int:
    """Count the offsets that are still to be read."""
    return sum(at.end - at.to for by in own.values() for at in by.values())


def read_in(plan: Plan, read_back: Mapping[str, str], after: SourceOffset) -> Mapping[str, str]:
    """The names of the outputs, by topic, that a batch may read.

    State that is made anew takes all of them back, an edit only those of `Edit.read_back`.  The
    batch with which the state is complete is of the former, and may be the last before an edit.
    """
    if after.rebuilding is None:
        return read_back
    return {output.topic: output.name for output in plan.published}


def ranges(outputs: Mapping[str, str], after: SourceOffset) -> Iterator[OwnRange]:
    """Yield what a batch reads; `outputs` has the name of each output by its topic."""
    named = {**{topic_of(topic): name for topic, name in outputs.items()}, **outputs}
    for topic, by in sorted(after.own.items()):
        for partition, at in sorted(by.items()):
            if at.to > at.start:
                name = named[topic]
                yield OwnRange(name, topic, partition, at.start, at.to, *_times(name, after))


def _times(name: str, after: SourceOffset) -> tuple[int, int, int]:
    rebuilding, time = after.rebuilding, after.editing
    if rebuilding is None:
        return time, time, time - 1
    return rebuilding.begin, rebuilding.stands[name], rebuilding.begin
