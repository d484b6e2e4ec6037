"""Reclocking: choose the records of a micro-batch, and map their offsets to our times.

The source mints one `SourceOffset` for each batch, and Spark logs it before the batch runs.
It is the durable mapping from Kafka's offsets to our times, and the only place where a clock is
read: everything else about the batch is a function of it.  There are three ways to make times.

* ingest: all records of a batch have the time `upper - 1`, in milliseconds.  A batch lasts at
  least one millisecond, and time never goes back with the clock.
* offset: a record's time is `lower` + its rank in the batch by (input, partition, offset), so
  every change is visible; `upper` is `lower` + the number of offsets.  A record that several
  inputs read has one time in all of them, and is ranked as a record of the first.
* dated: used if any input has times of its own.  `upper` is the least frontier of these inputs,
  without silent ones (`timing.reach`).  Diff topics are read up to it.  Inputs with event times
  are read as records arrive, and updates at or beyond `upper` are held in the shards.  Records
  of all other inputs have the time `upper - 1`, and are not read while the interval is empty.
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

# A message of the loopback topic has thousands of updates, so this is a large batch.
MOST_HOPS = 400

# Left out of the digest while they are empty: markers of older checkpoints lack these fields.
_ADDED_LATER = (
    "hops",
    "known",
    "now",
    "hydrating",
    "hydrates",
    "edits",
    "editing",
    "fills",
    "began",
)

# Shards report this name among the joins that they have hydrated when they are done with an edit.
FILLED = "@edit"

# By topic, by partition.
Positions = dict[str, dict[int, int]]


class SourceOffset(msgspec.Struct, frozen=True):
    """A batch as the offset log has it: its interval, its plan, and the offsets it reads up to.

    * `positions`: the offsets up to which topics are read, by topic and partition; for an input
      that is read again by `Plan.position_key`.
    * `plan`: the fingerprint of the plan.
    * `frontiers`: the frontier of each operator after the batch.
    * `begins`: the first offsets of partitions that no batch before has read.
    * `topic_ids`: the ids of the topics, by which a topic that was made anew is recognized.
    * `behind`: the number of offsets that are left for later batches.
    * `hops`: the offsets up to which the loopback topic is read, by shard.
    * `known`: the knowledge about inputs with times of their own.
    * `now`: the clock, if times are dated, else 0.
    * `hydrating`: the new joins that still lack rows from before they began, with the time at
      which they begin; with `hydrates`, this batch gives them a portion of these rows, or of
      the state if it `fills`.
    * `began`: the joins that have got these rows, with the same times, while they are open.
    * `edits`: how often the plan has been edited.
    * `editing`: the frontier of the last edit, until all operators are past it, else 0; with
      `fills`, this batch takes a portion of the state through the old and the new plan.
      Several edits may be made at one frontier, one after the other.
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
    began: dict[str, int] = {}

    def to_json(self) -> dict[str, Any]:
        """Convert to the JSON object that Spark logs."""
        built: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return built

    @classmethod
    def from_json(cls, logged: Mapping[str, Any]) -> "SourceOffset":
        """Convert from the JSON object that Spark logged."""
        return msgspec.convert(logged, cls, strict=False)

    @property
    def begun_at_edit(self) -> tuple[str, ...]:
        """The joins that have begun at the frontier of the edit, with an earlier one."""
        return tuple(sorted(join for join, at in self.began.items() if at == self.editing))

    def digest(self) -> str:
        """Hash this offset for markers, by which a replay of the same batch is recognized."""
        plain = self.to_json()
        for name in _ADDED_LATER:
            if not plain[name]:
                del plain[name]
        return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Slice:
    """The offsets of one partition that a batch reads for one input: `place.start` up to `end`.

    `transactions` is the state of the source's transactions when the batch was minted.  For a
    transaction topic, `input` is `input_times.topic_key`.
    """

    input: str
    place: Place
    end: int
    transactions: Transactions | None = None

    @property
    def size(self) -> int:
        """The number of offsets, including those of aborted records and transaction markers."""
        return self.end - self.place.start


