"""Reclocking: choose the records of a micro-batch, and map their offsets to our times.

The source mints one `SourceOffset` for each batch, and Spark logs it before the batch runs.
It is the durable mapping from Kafka's offsets to our times, and the only place where a clock is
read: everything else about the batch is a function of it.  `batch_selection` chooses the offsets
that a batch reads and makes times, and `slices` splits the batch by partition.
"""

# Decision (a frontier lags a batch): To look into messages before minting would read them twice,
# or make a replay depend on what is left in the topic.

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from ikebana.arrangements.update import Interval
from ikebana.processor.base.offsets import Positions
from ikebana.processor.base.transition import Phase, ReadBack, Transition
from ikebana.processor.planning import progress
from ikebana.processor.planning.edits import Edit
from ikebana.processor.planning.joins.stages import joined
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics import replays
from ikebana.processor.topics.batch_selection import BatchSelection, MintingState, dated, timed
from ikebana.processor.topics.input_times import InputTimes
from ikebana.processor.topics.replays import learned_again, offsets_left
from ikebana.processor.topics.row_files import with_histories, without_histories
from ikebana.processor.topics.source_offset import SourceOffset, is_settled
from ikebana.processor.topics.source_transactions import topic_key


class EditStep(NamedTuple):
    """The edit in progress: its frontier, and whether the batch fills.

    The frontier is 0 without an edit, and also while an edit from before the first closed time
    fills: after the fill such an edit is over.

    With `needs_batch`, the edit needs one even if there is nothing to read.
    """

    at: int
    fills: bool
    needs_batch: bool

    def phase(self, joins: Collection[str], writes: Collection[str]) -> Phase:
        """The phase of the batch, while `joins` lack rows and outputs write portions."""
        if self.fills:
            return Phase.FILL
        if joins:
            return Phase.JOIN
        if writes:
            return Phase.WRITE
        return Phase.CLOSE if self.at else Phase.SETTLED


def step_of(last: SourceOffset, look: MintingState, edits: int) -> EditStep:
    """Determine how the batch after `last` continues an edit of the plan."""
    of = last.transition
    if of.is_behind(edits):
        # A checkpoint without a batch has no state to fill from.  One that has closed no time has
        # no contents, but updates may wait in it that were computed by the old plan.
        return EditStep(last.upper, fills=last.upper > 0 or last.batch >= 0, needs_batch=True)
    if of.fills:
        # Only a batch that read the whole exchange topic can know that nothing is in flight.
        is_done = of.takes and look.replayed.is_filled and not replays.offsets_left(of.read_back)
        return EditStep(of.at, fills=not is_done, needs_batch=True)
    # Outputs hold the updates of an edit until its time is closed.
    least = min(last.frontiers.values(), default=last.upper)
    is_open = of.phase is Phase.REBUILD or bool(of.writing) or least <= of.at
    return EditStep(of.at if is_open else 0, fills=False, needs_batch=False)


def read_back(
    last: Transition, look: MintingState, edit: EditStep, edits: int, limit: int | None
) -> ReadBack:
    """The positions in outputs' own topics after a batch that reads about `limit` offsets."""
    if not edit.fills and last.phase is not Phase.REBUILD:
        return {}
    positions = look.read_back if last.is_behind(edits) else last.read_back
    return replays.positions_after(positions, limit)


def outputs_to_write(
    plan: Plan,
    last: SourceOffset,
    look: MintingState,
    edit: EditStep,
    frontiers: Mapping[str, int],
) -> list[str]:
    """Find the outputs that could go on after the edit, but have too many updates for one batch.

    `frontiers` are those of the operators after the batch.
    """
    if edit.fills or not edit.at or not look.replayed.large:
        return []
    begin = progress.beginning(last.frontiers)
    of = {name: Interval(last.frontiers.get(name, begin), at) for name, at in frontiers.items()}
    going_on = progress.output_intervals(plan, of)
    return sorted(
        name for name in look.replayed.large if name in going_on and going_on[name].upper > edit.at
    )


def without_former_parts(plan: Plan, last: SourceOffset, edits: int) -> SourceOffset:
    """Drop from the last batch the topics and operators that an edited plan no longer has."""
    if not last.transition.is_behind(edits):
        return last
    topics = {*plan.topics, *plan.transaction_topics}
    topics |= {plan.position_key(source, t) for source in plan.inputs for t in source.topics}
    topics |= {source.history_topic for source in plan.inputs}
    # A new join is recognized by its missing frontier, and is hydrated after all others.
    new = {join.name for join in plan.joins} - last.frontiers.keys()
    begin = {name: last.upper for name in progress.edges(plan) if name not in new}
    return msgspec.structs.replace(
        last,
        positions={topic: by for topic, by in last.positions.items() if topic in topics},
        topic_ids={topic: of for topic, of in last.topic_ids.items() if topic in topics},
        frontiers=begin if last.frontiers else {},
    )


