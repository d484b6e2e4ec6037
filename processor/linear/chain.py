"""A chain: consecutive linear steps, fused into one pass over a batch of updates.

Consecutive SQL steps are one statement over the whole batch; consecutive Python steps are one
logic, applied datum by datum with no list in between.  If a step fails on an update, the
result is an error record with the update's diff, so it is retracted when the datum is.  The
record has the operator, the key and the reason, but not the value, since that depends on the
columns that the planner has decoded.

Many updates go through a chain in portions, so that not all results are in memory at once: a step
such as `flat_map` may make a million updates of one.  Updates that cancel within a portion vanish;
those that cancel across portions stay, which is the same collection.

A key of several parts is an object; a null in it matches nothing.

`result_of` has the scope of the results of an operator's steps, and all problems of the steps.
DuckDB stops at the first invalid part of a statement.  So if a chain is invalid, each part is
compiled alone.  The results of an invalid part have the type `UNKNOWN`, and parts that read these
are not reported: one mistake is one problem.
"""

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from ikebana.arrangements.update import LARGEST, TOO_LARGE, pieces, sums, within
from ikebana.codecs import canonical
from ikebana.codecs.errors import error_record
from ikebana.processor.base.rows import Columns, KeyedUpdate, columns_of, data_of, pick, rows_of
from ikebana.processor.base.texts import shown
from ikebana.processor.linear import functions
from ikebana.processor.linear.functions import FunctionError, function_named
from ikebana.processor.linear.json_text import BLOB, JSON
from ikebana.processor.linear.scope import (
    KEY,
    UNKNOWN,
    VALUE,
    FrozenScope,
    Scope,
    StepError,
    UnknownError,
    frozen,
)
from ikebana.processor.linear.steps import AnyStep, Arrange, Call, Negate, Sql, Step

_NULL = b"null"


def key_sql(keys: tuple[str, ...]) -> str:
    """SQL for a key of several expressions: the value of a single one, or an object.

    >>> key_sql(("a", "b + 1"))
    "{'k0': (a), 'k1': (b + 1)}"
    """
    if len(keys) == 1:
        return keys[0]
    parts = ", ".join(f"'k{at}': ({key})" for at, key in enumerate(keys))
    return f"{{{parts}}}" if keys else "NULL"


def is_null(key: bytes, parts: int) -> bool:
    """Whether a part of a key of so many parts is null, which is equal to nothing.

    >>> is_null(b"null", 1), is_null(b'{"k0":1,"k1":null}', 2), is_null(b"null", 0)
    (True, True, False)
    """
    if parts < 2 or _NULL not in key:
        return parts == 1 and key == _NULL
    return None in canonical.decode(key).values()


def any_null(keys: Collection[bytes], parts: int) -> bool:
    """Whether any of many keys may have a part that is null; False is certain.

    >>> any_null([b"1", b"null"], 1), any_null([b'{"k0":1,"k1":2}'], 2)
    (True, False)
    """
    if parts < 2:
        return parts == 1 and _NULL in keys
    return any(_NULL in key for key in keys)


try:
    from ikebana.compiled._joins import summed
except ImportError:
    summed = None  # type: ignore[assignment]

# A step and the name of the operator that it belongs to.
Named = tuple[str, AnyStep]


class ChainError(Exception):
    """A step is refused: the `index`-th of its operator, with the part at fault."""

    def __init__(self, steps: Sequence[Named], at: int, part: str, problem: str) -> None:
        super().__init__(problem)
        self.operator = steps[at][0]
        self.index = sum(operator == self.operator for operator, _ in steps[:at])
        self.part = part
        self.problem = problem


class ChainResult(NamedTuple):
    """The results of a pass: updates, and updates of error records."""

    updates: list[KeyedUpdate]
    errors: list[KeyedUpdate]


