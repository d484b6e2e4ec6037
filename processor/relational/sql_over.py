"""Window functions: a collection with the values of functions as columns, and those of a SELECT.

All columns that a SELECT reads are selected first.  Each combination of PARTITION BY and ORDER BY
is an operator, which adds columns to the result of the one before.  Expressions over window
functions then read these columns.  If a condition bounds a rank, its operator emits only the rows
within the bound.

Rows are partitioned and ordered by columns, as OVER (…) says.  Ties of the order are broken by all
columns of the row, as in `rows.first_rows`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ikebana.processor.kernels.window_values import (
    ALL,
    CURRENT,
    ENDS,
    OFFSETS,
    RANKS,
    WHOLE_FRAME,
    End,
    Exclude,
    Frame,
    FrameAggregate,
    FrameBound,
    FrameEdge,
    InOwnOrder,
    NumberOrSql,
    Offset,
    Ranking,
    Unit,
    WindowFunction,
)
from ikebana.processor.linear.bound_query import SqlQueryError, constant, types_of
from ikebana.processor.linear.json_text import TIME_OF_DAY, WHOLE, quoted
from ikebana.processor.linear.scope import KEY, ExpressionError
from ikebana.processor.linear.sql_functions import short_name, user_aggregate
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import (
    Node,
    changed,
    column,
    columns,
    has_subquery,
    own_nodes,
    text_of,
    tree,
    unplaced,
)
from ikebana.processor.planning.aggregates import parsed_aggregate
from ikebana.processor.planning.relations import Keys, KnownKeys
from ikebana.processor.relational.making import ColumnList, Listed, Making, Table, struct
from ikebana.processor.relational.rows import Order, Sorted, first_rows, in_one_direction, ordering
from ikebana.processor.relational.sql_aggregates import direction, parts_of
from ikebana.processor.relational.sql_scope import Froms
from ikebana.processor.relational.sql_whole import QueryTranslation, selected


@dataclass(frozen=True, slots=True)
class Over:
    """The window of OVER (…) without its frame: columns to partition by and to order by."""

    partition: tuple[str, ...] = ()
    orders: tuple[Order, ...] = ()


@dataclass(frozen=True, slots=True)
class WindowResult:
    """A column with the values of a function; `sql` converts what the operator returns."""

    name: str
    function: WindowFunction
    sql: Callable[[str], str] = str


def with_functions(
    making: Making,
    source: Table,
    over: Over,
    results: Sequence[WindowResult],
    *,
    most: int = 0,
    what: str = "over",
) -> Table:
    """The rows with a column for each result.

    With `most`, only rows are needed for which the first result, a rank, is at most that.
    """
    by = [(name, quoted(name), source.types[name]) for name in over.partition]
    order, is_descending = _order_of_rows(source, over.orders)
    functions = tuple(each.function for each in results)
    table = making.windowed(
        source, what, by, functions, order, is_descending=is_descending, most=most
    )
    columns = [(name, f'"row".{quoted(name)}') for name in source.types]
    values = [(each.name, each.sql(f"w{at}")) for at, each in enumerate(results)]
    facts = _facts(source, over, results)
    return making.linear(table, f"{what}.rows", Sql(select=(*columns, *values)), facts=facts)


def _order_of_rows(source: Table, orders: Sequence[Order]) -> tuple[str | None, bool]:
    """SQL of the order of rows, None without one; and whether it is descending."""
    parts, _, aggregate = ordering(source, orders)
    order = struct((f"o{at}", sql) for at, sql in enumerate(parts)) if parts else None
    return order, aggregate == "top"


def _facts(source: Table, over: Over, results: Sequence[WindowResult]) -> KnownKeys:
    """The facts of the result: the rows are those of the source, with the partition as key."""
    key, by = frozenset((KEY,)), frozenset(over.partition)
    numbers = [each.name for each in results if each.function == Ranking("row_number")]

    def of(keys: Keys) -> Keys:
        keys = keys.with_dependencies([(key, by), (by, key)])
        every = [KEY, *source.types, *(each.name for each in results)]
        for number in numbers:
            keys = keys.with_unique([*over.partition, number], every)
        return keys

    return source.selected((name, quoted(name)) for name in source.types).each(of)


# Types without a distance, so RANGE frames by a distance are refused.
_NO_DISTANCE = (*TIME_OF_DAY, "VARCHAR", "BOOLEAN")
_EXCLUDES: Mapping[str, Exclude] = {
    "NO_OTHER": "",
    "CURRENT_ROW": "row",
    "GROUP": "group",
    "TIES": "ties",
}


def is_window(node: Node) -> bool:
    """Whether a node is a call of a window function."""
    return bool(node["class"] == "WINDOW")


def windows_of(value: object) -> list[Node]:
    """The calls of window functions in expressions."""
    return [node for node in own_nodes(value) if is_window(node)]


class _Call(NamedTuple):
    """A call over columns of the collection, its window, and the column of its values."""

    name: str
    node: Node
    over: Over
    place: int | None


class OverColumns:
    """Rewrites expressions of a SELECT over columns of one collection with window functions.

    First all expressions are rewritten by `over`; then `table` makes the collection.
    """

    def __init__(self, listed: Listed) -> None:
        plain = [each for each in listed if not windows_of(each[1])]
        self._columns = ColumnList(plain, [name for name, _ in listed])
        self._calls: list[_Call] = []
        self._columns_of: list[tuple[Node, str]] = []

    def over(self, node: Node) -> Node:
        """Rewrite an expression over FROM and window functions.  Raises: SqlQueryError."""

        def change(node: Node) -> Node | None:
            if is_window(node):
                return column(self._call(node))
            if node["class"] != "COLUMN_REF" or len(node["column_names"]) < 2:
                # A name alone is a parameter of a lambda.
                return None
            alias, field, *parts = node["column_names"]
            name = self._columns.of(column(alias, field))
            return {**node, "column_names": [name, *parts], "alias": ""}

        result: Node = changed(node, change)
        return result

    def table(self, query: QueryTranslation, froms: Froms, most: tuple[Node, int] | None) -> Table:
        """The collection.  `most` is a rank and its bound: rows beyond it are left out."""
        limited = None if most is None else self._call(most[0])
        there = self._columns.listed or [("there", tree("true"))]
        table = selected(query, froms, there, "select")
        source = table
        by_window: dict[Over, list[_Call]] = {}
        for call in self._calls:
            by_window.setdefault(call.over, []).append(call)
        # The window of the bounded rank comes last, and the rank first in it.
        ordered = sorted(
            by_window.items(), key=lambda each: limited in [call.name for call in each[1]]
        )
        for over, calls in ordered:
            calls.sort(key=lambda call: call.name != limited)
            results = [_Function(source, call).result() for call in calls]
            bound = most[1] if most is not None and calls[0].name == limited else 0
            if bound and len(self._calls) == 1 and is_row_number(calls[0].node):
                # A reduction keeps only the rows of the result, and is cheaper.
                return first_rows(
                    query.making, table, over.partition, over.orders, bound, number=limited
                )
            table = with_functions(query.making, table, over, results, most=bound)
        return table

    def _call(self, node: Node) -> str:
        plain = unplaced(node)
        for other, name in self._columns_of:
            if other == plain:
                return name
        node = _in_own_order(node)
        called = node["function_name"].lower()
        partition = tuple(dict.fromkeys(map(self._columns.of, node["partitions"])))
        orders = tuple(
            Order(self._columns.of(each["expression"]), *direction(each))
            for each in node["orders"]
        )
        name = self._columns.unused(short_name(called))
        call_node = {**node, **{key: self.over_parts(node[key]) for key in _PARTS}}
        call_node["partitions"] = [column(each) for each in partition]
        call_node["orders"] = [
            {**each, "expression": column(order.column)}
            for each, order in zip(node["orders"], orders, strict=True)
        ]
        self._columns_of.append((plain, name))
        call = _Call(name, call_node, Over(partition, orders), node.get("query_location"))
        self._calls.append(call)
        return name

    def over_parts(self, value: object) -> object:
        """Rewrite a part of a call, such as its arguments."""
        if isinstance(value, list):
            return [self.over_parts(each) for each in value]
        if isinstance(value, dict) and "class" not in value:
            return {name: self.over_parts(each) for name, each in value.items()}
        return self.over(value) if isinstance(value, dict) else value


IN_ORDER = ("list", "array_agg", "string_agg", "group_concat", "listagg", "any_value")
"""Aggregates that take values in the window's order unless they have an ORDER BY or DISTINCT."""
# What takes an order of its own; DuckDB numbers rows in another one.
_IN_OWN_ORDER = ("rank", *OFFSETS, *ENDS)
_PARTS = ("arguments", "filter_expr", "arg_orders", "start_expr", "end_expr")


