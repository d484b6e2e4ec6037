"""The parts of a shard's state: the entries of each operator, and the shards they belong to.

A part is named by its kernel and its operator, as in "reduce totals"; those of upserts are
named by the operator alone.
"""

from collections.abc import Callable, Iterable
from itertools import islice

from ikebana.arrangements.store import Part, Store
from ikebana.processor.kernels import (
    arrange,
    arrange_upsert,
    facts,
    history,
    hold,
    locked,
    reduce,
    reduce_rows,
    single_value,
    state_machine,
    upsert,
)
from ikebana.processor.planning import progress, promises
from ikebana.processor.planning.joined import joined
from ikebana.processor.planning.plan import Plan

# Prefixes of parts by kernel.  Names have no space, so no upsert's name begins like these.
HOLD, HOLD_IN = "hold ", "hold-in "
MACHINE, REDUCE, REDUCE_ROWS = "machine ", "reduce ", "reduce-rows "
FACTS = "facts "
ARRANGE, LOCKED, HYDRATE = "arrange ", "locked ", "hydrate "
# The progress of an edit of the plan, which belongs to no operator.
EDIT = "edit "
SHOWN = "shown "
# The number of entries of removed operators that are deleted in one batch.
_RELEASED = 50_000


def operator_part(store: Store, operator: str) -> Part:
    """Open the part of one operator.  Names have no NUL, so no prefix begins with another."""
    return Part(store, operator.encode() + b"\0")


def apart(place: bytes, entry: bytes, shard_of: Callable[[bytes], int]) -> dict[int, bytes]:
    """Split an entry by the shards it belongs to; only what is in blocks may belong to several."""
    kind, inner = _kind_of(place)
    match kind:
        case b"hold" | b"hold-in":
            return hold.apart(inner, entry, shard_of)
        case b"arrange":
            return arrange.apart(inner, entry, shard_of)
        case b"":
            return arrange_upsert.apart(inner, entry, shard_of)
        case _:
            return {shard_of(_key_of(kind, inner, entry)): entry}


def _key_of(kind: bytes, inner: bytes, entry: bytes) -> bytes:
    """Find the key that an entry belongs to, which determines its shard."""
    match kind:
        case b"machine":
            return state_machine.key_of(inner, entry)
        case b"reduce":
            return reduce.key_of(inner, entry)
        case b"facts":
            return facts.key_of(entry)
        case b"reduce-rows":
            return reduce_rows.key_of(inner, entry)
        case b"locked":
            return locked.key_of(inner)
        case b"shown":
            return single_value.key_of(inner)
        case _:
            raise AssertionError(f"no entries of {kind!r} are known")


def combined(place: bytes, one: bytes, other: bytes) -> bytes | None:
    """Combine two entries of one store key when two shards become one; None: they cancel.

    Keys lie in one shard each, so only held updates, which may be equal in two, and blocks can
    meet: those of arrangements, and of upserts that wait.
    """
    kind, inner = _kind_of(place)
    match kind:
        case b"arrange":
            return arrange.combined(inner, one, other)
        case b"":
            return upsert.combined(inner, one, other)
        case _:
            assert kind in (b"hold", b"hold-in"), "a key lies in two shards"
            return hold.combined(one, other)


def of_one_shard(place: bytes) -> bool:
    """Whether an entry concerns its shard alone, so that rescaling drops it."""
    kind, inner = _kind_of(place)
    match kind:
        case b"hold" | b"hold-in":
            return hold.of_one_shard(inner)
        case b"arrange" | b"":
            return history.of_one_shard(inner)
        case b"hydrate" | b"edit":
            # The shard's progress in an edit, of which a rescaled checkpoint has none.
            return True
        case _:
            return False


def _kind_of(place: bytes) -> tuple[bytes, bytes]:
    """The kind of part that an entry is in, b"" for an upsert's, and its place there."""
    operator, _, inner = place.partition(b"\0")
    return operator.rpartition(b" ")[0], inner


def operator_of(place: bytes) -> str:
    """Find the operator that an entry of a shard belongs to."""
    return place[: place.index(b"\0")].decode()


def parts_of(plan: Plan) -> frozenset[str]:
    """List the names of all parts of the state that a plan may have."""
    stages = joined(plan)
    operators = progress.edges(plan)
    kinds = (MACHINE, REDUCE, REDUCE_ROWS, FACTS, ARRANGE, LOCKED, HOLD_IN, HYDRATE)
    own = {kind + name for kind in kinds for name in operators}
    outputs = {HOLD + output.name for output in plan.published}
    outputs |= {SHOWN + output.name for output in plan.outputs if promises.watches(plan, output)}
    return frozenset(own | outputs | {u.name for u in plan.upserts} | {*stages.kept})


def held_times(store: Store, plan: Plan) -> list[int]:
    """List the times of all held updates, in no order."""
    names = [
        *(HOLD + output.name for output in plan.published),
        *(HOLD_IN + name for name in progress.edges(plan)),
    ]
    return [time for name in names for time in hold.due_times(operator_part(store, name))]


def waiting_times(store: Store, plan: Plan) -> list[int]:
    """List the times of records that wait before upserts, machines and facts."""
    kinds: list[tuple[Callable[[Store], Iterable[int]], str, Iterable[str]]] = [
        (upsert.waiting_times, "", (each.name for each in plan.upserts)),
        (state_machine.waiting_times, MACHINE, (each.name for each in plan.machines)),
        (facts.due_times, FACTS, (each.name for each in plan.inputs)),
    ]
    return [
        time
        for times_of, kind, names in kinds
        for name in names
        for time in times_of(operator_part(store, kind + name))
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
