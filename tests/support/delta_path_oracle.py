"""What delta paths come to by definition: executed update by update over dictionaries.

Of an as-of join with `retract: locked`, each insertion of a left datum remembers what it
has emitted, and a retraction takes back the latest that is remembered.

It is the meaning of a planned join, beside which kernels are held.  It does what the plan
says and nothing else: a row has the columns that the plan carries on, an arrangement is
asked for the key that the plan names, and an update of the row's own time is seen if
the step says so.  It is not the oracle: that knows neither paths nor arrangements.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

from ikebana.arrangements.update import Update, accumulate, consolidate
from ikebana.processor.linear.database import rows_of
from ikebana.processor.linear.expressions import parse
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import Scope
from ikebana.processor.planning.joins.binding import Flat, flat_name
from ikebana.processor.planning.joins.paths import (
    ArrangedBy,
    Extend,
    Lookup,
    Path,
    PathStep,
    Planned,
)
from ikebana.processor.planning.joins.query import AsOfJoin
from ikebana.processor.planning.relations import Relation
from support.sums import summed

Datum = tuple[Any, ...]
Row = dict[str, Any]


class Given(NamedTuple):
    """The updates of a relation; data are values of these columns."""

    columns: tuple[str, ...]
    updates: Sequence[Update[Datum]]


def run(
    planned: Planned, relations: Mapping[str, Relation], given: Mapping[str, Given]
) -> list[Update[Datum]]:
    """The consolidated updates of a join's results: (key, selected values ...)."""
    running = _Run(planned, relations, given)
    join = planned.join
    if isinstance(join, AsOfJoin) and join.retract == "locked":
        return consolidate(running.locked(planned.paths[0]))
    return consolidate(update for path in planned.paths for update in running.of(path))


def run_from(
    planned: Planned, relations: Mapping[str, Relation], given: Mapping[str, Given], begin: int
) -> list[Update[Datum]]:
    """The consolidated updates of a join that is new at `begin`, over relations that are not.

    What the first input was before then goes its path at `begin`, which sees no others'
    updates of that time; all paths take the updates from then on.
    """
    running = _Run(planned, relations, given)
    return consolidate([*running.hydration(begin), *running.since(begin)])


def rows_made(
    planned: Planned, relations: Mapping[str, Relation], given: Mapping[str, Given]
) -> int:
    """How many rows the steps of all paths touch, which is the work of the join."""
    running = _Run(planned, relations, given)
    for path in planned.paths:
        for _ in running.of(path):
            pass
    return running.touched


class _Group(NamedTuple):
    """The updates of one key of an arrangement."""

    updates: list[tuple[Datum, int, int]]

    def as_of(self, time: int, *, sees_equal: bool) -> dict[Datum, int]:
        """The data, each as often as it is there."""
        return summed((datum, diff) for datum, at, diff in self.updates if at < time + sees_equal)


_NOTHING = _Group([])


