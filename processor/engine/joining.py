"""Apply a stage of a join to a batch of rows: look them up, filter and project them.

Rows look up an arrangement as of their own times (`kernels.half_join`).  Their matches go
through the step's predicates, and then to the next stage under its key, or out as results.
Nothing is sorted or kept: matches are processed in portions, however many a row has.
"""

# Decision (failed rows go on, marked): Paths test predicates in different orders, and what one
# path has reported as an error another one has to retract.

import functools
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from ikebana.arrangements.frontier import Interval
from ikebana.arrangements.store import Store
from ikebana.arrangements.update import LARGEST, TOO_LARGE, within
from ikebana.processor.base.rows import (
    Columns,
    KeyedUpdate,
    columns_of,
    in_columns_of,
    parts_of,
    pick,
)
from ikebana.processor.base.sharding import shown
from ikebana.processor.engine.budget import JoinBudget
from ikebana.processor.engine.joined_rows import Maker, Sources, asked, carried
from ikebana.processor.kernels import locked
from ikebana.processor.kernels.half_join import (
    Arranged,
    LookupRow,
    Lookups,
    Match,
    Matches,
    half_join,
    half_join_in_columns,
)
from ikebana.processor.linear.chain import operator_error
from ikebana.processor.linear.keys import any_null, is_null
from ikebana.processor.linear.query import field_texts
from ikebana.processor.linear.scope import KEY
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.joins.paths import Lookup, Path, Planned
from ikebana.processor.planning.joins.query import AsOfJoin
from ikebana.processor.planning.joins.stages import JoinStage, candidate_name, step_name
from ikebana.processor.planning.plan import Plan

Item = TypeVar("Item")
# The number of matches that are processed together.
_AT_ONCE = 10_000


class Onward(NamedTuple):
    """The destination of rows: a stage, by an exchange or not, or `None` for results."""

    stage: str | None
    hop: bool


class StageOutput(NamedTuple):
    """A portion of a stage's output: rows for a destination, and updates of error records.

    `of` has for each row the position of the row that it was made from.
    """

    to: Onward
    rows: Collection[KeyedUpdate]
    errors: list[KeyedUpdate]
    of: Sequence[int] = ()


