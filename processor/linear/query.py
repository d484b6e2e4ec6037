"""Consecutive SQL steps, compiled to one DuckDB statement and run over batches of rows.

The statement is run as it is written (`database.connection` switches the optimizer
off), so casts happen for every row, and whether a row fails does not depend on the others.
A batch that fails is run once more in the statement's checked form, which tells the rows
that fail and the expressions that they fail at, and has the results of all others.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, NamedTuple

import duckdb
import msgspec
import pyarrow as pa

from ikebana.codecs import canonical
from ikebana.codecs.errors import DecodeError
from ikebana.processor.linear.database import connection, parsed
from ikebana.processor.linear.json_text import BLOB
from ikebana.processor.linear.layers import BAD, BEGIN, DIFF, END, ROW, field_column
from ikebana.processor.linear.nest import Statement, statement
from ikebana.processor.linear.scope import KEY, VALUE, FrozenScope, Scope
from ikebana.processor.linear.steps import Negate, Sql

# Columns of JSON texts; None stands for null and for what is absent.
Texts = Sequence[Sequence[bytes | None]]
# From names of fields to their columns.
Columns = Callable[[tuple[str, ...]], Texts]

# Errors that are nobody's data's fault.
_OURS = (
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.FatalException,
    duckdb.InternalException,
    duckdb.InterruptException,
    duckdb.OutOfMemoryException,
    duckdb.ParserException,
)


class Made(NamedTuple):
    """The results of rows, as columns of equal length.

    `rows` are the rows that the results come from.  The others are None where nothing
    has changed: keys and values are as they were, diffs are 1, there are no bounds.
    A result counts from `begins` until `ends`, in milliseconds; None is no bound.
    """

    rows: list[int]
    keys: list[bytes] | None
    values: list[bytes] | None
    diffs: list[int] | None
    begins: list[int | None] | None
    ends: list[int | None] | None


class Failed(NamedTuple):
    """A row that has failed, with the step and the reason."""

    row: int
    step: int
    reason: str


class Failure(NamedTuple):
    """A datum that a step failed on, as it was then: how often it counted, and when.

    A key of None is the key of the row.
    """

    row: int
    step: int
    reason: str
    diff: int
    begin: int | None
    end: int | None
    key: bytes | None


class Query:
    """Compiled steps: a pure function of each row by itself."""

    def __init__(self, steps: Sequence[Sql | Negate], scope: Scope) -> None:
        self._plain = statement(steps, scope, checked=False)
        self._checked = statement(steps, scope, checked=True)
        self._scope = scope
        self.result = self._plain.result

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the value that it reads."""
        return self._plain.fields

    @property
    def reads_key(self) -> bool:
        """Whether it reads the key."""
        return self._plain.reads_key

    @property
    def reads_value(self) -> bool:
        """Whether it reads the value as a whole."""
        return self._plain.reads_value

    @property
    def makes_value(self) -> bool:
        """Whether it makes values anew."""
        return self._plain.makes_value

    @property
    def makes_key(self) -> bool:
        """Whether it makes keys anew."""
        return self._plain.makes_key

    def run(
        self, keys: Sequence[bytes | None], values: Sequence[bytes]
    ) -> tuple[Made, list[Failed]]:
        """The results of the rows, and the rows that failed."""
        made, failures = self.outcome(keys, values)
        return made, [Failed(*failure[:3]) for failure in failures]

    def outcome(
        self, keys: Sequence[bytes | None], values: Sequence[bytes]
    ) -> tuple[Made, list[Failure]]:
        """The results of the rows, and what failed, datum by datum."""
        return self._outcome(len(keys), lambda form: self._table(form, keys, values))

    def outcome_of(self, count: int, columns: Columns) -> tuple[Made, list[Failure]]:
        """The same of rows that have fields alone; `columns` gives these as JSON texts."""
        return self._outcome(count, lambda form: _table_of(count, columns(form.fields)))

    def _outcome(
        self, count: int, table: Callable[[Statement], pa.Table]
    ) -> tuple[Made, list[Failure]]:
        if not count:
            return Made([], None, None, None, None, None), []
        try:
            return self._results(self._plain, table(self._plain))
        except duckdb.Error as error:
            if isinstance(error, _OURS):
                raise
        return self._told(table(self._checked))

    def _told(self, table: pa.Table) -> tuple[Made, list[Failure]]:
        """What `outcome` gives, of rows of which some fail."""
        try:
            return self._results(self._checked, table)
        except duckdb.Error as error:
            if isinstance(error, _OURS):
                raise
        # What TRY does not catch: halves, until the row that fails is alone.
        if table.num_rows == 1:
            made, _ = self._results(self._checked, table.slice(0, 0))
            (row,) = table.column(ROW).to_pylist()
            return made, [Failure(row, 0, "could not be evaluated", 1, None, None, None)]
        half = table.num_rows // 2
        made, failed = self._told(table.slice(0, half))
        more, also = self._told(table.slice(half))
        joined = (
            None if a is None or b is None else a + b for a, b in zip(made, more, strict=True)
        )
        return Made(*joined), failed + also  # type: ignore[arg-type]

    def _table(
        self, form: Statement, keys: Sequence[bytes | None], values: Sequence[bytes]
    ) -> pa.Table:
        columns = {ROW: pa.array(range(len(keys)), pa.int32())}
        if form.reads_key:
            columns[KEY] = _column(keys, binary=self._scope.types[KEY] == BLOB)
        if form.reads_value:
            columns[VALUE] = _column(values, binary=self._scope.types[VALUE] == BLOB)
        if form.fields:
            texts = field_texts(form.fields, values)
            for at, column in enumerate(texts):
                columns[field_column(at)] = _column(column, binary=False)
        return pa.table(columns)

    def _results(self, form: Statement, table: pa.Table) -> tuple[Made, list[Failure]]:
        database = connection()
        database.register("batch", table)
        found = database.execute(parsed(form.sql)).fetchall()
        answer = zip(*found, strict=True) if found else ((),) * len(form.columns)
        columns: dict[str, list[Any]] = dict(zip(form.columns, map(list, answer), strict=True))
        count = len(found)
        # By the place of what failed: the step, and why.
        failed: dict[int, tuple[int, str]] = {}
        for at, bad in enumerate(columns.pop(BAD, ())):
            if bad is not None:
                failed[at] = form.failures[bad]
        for name in (KEY, VALUE):
            if name in columns:
                columns[name] = _canonical(columns[name], failed, form.last)
        wanted = [True] * count
        if BEGIN in columns and END in columns:
            wanted = [
                begin is None or end is None or begin < end
                for begin, end in zip(columns[BEGIN], columns[END], strict=True)
            ]
        if DIFF in columns:
            wanted = [want and diff != 0 for want, diff in zip(wanted, columns[DIFF], strict=True)]
        nothing: list[Any] = [None] * count if failed else []
        failures = [
            Failure(
                columns[ROW][at],
                *why,
                columns[DIFF][at] if DIFF in columns else 1,
                *(columns.get(name, nothing)[at] for name in (BEGIN, END, KEY)),
            )
            for at, why in failed.items()
            if wanted[at]
        ]
        for at in failed:
            wanted[at] = False
        if not all(wanted):
            columns = {name: list(compress(column, wanted)) for name, column in columns.items()}
        made = Made(columns[ROW], *(columns.get(name) for name in (KEY, VALUE, DIFF, BEGIN, END)))
        return made, failures