def at_their_ends(plan: Plan, last: SourceOffset, ends: Positions) -> Positions:
    """Find the first offsets of topics that an edit adds and reads from their ends."""
    return {
        topic: dict(by)
        for topic, by in ends.items()
        if topic not in last.positions
        and (readers := plan.readers(topic))
        and all(source.start == "latest" and not source.traits.is_updates for source in readers)
    }


def unhydrated_joins(plan: Plan, last: SourceOffset, done: Collection[str]) -> list[str]:
    """Find the joins that are new, or have not `done` their replays."""
    joins = [join for join in last.transition.joins if join not in done]
    if last.frontiers:
        joins += [j.name for j in plan.joins if j.name not in {*last.frontiers, *joins}]
    return [join for join in joins if join in joined(plan).origins]


def beginning_joins(last: Transition, frontiers: Mapping[str, int], edit: EditStep) -> list[str]:
    """Find the joins that began, or begin, at the edit's time, which some operator has not passed.

    While an edit fills, the outputs that it changes have not passed its time.
    """
    is_open = edit.fills or min(frontiers.values(), default=0) <= edit.at
    return sorted({*last.began, *last.joins}) if is_open and last.at == edit.at else []


# A message of the exchange topic has thousands of updates, so this is a large batch.
MOST_EXCHANGES = 400


class BatchTrigger(NamedTuple):
    """A request for a batch of about `limit` records (None: all) at this time of day.

    With a `heartbeat`, time advances although nothing is read.  The `first` batch of a checkpoint
    is minted in any case.  If the exchange topic has more than `most_exchanges` messages, a batch
    takes a portion of them.
    """

    now_ms: int
    limit: int | None = None
    heartbeat: bool = False
    first: bool = False
    most_exchanges: int = MOST_EXCHANGES


class Edited(NamedTuple):
    """How often the plan has been edited, and how a start continues the last edit.

    * `frozen`: the operators that stand at the time of the edit until they have been filled
      from the state; all others go on.
    * `read_back`: the outputs that the edit retracts by reading their own topics, by topic.
    * `released`: the parts of the state that no operator owns any more.
    * `finishes`: the run reads nothing, and makes batches as long as work is unfinished.
    """

    edits: int = 0
    frozen: Sequence[str] = ()
    read_back: Mapping[str, str] = {}
    released: tuple[str, ...] = ()
    finishes: bool = False

    @classmethod
    def of(
        cls, edits: int, edit: Edit | None, released: tuple[str, ...], *, finishes: bool
    ) -> "Edited":
        """What is known of the last `edit`, None if it is done, of so many."""
        if edit is None:
            return cls(edits, released=released, finishes=finishes)
        return cls(edits, sorted(edit.frozen), edit.read_back, released, finishes)


NOT_EDITED = Edited()


def mint(
    plan: Plan,
    last: SourceOffset,
    look: MintingState,
    trigger: BatchTrigger,
    edited: Edited = NOT_EDITED,
) -> SourceOffset:
    """Mint the next batch after `last`; it is `last` if there is none.

    There is a batch if there is anything to read, or while an operator is behind, in which case
    time may stand still.  These batches may read nothing:

    * With ingest times, a heartbeat moves time on.
    * The first batch of a checkpoint: Spark runs one in any case, and every shard needs its
      tick.
    * With ingest and offset times, the batch after new joins have been hydrated closes the time
      at which their old rows become visible.

    A batch that takes a portion of the exchange topic takes nothing else, and the operators that
    get these messages do not advance.  A run that finishes has no further batch when all is
    settled.  In a rebuild, a batch reads only the offsets that the rebuild needs.
    """
    if edited.finishes and is_settled(last):
        return last
    batch = _Next.after(plan, last, look, trigger, edited)
    selection = batch.selection()
    frontiers = batch.frontiers(selection.upper)
    writes = outputs_to_write(plan, batch.last, look, batch.edit, frontiers)
    if not trigger.first and not batch.is_needed(selection, frontiers, writes):
        return batch.last
    return batch.minted(selection, frontiers, writes)