class LookupStage:
    """A compiled stage that looks up one input."""

    def __init__(self, join: Planned, path: Path, stage: JoinStage) -> None:
        step = path.steps[stage.number]
        assert isinstance(step, Lookup), "an extension is not one lookup"
        of = join.join
        as_of = isinstance(of, AsOfJoin)
        self._name = of.name
        self._sees_equal = step.sees_equal
        self._outer = of.outer
        self._locked = of.locks
        self._locks = _locks(of.locked_by) if isinstance(of, AsOfJoin) and of.locked_by else None
        types = join.types
        sources = Sources(path.alias if stage.is_first else None, step.alias)
        self.next = onward(join, path, stage.number + 1)
        # An as-of join decides on its matches before their results are computed.
        apart = step.predicates if as_of and (self._outer or self._locked) else ()
        self._test = (
            Maker(types, sources, apart, (), "NULL", whose=shown(join.join.name))
            if apart
            else None
        )
        where = () if apart else step.predicates
        select, key, self._parts = results(join, path, stage.number, step.carries)
        last = self.next.stage is None
        self._maker = Maker(
            types, sources, where, select, key, last=last, whose=shown(join.join.name)
        )

    def apply(
        self, rows: Iterable[KeyedUpdate], arranged: Arranged, budget: JoinBudget
    ) -> Iterator[StageOutput]:
        """Look rows up, and yield the output.

        Raises: TooMuchError, if a batch cannot end in its time.
        """
        errors: list[KeyedUpdate] = []
        for some in in_columns_of(rows, _AT_ONCE):
            matches: Iterable[Matches]
            if self._test is None:
                keys, values, times, diffs = _asking(some)
                asking = Lookups(keys, values, times, diffs, self._sees_equal)
                matches = half_join_in_columns(arranged, asking, outer=self._outer, watcher=budget)
            else:
                asked = [*some]
                looked = lookups(asked, range(len(some)), sees_equal=self._sees_equal)
                met = half_join(arranged, looked, watcher=budget)
                settled = self._settled(asked, met, errors)
                passing = (each._replace(payload=some.values[each.payload]) for each in settled)
                matches = map(Matches.of, portions(passing))
            for portion in matches:
                yield self._output(portion)
                budget.spend()
        if errors:
            yield StageOutput(self.next, [], errors)

    def apply_locked(
        self,
        store: Store,
        rows: Sequence[KeyedUpdate],
        interval: Interval,
        arranged: Arranged,
        budget: JoinBudget,
    ) -> Iterator[StageOutput]:
        """Like `apply`, where retractions retract the matches of their insertions."""

        def meet(asking: Iterable[locked.LockedLookup]) -> Iterator[Match]:
            for some in portions(asking):
                left = [KeyedUpdate(each.key, each.value, each.time, 1) for each in some]
                looked = lookups(left, range(len(left)), sees_equal=self._sees_equal)
                met = half_join(arranged, looked, watcher=budget)
                for match in self._settled(left, met, None):
                    if fits(match):
                        yield match._replace(payload=some[match.payload].payload)
                    else:
                        large.append(self._error(TOO_LARGE, match))

        large: list[KeyedUpdate] = []
        result = locked.step(store, rows, interval, meet, self._name, self._locks)
        errors = [*result.errors, *large]
        matches = (match._replace(payload=match.payload[1]) for match in result.matches)
        for portion in portions(matches):
            # Matches on which predicates failed are kept, so that their errors can be retracted.
            met = [match for match in portion if match.datum is not None]
            passed, failing = self._tested(met, [match.payload for match in met])
            outer = (match for match in portion if match.datum is None)
            yield self._output(Matches.of([*passed, *outer]))
            errors += [self._error(reason, match) for match, reason in failing]
        yield StageOutput(self.next, [], errors)

    @property
    def is_locked(self) -> bool:
        """Whether it keeps matches (`retract: locked`)."""
        return self._locked

    def _settled(
        self,
        rows: Sequence[KeyedUpdate],
        matches: Iterable[Match],
        errors: list[KeyedUpdate] | None,
    ) -> Iterator[Match]:
        """The matches that pass the predicates; in an outer join also rows without any, as None.

        Without a list of `errors`, matches on which predicates fail are yielded too.
        """
        unmatched = set(range(len(rows))) if self._outer else set()
        for some in portions(matches):
            passed, failing = self._tested(some, [rows[match.payload].value for match in some])
            for match, reason in failing:
                unmatched.discard(match.payload)
                if errors is None:
                    yield match
                else:
                    errors.append(self._error(reason, match))
            for match in passed:
                unmatched.discard(match.payload)
                yield match
        for at in sorted(unmatched):
            yield Match(at, None, rows[at].time, rows[at].diff)

    def _tested(
        self, matches: Sequence[Match], payloads: Sequence[bytes]
    ) -> tuple[Sequence[Match], list[tuple[Match, str]]]:
        """The matches that pass the predicates, and those on which predicates fail, with why."""
        if self._test is None:
            return matches, []
        result = self._test.make(payloads, [match.datum for match in matches])
        failing = [(matches[row], reason) for row, reason in result.failed]
        return [matches[row] for row in result.rows], failing

    def _output(self, matches: Matches) -> StageOutput:
        large: list[KeyedUpdate] = []
        diffs = matches.diffs
        if diffs and not -LARGEST <= min(diffs) <= max(diffs) <= LARGEST:
            rows = list(map(matches.row, range(len(diffs))))
            large = [self._error(TOO_LARGE, match) for match in rows if not fits(match)]
            matches = Matches.of(match for match in rows if fits(match))
        payloads, data, times, diffs = matches
        if not times:
            return StageOutput(self.next, [], large)
        result = self._maker.make(payloads, data)
        if result.rows != [*range(len(times))]:
            times, diffs = pick(times, result.rows), pick(diffs, result.rows)
        updates: Collection[KeyedUpdate] = Columns([*result.keys], result.values, times, diffs)
        if any_null(result.keys, self._parts):
            updates = [row for row in updates if row.key and not is_null(row.key, self._parts)]
        errors = [self._error(reason, matches.row(row)) for row, reason in result.failed]
        return StageOutput(self.next, updates, large + errors)

    def _error(self, reason: str, match: Match) -> KeyedUpdate:
        return failed(self._name, reason, match.time, match.diff)


