"""Writes SQL steps as one nest of SELECTs, plain or checked.

From the inside: the fields that are read, each cast to its type; then, for each step, its
flat_map, its conditions, what it selects, its key, diff and bounds.  Every layer carries
all columns of the one below it, until a select leaves only its own.  In the checked form
each expression stands in a TRY of its own, and `__bad` has the number of the first one
that failed for the row.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

import duckdb
import pyarrow as pa

from ikebana.processor.linear.database import connection, first_line
from ikebana.processor.linear.expressions import parse
from ikebana.processor.linear.json_text import (
    BLOB,
    INSTANTS,
    JSON,
    WHOLE,
    SqlType,
    compares_as_data,
    has_json_form,
    milliseconds,
    quoted,
    to_object,
    to_text,
)
from ikebana.processor.linear.scope import (
    KEY,
    OURS,
    VALUE,
    ExpressionError,
    Scope,
    StepError,
    UnknownError,
)
from ikebana.processor.linear.steps import Negate, Sql
from ikebana.processor.linear.syntax import called
from ikebana.processor.linear.typed_json import from_json

ROW, DIFF, BEGIN, END, BAD = "__row", "__diff", "__begin", "__end", "__bad"
# In its place stands the layer below.
_FROM_BELOW = " FROM (\0)"


class Statement(NamedTuple):
    """SQL over the table `batch`, and what it reads and makes."""

    sql: str
    columns: tuple[str, ...]
    """The columns of its answer."""
    fields: tuple[str, ...]
    """The fields of the value that it reads; the i-th is column `__field<i>` of the table."""
    reads_key: bool
    reads_value: bool
    result: Scope
    failures: tuple[tuple[int, str], ...]
    """What it means that `__bad` is 0, 1, ...: the step, and why it failed."""
    last: int
    """The number of the last step."""
    makes_value: bool
    makes_key: bool


def statement(steps: Sequence[Sql | Negate], scope: Scope, *, checked: bool) -> Statement:
    """Write steps over relations of `scope`.

    Raises:
        StepError: a step cannot be.
        UnknownError: a step reads what the scope has as unknown.
    """
    nest = _Nest(scope, checked=checked)
    for at, step in enumerate(steps):
        nest.add(at, step)
    return nest.finished()


def field_column(at: int) -> str:
    """The column of the table with the JSON text of the i-th field that is read."""
    return f"__field{at}"


class _Nest:
    def __init__(self, scope: Scope, *, checked: bool) -> None:
        self._input = self._scope = scope
        self._checked = checked
        self._layers: list[str] = []
        # Of the input: field -> its place; and the columns made of fields, with their SQL.
        self._fields: dict[str, int] = {}
        self._base: dict[str, str] = {}
        self._failures: list[tuple[int, str]] = []
        self._from_input = True
        self._made_value: tuple[str, ...] | None = None
        self._made_key = False
        # The declared fields of the value, whatever a flat_map has put before them.
        self._value_types: Mapping[str, str] = scope.types
        self._step = 0
        self._used: set[str] = set()
        # What a flat_map has made, and what each name stands for where SQL reads it.
        self._flat: set[str] = set()
        self._names: dict[str, str] = {}
        self._count = 0
        # The columns that the last layer computes, if it does nothing else.
        self._open: list[str] = []
        self._known: tuple[str, dict[str, SqlType]] = ("", {})
        self._restart_names()

    def add(self, at: int, step: Sql | Negate) -> None:
        """Put a step around what there is."""
        self._step = at
        if isinstance(step, Negate):
            self._multiply("negate", "-1")
            return
        if step.flat_map is not None:
            self._flat_map(*step.flat_map)
        for condition in step.where:
            self._where(condition)
        if step.valid_from is not None:
            self._bound("valid_from", step.valid_from, BEGIN)
        if step.valid_until is not None:
            self._bound("valid_until", step.valid_until, END)
        if step.diff is not None:
            self._multiply("diff", step.diff)
        key = None if step.key is None else self._computed("key", step.key)
        if key is not None:
            self._refuse_formless("key", key, step.key)
            if not compares_as_data(self._type(key)):
                problem = (
                    f"is of type {self._type(key)}, whose equal values may differ as data, as "
                    f"1 month and 30 days do; compare epoch({step.key}), or its text"
                )
                self._refuse("key", problem, step.key)
            key = self._finite("key", key)
        if step.select is not None:
            self._select(step.select, key)
        elif key is not None:
            self._rekey(key)

    def finished(self) -> Statement:
        """The whole statement, outermost what is wanted of each row."""
        wanted = [ROW, *(name for name in (DIFF, BEGIN) if name in self._used)]
        if END in self._used:
            wanted.append(END)
        if self._made_key:
            wanted.append(f"{KEY}::VARCHAR AS {KEY}")
        if self._made_value is not None:
            is_there = VALUE in self._described()
            made = f"{VALUE}::VARCHAR" if is_there else self._object(self._made_value)
            wanted.append(f"{made} AS {VALUE}")
        if self._checked:
            wanted.append(BAD)
        return Statement(
            columns=tuple(column.rpartition(" AS ")[2] for column in wanted),
            sql=f"SELECT {', '.join(wanted)} FROM ({self._written()})",
            fields=tuple(self._fields),
            reads_key=KEY in self._base,
            reads_value=VALUE in self._base,
            result=self._result(),
            failures=tuple(self._failures),
            last=self._step,
            makes_value=self._made_value is not None,
            makes_key=self._made_key,
        )

    def _result(self) -> Scope:
        """The scope of what comes out: a flat_map's column is no field of the value."""
        kept = {name: kind for name, kind in self._scope.types.items() if name not in self._flat}
        hidden = {name: kind for name, kind in self._value_types.items() if name in self._flat}
        return Scope({**kept, **hidden}, self._scope.open, self._scope.declare)

    # Steps.

    def _flat_map(self, name: str, text: str) -> None:
        self._refuse_name("flat_map", name)
        call = called(text)
        if call is not None and call[0] == "repeat_row":
            self._multiply("flat_map", call[1])
            return
        listed = call[1] if call is not None and call[0] == "unnest" else text
        column = self._computed("flat_map", listed)
        kind = self._type(column)
        if kind == JSON:
            elements_of = from_json(f"{column}::VARCHAR", "JSON[]")
            column = self._derived("flat_map", elements_of, listed)
            kind = "JSON[]"
        if not kind.endswith("[]"):
            self._refuse("flat_map", f"is of type {kind}; must be a list")
        elements = column
        if self._checked:
            # A row that has failed goes on as one row, to be told.
            elements = f"CASE WHEN {BAD} IS NULL THEN {column} ELSE [NULL] END"
        gone = [column, *map(quoted, self._shadowed(name))]
        self._layer(f"SELECT * EXCLUDE ({', '.join(gone)}), unnest({elements}) AS {quoted(name)}")
        self._flat.add(name)
        self._name("flat_map", name)
        self._scope = Scope(
            {**self._scope.types, name: kind.removesuffix("[]")},
            self._scope.open,
            self._scope.declare,
        )

    def _shadowed(self, name: str) -> list[str]:
        """The columns that have to go because a new one has the name."""
        if self._made_value is not None and name in self._made_value:
            self._make_value()
        return [name] if name in self._described() else []

    def _where(self, text: str) -> None:
        column = self._computed("where", text, condition=True)
        if (kind := self._type(column)) not in ("BOOLEAN", '"NULL"'):
            self._refuse("where", f"is of type {kind}; must be true or false", text)
        kept = f"{column} OR {BAD} IS NOT NULL" if self._checked else column
        self._layer(f"SELECT * EXCLUDE ({column})", f"WHERE {kept}")

    def _bound(self, part: str, text: str, hidden: str) -> None:
        self._used.add(hidden)
        column = told = self._computed(part, text)
        kept = f"{column} IS NOT NULL"
        kind = self._type(column)
        if kind in INSTANTS:
            # An infinite bound is one that is always satisfied, which is none, or never.
            sign = "<" if hidden == BEGIN else ">"
            kept = f"isfinite({told}) OR {told} {sign} 'epoch'::{kind}"
            instant = f"CASE WHEN isfinite({told}) THEN {milliseconds(told, kind)} END"
            column = self._derived(part, instant, text)
        elif kind not in WHOLE:
            self._refuse(part, f"is of type {kind}; must be a date, a timestamp or milliseconds")
        of_both = "greatest" if hidden == BEGIN else "least"
        # A bound that is null is never satisfied.
        gone = ", ".join(dict.fromkeys((told, column)))
        self._layer(
            f"SELECT * EXCLUDE ({gone}) REPLACE ({of_both}({hidden}, {column}) AS {hidden})",
            f"WHERE {kept} OR {BAD} IS NOT NULL" if self._checked else f"WHERE {kept}",
        )

    def _multiply(self, part: str, text: str) -> None:
        self._used.add(DIFF)
        column = self._computed(part, text)
        if (kind := self._type(column)) not in WHOLE:
            self._refuse(part, f"is of type {kind}; must be a whole number")
        # A diff of null fails here, also if a condition behind it would drop the datum.
        number = f"coalesce({column}::BIGINT, CAST({ROW}::VARCHAR || '!' AS BIGINT))"
        column = self._derived(part, f"{DIFF} * {number}", text)
        self._layer(f"SELECT * EXCLUDE ({column}) REPLACE (coalesce({column}, {DIFF}) AS {DIFF})")

    def _select(self, columns: Sequence[tuple[str, str]], key: str | None) -> None:
        made: dict[str, str] = {}
        for name, text in columns:
            self._refuse_name(f"select.{name}", name)
            if any(name.lower() == other.lower() for other in made):
                self._refuse(f"select.{name}", "another column has this name")
            made[name] = self._computed(f"select.{name}", text)
        for name, text in columns:
            self._refuse_formless(f"select.{name}", made[name], text)
        made = {name: self._finite(f"select.{name}", column) for name, column in made.items()}
        types = {name: self._type(column) for name, column in made.items()}
        listed = [f"{column} AS {quoted(name)}" for name, column in made.items()]
        if key is not None:
            listed.append(self._new_key(key))
            self._made_key = True
        else:
            # The key that there is goes along, for steps behind this one.
            self._read("key", {KEY: self._scope.types[KEY]})
            listed.append(KEY)
        hidden = [ROW, DIFF, BEGIN, END, *([BAD] if self._checked else [])]
        self._layer(f"SELECT {', '.join([*hidden, *listed])}")
        of_key = JSON if self._made_key else self._input.types[KEY]
        self._from_input = False
        self._made_value = tuple(made)
        types = {name: JSON if kind == '"NULL"' else kind for name, kind in types.items()}
        self._value_types = types
        self._scope = Scope({**types, KEY: of_key, VALUE: JSON})
        self._flat = set()
        self._restart_names()
        for name in types:
            self._name("select", name)

    def _rekey(self, key: str) -> None:
        listed = self._new_key(key)
        without = [key] if KEY not in self._described() else [key, KEY]
        self._layer(f"SELECT * EXCLUDE ({', '.join(without)}), {listed}")
        self._made_key = True
        self._scope = Scope(
            {**self._scope.types, KEY: JSON}, self._scope.open, self._scope.declare
        )

    def _new_key(self, key: str) -> str:
        if not self._checked:
            return f"{self._json(key)} AS {KEY}"
        # What has failed keeps the key that it had, which is null for that of the input.
        before = KEY if self._made_key else "NULL::JSON"
        return f"CASE WHEN {BAD} IS NULL THEN {self._json(key)} ELSE {before} END AS {KEY}"

    def _refuse_formless(self, part: str, column: str, text: str | None) -> None:
        if not has_json_form(self._described()[column]):
            problem = f"is of type {self._type(column)}, which JSON does not have; cast it"
            self._refuse(part, problem, text)

    def _finite(self, part: str, column: str) -> str:
        """The column, refused where it holds a number that JSON has no form for."""
        if (kind := self._type(column)) not in ("DOUBLE", "FLOAT"):
            return column
        sql = (
            f"CASE WHEN {column} IS NULL OR isfinite({column}) THEN {column} "
            f"ELSE CAST({column}::VARCHAR || '!' AS {kind}) END"
        )
        return self._derived(part, sql, "as JSON")

    # Layers and columns.

    def _layer(self, select: str, rest: str = "") -> None:
        self._open = []
        self._layers.append(f"{select}{_FROM_BELOW} {rest}".rstrip())

    def _written(self) -> str:
        sql = self._innermost()
        for layer in self._layers:
            sql = layer.replace("\0", sql)
        return sql

    def _innermost(self) -> str:
        """Every row of the table with the columns that are read of it."""
        hidden = f"{ROW}, 1::BIGINT AS {DIFF}, NULL::BIGINT AS {BEGIN}, NULL::BIGINT AS {END}"
        bad = [f"NULL::INTEGER AS {BAD}"] if self._checked else []
        made = [f"{sql} AS {quoted(name)}" for name, sql in self._base.items()]
        return f"SELECT {', '.join([hidden, *bad, *made])} FROM batch"

    def _computed(self, part: str, text: str, *, condition: bool = False) -> str:
        """Compute an expression; returns the name of its column, which is ours."""
        try:
            expression = parse(text, self._scope, condition=condition)
        except UnknownError:
            raise
        except ExpressionError as error:
            self._refuse(part, str(error), text)
        self._read(part, expression.reads)
        return self._derived(part, expression.sql, text)

    def _derived(self, part: str, sql: str, text: str) -> str:
        """A column of ours that has what SQL comes to."""
        name = f"{OURS}c{self._count}"
        self._count += 1
        return self._column(name, sql, part, text, f"could not evaluate {part} {text}")

    def _column(self, name: str, sql: str, part: str, text: str, reason: str) -> str:
        shown = quoted(name)
        if self._checked:
            number = self._failure(reason)
            tried = f"{OURS}t{self._count}"
            self._count += 1
            self._layer(f"SELECT *, TRY(struct_pack(v := {sql})) AS {tried}")
            self._layer(
                f"SELECT * EXCLUDE ({tried}) REPLACE (CASE WHEN {BAD} IS NULL AND {tried} IS NULL "
                f"THEN {number} ELSE {BAD} END AS {BAD}), "
                # What has failed stays as it was when it did.
                f"CASE WHEN {BAD} IS NULL THEN ({tried}).v END AS {shown}"
            )
        elif self._open and not any(other in sql for other in self._open):
            # Beside the expressions before it, of which it reads none.
            start = self._layers[-1].removesuffix(_FROM_BELOW)
            self._layers[-1] = f"{start}, {sql} AS {shown}{_FROM_BELOW}"
            self._open.append(name)
        else:
            self._layer(f"SELECT *, {sql} AS {shown}")
            self._open = [name]
        try:
            self._type(name)
        except duckdb.Error as error:
            self._refuse(part, first_line(error), text)
        return name

    def _read(self, part: str, reads: Mapping[str, str]) -> None:
        """See to it that the columns that an expression reads are there."""
        for column, kind in reads.items():
            self._name(part, column)
            of_input = self._from_input and column not in self._flat
            if of_input and not (column == KEY and self._made_key):
                self._read_input(part, column, kind)
            elif column == VALUE:
                self._make_value()

    def _read_input(self, part: str, column: str, kind: str) -> None:
        if column in (KEY, VALUE):
            raw = self._input.types[column] == BLOB
            self._base[column] = column if raw else f"{column}::JSON"
            return
        text = field_column(self._fields.setdefault(column, len(self._fields)))
        if kind == JSON:
            self._base[column] = f"{text}::JSON"
        elif text not in self._base:
            self._base[text] = text
            reason = f'column "{column}" is not of type {kind}'
            self._column(column, from_json(text, kind), part, column, reason)

    def _name(self, part: str, column: str) -> None:
        """Note a name; SQL does not tell names apart by case."""
        other = self._names.setdefault(column.lower(), column)
        if other != column:
            self._refuse(
                part, f'"{column}" and "{other}" differ in case alone, which SQL does not see'
            )

    def _restart_names(self) -> None:
        self._names = {KEY: KEY, VALUE: VALUE}

    def _refuse_name(self, part: str, name: str) -> None:
        taken = name.lower() in (KEY, VALUE) or name.startswith(OURS)
        if taken or not name or "\0" in name:
            self._refuse(part, f'a column cannot be named "{name}"')

    def _make_value(self) -> None:
        """Make a column of the value that a select has made, once."""
        assert self._made_value is not None
        if VALUE not in self._described():
            self._layer(f"SELECT *, ({self._object(self._made_value)})::JSON AS {VALUE}")

    def _failure(self, reason: str) -> int:
        failure = (self._step, reason)
        if failure not in self._failures:
            self._failures.append(failure)
        return self._failures.index(failure)

    def _described(self) -> dict[str, SqlType]:
        written = self._written()
        if self._known[0] != written:
            database = connection()
            database.register("batch", _empty(self._input, len(self._fields)))
            relation = database.sql(written)
            described = dict(zip(relation.columns, relation.types, strict=True))
            self._known = (written, described)
        return self._known[1]

    def _type(self, column: str) -> str:
        return str(self._described()[column])

    def _json(self, column: str) -> str:
        return f"{to_text(column, self._described()[column])}::JSON"

    def _object(self, columns: Sequence[str]) -> str:
        """The JSON text of an object of columns."""
        types = self._described()
        return to_object({name: types[name] for name in columns})

    def _refuse(self, part: str, problem: str, text: str | None = None) -> NoReturn:
        shown = "" if text is None else f"{text}: "
        raise StepError(self._step, part, f"{shown}{problem}")


def _empty(scope: Scope, fields: int) -> pa.Table:
    columns = {ROW: pa.array([], pa.int32())}
    for name in (KEY, VALUE):
        columns[name] = pa.array([], pa.binary() if scope.types.get(name) == BLOB else pa.string())
    for at in range(fields):
        columns[field_column(at)] = pa.array([], pa.string())
    return pa.table(columns)