class _Exchanges(NamedTuple):
    """The offsets, by shard, up to which a batch reads the exchange topic; whether that is all."""

    to: dict[int, int]
    all: bool


@dataclass(frozen=True, slots=True)
class _Next:
    """A batch that is being minted: the request, and what is known before offsets are chosen.

    `before` is the last batch, without parts that an edited plan no longer has; `last` adds to it
    the positions `at_ends` of topics that an edit adds and reads from their ends.  `joins` are the
    joins that are not hydrated yet.  `rebuilds` is whether all is read for a lost state.
    """

    plan: Plan
    look: MintingState
    trigger: BatchTrigger
    edited: Edited
    before: SourceOffset
    last: SourceOffset
    at_ends: Positions
    edit: EditStep
    exchanges: _Exchanges
    joins: list[str]
    rebuilds: bool

    @classmethod
    def after(
        cls,
        plan: Plan,
        last: SourceOffset,
        look: MintingState,
        trigger: BatchTrigger,
        edited: Edited,
    ) -> "_Next":
        """Take an edit into account, and choose the share of the exchange topic."""
        look = look._replace(ends=with_histories(plan, last, dict(look.ends)))
        transition = last.transition
        rebuilds = transition.phase is Phase.REBUILD
        if rebuilds and transition.rebuilding is not None:
            look = look._replace(ends=transition.rebuilding.readable(look.ends))
            edited = edited._replace(finishes=False)
            trigger = trigger._replace(heartbeat=False)
        edit = step_of(last, look, edited.edits)
        before = without_former_parts(plan, last, edited.edits)
        is_new = transition.is_behind(edited.edits)
        at_ends = at_their_ends(plan, before, look.ends) if is_new else {}
        last = before
        if at_ends:
            last = msgspec.structs.replace(before, positions={**before.positions, **at_ends})
        exchanges = _exchanges(last, look, trigger.most_exchanges)
        # Messages in the exchange topic may still belong to a new join's first time.
        joins = unhydrated_joins(plan, last, look.replayed.joins if exchanges.all else ())
        return cls(
            plan, look, trigger, edited, before, last, at_ends, edit, exchanges, joins, rebuilds
        )

    def selection(self) -> BatchSelection:
        """Choose the offsets of the input topics, and the time up to which the batch goes."""
        plan, last, edit, trigger = self.plan, self.last, self.edit, self.trigger
        finishes = self.edited.finishes
        if not self.exchanges.all or (finishes and (edit.fills or plan.is_dated)):
            # Only updates between operators.
            return BatchSelection({}, {}, last.upper, 0, {})
        if plan.is_dated:
            return dated(plan, last, self.look, trigger.limit)
        # The initial rows of a join are published when their time is closed, even without records.
        closes = bool(last.transition.joins) and not self.joins
        beats = (trigger.heartbeat or trigger.first) and plan.time == "ingest"
        shows = bool(edit.at) and not edit.fills and not self.rebuilds
        moves = closes or (not finishes and (shows or beats))
        if self.rebuilds:
            moves |= last.upper <= edit.at
        limit = 0 if finishes else trigger.limit
        return timed(plan, last, self.look, limit, trigger.now_ms, moves=moves)

    def frontiers(self, upper: int) -> dict[str, int]:
        """Advance the frontiers of all operators that need not wait for a join or an edit."""
        waits = {joined(self.plan).first_stage(join) for join in self.joins}
        if self.edit.fills:
            waits |= set(self.edited.frozen)
        return progress.advance_frontiers(
            progress.edges(self.plan),
            self.last.frontiers,
            upper,
            all_exchanges=self.exchanges.all,
            frozen=waits,
        )

    def is_needed(
        self, selection: BatchSelection, frontiers: Mapping[str, int], writes: Sequence[str]
    ) -> bool:
        """Whether there is a batch at all: it reads anything, or any frontier moves."""
        last = self.last
        begin = progress.beginning(last.frontiers)
        moved = any(at != last.frontiers.get(name, begin) for name, at in frontiers.items())
        # After hydration one more batch logs that it is complete.
        of = last.transition
        is_under_way = bool(of.joins or self.joins or of.writing or writes or self.rebuilds)
        moved |= selection.reads or selection.upper != last.upper
        return moved or is_under_way or self.edit.needs_batch or not self.exchanges.all

    def minted(
        self, selection: BatchSelection, frontiers: dict[str, int], writes: list[str]
    ) -> SourceOffset:
        """Compose the offset that is logged."""
        plan, last = self.plan, self.last
        positions = _positions(last, selection)
        begins = {**_begins(last, selection), **self.at_ends}
        input_times = _of(plan, {**last.input_times, **self.look.input_times})
        learned = without_histories(plan, last, input_times)
        times = {**_read(learned), **selection.input_times}
        transition = self.transition(positions, selection.upper, frontiers, writes)
        return SourceOffset(
            batch=last.batch + 1,
            lower=last.upper,
            upper=selection.upper,
            positions=positions,
            plan=plan.fingerprint(),
            frontiers=frontiers,
            begins=begins,
            firsts=_firsts(plan, self.before, begins),
            topic_ids=last.topic_ids,
            behind=selection.behind + offsets_left(transition.read_back),
            exchanges={**last.exchanges, **self.exchanges.to},
            input_times=learned_again(plan, last, times, positions, selection.upper),
            now=self.trigger.now_ms if plan.is_dated else 0,
            transition=transition,
        )

    def transition(
        self, positions: Positions, upper: int, frontiers: Mapping[str, int], writes: list[str]
    ) -> Transition:
        """Move the last batch's transition on."""
        last, edit, all_exchanges = self.last.transition, self.edit, self.exchanges.all
        limit = self.trigger.limit if all_exchanges else 0
        spans = read_back(last, self.look, edit, self.edited.edits, limit)
        phase = edit.phase(self.joins, writes)
        if self.rebuilds and last.rebuilding is not None:
            is_level = all_exchanges and not offsets_left(spans) and progress.is_level(frontiers)
            # The difference has a time of its own, before the last upper.
            is_read = is_level and upper > edit.at and last.rebuilding.is_read(positions)
            phase = Phase.REBUILT if is_read else Phase.REBUILD
        return last.next(
            phase,
            edits=max(self.edited.edits, last.edits),
            at=edit.at,
            # Portions go through the exchange topic, so the next one waits until that is read.
            takes=(bool(self.joins) or edit.fills) and all_exchanges,
            joins=self.joins,
            began=beginning_joins(last, frontiers, edit),
            read_back=spans,
            writing=writes,
            wrote=[name for name in last.writing if name not in writes],
            rebuilding=last.rebuilding if self.rebuilds else None,
        )


