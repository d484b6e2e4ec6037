"""Write SQL steps as one nest of SELECTs, plain or checked.

From the inside: the fields that are read, each cast to its type; then, for each step, its
flat_map, its conditions, its select, its key, diff and bounds.  Every layer carries
all columns of the layer below, until a select replaces them.  In the checked form
each expression is in a separate TRY, and `ikebana_bad` has the number of the first one
that failed for the row.

The innermost layer reads a table.  Its fields are JSON texts that are cast, or, in the typed form,
values that `typed_json` has made.
"""

# Decision (DuckDB, unoptimised): The optimizer would reorder conditions by statistics, so whether
# a row fails would depend on its neighbours. A statement is bound whole, and by expression only
# to find one that fails.

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, NoReturn

import duckdb
import pyarrow as pa

from ikebana.codecs import sql_type
from ikebana.codecs.sql_type import SqlType, Struct, type_of
from ikebana.processor.linear.database import relation_of, source_of
from ikebana.processor.linear.duckdb_messages import in_words
from ikebana.processor.linear.expressions import Expression, parse
from ikebana.processor.linear.json_text import (
    BLOB,
    INSTANTS,
    JSON,
    WHOLE,
    compares_as_data,
    has_json_form,
    milliseconds,
    misfit_of,
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
    is_ours,
)
from ikebana.processor.linear.sql_functions import as_written
from ikebana.processor.linear.steps import Negate, Sql
from ikebana.processor.linear.syntax import call_of
from ikebana.processor.linear.typed_json import TEXT, from_json, type_of_field, type_of_whole

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
        self._types: Mapping[str, SqlType] | None = None
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
                self.refuse(part, in_words(error), text)
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

    def described(self) -> Mapping[str, SqlType]:
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
        shown = "" if text is None or problem.startswith(text) else f"{text}: "
        raise StepError(self.step, part, f"{shown}{problem}")


def _nested(innermost: str, layers: Sequence[str]) -> str:
    sql = innermost
    for layer in layers:
        sql = layer.replace("\0", sql)
    return sql


# A view is planned several times at a start: to translate, check, explain and run it.
@functools.lru_cache(maxsize=1024)
def _types_of(sql: str, schema: pa.Schema) -> Mapping[str, SqlType]:
    relation = relation_of(sql, schema)
    types = [type_of(str(each)) for each in relation.types]
    return dict(zip(relation.columns, types, strict=True))


class Statement(NamedTuple):
    """SQL over a table, with its inputs and results."""

    sql: str
    schema: pa.Schema
    """The columns of the table."""
    columns: tuple[str, ...]
    """The columns of its answer."""
    fields: tuple[str, ...]
    """The fields of the value that it reads; the table has the i-th as `ikebana_field<i>`."""
    reads_key: bool
    reads_value: bool
    result: Scope
    failures: tuple[tuple[int, str], ...]
    """The meaning of `ikebana_bad`, by number: the step, and the reason of the failure."""
    evaluated: Mapping[tuple[int, str], tuple[str, str]]
    """By failure of an expression: the part of the step, and the text of the expression."""
    last: int
    """The number of the last step."""
    makes_value: bool
    makes_key: bool


def statement(
    steps: Sequence[Sql | Negate], scope: Scope, *, checked: bool = False, typed: bool = False
) -> Statement:
    """Write steps over relations of `scope`; with `typed`, columns have values, not JSON texts.

    Raises:
        StepError: a step has a problem.
        UnknownError: a step reads a column of unknown type.
    """

    def written(*, blaming: bool) -> Statement:
        nest = _Nest(Layers(scope, checked=checked, typed=typed, blaming=blaming), scope)
        for at, step in enumerate(steps):
            nest.add(at, step)
        return nest.finished()

    try:
        return written(blaming=False)
    except (duckdb.Error, StepError):
        # Binding takes most of the time, so only a wrong statement is bound expression by
        # expression, to report the first wrong one.
        return written(blaming=True)


