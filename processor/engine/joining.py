"""Apply a stage of a join to a batch of rows: look them up, filter and project them.

Rows look up an arrangement as of their own times (`kernels.half_join`).  Their matches go
through the step's predicates, and then to the next stage under its key, or out as results.
Nothing is sorted or kept: matches are processed in portions, however many a row has.

A row carries the columns that later steps read, as a JSON object of flat columns; a row that
comes straight from a relation is that relation's datum instead.  A `Maker` runs SQL over rows:
over the columns that they carry and the data that they matched.

Paths test predicates in different orders, and all have to come to the same result.  So a row
on which a predicate fails goes on, marked with the reason, and becomes an error after the last
step, unless another predicate is false.  Columns are carried without a type; a type is applied
where they are used.  A row with no key for the next lookup ends: the arrangement by that key
reports the error.
"""

# Decision (failed rows go on, marked): Paths test predicates in different orders, and what one
# path has reported as an error another one has to retract.

import functools
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

from ikebana.arrangements.store import Store
from ikebana.arrangements.update import LARGEST, TOO_LARGE, Interval, within
from ikebana.processor.base.rows import (
    Columns,
    KeyedUpdate,
    columns_of,
    in_columns_of,
    keys_of,
    parts_of,
    pick,
    values_of,
)
from ikebana.processor.base.texts import shown
from ikebana.processor.engine.budget import JoinBudget
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
from ikebana.processor.linear.chain import any_null, is_null, key_sql, operator_error
from ikebana.processor.linear.json_text import BLOB, JSON, quoted
from ikebana.processor.linear.picking import picked_fields, picking_of
from ikebana.processor.linear.query import Query, compiled, data_field_texts, field_texts
from ikebana.processor.linear.scope import KEY, VALUE, FrozenScope
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.joins.binding import Flat, alias_of
from ikebana.processor.planning.joins.paths import Lookup, Path, Planned
from ikebana.processor.planning.joins.query import AsOfJoin
from ikebana.processor.planning.joins.stages import JoinStage, candidate_name, step_name
from ikebana.processor.planning.plan import Plan

_base64 = msgspec.json.encode
_text_of = msgspec.json.encode
# A name with this prefix is the column without a type.  Names of inputs do not begin with it.
_AS_IT_IS = "~"
# A row that a predicate has failed on begins with this and the reason.
_MARK = b'{"!":'
_reason_of = msgspec.json.Decoder(str).decode


class Sources(NamedTuple):
    """Which input's columns are where.

    `payload`: the input, if rows are its data; `datum`: the input of their matches.  All other
    columns are carried by the rows.
    """

    payload: str | None
    datum: str | None


