"""Reclocking: which records make up a micro-batch and what time they get.

The source mints one `SourceOffset` a batch, and Spark logs it before the batch runs:
it is the durable remap from Kafka's offsets to our times, and the only place where a
clock is read.  Whatever follows is a function of it.

* ingest: all records of a batch have the time `upper - 1`, milliseconds; a batch is at
  least one millisecond, and the clock going back does not take the time with it.
* offset: a record's time is `lower` + its rank in the batch by (input, partition,
  offset), so every change shows; `upper` is `lower` + the number of offsets.  A record of
  several inputs counts once, as one of the first of them, and has one time in all.
* dated: as soon as one input has times of its own, `upper` is the least frontier of such
  inputs that are waited for.  Those of diff topics are read up to it, those of event times
  as they come, and what lies beyond waits in the shards.  Records of all other inputs have
  the time `upper - 1`, and are not read while the interval is empty.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from ikebana.processor.planning import progress
from ikebana.processor.planning.joined import joined
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.rows.placing import Place
from ikebana.processor.timing import diff_input
from ikebana.processor.timing.diff_input import Closed
from ikebana.processor.timing.input_times import InputTimes, key_of, topic_key
from ikebana.processor.timing.reach import reach
from ikebana.processor.timing.transactions import Transactions

# A message of the loopback topic holds thousands of updates: this is a large batch.
MOST_HOPS = 400

# Where they say nothing, offsets are named as they were before there were these.
_ADDED_LATER = ("hops", "known", "now", "hydrating", "hydrates", "edits", "editing", "fills")

# Among what shards say they are done with: an edit.
FILLED = "@edit"

# By topic, by partition.
Positions = dict[str, dict[int, int]]


class SourceOffset(msgspec.Struct, frozen=True):
    """A batch as the offset log holds it: up to where, until when, for which plan.

    `begins` are the first offsets of partitions that this batch sees for the first
    time; `behind` is how many offsets were left for later batches when it was minted.
    `hops` says up to where the loopback topic is read, by shard.  `known` is what is known
    of the times of inputs that have their own, `now` the clock, if that counts.
    `hydrating` are joins that are new, with the time at which they begin, as long as they
    have not got all that was there before; with `hydrates` this batch goes on with that.
    `edits` counts how often the plan has been edited; `editing` is the frontier at which it was,
    as long as not all operators are past it, and with `fills` this batch takes a portion of
    what was there.  Several edits may be made at one frontier, one after the other.
    """

    batch: int
    lower: int
    upper: int
    positions: Positions
    plan: str
    frontiers: dict[str, int] = {}
    begins: Positions = {}
    topic_ids: dict[str, str] = {}
    behind: int = 0
    hops: dict[int, int] = {}
    known: dict[str, InputTimes] = {}
    now: int = 0
    hydrating: dict[str, int] = {}
    hydrates: bool = False
    edits: int = 0
    editing: int = 0
    fills: bool = False

    def to_json(self) -> dict[str, Any]:
        """As the JSON object that Spark logs."""
        built: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return built

    @classmethod
    def from_json(cls, logged: Mapping[str, Any]) -> "SourceOffset":
        """From the JSON object that Spark logged."""
        return msgspec.convert(logged, cls, strict=False)

    def digest(self) -> str:
        """Names this offset in markers, so that a replay is known to be of the same batch."""
        plain = self.to_json()
        for name in _ADDED_LATER:
            if not plain[name]:
                del plain[name]
        return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Slice:
    """The offsets `start <= offset < end` of one partition, and where they belong.

    `transactions` is what was known of those of the source when the batch was minted.  The
    input of a transaction topic is `input_times.topic_key`.
    """

    input: str
    place: Place
    end: int
    transactions: Transactions | None = None

    @property
    def size(self) -> int:
        """The number of offsets, which aborted records and markers take too."""
        return self.end - self.place.start


class Look(NamedTuple):
    """What there is to read at one moment.

    `ends` and `begins` are those of the input topics, `begins` at least of the partitions
    that the last batch does not know; `hops` is up to where the loopback topic is written,
    by shard.  `known` is what is known of inputs with times of their own, `closed` what
    progress says of those that are diff topics.  `hydrated` are the new joins that have got
    all that was there before, and `FILLED` if the last batch has come to the end of an edit.
    """

    ends: Positions
    begins: Positions
    hops: Mapping[int, int] = {}
    known: Mapping[str, InputTimes] = {}
    closed: Mapping[str, Sequence[Closed]] = {}
    hydrated: Set[str] = frozenset()


def mint(
    plan: Plan,
    last: SourceOffset,
    look: Look,
    *,
    limit: int | None,
    now_ms: int,
    heartbeat: bool = False,
    first: bool = False,
    most_hops: int = MOST_HOPS,
    edits: int = 0,
    finishes: bool = False,
) -> SourceOffset:
    """The next batch after `last`, of at most about `limit` records; `last` if there is none.

    In the ingest domain a `heartbeat` is a batch that reads nothing, so that time goes on; in
    both that we make so is the one after new joins have got all that there was.
    While an operator is behind there is a batch in any case, in which time may stand still.
    So there is if it is the `first` of a checkpoint: Spark runs one, be there anything to read
    or not, and every shard has to be told what it is.

    If the loopback topic has more than `most_hops` messages, the batch takes a portion of
    them and nothing else, and no operator that they go to moves.

    `edits` is how often the plan has been edited.  After an edit, time stands still until the
    fresh operators have what was there before.

    A run that `finishes` what is on its way reads nothing, and there is no batch once all is
    settled.
    """
    if finishes and is_settled(last):
        return last
    last, edit = _edited(plan, last, edits), _editing(last, look, edits)
    waiting = {shard: end - last.hops.get(shard, 0) for shard, end in look.hops.items()}
    backlog = sum(waiting.values())
    all_hops = backlog <= most_hops
    # What is still in the loopback topic may be of a join's first time.
    hydrating = _hydrating(plan, last, look.hydrated if all_hops else frozenset())
    # What there was is shown when its time is over, though nothing else may come.
    closes = bool(last.hydrating) and not hydrating
    reading = _Reading({}, {}, last.upper, 0, {})
    if not all_hops:
        waiting = {shard: -(-count * most_hops // backlog) for shard, count in waiting.items()}
    elif edit.fills or (finishes and plan.is_dated):
        # What there was goes its way first.
        pass
    elif plan.is_dated:
        reading = _dated(plan, last, look, limit)
    else:
        beats = (heartbeat or first) and plan.time == "ingest"
        moves = closes or (not finishes and (bool(edit.at) or beats))
        reading = _timed(plan, last, look, 0 if finishes else limit, now_ms, moves=moves)
    frontiers = progress.advance_frontiers(
        progress.edges(plan),
        last.frontiers,
        reading.upper,
        all_hops=all_hops,
        standing=[joined(plan).begins(join) for join in hydrating],
    )
    begin = progress.beginning(last.frontiers)
    moved = any(at != last.frontiers.get(name, begin) for name, at in frontiers.items())
    # One more tells the log that all is there.
    goes_on = moved or reading.reads or reading.upper != last.upper or last.hydrating or hydrating
    if all_hops and not goes_on and not first and not edit.goes_on:
        return last
    new = {
        topic: {p: at for p, at in by.items() if p not in last.positions.get(topic, {})}
        for topic, by in reading.starts.items()
    }
    taken = reading.ends
    return SourceOffset(
        batch=last.batch + 1,
        lower=last.upper,
        upper=reading.upper,
        # By partition: one that is not read stays where it was.
        positions={
            topic: {**last.positions.get(topic, {}), **taken.get(topic, {})}
            for topic in [*last.positions, *(t for t in taken if t not in last.positions)]
        },
        plan=plan.fingerprint(),
        frontiers=frontiers,
        begins={topic: by for topic, by in new.items() if by},
        topic_ids=last.topic_ids,
        behind=reading.behind,
        hops={**last.hops, **{s: last.hops.get(s, 0) + count for s, count in waiting.items()}},
        known={**_read({**last.known, **look.known}), **reading.known},
        now=now_ms if plan.is_dated else 0,
        hydrating=hydrating,
        # What is found goes through the loopback topic, which is to be empty for more.
        hydrates=bool(hydrating) and all_hops and not edit.fills,
        edits=max(edits, last.edits),
        editing=edit.at,
        fills=edit.fills,
    )


class _Edit(NamedTuple):
    """An edit on its way: at which frontier (0: there is none), and whether the batch fills."""

    at: int
    fills: bool
    goes_on: bool


def _editing(last: SourceOffset, look: Look, edits: int) -> _Edit:
    """How far an edit is after the last batch."""
    if edits > last.edits:
        # Before the first batch nothing was there.
        return _Edit(last.upper, fills=last.upper > 0, goes_on=True)
    if last.fills:
        on_its_way = any(end > last.hops.get(shard, 0) for shard, end in look.hops.items())
        fills = FILLED not in look.hydrated or on_its_way
        return _Edit(last.editing, fills, goes_on=True)
    # Until its time is closed, outputs hold what they get of it.
    is_open = min(last.frontiers.values(), default=last.upper) <= last.editing
    return _Edit(last.editing if is_open else 0, fills=False, goes_on=False)


def is_settled(last: SourceOffset) -> bool:
    """Whether nothing is on its way between operators, so that another plan may go on.

    Of an edit before, or of a new join, all portions have gone then.  That its time is closed is
    not needed: outputs hold what they got at it, and the next edit adds to that.
    """
    return progress.is_level(last.frontiers) and not last.hydrating and not last.fills


def _edited(plan: Plan, last: SourceOffset, edits: int) -> SourceOffset:
    """The last batch, without what a plan does not read or move any more."""
    if edits <= last.edits:
        return last
    topics = {*plan.topics, *plan.transaction_topics}
    # New joins are known by having none, and get what was there after all others.
    new = {join.name for join in plan.joins} - last.frontiers.keys()
    begin = {name: last.upper for name in progress.edges(plan) if name not in new}
    return msgspec.structs.replace(
        last,
        positions={topic: by for topic, by in last.positions.items() if topic in topics},
        topic_ids={topic: of for topic, of in last.topic_ids.items() if topic in topics},
        frontiers=begin if last.frontiers else {},
    )


def _hydrating(plan: Plan, last: SourceOffset, hydrated: Set[str]) -> dict[str, int]:
    """The joins that are new, or still on their way to where the others are."""
    found = {join: at for join, at in last.hydrating.items() if join not in hydrated}
    if last.frontiers:
        begin = progress.beginning(last.frontiers)
        found |= {j.name: begin for j in plan.joins if j.name not in last.frontiers}
    return {join: at for join, at in found.items() if join in joined(plan).origins}


class _Reading(NamedTuple):
    """What a batch reads, from `starts` up to `ends`, and the time that it closes."""

    starts: Positions
    ends: Positions
    upper: int
    behind: int
    known: dict[str, InputTimes]

    @property
    def reads(self) -> bool:
        return any(end > self.starts[t][p] for t, by in self.ends.items() for p, end in by.items())


def _timed(
    plan: Plan,
    last: SourceOffset,
    look: Look,
    limit: int | None,
    now_ms: int,
    *,
    moves: bool,
) -> _Reading:
    """A batch whose time we make, which `moves` on though nothing is read."""
    starts, taken, left = _taken(last, look.begins, look.ends, limit)
    count = _count(starts, taken)
    upper = last.upper
    if plan.time == "offset":
        upper += count or moves
    elif count or moves:
        upper = max(now_ms, last.upper) + 1
    return _Reading(starts, taken, upper, left, {})


def _dated(plan: Plan, last: SourceOffset, look: Look, limit: int | None) -> _Reading:
    """A batch whose time is that of the inputs.

    Records without times of their own get the last one that is closed.  As long as there
    are more of them than fit into a batch, or nothing is expected of any other input, time
    goes on in the smallest steps.
    """
    closed = {
        s.name: look.closed.get(s.name, ()) for s in plan.inputs if s.traits.kind == "updates"
    }
    found = reach(plan, look.known, closed, last.positions, last.upper, limit)
    upper = max(last.upper, found.upper)
    stamped = {topic for s in plan.inputs if not s.is_dated for topic in s.topics}
    waiting = {topic: by for topic, by in look.ends.items() if topic in stamped}
    _, _, stamps = _taken(last, look.begins, waiting, 0)
    if found.all_silent and stamps and upper == last.upper:
        # Nothing else moves time on for them.
        upper += 1
    moves = upper > last.upper
    unread = {plan.input(name).topics[0] for name in closed} | (set() if moves else stamped)
    ends = {topic: by for topic, by in look.ends.items() if topic not in unread}
    starts, taken, left = _taken(last, look.begins, ends, limit)
    if moves and any(taken[topic] != ends[topic] for topic in stamped & ends.keys()):
        # What the limit leaves of these has to be stamped before this frontier too.
        upper = last.upper + 1
    if not moves:
        left += stamps
    known = {}
    for name, records in closed.items():
        (topic,) = plan.input(name).topics
        taken_to = _taken_to(last, name)
        if upper == last.upper and taken_to < upper:
            # What a new input has had comes with the first batch that moves time.
            continue
        span = diff_input.span(records, upper, taken_to)
        before = look.known.get(name, InputTimes())
        known[name] = msgspec.structs.replace(
            before,
            frontier=max(before.frontier, upper),
            reads=span.reads,
            progress_at=before.progress_at if span.progress_at is None else span.progress_at,
        )
        if span.positions is not None:
            own = last.positions.get(topic, {})
            starts[topic] = {p: own.get(p, 0) for p in span.positions}
            taken[topic] = span.positions
    return _Reading(starts, taken, upper, left, known)


def _taken_to(last: SourceOffset, name: str) -> int:
    """The time up to which the updates of a diff topic have been taken; 0 for a new one."""
    return min(last.upper, last.known[name].frontier if name in last.known else 0)


def _read(known: Mapping[str, InputTimes]) -> dict[str, InputTimes]:
    """What is known, without what the last batch was to read."""
    return {name: msgspec.structs.replace(times, reads={}) for name, times in known.items()}


def _taken(
    last: SourceOffset, begins: Positions, ends: Positions, limit: int | None
) -> tuple[Positions, Positions, int]:
    """From where to where a batch of about `limit` records reads, and what is left."""
    starts = {
        topic: {
            p: last.positions.get(topic, {}).get(p, begins.get(topic, {}).get(p, 0)) for p in by
        }
        for topic, by in ends.items()
    }
    lag = _count(starts, ends)
    taken = ends
    if limit is not None and lag > limit:
        # Every partition gives the same share of its lag, at least one offset.
        taken = {
            topic: {
                p: start + -(-(ends[topic][p] - start) * limit // lag) for p, start in by.items()
            }
            for topic, by in starts.items()
        }
    return starts, dict(taken), lag - _count(starts, taken)


def _count(starts: Positions, ends: Positions) -> int:
    return sum(ends[t][p] - start for t, by in starts.items() for p, start in by.items())


def slices(plan: Plan, start: SourceOffset, end: SourceOffset) -> Iterator[Slice]:
    """What a batch reads, in the order in which it counts at equal times.

    Partitions of all of an input's topics are numbered through in the order in which
    the topics are listed, inputs in that of the plan.  A topic of several inputs makes a
    slice for each, of the same offsets and the same times.
    """
    base = end.lower
    bases: dict[tuple[str, int], int] = {}
    for source in plan.inputs:
        partitions = sum(len(end.positions.get(topic, {})) for topic in source.topics)
        for topic in source.topics:
            known = start.positions.get(topic, {})
            ends = end.positions.get(topic, {})
            if source.traits.kind == "updates":
                ends = end.known[source.name].reads if source.name in end.known else {}
            for partition, until in sorted(ends.items()):
                begin = end.begins.get(topic, {}).get(partition, 0)
                since = known.get(partition, begin)
                if until <= since:
                    continue
                order = _order(plan, source, topic)
                place = Place(topic, partition, order, since, end.upper - 1, each=False)
                if source.is_dated:
                    event = source.event_time
                    latest = None if event is None else event.latest(end.now)
                    place = replace(place, base=end.lower, upper=end.upper, latest=latest)
                    if source.traits.kind == "updates":
                        place = replace(place, since=_taken_to(start, source.name))
                elif plan.time == "offset":
                    if (topic, partition) not in bases:
                        bases[topic, partition] = base
                        base += until - since
                    place = replace(place, base=bases[topic, partition], each=True)
                known_times = end.known.get(key_of(source), InputTimes())
                yield Slice(
                    source.name,
                    replace(place, partitions=partitions),
                    until,
                    known_times.transactions,
                )
    for topic in plan.transaction_topics:
        for partition, until in sorted(end.positions.get(topic, {}).items()):
            begin = end.begins.get(topic, {}).get(partition, 0)
            since = start.positions.get(topic, {}).get(partition, begin)
            if until > since:
                place = Place(topic, partition, 0, since, end.lower, each=False)
                times = end.known.get(topic_key(topic), InputTimes())
                yield Slice(topic_key(topic), place, until, times.transactions)


def _order(plan: Plan, source: Input, topic: str) -> int:
    """The rank of a topic among all that the plan reads."""
    order = 0
    for known in plan.inputs:
        if known.name == source.name:
            return order + known.topics.index(topic)
        order += len(known.topics)
    raise AssertionError(f"input {source.name} is not in the plan")
