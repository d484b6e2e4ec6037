"""Reduce, by aggregates or by a function, as a kind of operator."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.linear.functions import FunctionError, found
from ikebana.processor.linear.scope import UNKNOWN, Scope
from ikebana.processor.planning.aggregates import (
    AggregateError,
    arranged,
    in_order_of_types,
    result_scope,
)
from ikebana.processor.planning.operators.kind import (
    Around,
    Compiled,
    Judged,
    OperatorKind,
    Problem,
    Way,
)
from ikebana.processor.planning.plan import Reduce

if TYPE_CHECKING:
    from ikebana.processor.linear.judging import StepProblem


class ReduceKind(OperatorKind[Reduce]):
    """A root by a key that a step before it makes, with the arguments of its aggregates."""

    label = "reduce"
    keeps_contents = True
    is_keyed = True
    sql = ("aggregates", "by")

    def sources(self, operator: Reduce) -> tuple[str, ...]:
        return (operator.source,)

    def with_sources(self, operator: Reduce, named: Callable[[str], str]) -> Reduce:
        return msgspec.structs.replace(operator, source=named(operator.source))

    def single_valued(self, operator: Reduce) -> bool:
        # A function may give several values.
        return operator.function is None

    def problems(self, operator: Reduce, around: Around) -> Iterator[Problem]:
        path = f"operators.{operator.name}"
        yield from around.missing_collection(f"{path}.reduce", operator.source)
        of_aggregates = f"{path}.aggregates"
        if operator.total and operator.by is not None:
            yield f"{path}.by", "a total is of all rows, and has no other key"
        if operator.total and operator.function is not None:
            yield (
                f"{path}.function",
                "a function is not called without rows; total is of aggregates",
            )
        if operator.function is not None:
            if operator.aggregates:
                yield of_aggregates, "a reduction has aggregates or a function, not both"
            try:
                found(operator.function)
            except FunctionError as error:
                yield f"{path}.function", str(error)
            return
        if not operator.aggregates:
            yield of_aggregates, "at least one is needed, or a function"
        for name, count in Counter(name for name, _ in operator.aggregates).items():
            if count > 1:
                yield f"{of_aggregates}.{name}", f"the name is used {count} times"
        try:
            arranged(operator)
        except AggregateError as error:
            for name, problem in error.problems:
                yield f"{of_aggregates}.{name}", problem

    def judged(self, operator: Reduce, judge: Judged) -> list[Scope]:
        from ikebana.processor.linear.judging import judged

        path = f"operators.{operator.name}"
        readable, wrong = operator, set()
        try:
            arranged(operator)
        except AggregateError as error:
            # That they are none is told already.
            wrong = {name for name, _ in error.problems}
            kept = tuple(each for each in operator.aggregates if each[0] not in wrong)
            readable = msgspec.structs.replace(operator, aggregates=kept)
        step, aggregates = arranged(readable)

        def place(at: "StepProblem") -> str:
            if not at.part.startswith("select."):
                return f"{path}.by"
            field = at.part.removeprefix("select.")
            name = next(each.name for each in aggregates if each.field == field)
            return f"{path}.aggregates.{name}"

        befores = [
            judge.taking(judged((step,), scope), place) for scope in judge.scopes(operator.source)
        ]
        unknown_of = {
            name for before in befores for name in before.types if before.types[name] == UNKNOWN
        }
        known = [each for each in aggregates if each.field not in unknown_of]
        try:
            in_order_of_types(known, befores)
        except AggregateError as error:
            for name, problem in error.problems:
                judge.tell(f"{path}.aggregates.{name}", problem)
        made = result_scope(readable, befores[0])
        types = {**made.types, **dict.fromkeys(wrong, UNKNOWN)}
        return [Scope(types, made.open, made.declare)]

    def scope(self, operator: Reduce, compiled: Compiled) -> Scope:
        way = ways_before(operator, compiled)[0]
        return result_scope(operator, compiled.scope_after(way))

    def compile(self, operator: Reduce, compiled: Compiled) -> None:
        for way in ways_before(operator, compiled):
            compiled.scope_after(way)
        if operator.function is None:
            aggregates_of(operator, compiled)


def ways_before(operator: Reduce, compiled: Compiled) -> tuple[Way, ...]:
    """The ways to what a reduction reads, with the step that makes its key and arguments."""
    before = (operator.name, arranged(operator).step)
    return tuple(Way(way.root, (*way.steps, before)) for way in compiled.ways(operator.source))


def aggregates_of(operator: Reduce, compiled: Compiled) -> tuple[Aggregate, ...]:
    """The aggregates of a reduction, with the orders of what they are of.

    Raises: AggregateError, if an argument cannot be ordered.
    """
    befores = [compiled.scope_after(way) for way in ways_before(operator, compiled)]
    return in_order_of_types(arranged(operator).aggregates, befores)
