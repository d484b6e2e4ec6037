"""The parts of a shard's state, and where their entries go when the number of shards changes.

A part is named by its kind and by an operator, an input or an output, as in "reduce totals"; a
part of an upsert is named by the operator alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from operator import itemgetter

from ikebana.arrangements.store import Store
from ikebana.arrangements.update import Interval
from ikebana.processor.kernels import facts, hold, single_value
from ikebana.processor.kernels.layout import (
    OF_SHARD,
    PartKind,
    ShardOf,
    StateLayout,
    operator_part,
)
from ikebana.processor.planning import progress
from ikebana.processor.planning.backfill import reads_again
from ikebana.processor.planning.input_rows import comes_out_of_decoding
from ikebana.processor.planning.joins.stages import joined
from ikebana.processor.planning.kinds import KINDS, kind_of
from ikebana.processor.planning.outputs import watches_values
from ikebana.processor.planning.plan import Plan

EDIT = PartKind("edit ", StateLayout({b"a": OF_SHARD, b"c": OF_SHARD, b"u": OF_SHARD}))
"""The progress of a shard in an edit of the plan (`engine.replaying`); it belongs to no operator.

No edit is under way when a checkpoint is rescaled.
"""
# The number of entries of removed operators that are deleted in one batch.
_RELEASED = 50_000
_Entry = tuple[bytes, bytes]
# Each part of the state is counted up to this number, which takes a millisecond or two.
MOST_COUNTED = 1_000


def kinds_of_parts() -> tuple[PartKind, ...]:
    """All kinds of parts: of operators, inputs, outputs, and transitions."""
    of_operators = (part for kind in KINDS.values() for part in kind.parts)
    others = (facts.PART, hold.IN, hold.OUT, single_value.PART, EDIT)
    return tuple(dict.fromkeys((*of_operators, *others)))


def to_new_shards(entries: Iterable[_Entry], shard_of: ShardOf) -> Iterator[tuple[int, _Entry]]:
    """Assign the entries of all shards, merged in order, to the shards that get them.

    Entries of several shards at one place are united, and blocks are divided.
    """
    layouts = {kind.prefix.encode(): kind.layout for kind in kinds_of_parts()}
    for place, same in groupby(entries, key=itemgetter(0)):
        name, _, inner = place.partition(b"\0")
        layout = layouts[name[: name.rfind(b" ") + 1]]
        (_, entry), *others = same
        whole: bytes | None = entry
        for _, other in others:
            whole = other if whole is None else layout.united(inner, whole, other)
        if whole is not None:
            for shard, part in layout.divided(inner, whole, shard_of).items():
                yield shard, (place, part)


def operator_of(place: bytes) -> str:
    """Find the name of the part that an entry of a shard belongs to."""
    return place[: place.index(b"\0")].decode()


def parts_of(plan: Plan) -> frozenset[str]:
    """List the names of all parts of the state that a plan may have."""
    of_operators = (part for kind in KINDS.values() for part in kind.parts if part.prefix)
    kinds = {*of_operators, facts.PART, hold.IN}
    of_plan = {kind.prefix + name for kind in kinds for name in progress.edges(plan)}
    outputs = {hold.OUT.prefix + output.name for output in plan.published}
    watched = (output for output in plan.outputs if watches_values(plan, output))
    outputs |= {single_value.PART.prefix + output.name for output in watched}
    return frozenset(
        of_plan | outputs | {u.name for u in plan.upserts} | {*joined(plan).arrangements}
    )


def held_times(store: Store, plan: Plan) -> list[int]:
    """List the times of all held updates, in no particular order."""
    held = [
        *(hold.OUT.of(store, output.name) for output in plan.published),
        *(hold.IN.of(store, name) for name in progress.edges(plan)),
    ]
    return [time for part in held for time in hold.due_times(part)]


def waiting_parts(plan: Plan) -> Iterator[tuple[str, PartKind]]:
    """The operators and inputs with records that wait for their times, and the parts of these."""
    for operator in plan.operators:
        part = kind_of(operator).part(operator)
        if part is not None and part.waiting is not None:
            yield operator.name, part
    for source in plan.inputs:
        if source.is_collection and not comes_out_of_decoding(source):
            yield source.name, facts.PART


def waiting_times(store: Store, plan: Plan) -> list[int]:
    """List the times of records that wait before operators, and of facts."""
    return [
        time
        for name, part in waiting_parts(plan)
        if part.times is not None
        for time in part.times(part.of(store, name))
    ]


def release(store: Store, parts: Iterable[str]) -> bool:
    """Delete entries of parts, up to a batch's limit; return whether all are deleted."""
    left = _RELEASED
    for name in parts:
        part = operator_part(store, name)
        for place in [place for place, _ in islice(part.scan(b""), left)]:
            part.delete(place)
            left -= 1
    return left > 0


def waiting(
    plan: Plan, store: Store, intervals: Mapping[str, Interval], holds: Iterable[str]
) -> int:
    """How many records, and updates of them, wait for a frontier to pass their times.

    `holds` are the holds of updates that count; updates that a step moved into the future do not,
    since nobody waits for them.  Inputs that are read again do not count: their records also wait
    in the other reading.
    """
    again = reads_again(plan)
    count = sum(hold.waiting(operator_part(store, name), MOST_COUNTED) for name in holds)
    for name, part in waiting_parts(plan):
        if name not in again and part.waiting is not None:
            count += part.waiting(part.of(store, name), intervals[name].upper, MOST_COUNTED)
    return count