def _locks(columns: Iterable[str]) -> locked.Locks:
    """The values by which data of the left input are locked: the key, and these fields."""
    fields = tuple(column for column in columns if column != KEY)

    def locks(data: Sequence[bytes]) -> list[Hashable]:
        parts = [parts_of(datum) for datum in data]
        texts = field_texts(fields, [value for _, value in parts])
        # In SQL a null and a missing field are the same.
        values = [[None if text == b"null" else text for text in column] for column in texts]
        return list(zip([key for key, _ in parts], *values, strict=True))

    return locks


# A join of 64 tables has 4,032 stages.
@functools.lru_cache(maxsize=8192)
def looking(plan: Plan, stage: JoinStage) -> LookupStage:
    """A stage of lookups, compiled once in a process."""
    join = catalog_of(plan).join(stage.join)
    return LookupStage(join, path_of(join, stage), stage)


def path_of(join: Planned, stage: JoinStage) -> Path:
    """The path that a stage is on."""
    return next(path for path in join.paths if path.alias == stage.alias)


def onward(join: Planned, path: Path, number: int) -> Onward:
    """Where rows go after the step before `number`."""
    if number == len(path.steps):
        return Onward(None, hop=False)
    name, step = step_name(join.join.name, path.alias, number), path.steps[number]
    if isinstance(step, Lookup):
        return Onward(name, step.hop)
    return Onward(candidate_name(name, "count", 0), hop=True)


def results(
    join: Planned, path: Path, number: int, carries: Sequence[str]
) -> tuple[list[tuple[str, str]], str, int]:
    """What a step selects, the key of its rows, and the number of parts of that key.

    Rows with a null key part never match.  Results may have any key; their number of parts is 0.
    """
    if number + 1 == len(path.steps):
        return [(name, column.sql) for name, column in join.select], join.key.sql, 0
    after = path.steps[number + 1]
    key = after.key if isinstance(after, Lookup) else after.candidates[0].key
    return carried(carries), asked(key), len(key)


def lookups(
    rows: Sequence[KeyedUpdate], payloads: Iterable[Any], *, sees_equal: bool
) -> Iterator[LookupRow]:
    """The lookups of rows, each with its payload."""
    if not rows:
        return iter(())
    keys, _, times, diffs = _asking(rows)
    return Lookups(keys, [*payloads], times, diffs, sees_equal).rows()


def _asking(
    rows: Sequence[KeyedUpdate] | Columns,
) -> tuple[list[bytes], list[bytes], list[int], list[int]]:
    """The columns of rows that ask."""
    keys, values, times, diffs = columns_of(rows)
    assert None not in keys, "a row that asks has no key"
    return keys, values, times, diffs  # type: ignore[return-value]


def failed(join: str, reason: str, time: int, diff: int) -> KeyedUpdate:
    """The error record of a combination that cannot be evaluated."""
    return KeyedUpdate(None, operator_error(join, reason, None), time, within(diff))


def fits(of: Match | KeyedUpdate) -> bool:
    """Whether its diff fits into 64 bits."""
    return -LARGEST <= of.diff <= LARGEST


def portions(of: Iterable[Item], most: int = _AT_ONCE) -> Iterator[list[Item]]:
    """The items in lists of at most this size."""
    rest = iter(of)
    while some := list(islice(rest, most)):
        yield some