@functools.lru_cache(maxsize=256)
def compiled(steps: tuple[Sql | Negate, ...], scope: FrozenScope) -> Query:
    """The query of these steps, compiled once in a process."""
    return Query(steps, scope.thawed())


def _column(texts: Sequence[bytes | None], *, binary: bool) -> pa.Array:
    column = pa.array(texts, pa.binary())
    # A view: JSON is UTF-8 as soon as it has been decoded once.
    return column if binary else column.view(pa.string())


def _canonical(
    texts: list[str | None], failed: dict[int, tuple[int, str]], step: int
) -> list[bytes | None]:
    """Canonical bytes of JSON texts; the places of those that are none join `failed`."""
    if not failed:
        try:
            return list(canonical.canonical_many(texts))  # type: ignore[arg-type]
        except DecodeError:
            pass
    made: list[bytes | None] = []
    for at, text in enumerate(texts):
        try:
            made += [None] if text is None else canonical.canonical_many([text])
        except DecodeError:
            # Infinity, say, of which JSON has no form.
            failed.setdefault(at, (step, "a result has no JSON form"))
            made.append(None)
    return made


def field_texts(fields: tuple[str, ...], values: Sequence[bytes]) -> Texts:
    """The JSON texts of fields of values, column by column; only an object has fields."""
    objects = [value if value[:1] == b"{" else b"{}" for value in values]
    return _field_decoder(fields)(b"[" + b",".join(objects) + b"]")


def _table_of(count: int, texts: Texts) -> pa.Table:
    columns = {ROW: pa.array(range(count), pa.int32())}
    for at, column in enumerate(texts):
        columns[field_column(at)] = _column(column, binary=False)
    return pa.table(columns)


@functools.lru_cache(maxsize=512)
def _field_decoder(fields: tuple[str, ...]) -> Callable[[bytes], Texts]:
    """A decoder of an array of objects into columns of the JSON texts of their fields."""
    if any(name != msgspec.json.encode(name).decode()[1:-1] for name in fields):
        return functools.partial(_by_name, fields)
    names = [f"f{at}" for at in range(len(fields))]
    made = msgspec.defstruct(
        "Fields",
        [(name, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for name in names],
        rename=dict(zip(names, fields, strict=True)),
    )
    decode = msgspec.json.Decoder(list[made]).decode  # type: ignore[valid-type]
    get = [operator.attrgetter(name) for name in names]

    def texts(array: bytes) -> Texts:
        objects = decode(array)
        return [
            [
                None if raw is msgspec.UNSET or (text := bytes(raw)) == b"null" else text
                for raw in map(field, objects)
            ]
            for field in get
        ]

    return texts


_objects = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode


def _by_name(fields: tuple[str, ...], array: bytes) -> Texts:
    """What a struct cannot decode: names with quotes or control characters."""
    objects = _objects(array)
    return [[_text(found.get(name, msgspec.UNSET)) for found in objects] for name in fields]


def _text(raw: msgspec.Raw | msgspec.UnsetType) -> bytes | None:
    if raw is msgspec.UNSET:
        return None
    text = bytes(raw)
    return None if text == b"null" else text