class _RowFailure(NamedTuple):
    """A row that cannot be evaluated, and why."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class _JoinedRows:
    """Results in columns of one length; `rows` has the position of the row behind each."""

    rows: list[int]
    keys: list[bytes]
    values: list[bytes]
    failed: list[_RowFailure]


class Maker:
    """Conditions over rows, and the key and value of rows that fulfil them.

    Failures become errors only at the `last` step.
    """

    def __init__(
        self,
        types: Mapping[str, str],
        sources: Sources,
        where: Iterable[Flat],
        select: Iterable[tuple[str, str]],
        key: str,
        *,
        last: bool = True,
        whose: str = "",
    ) -> None:
        self._whose = whose
        self._types = types
        self._sources = sources
        self._where = tuple(each.sql for each in where)
        self._select, self._key, self._last = tuple(select), key, last
        raw = ((_AS_IT_IS + name, JSON) for name in types)
        self._scope = FrozenScope(
            (*types.items(), *raw, (KEY, JSON), (VALUE, JSON)), open=False, declare=""
        )
        self._step = Sql(where=self._where, select=self._select, key=key)
        self._picking = picking_of(picked_fields((self._step,), self._scope.thawed()))

    @cached_property
    def _query(self) -> Query:
        """The step compiled: a step that only picks columns mostly does without."""
        return self._compiled(self._step)

    def make(self, payloads: Sequence[bytes], data: Sequence[bytes | None]) -> _JoinedRows:
        """Evaluate rows; `data` has the match of each, None for a row without one."""
        if (picked := self._picked(payloads, data)) is not None:
            outcome, failed = picked, list[_RowFailure]()
        else:
            outcome, failed = self._outcome(self._query, payloads, data)
        # On rows straight from a relation no predicate has failed yet.
        marks = {} if self._sources.payload else _marks(payloads)
        if not failed and not marks:
            return outcome
        reasons = {row: [marks[row]] for row in outcome.rows if row in marks}
        reasons |= self._undecided(payloads, data, [each.row for each in failed], marks)
        result = _without(outcome, reasons)
        if self._last:
            failures = {each.row: each.reason for each in failed}
            # Paths may meet the reasons in any order, so the least one is reported.
            result.failed.extend(
                _RowFailure(row, min(why, default=failures.get(row, "")))
                for row, why in reasons.items()
            )
        else:
            self._go_on(result, payloads, data, reasons)
        return result

    def _go_on(
        self,
        result: _JoinedRows,
        payloads: Sequence[bytes],
        data: Sequence[bytes | None],
        reasons: Mapping[int, Sequence[str]],
    ) -> None:
        """Add results without regard to predicates, marked with the reason of the failure."""
        rows = sorted(reasons)
        anyway = self._compiled(Sql(select=self._select, key=self._key))
        outcome, _ = self._outcome(anyway, [payloads[r] for r in rows], [data[r] for r in rows])
        for at, key, value in zip(outcome.rows, outcome.keys, outcome.values, strict=True):
            result.rows.append(rows[at])
            result.keys.append(key)
            why = reasons[rows[at]]
            result.values.append(_marked(value, min(why)) if why else value)

    def _undecided(
        self,
        payloads: Sequence[bytes],
        data: Sequence[bytes | None],
        rows: list[int],
        marks: Mapping[int, str],
    ) -> dict[int, list[str]]:
        """The rows for which no predicate is false, with the reasons of predicates that failed."""
        left = {row: [marks[row]] if row in marks else [] for row in rows}
        for text in self._where:
            asked_of = list(left)
            query = self._compiled(Sql(where=(text,), key="NULL"))
            outcome, failed = self._outcome(
                query, [payloads[row] for row in asked_of], [data[row] for row in asked_of]
            )
            reasons = {each.row: each.reason for each in failed}
            true = set(outcome.rows)
            for at, row in enumerate(asked_of):
                if at in reasons:
                    left[row].append(reasons[at])
                elif at not in true:
                    del left[row]
        return left

    def _compiled(self, step: Sql) -> Query:
        return compiled((step,), self._scope)

    def _picked(
        self, payloads: Sequence[bytes], data: Sequence[bytes | None]
    ) -> _JoinedRows | None:
        """The results of a step that only picks columns, if their texts may stay unchanged."""
        if self._picking is None or not payloads:
            return None
        columns = self._columns(self._picking.fields, payloads, data)
        if not self._picking.takes(columns):
            return None
        keys, values = self._picking.pick(columns)
        return _JoinedRows([*range(len(payloads))], keys or [], values or [], [])

    def _outcome(
        self, query: Query, payloads: Sequence[bytes], data: Sequence[bytes | None]
    ) -> tuple[_JoinedRows, list[_RowFailure]]:
        if not payloads:
            return _JoinedRows([], [], [], []), []

        def columns(fields: tuple[str, ...]) -> list[Sequence[bytes | None]]:
            return self._columns(fields, payloads, data)

        outcome, failed = query.outcome_of(len(payloads), columns, whose=self._whose)
        failures = [_RowFailure(each.row, each.reason) for each in failed]
        return _JoinedRows(outcome.rows, outcome.keys or [], outcome.values or [], []), failures

    def _columns(
        self, fields: Sequence[str], payloads: Sequence[bytes], data: Sequence[bytes | None]
    ) -> list[Sequence[bytes | None]]:
        """The texts of columns, with or without a type, of rows and their matches."""
        names = [name.removeprefix(_AS_IT_IS) for name in fields]
        texts: dict[str, Sequence[bytes | None]] = {}
        by_source: dict[str | None, list[str]] = {}
        for name in dict.fromkeys(names):
            alias = alias_of(name)
            source = alias if alias in self._sources else None
            by_source.setdefault(source, []).append(name)
        for of, group in by_source.items():
            if of is None:
                texts |= zip(group, field_texts(tuple(group), payloads), strict=True)
            else:
                source_rows = payloads if of == self._sources.payload else data
                texts |= self._parts(of, group, source_rows)
        return [texts[name] for name in names]

    def _parts(
        self, alias: str, names: Sequence[str], data: Sequence[bytes | None]
    ) -> Iterator[tuple[str, Sequence[bytes | None]]]:
        """Columns of data of one input; repeated data are read once."""
        distinct = dict.fromkeys(data)
        if 2 * len(distinct) <= len(data):
            places = dict(zip(distinct, range(len(distinct)), strict=True))
            again = itemgetter(*map(places.__getitem__, data))
            yield from ((name, again(of)) for name, of in self._read(alias, names, [*distinct]))
        else:
            yield from self._read(alias, names, data)

    def _read(
        self, alias: str, names: Sequence[str], data: Sequence[bytes | None]
    ) -> Iterator[tuple[str, Sequence[bytes | None]]]:
        columns = {name: name.removeprefix(f"{alias}.") for name in names}
        fields = tuple(column for column in columns.values() if column not in (KEY, VALUE))
        texts = dict(zip(fields, data_field_texts(fields, data), strict=True)) if fields else {}
        for name, column in columns.items():
            if column in texts:
                yield name, texts[column]
                continue
            raw: list[bytes | None] = (
                keys_of(data)
                if column == KEY
                else [
                    None if datum is None else value
                    for datum, value in zip(data, values_of(data, nothing=b"{}"), strict=True)
                ]
            )
            if self._types[name] == BLOB:
                yield name, [None if each is None else _base64(each) for each in raw]
            else:
                yield name, [None if each == b"null" else each for each in raw]


def select_of(columns: Iterable[str]) -> list[tuple[str, str]]:
    """A select of columns as they are."""
    return [(name, quoted(_AS_IT_IS + name)) for name in columns]


def key_sql_of(key: Sequence[Flat]) -> str:
    """SQL for the key that a row asks for."""
    return key_sql(tuple(each.sql for each in key))


def _marks(payloads: Sequence[bytes]) -> dict[int, str]:
    """The reasons of earlier failures, by row."""
    return {
        row: _reason_of(texts)
        for row, payload in enumerate(payloads)
        if payload.startswith(_MARK)
        for texts in field_texts(("!",), [payload])[0]
        if texts is not None
    }


def _marked(value: bytes, reason: str) -> bytes:
    rest = value[1:] if value == b"{}" else b"," + value[1:]
    return _MARK + _text_of(reason) + rest


def _without(result: _JoinedRows, rows: Collection[int]) -> _JoinedRows:
    """The results of all other rows."""
    places = [at for at, row in enumerate(result.rows) if row not in rows]
    return _JoinedRows(
        [result.rows[at] for at in places],
        [result.keys[at] for at in places],
        [result.values[at] for at in places],
        [],
    )


Item = TypeVar("Item")
# The number of matches that are processed together.
_AT_ONCE = 10_000


class Onward(NamedTuple):
    """The destination of rows: a stage, by an exchange or not, or `None` for results."""

    stage: str | None
    exchange: bool


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
        self.next = where_onward(join, path, stage.number + 1)
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
                    if fits_64_bits(match):
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
            large = [self._error(TOO_LARGE, match) for match in rows if not fits_64_bits(match)]
            matches = Matches.of(match for match in rows if fits_64_bits(match))
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
        return error_update(self._name, reason, match.time, match.diff)


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
def lookup_stage(plan: Plan, stage: JoinStage) -> LookupStage:
    """A stage of lookups, compiled once in a process."""
    join = catalog_of(plan).join(stage.join)
    return LookupStage(join, path_of(join, stage), stage)


def path_of(join: Planned, stage: JoinStage) -> Path:
    """The path that a stage is on."""
    return next(path for path in join.paths if path.alias == stage.alias)


def where_onward(join: Planned, path: Path, number: int) -> Onward:
    """Where rows go after the step before `number`."""
    if number == len(path.steps):
        return Onward(None, exchange=False)
    name, step = step_name(join.join.name, path.alias, number), path.steps[number]
    if isinstance(step, Lookup):
        return Onward(name, step.exchange)
    return Onward(candidate_name(name, "count", 0), exchange=True)


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
    return select_of(carries), key_sql_of(key), len(key)


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


def error_update(join: str, reason: str, time: int, diff: int) -> KeyedUpdate:
    """The error record of a combination that cannot be evaluated."""
    return KeyedUpdate(None, operator_error(join, reason, None), time, within(diff))


def fits_64_bits(of: Match | KeyedUpdate) -> bool:
    """Whether its diff fits into 64 bits."""
    return -LARGEST <= of.diff <= LARGEST


def portions(of: Iterable[Item], most: int = _AT_ONCE) -> Iterator[list[Item]]:
    """The items in lists of at most this size."""
    rest = iter(of)
    while some := list(islice(rest, most)):
        yield some
