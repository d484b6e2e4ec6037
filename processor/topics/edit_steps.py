"""How batches continue an edit of the plan, and the hydration of new joins."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from ikebana.arrangements.frontier import Interval
from ikebana.processor.base.transition import FILLED, ReadBack, Stage, Transition
from ikebana.processor.planning import progress
from ikebana.processor.planning.joined import joined
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics import own_topics
from ikebana.processor.topics.source_offset import Positions, SourceOffset
from ikebana.processor.topics.taking import MintingState


class EditStep(NamedTuple):
    """The edit in progress: its frontier, and whether the batch fills.

    The frontier is 0 without an edit, and also while an edit from before the first closed time
    fills: after the fill such an edit is over.

    With `goes_on`, the edit needs a batch even if there is nothing to read.
    """

    at: int
    fills: bool
    goes_on: bool

    def stage(self, joins: Collection[str], writes: Collection[str]) -> Stage:
        """The stage of the batch, while `joins` lack rows and outputs write portions."""
        if self.fills:
            return Stage.FILL
        if joins:
            return Stage.JOIN
        if writes:
            return Stage.WRITE
        return Stage.CLOSE if self.at else Stage.SETTLED


def step_of(last: SourceOffset, look: MintingState, edits: int) -> EditStep:
    """Determine how the batch after `last` continues an edit of the plan."""
    of = last.transition
    if edits > of.number:
        # A checkpoint without a batch has no state to fill from.  One that has closed no time has
        # no contents, but updates may wait in it that were computed by the old plan.
        return EditStep(last.upper, fills=last.upper > 0 or last.batch >= 0, goes_on=True)
    if of.fills:
        # Only a batch that read the whole exchange topic can know that nothing is in flight.
        is_done = of.takes and FILLED in look.replayed.done and not own_topics.left(of.read_back)
        return EditStep(of.at, fills=not is_done, goes_on=True)
    # Outputs hold the updates of an edit until its time is closed.
    least = min(last.frontiers.values(), default=last.upper)
    is_open = of.stage is Stage.REBUILD or bool(of.writing) or least <= of.at
    return EditStep(of.at if is_open else 0, fills=False, goes_on=False)


def read_back(
    last: Transition, look: MintingState, edit: EditStep, edits: int, limit: int | None
) -> ReadBack:
    """The positions in outputs' own topics after a batch that reads about `limit` offsets."""
    if not edit.fills and last.stage is not Stage.REBUILD:
        return {}
    positions = look.read_back if edits > last.number else last.read_back
    return own_topics.advanced(positions, limit)


def writing(
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
    if edits <= last.transition.number:
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


def hydrating(plan: Plan, last: SourceOffset, done: Collection[str]) -> list[str]:
    """Find the joins that are new, or have not `done` their replays."""
    joins = [join for join in last.transition.joins if join not in done]
    if last.frontiers:
        joins += [j.name for j in plan.joins if j.name not in {*last.frontiers, *joins}]
    return [join for join in joins if join in joined(plan).origins]


def began(last: Transition, frontiers: Mapping[str, int], edit: EditStep) -> list[str]:
    """Find the joins that began, or begin, at the edit's time, which some operator has not passed.

    While an edit fills, the outputs that it changes have not passed its time.
    """
    is_open = edit.fills or min(frontiers.values(), default=0) <= edit.at
    return sorted({*last.began, *last.joins}) if is_open and last.at == edit.at else []
