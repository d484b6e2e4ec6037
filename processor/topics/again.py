"""Inputs that are read again (backfills) in a plan with dated inputs.

Their operators are separate from all others (`planning.backfill`).

* With event times, each record counts at the same time as when it was read first; the input's
  `ReadingLog` has these times.  They lie in the past, so the operators have intervals of their
  own, up to the frontier that the log has for the offsets read again so far.
  Records of later times wait as in any operator.  When the input has caught up, its operators
  have, too.
* Records without times of their own count when they are read, at the last closed time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from ikebana.arrangements.update import Interval
from ikebana.processor.base.offsets import Positions, offset_in
from ikebana.processor.base.sharding import PartitionRange
from ikebana.processor.planning import progress
from ikebana.processor.planning.backfill import is_read_alike, origin_of, reads_again
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics.input_times import MOST_JUDGED, InputTimes
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


def begun(present: Positions, begins: Positions) -> Positions:
    """The first offsets of topics, replaced by those at which inputs are read again."""
    return {**present, **{key: {**present.get(key, {}), **by} for key, by in begins.items()}}


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


def pieces(
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
