"""Upsert, as a kind of operator: the last value of each key of an input."""

from collections.abc import Iterator

from ikebana.processor.linear.scope import Scope
from ikebana.processor.planning.operators.kind import (
    Around,
    Compiled,
    Judged,
    OperatorKind,
    Problem,
)
from ikebana.processor.planning.plan import Upsert


class UpsertKind(OperatorKind[Upsert]):
    """A root by the key of an input."""

    label = "upsert"
    reads_rows = True
    keeps_contents = True

    def sources(self, operator: Upsert) -> tuple[str, ...]:
        return (operator.input,)

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

    def judged(self, operator: Upsert, judge: Judged) -> list[Scope]:
        return [judge.rows(operator.input)]

    def scope(self, operator: Upsert, compiled: Compiled) -> Scope:
        return compiled.rows(operator.input)
