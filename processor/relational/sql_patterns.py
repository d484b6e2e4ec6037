"""MATCH_RECOGNIZE: a row for each match of a pattern in the rows of a partition, in an order.

A query computes for each row which variables it may stand for, where PREV and NEXT are window
functions; an operator finds the matches (`kernels/window_functions.py`); and a query with GROUP BY
computes the measures of each match.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ikebana.processor.kernels.window_values import PATTERN, WindowFunction
from ikebana.processor.linear.json_text import literal, quoted
from ikebana.processor.linear.syntax import Node, text_of, tree
from ikebana.processor.linear.trees import changed, column, conjunction, conjuncts
from ikebana.processor.relational.known import Table, Translate
from ikebana.processor.relational.making import Making
from ikebana.processor.relational.over import Over, Result, with_functions
from ikebana.processor.relational.rows import Order
from ikebana.processor.relational.sql_aggregates import direction, is_aggregate
from ikebana.processor.relational.sql_over import IN_ORDER
from ikebana.processor.relational.sql_pattern_text import (
    LocatedExpression,
    MatchRecognize,
    parsed_call,
)
from ikebana.processor.relational.sql_refusals import whole_number
from ikebana.processor.relational.sql_whole import free
from ikebana.processor.relational.windows import FromCall, without_windows

_SHIFTS = {"prev": "lag", "next": "lead"}
_ENDS = ("first", "last")
_ROWS = "of_rows"


def without_calls(text: str) -> tuple[str, Mapping[str, FromCall]]:
    """Replace calls in FROM that DuckDB does not know by table names; also the calls by name.

    Raises: SqlQueryError.
    """
    patterns: dict[str, FromCall] = {}
    while (parsed := parsed_call(text)) is not None:
        text, call = parsed
        patterns[call.name] = PatternCall(call)
    text, windows = without_windows(text)
    return text, {**patterns, **windows}


@dataclass(frozen=True, slots=True)
class PatternCall:
    """A MATCH_RECOGNIZE as a table."""

    of: MatchRecognize

    @property
    def source(self) -> str:
        """The collection whose rows are matched."""
        return self.of.source

    @property
    def place(self) -> int:
        """Where it stands in the query."""
        return self.of.place

    def table(self, making: Making, source: Table, translate: Translate) -> Table:
        """A row for each match: the columns of PARTITION BY, and the measures."""
        return _Matching(self.of, making, source, translate).table()


class _Matching:
    """The translation of a call over a collection."""

    def __init__(
        self, call: MatchRecognize, making: Making, source: Table, translate: Translate
    ) -> None:
        self._call, self._making, self._source = call, making, source
        self._translate = translate
        self._used = {name.lower() for name in source.types}
        self._added: dict[str, str] = {}
        self._partition = [each.node["column_names"][0] for each in call.partition]
        self._offsets = dict[str, int]()

    def table(self) -> Table:
        """A row for each match.  Raises: MakingError, SqlQueryError."""
        call = self._call
        bits = self._column(" + ".join(self._conditions()), "bits")
        match = free("match", self._used)
        measures = _Measures(self, match)
        shown = [(name, measures.of(each)) for name, each in call.measures]
        over = Over(tuple(self._partition), tuple(self._order()))
        rows = self._translate(self._rows(), {_ROWS: self._source})
        function = WindowFunction(match, PATTERN, quoted(bits), pattern=call.pattern)
        result = Result(match, function, lambda value: f"CAST({value} AS {_MATCHED_ROW})")
        table = with_functions(self._making, rows, over, [result], what="matches")
        by = [*map(quoted, self._partition)]
        listed = [*by, *(f"{text} AS {quoted(name)}" for name, text in shown)]
        one = f"{quoted(match)}['match']"
        query = f"SELECT {', '.join(listed)} FROM {_ROWS} WHERE {one} IS NOT NULL "
        return self._translate(f"{query}GROUP BY {', '.join([*by, one])}", {_ROWS: table})

    def beside(self, node: Node, function: str, number: int) -> str:
        """The column with the value of an expression a number of rows before or behind."""
        self._offsets[function] = max(number, self._offsets.get(function, 0))
        return self._column(f"{function}({text_of(node)}, {number}) OVER w", "beside")

    def _conditions(self) -> Iterator[str]:
        """SQL of the bit of each variable."""
        for at, name in enumerate(self._call.variables):
            condition = self._call.define.get(name)
            sql = "true" if condition is None else self._condition(name, condition)
            yield f"CASE WHEN {sql} THEN {1 << at}::BIGINT ELSE 0 END"

    def _condition(self, name: str, condition: LocatedExpression) -> str:
        """SQL of a condition over the row, and rows a number of rows before or behind."""

        def change(node: Node) -> Node | None:
            if (called := _called(node)) in _SHIFTS:
                shifted, number = _arguments(node, condition, usual=1)
                plain = changed(shifted, change)
                return column(self.beside(plain, _SHIFTS[called], number))
            if called in ("classifier", "match_number") or is_aggregate(node):
                condition.refuse(
                    f"{called}() in DEFINE is not supported: a condition reads its own row, and "
                    "with PREV and NEXT the rows at fixed distances"
                )
            variable, plain = self.unqualified(node)
            if variable not in (None, name):
                condition.refuse(
                    f'the condition of "{name}" reads rows of "{variable}", which is not '
                    "supported: it reads its own row, and with PREV and NEXT rows beside it"
                )
            return plain if variable is not None else None

        return f"({text_of(changed(condition.node, change))})"

    def is_of_partition(self, node: Node) -> bool:
        """Whether a column is one that rows are partitioned by."""
        return node["column_names"] in [[name] for name in self._partition]

    def unqualified(self, node: Node) -> tuple[str | None, Node]:
        """The variable that a column is qualified by, if one, and the column without it."""
        first, *names = node["column_names"] if node["class"] == "COLUMN_REF" else ("",)
        if not names or first.lower() not in self._call.variables:
            return None, node
        return first.lower(), {**node, "column_names": names}

    def _column(self, sql: str, stem: str) -> str:
        """The name of a column with an expression over the rows, which is added to them."""
        if sql not in self._added:
            self._added[sql] = free(stem, self._used)
        return self._added[sql]

    def _rows(self) -> str:
        """The query for the rows with all columns that have been added."""
        window = self._window()
        added = (f"{sql} AS {quoted(name)}" for sql, name in self._added.items())
        return f"SELECT *, {', '.join(added)} FROM {_ROWS} WINDOW w AS ({window})"

    def _window(self) -> str:
        """The partition and the order of rows, by all columns in the end."""
        by = ", ".join(map(quoted, self._partition))
        listed = []
        for each in self._call.orders:
            descending, nulls_first = direction(each)
            nulls = "FIRST" if nulls_first else "LAST"
            way = "DESC" if descending else "ASC"
            listed.append(f"{text_of(each['expression'])} {way} NULLS {nulls}")
        way = "DESC" if self._is_descending else "ASC"
        listed += [f"{quoted(name)} {way} NULLS LAST" for name in self._source.types]
        return f"{f'PARTITION BY {by} ' * bool(by)}ORDER BY {', '.join(listed)}"

    @property
    def _is_descending(self) -> bool:
        """The direction in which equal rows are sorted by their columns."""
        return direction(self._call.orders[0])[0]

    def _order(self) -> Iterator[Order]:
        """The order of rows by columns, which is that of the window."""
        for each in self._call.orders:
            yield Order(self._column(text_of(each["expression"]), "by"), *direction(each))
        for name in self._source.types:
            yield Order(name, self._is_descending)
        # Copies of a row are apart in what stands before and behind them.
        row = ", ".join(f"{literal(name)}: {quoted(name)}" for name in self._source.types)
        for function, sign in (("lag", 1), ("lead", -1)):
            same = [
                f"({function}({{{row}}}, {number}) OVER w IS NOT DISTINCT FROM {{{row}}})::INTEGER"
                for number in range(1, self._offsets.get(function, 0) + 1)
            ]
            if same:
                sign = -sign if self._is_descending else sign
                name = self._column(f"{sign} * ({' + '.join(same)})", "copy")
                yield Order(name, self._is_descending)


_MATCHED_ROW = "STRUCT(match VARCHAR, number BIGINT, variable VARCHAR)"


@dataclass(frozen=True, slots=True)
class _Measures:
    """The measures of matches, as aggregates of rows; `match` is the column with their match."""

    matching: _Matching
    match: str

    def of(self, measure: LocatedExpression) -> str:
        """SQL of a measure over the rows of a match.  Raises: SqlQueryError."""

        def change(node: Node) -> Node | None:
            called = _called(node)
            if called == "match_number":
                measure.refuse(
                    "MATCH_NUMBER() is not supported: number the matches by row_number() in the "
                    "query around them"
                )
            if called == "classifier":
                return self._at_end("last", tree(f"{quoted(self.match)}['variable']"), None, 0)
            if called in _SHIFTS or called in _ENDS:
                return self._of_row(node, measure)
            if is_aggregate(node):
                return self._aggregate(node, measure)
            if node["class"] != "COLUMN_REF" or self.matching.is_of_partition(node):
                return None
            variable, plain = self.matching.unqualified(node)
            return self._at_end("last", plain, variable, 0)

        return text_of(changed(measure.node, change))

    def _of_row(self, node: Node, measure: LocatedExpression) -> Node:
        """FIRST or LAST, within PREV or NEXT; these alone are of the last row."""
        function, away = "", 0
        if (called := _called(node)) in _SHIFTS:
            node, away = _arguments(node, measure, usual=1)
            function, called = _SHIFTS[called], _called(node)
        number = 0
        if called in _ENDS:
            node, number = _arguments(node, measure, usual=0)
        variable, plain = self._rows_of(node, measure)
        if away:
            plain = column(self.matching.beside(plain, function, away))
        return self._at_end(called if called in _ENDS else "last", plain, variable, number)

    def _aggregate(self, node: Node, measure: LocatedExpression) -> Node:
        """An aggregate over the rows of a variable, or over all rows of the match."""
        (star,) = node["arguments"] if len(node["arguments"]) == 1 else ({"expression": {}},)
        if star["expression"].get("class") == "STAR":
            of_rows = column(star["expression"]["relation_name"], "rows")
            variable, _ = self.matching.unqualified(of_rows)
            node = {**node, "function_name": "count_star", "arguments": []}
        else:
            variable, node = self._rows_of(node, measure)
        if _called(node) in IN_ORDER and not node["order_bys"]["orders"]:
            node = {**node, "order_bys": tree(f"list(1 ORDER BY {self._number})")["order_bys"]}
        conditions = [tree(each) for each in self._of_variable(variable)]
        return {**node, "filter": conjunction([*conjuncts(node["filter"]), *conditions])}

    def _rows_of(self, node: Node, measure: LocatedExpression) -> tuple[str | None, Node]:
        """The variable whose rows an expression reads, None for all, and it over their columns."""
        variables: set[str | None] = set()

        def change(node: Node) -> Node | None:
            if _called(node) in _SHIFTS:
                shifted, number = _arguments(node, measure, usual=1)
                plain = changed(shifted, change)
                return column(self.matching.beside(plain, _SHIFTS[_called(node)], number))
            if node["class"] != "COLUMN_REF":
                return None
            variable, plain = self.matching.unqualified(node)
            variables.add(variable)
            return plain

        of_rows: Node = {
            name: part if name in ("class", "type") else changed(part, change)
            for name, part in node.items()
        }
        if node["class"] == "COLUMN_REF":
            of_rows = changed(node, change)
        if len(variables) > 1:
            measure.refuse("FIRST, LAST and aggregates read the rows of one variable, or of all")
        return next(iter(variables), None), of_rows

    def _at_end(self, kind: str, node: Node, variable: str | None, number: int) -> Node:
        """The value of the first or the last row, or of one so many rows from there."""
        filters = "".join(f" FILTER (WHERE {each})" for each in self._of_variable(variable))
        ordered = f"({text_of(node)} ORDER BY {self._number}){filters}"
        if not number:
            return tree(f"{kind}{ordered}")
        return tree(f"(list{ordered})[{number + 1 if kind == 'first' else -1 - number}]")

    @property
    def _number(self) -> str:
        return f"{quoted(self.match)}['number']"

    def _of_variable(self, variable: str | None) -> list[str]:
        """The condition that a row stands for a variable; none for all."""
        if variable is None:
            return []
        return [f"lower({quoted(self.match)}['variable']) = {literal(variable)}"]


def _called(node: Node) -> str:
    """The function that a node calls; empty if it is no call."""
    return node["function_name"].lower() if node["class"] == "FUNCTION" else ""


def _arguments(node: Node, of: LocatedExpression, *, usual: int) -> tuple[Node, int]:
    """The expression in a call of FIRST, LAST, PREV or NEXT, and the number of rows."""
    expressions = [each["expression"] for each in node["arguments"]]
    number = whole_number(expressions[1]) if len(expressions) == 2 else usual
    if not expressions or len(expressions) > 2 or number is None:
        of.refuse(f"{_called(node)}(x, n) has an expression, and a number that is always the same")
    return expressions[0], number
