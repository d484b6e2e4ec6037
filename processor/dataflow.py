"""One micro-batch of a plan, on one shard: rows in, updates for each output out.

Both shells, `evaluate` and Spark, come through here, so that their results cannot
differ.  Pure: what it computes depends on the plan, the store, the rows and the
intervals, and on nothing else.
"""

from collections.abc import Mapping, Sequence

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Part, Store
from ikebana.processor.kernels import upsert
from ikebana.processor.plan import ERRORS, Plan
from ikebana.processor.rows import Errors, KeyedUpdate, Symbols, times_of

# Rows as they reach a shard.
Rows = Sequence[Symbols | Errors]
# Updates by the name of the output.
Emitted = dict[str, list[KeyedUpdate]]


def operator_part(store: Store, operator: str) -> Part:
    """The entries of one operator.  Names hold no NUL, so no part begins another."""
    return Part(store, operator.encode() + b"\0")


def key_of(place: bytes, entry: bytes) -> bytes:
    """The key that an entry of a shard belongs to, which decides its shard."""
    return upsert.key_of(place[place.index(b"\0") + 1 :], entry)


def operator_of(place: bytes) -> str:
    """The operator that an entry of a shard belongs to."""
    return place[: place.index(b"\0")].decode()


def advance(plan: Plan, store: Store, rows: Rows, intervals: Mapping[str, Interval]) -> Emitted:
    """Move every operator of `plan` through its interval."""
    emitted: Emitted = {output.name: [] for output in plan.published}
    errors = emitted[ERRORS]
    for row in rows:
        if isinstance(row, Errors):
            times = times_of(row.times, len(row.records))
            errors += [
                KeyedUpdate(None, record, time, 1)
                for record, time in zip(row.records, times, strict=True)
            ]
    symbols = [row for row in rows if isinstance(row, Symbols)]
    for operator in plan.operators:
        own = [chunk for chunk in symbols if chunk.input == operator.input]
        changes = upsert.step(operator_part(store, operator.name), own, intervals[operator.name])
        errors += changes.errors
        for output in plan.outputs:
            if output.source == operator.name:
                emitted[output.name] += changes.updates
    return emitted