class Look(NamedTuple):
    """The state of the topics, and of the last batch, when the next one is minted.

    * `ends`, `begins`: the last and the first offsets of the input topics; `begins` at least of
      the partitions that the last batch does not know.
    * `hops`: the end offsets of the loopback topic, by shard.
    * `known`: the knowledge about inputs with times of their own.
    * `closed`: the progress records of diff topics, by input.
    * `hydrated`: the new joins that have all rows from before they began, and `FILLED` if the
      last batch has finished the portions of an edit.
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
    """Mint the next batch after `last`, of about `limit` records; `last` if there is none.

    There is a batch if there is anything to read, or while an operator is behind, in which case
    time may stand still.  These batches may read nothing:

    * With ingest times, a `heartbeat` moves time on.
    * The `first` batch of a checkpoint: Spark runs one in any case, and every shard needs its
      tick.
    * With ingest and offset times, the batch after new joins have been hydrated closes the time
      at which their old rows become visible.

    If the loopback topic has more than `most_hops` messages, the batch takes a portion of them
    and nothing else, and no operator that they go to moves.

    `edits` is how often the plan has been edited.  After an edit, time stands still until the
    fresh operators have been filled from the state.

    A run that `finishes` what is on its way reads nothing; there is no batch once all is settled.
    """
    if finishes and is_settled(last):
        return last
    last, edit = _edited(plan, last, edits), _editing(last, look, edits)
    waiting = {shard: end - last.hops.get(shard, 0) for shard, end in look.hops.items()}
    backlog = sum(waiting.values())
    all_hops = backlog <= most_hops
    # Messages in the loopback topic may still belong to a new join's first time.
    hydrating = _hydrating(plan, last, look.hydrated if all_hops else frozenset())
    # Rows from before a join are published when their time is closed, even if no records come.
    closes = bool(last.hydrating) and not hydrating
    reading = _Reading({}, {}, last.upper, 0, {})
    if not all_hops:
        waiting = {shard: -(-count * most_hops // backlog) for shard, count in waiting.items()}
    elif edit.fills or (finishes and plan.is_dated):
        # The portions of an edit, and what is on its way, go before new records.
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
    # After hydration one more batch logs that it is complete.
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
        # Positions move by partition: one that is not read keeps its own.
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
        known={**_read(_of(plan, {**last.known, **look.known})), **reading.known},
        now=now_ms if plan.is_dated else 0,
        hydrating=hydrating,
        # Portions go through the loopback topic: no more of them before it is empty.
        hydrates=(bool(hydrating) or edit.fills) and all_hops,
        edits=max(edits, last.edits),
        editing=edit.at,
        fills=edit.fills,
        began=_began(last, frontiers),
    )


class _Edit(NamedTuple):
    """The edit in progress: its frontier (0 if there is none), and whether the batch fills.

    With `goes_on`, the edit needs a batch even if there is nothing to read.
    """

    at: int
    fills: bool
    goes_on: bool


def _editing(last: SourceOffset, look: Look, edits: int) -> _Edit:
    """Determine how the batch after `last` continues an edit of the plan."""
    if edits > last.edits:
        # A checkpoint without a batch has no state to fill from.
        return _Edit(last.upper, fills=last.upper > 0, goes_on=True)
    if last.fills:
        on_its_way = any(end > last.hops.get(shard, 0) for shard, end in look.hops.items())
        fills = FILLED not in look.hydrated or on_its_way
        return _Edit(last.editing, fills, goes_on=True)
    # Outputs hold the updates of an edit until its time is closed.
    is_open = min(last.frontiers.values(), default=last.upper) <= last.editing
    return _Edit(last.editing if is_open else 0, fills=False, goes_on=False)


def is_settled(last: SourceOffset) -> bool:
    """Whether no update is in flight between operators, so that another plan may continue.

    All portions of an earlier edit, and of new joins, are then done.  The time of the edit need
    not be closed: outputs hold its updates, and the next edit adds to them.
    """
    return progress.is_level(last.frontiers) and not last.hydrating and not last.fills


def _edited(plan: Plan, last: SourceOffset, edits: int) -> SourceOffset:
    """Drop topics and operators from the last batch that an edited plan no longer has."""
    if edits <= last.edits:
        return last
    topics = {*plan.topics, *plan.transaction_topics}
    topics |= {plan.position_key(source, t) for source in plan.inputs for t in source.topics}
    # A new join is recognized by its missing frontier, and is hydrated after all others.
    new = {join.name for join in plan.joins} - last.frontiers.keys()
    begin = {name: last.upper for name in progress.edges(plan) if name not in new}
    return msgspec.structs.replace(
        last,
        positions={topic: by for topic, by in last.positions.items() if topic in topics},
        topic_ids={topic: of for topic, of in last.topic_ids.items() if topic in topics},
        frontiers=begin if last.frontiers else {},
    )


def _hydrating(plan: Plan, last: SourceOffset, hydrated: Set[str]) -> dict[str, int]:
    """Find the joins that are new or not yet hydrated, with the times at which they begin."""
    found = {join: at for join, at in last.hydrating.items() if join not in hydrated}
    if last.frontiers:
        begin = progress.beginning(last.frontiers)
        found |= {j.name: begin for j in plan.joins if j.name not in last.frontiers}
    return {join: at for join, at in found.items() if join in joined(plan).origins}


def _began(last: SourceOffset, frontiers: Mapping[str, int]) -> dict[str, int]:
    """Find the joins that have begun, or begin, at a time that some operator has not passed."""
    least = min(frontiers.values(), default=0)
    return {join: at for join, at in {**last.began, **last.hydrating}.items() if at >= least}


class _Reading(NamedTuple):
    """The offsets that a batch reads, from `starts` up to `ends`, and its upper.

    `behind` is the number of offsets left for later, `known` the updated knowledge about inputs.
    """

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
    """Choose the offsets and the upper with ingest or offset times.

    With `moves`, time goes on even if nothing is read.
    """
    starts, taken, left = _taken(last, look.begins, look.ends, limit)
    count = _count(starts, taken)
    again, again_to, again_left = _again(plan, last, look, taken, limit)
    moves = moves or _count(again, again_to) > 0
    upper = last.upper
    if plan.time == "offset":
        upper += count or moves
    elif count or moves:
        upper = max(now_ms, last.upper) + 1
    return _Reading({**starts, **again}, {**taken, **again_to}, upper, left + again_left, {})


def _again(
    plan: Plan, last: SourceOffset, look: Look, taken: Positions, limit: int | None
) -> tuple[Positions, Positions, int]:
    """Choose the offsets of inputs that are read again: up to where the others have come.

    The result is that of `_taken`, under the names that these positions have.
    """
    ends = {
        plan.position_key(source, topic): {**last.positions.get(topic, {}), **taken.get(topic, {})}
        for source in map(plan.input, plan.backfills)
        for topic in source.topics
    }
    return _taken(last, look.begins, ends, limit)


def _dated(plan: Plan, last: SourceOffset, look: Look, limit: int | None) -> _Reading:
    """Choose the offsets and the upper if any input has times of its own.

    Records of other inputs get the last time of the interval.  While more of them wait than fit
    into a batch, or all inputs with times of their own are silent, time goes on by 1 a batch.
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
        # No other input moves time on for these records.
        upper += 1
    moves = upper > last.upper
    unread = {plan.input(name).topics[0] for name in closed} | (set() if moves else stamped)
    ends = {topic: by for topic, by in look.ends.items() if topic not in unread}
    starts, taken, left = _taken(last, look.begins, ends, limit)
    if moves and any(taken[topic] != ends[topic] for topic in stamped & ends.keys()):
        # Records that exceed the limit also belong before this frontier.
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
    """The time up to which the updates of a topic have been taken; 0 for a new one."""
    return min(last.upper, last.known[name].frontier if name in last.known else 0)


