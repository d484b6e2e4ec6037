"""Runs the records of files: what each query came to."""

import re
import signal
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from random import Random
from typing import Any

import duckdb

from ikebana import Column, Input, Output, Plan, Upsert, evaluate
from ikebana.errors import ConfigError, ConvergenceError
from ikebana.processor.base.calls import CallStopped
from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import Operator
from ikebana.processor.relational.making import KnownRelations, MakingError, ReportedError
from ikebana.processor.relational.sql import sql_operators, tables_of
from sqllogictest.answers import agrees, comparable
from sqllogictest.dialect import ORDER, misfit, query_of
from sqllogictest.records import Query, Record, Statement
from sqllogictest.tables import Change, Tables, TooLargeError

# A recursion without an end is refused while it runs.
_REFUSALS = (
    *(SqlQueryError, MakingError, ExpressionError, ReportedError, ConfigError),
    ConvergenceError,
)


class Kind(StrEnum):
    """What came of a query."""

    RIGHT = "right"
    OTHERWISE = "as DuckDB, not as the file"
    WRONG = "wrong"
    REFUSED = "refused"
    CRASHED = "crashed"
    ELSEWHERE = "refused by DuckDB, too"
    MISFIT = "not of the dialect of views"
    LEFT_OUT = "no query, too large or too slow"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a query, and why."""

    kind: Kind
    query: Query
    reason: str = ""


class _SlowError(Exception):
    """A query took too long."""


def outcomes(
    given: Iterable[Record], only: Collection[int] | None = None, seconds: float = 10
) -> Iterator[Outcome]:
    """Run records in their order, and say of each query what came of it.

    `only` has the numbers of the queries to run, from 0.  A query may take so many seconds of this
    process's time.
    """
    tables = Tables()
    numbers = count()
    try:
        for record in given:
            if isinstance(record, Query) and (only is None or next(numbers) in only):
                yield _outcome(tables, record, seconds)
            elif isinstance(record, Statement) or not _only_reads(record):
                with suppress(duckdb.Error):
                    tables.run(record.sql)
    finally:
        tables.close()


def drawn(given: Sequence[Record], many: int, seed: str) -> set[int]:
    """The numbers of so many queries, drawn at random."""
    queries = sum(isinstance(each, Query) for each in given)
    return set(Random(seed).sample(range(queries), min(many, queries)))


def _outcome(tables: Tables, query: Query, seconds: float) -> Outcome:
    try:
        with _limited(seconds):
            return _judged(tables, query)
    except (TooLargeError, _SlowError, CallStopped):
        return Outcome(Kind.LEFT_OUT, query)


def _only_reads(query: Query) -> bool:
    return query.sql.lower().startswith(("select", "with", "values", "from", "("))


def _judged(tables: Tables, query: Query) -> Outcome:
    if not _only_reads(query):
        # A statement that answers what it has changed, or what the engine is like.
        with suppress(duckdb.Error):
            tables.run(query.sql)
        return Outcome(Kind.LEFT_OUT, query)
    try:
        if reason := misfit(tables.database, query.sql):
            return Outcome(Kind.MISFIT, query, reason)
        changes = tables.changes()
        expected = tables.answer(query.sql)
    except duckdb.Error as error:
        return Outcome(Kind.ELSEWHERE, query, str(error))
    try:
        rows = rows_of(tables, changes, query.sql)
    except _REFUSALS as error:
        told = error.with_place(query.sql) if isinstance(error, SqlQueryError) else str(error)
        return Outcome(Kind.REFUSED, query, told)
    except (_SlowError, TooLargeError):
        raise
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is a defect to be listed
        return Outcome(Kind.CRASHED, query, f"{type(error).__name__}: {error}")
    if agrees(query, rows):
        return Outcome(Kind.RIGHT, query)
    if _counted(rows) != _counted(expected):
        with suppress(duckdb.Error):
            if _counted(expected) != _counted(tables.answer_over_turned(query.sql)):
                return Outcome(Kind.MISFIT, query, ORDER)
        return Outcome(Kind.WRONG, query, f"has {rows[:5]}, expected {expected[:5]}")
    # In the order in which DuckDB has them, in which they are hashed.
    kind = Kind.RIGHT if agrees(query, expected) else Kind.OTHERWISE
    return Outcome(kind, query)


def _counted(rows: Iterable[Sequence[Any]]) -> Counter[Any]:
    return Counter(tuple(map(comparable, row)) for row in rows)


def rows_of(tables: Tables, changes: Mapping[str, list[Change]], sql: str) -> list[list[Any]]:
    """The rows of a view of a query, after all changes."""
    views = {name.lower(): text for name, text in tables.views().items()}
    # Rows of no table have the times of some input.
    inputs = {"nothing": Input("nothing_changes", ("n",), columns=(Column("x", "BIGINT"),))}
    operators: list[Operator] = [Upsert("nothing", "nothing_changes")]

    def add(name: str) -> None:
        """Add what a query names, each thing once, behind what it reads itself."""
        table = next((each for each in changes if each.lower() == name.lower()), None)
        if table in tables.large:
            raise TooLargeError(table)
        if table is not None and table not in inputs:
            columns = tuple(tables.columns(table))
            inputs[table] = Input(f"{table}_changes", (table,), columns=columns)
            operators.append(Upsert(table, f"{table}_changes"))
        elif name.lower() in views and not any(each.name == name for each in operators):
            text = query_of(views.pop(name.lower()))
            for each in tables_of(text):
                add(each)
            operators.extend(sql_operators(name, text, KnownRelations(inputs.values(), operators)))

    for each in tables_of(sql):
        add(each)
    view = next(name for name in ("view", "view_") if name not in inputs)
    made = sql_operators(view, sql, KnownRelations(inputs.values(), operators))
    known = KnownRelations(inputs.values(), [*operators, *made])
    names = list(known.relation(view).types)
    output = Output(view, view, "out")
    plan = checked(Plan("queries", tuple(inputs.values()), (*operators, *made), (output,)))
    given = {f"{name}_changes": changes[name] for name in inputs if name in changes}
    found = evaluate(plan, given, tables.time + 1, shards=2)
    counts: dict[str, tuple[list[Any], int]] = {}
    for (_, value), _, diff in found[view]:
        row = [value[name] for name in names]
        _, many = counts.get(repr(row), (row, 0))
        counts[repr(row)] = (row, many + diff)
    return [row for row, many in counts.values() for _ in range(many)]


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raises: _SlowError, whatever has become of it.

    A database that runs a query when the time is over answers with an error of its own, of which
    others may make a refusal.
    """
    is_over = False

    def stop(*_: object) -> None:
        nonlocal is_over
        is_over = True
        raise _SlowError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    except Exception:
        if is_over:
            raise _SlowError from None
        raise
    else:
        if is_over:
            raise _SlowError
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def grouped(reason: str) -> str:
    """A reason without what is of one query alone: places, names, numbers."""
    reason = re.sub(r"^line \d+, column \d+: ", "", reason.split("\n")[0])
    return re.sub(r"\d+", "N", re.sub(r'"[^"]*"', '"…"', reason))[:110]
