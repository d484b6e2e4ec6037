"""The scope of the results of a linear operator's steps, and all problems of the steps.

Steps run as one statement, and DuckDB stops at the first invalid part.  So if the statement is
invalid, each part is compiled alone.  The results of an invalid part have the type `UNKNOWN`, and
parts that read these are not reported: one mistake is one problem.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from ikebana.processor.linear.chain import ChainError, chain
from ikebana.processor.linear.functions import FunctionError, function_named
from ikebana.processor.linear.json_text import BLOB, JSON
from ikebana.processor.linear.scope import (
    KEY,
    UNKNOWN,
    VALUE,
    Scope,
    StepError,
    UnknownError,
    frozen,
)
from ikebana.processor.linear.steps import Call, Negate, Sql, Step


class StepProblem(NamedTuple):
    """A problem of a part of a step."""

    step: int
    part: str
    problem: str


class StepsResult(NamedTuple):
    """The problems of steps, and the scope of their results."""

    problems: list[StepProblem]
    scope: Scope


def result_of(steps: Sequence[Step], scope: Scope) -> StepsResult:
    """The result of the steps of one operator over a relation of `scope`."""
    if UNKNOWN not in scope.types.values():
        with suppress(ChainError):
            return StepsResult([], chain(tuple(("", step) for step in steps), frozen(scope)).scope)
    parts = _PartByPart(scope)
    for at, step in enumerate(steps):
        parts.add(at, step)
    return StepsResult(parts.problems, parts.shown)


class _PartByPart:
    """Goes from step to step with the scope of the relation between them."""

    def __init__(self, scope: Scope) -> None:
        self.problems: list[StepProblem] = []
        self.shown = scope
        """The scope that another operator sees."""
        # The input of the next step: a scope, and the flat_maps since.
        self._below = scope
        self._flat_maps: list[Sql] = []
        self._at = 0

    def add(self, at: int, step: Step) -> None:
        """Check a step, and continue with its result."""
        self._at = at
        match step:
            case Sql():
                self._sql(step)
            case Call():
                self._call(step)
            case Negate():
                pass

    def _call(self, step: Call) -> None:
        try:
            function_named(step.function)
        except FunctionError as error:
            self._tell(step.kind, str(error))
        types = {part: self.shown.types[part] for part in (KEY, VALUE)}
        declare = UNKNOWN if types[VALUE] == UNKNOWN else ""
        hidden = self.shown.hidden if step.kind == "filter" else {}
        self._goes_on(Scope(types, types[VALUE] != BLOB, declare, hidden))

    def _sql(self, step: Sql) -> None:
        whole = self._whole(step)
        if isinstance(whole, Scope):
            kinds: Mapping[str, str] = whole.types
            if step.flat_map is not None:
                self._flat_maps.append(Sql(flat_map=step.flat_map))
        else:
            before = len(self.problems)
            kinds = self._parts(step)
            if whole is not None and len(self.problems) == before:
                # A problem of the parts together, such as names that differ in case alone.
                self._tell(whole.part, whole.problem)
        keyed = {} if step.key is None else {KEY: JSON}
        if step.select is not None:
            of_key = keyed.get(KEY, self.shown.types[KEY])
            types = {name: kinds[name] for name, _ in step.select}
            self._goes_on(Scope({**types, KEY: of_key, VALUE: JSON}))
        elif keyed:
            self.shown = _with(self.shown, keyed)
            self._below = _with(self._below, keyed)

    def _whole(self, step: Sql) -> Scope | StepError | None:
        """The result of a step, or its first problem; None if it reads an unknown column."""
        # DuckDB takes a while to import, and memory: only where there is SQL.
        from ikebana.processor.linear.query import compiled

        behind = tuple(self._flat_maps)
        try:
            return compiled((*behind, step), frozen(self._below)).result
        except UnknownError:
            return None
        except StepError as error:
            return error if error.step == len(behind) else None

    def _parts(self, step: Sql) -> dict[str, str]:
        """Check each part alone; return the types of the columns of a select."""
        if step.flat_map is not None:
            self._flat_map(*step.flat_map)
        for part, alone in _conditions(step):
            self._tried(part, alone)
        return {} if step.select is None else self._selected(step.select)

    def _flat_map(self, name: str, text: str) -> None:
        step = Sql(flat_map=(name, text))
        if self._tried("flat_map", step) is None:
            self._below = _with(self._below, {name: UNKNOWN})
        else:
            self._flat_maps.append(step)

    def _selected(self, columns: Sequence[tuple[str, str]]) -> dict[str, str]:
        """The types of the columns of a select, by name."""
        kinds = {}
        for name, text in columns:
            result = self._tried(f"select.{name}", Sql(select=((name, text),)))
            kinds[name] = UNKNOWN if result is None else result.types[name]
        # Report names that cannot be in one select.
        self._tried("select", Sql(select=tuple((name, "NULL") for name, _ in columns)))
        return kinds

    def _tried(self, part: str, step: Sql) -> Scope | None:
        """The result of a part of a step; None if it has a problem, or reads an unknown column."""
        result = self._whole(step)
        if isinstance(result, StepError):
            self._tell(result.part if part == "select" else part, result.problem)
            return None
        return result

    def _goes_on(self, scope: Scope) -> None:
        self.shown = self._below = scope
        self._flat_maps = []

    def _tell(self, part: str, problem: str) -> None:
        new = StepProblem(self._at, part, problem)
        if new not in self.problems:
            self.problems.append(new)


def _conditions(step: Sql) -> Iterator[tuple[str, Sql]]:
    """The parts of a step that make no column, each as a separate step."""
    for at, condition in enumerate(step.where):
        yield "where" if len(step.where) == 1 else f"where.{at}", Sql(where=(condition,))
    if step.valid_from is not None:
        yield "valid_from", Sql(valid_from=step.valid_from)
    if step.valid_until is not None:
        yield "valid_until", Sql(valid_until=step.valid_until)
    if step.diff is not None:
        yield "diff", Sql(diff=step.diff)
    if step.key is not None:
        yield "key", Sql(key=step.key)


def _with(scope: Scope, types: dict[str, str]) -> Scope:
    return replace(scope, types={**scope.types, **types})
