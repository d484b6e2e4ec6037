"""MATCH_RECOGNIZE: a row for each match of a pattern in the rows of a partition, in an order.

A query computes for each row which variables it may stand for, where PREV and NEXT are window
functions; an operator finds the matches (`kernels/window_functions.py`); and a query with GROUP BY
computes the measures of each match.

Its text in FROM:

    FROM trades MATCH_RECOGNIZE (
        PARTITION BY symbol ORDER BY placed
        MEASURES FIRST(down.price) AS high, LAST(up.placed) AS until
        PATTERN (down+ up+)
        DEFINE down AS price < PREV(price), up AS price > PREV(price)) AS v

DuckDB does not parse it, so it is replaced by a table name, padded with spaces to its length:
positions in errors stay right.  DuckDB parses the expressions and the order in it one by one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

from ikebana.processor.kernels.row_patterns import PatternError, parsed
from ikebana.processor.kernels.window_values import RowPattern
from ikebana.processor.linear.bound_query import SqlQueryError, closing, query_tree
from ikebana.processor.linear.json_text import literal, quoted
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.syntax import (
    Node,
    TextPart,
    Token,
    changed,
    column,
    conjunction,
    conjuncts,
    items,
    replaced,
    text_of,
    tokens,
    tree,
    unquoted,
)
from ikebana.processor.relational.making import Making, Table, Translate, unused_name
from ikebana.processor.relational.rows import Order
from ikebana.processor.relational.sql_aggregates import direction, is_aggregate
from ikebana.processor.relational.sql_over import IN_ORDER, Over, WindowResult, with_functions
from ikebana.processor.relational.sql_refusals import whole_number
from ikebana.processor.relational.windows import FromCall, free_names, without_windows

_SHIFTS = {"prev": "lag", "next": "lead"}
_ENDS = ("first", "last")
_ROWS = "of_rows"
_WORD = "MATCH_RECOGNIZE"
_FORM = (
    "it is written as MATCH_RECOGNIZE (PARTITION BY a ORDER BY b MEASURES LAST(B.c) AS c "
    "PATTERN (A B+) DEFINE B AS c > PREV(c))"
)
# The clauses in their order, by the words that they begin with.
_CLAUSES = (
    ("PARTITION", "BY"),
    ("ORDER", "BY"),
    ("MEASURES",),
    ("ONE", "ROW", "PER", "MATCH"),
    ("ALL", "ROWS", "PER", "MATCH"),
    ("AFTER", "MATCH", "SKIP"),
    ("PATTERN",),
    ("WITHIN",),
    ("SUBSET",),
    ("DEFINE",),
)
_REFUSED = {
    "ALL": "ALL ROWS PER MATCH is not supported: there is one row for each match",
    "WITHIN": "WITHIN is not supported; compare FIRST and LAST of a match in the query around it",
    "SUBSET": "SUBSET is not supported; name the variables of a measure one by one",
}
# A number has so many bits for variables.
_MOST_VARIABLES = 62


def _next(text: str) -> tuple[list[Token], int] | None:
    """The tokens of a text, and the index of the first pattern among them."""
    words = tokens(text) if _WORD.lower() in text.lower() else []
    at = next((at for at, each in enumerate(words) if each.text.upper() == _WORD), None)
    return None if at is None else (words, at)


def _without(
    text: str, words: Sequence[Token], at: int, name: str
) -> tuple[str, "MatchRecognize"]:
    """The text with a call and its source replaced by a name, and the call."""
    place = words[at].at
    if at + 1 >= len(words) or words[at + 1].text != "(":
        raise SqlQueryError(_FORM, place)
    end = closing(words, at + 1)
    if at == 0 or words[at - 1].text == ")":
        problem = "is of an input or an operator: make a view of the query, and name it"
        raise SqlQueryError(f"{_WORD} {problem}", place)
    source = words[at - 1]
    clauses = dict(_clauses(text, words[at + 2 : end], words[end].at))
    call = _Parsing(unquoted(source), source.at, place, clauses).call()
    return replaced(text, source.at, words[end].end, name), call


def _clauses(text: str, words: Sequence[Token], end: int) -> Iterator[tuple[str, TextPart]]:
    """The clauses between parentheses, by the first word of each."""
    heads: list[tuple[str, int, int]] = []
    depth = 0
    for at, token in enumerate(words):
        depth += (token.text == "(") - (token.text == ")")
        if depth or (at and words[at - 1].text.upper() in (".", "AS")):
            continue
        for head in _CLAUSES:
            upper = tuple(each.text.upper() for each in words[at : at + len(head)])
            if upper == head:
                heads.append((head[0], token.at, words[at + len(head) - 1].end))
    if words and (not heads or heads[0][1] > words[0].at):
        raise SqlQueryError(_FORM, words[0].at)
    for number, (name, _, begin) in enumerate(heads):
        upto = heads[number + 1][1] if number + 1 < len(heads) else end
        yield name, TextPart(text[begin:upto], begin)


@dataclass(frozen=True, slots=True)
class LocatedExpression:
    """An expression of a clause, and its place in the query."""

    node: Node
    at: int

    def refuse(self, problem: str) -> NoReturn:
        """Refuse the expression.  Raises: SqlQueryError."""
        raise SqlQueryError(problem, self.at)


@dataclass(frozen=True, slots=True)
class _Parsing:
    """Parses the clauses of a call."""

    source: str
    at: int
    place: int
    clauses: Mapping[str, TextPart]

    def call(self) -> "MatchRecognize":
        """The call.  Raises: SqlQueryError."""
        for clause, problem in _REFUSED.items():
            if clause in self.clauses:
                raise SqlQueryError(problem, self.clauses[clause].at)
        for clause in ("ORDER", "MEASURES", "PATTERN", "DEFINE"):
            if clause not in self.clauses:
                raise SqlQueryError(f"there is no {clause}; {_FORM}", self.place)
        skip = self.clauses.get("AFTER", TextPart("PAST LAST ROW", self.place))
        if skip.text.upper().split() != ["PAST", "LAST", "ROW"]:
            problem = "matches do not overlap: write AFTER MATCH SKIP PAST LAST ROW"
            raise SqlQueryError(problem, skip.at)
        pattern, variables = self._pattern()
        define = dict(self._named(self.clauses["DEFINE"], is_first=True))
        for variable, each in define.items():
            if variable.lower() not in variables:
                each.refuse(f'the pattern has no variable "{variable}"')
        return MatchRecognize(
            self.source,
            self.at,
            tuple(self._partition()),
            tuple(self._orders()),
            tuple(self._named(self.clauses["MEASURES"], is_first=False)),
            pattern,
            variables,
            {variable.lower(): each for variable, each in define.items()},
        )

    def _pattern(self) -> tuple[str, tuple[str, ...]]:
        """The pattern, and its variables in lower case."""
        text, at = self.clauses["PATTERN"]
        stripped = text.strip()
        if not (stripped.startswith("(") and stripped.endswith(")")):
            raise SqlQueryError("a pattern stands in parentheses, as in PATTERN (A B+)", at)
        begin = at + text.index("(") + 1
        pattern = stripped[1:-1]
        try:
            variables = parsed(pattern).variables
        except PatternError as error:
            raise SqlQueryError(str(error), begin + error.at) from None
        if len(variables) > _MOST_VARIABLES:
            raise SqlQueryError(f"a pattern has at most {_MOST_VARIABLES} variables", begin)
        return " ".join(pattern.split()), tuple(each.lower() for each in variables)

    def _partition(self) -> Iterator[LocatedExpression]:
        for item in items(self.clauses["PARTITION"]) if "PARTITION" in self.clauses else ():
            expression = _expression(item)
            node = expression.node
            if node["class"] != "COLUMN_REF" or len(node["column_names"]) != 1:
                expression.refuse("a pattern's partitions are by columns")
            yield expression

    def _orders(self) -> Iterator[Node]:
        text, at = self.clauses["ORDER"]
        begin = "SELECT 1 FROM t ORDER BY "
        try:
            (modifier,) = query_tree(f"{begin}{text}\n")["modifiers"]
        except SqlQueryError as error:
            place = None if error.at is None else at + error.at - len(begin)
            raise SqlQueryError(error.problem, place) from None
        yield from modifier["orders"]

    def _named(self, part: TextPart, *, is_first: bool) -> Iterator[tuple[str, LocatedExpression]]:
        """The expressions of a list such as `x AS name`, or `name AS x` if the name `is_first`."""
        for item in items(part):
            words = tokens(item.text)
            at = 1 if is_first else len(words) - 2
            if len(words) < 3 or words[at].text.upper() != "AS":
                form = "name AS condition" if is_first else "expression AS name"
                raise SqlQueryError(f"this is written as {form}", item.at)
            if is_first:
                yield unquoted(words[0]), _expression(TextPart(item.text[words[1].end :], item.at))
                continue
            text = item.text[: words[at].at]
            for word, behind in pairwise(words):
                # With one row for each match, both mean the same.
                if word.text.upper() in ("FINAL", "RUNNING") and behind.text not in (".", "AS"):
                    text = replaced(text, word.at, word.end)
            yield unquoted(words[-1]), _expression(TextPart(text, item.at))


def _expression(part: TextPart) -> LocatedExpression:
    try:
        return LocatedExpression(tree(part.text.strip()), part.at)
    except ExpressionError as error:
        raise SqlQueryError(str(error), part.at) from None


@dataclass(frozen=True, slots=True)
class MatchRecognize:
    """A MATCH_RECOGNIZE of one collection as a table; variables are in lower case."""

    source: str
    place: int
    partition: tuple[LocatedExpression, ...]
    orders: tuple[Node, ...]
    measures: tuple[tuple[str, LocatedExpression], ...]
    pattern: str
    variables: tuple[str, ...]
    define: Mapping[str, LocatedExpression]

    def table(self, making: Making, source: Table, translate: Translate) -> Table:
        """A row for each match: the columns of PARTITION BY, and the measures."""
        return _Matching(self, making, source, translate).table()


def without_calls(text: str) -> tuple[str, Mapping[str, FromCall]]:
    """Replace calls in FROM that DuckDB does not know by table names; also the calls by name.

    Raises: SqlQueryError.
    """
    patterns: dict[str, FromCall] = {}
    while (place := _next(text)) is not None:
        name = next(each for each in free_names() if each not in text.lower())
        text, patterns[name] = _without(text, *place, name)
    text, windows = without_windows(text)
    return text, {**patterns, **windows}


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
        match = unused_name("match", self._used)
        measures = _Measures(self, match)
        shown = [(name, measures.of(each)) for name, each in call.measures]
        over = Over(tuple(self._partition), tuple(self._order()))
        rows = self._translate(self._rows(), {_ROWS: self._source})
        function = RowPattern(quoted(bits), call.pattern)
        result = WindowResult(match, function, lambda value: f"CAST({value} AS {_MATCHED_ROW})")
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
            self._added[sql] = unused_name(stem, self._used)
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