class Chain:
    """Compiled steps over a relation: a pure function of each single update."""

    def __init__(self, steps: Sequence[Named], scope: Scope) -> None:
        self.scope = scope
        """Of the relation that comes out."""
        self._parts: list[_SqlPart | _CallPart | _ArrangePart] = []
        done = 0
        for named in _parts(steps):
            try:
                part = _part(named, self.scope)
            except StepError as error:
                raise ChainError(steps, done + error.step, error.part, error.problem) from None
            self._parts.append(part)
            self.scope = part.scope
            done += len(named)
        self._cancels = any(
            isinstance(step, Call) or (isinstance(step, Sql) and step.select is not None)
            for _, step in steps
        )
        self.expands = any(_may_expand(step) for _, step in steps)
        """Whether one update may have any number of results."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The fields of the value that it reads; None if it reads or returns the whole value."""
        if not self._parts or not isinstance(self._parts[0], _SqlPart):
            return None
        first = self._parts[0].query
        return first.fields if first.makes_value and not first.reads_value else None

    @property
    def arranges_by(self) -> tuple[str, ...] | None:
        """The fields that it reads, if it only arranges unchanged data, or has no steps.

        None: it has other steps, or reads the value as a whole.
        """
        if not self._parts:
            return ()
        first = self._parts[0]
        return first.fields if isinstance(first, _ArrangePart) else None

    @property
    def is_empty(self) -> bool:
        """Whether it has no steps, so that updates stay unchanged."""
        return not self._parts

    @property
    def arranges(self) -> bool:
        """Whether it only arranges data, perhaps after conditions; see `arranged`."""
        return len(self._parts) == 1 and isinstance(self._parts[0], _ArrangePart)

    def arranged(
        self, updates: Columns, silent: Collection[str]
    ) -> tuple[Columns, list[KeyedUpdate]]:
        """Like `apply`, in columns; only for a chain that `arranges`."""
        part = self._parts[0]
        assert isinstance(part, _ArrangePart), "it does something else"
        results, failed = part.arranged(updates)
        return results, [error for operator, error in failed if operator not in silent]

    def apply(
        self, updates: Sequence[KeyedUpdate], silent: Collection[str] = frozenset()
    ) -> ChainResult:
        """Run updates through all steps; the results are consolidated.

        The errors of `silent` operators are left out, because another branch records them.
        """
        errors: list[KeyedUpdate] = []
        for part in self._parts:
            updates, failed = part.apply(updates)
            errors += [error for operator, error in failed if operator not in silent]
        results = list(updates)
        return ChainResult(consolidated(results) if self._cancels else results, errors)


@functools.lru_cache(maxsize=1024)
def chain(steps: tuple[Named, ...], scope: FrozenScope) -> Chain:
    """The chain of these steps, compiled once in a process."""
    return Chain(steps, scope.thawed())


def consolidated(updates: Iterable[KeyedUpdate]) -> list[KeyedUpdate]:
    """Sum the diffs of equal (key, value, time) and drop those that cancel; keep the order.

    A sum beyond 64 bits becomes several updates.
    """
    if summed is not None:
        updates = [*updates]
        if (compiled := summed(updates)) is not None:
            return compiled
    return [
        KeyedUpdate(*at, diff) for at, total in sums(updates).items() for diff in pieces(total)
    ]


def _parts(steps: Sequence[Named]) -> Iterator[tuple[Named, ...]]:
    """Group steps that run as one part: all SQL, or all Python.

    Arrange steps need unchanged data, so only conditions can run in the same part.  The column of
    a flat_map is visible to later SQL of the same operator, but not to another operator, which
    sees what an output would show.
    """
    part: list[Named] = []
    unnested = False
    for operator, step in steps:
        if isinstance(step, Arrange):
            if not all(_is_condition(before) for _, before in part):
                yield tuple(part)
                part = []
            yield (*part, (operator, step))
            part, unnested = [], False
            continue
        if part:
            other, before = part[-1]
            changes = isinstance(step, Call) != isinstance(before, Call)
            if changes or (unnested and operator != other):
                yield tuple(part)
                part, unnested = [], False
        part.append((operator, step))
        if isinstance(step, Sql):
            unnested = step.select is None and (unnested or step.flat_map is not None)
    if part:
        yield tuple(part)


def _is_condition(step: AnyStep) -> bool:
    return isinstance(step, Sql) and Sql(where=step.where) == step


class _PartPassed(NamedTuple):
    """The results of one part: updates, and errors with their operators."""

    updates: list[KeyedUpdate]
    errors: list[tuple[str, KeyedUpdate]]


def _part(steps: Sequence[Named], scope: Scope) -> "_SqlPart | _CallPart | _ArrangePart":
    if isinstance(steps[-1][1], Arrange):
        return _ArrangePart(steps, scope)
    return _CallPart(steps, scope) if isinstance(steps[0][1], Call) else _SqlPart(steps, scope)


