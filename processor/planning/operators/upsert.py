"""Upsert, as a kind of operator: the last value of each key of an input."""

from collections.abc import Iterator

from ikebana.processor.kernels import upsert
from ikebana.processor.kernels.layout import PartKind
from ikebana.processor.linear.scope import KEY
from ikebana.processor.planning.operators.kind import (
    Around,
    OperatorBatch,
    OperatorKind,
    Problem,
    Relations,
)
from ikebana.processor.planning.plan import Upsert
from ikebana.processor.planning.relations import Relation


class UpsertKind(OperatorKind[Upsert]):
    """A root by the key of an input."""

    label = "upsert"
    reads_rows = True
    parts = (upsert.PART,)

    def sources(self, operator: Upsert) -> tuple[str, ...]:
        return (operator.input,)

    def part(self, operator: Upsert) -> PartKind:
        return upsert.PART

    def single_valued(self, operator: Upsert) -> bool:
        return True

    def problems(self, operator: Upsert, around: Around) -> Iterator[Problem]:
        path, name, readers = f"operators.{operator.name}.upsert", operator.input, around.readers
        if name not in around.inputs:
            yield from around.missing_input(path, name)
        elif around.unread.hides_rows(name):
            pass
        elif around.inputs[name].is_collection:
            yield path, f"input {name!r} gives updates by itself"
        if name in readers:
            yield (
                path,
                f"operator {readers[name]!r} already upserts {name!r}; use it, outputs may "
                "share an operator",
            )
        readers[name] = operator.name

    def relation(self, operator: Upsert, catalog: Relations) -> Relation:
        rows, source = catalog.rows(operator.input), catalog.inputs.get(operator.input)
        if source is None:
            return Relation(rows)
        return Relation(rows, ((KEY,), *source.unique), source.size, keeps_state=True)

    def step(self, operator: Upsert, batch: OperatorBatch, catalog: Relations) -> None:
        changes = upsert.step(batch.part(upsert.PART), batch.rows(), batch.interval)
        batch.count("drift", changes.drift, changes.drifted)
        batch.count("outdated", changes.outdated, changes.outdated_at)
        batch.emit(changes.updates, changes.errors)
