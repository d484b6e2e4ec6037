"""Aggregates of SQL, as aggregates of a reduction and an expression over their results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ikebana.processor.linear.allowed import aggregates
from ikebana.processor.linear.bound_query import QueryError
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.syntax import Node
from ikebana.processor.linear.trees import own_nodes, text_of, tree
from ikebana.processor.relational.making import struct


class Call(NamedTuple):
    """A call of an aggregate: SQL of its arguments, of rows where its FILTER is true."""

    name: str
    arguments: tuple[str, ...]
    is_distinct: bool
    orders: tuple[tuple[str, bool, bool], ...]
    """SQL, whether descending, whether nulls come first."""
    condition: str | None
    place: int | None
    type_of: Callable[[str], str]
    """The SQL type of an expression over the same columns."""

    def only(self, sql: str) -> str:
        """The argument where the FILTER is true, else null."""
        return sql if self.condition is None else f"CASE WHEN {self.condition} THEN {sql} END"


@dataclass(frozen=True, slots=True)
class Parts:
    """What an aggregate is made of: aggregates of a reduction, and SQL over them.

    In `result`, `{0}` stands for the column of the first of `aggregates`, and so on.
    """

    aggregates: tuple[str, ...]
    result: str = "{0}"
    is_typed: bool = True
    """Whether the result has its type already, so that it needs no cast."""


def is_aggregate(node: Node) -> bool:
    """Whether a node is a call of an aggregate."""
    return node["class"] == "FUNCTION" and (
        node["function_name"] == "count_star" or node["function_name"].lower() in aggregates()
    )


def calls(value: object) -> list[Node]:
    """The calls of aggregates in an expression."""
    return [node for node in own_nodes(value) if is_aggregate(node)]


def parts_of(node: Node, type_of: Callable[[str], str]) -> Parts:
    """What a call over fields is made of.  Raises: QueryError."""
    call = _call(node, type_of)
    make = _MADE.get(call.name)
    place = call.place
    if make is None:
        listed = ", ".join(sorted(_MADE))
        raise QueryError(
            f"the aggregate {call.name}() is not supported; there are {listed}", place
        )
    if call.is_distinct and call.name not in _DISTINCT:
        raise QueryError(
            f"{call.name}(DISTINCT …) is not supported; take it of a query with SELECT DISTINCT",
            place,
        )
    if call.orders and call.name not in _ORDERED:
        return make(call._replace(orders=()))
    return make(call)


def _call(node: Node, type_of: Callable[[str], str]) -> Call:
    arguments = tuple(text_of(each["expression"]) for each in node["arguments"])
    orders = tuple(
        (text_of(each["expression"]), *direction(each)) for each in node["order_bys"]["orders"]
    )
    name = node["function_name"].lower()
    condition = None if node["filter"] is None else text_of(node["filter"])
    place = node.get("query_location")
    return Call(name, arguments, node["distinct"], orders, condition, place, type_of)


def direction(order: Node) -> tuple[bool, bool]:
    """Whether an order is descending, and whether nulls come first; by default they come last."""
    return order["type"] == "DESCENDING", order["null_order"] in ("NULLS FIRST", "NULLS_FIRST")


def _count(call: Call) -> Parts:
    if call.name == "count_star" or not call.arguments:
        return Parts((f"count({call.only('1')})" if call.condition else "count(*)",))
    if len(call.arguments) > 1:
        raise QueryError("count() takes one argument", call.place)
    kind = "distinct" if call.is_distinct else "count"
    return Parts((f"{kind}({call.only(call.arguments[0])})",))


def _plain(kind: str, *, is_typed: bool = True) -> Callable[[Call], Parts]:
    def made(call: Call) -> Parts:
        if len(call.arguments) != 1:
            raise QueryError(f"{call.name}() is supported with one argument", call.place)
        return Parts((f"{kind}({call.only(call.arguments[0])})",), is_typed=is_typed)

    return made


def _count_if(call: Call) -> Parts:
    whole = f"CASE WHEN {call.arguments[0]} THEN 1 END"
    return Parts((f"count({call.only(whole)})",))


def _of_extreme(kind: str) -> Callable[[Call], Parts]:
    """The argument where another is least or greatest; of several, the least or greatest."""

    def made(call: Call) -> Parts:
        if len(call.arguments) != 2:
            raise QueryError(f"{call.name}() is supported with two arguments", call.place)
        shown, by = call.arguments
        pair = struct((("by", by), ("is", shown)))
        there = f"CASE WHEN ({by}) IS NOT NULL AND ({shown}) IS NOT NULL THEN {pair} END"
        return Parts((f"{kind}({call.only(there)})",), "({0})['is']")

    return made


def _listed(call: Call) -> Parts:
    """All values in their order, nulls among them; without an order, in that of the values."""
    return Parts(*_in_order(call, call.arguments[0]))


def _string(call: Call) -> Parts:
    """Texts that are not null, one behind another."""
    if call.is_distinct:
        raise QueryError(f"{call.name}(DISTINCT …) is not supported", call.place)
    text, separator = (*call.arguments, "','")[:2]
    aggregates, listed = _in_order(call, f"({text})::VARCHAR", without_nulls=True)
    return Parts(aggregates, f"array_to_string({listed}, {separator})")


def _in_order(call: Call, shown: str, *, without_nulls: bool = False) -> tuple[tuple[str], str]:
    """An aggregate that lists values in an order, and SQL of the list; null if there are none."""
    ways = {descending for _, descending, _ in call.orders}
    if len(ways) > 1:
        raise QueryError("ORDER BY in two directions in an aggregate is not supported", call.place)
    is_turned = ways == {True}
    parts = []
    for sql, _, nulls_first in call.orders:
        # In a list nulls come last; it may be turned around.
        parts += [f"({sql}) IS NOT NULL"] * (nulls_first != is_turned) + [sql]
    parts.append(shown)
    pair = struct((f"o{at}", sql) for at, sql in enumerate(parts))
    kinds = ", ".join(f"o{at} {call.type_of(sql)}" for at, sql in enumerate(parts))
    there = f"CASE WHEN ({shown}) IS NOT NULL THEN {pair} END" if without_nulls else pair
    whole = f"CAST({{0}} AS STRUCT({kinds})[])"
    whole = f"list_reverse({whole})" if is_turned else whole
    last = f"o{len(parts) - 1}"
    listed = f"nullif(list_transform({whole}, lambda each_: each_['{last}']), [])"
    return (f"list({call.only(there)})",), listed


def _quantile(name: str) -> Callable[[Call], Parts]:
    """What DuckDB makes of the list of all values that are not null."""

    def made(call: Call) -> Parts:
        shown, *fraction = call.arguments
        kind = call.type_of(shown)
        given = "".join(f", {each}" for each in fraction)
        whole = f"CAST({{0}} AS {kind}[])"
        return Parts((f"list({call.only(shown)})",), f"list_aggregate({whole}, '{name}'{given})")

    return made


_MADE: Mapping[str, Callable[[Call], Parts]] = {
    "count": _count,
    "count_star": _count,
    "count_if": _count_if,
    "sum": _plain("sum", is_typed=False),
    "avg": _plain("avg"),
    "mean": _plain("avg"),
    **{name: _plain(name) for name in ("var_samp", "var_pop", "stddev_samp", "stddev_pop")},
    "variance": _plain("var_samp"),
    "stddev": _plain("stddev_samp"),
    **dict.fromkeys(("list", "array_agg"), _listed),
    **dict.fromkeys(("string_agg", "group_concat", "listagg"), _string),
    **{name: _quantile(name) for name in ("median", "quantile_cont", "quantile_disc")},
    "min": _plain("min"),
    "max": _plain("max"),
    "any_value": _plain("min"),
    "bool_or": _plain("bool_or"),
    "bool_and": _plain("bool_and"),
    **dict.fromkeys(("arg_min", "min_by", "argmin"), _of_extreme("min")),
    **dict.fromkeys(("arg_max", "max_by", "argmax"), _of_extreme("max")),
}
_DISTINCT = {"count", "min", "max", "bool_or", "bool_and", "any_value"}
_ORDERED = {"list", "array_agg", "string_agg", "group_concat", "listagg"}


def result_tree(parts: Parts, names: list[str], alias: str, kind: str) -> Node:
    """The expression of a result over the columns of a reduction."""
    columns = [f"{quoted(alias)}.{quoted(name)}" for name in names]
    text = parts.result
    for at, each in enumerate(columns):
        text = text.replace(f"{{{at}}}", each)
    return tree(text if parts.is_typed else f"CAST({text} AS {kind})")
