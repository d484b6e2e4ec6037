"""The catalog of a plan: the relation of each of its collections, inferred once.

Relations are inferred in the order of the dataflow, each from the collections that its operator
reads.  The results of an operator with a problem, or with a missing source, have the type
`UNKNOWN`, and problems that depend on unknown types are not reported: so one mistake is one
problem, and all mistakes are reported.
"""

# Decision (types one operator at a time): Each step is compiled over the columns of what it
# reads, so a view of many parts does not compile all parts before it again.

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from ikebana.codecs.sql_type import JSON, NULL, Scalar, SqlType, type_of, within
from ikebana.processor.kernels.loop import Program
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.kernels.window_functions import Window
from ikebana.processor.linear.chain import StepProblem
from ikebana.processor.linear.scope import KEY, UNKNOWN, VALUE, ExpressionError, Scope, unknown
from ikebana.processor.linear.typed_json import from_json
from ikebana.processor.planning.input_rows import rows_of
from ikebana.processor.planning.joins.binding import Examined, examined
from ikebana.processor.planning.joins.paths import Planned, planned
from ikebana.processor.planning.joins.query import Join
from ikebana.processor.planning.kinds import aggregates_of, kind_of, window_of
from ikebana.processor.planning.loops import collections, program
from ikebana.processor.planning.plan import (
    ALL_READ,
    Input,
    Loop,
    Operator,
    Output,
    Plan,
    PlanProblem,
    Reduce,
    Unread,
    WindowFunctions,
)
from ikebana.processor.planning.relations import NOTHING, Keyed, Relation

Derived = TypeVar("Derived")
_UNKNOWN = Relation(unknown())
# These types are unknown, or tables of other programs have no values of them.
_WITHOUT_VALUES = {JSON, NULL, Scalar("INTERVAL"), Scalar("VARIANT"), Scalar(UNKNOWN)}


