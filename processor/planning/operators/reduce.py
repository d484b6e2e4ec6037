"""Reduce, by aggregates, by a function or by a loop, as a kind of operator."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec

from ikebana.processor.kernels import loop, reduce, reduce_rows
from ikebana.processor.kernels.layout import PartKind
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.linear.functions import FunctionError, function_named
from ikebana.processor.linear.results import StepProblem, result_of
from ikebana.processor.linear.scope import KEY, UNKNOWN
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.aggregates import (
    AggregateError,
    arranged,
    in_order_of_types,
    result_scope,
)
from ikebana.processor.planning.loops import loop_problems
from ikebana.processor.planning.operators.kind import (
    Around,
    OperatorBatch,
    OperatorKind,
    Problem,
    Relations,
)
from ikebana.processor.planning.plan import TOTAL_KEY, Reduce
from ikebana.processor.planning.relations import Relation


class ReduceKind(OperatorKind[Reduce]):
    """A root by a key that a step before it makes, with the arguments of its aggregates."""

    label = "reduce"
    parts = (reduce.PART, reduce_rows.PART, loop.PART)
    is_keyed = True
    sql = ("aggregates", "by")

    def sources(self, operator: Reduce) -> tuple[str, ...]:
        return (operator.source,)

    def with_sources(self, operator: Reduce, named: Callable[[str], str]) -> Reduce:
        return msgspec.structs.replace(operator, source=named(operator.source))

    def part(self, operator: Reduce) -> PartKind:
        if operator.loop is not None:
            return loop.PART
        return reduce.PART if operator.function is None else reduce_rows.PART

    def before(self, operator: Reduce) -> Sql:
        return arranged(operator).step

    def single_valued(self, operator: Reduce) -> bool:
        # A function or a loop may give several values.
        return operator.is_of_aggregates

    def problems(self, operator: Reduce, around: Around) -> Iterator[Problem]:
        path = f"operators.{operator.name}"
        yield from around.missing_collection(f"{path}.reduce", operator.source)
        of_aggregates = f"{path}.aggregates"
        if operator.total and operator.by is not None:
            yield f"{path}.by", "a total is of all rows, and has no other key"
        if operator.loop is not None:
            if operator.aggregates or operator.function is not None:
                yield f"{path}.loop", "a reduction by a loop has no aggregates and no function"
            return
        if operator.total and operator.function is not None:
            yield (
                f"{path}.function",
                "a function is not called without rows; total is of aggregates",
            )
        if operator.function is not None:
            if operator.aggregates:
                yield of_aggregates, "a reduction has aggregates or a function, not both"
            try:
                function_named(operator.function)
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

    def relation(self, operator: Reduce, catalog: Relations) -> Relation:
        path = f"operators.{operator.name}"
        if operator.loop is not None:
            for problem in loop_problems(operator.loop, catalog):
                catalog.tell(f"{path}.loop", problem)
        readable, wrong = operator, set()
        try:
            arranged(operator)
        except AggregateError as error:
            # Their problems are reported already.
            wrong = {name for name, _ in error.problems}
            sound = tuple(each for each in operator.aggregates if each[0] not in wrong)
            readable = msgspec.structs.replace(operator, aggregates=sound)
        step, aggregates = arranged(readable)

        def place(at: StepProblem) -> str:
            if not at.part.startswith("select."):
                return f"{path}.by"
            field = at.part.removeprefix("select.")
            name = next(each.name for each in aggregates if each.field == field)
            return f"{path}.aggregates.{name}"

        befores = [
            catalog.taking(result_of((step,), scope), place)
            for scope in catalog.relation(operator.source).scopes
        ]
        unknown_of = {
            name for before in befores for name in before.types if before.types[name] == UNKNOWN
        }
        typed = [each for each in aggregates if each.field not in unknown_of]
        try:
            in_order_of_types(typed, befores)
        except AggregateError as error:
            for name, problem in error.problems:
                catalog.tell(f"{path}.aggregates.{name}", problem)
        results = result_scope(readable, befores[0])
        types = {**results.types, **dict.fromkeys(wrong, UNKNOWN)}
        unique = ((KEY,),) if self.single_valued(operator) else ()
        return Relation(replace(results, types=types), unique)

    def step(self, operator: Reduce, batch: OperatorBatch, catalog: Relations) -> None:
        name, interval, arrived = operator.name, batch.interval, batch.arrived()
        if operator.loop is not None:
            program = catalog.program(operator)
            changes = loop.step(batch.part(loop.PART), arrived, interval, program, name)
        elif operator.function is None:
            part, aggregates = batch.part(reduce.PART), catalog.aggregates(operator)
            total = TOTAL_KEY.encode() if operator.total else None
            always = total if total is not None and batch.owns(total) else None
            changes = reduce.step(part, arrived, interval, aggregates, name, always)
        else:
            part, function = batch.part(reduce_rows.PART), function_named(operator.function)
            changes = reduce_rows.step(part, arrived, interval, function, name)
        batch.emit(changes.updates, changes.errors)


def aggregates_of(operator: Reduce, catalog: Relations) -> tuple[Aggregate, ...]:
    """The aggregates of a reduction, with the orders of their arguments' types.

    Raises: AggregateError, if an argument cannot be ordered.
    """
    step, aggregates = arranged(operator)
    scopes = catalog.relation(operator.source).scopes
    return in_order_of_types(aggregates, [result_of((step,), scope).scope for scope in scopes])
