"""Linear and concat, as kinds of operators."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from ikebana.processor.linear.chain import Named
from ikebana.processor.linear.scope import Scope
from ikebana.processor.planning.operators.kind import Around, Judged, OperatorKind, Problem
from ikebana.processor.planning.plan import Concat, Linear

if TYPE_CHECKING:
    from ikebana.processor.linear.judging import StepProblem


class LinearKind(OperatorKind[Linear]):
    """Steps, which run in the same pass as their source."""

    label = "linear"
    is_linear = True

    def sources(self, operator: Linear) -> tuple[str, ...]:
        return (operator.source,)

    def with_sources(self, operator: Linear, named: Callable[[str], str]) -> Linear:
        return msgspec.structs.replace(operator, source=named(operator.source))

    def steps(self, operator: Linear) -> tuple[Named, ...]:
        return tuple((operator.name, step) for step in operator.steps)

    def problems(self, operator: Linear, around: Around) -> Iterator[Problem]:
        path = f"operators.{operator.name}.linear"
        yield from around.missing_collection(path, operator.source)

    def judged(self, operator: Linear, judge: Judged) -> list[Scope]:
        # There, and not above: DuckDB takes a while to import, and what fits is not judged.
        from ikebana.processor.linear.judging import judged

        path = f"operators.{operator.name}"

        def place(at: "StepProblem") -> str:
            within = "" if len(operator.steps) == 1 else f".steps.{at.step}"
            return f"{path}{within}.{at.part}"

        return [
            judge.taking(judged(operator.steps, scope), place)
            for scope in judge.scopes(operator.source)
        ]


class ConcatKind(OperatorKind[Concat]):
    """The sum of collections; it only joins ways."""

    label = "concat"
    is_linear = True

    def sources(self, operator: Concat) -> tuple[str, ...]:
        return operator.sources

    def with_sources(self, operator: Concat, named: Callable[[str], str]) -> Concat:
        return msgspec.structs.replace(operator, sources=tuple(map(named, operator.sources)))

    def problems(self, operator: Concat, around: Around) -> Iterator[Problem]:
        path = f"operators.{operator.name}.concat"
        if not operator.sources:
            yield path, "at least one operator is needed"
        for source in operator.sources:
            yield from around.missing_collection(path, source)

    def judged(self, operator: Concat, judge: Judged) -> list[Scope]:
        return [scope for name in operator.sources for scope in judge.scopes(name)]
