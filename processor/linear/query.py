"""Consecutive SQL steps, compiled to one DuckDB statement and run over batches of rows.

The statement runs as it is written (`database.connection` switches the optimizer
off), so casts happen for every row, and whether a row fails does not depend on the others.
Steps that only pick columns need no statement (`picking`).
It has three forms with the same results.  The typed form reads columns of values, which
`typed_json` makes from texts of the usual form; the plain form reads and casts JSON texts.  A
batch that fails runs again in the checked form, which returns the rows that fail with the
expressions that they fail on, and the results of all others.
"""

import functools
import hashlib
import operator
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import duckdb
import msgspec
import pyarrow as pa

from ikebana.codecs import canonical
from ikebana.codecs.errors import DecodeError
from ikebana.errors import StuckError
from ikebana.processor.base import calls
from ikebana.processor.base.rows import values_of
from ikebana.processor.linear.database import (
    BROKEN,
    MOST_MEMORY,
    MemoryLimitError,
    rows_over,
    without_data,
)
from ikebana.processor.linear.json_text import spelled
from ikebana.processor.linear.nest import (
    BAD,
    BEGIN,
    DIFF,
    END,
    ROW,
    Statement,
    field_column,
    statement,
)
from ikebana.processor.linear.picking import picked_fields, picking_of
from ikebana.processor.linear.scope import KEY, VALUE, FrozenScope, Scope, StepError
from ikebana.processor.linear.steps import Negate, Sql
from ikebana.processor.linear.typed_json import JsonColumn, column_of

_LONGEST_WRITTEN = 300


class Results(NamedTuple):
    """The results of rows, as columns of equal length.

    `rows` has the rows that the results come from.  The other columns are None if they are
    unchanged: the same keys and values, diffs of 1, no bounds.
    A result counts from `begins` until `ends`, in milliseconds; None is no bound.
    """

    rows: list[int]
    keys: list[bytes] | None
    values: list[bytes] | None
    diffs: list[int] | None
    begins: list[int | None] | None
    ends: list[int | None] | None


class FailedRow(NamedTuple):
    """A row that has failed, with the step and the reason."""

    row: int
    step: int
    reason: str


class FailedDatum(NamedTuple):
    """A datum that a step failed on, with its diff and bounds at that step.

    A key of None is the key of the row.
    """

    row: int
    step: int
    reason: str
    diff: int
    begin: int | None
    end: int | None
    key: bytes | None


def one_by_one(
    outcome_of: Callable[[pa.Table], tuple[Results, list[FailedDatum]]],
    table: pa.Table,
    keys: Sequence[Any] | None,
    what: str,
) -> tuple[Results, list[FailedDatum]]:
    """Evaluate rows one by one, after they took too long together.

    `outcome_of` evaluates some of them; `what` has the expressions, for errors.

    Raises:
        StuckError: it names the row, or says that there are too many rows.
    """
    most_s = calls.longest_s(os.environ)
    until = time.monotonic() + most_s
    outcome: tuple[Results, list[FailedDatum]] | None = None
    for row in range(table.num_rows):
        try:
            outcome = united(outcome, outcome_of(table.slice(row, 1)))
        except StuckError as error:
            raise stuck_row(error, None if keys is None else keys[row]) from None
        if time.monotonic() > until:
            raise StuckError(
                f"{what} took more than {most_s:.4g} s for {row + 1:,} of {table.num_rows:,} rows",
                hint="Lower source.max_records_per_batch, or raise run.max_batch.",
            )
    assert outcome is not None, "no rows"
    return outcome


def texts_of(steps: Sequence[Sql | Negate]) -> str:
    """The expressions of steps, shortened, as an error names them."""
    text = "; ".join(_expressions(steps))
    return text if len(text) <= _LONGEST_WRITTEN else text[: _LONGEST_WRITTEN - 1] + "…"


