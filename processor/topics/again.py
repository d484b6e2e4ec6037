"""Inputs that are read again in a plan whose inputs have times of their own.

Their operators stand apart from all others (`planning.backfill`).

* With event times, each record counts when it counted the first time, which is in the log of
  the input that has read it then (`topics.reading_log`).  These times lie in the past, so the
  operators go through intervals of their own, up to the frontiers that the log has for what has
  been read again.  Records of later times wait in them as in any operator.  When the input has
  caught up, so have they.
* Records without times of their own count when they are read, at the last time that is closed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from ikebana.arrangements.frontier import Interval
from ikebana.processor.base.placing import Place
from ikebana.processor.planning import progress
from ikebana.processor.planning.backfill import is_read_alike, origin_of, reads_again
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics.input_times import InputTimes
from ikebana.processor.topics.reading_log import MOST_JUDGED
from ikebana.processor.topics.source_offset import Positions, SourceOffset

_BEGIN = 0


def learned_again(
    plan: Plan,
    last: SourceOffset,
    known: Mapping[str, InputTimes],
    positions: Positions,
    upper: int,
) -> dict[str, InputTimes]:
    """Add to the knowledge about inputs what a batch after `last` logs of reading again.

    The batch reads up to `positions`, and closes times before `upper`.  An input that is read
    again knows what the one knows that has read its topics first, and how far it has come itself.
    """
    found = dict(known)
    origins = {
        name: origin
        for name in plan.backfills
        if (origin := _dated_origin(plan, plan.input(name))) is not None
    }
    asked = {origin.name for origin in origins.values()}
    for source in plan.inputs:
        times = found.get(source.name)
        if times is None or source.event_time is None or source.name in plan.backfills:
            continue
        read = {t: last.positions[t] for t in source.topics if t in last.positions}
        log = times.log.with_frontier(last.upper, read)
        if source.name not in asked:
            log = log.limited()
        found[source.name] = msgspec.structs.replace(times, log=log, again=None)
    for name, origin in origins.items():
        source, times = plan.input(name), found.get(origin.name, InputTimes())
        own = {t: positions.get(plan.position_key(source, t), {}) for t in source.topics}
        if all(own[topic] == positions.get(topic, {}) for topic in source.topics):
            again = upper
        else:
            before = last.known.get(name, InputTimes()).again or _BEGIN
            again = max(before, times.log.closed(own))
        found[name] = msgspec.structs.replace(times, again=again)
    return found


def why_not_placed(times: InputTimes | None) -> str | None:
    """Why nobody knows when the records of an input counted that have been read of it, if so."""
    if times is None or not times.log.is_full:
        return None
    return f"more of its records were late than are logged ({MOST_JUDGED:,} ranges of offsets)"


def first_offsets(begun: Positions, last: SourceOffset) -> Positions:
    """The first offsets that were read of topics.

    `begun` has those with which the checkpoint has begun.
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
    """The first offsets of topics, with those at which what is read again `begins` in place."""
    return {**present, **{key: {**present.get(key, {}), **by} for key, by in begins.items()}}


def intervals(plan: Plan, before: SourceOffset, after: SourceOffset) -> dict[str, Interval]:
    """The interval of each operator in the batch between two offsets."""
    found = progress.intervals(before.frontiers, after.frontiers)
    if not (plan.is_dated and plan.backfills):
        return found
    for name in plan.backfills:
        source = plan.input(name)
        if source.event_time is None:
            own = Interval(max(after.upper - 1, 0), after.upper)
        else:
            at = [
                offset.known.get(name, InputTimes()).again or _BEGIN for offset in (before, after)
            ]
            own = Interval(*at)
        found |= dict.fromkeys(reads_again(plan, name), own)
    return found


def pieces(
    plan: Plan, source: Input, place: Place, end: int, start: SourceOffset, after: SourceOffset
) -> Iterator[tuple[Place, int]]:
    """Cut the offsets that an input reads, from `place.start` up to `end`, where the past ends.

    Records of the past, which have been read before, are placed as they were then.
    """
    if source.name not in plan.backfills:
        yield place, end
        return
    place = replace(place, again=True, told=is_read_alike(plan, source))
    topic, partition = place.topic, place.partition
    began = after.begins.get(topic, {}).get(partition, 0)
    present = start.positions.get(topic, {}).get(partition, began)
    if place.start < (until := min(end, present)):
        past = place
        if source.event_time is not None:
            log = after.known[source.name].log
            past = replace(
                past,
                base=start.known.get(source.name, InputTimes()).again or _BEGIN,
                latest=None,
                judged=log.within(topic, partition, place.start, until),
            )
        yield past, until
    if end > (begin := max(place.start, present)):
        yield replace(place, start=begin), end


def _dated_origin(plan: Plan, source: Input) -> Input | None:
    return None if source.event_time is None else origin_of(plan, source)
