"""A nest of SELECTs, layer by layer, and the columns that each computes.

The innermost layer reads a table.  Its fields are JSON texts that are cast, or, in the typed form,
values that `typed_columns` has made.  In the checked form each expression is in a separate TRY,
and `ikebana_bad` has the number of the first one that failed for the row.
"""

from collections.abc import Sequence
from typing import NoReturn

import duckdb
import pyarrow as pa

from ikebana.codecs.sql_type import SqlType, type_of
from ikebana.processor.linear.database import described, first_line, source_of
from ikebana.processor.linear.json_text import (
    BLOB,
    JSON,
    has_json_form,
    misfit_of,
    quoted,
    to_object,
    to_text,
)
from ikebana.processor.linear.scope import KEY, OURS, VALUE, Scope, StepError
from ikebana.processor.linear.sql_functions import as_written
from ikebana.processor.linear.typed_columns import TEXT, type_of_field, type_of_whole
from ikebana.processor.linear.typed_json import from_json

ROW, DIFF, BEGIN, END, BAD = (f"{OURS}{name}" for name in ("row", "diff", "begin", "end", "bad"))
# A placeholder for the layer below.
_FROM_BELOW = " FROM (\0)"


def field_column(at: int) -> str:
    """The column of the table with the i-th field that is read."""
    return f"{OURS}field{at}"