class Catalog:
    """The relations of inputs and operators by name, and the problems of the operators.

    Operators that share a name are unknown, and so is everything in `unread`.
    """

    def __init__(
        self,
        inputs: Iterable[Input],
        operators: Iterable[Operator] = (),
        unread: Unread = ALL_READ,
    ) -> None:
        self.inputs: Mapping[str, Input] = {source.name: source for source in inputs}
        self._listed = tuple(operators)
        counted = Counter(operator.name for operator in self._listed)
        self.operators = {o.name: o for o in self._listed if counted[o.name] == 1}
        self._unread = unread
        self.faults: list[PlanProblem] = []
        """The problems that have been found so far, as (path of the part, problem)."""
        self._relations: dict[str, Relation] = {}
        # The collections that have a problem, or read one with a problem.
        self._faulty: set[str] = set()
        self._examined: dict[Join, Examined] = {}
        # By collection, what has been derived of it, by what derives it.
        self._derived: defaultdict[str, dict[Any, Any]] = defaultdict(dict)

    def problems(self) -> list[PlanProblem]:
        """All problems of the operators.

        They are computed each time: a missing module of functions may exist the next time.
        """
        self._forget_faulty()
        for operator in self._listed:
            if operator.name in self.operators:
                self.relation(operator.name)
            else:
                kind_of(operator).relation(operator, self)
        return [*self.faults]

    def copy(self) -> "Catalog":
        """A copy, to which other operators may be added."""
        catalog = Catalog(self.inputs.values(), unread=self._unread)
        catalog.operators = dict(self.operators)
        catalog._relations = {n: of for n, of in self._relations.items() if n not in self._faulty}
        return catalog

    def add(self, operators: Iterable[Operator]) -> None:
        """Add operators; others may read them."""
        self.operators |= {operator.name: operator for operator in operators}
        self._forget_faulty()

    def relation(self, name: str) -> Relation:
        """The relation of a collection; unknown if the collection is missing, or reads itself."""
        waiting, begun = [(name, False)], set[str]()
        while waiting:
            at, has_sources = waiting.pop()
            if has_sources:
                for source in self.sources(at):
                    if source not in self._relations:
                        # It reads itself.
                        self._relations[source] = _UNKNOWN
                        self._faulty.add(source)
                self._relations[at] = self._inferred(at)
            elif at not in self._relations and at not in begun:
                begun.add(at)
                waiting.append((at, True))
                waiting += ((source, False) for source in reversed(self.sources(at)))
        return self._relations[name]

    def is_sound(self, name: str) -> bool:
        """Whether a collection is there, and neither it nor what it reads has a problem."""
        self.relation(name)
        return name not in self._faulty

    def rows(self, name: str) -> Scope:
        """The scope of an input's rows."""
        return rows_of(self.inputs[name], self._unread) if name in self.inputs else unknown()

    def tell(self, path: str, problem: str) -> None:
        """Note a problem."""
        # A collection is checked once for each way to it.
        if (path, problem) not in self.faults:
            self.faults.append((path, problem))

    def taking(
        self, result: tuple[list[StepProblem], Scope], place: Callable[[StepProblem], str]
    ) -> Scope:
        """The scope of the results of steps; their problems are noted."""
        problems, scope = result
        for problem in problems:
            self.tell(place(problem), problem.problem)
        return scope

    def examined(self, join: Join) -> Examined:
        """An analysed join, perhaps with problems."""
        if join not in self._examined:
            self._examined[join] = examined(join, self._relations_of(join))
        return self._examined[join]

    def join(self, name: str) -> Planned:
        """The plan of a join.  Raises: JoinError, if it has problems."""
        join = self.operators[name]
        assert isinstance(join, Join)
        return self._once(
            name, planned, lambda: planned(self.examined(join).whole(), self._relations_of(join))
        )

    def aggregates(self, reduction: Reduce) -> tuple[Aggregate, ...]:
        """The aggregates of a reduction, with the orders of their arguments' types.

        Raises: AggregateError, if an argument cannot be ordered.
        """
        return self._once(reduction.name, aggregates_of, lambda: aggregates_of(reduction, self))

    def program(self, loop: Loop) -> Program:
        """The program of a loop."""
        return self._once(loop.name, program, lambda: program(loop, self.within(loop)))

    def within(self, loop: Loop) -> "Catalog":
        """The catalog of the collections within a loop."""
        return Catalog(collections(loop), loop.body)

    def window(self, operator: WindowFunctions) -> Window:
        """The window functions of an operator, with the orders of their arguments' types.

        Raises: AggregateError, if rows or an argument cannot be ordered.
        """
        return self._once(operator.name, window_of, lambda: window_of(operator, self))

    def keyed(self, name: str) -> Keyed:
        """A collection with its unique keys, if it is sound."""

        def keyed() -> Keyed:
            types, operator = self.relation(name).scope.types, self.operators.get(name)
            if operator is None:
                return Keyed(NOTHING, types)
            return Keyed(kind_of(operator).keys(operator, self.keyed, types), types)

        return self._once(name, Keyed, keyed)

    def _once(self, name: str, what: object, derive: Callable[[], Derived]) -> Derived:
        """What is derived of a collection, once until the collection is forgotten."""
        derived = self._derived[name]
        if what not in derived:
            derived[what] = derive()
        result: Derived = derived[what]
        return result

    def _relations_of(self, join: Join) -> dict[str, Relation]:
        return {each.relation: self.relation(each.relation) for each in join.inputs}

    def sources(self, name: str) -> tuple[str, ...]:
        """The collections that an operator reads, if there is one of that name."""
        operator = self.operators.get(name)
        if operator is None or kind_of(operator).reads_rows:
            return ()
        return kind_of(operator).sources(operator)

    def _inferred(self, name: str) -> Relation:
        operator, source, count = self.operators.get(name), self.inputs.get(name), len(self.faults)
        relation = _UNKNOWN
        if operator is not None:
            relation = kind_of(operator).relation(operator, self)
            is_whole = not self._unread.may_have("operators", name)
        elif is_whole := source is not None and source.is_collection:
            relation = Relation(self.rows(name), source.unique, source.size)
        is_faulty = not is_whole or len(self.faults) > count
        if is_faulty or not self._faulty.isdisjoint(self.sources(name)):
            self._faulty.add(name)
        return relation if is_whole else _UNKNOWN

    def _forget_faulty(self) -> None:
        for name in self._faulty:
            del self._relations[name]
            self._derived.pop(name, None)
        self._faulty.clear()
        self.faults.clear()
        self._examined = {join: of for join, of in self._examined.items() if of.bound}


@functools.lru_cache(maxsize=64)
def catalog_of(plan: Plan) -> Catalog:
    """The catalog of a plan; it is made once for each plan."""
    return Catalog(plan.inputs, plan.operators)


@functools.lru_cache(maxsize=256)
def output_types(plan: Plan, output: Output) -> Mapping[str, str]:
    """The types of the columns of an output's values, by name, as far as they are known."""
    if not output.source:
        return MappingProxyType({})
    types = catalog_of(plan).relation(output.source).scope.types
    columns = {name: kind for name, kind in types.items() if name not in (KEY, VALUE)}
    return MappingProxyType({name: of for name, of in columns.items() if _is_known(type_of(of))})


def _is_known(kind: SqlType) -> bool:
    if not _WITHOUT_VALUES.isdisjoint(within(kind)):
        return False
    try:
        return bool(from_json("x", str(kind)))
    except ExpressionError:
        return False