class _SqlPart:
    def __init__(self, steps: Sequence[Named], scope: Scope) -> None:
        plain: list[Sql | Negate] = []
        for _, step in steps:
            assert isinstance(step, Sql | Negate)
            plain.append(step)
        # DuckDB takes a while to import, and memory: only where there is SQL.
        from ikebana.processor.linear.query import compiled

        self.query = compiled(tuple(plain), frozen(scope))
        self.scope = self.query.result
        self._operators = tuple(operator for operator, _ in steps)
        self._whose = _names(self._operators)
        self._multiplies = next(
            (operator for operator, step in reversed(steps) if _multiplies(step)),
            self._operators[-1],
        )

    def apply(self, updates: Sequence[KeyedUpdate]) -> _PartPassed:
        if not updates:
            return _PartPassed([], [])
        keys, values, times, diffs = columns_of(updates)
        outcome, failed = self.query.outcome(keys, values, whose=self._whose)
        rows = outcome.rows
        keys_of: Sequence[bytes | None] = outcome.keys if outcome.keys else pick(keys, rows)
        columns = (
            keys_of,
            outcome.values or pick(values, rows),
            pick(times, rows),
            pick(diffs, rows)
            if outcome.diffs is None
            else [diffs[row] * diff for row, diff in zip(rows, outcome.diffs, strict=True)],
        )
        results = rows_of(*columns)
        if outcome.begins is not None or outcome.ends is not None:
            results = _bounded(results, outcome.begins, outcome.ends)
        errors: list[tuple[str, KeyedUpdate]] = []
        if outcome.diffs is not None:
            results, errors = _without_large(results, self._multiplies)
        for row, step, reason, diff, begin, end, key in failed:
            operator = self._operators[step]
            record = operator_error(operator, reason, keys[row] if key is None else key)
            error = KeyedUpdate(None, record, times[row], within(diffs[row] * diff))
            # An error exists as long as its datum would.
            errors += [(operator, bounded) for bounded in _bounded([error], [begin], [end])]
        return _PartPassed(results, errors)


class _ArrangePart:
    def __init__(self, steps: Sequence[Named], scope: Scope) -> None:
        from ikebana.processor.linear.query import compiled

        *conditions, (_, arrange) = steps
        assert isinstance(arrange, Arrange)
        self._arrange = arrange
        self._operators = tuple(operator for operator, _ in steps)
        plain = [step for _, step in conditions if isinstance(step, Sql)]
        self._query = compiled((*plain, Sql(key=key_sql(arrange.keys))), frozen(scope))
        self.scope = Scope({KEY: JSON, VALUE: BLOB})
        self.fields = None if self._query.reads_value else self._query.fields
        """The fields of the value that conditions and keys read; None: all of it."""

    def apply(self, updates: Sequence[KeyedUpdate]) -> _PartPassed:
        results, errors = self.arranged(Columns.of(updates))
        return _PartPassed([*results], errors)

    def arranged(self, updates: Columns) -> tuple[Columns, list[tuple[str, KeyedUpdate]]]:
        """Like `apply`, in columns."""
        if not updates:
            return updates, []
        keys, values, times, diffs = columns_of(updates)
        outcome, failed = self._query.outcome(keys, values, whose=_names(self._operators))
        assert outcome.keys is not None, "an arrangement without keys"
        parts = 0 if self._arrange.nulls else len(self._arrange.keys)
        columns: list[list[Any]] = [keys, values, times, diffs]
        if len(outcome.rows) < len(keys):
            columns = [pick(column, outcome.rows) for column in columns]
        keys_of, values_of, *rest = columns
        results = Columns([*outcome.keys], data_of(keys_of, values_of), *rest)
        if any_null(outcome.keys, parts):
            results = Columns.of(
                [row for row in results if row.key and not is_null(row.key, parts)]
            )
        errors = []
        for row, step, reason, *_ in failed:
            operator = self._operators[step]
            record = operator_error(operator, reason, keys[row])
            errors.append((operator, KeyedUpdate(None, record, times[row], diffs[row])))
        return results, errors


def _only_drops(step: object) -> bool:
    return isinstance(step, Call) and step.kind == "filter"


class _CallPart:
    def __init__(self, steps: Sequence[Named], scope: Scope) -> None:
        raw_key, raw_value = scope.types[KEY] == BLOB, scope.types[VALUE] == BLOB
        types = {KEY: scope.types[KEY], VALUE: scope.types[VALUE]}
        hidden = scope.hidden if all(_only_drops(step) for _, step in steps) else {}
        self.scope = Scope(types, open=not raw_value, hidden=hidden)
        logics = []
        for at, (operator, step) in enumerate(steps):
            assert isinstance(step, Call)
            try:
                logics.append(
                    functions.guarded(operator, step, raw_key=raw_key, raw_value=raw_value)
                )
            except functions.FunctionError as error:
                raise StepError(at, step.kind, str(error)) from None
        self._logic = functools.reduce(functions.composed, logics)
        self._multiplies = next(
            (operator for operator, step in reversed(steps) if _multiplies(step)), steps[-1][0]
        )

    def apply(self, updates: Sequence[KeyedUpdate]) -> _PartPassed:
        results: list[KeyedUpdate] = []
        errors: list[tuple[str, KeyedUpdate]] = []
        apply = self._logic
        for key, value, time, diff in updates:
            for result, later, count in apply((key, value)):
                moved = time if later is None or later < time else later
                if isinstance(result, functions.Failure):
                    record = operator_error(*result)
                    error = KeyedUpdate(None, record, moved, within(diff * count))
                    errors.append((result.operator, error))
                else:
                    new_key, new_value = result
                    results.append(KeyedUpdate(new_key, new_value, moved, diff * count))
        results, large = _without_large(results, self._multiplies)
        return _PartPassed(results, errors + large)


