"""An operator as somebody adds it: of the values that a key has had, the first one counts.

Its value, its kernel with the layout of its state, and its kind.  `ADDED` is its row of
`planning/kinds.py`; the union of `planning/plan.py` has the value, too.
"""

from collections.abc import Iterator, Sequence

import msgspec

from ikebana.arrangements.store import Part, Store
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import KeyedUpdate, Truncate, Upserts, times_of
from ikebana.processor.kernels.layout import KEY_IS_REST, Contents, OfKey, PartKind, StateLayout
from ikebana.processor.planning.kind import (
    Around,
    OperatorBatch,
    OperatorKind,
    Problem,
    Relations,
)
from ikebana.processor.planning.relations import Relation


class First(msgspec.Struct, frozen=True, tag="first"):
    """The first value of each key of an input, which stays."""

    name: str
    input: str


def step(
    store: Store, chunks: Sequence[Upserts | Truncate], interval: Interval
) -> list[KeyedUpdate]:
    """Take the rows whose times lie before the upper; others wait."""
    firsts, waiting = Part(store, b"k"), Part(store, b"w")
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
    for key, value in Part(store, b"k").scan(b"", start):
        yield key, (value,), ()


def _times(store: Store) -> list[int]:
    return [int.from_bytes(place[:8], "big") for place, _ in Part(store, b"w").scan(b"")]


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

    def sources(self, operator: First) -> tuple[str, ...]:
        return (operator.input,)

    def part(self, operator: First) -> PartKind:
        return PART

    def problems(self, operator: First, around: Around) -> Iterator[Problem]:
        if operator.input not in around.inputs:
            yield from around.missing_input(f"operators.{operator.name}.first", operator.input)

    def relation(self, operator: First, catalog: Relations) -> Relation:
        return Relation(catalog.rows(operator.input))

    def step(self, operator: First, batch: OperatorBatch, catalog: Relations) -> None:
        batch.emit(step(batch.part(PART), batch.rows(), batch.interval))


ADDED = {First: FirstKind()}
