"""The operators of a plan judged one by one, from what they read to what reads them.

Where everything fits, a plan is compiled as it runs, and nothing of this is needed.  Where
something does not, each operator is judged by itself: of one that cannot be, or that reads
what is not there, the columns that cannot be told are `UNKNOWN`, and so all that depends on
them is silent.  Parts of a file that were not read are taken for unknown too.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import msgspec

from ikebana.processor.joins.binding import examined
from ikebana.processor.joins.query import AsOfJoin, DeltaJoin
from ikebana.processor.joins.relation import Relation
from ikebana.processor.linear.expressions import type_named
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.judging import StepProblem, judged
from ikebana.processor.linear.scope import (
    KEY,
    UNKNOWN,
    VALUE,
    ExpressionError,
    Scope,
    unknown,
)
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning import ways
from ikebana.processor.planning.aggregates import (
    AggregateError,
    arranged,
    in_order_of_types,
    result_scope,
)
from ikebana.processor.planning.plan import (
    Concat,
    Input,
    Linear,
    Operator,
    Plan,
    Reduce,
    StateMachine,
    Upsert,
)
from ikebana.processor.planning.unread import Unread

Problem = tuple[str, str]


def rows_of(source: Input, unread: Unread) -> Scope:
    """What may be named of an input's rows; of a column without a type, that it is there."""
    if unread.hides_rows(source.name):
        return unknown()
    known = []
    lost = set(unread.columns(source.name))
    for column in source.columns:
        try:
            type_named(column.type)
        except ExpressionError:
            lost.add(column.name)
        else:
            known.append(column)
    scope = ways.scope_of_input(replace(source, columns=tuple(known)))
    is_open = scope.open and not lost
    return Scope({**scope.types, **dict.fromkeys(lost, UNKNOWN)}, is_open, scope.declare)


class Judge:
    """Judges operators, each after what it reads; of a loop nothing is known."""

    def __init__(self, plan: Plan, unread: Unread) -> None:
        self.problems: list[Problem] = []
        self._unread = unread
        self._inputs = {source.name: source for source in plan.inputs}
        counted = Counter(operator.name for operator in plan.operators)
        self._operators = {o.name: o for o in plan.operators if counted[o.name] == 1}
        self._scopes: dict[str, tuple[Scope, ...]] = {}
        for operator in plan.operators:
            if counted[operator.name] == 1:
                self.scopes(operator.name)
            else:
                self._judged(operator)

    def scopes(self, name: str) -> tuple[Scope, ...]:
        """What may be named of a collection, on each way to it that differs; unknown if none."""
        if name not in self._scopes:
            self._scopes[name] = (unknown(),)
            if name in self._operators:
                made = self._judged(self._operators[name])
                if not self._unread.may_have("operators", name):
                    self._scopes[name] = _different(made)
            elif name in self._inputs and self._inputs[name].is_collection:
                self._scopes[name] = (rows_of(self._inputs[name], self._unread),)
        return self._scopes[name]

    def _judged(self, operator: Operator) -> list[Scope]:
        """What may be named of what an operator makes; its problems are noted."""
        match operator:
            case Upsert():
                return [self._rows(operator.input)]
            case StateMachine():
                rows = self._rows(operator.input)
                return [Scope({KEY: rows.types[KEY], VALUE: JSON}, open=True)]
            case Linear():
                return self._linear(operator)
            case Concat():
                return [scope for name in operator.sources for scope in self.scopes(name)]
            case Reduce():
                return [self._reduced(operator)]
            case DeltaJoin() | AsOfJoin():
                return [self._joined(operator)]

    def _rows(self, name: str) -> Scope:
        if name not in self._inputs:
            return unknown()
        return rows_of(self._inputs[name], self._unread)

    def _linear(self, operator: Linear) -> list[Scope]:
        path = f"operators.{operator.name}"

        def place(at: StepProblem) -> str:
            within = "" if len(operator.steps) == 1 else f".steps.{at.step}"
            return f"{path}{within}.{at.part}"

        return [
            self._taking(judged(operator.steps, scope), place)
            for scope in self.scopes(operator.source)
        ]

    def _reduced(self, operator: Reduce) -> Scope:
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

        def place(at: StepProblem) -> str:
            if not at.part.startswith("select."):
                return f"{path}.by"
            field = at.part.removeprefix("select.")
            name = next(each.name for each in aggregates if each.field == field)
            return f"{path}.aggregates.{name}"

        befores = [
            self._taking(judged((step,), scope), place) for scope in self.scopes(operator.source)
        ]
        unknown_of = {
            name for before in befores for name in before.types if before.types[name] == UNKNOWN
        }
        known = [each for each in aggregates if each.field not in unknown_of]
        try:
            in_order_of_types(known, befores)
        except AggregateError as error:
            for name, problem in error.problems:
                self._tell(f"{path}.aggregates.{name}", problem)
        made = result_scope(readable, befores[0])
        return Scope({**made.types, **dict.fromkeys(wrong, UNKNOWN)}, made.open, made.declare)

    def _joined(self, operator: DeltaJoin | AsOfJoin) -> Scope:
        kind = kind_of(operator)
        path = f"operators.{operator.name}"
        relations = {
            each.relation: Relation(self.scopes(each.relation)[0]) for each in operator.inputs
        }
        told = examined(operator, relations)
        for part, problem in told.problems:
            self._tell(f"{path}.{part.replace('inputs', kind, 1)}", problem)
        known = [each for _, each in told.select] + ([] if told.key is None else [told.key])
        types = {name: type_ for each in known for name, type_ in each.reads.items()}
        select = tuple((name, each.sql) for name, each in told.select)
        step = Sql(select=select, key=None if told.key is None else told.key.sql)
        scope = Scope({**types, KEY: JSON, VALUE: JSON})
        results = self._taking(judged((step,), scope), lambda at: f"{path}.{at.part}")
        made = {name: UNKNOWN for name, _ in operator.select}
        for name, each in told.select:
            if results.types.get(name) != UNKNOWN:
                made[name] = JSON if each.type == '"NULL"' else each.type
        return Scope({**made, KEY: JSON, VALUE: JSON})

    def _taking(
        self, found: tuple[list[StepProblem], Scope], place: Callable[[StepProblem], str]
    ) -> Scope:
        problems, scope = found
        for problem in problems:
            self._tell(place(problem), problem.problem)
        return scope

    def _tell(self, path: str, problem: str) -> None:
        # A collection with several ways to it is judged once for each.
        if (path, problem) not in self.problems:
            self.problems.append((path, problem))


def kind_of(join: DeltaJoin | AsOfJoin) -> str:
    """A kind of join as the pipeline file has it."""
    return "delta_join" if isinstance(join, DeltaJoin) else "as_of_join"


def _different(scopes: list[Scope]) -> tuple[Scope, ...]:
    different: list[Scope] = []
    for scope in scopes:
        if scope not in different:
            different.append(scope)
    return tuple(different) or (unknown(),)
