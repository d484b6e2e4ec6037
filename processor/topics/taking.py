"""Which offsets a batch reads, and up to which time it goes.

There are three ways to make times; `timed` has the first two, `dated` the third.

* ingest: all records of a batch have the time `upper - 1`, in milliseconds.  A batch lasts at
  least one millisecond, and time never goes back with the clock.
* offset: a record's time is `lower` + its rank in the batch by (input, partition, offset), so
  every change is visible; `upper` is `lower` + the number of offsets.  A record that several
  inputs read has one time in all of them, and is ranked as a record of the first.
* dated: used if any input has times of its own.  `upper` is the least frontier of these inputs,
  without silent ones (`topics.reach`).  Diff topics are read up to it.  Inputs with event times
  are read as records arrive, and updates at or beyond `upper` are held in the shards.  Records
  of all other inputs have the time `upper - 1`, and are not read while the interval is empty.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from ikebana.processor.base.offsets import Offsets, Positions, count_between, offset_in, portion
from ikebana.processor.base.transition import NOTHING_REPLAYED, ReadBackSpan, Replayed
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics import diff_input
from ikebana.processor.topics.diff_input import ClosedProgress
from ikebana.processor.topics.input_times import InputTimes
from ikebana.processor.topics.reach import InputFrontiers, reach
from ikebana.processor.topics.source_offset import SourceOffset

# The time from which other inputs go on when the dated ones are closed for ever.
_AFTER_ALL = 1 << 62


class MintingState(NamedTuple):
    """The state of the topics, and of the last batch, when the next one is minted.

    * `ends`, `begins`: the last and the first offsets of the input topics; `begins` at least of
      the partitions that the last batch does not know.
    * `hops`: the end offsets of the exchange topic, by shard.
    * `input_times`: the knowledge about inputs with times of their own.
    * `closed`: the progress records of diff topics, by input.
    * `replayed`: what shards report of the transition in the last batch.
    * `read_back`: the offsets of outputs' topics that an edit about to begin reads.
    """

    ends: Positions
    begins: Positions
    hops: Mapping[int, int] = {}
    input_times: Mapping[str, InputTimes] = {}
    closed: Mapping[str, Sequence[ClosedProgress]] = {}
    replayed: Replayed = NOTHING_REPLAYED
    read_back: Mapping[str, Mapping[int, ReadBackSpan]] = {}


class BatchSelection(NamedTuple):
    """The offsets that a batch reads, from `starts` up to `ends`, and its upper.

    `behind` is the number of offsets for later batches, `input_times` the updated knowledge about
    inputs.
    """

    starts: Positions
    ends: Positions
    upper: int
    behind: int
    input_times: dict[str, InputTimes]

    @property
    def reads(self) -> bool:
        return any(end > self.starts[t][p] for t, by in self.ends.items() for p, end in by.items())


def timed(
    plan: Plan,
    last: SourceOffset,
    look: MintingState,
    limit: int | None,
    now_ms: int,
    *,
    moves: bool,
) -> BatchSelection:
    """Choose the offsets and the upper with ingest or offset times.

    With `moves`, time advances even if nothing is read.
    """
    starts, until, left = _share(last, look.begins, look.ends, limit)
    count = count_between(starts, until)
    again, again_to, again_left = _again(plan, last, look, until, limit)
    moves = moves or count_between(again, again_to) > 0
    upper = last.upper
    if plan.time == "offset":
        upper += count or moves
    elif count or moves:
        upper = max(now_ms, last.upper) + 1
    return BatchSelection({**starts, **again}, {**until, **again_to}, upper, left + again_left, {})


def _again(
    plan: Plan, last: SourceOffset, look: MintingState, until: Positions, limit: int | None
) -> tuple[Positions, Positions, int]:
    """Choose the offsets of inputs that are read again: at most up to those of the first reading.

    The result is as in `_share`, with the keys of these positions.
    """
    ends = {
        plan.position_key(source, topic): {**last.positions.get(topic, {}), **until.get(topic, {})}
        for source in map(plan.input, plan.backfills)
        for topic in source.topics
    }
    return _share(last, look.begins, ends, limit)


def dated(plan: Plan, last: SourceOffset, look: MintingState, limit: int | None) -> BatchSelection:
    """Choose the offsets and the upper if any input has times of its own.

    Records of other inputs get the last time of the interval.  While more of them wait than fit
    into a batch, or all dated inputs are silent or closed for ever, time advances by 1 a batch.
    """
    closed = {
        s.name: look.closed.get(s.name, ()) for s in plan.inputs if s.traits.kind == "updates"
    }
    reached = reach(plan, look.input_times, closed, last.positions, last.upper, limit)
    undated = [source for source in plan.inputs if not source.is_dated]
    stamped = {topic for s in undated for topic in (s.history_topic, *s.topics)}
    waiting = {topic: by for topic, by in look.ends.items() if topic in stamped}
    _, _, stamps = _share(last, look.begins, waiting, 0)
    upper = _upper(last, reached, has_stamped=bool(stamped), waits=stamps > 0)
    moves = upper > last.upper
    unread = {plan.input(name).topics[0] for name in closed} | (set() if moves else stamped)
    ends = {topic: by for topic, by in look.ends.items() if topic not in unread}
    starts, until, left = _share(last, look.begins, ends, limit)
    if moves and any(until[topic] != ends[topic] for topic in stamped & ends.keys()):
        # Records that exceed the limit also belong before this frontier.
        upper = last.upper + 1
    if not moves:
        left += stamps
    again, again_to, again_left = _again(plan, last, look, until, limit)
    times = {}
    for name, records in closed.items():
        (topic,) = plan.input(name).topics
        before_it = taken_to(last, name)
        if upper == last.upper and before_it < upper:
            # The past of a new input is read by the first batch in which time advances.
            continue
        span = diff_input.span(records, upper, before_it)
        before = look.input_times.get(name, InputTimes())
        times[name] = msgspec.structs.replace(
            before,
            frontier=max(before.frontier, upper),
            reads=span.reads,
            base=before.unread_base,
            progress_at=before.progress_at if span.progress_at is None else span.progress_at,
        )
        if span.positions is not None:
            positions = last.positions.get(topic, {})
            starts[topic] = {p: positions.get(p, 0) for p in span.positions}
            until[topic] = span.positions
    return BatchSelection(
        {**starts, **again}, {**until, **again_to}, upper, left + again_left, times
    )


def _upper(last: SourceOffset, reached: InputFrontiers, *, has_stamped: bool, waits: bool) -> int:
    """Choose the upper of a batch.

    With `has_stamped`, some inputs have records without times; with `waits`, any of these wait.
    """
    upper = max(last.upper, reached.upper)
    if has_stamped and reached.is_over:
        # These get times after all others, so there have to be times left for them.
        upper = max(last.upper, _AFTER_ALL)
    if (reached.all_silent or reached.is_over) and waits and upper == last.upper:
        # No other input advances time for these records.
        upper += 1
    return upper


def taken_to(last: SourceOffset, name: str) -> int:
    """The time up to which the updates of a topic have been read; 0 for a new one."""
    return min(last.upper, last.input_times[name].frontier if name in last.input_times else 0)


def capped(target: Positions, positions: Offsets) -> Positions:
    """Limit reading to the target, or to the positions where they are beyond it already."""
    return {
        topic: {p: max(end, offset_in(topic, p, positions)) for p, end in by.items()}
        for topic, by in target.items()
    }


def _share(
    last: SourceOffset, begins: Positions, ends: Positions, limit: int | None
) -> tuple[Positions, Positions, int]:
    """Compute the starts and ends of a batch of about `limit` records, and the offsets left."""
    starts = {
        topic: {p: offset_in(topic, p, last.positions, begins) for p in by}
        for topic, by in ends.items()
    }
    until = portion(starts, ends, limit)
    return starts, until, count_between(until, ends)