def _exchanges(last: SourceOffset, look: MintingState, most: int) -> _Exchanges:
    """Choose the offsets up to which the exchange topic is read: a share of each if many wait."""
    waiting = {shard: end - last.exchanges.get(shard, 0) for shard, end in look.exchanges.items()}
    backlog = sum(waiting.values())
    if backlog > most:
        waiting = {shard: -(-count * most // backlog) for shard, count in waiting.items()}
    to = {shard: last.exchanges.get(shard, 0) + count for shard, count in waiting.items()}
    return _Exchanges(to, all=backlog <= most)


def _positions(last: SourceOffset, selection: BatchSelection) -> Positions:
    """The offsets of all topics after the batch; a partition that is not read keeps its offset."""
    return {
        topic: {**last.positions.get(topic, {}), **selection.ends.get(topic, {})}
        for topic in [*last.positions, *(t for t in selection.ends if t not in last.positions)]
    }


def _begins(last: SourceOffset, selection: BatchSelection) -> Positions:
    """The first offsets of the partitions that no earlier batch has read."""
    new = {
        topic: {p: at for p, at in by.items() if p not in last.positions.get(topic, {})}
        for topic, by in selection.starts.items()
    }
    return {topic: by for topic, by in new.items() if by}


def _firsts(plan: Plan, last: SourceOffset, begins: Positions) -> Positions:
    """The first offsets of topics that edits have added; the metadata has those of others."""
    firsts = {topic: by for topic, by in last.firsts.items() if topic in plan.topics}
    if last.batch < 0:
        return firsts
    new = {t: by for t, by in begins.items() if t in plan.topics and t not in last.positions}
    return {**firsts, **new}


def _of(plan: Plan, knowledge: Mapping[str, InputTimes]) -> dict[str, InputTimes]:
    """Drop the knowledge about removed inputs: a later input may have the same name."""
    names = {source.name for source in plan.inputs}
    names |= {topic_key(topic) for topic in plan.transaction_topics}
    return {name: times for name, times in knowledge.items() if name in names}


def _read(knowledge: Mapping[str, InputTimes]) -> dict[str, InputTimes]:
    """Clear `reads` and a `base` that was read, which belonged to the last batch."""
    return {
        name: msgspec.structs.replace(times, reads={}, base=times.unread_base)
        for name, times in knowledge.items()
    }