def _of(plan: Plan, known: Mapping[str, InputTimes]) -> dict[str, InputTimes]:
    """Drop what is known of inputs that are gone: one that is added later may have their name."""
    names = {source.name for source in plan.inputs}
    names |= {topic_key(topic) for topic in plan.transaction_topics}
    return {name: times for name, times in known.items() if name in names}


def _read(known: Mapping[str, InputTimes]) -> dict[str, InputTimes]:
    """Clear `reads`, which belonged to the last batch."""
    return {name: msgspec.structs.replace(times, reads={}) for name, times in known.items()}


def _taken(
    last: SourceOffset, begins: Positions, ends: Positions, limit: int | None
) -> tuple[Positions, Positions, int]:
    """Compute the starts and ends of a batch of about `limit` records, and the offsets left."""
    starts = {
        topic: {
            p: last.positions.get(topic, {}).get(p, begins.get(topic, {}).get(p, 0)) for p in by
        }
        for topic, by in ends.items()
    }
    lag = _count(starts, ends)
    taken = ends
    if limit is not None and lag > limit:
        # The batch takes the same share of every partition's lag, at least one offset.
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
    """Yield the slices of a batch, in the order that decides between records of equal times.

    Inputs come in the order of the plan, and the topics of an input in the order in which it
    lists them, each with its partitions by number.  A topic of several inputs has a slice for
    each of them, with the same offsets and the same times.
    """
    base = end.lower
    bases: dict[tuple[str, int], int] = {}
    for source in plan.inputs:
        partitions = sum(len(end.positions.get(topic, {})) for topic in source.topics)
        for topic in source.topics:
            key = plan.position_key(source, topic)
            known = start.positions.get(key, {})
            ends = end.positions.get(key, {})
            if source.traits.kind == "updates":
                ends = end.known[source.name].reads if source.name in end.known else {}
            for partition, until in sorted(ends.items()):
                begin = end.begins.get(key, {}).get(partition, 0)
                since = known.get(partition, begin)
                if until <= since:
                    continue
                order = _order(plan, source, topic)
                place = Place(topic, partition, order, since, end.upper - 1, each=False)
                if source.is_dated:
                    event = source.event_time
                    latest = None if event is None else event.latest(end.now)
                    place = replace(place, base=end.lower, upper=end.upper, latest=latest)
                    if source.traits.is_updates:
                        place = replace(place, since=_taken_to(start, source.name))
                elif plan.time == "offset" and source.name not in plan.backfills:
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
    """Compute the rank of a topic among all that the plan reads."""
    order = 0
    for known in plan.inputs:
        if known.name == source.name:
            return order + known.topics.index(topic)
        order += len(known.topics)
    raise AssertionError(f"input {source.name} is not in the plan")
