"""Retracting the old contents of outputs in an edit, by reading their own topics.

If no state has the old contents of an output that changes (`Edit.own_topics`), its topic has them,
as of the edit's time t: all messages in the topic when the edit's first batch is minted have times
before t, and until the edit is filled the output writes nothing.  So the end offsets at that
moment are logged with that batch, and each batch of the fill reads a share.  The updates are
negated, and go straight to the hold of the output.  A topic that has lost its beginning is read
from a snapshot on, which is in a topic of its own.
"""

# Decision (own topics only where nothing else has it): State is ordered and at hand; a topic
# needs another right. Its records go negated to the output's hold, past all operators: no new
# state, no new kernel. An input of updates would have kept the whole collection.

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ikebana.arrangements.update import pieces, sums
from ikebana.codecs.cdcv2 import Progress
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.snapshot_record import SnapshotRecord, topic_of
from ikebana.errors import SourceError
from ikebana.processor.base import diff_reader
from ikebana.processor.base.offsets import portion
from ikebana.processor.base.rows import KeyedUpdate, Updates, pack
from ikebana.processor.base.sharding import shard_of
from ikebana.processor.base.transition import ReadBack, ReadBackSpan, Transition
from ikebana.processor.planning.plan import Output, Plan
from ikebana.processor.topics.messages import Message

# The offsets to read of topics, by topic and partition: from the first up to the second.
Ends = Mapping[str, Mapping[int, tuple[int, int]]]


class OwnRange(NamedTuple):
    """Offsets of an output's own topic, or of its snapshots, that a batch retracts.

    All of its updates have times before `time`, at which the edit or the rebuild begins.  Updates
    of times before `open` are closed, and are retracted at the time `at`; later ones are retracted
    at their own times.
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
    """The offsets to read for the collection of a topic: all, or a snapshot and what follows."""
    if snapshot is None:
        return {topic: {p: (begins[p], end) for p, end in ends.items()}}
    after = snapshot.last.ends
    return {
        topic_of(topic): {p: (start, snapshot.ends[p]) for p, start in snapshot.starts.items()},
        topic: {p: (after.get(p, 0), end) for p, end in ends.items()},
    }


def begun(ends: Ends) -> ReadBack:
    """The positions before the first batch that reads them."""
    return {
        topic: {p: ReadBackSpan(start, start, max(start, end)) for p, (start, end) in by.items()}
        for topic, by in ends.items()
    }


def advanced(positions: Mapping[str, Mapping[int, ReadBackSpan]], limit: int | None) -> ReadBack:
    """The positions after another batch, of about `limit` offsets."""
    starts = {topic: {p: at.to for p, at in by.items()} for topic, by in positions.items()}
    ends = {topic: {p: at.end for p, at in by.items()} for topic, by in positions.items()}
    until = portion(starts, ends, limit)
    return {
        topic: {p: ReadBackSpan(at.to, until[topic][p], at.end) for p, at in by.items()}
        for topic, by in positions.items()
    }


def left(positions: Mapping[str, Mapping[int, ReadBackSpan]]) -> int:
    """Count the offsets that were not read yet."""
    return sum(at.end - at.to for by in positions.values() for at in by.values())


def read_in(plan: Plan, read_back: Mapping[str, str], transition: Transition) -> Mapping[str, str]:
    """The names of the outputs, by topic, that a batch may read.

    A rebuild retracts all of them, an edit only those of `Edit.read_back`.  The last batch of a
    rebuild belongs to it, even if an edit follows.
    """
    if not transition.rebuilds:
        return read_back
    return {output.topic: output.name for output in plan.published}


def ranges(outputs: Mapping[str, str], transition: Transition) -> Iterator[OwnRange]:
    """Yield the ranges that a batch reads; `outputs` has the name of each output by its topic."""
    named = {**{topic_of(topic): name for topic, name in outputs.items()}, **outputs}
    for topic, by in sorted(transition.read_back.items()):
        for partition, at in sorted(by.items()):
            if at.to > at.start:
                name = named[topic]
                yield OwnRange(name, topic, partition, at.start, at.to, *_times(name, transition))


def _times(name: str, transition: Transition) -> tuple[int, int, int]:
    rebuilding, time = transition.rebuilding, transition.at
    return (time, time, time - 1) if rebuilding is None else (time, rebuilding.stands[name], time)


def taken_back(
    plan: Plan, piece: OwnRange, messages: Sequence[Message], shards: int
) -> Iterator[tuple[int, bytes]]:
    """Pack the negated sums of a range of messages, by shard.

    Raises: SourceError, if a message has no updates of times before the edit's.
    """
    rows = [Updates([piece.output], [], [], [], [], counted=True) for _ in range(shards)]
    for (key, value, time), total in sums(_as_of(piece, _updates(plan, piece, messages))).items():
        row = rows[shard_of(value if key is None else key, shards)]
        for diff in pieces(-total):
            row.keys.append(key)
            row.values.append(value)
            row.times.append(time)
            row.diffs.append(diff)
    yield from ((shard, pack(row)) for shard, row in enumerate(rows) if row.keys)


def _as_of(piece: OwnRange, updates: Iterable[KeyedUpdate]) -> Iterator[KeyedUpdate]:
    """Updates with the time at which they are retracted."""
    for update in updates:
        if update.time >= piece.time:
            raise SourceError(
                f"cannot take back {piece.topic}[{piece.partition}]: its time {update.time} is "
                f"not before {piece.time}, where all that the pipeline has written ends",
                hint="Something other than this pipeline has written to the topic.",
            )
        yield update if update.time >= piece.open else update._replace(time=piece.at)


def _updates(plan: Plan, piece: OwnRange, messages: Sequence[Message]) -> Iterator[KeyedUpdate]:
    output = next(each for each in plan.published if each.name == piece.output)
    for message in messages:
        try:
            yield from updates_of(output, piece.topic, piece.partition, message)
        except DecodeError as error:
            raise SourceError(
                f"cannot take back {piece.topic}[{piece.partition}]@{message.offset}: "
                f"{error.reason}",
                hint="Something other than this pipeline has written to the topic.",
            ) from None


def updates_of(output: Output, topic: str, partition: int, message: Message) -> list[KeyedUpdate]:
    """The updates in a message of an output's own topic, or of its snapshots.

    Raises:
        DecodeError: the message does not have the output's format, which is one of facts.
        SourceError: it is no update, for any other output.
    """
    if output.traits.facts is not None:
        content = output.traits.facts().decode(message.value)
        if isinstance(content, Progress):
            return []
        return [KeyedUpdate(*fact) for fact in content.updates]
    place = partition, message.offset
    update = diff_reader.decode(topic, place, message.key, message.value, message.headers)
    return [KeyedUpdate(update.key, update.value, update.time, update.diff)]
