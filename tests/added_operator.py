"""Two operators as somebody adds them: one reads an input, and one a collection by a key.

`First`: of the values that a key of an input has had, the first one counts.  `Greatest`: of the
rows that have a key, the greatest one is shown.

Of each its value, its kernel with the layout of its state, and its kind.  `ADDED` has their rows
of `planning/kinds.py`; the union of `planning/plan.py` has the values, too.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ikebana.arrangements.store import PrefixStore, Store
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import KeyedUpdate, Truncate, Upserts, times_of
from ikebana.processor.kernels.layout import (
    KEY_IS_REST,
    Contents,
    OfKey,
    PartKind,
    StateLayout,
    changes_by_key,
)
from ikebana.processor.linear.chain import result_of
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.kind import (
    Around,
    OperatorBatch,
    OperatorCatalog,
    OperatorKind,
)
from ikebana.processor.planning.plan import PlanProblem
from ikebana.processor.planning.relations import Relation


class First(msgspec.Struct, frozen=True, tag="first"):
    """The first value of each key of an input, which stays."""

    name: str
    input: str


def step(
    store: Store, chunks: Sequence[Upserts | Truncate], interval: Interval
) -> list[KeyedUpdate]:
    """Take the rows whose times lie before the upper; others wait."""
    firsts, waiting = PrefixStore(store, b"k"), PrefixStore(store, b"w")
    due = []
    for place, waited in list(waiting.scan(b"")):
        if (time := int.from_bytes(place[:8], "big")) < interval.upper:
            due.append((time, int.from_bytes(place[8:16], "big"), place[16:], waited))
            waiting.delete(place)
    for chunk in chunks:
        assert isinstance(chunk, Upserts)
        times = times_of(chunk.times, len(chunk.keys))
        for time, at, key, value in zip(
            times, chunk.offsets, chunk.keys, chunk.values, strict=True
        ):
            if value is None:
                continue
            if time < interval.upper:
                due.append((time, at, key, value))
            else:
                waiting.put(time.to_bytes(8, "big") + at.to_bytes(8, "big") + key, value)
    found: dict[bytes, KeyedUpdate] = {}
    for time, _, key, value in sorted(due):
        if key not in found and firsts.get_many([key]) == [None]:
            found[key] = KeyedUpdate(key, value, time, 1)
    for key, update in found.items():
        firsts.put(key, update.value)
    return list(found.values())


def contents(store: Store, start: bytes = b"") -> Iterator[Contents]:
    """The keys in order, each with its first value."""
    for key, value in PrefixStore(store, b"k").scan(b"", start):
        yield key, (value,), ()


def _times(store: Store) -> list[int]:
    return [int.from_bytes(place[:8], "big") for place, _ in PrefixStore(store, b"w").scan(b"")]


def _waiting(store: Store, upper: int, most: int) -> int:
    return sum(time >= upper for time in _times(store))


PART = PartKind(
    "first ",
    StateLayout({b"k": KEY_IS_REST, b"w": OfKey(lambda rest, _: rest[16:])}),
    contents,
    _waiting,
    _times,
)


class FirstKind(OperatorKind[First]):
    """A root by the key of an input."""

    label = "first"
    reads_rows = True
    parts = (PART,)

    def problems(self, operator: First, around: Around) -> Iterator[PlanProblem]:
        if operator.input not in around.inputs:
            yield from around.missing_input(f"operators.{operator.name}.first", operator.input)

    def relation(self, operator: First, catalog: OperatorCatalog) -> Relation:
        return Relation(catalog.rows(operator.input))

    def step(self, operator: First, batch: OperatorBatch, catalog: OperatorCatalog) -> None:
        batch.emit(step(batch.part(PART), batch.rows(), batch.interval))


class Greatest(msgspec.Struct, frozen=True, tag="greatest"):
    """The greatest of the rows of `source` that have a key, in the order of their bytes."""

    name: str
    source: str
    by: str


_Rows = dict[bytes, int]
_rows_of = msgspec.msgpack.Decoder(_Rows).decode


def greatest(
    store: Store, updates: Collection[KeyedUpdate], interval: Interval
) -> Iterator[KeyedUpdate]:
    """Apply the updates of one interval, which may come in any order."""
    for key, times in changes_by_key(updates, interval).items():
        (entry,) = store.get_many([key])
        rows: Counter[bytes] = Counter() if entry is None else Counter(_rows_of(entry))
        for time in sorted(times):
            before = max(rows, default=None)
            rows.update(times[time])
            rows = Counter({row: count for row, count in rows.items() if count})
            if (after := max(rows, default=None)) != before:
                if before is not None:
                    yield KeyedUpdate(key, before, time, -1)
                if after is not None:
                    yield KeyedUpdate(key, after, time, 1)
        if rows:
            store.put(key, msgspec.msgpack.encode(dict(rows)))
        elif entry is not None:
            store.delete(key)


def shown(store: Store, start: bytes = b"") -> Iterator[Contents]:
    """The keys in order, each with its greatest row."""
    for key, entry in PrefixStore(store, b"r").scan(b"", start):
        yield key, (max(_rows_of(entry)),), ()


GREATEST = PartKind("greatest ", StateLayout({b"r": KEY_IS_REST}), shown)


class GreatestKind(OperatorKind[Greatest]):
    """A root by a key that it makes of each row."""

    label = "greatest"
    parts = (GREATEST,)

    def before(self, operator: Greatest) -> Sql:
        return Sql(key=operator.by)

    def relation(self, operator: Greatest, catalog: OperatorCatalog) -> Relation:
        result = result_of((self.before(operator),), catalog.relation(operator.source).scope)
        return Relation(catalog.taking(result, lambda _: f"operators.{operator.name}.by"))

    def step(self, operator: Greatest, batch: OperatorBatch, catalog: OperatorCatalog) -> None:
        rows = PrefixStore(batch.part(GREATEST), b"r")
        batch.emit(list(greatest(rows, batch.arrived(), batch.interval)))


ADDED: Mapping[type, OperatorKind[Any]] = {First: FirstKind(), Greatest: GreatestKind()}