class _Run:
    """A join over given relations; arrangements are made when they are first asked."""

    def __init__(
        self,
        planned: Planned,
        relations: Mapping[str, Relation],
        given: Mapping[str, Given],
    ) -> None:
        self.touched = 0
        self._planned = planned
        self._relations = relations
        self._given = given
        self._arrangements: dict[ArrangedBy, dict[Datum, _Group]] = {}
        self._of = {each.alias: each.relation for each in planned.join.inputs}

    def of(self, path: Path) -> Iterator[Update[Datum]]:
        """What the updates of one input become."""
        for update in self._filtered(path.relation, path.filters):
            yield from self._changed(path, update)

    def hydration(self, begin: int) -> Iterator[Update[Datum]]:
        """What the first input has been before a time, as changes at that time."""
        path = self._planned.paths[0]
        before = accumulate(self._filtered(path.relation, path.filters), begin - 1)
        for datum, count in before.items():
            yield from self._changed(path, Update(datum, begin, count))

    def since(self, begin: int) -> Iterator[Update[Datum]]:
        """What all updates become that are not before a time."""
        for path in self._planned.paths:
            for update in self._filtered(path.relation, path.filters):
                if update.time >= begin:
                    yield from self._changed(path, update)

    def locked(self, path: Path) -> Iterator[Update[Datum]]:
        """What the updates of an as-of join's left become if it remembers."""
        remembered: dict[Datum, list[list[Update[Datum]]]] = {}
        for datum, time, diff in consolidate(self._filtered(path.relation, path.filters)):
            results = remembered.setdefault(datum, [])
            for _ in range(diff):
                results.append(list(self._changed(path, Update(datum, time, 1))))
                yield from results[-1]
            for _ in range(-diff):
                yield from (Update(made, time, -count) for made, _, count in results.pop())

    def _changed(self, path: Path, update: Update[Datum]) -> Iterator[Update[Datum]]:
        """What one update of one input becomes."""
        datum, time, diff = update
        join = self._planned.join
        row = self._row(path.alias, datum)
        rows = [({name: row[name] for name in path.carries}, diff)]
        for step in path.steps:
            rows = [
                ({name: made[name] for name in step.carries}, times)
                for before in rows
                for made, times in self._step(step, *before, time)
            ]
            self.touched += len(rows)
            if isinstance(join, AsOfJoin) and join.outer and not rows:
                rows = [({name: row.get(name) for name in step.carries}, diff)]
        for made, times in rows:
            selected = (value(each, made) for _, each in self._planned.select)
            yield Update((value(self._planned.key, made), *selected), time, times)

    def _step(self, step: PathStep, row: Row, diff: int, time: int) -> Iterator[tuple[Row, int]]:
        made = self._looked_up if isinstance(step, Lookup) else self._extended
        for found, times in made(step, row, time):  # type: ignore[arg-type]
            if all(value(each, found) is True for each in step.predicates):
                yield found, diff * times

    def _looked_up(self, step: Lookup, row: Row, time: int) -> Iterator[tuple[Row, int]]:
        group = self._group(step.arrangement, step.key, row)
        for datum, count in group.as_of(time, sees_equal=step.sees_equal).items():
            yield {**row, **self._row(step.alias, datum)}, count

    def _extended(self, step: Extend, row: Row, time: int) -> Iterator[tuple[Row, int]]:
        known = [self._group(each.values, each.key, row) for each in step.candidates]
        fewest, candidate = min(
            zip(known, step.candidates, strict=True), key=lambda each: len(each[0].updates)
        )
        proposed = {
            value(candidate.value, self._row(candidate.alias, datum))
            for datum, _, _ in fewest.updates
        }
        for variable in proposed - {None}:
            self.touched += 1
            made = {**row, step.variable: variable}
            found = [
                self._group(each.data, each.data_key, made).as_of(time, sees_equal=each.sees_equal)
                for each in step.candidates
            ]
            if all(found):
                yield from self._completed(step, made, found)

    def _completed(
        self, step: Extend, row: Row, found: Sequence[dict[Datum, int]]
    ) -> Iterator[tuple[Row, int]]:
        completing = [
            (each, data)
            for each, data in zip(step.candidates, found, strict=True)
            if each.completes
        ]
        for chosen in product(*(data.items() for _, data in completing)):
            made, times = row, 1
            for (each, _), (datum, count) in zip(completing, chosen, strict=True):
                made, times = {**made, **self._row(each.alias, datum)}, times * count
            yield made, times

    def _group(self, arrangement: ArrangedBy, key: tuple[Flat, ...], row: Row) -> _Group:
        if arrangement not in self._arrangements:
            self._arrangements[arrangement] = self._arranged(arrangement)
        parts = tuple(_distinct(value(part, row)) for part in key)
        return self._arrangements[arrangement].get(parts, _NOTHING)

    def _arranged(self, arrangement: ArrangedBy) -> dict[Datum, _Group]:
        of, scope = arrangement.relation, self._relations[arrangement.relation].scope
        wanted = [_own(text, scope) for text in arrangement.keys]
        found: dict[Datum, _Group] = {}
        for datum, time, diff in self._filtered(of, arrangement.filters):
            row = dict(zip(self._given[of].columns, datum, strict=True))
            values = tuple(_distinct(value(each, row)) for each in wanted)
            # Null is equal to nothing.
            if not any(each[1] is None for each in values):
                found.setdefault(values, _Group([])).updates.append((datum, time, diff))
        return found

    def _filtered(self, relation: str, filters: Iterable[str]) -> Iterator[Update[Datum]]:
        columns, updates = self._given[relation]
        scope = self._relations[relation].scope
        conditions = [_own(text, scope, condition=True) for text in filters]
        for update in updates:
            row = dict(zip(columns, update.data, strict=True))
            if all(value(each, row) is True for each in conditions):
                yield update

    def _row(self, alias: str, datum: Datum) -> Row:
        columns = self._given[self._of[alias]].columns
        return {flat_name(alias, name): of for name, of in zip(columns, datum, strict=True)}


def value(expression: Flat, row: Mapping[str, Any]) -> Any:
    """The value of an expression over a row, by DuckDB."""
    reads = tuple(sorted(expression.reads.items()))
    if len(reads) == 1 and expression.sql in (reads[0][0], quoted(reads[0][0])):
        return row[reads[0][0]]
    return _evaluated(expression.sql, reads, *(row[name] for name, _ in reads))


def _distinct(of: Any) -> tuple[bool, Any]:
    """A value as it is compared: in Python, True is 1."""
    return isinstance(of, bool), of


def _own(text: str, scope: Scope, *, condition: bool = False) -> Flat:
    made = parse(text, scope, condition=condition)
    return Flat(made.sql, made.reads, "", text)


@lru_cache(maxsize=100_000, typed=True)
def _evaluated(sql: str, reads: tuple[tuple[str, str], ...], *values: Any) -> Any:
    columns = ", ".join(
        f"{'NULL' if of is None else _literal(of)}::{kind} AS {quoted(name)}"
        for (name, kind), of in zip(reads, values, strict=True)
    )
    ((found,),) = rows_of(f"SELECT {sql} FROM (SELECT {columns or '1'})")
    return found


def _literal(of: Any) -> str:
    return "'" + str(of).replace("'", "''") + "'"
