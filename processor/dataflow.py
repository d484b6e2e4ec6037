"""One micro-batch of a plan, on one shard: rows in, updates for each output out.

Both shells, `evaluate` and Spark, come through here, so that their results cannot
differ.  Pure: what it computes depends on the plan, the store, the rows and the
intervals, and on nothing else.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ikebana.arrangements.errors import RecordError
from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Part, Store
from ikebana.codecs import canonical
from ikebana.processor import planner
from ikebana.processor.kernels import hold, upsert
from ikebana.processor.plan import ERRORS, Plan
from ikebana.processor.planner import Physical
from ikebana.processor.rows import (
    Errors,
    Ignored,
    KeyedUpdate,
    Symbols,
    Truncate,
    Updates,
    times_of,
)

# Rows as they reach a shard.
Rows = Sequence[Symbols | Truncate | Updates | Errors | Ignored]
# Operators' names hold no space, so nothing of theirs begins like this.
_HOLD = "hold "


@dataclass(frozen=True, slots=True)
class Emitted:
    """The updates by the name of the output, and what else is worth telling, counted.

    `counted` has, by kind: messages that said nothing of a relation ("heartbeat", ...),
    old images that were not what the state had ("drift"), and errors that the plan drops
    ("error dropped").
    """

    updates: dict[str, list[KeyedUpdate]]
    counted: Counter[str]


def operator_part(store: Store, operator: str) -> Part:
    """The entries of one operator.  Names hold no NUL, so no part begins another."""
    return Part(store, operator.encode() + b"\0")


def key_of(place: bytes, entry: bytes) -> bytes:
    """The key that an entry of a shard belongs to, which decides its shard."""
    if place.startswith(_HOLD.encode()):
        return hold.key_of(entry)
    return upsert.key_of(place[place.index(b"\0") + 1 :], entry)


def combined(place: bytes, one: bytes, other: bytes) -> bytes | None:
    """What two entries of one place come to when two shards become one; None is nothing.

    Keys lie in one shard each, so only held updates, which may be equal in two, can meet.
    """
    assert place.startswith(_HOLD.encode()), "a key lies in two shards"
    return hold.combined(one, other)


def operator_of(place: bytes) -> str:
    """The operator that an entry of a shard belongs to."""
    return place[: place.index(b"\0")].decode()


def advance(
    plan: Plan,
    store: Store,
    rows: Rows,
    intervals: Mapping[str, Interval],
    physical: Physical | None = None,
) -> Emitted:
    """Move every operator of `plan` through its interval.

    Raises: RecordError, if the plan says that an error is to stop the pipeline.
    """
    physical = planner.physical(plan) if physical is None else physical
    emitted: dict[str, list[KeyedUpdate]] = {output.name: [] for output in plan.published}
    counted: Counter[str] = Counter()
    errors = emitted[ERRORS]
    # By output: what is to be held, with the root whose frontier releases it.
    held: dict[str, tuple[str, list[KeyedUpdate]]] = {
        name: (root, [])
        for root, branches in physical.branches.items()
        for branch in branches
        if branch.moves_time
        for name in branch.outputs
    }

    def flow(root: str, updates: Sequence[KeyedUpdate]) -> None:
        """Let updates of a root go through its branches."""
        for branch in physical.branches[root]:
            passed = planner.chain_of(plan, branch, physical).apply(updates, branch.silent)
            errors.extend(passed.errors)
            for name in branch.outputs:
                (held[name][1] if name in held else emitted[name]).extend(passed.updates)

    for row in rows:
        match row:
            case Errors():
                errors += _error_updates(row)
            case Updates():
                made = list(map(KeyedUpdate, row.keys, row.values, row.times, row.diffs))
                for name in row.outputs:
                    (held[name][1] if name in held else emitted[name]).extend(made)
                if row.root:
                    flow(row.root, made)
            case Ignored():
                counted.update(row.counts)
    symbols = [row for row in rows if isinstance(row, Symbols | Truncate)]
    for operator in plan.upserts:
        own = [chunk for chunk in symbols if chunk.input == operator.input]
        changes = upsert.step(operator_part(store, operator.name), own, intervals[operator.name])
        errors += changes.errors
        counted["drift"] += changes.drift
        flow(operator.name, changes.updates)
    for name, (root, updates) in held.items():
        part = operator_part(store, _HOLD + name)
        emitted[name] += hold.step(part, updates, intervals[root].upper)
    if held:
        # What fails behind a step that moves time is an error of that time.
        upper = min(interval.upper for interval in intervals.values())
        emitted[ERRORS] = hold.step(operator_part(store, _HOLD + ERRORS), errors, upper)
    _settle_errors(plan, emitted, counted)
    return Emitted(emitted, +counted)


def held_times(store: Store, plan: Plan) -> list[int]:
    """The times of all updates that are held, in no order."""
    return [
        time
        for output in plan.published
        for time in hold.due_times(operator_part(store, _HOLD + output.name))
    ]


def _error_updates(row: Errors) -> list[KeyedUpdate]:
    count = len(row.records)
    diffs = [1] * count if row.diffs is None else row.diffs
    times = times_of(row.times, count)
    return [
        KeyedUpdate(None, record, time, diff)
        for record, time, diff in zip(row.records, times, diffs, strict=True)
    ]


def _settle_errors(
    plan: Plan, emitted: dict[str, list[KeyedUpdate]], counted: Counter[str]
) -> None:
    errors = emitted[ERRORS]
    new = [update for update in errors if update.diff > 0]
    if plan.on_error == "fail" and new:
        first = canonical.decode(new[0].value)
        where = "" if first["topic"] is None else "{topic}[{partition}]@{offset}: ".format(**first)
        raise RecordError(
            f"{where}{first['reason']}",
            hint="errors.policy is fail. Nothing of this batch was committed: with record "
            "the record goes to the error topic, and the pipeline goes on.",
        )
    if plan.on_error == "drop":
        counted["error dropped"] += len(new)
        errors.clear()