class Layers:
    """The layers of a statement over relations of `scope`.

    Computed columns get names with our prefix; `step` is the number of the current step, to which
    failures and errors belong.  If `blaming`, a wrong expression is refused as soon as it is
    added; else the next request for types raises the database's error.
    """

    def __init__(self, scope: Scope, *, checked: bool, typed: bool, blaming: bool) -> None:
        self.scope, self.checked, self._typed = scope, checked, typed
        self._blaming = blaming
        self.step = 0
        self.fields: dict[str, int] = {}
        """The fields of the value that are read, with their numbers."""
        self.base: dict[str, str] = {}
        """The columns of the innermost layer, with their SQL."""
        self._columns: dict[str, pa.DataType] = {}
        self.failures: list[tuple[int, str]] = []
        """The meaning of `ikebana_bad`, by number: the step, and the reason of the failure."""
        self.evaluated: dict[tuple[int, str], tuple[str, str]] = {}
        """By failure of an expression: the part of the step, and the text of the expression."""
        self._layers: list[str] = []
        self._count = 0
        # The columns that the last layer computes, if it does nothing else.
        self._open: list[str] = []
        # The columns with their types as they were last bound, None after a change at the bottom;
        # and the layers that came since.
        self._types: dict[str, SqlType] | None = None
        self._unbound: list[str] = []

    def add(self, select: str, rest: str = "") -> None:
        """Put a SELECT around the layers; `rest` follows its FROM."""
        self._open = []
        self._layers.append(f"{select}{_FROM_BELOW} {rest}".rstrip())
        self._unbound.append(self._layers[-1])

    def sql(self) -> str:
        """The SQL of all layers."""
        return _nested(self._innermost(), self._layers)

    def _innermost(self) -> str:
        """Every row of the table with the columns that are read."""
        hidden = f"{ROW}, 1::BIGINT AS {DIFF}, NULL::BIGINT AS {BEGIN}, NULL::BIGINT AS {END}"
        bad = [f"NULL::INTEGER AS {BAD}"] if self.checked else []
        listed = [f"{sql} AS {quoted(name)}" for name, sql in self.base.items()]
        return f"SELECT {', '.join([hidden, *bad, *listed])} FROM {source_of(self.schema())}"

    def schema(self) -> pa.Schema:
        """The columns of the table that the innermost layer reads."""
        return pa.schema([(ROW, pa.int32()), *self._columns.items()])

    def derived(self, part: str, sql: str, text: str) -> str:
        """Add a computed column; return its name."""
        name = f"{OURS}c{self._count}"
        self._count += 1
        self._column(name, sql, self._not_evaluated(part, text))
        if self._blaming:
            try:
                self.type_of(name)
            except duckdb.Error as error:
                self.refuse(part, first_line(error), text)
        return name

    def _column(self, name: str, sql: str, reason: str) -> None:
        shown = quoted(name)
        if self.checked:
            number = self._failure(reason)
            tried = f"{OURS}t{self._count}"
            self._count += 1
            self.add(f"SELECT *, TRY(struct_pack(v := {sql})) AS {tried}")
            self.add(
                f"SELECT * EXCLUDE ({tried}) REPLACE (CASE WHEN {BAD} IS NULL AND {tried} IS NULL "
                f"THEN {number} ELSE {BAD} END AS {BAD}), "
                # A row that has failed keeps its values from then.
                f"CASE WHEN {BAD} IS NULL THEN ({tried}).v END AS {shown}"
            )
        elif self._open and not any(other in sql for other in self._open):
            # It joins the layer of the expressions before it, since it reads none of them.
            start = self._layers[-1].removesuffix(_FROM_BELOW)
            self._layers[-1] = f"{start}, {sql} AS {shown}{_FROM_BELOW}"
            self._unbound.append(f"SELECT *, {sql} AS {shown}{_FROM_BELOW}")
            self._open.append(name)
        else:
            self.add(f"SELECT *, {sql} AS {shown}")
            self._open = [name]

    def keep(self, conditions: Sequence[tuple[str, str]]) -> None:
        """Keep the rows for which conditions are true, pairs of SQL and its text.

        They are in one layer: with a layer for each, binding would take quadratic time.  In the
        checked form, a condition fails only for rows for which all conditions before it are true;
        in the plain form, any failure makes the whole statement fail.
        """
        if not conditions:
            return
        if not self.checked:
            columns = [self.derived("where", sql, text) for sql, text in conditions]
            for column, (_, text) in zip(columns, conditions, strict=True):
                if (kind := self.type_of(column)) not in ("BOOLEAN", '"NULL"'):
                    self.refuse("where", f"is of type {kind}; must be true or false", text)
            self.add(f"SELECT * EXCLUDE ({', '.join(columns)})", f"WHERE {' AND '.join(columns)}")
            return
        tries, judged, values = [], [], []
        for sql, text in conditions:
            tried = f"{OURS}t{self._count}"
            self._count += 1
            number = self._failure(self._not_evaluated("where", text))
            tries.append((sql, tried))
            judged.append(
                f"WHEN {tried} IS NULL THEN {number} WHEN ({tried}).v IS NOT TRUE THEN NULL"
            )
            values.append(f"({tried}).v")
        keeps = f"{OURS}c{self._count}"
        self._count += 1
        listed = ", ".join(f"TRY(struct_pack(v := {sql})) AS {tried}" for sql, tried in tries)
        self.add(f"SELECT *, {listed}")
        self.add(
            f"SELECT * EXCLUDE ({', '.join(tried for _, tried in tries)}) "
            f"REPLACE (CASE WHEN {BAD} IS NOT NULL THEN {BAD} {' '.join(judged)} END AS {BAD}), "
            f"{' AND '.join(values)} AS {keeps}"
        )
        self.add(f"SELECT * EXCLUDE ({keeps})", f"WHERE {keeps} OR {BAD} IS NOT NULL")

    def has_read(self, column: str) -> bool:
        """Whether a layer has a column of the relation."""
        return column in (KEY, VALUE) or column in self.fields

    def read_input(self, column: str, kind: str) -> None:
        """Add a column of the relation, of the type `kind`, if no layer has it."""
        self._types = None
        if column in (KEY, VALUE):
            raw = self.scope.types[column] == BLOB
            whole = type_of_whole(BLOB if raw else JSON)
            self._columns[column] = whole if raw or self._typed else TEXT
            self.base[column] = column if raw or self._typed else f"{column}::JSON"
            return
        field = field_column(self.fields.setdefault(column, len(self.fields)))
        kind_there = type_of_field(kind) if self._typed else TEXT
        if kind_there != TEXT:
            self._columns[field] = kind_there
            self.base[column] = field
        elif kind == JSON:
            self._columns[field] = kind_there
            self.base[column] = f"{field}::JSON"
        elif field not in self.base:
            self._columns[field] = kind_there
            self.base[field] = field
            self._column(column, from_json(field, kind), misfit_of(column, kind))

    def require_json_form(self, part: str, column: str, text: str | None) -> None:
        """Refuse a column with values that have no JSON form.  Raises: StepError."""
        if not has_json_form(self.described()[column]):
            kind = self.type_of(column)
            problem = f"is of type {kind}, which JSON does not have; cast it"
            if kind.startswith("TUPLE("):
                # (a, b) makes such a tuple.
                text = None if text is None else text.replace('"row"(', "(")
                problem = f"is of type {kind}, without names; write {{'a': …, 'b': …}}, or [a, b]"
            self.refuse(part, problem, text)

    def described(self) -> dict[str, SqlType]:
        """The columns of the last layer, with their types."""
        if self._types is None:
            self._types = _types_of(self.sql(), self.schema())
        elif self._unbound:
            # To bind all layers again and again would take quadratic time.
            typed = [f"NULL::{kind} AS {quoted(name)}" for name, kind in self._types.items()]
            bound = f"SELECT {', '.join(typed)}"
            self._types = _types_of(_nested(bound, self._unbound), self.schema())
        self._unbound.clear()
        return self._types

    def type_of(self, column: str) -> str:
        """The SQL type of a column."""
        return str(self.described()[column])

    def as_json(self, column: str) -> str:
        """The SQL of a column as JSON."""
        return f"{to_text(column, self.described()[column])}::JSON"

    def as_object(self, columns: Sequence[str]) -> str:
        """The JSON text of an object of columns."""
        types = self.described()
        return to_object({name: types[name] for name in columns})

    def _not_evaluated(self, part: str, text: str) -> str:
        reason = f"could not evaluate {part} {as_written(text)}"
        self.evaluated[self.step, reason] = part, text
        return reason

    def _failure(self, reason: str) -> int:
        failure = (self.step, reason)
        if failure not in self.failures:
            self.failures.append(failure)
        return self.failures.index(failure)

    def refuse(self, part: str, problem: str, text: str | None = None) -> NoReturn:
        """Refuse a part of the step.  Raises: StepError."""
        shown = "" if text is None else f"{text}: "
        raise StepError(self.step, part, f"{shown}{problem}")


def _nested(innermost: str, layers: Sequence[str]) -> str:
    sql = innermost
    for layer in layers:
        sql = layer.replace("\0", sql)
    return sql


def _types_of(sql: str, schema: pa.Schema) -> dict[str, SqlType]:
    relation = described(sql, schema)
    types = [type_of(str(each)) for each in relation.types]
    return dict(zip(relation.columns, types, strict=True))
