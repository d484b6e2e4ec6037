"""Find all problems of a plan's operators, each by itself, in the order of the dataflow.

It is used when compiling the plan has failed.  The columns of an operator with a problem,
or with a missing source, get the type `UNKNOWN`, and what depends on these is not reported:
so one mistake is one problem.  Parts of a file that could not be read are unknown too.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from ikebana.processor.linear.expressions import column_type
from ikebana.processor.linear.judging import StepProblem
from ikebana.processor.linear.scope import UNKNOWN, ExpressionError, Scope, unknown
from ikebana.processor.planning.graph import scope_of_input
from ikebana.processor.planning.operators.table import kind_of
from ikebana.processor.planning.plan import Input, Operator, Plan
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
            column_type(column.type)
        except ExpressionError:
            lost.add(column.name)
        else:
            known.append(column)
    scope = scope_of_input(replace(source, columns=tuple(known)))
    is_open = scope.open and not lost
    return Scope({**scope.types, **dict.fromkeys(lost, UNKNOWN)}, is_open, scope.declare)


class Judge:
    """Checks operators in the order of the dataflow; those on a cycle are unknown."""

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
        return kind_of(operator).judged(operator, self)

    def rows(self, name: str) -> Scope:
        """What may be named of an input's rows."""
        if name not in self._inputs:
            return unknown()
        return rows_of(self._inputs[name], self._unread)

    def taking(
        self, found: tuple[list[StepProblem], Scope], place: Callable[[StepProblem], str]
    ) -> Scope:
        """The scope behind judged steps, whose problems are noted."""
        problems, scope = found
        for problem in problems:
            self.tell(place(problem), problem.problem)
        return scope

    def tell(self, path: str, problem: str) -> None:
        """Note a problem."""
        # A collection with several ways to it is judged once for each.
        if (path, problem) not in self.problems:
            self.problems.append((path, problem))


def _different(scopes: list[Scope]) -> tuple[Scope, ...]:
    different: list[Scope] = []
    for scope in scopes:
        if scope not in different:
            different.append(scope)
    return tuple(different) or (unknown(),)