def _expressions(steps: Sequence[Sql | Negate]) -> Iterator[str]:
    """The expressions of steps, each with its part."""
    for step in steps:
        if isinstance(step, Negate):
            continue
        if step.flat_map is not None:
            yield f"flat_map {step.flat_map[1]}"
        yield from (f"where {text}" for text in step.where)
        for part in ("valid_from", "valid_until", "diff", "key"):
            if (text := getattr(step, part)) is not None:
                yield f"{part} {text}"
        yield from (f"select.{name} {text}" for name, text in step.select or ())


def united(
    one: tuple[Results, list[FailedDatum]] | None, other: tuple[Results, list[FailedDatum]]
) -> tuple[Results, list[FailedDatum]]:
    """Unite the outcomes of two runs of rows."""
    if one is None:
        return other
    columns = (
        None if a is None or b is None else a + b for a, b in zip(one[0], other[0], strict=True)
    )
    return Results(*columns), one[1] + other[1]  # type: ignore[arg-type]


def stuck_row(error: StuckError, key: Any) -> StuckError:
    """The error of a single row; it has a digest of the key, which may be secret."""
    if key is None:
        return error
    digest = hashlib.sha256(bytes(key)).hexdigest()[:16]
    return StuckError(
        f"{error.message}, over one row, whose key has SHA-256 {digest}…", hint=error.hint
    )


try:
    from ikebana.compiled._joins import fields_of
except ImportError:
    fields_of = None  # type: ignore[assignment]

JsonColumns = Sequence[JsonColumn]
# From names of fields to their columns.
ColumnsByName = Callable[[tuple[str, ...]], JsonColumns]

_MOST_REASONS = 1_000
# Errors that no data can cause.
_OURS = (
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.InterruptException,
    # The machine has too little memory; a row that needs too much is a `MemoryLimitError`.
    duckdb.OutOfMemoryException,
    duckdb.ParserException,
)


_BROKEN = "could not be evaluated: an internal error of DuckDB"
_TOO_MUCH = f"takes more memory than the {MOST_MEMORY >> 30} GiB that an expression may have"


