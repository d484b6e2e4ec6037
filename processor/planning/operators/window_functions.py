"""Window functions, as a kind of operator."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import msgspec

from ikebana.processor.kernels import window_functions
from ikebana.processor.kernels.layout import PartKind
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.kernels.window_functions import ORDER, SHOWN, Window
from ikebana.processor.kernels.window_values import PATTERN, RANKS, FrameBound, WindowFunction
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.results import StepProblem, result_of
from ikebana.processor.linear.scope import KEY, UNKNOWN, VALUE, Scope
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.aggregates import AggregateError, in_order_of_types
from ikebana.processor.planning.operators.kind import (
    Around,
    OperatorBatch,
    OperatorKind,
    Problem,
    Relations,
)
from ikebana.processor.planning.plan import WindowFunctions
from ikebana.processor.planning.relations import Relation


class WindowFunctionsKind(OperatorKind[WindowFunctions]):
    """A root by the key of its partitions."""

    label = "window functions"
    parts = (window_functions.PART,)
    is_keyed = True

    def sources(self, operator: WindowFunctions) -> tuple[str, ...]:
        return (operator.source,)

    def with_sources(
        self, operator: WindowFunctions, named: Callable[[str], str]
    ) -> WindowFunctions:
        return msgspec.structs.replace(operator, source=named(operator.source))

    def part(self, operator: WindowFunctions) -> PartKind:
        return window_functions.PART

    def before(self, operator: WindowFunctions) -> Sql:
        return arranged(operator).step

    def problems(self, operator: WindowFunctions, around: Around) -> Iterator[Problem]:
        path = f"operators.{operator.name}.window_functions"
        yield from around.missing_collection(path, operator.source)

    def relation(self, operator: WindowFunctions, catalog: Relations) -> Relation:
        path = f"operators.{operator.name}"
        step, functions = arranged(operator)

        def place(at: StepProblem) -> str:
            return f"{path}.{at.part}"

        befores = [
            catalog.taking(result_of((step,), scope), place)
            for scope in catalog.relation(operator.source).scopes
        ]
        types = befores[0].types
        if UNKNOWN not in types.values():
            try:
                _window(operator, befores)
            except AggregateError as error:
                for name, problem in error.problems:
                    catalog.tell(f"{path}.{name}", problem)
        columns = {"row": types.get(SHOWN, JSON)}
        columns |= {f"w{at}": _type(each, types) for at, each in enumerate(functions)}
        return Relation(replace(befores[0], types={**columns, KEY: types[KEY], VALUE: JSON}))

    def step(self, operator: WindowFunctions, batch: OperatorBatch, catalog: Relations) -> None:
        part, window = batch.part(window_functions.PART), catalog.window(operator)
        batch.emit(window_functions.step(part, batch.arrived(), batch.interval, window))


class _Arranged(NamedTuple):
    """The physical form: the step for its arguments, and functions over its fields."""

    step: Sql
    functions: tuple[WindowFunction, ...]


@lru_cache(maxsize=64)
def arranged(operator: WindowFunctions) -> _Arranged:
    """Split an operator into step and functions."""
    arguments: dict[str, str] = {}

    def field(sql: str) -> str:
        # Functions with the same argument share a field.
        return arguments.setdefault(sql, f"a{len(arguments)}") if sql else ""

    def bound(of: FrameBound) -> FrameBound:
        return msgspec.structs.replace(of, at=field(of.at))

    functions = tuple(
        msgspec.structs.replace(
            each,
            argument=field(each.argument),
            default=field(each.default),
            number_by=field(each.number_by),
            within=field(each.within),
            frame=msgspec.structs.replace(
                each.frame, start=bound(each.frame.start), end=bound(each.frame.end)
            ),
        )
        for each in operator.functions
    )
    order = () if operator.order is None else ((ORDER, operator.order),)
    select = (*order, (SHOWN, operator.row), *((name, sql) for sql, name in arguments.items()))
    return _Arranged(Sql(select=select, key=operator.by), functions)


def window_of(operator: WindowFunctions, catalog: Relations) -> Window:
    """The functions with the orders of their arguments' types.

    Raises: AggregateError, if rows or an argument cannot be ordered.
    """
    step, _ = arranged(operator)
    scopes = catalog.relation(operator.source).scopes
    return _window(operator, [result_of((step,), scope).scope for scope in scopes])


def _window(operator: WindowFunctions, befores: Sequence[Scope]) -> Window:
    _, functions = arranged(operator)
    of_rows = [Aggregate("row", "bottom", SHOWN)]
    if operator.order is not None:
        of_rows.append(Aggregate("order", "bottom", ORDER))
    ordered = in_order_of_types(of_rows, befores)
    typed = tuple(_in_order(each, befores) for each in functions)
    order = None if operator.order is None else ordered[1].order
    return Window(typed, order, ordered[0].order, operator.is_descending, operator.most)


def _in_order(function: WindowFunction, befores: Sequence[Scope]) -> WindowFunction:
    if function.within:
        aggregate = Aggregate(function.name, "bottom", function.within)
    elif function.aggregate is None or not function.argument:
        return function
    else:
        aggregate = Aggregate(
            function.name,
            function.kind,
            function.argument,
            function.number,
            is_distinct=function.is_distinct,
        )
    (typed,) = in_order_of_types((aggregate,), befores)
    return msgspec.structs.replace(function, order=typed.order, is_single=typed.is_single)


def _type(function: WindowFunction, types: Mapping[str, str]) -> str:
    """The SQL type of a function's values."""
    if function.kind == PATTERN or _is_users(function):
        return JSON
    if function.aggregate is not None and function.aggregate.type:
        return function.aggregate.type
    if function.kind in ("percent_rank", "cume_dist"):
        return "DOUBLE"
    if function.kind in RANKS:
        return "BIGINT"
    return types.get(function.argument, JSON)


def _is_users(function: WindowFunction) -> bool:
    return function.aggregate is not None and function.aggregate.user_class is not None