@dataclass(frozen=True, slots=True)
class _Function:
    """Translates a call into a window function of the kernel."""

    source: Table
    call: _Call

    def result(self) -> WindowResult:
        """The function, with SQL that casts its value to the type of the call."""
        node, name = self.call.node, self.call.name
        called = node["function_name"].lower()
        self._refuse(
            [each["name"] for each in node["arguments"] if each["name"]], "an argument by name"
        )
        if (of_user := user_aggregate(called)) is not None:
            kind = of_user.returns
            return replace(self._aggregate(kind), sql=lambda value: _of_class(value, kind))
        (kind,) = types_of([text_of(node)], self.source.keyed())
        if called in RANKS:
            number = self._number(called, 0) if called == "ntile" else 1
            return WindowResult(name, self._ordered(Ranking(called, number)))
        if called in OFFSETS or called in ENDS:
            function = self._ordered(self._of_rows(called))
            return WindowResult(name, function, lambda value: f"CAST({value} AS {kind})")
        return self._aggregate(kind)

    def _of_rows(self, called: str) -> Offset | End:
        """lag, lead, and values at the ends of a frame."""
        node = self.call.node
        self._refuse(node["filter_expr"], "FILTER")
        shown, *others = [text_of(each["expression"]) for each in node["arguments"]]
        number = self._number(called, 1) if others else 1
        ignores_nulls, is_in_own_order = bool(node["ignore_nulls"]), bool(node["arg_orders"])
        if called in ENDS:
            frame = WHOLE_FRAME if is_in_own_order else self._frame()
            return End(called, shown, number, ignores_nulls, frame=frame)
        if ignores_nulls:
            self._refuse(is_in_own_order, "ORDER BY and IGNORE NULLS within the call")
        if isinstance(number, int) and number < 0:
            called, number = ("lead" if called == "lag" else "lag"), -number
        default = ""
        if len(others) > 1:
            (of,) = types_of([shown], self.source.keyed())
            default = f"CAST({others[1]} AS {of})"
        return Offset(called, shown, number, default, ignores_nulls)

    def _number(self, called: str, at: int) -> NumberOrSql:
        """The number of a call, which is an argument."""
        argument = self.call.node["arguments"][at]["expression"]
        number, problem = _constant(argument), "ntile(n) takes a number above zero"
        if number is None:
            sql = f"CAST({text_of(argument)} AS BIGINT)"
            if called == "ntile":
                failed = f"CAST('{problem}, not ' || {sql} AS BIGINT)"
                sql = f"CASE WHEN {sql} < 1 THEN {failed} ELSE {sql} END"
            return sql
        if called == "ntile" and number < 1:
            raise SqlQueryError(problem, self.call.place)
        return number

    def _ordered(self, function: Ranking | Offset | End) -> WindowFunction:
        """The function with the order of the call, which is that of rows of the frame."""
        node = self.call.node
        if not node["arg_orders"]:
            return function
        expressions = [text_of(each["expression"]) for each in node["arg_orders"]]
        kinds = types_of(expressions, self.source.keyed())
        parts, _, is_descending = in_one_direction(
            [
                Sorted(sql, kind, *direction(order), sql)
                for sql, kind, order in zip(expressions, kinds, node["arg_orders"], strict=True)
            ]
        )
        by = struct((f"o{at}", sql) for at, sql in enumerate(parts))
        return InOwnOrder(self.call.name, function, by, is_descending, frame=self._frame())

    def _aggregate(self, kind: str) -> WindowResult:
        """An aggregate over a frame, translated as an aggregate of a group."""
        node, name = self.call.node, self.call.name
        if node["ignore_nulls"]:
            raise SqlQueryError(
                "IGNORE NULLS is of lag, lead and values of frames", self.call.place
            )
        called = node["function_name"].lower()
        # Of equal values, DISTINCT takes one, whichever rows they are in.
        takes_order = called in IN_ORDER and (called == "any_value" or not node["distinct"])
        call = {
            **tree("f(x)"),
            "function_name": called,
            "qualified_name": {"path": [called]},
            "arguments": node["arguments"],
            "distinct": node["distinct"],
            "filter": node["filter_expr"],
            "order_bys": {
                "type": "ORDER_MODIFIER",
                "orders": node["arg_orders"] or (node["orders"] if takes_order else []),
            },
            "query_location": self.call.place,
        }
        types = self.source.keyed()
        parts = parts_of(call, lambda sql: types_of([sql], types)[0])
        aggregate = parsed_aggregate(name, *parts.aggregates)
        function = FrameAggregate(aggregate, frame=self._frame())
        return WindowResult(name, function, lambda value: f"CAST({parts.result(value)} AS {kind})")

    def _frame(self) -> Frame:
        node = self.call.node
        start, end = node["start"].split("_"), node["end"].split("_")
        unit: Unit = "range"
        for each in (start, end):
            if each[-1].lower() in ("rows", "groups"):
                unit = "rows" if each[-1] == "ROWS" else "groups"
        exclude = _EXCLUDES[node["exclude_clause"]]
        if unit == "groups" and not node["orders"]:
            raise SqlQueryError("GROUPS needs an ORDER BY in its window", self.call.place)
        first = self._bound(start, node["start_expr"], unit, is_start=True)
        last = self._bound(end, node["end_expr"], unit, is_start=False)
        return Frame(unit, first, last, exclude)

    def _bound(
        self, words: Sequence[str], by: Node | None, unit: Unit, *, is_start: bool
    ) -> FrameBound:
        if words[0] == "UNBOUNDED":
            return ALL
        if words[0] == "CURRENT":
            return CURRENT
        side: FrameEdge = "preceding" if words[1] == "PRECEDING" else "following"
        assert by is not None, "a bound that is no row has a distance"
        is_of_row = bool(columns(by))
        if unit == "range":
            at = self._value_at(text_of(by), side, is_start=is_start)
            return FrameBound(side, at, is_of_row)
        if is_of_row:
            away = f"CAST({text_of(by)} AS BIGINT)"
            if unit == "groups":
                # As DuckDB has it, null is no distance in groups, and an error in rows.
                away = f"coalesce({away}, 0)"
            failed = _failing(f"coalesce({away}::VARCHAR, 'null')", "BIGINT")
            at = f"CASE WHEN {away} >= 0 THEN {away} ELSE {failed} END"
            return FrameBound(side, at, is_of_row=True)
        offset = _constant(by)
        if offset is None or offset < 0:
            raise SqlQueryError(
                f"the frame begins or ends a whole number of {unit} away", self.call.place
            )
        return FrameBound(side, offset)

    def _value_at(self, by: str, side: str, *, is_start: bool) -> str:
        """SQL of the order's value at a distance, converted as the order's values are."""
        if len(self.call.over.orders) != 1:
            raise SqlQueryError("RANGE with a distance needs one ORDER BY", self.call.place)
        (order,) = self.call.over.orders
        kind, name = self.source.types[order.column], quoted(order.column)
        value = f"({name})::HUGEINT" if kind in WHOLE else name
        sign = "-" if (side == "preceding") != order.descending else "+"
        bound = f"({value} {sign} ({by}))"
        if columns(tree(by)):
            is_behind = "<" if sign == "+" else ">"
            failed = _failing(f"({by})", "HUGEINT" if kind in WHOLE else kind)
            bound = f"CASE WHEN {bound} {is_behind} {value} THEN {failed} ELSE {bound} END"
            bound = f"coalesce({bound}, {value})"
        if kind == "DATE":
            # A distance may end within a day: the least bound is rounded up to the next day.
            is_least = is_start != order.descending
            up = " + INTERVAL '1 day' - INTERVAL '1 microsecond'" if is_least else ""
            bound = f"CAST(({bound}{up}) AS DATE)"
        elif kind in _NO_DISTANCE:
            raise SqlQueryError(
                f"RANGE with a distance in {kind} is not supported", self.call.place
            )
        sql, _ = _order_of_rows(self.source, [order])
        assert sql is not None, "there is an order"
        return sql.replace(name, bound)

    def _refuse(self, part: object, named: str) -> None:
        if part:
            called = self.call.node["function_name"]
            raise SqlQueryError(f"{named} of {called}() is not supported", self.call.place)