def _names(operators: Iterable[str]) -> str:
    """The operators of a part, each once."""
    return ", ".join(dict.fromkeys(map(shown, operators)))


def _may_expand(step: AnyStep) -> bool:
    if isinstance(step, Call):
        return step.kind in ("flat_map", "explode", "join_function")
    return isinstance(step, Sql) and step.flat_map is not None


def _multiplies(step: AnyStep) -> bool:
    """Whether a step may increase diffs."""
    if isinstance(step, Call):
        return step.kind in ("explode", "join_function")
    return isinstance(step, Sql) and (step.diff is not None or step.flat_map is not None)


def _without_large(
    updates: list[KeyedUpdate], operator: str
) -> tuple[list[KeyedUpdate], list[tuple[str, KeyedUpdate]]]:
    """Updates with diffs of up to 64 bits, and errors in place of the others."""
    large = [update for update in updates if not -LARGEST <= update.diff <= LARGEST]
    if not large:
        return updates, []
    fitting = [update for update in updates if -LARGEST <= update.diff <= LARGEST]
    errors = []
    for key, _, time, diff in large:
        record = operator_error(operator, TOO_LARGE, key)
        errors.append((operator, KeyedUpdate(None, record, time, within(diff))))
    return fitting, errors


def _bounded(
    updates: list[KeyedUpdate], begins: list[int | None] | None, ends: list[int | None] | None
) -> list[KeyedUpdate]:
    """Turn updates with a validity into an insertion and a retraction each."""
    result = []
    nothing: list[int | None] = [None] * len(updates)
    for update, begin, end in zip(updates, begins or nothing, ends or nothing, strict=True):
        key, value, time, diff = update
        first = time if begin is None or begin < time else begin
        last = None if end is None else max(time, end)
        if first != last:
            result.append(KeyedUpdate(key, value, first, diff))
            if last is not None:
                result.append(KeyedUpdate(key, value, last, -diff))
    return result


def operator_error(operator: str, reason: str, key: bytes | None) -> bytes:
    """The error record of a datum that an operator failed on."""
    return error_record(f"operator {shown(operator)}: {reason}", None, key, None)


Item = TypeVar("Item")
AT_ONCE = 50_000
"""About this many results come from a portion, unless a single update has more."""
# The size of the first portion, when the number of results per update is unknown.
_FIRST = 1
_GROWTH = 8


class Growing:
    """Chooses how many updates to take at a time, by the number of results so far."""

    def __init__(self) -> None:
        self.most = _FIRST

    def portions(self, of: Sequence[Item], *, all_at_once: bool) -> Iterator[Sequence[Item]]:
        """Yield portions of items; call `came` before the next one is asked for."""
        begin = 0
        while begin < len(of):
            end = len(of) if all_at_once else begin + self.most
            yield of[begin:end]
            begin = end

    def came(self, count: int, to: int) -> None:
        """Report that `count` updates had `to` results."""
        each = max(1.0, to / count)
        self.most = max(1, min(self.most * _GROWTH, int(AT_ONCE / each)))


def in_portions(
    steps: Chain, updates: Collection[KeyedUpdate], silent: Collection[str] = frozenset()
) -> Iterator[ChainResult]:
    """Yield the results of a chain, in order; see `Chain.apply`."""
    if not steps.expands:
        rest = iter(updates)
        while some := list(islice(rest, AT_ONCE)):
            yield steps.apply(some, silent)
        return
    updated, failed, count = list[KeyedUpdate](), list[KeyedUpdate](), 0
    for passed in _growing(steps, updates, silent):
        updated += passed.updates
        failed += passed.errors
        count += 1
        # Release it before the next one is made.
        del passed
        if len(updated) + len(failed) >= AT_ONCE:
            yield _whole(updated, failed, count)
            updated, failed, count = [], [], 0
    if updated or failed:
        yield _whole(updated, failed, count)


def _growing(
    steps: Chain, updates: Collection[KeyedUpdate], silent: Collection[str]
) -> Iterator[ChainResult]:
    """Take as many updates at a time as should yield about one portion."""
    rest, growing = iter(updates), Growing()
    while some := list(islice(rest, growing.most)):
        passed = steps.apply(some, silent)
        growing.came(len(some), len(passed.updates) + len(passed.errors))
        yield passed
        del passed


def _whole(updates: Sequence[KeyedUpdate], errors: list[KeyedUpdate], passes: int) -> ChainResult:
    """Unite the results of several passes."""
    return ChainResult(consolidated(updates) if passes > 1 else list(updates), errors)


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