class Query:
    """Compiled steps: a pure function of each single row."""

    def __init__(self, steps: Sequence[Sql | Negate], scope: Scope) -> None:
        self._steps, self._scope = steps, scope
        # What only picks columns needs no statement, unless a text is not of the usual form.
        of = picked_fields(steps, scope)
        self._picking = picking_of(of)
        form = of or self._typed
        self.result, self.fields = form.result, form.fields
        """The scope of the results, and the fields of the value that it reads."""
        self.reads_key, self.reads_value = form.reads_key, form.reads_value
        """Whether it reads the key, and the value as a whole."""
        self.makes_key, self.makes_value = form.makes_key, form.makes_value
        """Whether it makes new keys, and new values."""
        self._whose, self._written = "", texts_of(steps)
        self._reasons: dict[tuple[Any, ...], str | None] = {}
        # By step and reason of a failure, the statement of its expression alone.
        self._alone: dict[tuple[int, str], Statement | None] = {}

    @functools.cached_property
    def _typed(self) -> Statement:
        return statement(self._steps, self._scope, typed=True)

    @functools.cached_property
    def _plain(self) -> Statement:
        return statement(self._steps, self._scope)

    @functools.cached_property
    def _checked(self) -> Statement:
        return statement(self._steps, self._scope, checked=True)

    def run(
        self, keys: Sequence[bytes | None], values: Sequence[bytes]
    ) -> tuple[Results, list[FailedRow]]:
        """The results of the rows, and the rows that failed."""
        results, failures = self.outcome(keys, values)
        return results, [FailedRow(*failure[:3]) for failure in failures]

    def outcome(
        self, keys: Sequence[bytes | None], values: Sequence[bytes], *, whose: str = ""
    ) -> tuple[Results, list[FailedDatum]]:
        """The results of the rows, and the failures, datum by datum.

        `whose` is the operator, for the error if an expression does not end.  Raises: StuckError.
        """
        texts = field_texts(self.fields, values) if self.fields else []
        return self._outcome(len(keys), {KEY: keys, VALUE: values}, texts, whose)

    def outcome_of(
        self, count: int, columns: ColumnsByName, *, whose: str = ""
    ) -> tuple[Results, list[FailedDatum]]:
        """Like `outcome`, for rows that have fields alone; `columns` returns their JSON texts."""
        return self._outcome(count, {}, columns(self.fields), whose)

    def _outcome(
        self, count: int, wholes: Mapping[str, JsonColumn], texts: JsonColumns, whose: str
    ) -> tuple[Results, list[FailedDatum]]:
        if not count:
            return Results([], None, None, None, None, None), []
        self._whose = whose
        if (picking := self._picking) is not None and picking.takes(texts):
            keys, values = picking.pick(texts)
            return Results(list(range(count)), keys, values, None, None, None), []
        by_name = dict(zip(self.fields, texts, strict=True))
        numbered = enumerate(self._typed.fields)
        columns = {**wholes, **{field_column(at): by_name[name] for at, name in numbered}}
        try:
            return self._together(count, columns)
        except StuckError as error:
            if count == 1:
                of_one = wholes.get(KEY)
                raise stuck_row(error, None if of_one is None else of_one[0]) from None
        table = _table_of_texts(self._checked.schema, count, columns)
        return one_by_one(
            self._with_failures, table, wholes.get(KEY), f"operator {whose}: {self._written}"
        )

    def _together(
        self, count: int, columns: Mapping[str, JsonColumn]
    ) -> tuple[Results, list[FailedDatum]]:
        form = self._typed
        if (table := _table(form.schema, count, columns)) is None:
            form = self._plain
            table = _table_of_texts(form.schema, count, columns)
        try:
            return self._results(form, table)
        except MemoryLimitError:
            # All rows together may need too much memory, although none does alone.
            pass
        except duckdb.Error as error:
            if isinstance(error, _OURS):
                raise
        return self._with_failures(_table_of_texts(self._checked.schema, count, columns))

    def _with_failures(self, table: pa.Table) -> tuple[Results, list[FailedDatum]]:
        """The outcome of rows if some of them fail."""
        why = "could not be evaluated"
        try:
            results, failures = self._results(self._checked, table)
            return results, [self._with_reason(failure, table) for failure in failures]
        except MemoryLimitError:
            why = _TOO_MUCH
        except BROKEN:
            why = _BROKEN
        except duckdb.Error as error:
            if isinstance(error, _OURS):
                raise
        # TRY does not catch some errors: divide the rows until the failing row is alone.
        if table.num_rows == 1:
            results, _ = self._results(self._checked, table.slice(0, 0))
            (row,) = table.column(ROW).to_pylist()
            return results, [FailedDatum(row, 0, why, 1, None, None, None)]
        half = table.num_rows // 2
        return united(
            self._with_failures(table.slice(0, half)), self._with_failures(table.slice(half))
        )

    def _with_reason(self, failure: FailedDatum, table: pa.Table) -> FailedDatum:
        """Add DuckDB's message to a failure; it must not depend on other rows."""
        place = failure.step, failure.reason
        if place not in self._checked.evaluated:
            return failure
        (first,) = table.column(ROW).slice(0, 1).to_pylist()
        row = table.slice(failure.row - first, 1)
        texts = dict(zip(_read_by(self._checked), map(_text_in, row.columns[1:]), strict=True))
        if place not in self._alone:
            self._alone[place] = self._expression_alone(*place)
        alone = self._alone[place]
        said = None if alone is None else self._said(alone, texts)
        if said is None:
            # A later use of the expression has failed, or a text lacks the usual form.
            said = self._said(self._plain, texts)
        return failure._replace(reason=f"{failure.reason}: {said}") if said else failure

    def _expression_alone(self, at: int, reason: str) -> Statement | None:
        """A statement that evaluates one of the expressions, with the steps before it."""
        part, text = self._checked.evaluated[at, reason]
        step = self._steps[at]
        condition = text if part == "where" else f"({text}) IS NULL"
        flat_map = step.flat_map if isinstance(step, Sql) and part != "flat_map" else None
        try:
            alone = Sql(flat_map=flat_map, where=(condition,))
            return statement((*self._steps[:at], alone), self._scope, typed=True)
        except StepError:
            return None

    def _said(self, form: Statement, texts: Mapping[str, bytes | None]) -> str | None:
        """DuckDB's message about a row, empty if useless; None if the row does not fail."""
        columns = [texts[name] for name in _read_by(form)]
        # A row that fails often fails again, when it is retracted.
        if (key := (form.sql, *columns)) not in self._reasons:
            if len(self._reasons) >= _MOST_REASONS:
                self._reasons.clear()
            single = {n: [text] for n, text in zip(form.schema.names[1:], columns, strict=True)}
            self._reasons[key] = self._asked(form, _table(form.schema, 1, single))
        return self._reasons[key]

    def _asked(self, form: Statement, row: pa.Table | None) -> str | None:
        try:
            if row is not None:
                self._results(form, row)
        except duckdb.Error as error:
            return "" if isinstance(error, (*_OURS, *BROKEN)) else without_data(error)
        except MemoryLimitError:
            return ""
        return None

    def _results(self, form: Statement, table: pa.Table) -> tuple[Results, list[FailedDatum]]:
        rows = rows_over(form.sql, table, self._whose, self._written)
        turned = zip(*rows, strict=True) if rows else ((),) * len(form.columns)
        columns: dict[str, list[Any]] = dict(zip(form.columns, map(list, turned), strict=True))
        count = len(rows)
        # The failed results by position: the step, and the reason.
        failed: dict[int, tuple[int, str]] = {}
        for at, bad in enumerate(columns.pop(BAD, ())):
            if bad is not None:
                failed[at] = form.failures[bad]
        for name in (KEY, VALUE):
            if name in columns:
                columns[name] = _canonical(columns[name], failed, form.last)
        chosen = [True] * count
        if BEGIN in columns and END in columns:
            chosen = [
                begin is None or end is None or begin < end
                for begin, end in zip(columns[BEGIN], columns[END], strict=True)
            ]
        if DIFF in columns:
            chosen = [want and diff != 0 for want, diff in zip(chosen, columns[DIFF], strict=True)]
        nothing: list[Any] = [None] * count if failed else []
        failures = [
            FailedDatum(
                columns[ROW][at],
                *why,
                columns[DIFF][at] if DIFF in columns else 1,
                *(columns.get(name, nothing)[at] for name in (BEGIN, END, KEY)),
            )
            for at, why in failed.items()
            if chosen[at]
        ]
        for at in failed:
            chosen[at] = False
        if not all(chosen):
            columns = {name: list(compress(column, chosen)) for name, column in columns.items()}
        results = Results(
            columns[ROW], *(columns.get(name) for name in (KEY, VALUE, DIFF, BEGIN, END))
        )
        return results, failures


