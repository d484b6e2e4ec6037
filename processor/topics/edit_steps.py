"""How batches continue an edit of the plan, and the hydration of new joins."""

from collections.abc import Mapping, Set
from typing import NamedTuple

import msgspec

from ikebana.arrangements.frontier import Interval
from ikebana.processor.planning import progress
from ikebana.processor.planning.joined import joined
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics import own_topics
from ikebana.processor.topics.source_offset import Positions, ReadBack, SourceOffset
from ikebana.processor.topics.taking import MintingState

# Shards report this name among the hydrated joins when they have filled an edit.
FILLED = "@edit"


class EditStep(NamedTuple):
    """The edit in progress: its frontier, and whether the batch fills.

    The frontier is 0 without an edit, and also while an edit from before the first closed time
    fills: after the fill such an edit is over.

    With `goes_on`, the edit needs a batch even if there is nothing to read.
    """

    at: int
    fills: bool
    goes_on: bool


def step_of(last: SourceOffset, look: MintingState, edits: int) -> EditStep:
    """Determine how the batch after `last` continues an edit of the plan."""
    if edits > last.edits:
        # A checkpoint without a batch has no state to fill from.  One that has closed no time has
        # no contents, but updates may wait in it that were computed by the old plan.
        return EditStep(last.upper, fills=last.upper > 0 or last.batch >= 0, goes_on=True)
    if last.fills:
        # Only a batch that read the whole exchange topic can know that nothing is in flight.
        is_done = last.hydrates and FILLED in look.hydrated and not own_topics.left(last.read_back)
        return EditStep(last.editing, fills=not is_done, goes_on=True)
    # Outputs hold the updates of an edit until its time is closed.
    least = min(last.frontiers.values(), default=last.upper)
    is_open = bool(last.writes) or least <= last.editing
    return EditStep(last.editing if is_open else 0, fills=False, goes_on=False)


def own_of(
    last: SourceOffset, look: MintingState, edits: int, limit: int | None, *, reads: bool
) -> ReadBack:
    """The positions in outputs' own topics after the batch after `last`, which fills an edit."""
    positions = look.read_back if edits > last.edits else last.read_back
    return own_topics.advanced(positions, limit if reads else 0)


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
    if edit.fills or not edit.at or not look.large:
        return []
    begin = progress.beginning(last.frontiers)
    of = {name: Interval(last.frontiers.get(name, begin), at) for name, at in frontiers.items()}
    going_on = progress.output_intervals(plan, of)
    return sorted(
        name for name in look.large if name in going_on and going_on[name].upper > edit.at
    )


def without_former_parts(plan: Plan, last: SourceOffset, edits: int) -> SourceOffset:
    """Drop from the last batch the topics and operators that an edited plan no longer has."""
    if edits <= last.edits:
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


def hydrating(plan: Plan, last: SourceOffset, hydrated: Set[str]) -> dict[str, int]:
    """Find the joins that are new or not yet hydrated, with the times at which they begin."""
    begins = {join: at for join, at in last.hydrating.items() if join not in hydrated}
    if last.frontiers:
        begin = progress.beginning(last.frontiers)
        begins |= {j.name: begin for j in plan.joins if j.name not in last.frontiers}
    return {join: at for join, at in begins.items() if join in joined(plan).origins}


def began(last: SourceOffset, frontiers: Mapping[str, int], edit: EditStep) -> dict[str, int]:
    """Find the joins that began, or begin, at a time that some operator has not passed.

    While an edit fills, the outputs that it changes have not passed its time.
    """
    least = min(frontiers.values(), default=0)
    if edit.fills:
        least = min(least, edit.at)
    return {join: at for join, at in {**last.began, **last.hydrating}.items() if at >= least}
