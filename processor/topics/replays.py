"""What batches read again from topics: inputs (backfills), and outputs' own topics.

An input that is read again has operators of its own (`planning.backfill`).

* With event times, each record counts at the same time as when it was read first; the input's
  `ReadingLog` has these times.  They lie in the past, so the operators have intervals of their
  own, up to the frontier that the log has for the offsets read again so far.
  Records of later times wait as in any operator.  When the input has caught up, its operators
  have, too.
* Records without times of their own count when they are read, at the last closed time.

An output's own topic is read to retract its old contents, if no state has them
(`Edit.own_topics`).  The topic has them as of the edit's time t: all messages in the topic when
the edit's first batch is minted have times before t, and until the edit is filled the output
writes nothing.  So the end offsets at that moment are logged with that batch, and each batch of
the fill reads a share.  The updates are negated, and go straight to the hold of the output.  A
topic that has lost its beginning is read from a snapshot on, which is in a topic of its own.
"""

# Decision (own topics only where nothing else has it): State is ordered and at hand; a topic
# needs another right. Its records go negated to the output's hold, past all operators: no new
# state, no new kernel. An input of updates would have kept the whole collection.
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from ikebana.arrangements.update import Interval, pieces, sums
from ikebana.codecs.cdcv2 import Progress
from ikebana.codecs.diff import SnapshotRecord, topic_of
from ikebana.codecs.errors import DecodeError
from ikebana.errors import SourceError
from ikebana.processor.base import diff_reader
from ikebana.processor.base.offsets import Positions, offset_in, portion
from ikebana.processor.base.rows import KeyedUpdate, Updates, pack
from ikebana.processor.base.sharding import PartitionRange, shard_of
from ikebana.processor.base.transition import ReadBack, ReadBackSpan, Transition
from ikebana.processor.planning import progress
from ikebana.processor.planning.backfill import is_read_alike, origin_of, reads_again
from ikebana.processor.planning.plan import Input, Output, Plan
from ikebana.processor.topics.input_times import MOST_JUDGED, InputTimes
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.source_offset import SourceOffset

_BEGIN = 0


def learned_again(
    plan: Plan,
    last: SourceOffset,
    knowledge: Mapping[str, InputTimes],
    positions: Positions,
    upper: int,
) -> dict[str, InputTimes]:
    """Add the progress of inputs that are read again to the `knowledge` that a batch logs.

    The batch comes after `last`, reads up to `positions`, and closes times before `upper`.  An
    input that is read again has the knowledge of the input that read its topics first, and its
    own progress.
    """
    result = dict(knowledge)
    origins = {
        name: origin
        for name in plan.backfills
        if (origin := _dated_origin(plan, plan.input(name))) is not None
    }
    asked = {origin.name for origin in origins.values()}
    for source in plan.inputs:
        times = result.get(source.name)
        if times is None or source.event_time is None or source.name in plan.backfills:
            continue
        read = {t: last.positions[t] for t in source.topics if t in last.positions}
        log = times.log.with_frontier(last.upper, read)
        if source.name not in asked:
            log = log.limited()
        result[source.name] = msgspec.structs.replace(times, log=log, again=None)
    for name, origin in origins.items():
        source, times = plan.input(name), result.get(origin.name, InputTimes())
        reached = {t: positions.get(plan.position_key(source, t), {}) for t in source.topics}
        if all(reached[topic] == positions.get(topic, {}) for topic in source.topics):
            again = upper
        else:
            before = last.input_times.get(name, InputTimes()).again or _BEGIN
            again = max(before, times.log.closed(reached))
        result[name] = msgspec.structs.replace(times, again=again)
    return result


def why_not_placed(times: InputTimes | None) -> str | None:
    """Why the times at which an input's past records counted are not known; None if they are."""
    if times is None or not times.log.is_full:
        return None
    return f"more of its records were late than are logged ({MOST_JUDGED:,} ranges of offsets)"