@functools.lru_cache(maxsize=1024)
def compiled(steps: tuple[Sql | Negate, ...], scope: FrozenScope) -> Query:
    """The query of these steps, compiled once in a process."""
    return Query(steps, scope.thawed())


def _canonical(
    texts: list[str | None], failed: dict[int, tuple[int, str]], step: int
) -> list[bytes | None]:
    """Canonical bytes of JSON texts; the positions of invalid ones are added to `failed`."""
    if not failed:
        try:
            return list(canonical.canonical_many(texts))  # type: ignore[arg-type]
        except DecodeError:
            pass
    result: list[bytes | None] = []
    for at, text in enumerate(texts):
        try:
            result += [None] if text is None else canonical.canonical_many([spelled(text)])
        except DecodeError:
            # For example, a number out of range has no JSON form.
            failed.setdefault(at, (step, "a result has no JSON form"))
            result.append(None)
    return result


def field_texts(fields: tuple[str, ...], values: Sequence[bytes]) -> JsonColumns:
    """The JSON texts of fields of values, column by column; only an object has fields."""
    if fields_of is not None and (names := _plain_names(fields)) is not None:
        compiled_texts = fields_of(names, [*values], data=False)
        if compiled_texts is not None:
            return compiled_texts
    objects = [value if value[:1] == b"{" else b"{}" for value in values]
    return _field_decoder(fields)(b"[" + b",".join(objects) + b"]")


