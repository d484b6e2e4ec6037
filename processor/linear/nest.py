"""Write SQL steps as one nest of SELECTs, plain or checked.

From the inside: the fields that are read, each cast to its type; then, for each step, its
flat_map, its conditions, its select, its key, diff and bounds.  Every layer carries
all columns of the layer below, until a select replaces them.  In the checked form
each expression is in a separate TRY, and `ikebana_bad` has the number of the first one
that failed for the row.
"""

# Decision (DuckDB, unoptimised): The optimizer would reorder conditions by statistics, so whether
# a row fails would depend on its neighbours. A statement is bound whole, and by expression only
# to find one that fails.

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import duckdb
import pyarrow as pa

from ikebana.codecs import sql_type
from ikebana.processor.linear.expressions import Expression, parse
from ikebana.processor.linear.json_text import (
    INSTANTS,
    JSON,
    WHOLE,
    compares_as_data,
    milliseconds,
    quoted,
)
from ikebana.processor.linear.layers import BAD, BEGIN, DIFF, END, ROW, Layers
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
from ikebana.processor.linear.steps import Negate, Sql
from ikebana.processor.linear.syntax import called
from ikebana.processor.linear.typed_json import from_json


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
        self._made_value: tuple[str, ...] | None = None
        self._made_key = False
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
            if not compares_as_data(self._layers.type_of(key)):
                problem = (
                    f"is of type {self._layers.type_of(key)}, whose equal values may differ as "
                    f"data, as 1 month and 30 days do; compare epoch_us({step.key}), or its text"
                )
                self._layers.refuse("key", problem, step.key)
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
        if self._made_key:
            columns.append(f"{KEY}::VARCHAR AS {KEY}")
        if self._made_value is not None:
            is_there = VALUE in self._layers.described()
            value = f"{VALUE}::VARCHAR" if is_there else self._layers.as_object(self._made_value)
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
            makes_value=self._made_value is not None,
            makes_key=self._made_key,
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
        call = called(text)
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
        if self._made_value is not None and name in self._made_value:
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
            self._made_key = True
        else:
            # The present key is carried on, for later steps.
            self._read("key", {KEY: self._scope.types[KEY]})
            listed.append(KEY)
        hidden = [ROW, DIFF, BEGIN, END, *([BAD] if self._layers.checked else [])]
        self._layers.add(f"SELECT {', '.join([*hidden, *listed])}")
        of_key = JSON if self._made_key else self._layers.scope.types[KEY]
        self._from_input = False
        self._made_value = tuple(computed)
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
        self._made_key = True
        self._scope = replace(self._scope, types={**self._scope.types, KEY: JSON})

    def _new_key(self, key: str) -> str:
        if not self._layers.checked:
            return f"{self._layers.as_json(key)} AS {KEY}"
        # A failed row keeps its former key, which is null if that is the key of the input.
        before = KEY if self._made_key else "NULL::JSON"
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
            if of_input and not (column == KEY and self._made_key):
                self._layers.read_input(column, kind)
            elif column == VALUE:
                self._make_value()

    def _make_value(self) -> None:
        """Add a column with the value of a select, once."""
        assert self._made_value is not None
        if VALUE not in self._layers.described():
            self._layers.add(
                f"SELECT *, ({self._layers.as_object(self._made_value)})::JSON AS {VALUE}"
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