def first_offsets(begun: Positions, last: SourceOffset) -> Positions:
    """The first offsets that were read of topics.

    `begun` has those at which the checkpoint began.
    """
    return {**begun, **last.firsts}


def begins(plan: Plan, first: Positions) -> Positions:
    """Where inputs that are read again begin: at the `first` offsets that were read of topics.

    The names are those of positions.
    """
    return {
        plan.position_key(source, topic): first[topic]
        for source in map(plan.input, plan.backfills)
        for topic in source.topics
        if topic in first
    }


def with_begins(present: Positions, first: Positions) -> Positions:
    """The first offsets of topics, replaced by those at which inputs are read again."""
    return {**present, **{key: {**present.get(key, {}), **by} for key, by in first.items()}}


def intervals(plan: Plan, before: SourceOffset, after: SourceOffset) -> dict[str, Interval]:
    """The interval of each operator in the batch between two offsets."""
    result = progress.intervals(before.frontiers, after.frontiers)
    if not (plan.is_dated and plan.backfills):
        return result
    for name in plan.backfills:
        source = plan.input(name)
        if source.event_time is None:
            interval = Interval(max(after.upper - 1, 0), after.upper)
        else:
            at = [
                offset.input_times.get(name, InputTimes()).again or _BEGIN
                for offset in (before, after)
            ]
            interval = Interval(*at)
        result |= dict.fromkeys(reads_again(plan, name), interval)
    return result


def split_at_past(
    plan: Plan,
    source: Input,
    place: PartitionRange,
    end: int,
    start: SourceOffset,
    after: SourceOffset,
) -> Iterator[tuple[PartitionRange, int]]:
    """Split the offsets of an input, from `place.start` up to `end`, where the past ends.

    Records of the past were read before, and get the same times as then.
    """
    if source.name not in plan.backfills:
        yield place, end
        return
    place = replace(place, again=True, reported=is_read_alike(plan, source))
    topic, partition = place.topic, place.partition
    present = offset_in(topic, partition, start.positions, after.begins)
    if place.start < (until := min(end, present)):
        past = place
        if source.event_time is not None:
            log = after.input_times[source.name].log
            past = replace(
                past,
                base=start.input_times.get(source.name, InputTimes()).again or _BEGIN,
                latest=None,
                judged=log.within(topic, partition, place.start, until),
            )
        yield past, until
    if end > (begin := max(place.start, present)):
        yield replace(place, start=begin), end


def _dated_origin(plan: Plan, source: Input) -> Input | None:
    return None if source.event_time is None else origin_of(plan, source)


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
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    snapshot: SnapshotRecord | None,
) -> Ends:
    """The offsets to read for the collection of a topic: all, or a snapshot and what follows."""
    if snapshot is None:
        return {topic: {p: (starts[p], end) for p, end in ends.items()}}
    after = snapshot.last.ends
    return {
        topic_of(topic): {p: (start, snapshot.ends[p]) for p, start in snapshot.starts.items()},
        topic: {p: (after.get(p, 0), end) for p, end in ends.items()},
    }


def nothing_read(ends: Ends) -> ReadBack:
    """The positions before the first batch that reads them."""
    return {
        topic: {p: ReadBackSpan(start, start, max(start, end)) for p, (start, end) in by.items()}
        for topic, by in ends.items()
    }


def positions_after(
    positions: Mapping[str, Mapping[int, ReadBackSpan]], limit: int | None
) -> ReadBack:
    """The positions after another batch, of about `limit` offsets."""
    starts = {topic: {p: at.to for p, at in by.items()} for topic, by in positions.items()}
    ends = {topic: {p: at.end for p, at in by.items()} for topic, by in positions.items()}
    until = portion(starts, ends, limit)
    return {
        topic: {p: ReadBackSpan(at.to, until[topic][p], at.end) for p, at in by.items()}
        for topic, by in positions.items()
    }


def offsets_left(positions: Mapping[str, Mapping[int, ReadBackSpan]]) -> int:
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


def retractions_of(
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