class _Names:
    """The names that SQL may read; SQL ignores their case."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._names = {KEY: KEY, VALUE: VALUE}

    def note(self, part: str, column: str, scope: Scope) -> None:
        """Note a name.  Raises: StepError, if another one differs in case alone."""
        other = self._names.setdefault(column.lower(), column)
        if other != column:
            self._layers.refuse(part, scope.alike(column, other))

    def require_free(self, part: str, name: str) -> None:
        """Refuse the names that no column can have.  Raises: StepError."""
        if is_ours(name):
            problem = f'no column can be named "{name}": names with {OURS} are ikebana\'s own'
            self._layers.refuse(part, problem)
        if not name or "\0" in name:
            self._layers.refuse(part, f'a column cannot be named "{name}"')


class _Nest:
    """The nested steps of a statement; tracks the row's fields, and the columns that have them."""

    def __init__(self, layers: Layers, scope: Scope) -> None:
        self._layers = layers
        self._scope = scope
        self._names = _Names(self._layers)
        self._from_input = True
        self._value_columns: tuple[str, ...] | None = None
        self._computes_key = False
        # The declared fields of the value, even if a column of a flat_map hides them.
        self._value_types: Mapping[str, str] = scope.types
        self._used: set[str] = set()
        # The columns of flat_maps.
        self._flat: set[str] = set()

    def add(self, at: int, step: Sql | Negate) -> None:
        """Put a step around the layers."""
        self._layers.step = at
        if isinstance(step, Negate):
            self._multiply("negate", "-1")
            return
        if step.flat_map is not None:
            self._flat_map(*step.flat_map)
        self._where(step.where)
        if step.valid_from is not None:
            self._bound("valid_from", step.valid_from, BEGIN)
        if step.valid_until is not None:
            self._bound("valid_until", step.valid_until, END)
        if step.diff is not None:
            self._multiply("diff", step.diff)
        key = None if step.key is None else self._computed("key", step.key)
        if key is not None:
            self._layers.require_json_form("key", key, step.key)
            of, kind = step.key, self._layers.described()[key]
            if isinstance(kind, Struct):
                differing = (each for each in kind.fields if not compares_as_data(str(each[1])))
                of, kind = next(differing, (of, kind))
            if not compares_as_data(str(kind)):
                problem = (
                    f"{of} is of type {kind}, whose equal values may differ as data, as 1 month "
                    f"and 30 days do; compare epoch_us({of}), or its text"
                )
                self._layers.refuse("key", problem)
        if step.select is not None:
            self._select(step.select, key)
        elif key is not None:
            self._rekey(key)

    def finished(self) -> Statement:
        """The whole statement; the outermost SELECT has the columns of the answer."""
        self._layers.described()
        columns = [ROW, *(name for name in (DIFF, BEGIN) if name in self._used)]
        if END in self._used:
            columns.append(END)
        if self._computes_key:
            columns.append(f"{KEY}::VARCHAR AS {KEY}")
        if self._value_columns is not None:
            is_there = VALUE in self._layers.described()
            value = (
                f"{VALUE}::VARCHAR" if is_there else self._layers.as_object(self._value_columns)
            )
            columns.append(f"{value} AS {VALUE}")
        if self._layers.checked:
            columns.append(BAD)
        return Statement(
            columns=tuple(column.rpartition(" AS ")[2] for column in columns),
            sql=f"SELECT {', '.join(columns)} FROM ({self._layers.sql()})",
            schema=self._layers.schema(),
            fields=tuple(self._layers.fields),
            reads_key=KEY in self._layers.base,
            reads_value=VALUE in self._layers.base,
            result=self._result(),
            failures=tuple(self._layers.failures),
            evaluated=self._layers.evaluated,
            last=self._layers.step,
            makes_value=self._value_columns is not None,
            makes_key=self._computes_key,
        )

    def _result(self) -> Scope:
        """The scope of the results, without the columns of flat_maps, which are no fields."""
        visible = {
            name: kind for name, kind in self._scope.types.items() if name not in self._flat
        }
        hidden = {name: kind for name, kind in self._value_types.items() if name in self._flat}
        return replace(self._scope, types={**visible, **hidden})

    def _flat_map(self, name: str, text: str) -> None:
        self._names.require_free("flat_map", name)
        call = call_of(text)
        if call is not None and call[0] == "repeat_row":
            self._multiply("flat_map", call[1])
            return
        listed = call[1] if call is not None and call[0] == "unnest" else text
        column = self._computed("flat_map", listed)
        kind = self._layers.described()[column]
        if kind == sql_type.JSON:
            elements_of = from_json(f"{column}::VARCHAR", "JSON[]")
            column = self._layers.derived("flat_map", elements_of, listed)
            kind = sql_type.List(sql_type.JSON)
        if not isinstance(kind, sql_type.List | sql_type.Array):
            self._layers.refuse("flat_map", f"is of type {kind}; must be a list")
        elements = column
        if self._layers.checked:
            # A row that has failed stays one row, so that it is reported once.
            elements = f"CASE WHEN {BAD} IS NULL THEN {column} ELSE [NULL] END"
        gone = [column, *map(quoted, self._shadowed(name))]
        self._layers.add(
            f"SELECT * EXCLUDE ({', '.join(gone)}), unnest({elements}) AS {quoted(name)}"
        )
        self._flat.add(name)
        self._names.note("flat_map", name, self._scope)
        self._scope = replace(self._scope, types={**self._scope.types, name: str(kind.of)})

    def _shadowed(self, name: str) -> list[str]:
        """The columns that a new one of that name replaces."""
        if self._value_columns is not None and name in self._value_columns:
            self._make_value()
        return [name] if name in self._layers.described() else []

    def _where(self, texts: Sequence[str]) -> None:
        """Keep the rows that satisfy conditions; those over the same columns share a layer."""
        waiting: list[tuple[str, str]] = []
        for text in texts:
            expression = _parsed(self._layers, "where", text, self._scope, condition=True)
            if self._from_input and not all(map(self._layers.has_read, expression.reads)):
                # Columns that are first read after this may fail, too, but only for the kept rows.
                self._layers.keep(waiting)
                waiting = []
            self._read("where", expression.reads)
            waiting.append((expression.sql, text))
        self._layers.keep(waiting)

    def _bound(self, part: str, text: str, hidden: str) -> None:
        self._used.add(hidden)
        column = bound = self._computed(part, text)
        condition = f"{column} IS NOT NULL"
        kind = self._layers.type_of(column)
        if kind in INSTANTS:
            # An infinite bound is one that is always satisfied, which is none, or never.
            sign = "<" if hidden == BEGIN else ">"
            condition = f"isfinite({bound}) OR {bound} {sign} 'epoch'::{kind}"
            instant = f"CASE WHEN isfinite({bound}) THEN {milliseconds(bound, kind)} END"
            column = self._layers.derived(part, instant, text)
        elif kind not in WHOLE:
            self._layers.refuse(
                part, f"is of type {kind}; must be a date, a timestamp or milliseconds"
            )
        of_both = "greatest" if hidden == BEGIN else "least"
        # A bound that is null is never satisfied.
        gone = ", ".join(dict.fromkeys((bound, column)))
        self._layers.add(
            f"SELECT * EXCLUDE ({gone}) REPLACE ({of_both}({hidden}, {column}) AS {hidden})",
            f"WHERE {condition} OR {BAD} IS NOT NULL"
            if self._layers.checked
            else f"WHERE {condition}",
        )

    def _multiply(self, part: str, text: str) -> None:
        self._used.add(DIFF)
        column = self._computed(part, text)
        if (kind := self._layers.type_of(column)) not in WHOLE:
            self._layers.refuse(part, f"is of type {kind}; must be a whole number")
        # A diff of null fails here, also if a condition behind it would drop the datum.
        number = f"coalesce({column}::BIGINT, CAST({ROW}::VARCHAR || '!' AS BIGINT))"
        column = self._layers.derived(part, f"{DIFF} * {number}", text)
        self._layers.add(
            f"SELECT * EXCLUDE ({column}) REPLACE (coalesce({column}, {DIFF}) AS {DIFF})"
        )

    def _select(self, columns: Sequence[tuple[str, str]], key: str | None) -> None:
        computed: dict[str, str] = {}
        for name, text in columns:
            self._names.require_free(f"select.{name}", name)
            if any(name.lower() == other.lower() for other in computed):
                self._layers.refuse(f"select.{name}", "another column has this name")
            computed[name] = self._computed(f"select.{name}", text)
        for name, text in columns:
            self._layers.require_json_form(f"select.{name}", computed[name], text)
        types = {name: self._layers.type_of(column) for name, column in computed.items()}
        listed = [f"{column} AS {quoted(name)}" for name, column in computed.items()]
        if key is not None:
            listed.append(self._new_key(key))
            self._computes_key = True
        else:
            # The present key is carried on, for later steps.
            self._read("key", {KEY: self._scope.types[KEY]})
            listed.append(KEY)
        hidden = [ROW, DIFF, BEGIN, END, *([BAD] if self._layers.checked else [])]
        self._layers.add(f"SELECT {', '.join([*hidden, *listed])}")
        of_key = JSON if self._computes_key else self._layers.scope.types[KEY]
        self._from_input = False
        self._value_columns = tuple(computed)
        self._value_types = types
        self._scope = Scope({**types, KEY: of_key, VALUE: JSON})
        self._flat = set()
        self._names = _Names(self._layers)
        for name in types:
            self._names.note("select", name, self._scope)

    def _rekey(self, key: str) -> None:
        listed = self._new_key(key)
        without = [key] if KEY not in self._layers.described() else [key, KEY]
        self._layers.add(f"SELECT * EXCLUDE ({', '.join(without)}), {listed}")
        self._computes_key = True
        self._scope = replace(self._scope, types={**self._scope.types, KEY: JSON})

    def _new_key(self, key: str) -> str:
        if not self._layers.checked:
            return f"{self._layers.as_json(key)} AS {KEY}"
        # A failed row keeps its former key, which is null if that is the key of the input.
        before = KEY if self._computes_key else "NULL::JSON"
        return (
            f"CASE WHEN {BAD} IS NULL THEN {self._layers.as_json(key)} ELSE {before} END AS {KEY}"
        )

    def _computed(self, part: str, text: str) -> str:
        """Add an expression; return the name of its computed column."""
        expression = _parsed(self._layers, part, text, self._scope)
        self._read(part, expression.reads)
        return self._layers.derived(part, expression.sql, text)

    def _read(self, part: str, reads: Mapping[str, str]) -> None:
        """Add the columns that an expression reads, unless they are there."""
        for column, kind in reads.items():
            self._names.note(part, column, self._scope)
            of_input = self._from_input and column not in self._flat
            if of_input and not (column == KEY and self._computes_key):
                self._layers.read_input(column, kind)
            elif column == VALUE:
                self._make_value()

    def _make_value(self) -> None:
        """Add a column with the value of a select, once."""
        assert self._value_columns is not None
        if VALUE not in self._layers.described():
            self._layers.add(
                f"SELECT *, ({self._layers.as_object(self._value_columns)})::JSON AS {VALUE}"
            )


def _parsed(
    layers: Layers, part: str, text: str, scope: Scope, *, condition: bool = False
) -> Expression:
    try:
        return parse(text, scope, condition=condition)
    except UnknownError:
        raise
    except ExpressionError as error:
        layers.refuse(part, str(error), text)