def _table(schema: pa.Schema, count: int, columns: Mapping[str, JsonColumn]) -> pa.Table | None:
    """The table of these columns; None if a text lacks the usual form of its column's type."""
    arrays = [pa.array(range(count), pa.int32())]
    for name, kind in zip(schema.names[1:], schema.types[1:], strict=True):
        if (array := column_of(columns[name], kind)) is None:
            return None
        arrays.append(array)
    return pa.table(arrays, schema=schema)


def _read_by(form: Statement) -> list[str]:
    """The origin of each column of a statement's table: a field's name, or key or value."""
    of = {field_column(at): field for at, field in enumerate(form.fields)}
    return [of.get(name, name) for name in form.schema.names[1:]]


def _text_in(column: pa.ChunkedArray) -> bytes | None:
    """The only value of a column of texts or bytes."""
    value = column[0].as_py()
    return value.encode() if isinstance(value, str) else value


def _table_of_texts(schema: pa.Schema, count: int, columns: Mapping[str, JsonColumn]) -> pa.Table:
    """The table of a statement that casts texts; any text is allowed."""
    table = _table(schema, count, columns)
    assert table is not None, "a text that is no text"
    return table


def data_field_texts(fields: tuple[str, ...], data: Sequence[bytes | None]) -> JsonColumns:
    """The JSON texts of fields of data's values; None has nulls only."""
    if fields_of is not None and (names := _plain_names(fields)) is not None:
        compiled_texts = fields_of(names, [*data], data=True)
        if compiled_texts is not None:
            return compiled_texts
    return field_texts(fields, values_of(data, nothing=b"{}"))


@functools.lru_cache(maxsize=512)
def _plain_names(fields: tuple[str, ...]) -> tuple[bytes, ...] | None:
    """The names of fields as bytes; None if one has to be escaped, or occurs twice."""
    names = tuple(map(msgspec.json.encode, fields))
    if len(set(names)) < len(names) or any(b"\\" in name for name in names):
        return None
    return tuple(name[1:-1] for name in names)


@functools.lru_cache(maxsize=512)
def _field_decoder(fields: tuple[str, ...]) -> Callable[[bytes], JsonColumns]:
    """A decoder of an array of objects into columns of the JSON texts of their fields."""
    if any(name != msgspec.json.encode(name).decode()[1:-1] for name in fields):
        return functools.partial(_by_name, fields)
    names = [f"f{at}" for at in range(len(fields))]
    struct = msgspec.defstruct(
        "Fields",
        [(name, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for name in names],
        rename=dict(zip(names, fields, strict=True)),
    )
    decode = msgspec.json.Decoder(list[struct]).decode  # type: ignore[valid-type]
    get = [operator.attrgetter(name) for name in names]

    def texts(array: bytes) -> JsonColumns:
        objects = decode(array)
        return [_texts_of(list(map(field, objects))) for field in get]

    return texts


def _texts_of(raws: Sequence[msgspec.Raw | msgspec.UnsetType]) -> JsonColumn:
    try:
        texts: list[bytes | None] = list(map(bytes, raws))  # type: ignore[arg-type]
    except TypeError:
        # The field is absent.
        texts = [None if raw is msgspec.UNSET else bytes(raw) for raw in raws]
    return [None if text == _NULL else text for text in texts] if _NULL in texts else texts


_NULL = b"null"
_objects = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode


def _by_name(fields: tuple[str, ...], array: bytes) -> JsonColumns:
    """Decode fields that a struct cannot: names with quotes or control characters."""
    objects = _objects(array)
    return [
        [_text(fields_of_one.get(name, msgspec.UNSET)) for fields_of_one in objects]
        for name in fields
    ]


def _text(raw: msgspec.Raw | msgspec.UnsetType) -> bytes | None:
    if raw is msgspec.UNSET:
        return None
    text = bytes(raw)
    return None if text == b"null" else text
