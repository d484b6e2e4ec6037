"""Reclocking: choose the records of a micro-batch, and map their offsets to our times.

The source mints one `SourceOffset` for each batch, and Spark logs it before the batch runs.
It is the durable mapping from Kafka's offsets to our times, and the only place where a clock is
read: everything else about the batch is a function of it.  `taking` has the offsets that a batch
reads and the ways to make times, `slices` what follows for each partition, and `edit_steps` how
an edit of the plan goes on.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from ikebana.processor.planning import progress
from ikebana.processor.planning.joined import joined
from ikebana.processor.planning.plan import Plan
from ikebana.processor.timing.again import learned_again
from ikebana.processor.timing.edit_steps import (
    at_their_ends,
    began,
    hydrating,
    own_of,
    step_of,
    without_former_parts,
)
from ikebana.processor.timing.input_times import InputTimes, topic_key
from ikebana.processor.timing.own_topics import left
from ikebana.processor.timing.source_offset import Positions, SourceOffset, is_settled
from ikebana.processor.timing.taking import Look, Taken, dated, timed

# A message of the loopback topic has thousands of updates, so this is a large batch.
MOST_HOPS = 400


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
    standing: Collection[str] = (),
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

    `edits` is how often the plan has been edited.  After an edit, the operators that are
    `standing` wait at its time until they have been filled from the state; all others go on.

    The keywords are what a trigger, a start and an edit ask for.  A run that `finishes` what is
    on its way reads nothing; there is no batch once all is settled.
    """
    if finishes and is_settled(last):
        return last
    edit = step_of(last, look, edits)
    before = last = without_former_parts(plan, last, edits)
    at_ends = at_their_ends(plan, last, look.ends) if edits > last.edits else {}
    if at_ends:
        last = msgspec.structs.replace(last, positions={**last.positions, **at_ends})
    hops = _hops(last, look, most_hops)
    # Messages in the loopback topic may still belong to a new join's first time.
    joins = hydrating(plan, last, look.hydrated if hops.all else frozenset())
    taken = Taken({}, {}, last.upper, 0, {})
    if not hops.all or (finishes and (edit.fills or plan.is_dated)):
        # Only what is on its way.
        pass
    elif plan.is_dated:
        taken = dated(plan, last, look, limit)
    else:
        # Rows from before a join are published when their time is closed, even if no records come.
        closes = bool(last.hydrating) and not joins
        beats = (heartbeat or first) and plan.time == "ingest"
        shows = bool(edit.at) and not edit.fills
        moves = closes or (not finishes and (shows or beats))
        taken = timed(plan, last, look, 0 if finishes else limit, now_ms, moves=moves)
    waits = {joined(plan).begins(join) for join in joins} | set(standing if edit.fills else ())
    frontiers = progress.advance_frontiers(
        progress.edges(plan), last.frontiers, taken.upper, all_hops=hops.all, standing=waits
    )
    begin = progress.beginning(last.frontiers)
    own = own_of(before, look, edits, limit, reads=hops.all) if edit.fills else {}
    positions, begins = _positions(last, taken), {**_begins(last, taken), **at_ends}
    known = {**_read(_of(plan, {**last.known, **look.known})), **taken.known}
    moved = any(at != last.frontiers.get(name, begin) for name, at in frontiers.items())
    # After hydration one more batch logs that it is complete.
    goes_on = moved or taken.reads or taken.upper != last.upper or last.hydrating or joins
    if hops.all and not goes_on and not first and not edit.goes_on:
        return last
    return SourceOffset(
        batch=last.batch + 1,
        lower=last.upper,
        upper=taken.upper,
        positions=positions,
        plan=plan.fingerprint(),
        frontiers=frontiers,
        begins=begins,
        firsts=_firsts(plan, before, begins),
        topic_ids=last.topic_ids,
        behind=taken.behind + left(own),
        hops={**last.hops, **hops.to},
        known=learned_again(plan, last, known, positions, taken.upper),
        now=now_ms if plan.is_dated else 0,
        hydrating=joins,
        # Portions go through the loopback topic: no more of them before it is empty.
        hydrates=(bool(joins) or edit.fills) and hops.all,
        edits=max(edits, last.edits),
        editing=edit.at,
        fills=edit.fills,
        began=began(last, frontiers, edit),
        filled=last.fills and not edit.fills,
        own=own,
    )


class _Hops(NamedTuple):
    """The offsets, by shard, up to which a batch reads the loopback topic; whether that is all."""

    to: dict[int, int]
    all: bool


def _hops(last: SourceOffset, look: Look, most: int) -> _Hops:
    """Choose the offsets up to which the loopback topic is read: a share of each if many wait."""
    waiting = {shard: end - last.hops.get(shard, 0) for shard, end in look.hops.items()}
    backlog = sum(waiting.values())
    if backlog > most:
        waiting = {shard: -(-count * most // backlog) for shard, count in waiting.items()}
    to = {shard: last.hops.get(shard, 0) + count for shard, count in waiting.items()}
    return _Hops(to, all=backlog <= most)


def _positions(last: SourceOffset, taken: Taken) -> Positions:
    """The offsets of all topics; they move by partition: one that is not read keeps its own."""
    return {
        topic: {**last.positions.get(topic, {}), **taken.ends.get(topic, {})}
        for topic in [*last.positions, *(t for t in taken.ends if t not in last.positions)]
    }


def _begins(last: SourceOffset, taken: Taken) -> Positions:
    """The first offsets of the partitions that no batch before has read."""
    new = {
        topic: {p: at for p, at in by.items() if p not in last.positions.get(topic, {})}
        for topic, by in taken.starts.items()
    }
    return {topic: by for topic, by in new.items() if by}


def _firsts(plan: Plan, last: SourceOffset, begins: Positions) -> Positions:
    """The first offsets of topics that edits have added; the metadata has those of others."""
    known = {topic: by for topic, by in last.firsts.items() if topic in plan.topics}
    if last.batch < 0:
        return known
    new = {t: by for t, by in begins.items() if t in plan.topics and t not in last.positions}
    return {**known, **new}


def _of(plan: Plan, known: Mapping[str, InputTimes]) -> dict[str, InputTimes]:
    """Drop what is known of inputs that are gone: one that is added later may have their name."""
    names = {source.name for source in plan.inputs}
    names |= {topic_key(topic) for topic in plan.transaction_topics}
    return {name: times for name, times in known.items() if name in names}


def _read(known: Mapping[str, InputTimes]) -> dict[str, InputTimes]:
    """Clear `reads` and a `base` that was read, which belonged to the last batch."""
    return {
        name: msgspec.structs.replace(times, reads={}, base=times.unread_base)
        for name, times in known.items()
    }