def _in_own_order(node: Node) -> Node:
    """A call without ORDER BY in it, if the function sees all rows of the partition.

    Then it is the order of the window, along which a change moves less than in that of a frame.
    """
    kind, frame = node["function_name"].lower(), (node["start"], node["end"])
    is_of_all = not node["orders"] and frame == ("UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE")
    if not node["arg_orders"] or kind not in _IN_OWN_ORDER:
        return node
    if is_of_all or frame == ("UNBOUNDED_PRECEDING", "UNBOUNDED_FOLLOWING"):
        to_end = {"end": "UNBOUNDED_FOLLOWING"} if kind in ENDS else {}
        return {**node, "orders": node["arg_orders"], "arg_orders": [], **to_end}
    return node


def _failing(away: str, kind: str) -> str:
    """SQL that fails, as a distance of a frame is no distance."""
    return f"CAST('a frame begins or ends at a distance, not ' || {away} AS {kind})"


def _of_class(value: str, kind: str) -> str:
    """SQL of the value of a user-defined aggregate, which fails with the error of its class."""
    row = f"CAST({value} AS STRUCT(error VARCHAR, value {kind}))"
    failed = f"CAST(('cannot aggregate: ' || {row}.error) AS BOOLEAN)"
    return f"CASE WHEN {row}.error IS NULL OR {failed} THEN {row}.value END"


def _constant(node: Node) -> int | None:
    """The whole number that an expression without columns is; else None."""
    if columns(node) or has_subquery(node):
        return None
    try:
        value = constant(text_of(node))
    except ExpressionError:
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_row_number(node: Node) -> bool:
    """Whether a node is row_number()."""
    called = is_window(node) and not node["arg_orders"]
    return called and node["function_name"].lower() == "row_number"


def is_growing(node: Node) -> bool:
    """Whether a node is a rank that grows along its order."""
    rank = RANKS.get(node["function_name"].lower()) if is_window(node) else None
    return rank is not None and rank.end is not None and not node["arg_orders"]
