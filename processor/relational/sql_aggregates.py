"""GROUP BY and aggregates of SQL: a reduction, and expressions over what it gives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ikebana.codecs.sql_type import Array, Decimal, List, type_of
from ikebana.processor.linear.allowed import aggregates
from ikebana.processor.linear.bound_query import QueryError, types_of
from ikebana.processor.linear.json_text import WHOLE, quoted
from ikebana.processor.linear.syntax import Node, text_of, tree
from ikebana.processor.linear.trees import bare, changed, column, nodes, own_nodes
from ikebana.processor.relational.making import struct
from ikebana.processor.relational.matching import without
from ikebana.processor.relational.sql_scope import Item
from ikebana.processor.relational.sql_whole import Listed, Query, free


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
    """What an aggregate is made of: an aggregate of a reduction, and SQL over its column."""

    aggregates: tuple[str]
    result: Callable[[str], str] = str
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
    if call.name in _UNORDERED:
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
    """How often a condition is true; null where it is always null, as it is a sum."""
    return Parts((f"sum({call.only(f'CAST(({call.arguments[0]}) AS INTEGER)')})",), is_typed=False)


def _of_extreme(kind: str) -> Callable[[Call], Parts]:
    """The argument where another is least or greatest.

    Of several it is the first in the order of its ORDER BY, or else the least or greatest.
    """

    def made(call: Call) -> Parts:
        if len(call.arguments) != 2:
            raise QueryError(f"{call.name}() is supported with two arguments", call.place)
        shown, by = call.arguments
        pair = struct((("by", by), ("is", shown)))
        there = f"({by}) IS NOT NULL AND ({shown}) IS NOT NULL"
        if not call.orders:
            whole = f"CASE WHEN {there} THEN {pair} END"
            return Parts((f"{kind}({call.only(whole)})",), lambda column: f"({column})['is']")
        listed = _in_order(call, pair, there)
        sign = "<" if kind == "min" else ">"
        better = f"CASE WHEN other_['by'] {sign} one_['by'] THEN other_ ELSE one_ END"
        return Parts(
            (listed.aggregate,),
            lambda column: (
                f"list_reduce({listed.of(column)}, lambda one_, other_: {better})['is']"
            ),
        )

    return made


def _any_value(call: Call) -> Parts:
    """A value that is not null: the least, or the first in the order of its ORDER BY."""
    if not call.orders:
        return _plain("min")(call)
    return _at_an_end(call, f"({call.arguments[0]}) IS NOT NULL", is_last=False)


def _end(*, is_last: bool) -> Callable[[Call], Parts]:
    """The first or the last value in an order, which may be null."""

    def made(call: Call) -> Parts:
        if len(call.arguments) != 1 or not call.orders:
            raise QueryError(
                f"{call.name}() is supported with one argument and an order, as in "
                f"{call.name}(x ORDER BY y)",
                call.place,
            )
        return _at_an_end(call, None, is_last=is_last)

    return made


def _at_an_end(call: Call, there: str | None, *, is_last: bool) -> Parts:
    row = _row_in_order(call, call.arguments[0], there)
    kind = "max" if row.is_turned != is_last else "min"
    return Parts((f"{kind}({row.sql})",), lambda column: f"({column})['{row.last}']")


def _listed(call: Call) -> Parts:
    """All values in their order, nulls among them; without an order, in that of the values."""
    listed = _in_order(call, call.arguments[0])
    return Parts((listed.aggregate,), listed.of)


def _string(call: Call) -> Parts:
    """Texts that are not null, one behind another; null where what separates them is null."""
    if call.is_distinct:
        raise QueryError(f"{call.name}(DISTINCT …) is not supported", call.place)
    text, separator = (*call.arguments, "','")[:2]
    listed = _in_order(call, f"({text})::VARCHAR", f"({text}) IS NOT NULL")
    return Parts(
        (listed.aggregate,),
        lambda column: (
            f"CASE WHEN ({separator}) IS NOT NULL "
            f"THEN array_to_string({listed.of(column)}, {separator}) END"
        ),
    )


class _Row(NamedTuple):
    """A struct to order values by; if it is turned, they are read backwards."""

    sql: str
    kind: str
    last: str
    """The field with the value."""
    is_turned: bool


def _row_in_order(call: Call, shown: str, there: str | None) -> _Row:
    """A row for each value of which `there` is true, by the order of a call."""
    ways = {descending for _, descending, _ in call.orders}
    if len(ways) > 1:
        raise QueryError("ORDER BY in two directions in an aggregate is not supported", call.place)
    is_turned = ways == {True}
    parts = []
    for sql, _, nulls_first in call.orders:
        # In a struct nulls come last; the order may be turned around.
        parts += [f"({sql}) IS NOT NULL"] * (nulls_first != is_turned) + [sql]
    parts.append(shown)
    row = struct((f"o{at}", sql) for at, sql in enumerate(parts))
    kinds = ", ".join(f"o{at} {call.type_of(sql)}" for at, sql in enumerate(parts))
    whole = row if there is None else f"CASE WHEN {there} THEN {row} END"
    return _Row(call.only(whole), f"STRUCT({kinds})", f"o{len(parts) - 1}", is_turned)


class _InOrder(NamedTuple):
    """An aggregate that lists values in an order, and SQL of the list; null if there are none."""

    aggregate: str
    of: Callable[[str], str]


def _in_order(call: Call, shown: str, there: str | None = None) -> _InOrder:
    """The values of which `there` is true."""
    row = _row_in_order(call, shown, there)

    def of(column: str) -> str:
        whole = f"CAST({column} AS {row.kind}[])"
        whole = f"list_reverse({whole})" if row.is_turned else whole
        return f"nullif(list_transform({whole}, lambda each_: each_['{row.last}']), [])"

    return _InOrder(f"list({row.sql})", of)


def _quantile(name: str) -> Callable[[Call], Parts]:
    """What DuckDB makes of the list of all values that are not null.

    The order of a quantile says from which end it counts; the median has no such end.
    """

    def made(call: Call) -> Parts:
        shown, *fraction = call.arguments
        if call.orders and name != "median":
            (sql, descending, _), *more = call.orders
            if not fraction:
                # WITHIN GROUP (ORDER BY …)
                shown, fraction = sql, [shown]
            if more or sql != shown:
                raise QueryError(
                    f"ORDER BY in {call.name}() is supported by its argument alone, as in "
                    f"{call.name}({shown}, {fraction[0]} ORDER BY {shown} DESC)",
                    call.place,
                )
            fraction = [_negated(each, call) for each in fraction] if descending else fraction
        kind = call.type_of(shown)
        given = "".join(f", {each}" for each in fraction)
        return Parts(
            (f"list({call.only(shown)})",),
            lambda column: f"list_aggregate(CAST({column} AS {kind}[]), '{name}'{given})",
        )

    return made


def _negated(fraction: str, call: Call) -> str:
    """SQL of a fraction, or of a list of fractions, below zero, which is one from the end."""
    if isinstance(type_of(call.type_of(fraction)), List | Array):
        return f"list_transform({fraction}, lambda each_: -each_)"
    return f"-({fraction})"


_MADE: Mapping[str, Callable[[Call], Parts]] = {
    "count": _count,
    "count_star": _count,
    **dict.fromkeys(("count_if", "countif"), _count_if),
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
    "any_value": _any_value,
    **dict.fromkeys(("first", "arbitrary"), _end(is_last=False)),
    "last": _end(is_last=True),
    "bool_or": _plain("bool_or"),
    "bool_and": _plain("bool_and"),
    **dict.fromkeys(("arg_min", "min_by", "argmin"), _of_extreme("min")),
    **dict.fromkeys(("arg_max", "max_by", "argmax"), _of_extreme("max")),
}
_DISTINCT = {"count", "min", "max", "bool_or", "bool_and", "any_value"}
# Those that come to the same in any order.
_UNORDERED = {
    *("count", "count_star", "count_if", "countif", "sum", "avg", "mean", "min", "max"),
    *("var_samp", "var_pop", "variance", "stddev_samp", "stddev_pop", "stddev"),
    *("bool_or", "bool_and", "median"),
}


def result_tree(parts: Parts, names: list[str], alias: str, kind: str) -> Node:
    """The expression of a result over the columns of a reduction."""
    (column,) = (f"{quoted(alias)}.{quoted(name)}" for name in names)
    text = parts.result(column)
    return tree(text if parts.is_typed else f"CAST({text} AS {kind})")


@dataclass(frozen=True, slots=True)
class Grouped:
    """A reduction as an item, and what expressions over its rows become over its columns."""

    item: Item
    known: tuple[tuple[Node, Node], ...]
    """What is grouped by, and calls of aggregates, without places; and what stands for them."""

    def over(self, node: Node) -> Node:
        """An expression over groups and aggregates.  Raises: QueryError."""

        def change(found: Node) -> Node | None:
            plain = bare(found)
            made = next((made for each, made in self.known if each == plain), None)
            if made is None and found["class"] == "COLUMN_REF":
                made = self._part(plain)
            # A name alone is a parameter of a lambda.
            if made is None and found["class"] == "COLUMN_REF" and len(found["column_names"]) > 1:
                name = ".".join(found["column_names"][1:])
                problem = f'"{name}" is neither grouped by nor in an aggregate'
                raise QueryError(problem, found.get("query_location"))
            return made

        made: Node = changed(node, change)
        return made

    def _part(self, node: Node) -> Node | None:
        """What stands for a part of a struct that is grouped by."""
        *names, part = node["column_names"]
        if len(names) < 2:
            return None
        whole = {**node, "column_names": names}
        made = next((made for each, made in self.known if each == whole), None)
        made = self._part(whole) if made is None else made
        return made and {**made, "column_names": [*made["column_names"], part]}

    def with_names_of(self, item: Item) -> Item:
        """The reduction, in which columns that are grouped by have the names of another item."""
        stands = {
            tuple(each["column_names"]): made["column_names"][1]
            for each, made in self.known
            if each["class"] == made["class"] == "COLUMN_REF"
        }
        columns = [
            (of, name, stands[item.alias, field])
            for of, name, field in item.columns
            if (item.alias, field) in stands
        ]
        return replace(self.item, columns=tuple(columns))


def grouped(
    query: Query, item: Item, groups: Listed, asked: Sequence[Node], what: str = "groups"
) -> Grouped:
    """Group an item by expressions, and compute all aggregates that are in what is asked for."""
    columns = item.relation.keyed()
    by_sql = [text_of(without(item.alias, node)) for _, node in groups]
    by_types = types_of(by_sql, columns)
    used: set[str] = set()
    alias = query.free_alias("g")
    by: list[tuple[str, str, str]] = []
    known: list[tuple[Node, Node]] = []
    for (name, node), sql, kind in zip(groups, by_sql, by_types, strict=True):
        if kind == '"NULL"':
            # What is always null has no type, and tells no rows apart.
            known.append((bare(node), tree("NULL")))
            continue
        by.append((free(name, used), sql, kind))
        known.append((bare(node), column(alias, by[-1][0])))
    named: dict[str, str] = {}
    for call in (call for node in asked for call in calls(node)):
        if any(bare(call) == each for each, _ in known):
            continue
        inner = [each for each in nodes(call["arguments"]) if is_aggregate(each)]
        if inner:
            raise QueryError(
                "an aggregate of an aggregate is not supported", inner[0].get("query_location")
            )
        own = without(item.alias, call)
        parts = parts_of(own, lambda sql: types_of([sql], columns)[0])
        for text in parts.aggregates:
            if text not in named:
                named[text] = free(call["function_name"].lower(), used)
        (kind,) = types_of([text_of(own)], columns)
        _refuse_other_types(call, own, kind, columns)
        names = [named[text] for text in parts.aggregates]
        known.append((bare(call), result_tree(parts, names, alias, kind)))
    if not named:
        # A group is there as long as it has a row.
        named["count(*)"] = free("count_star", used)
    aggregates = [(name, text) for text, name in named.items()]
    # Without groups SQL has one row, also of no rows.
    relation = query.making.reduce(
        item.relation, what, by, aggregates, total=not groups, minimal=True
    )
    return Grouped(Item(alias, relation), tuple(known))


_NUMBERS = {*WHOLE, "UBIGINT", "HUGEINT", "UHUGEINT", "FLOAT", "DOUBLE"}


def _refuse_other_types(call: Node, own: Node, kind: str, columns: dict[str, str]) -> None:
    """Refuse sums, averages and the like of what are no numbers, such as intervals or booleans."""
    name = call["function_name"].lower()
    if name not in ("sum", "avg", "mean") and not name.startswith(("var", "stddev")):
        return
    (of,) = types_of([text_of(own["arguments"][0]["expression"])], columns)
    if of not in _NUMBERS and not isinstance(type_of(of), Decimal):
        raise QueryError(
            f"{call['function_name']}() of {of} is not supported; cast it to a number",
            call.get("query_location"),
        )
