"""GROUP BY and aggregates of SQL: a reduction, and expressions over its columns."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ikebana.codecs.sql_type import Array, Decimal, List, SqlType, Tuple, within
from ikebana.codecs.sql_type import type_of as sql_type
from ikebana.processor.kernels.aggregate_kinds import KINDS
from ikebana.processor.linear.allowed import aggregates
from ikebana.processor.linear.bound_query import SqlQueryError, of_no_rows, types_of
from ikebana.processor.linear.json_text import WHOLE, literal, quoted
from ikebana.processor.linear.scope import KEY
from ikebana.processor.linear.sql_functions import short_name, user_aggregate
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import (
    Node,
    changed,
    column,
    columns,
    nodes,
    own_nodes,
    text_of,
    tree,
    unplaced,
)
from ikebana.processor.planning.relations import Keys, KnownKeys
from ikebana.processor.relational.making import (
    ColumnList,
    Listed,
    Making,
    MakingError,
    Table,
    struct,
    unused_name,
)
from ikebana.processor.relational.outer_joins import Item, without_alias
from ikebana.processor.relational.rows import Sorted, in_one_direction
from ikebana.processor.relational.sql_scope import Froms
from ikebana.processor.relational.sql_whole import QueryTranslation, is_unnest, selected


class AggregateCall(NamedTuple):
    """A call of an aggregate, with SQL of its arguments."""

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
class AggregateParts:
    """An aggregate of SQL as aggregates of a reduction, and SQL over their columns."""

    aggregates: tuple[str, ...]
    result: Callable[..., str] = str
    is_typed: bool = True
    """Whether the result has its type already, so that it needs no cast."""


def is_aggregate(node: Node) -> bool:
    """Whether a node is a call of an aggregate."""
    if node["class"] != "FUNCTION":
        return False
    name = node["function_name"].lower()
    return name == "count_star" or name in aggregates() or user_aggregate(name) is not None


def calls(value: object) -> list[Node]:
    """The calls of aggregates in an expression."""
    return [node for node in own_nodes(value) if is_aggregate(node)]


def parts_of(node: Node, type_of: Callable[[str], str]) -> AggregateParts:
    """Translate a call over unqualified columns.  Raises: SqlQueryError."""
    call = _call(node, type_of)
    if node.get("export_state"):
        raise SqlQueryError("EXPORT_STATE is not supported: a state is no value", call.place)
    if user_aggregate(call.name) is not None:
        return _user_defined(call)
    if call.name in _WITHOUT_FORM or call.name not in {*_MAKERS, *aggregates()}:
        raise SqlQueryError(
            f"{call.name}() is not supported: it needs more than the values of an expression; "
            "write an aggregate of your own in Python",
            call.place,
        )
    make = _MAKERS.get(call.name, _of_values) if _is_of_numbers(call) else _of_values
    return make(call)


# Aggregates of DuckDB of several values of a row, or of a sample, which have no form here.
_WITHOUT_FORM = {"combine_aggr", "lttb", "reservoir_quantile", "variant_group_object"}
_NUMBERS = {*WHOLE, "UBIGINT", "HUGEINT", "UHUGEINT", "FLOAT", "DOUBLE", "BOOLEAN"}


def _is_of_numbers(call: AggregateCall) -> bool:
    """Whether an aggregate that takes numbers has some; DuckDB also has averages of intervals."""
    traits = KINDS.get(_ALIASES.get(call.name, call.name))
    if traits is None or traits.takes != "number":
        return True
    of = call.type_of(call.arguments[0])
    return of in _NUMBERS or isinstance(sql_type(of), Decimal)


def _call(node: Node, type_of: Callable[[str], str]) -> AggregateCall:
    arguments = tuple(text_of(with_fields(each["expression"])) for each in node["arguments"])
    orders = tuple(
        (text_of(each["expression"]), *direction(each)) for each in node["order_bys"]["orders"]
    )
    name = node["function_name"].lower()
    condition = None if node["filter"] is None else text_of(node["filter"])
    place = node.get("query_location")
    if any(each.get("name") for each in node["arguments"]):
        raise SqlQueryError(f"an argument by name of {name}() is not supported", place)
    return AggregateCall(name, arguments, node["distinct"], orders, condition, place, type_of)


def with_fields(node: Node) -> Node:
    """A row of values as a struct, since its parts need names in JSON; others stay."""
    if node["class"] != "FUNCTION" or node["function_name"] != "row":
        return node
    parts = [text_of(with_fields(each["expression"])) for each in node["arguments"]]
    return tree(struct((f"v{at}", sql) for at, sql in enumerate(parts)))


def _unnamed(sql: str, kind: SqlType, depth: int = 0) -> str:
    """SQL that turns structs back into rows of values; see `with_fields`."""
    match kind:
        case Tuple(of):
            parts = (_unnamed(f"({sql})['v{at}']", each, depth) for at, each in enumerate(of))
            return f"CASE WHEN ({sql}) IS NOT NULL THEN row({', '.join(parts)}) END"
        case List(of) if any(isinstance(each, Tuple) for each in within(of)):
            each = f"each{depth}_"
            return f"list_transform({sql}, lambda {each}: {_unnamed(each, of, depth + 1)})"
    return sql


def direction(order: Node) -> tuple[bool, bool]:
    """Whether an order is descending, and whether nulls come first; by default they come last."""
    return order["type"] == "DESCENDING", order["null_order"] in ("NULLS FIRST", "NULLS_FIRST")


def _count(call: AggregateCall) -> AggregateParts:
    if call.name == "count_star" or not call.arguments:
        return AggregateParts((f"count({call.only('1')})" if call.condition else "count(*)",))
    kind = "count" if call.name == "count" and not call.is_distinct else "distinct"
    return AggregateParts((f"{kind}({call.only(call.arguments[0])})",))


def _plain(kind: str) -> Callable[[AggregateCall], AggregateParts]:
    """An aggregate that a reduction has under this name."""
    traits = KINDS[kind]
    several = 2 if traits.is_of_pairs else 1
    is_typed = traits.type not in ("JSON", "BIGINT")

    def parts(call: AggregateCall) -> AggregateParts:
        if len(call.arguments) != several:
            named = "two arguments" if traits.is_of_pairs else "one argument"
            raise SqlQueryError(f"{call.name}() is supported with {named}", call.place)
        first, *others = call.arguments
        if traits.takes == "number" and call.type_of(first) == "BOOLEAN":
            first = f"CAST(({first}) AS INTEGER)"
        distinct = "DISTINCT " * (call.is_distinct and kind not in _ONCE)
        listed = ", ".join((call.only(first), *others))
        return AggregateParts((f"{kind}({distinct}{listed})",), is_typed=is_typed)

    return parts


def _user_defined(call: AggregateCall) -> AggregateParts:
    """A user-defined aggregate."""
    if call.orders:
        problem = f"{short_name(call.name)}() has no ORDER BY: its result depends on no order"
        raise SqlQueryError(problem, call.place)
    first, *others = call.arguments
    listed = ", ".join((call.only(first), *others))
    return AggregateParts((f"{quoted(call.name)}({'DISTINCT ' * call.is_distinct}{listed})",))


def _extreme(kind: str) -> Callable[[AggregateCall], AggregateParts]:
    """min(x) and max(x), or the list of n values of min(x, n) and max(x, n)."""

    def parts(call: AggregateCall) -> AggregateParts:
        if len(call.arguments) != 2:
            return _plain(kind)(call)
        shown, most = call.arguments
        prefix = f"{_TOP[kind]}({_most(call, most)}, {'DISTINCT ' * call.is_distinct}"
        of = f"{call.type_of(shown)}[]"
        return AggregateParts(
            (f"{prefix}{call.only(shown)})",), lambda column: f"nullif(CAST({column} AS {of}), [])"
        )

    return parts


_TOP = {"min": "bottom", "max": "top"}


def _most(call: AggregateCall, text: str) -> int:
    """How many values a call lists.  Raises: SqlQueryError."""
    if not text.isdigit() or int(text) < 1:
        problem = f"{call.name}() lists so many values as a whole number says, as in"
        raise SqlQueryError(
            f"{problem} {call.name}({', '.join(call.arguments[:-1])}, 3)", call.place
        )
    return int(text)


def _count_if(call: AggregateCall) -> AggregateParts:
    """How often a condition is true; null where it is always null, as it is a sum."""
    number = f"CAST(({call.arguments[0]}) AS INTEGER)"
    return _plain("sum")(call._replace(arguments=(number,)))


def _of_extreme(
    kind: str, *, may_be_null: bool = False, nulls_last: bool = False
) -> Callable[[AggregateCall], AggregateParts]:
    """arg_min and arg_max: the first argument in the row with the least or greatest second one.

    Rows where it is null count if it `may_be_null`; those where the second is null count with
    `nulls_last`, behind all others.  Ties take the first row by the call's ORDER BY, and without
    one the least or greatest value.
    """

    is_max = kind == "max"

    def parts(call: AggregateCall) -> AggregateParts:
        shown, by, *most = call.arguments
        there = None if nulls_last else f"({by}) IS NOT NULL"
        if not (nulls_last or may_be_null):
            there = f"{there} AND ({shown}) IS NOT NULL"
        first = (by, is_max, is_max and not nulls_last)
        ordered = call._replace(orders=(first, *call.orders))
        if not most:
            return _at_an_end(ordered, there, is_last=False)
        if call.orders:
            raise SqlQueryError(f"{call.name}(x, y, n) has no ORDER BY", call.place)
        row = _row_in_order(ordered, shown, there)
        return AggregateParts((f"{_TOP[kind]}({_most(call, most[0])}, {row.sql})",), row.values_of)

    return parts


def _any_value(call: AggregateCall) -> AggregateParts:
    """any_value: the least value that is not null, or the first one by the call's ORDER BY."""
    if not call.orders:
        return _extreme("min")(call)
    return _at_an_end(call, f"({call.arguments[0]}) IS NOT NULL", is_last=False)


def _end(*, is_last: bool) -> Callable[[AggregateCall], AggregateParts]:
    """The first or last value by the call's ORDER BY, which may be null; else min or max."""

    def parts(call: AggregateCall) -> AggregateParts:
        if not call.orders:
            return _extreme("max" if is_last else "min")(call)
        return _at_an_end(call, None, is_last=is_last)

    return parts


def _at_an_end(call: AggregateCall, there: str | None, *, is_last: bool) -> AggregateParts:
    row = _row_in_order(call, call.arguments[0], there)
    kind = "max" if row.is_turned != is_last else "min"
    return AggregateParts((f"{kind}({row.sql})",), lambda column: f"({column})['{row.last}']")


def _listed(call: AggregateCall) -> AggregateParts:
    """All values with nulls, by the call's ORDER BY, or else ordered by value."""
    return _in_order(call, call.arguments[0])


def _string(call: AggregateCall) -> AggregateParts:
    """Concatenate texts that are not null; null if the separator is null."""
    text, separator = (*call.arguments, "','")[:2]
    listed = _in_order(call, f"({text})::VARCHAR", f"({text}) IS NOT NULL")
    return replace(
        listed,
        result=lambda column: (
            f"CASE WHEN ({separator}) IS NOT NULL "
            f"THEN array_to_string({listed.result(column)}, {separator}) END"
        ),
    )


_OTHER_ORDER = (
    "an aggregate with DISTINCT is ordered by its argument alone, since one value may be in "
    "several rows; write list(DISTINCT x ORDER BY x), or leave DISTINCT out"
)


class _Row(NamedTuple):
    """A struct that orders values; if `is_turned`, in the opposite direction."""

    sql: str
    kind: str
    last: str
    """The field with the value."""
    is_turned: bool

    def values_of(self, rows: str) -> str:
        """SQL of the values in a list of such structs; null if there are none."""
        each = f"list_transform(CAST({rows} AS {self.kind}[]), lambda each_: each_['{self.last}'])"
        return f"nullif({each}, [])"


def _row_in_order(call: AggregateCall, shown: str, there: str | None) -> _Row:
    """A struct for each value where `there` is true, ordered by the call's ORDER BY."""
    orders = [
        Sorted(sql, call.type_of(sql), descending, nulls_first, sql)
        for sql, descending, nulls_first in call.orders
    ]
    try:
        parts, kinds, is_turned = in_one_direction(orders)
    except MakingError as error:
        raise SqlQueryError(str(error), call.place) from None
    parts.append(shown)
    kinds.append(call.type_of(shown))
    row = struct((f"o{at}", sql) for at, sql in enumerate(parts))
    listed = ", ".join(f"o{at} {kind}" for at, kind in enumerate(kinds))
    whole = row if there is None else f"CASE WHEN {there} THEN {row} END"
    return _Row(call.only(whole), f"STRUCT({listed})", f"o{len(parts) - 1}", is_turned)


def _in_order(call: AggregateCall, shown: str, there: str | None = None) -> AggregateParts:
    """The list of values where `there` is true, by the call's ORDER BY; null if there are none."""
    if call.is_distinct and any(sql != call.arguments[0] for sql, *_ in call.orders):
        raise SqlQueryError(_OTHER_ORDER, call.place)
    row = _row_in_order(call, shown, there)

    def result(column: str) -> str:
        whole = f"CAST({column} AS {row.kind}[])"
        return row.values_of(f"list_reverse({whole})" if row.is_turned else whole)

    return AggregateParts((f"list({'DISTINCT ' * call.is_distinct}{row.sql})",), result)


def _quantile(name: str, *, is_typed: bool = True) -> Callable[[AggregateCall], AggregateParts]:
    """A quantile of the values that are not null; DESC counts from the greatest value."""

    def parts(call: AggregateCall) -> AggregateParts:
        shown, *fraction = call.arguments
        if call.orders:
            (sql, descending, _), *more = call.orders
            if not fraction:
                # WITHIN GROUP (ORDER BY …)
                shown, fraction = sql, [shown]
            if more or sql != shown:
                raise SqlQueryError(
                    f"ORDER BY in {call.name}() is supported by its argument alone, as in "
                    f"{call.name}({shown}, {fraction[0]} ORDER BY {shown} DESC)",
                    call.place,
                )
            fraction = [_negated(each, call) for each in fraction] if descending else fraction
        return _of_list(call, name, shown, fraction, is_typed=is_typed)

    return parts


def _of_values(call: AggregateCall) -> AggregateParts:
    """An aggregate that DuckDB computes from the list of values, in the call's ORDER BY.

    Further arguments have to be the same in all rows, as DuckDB itself says.
    """
    shown, *more = call.arguments or (call.orders[0][0],)
    for each in more:
        if columns(tree(each)):
            problem = f"all arguments of {call.name}() but the first are constants; {each} is none"
            raise SqlQueryError(problem, call.place)
    if not any(sql != shown for sql, *_ in call.orders):
        is_turned = any(descending for _, descending, _ in call.orders)
        return _of_list(call, call.name, shown, more, is_turned=is_turned)
    listed = _in_order(call, shown)
    return replace(
        listed, result=lambda column: _aggregated(listed.result(column), call.name, more)
    )


def _of_list(
    call: AggregateCall,
    name: str,
    shown: str,
    more: Sequence[str],
    *,
    is_typed: bool = True,
    is_turned: bool = False,
) -> AggregateParts:
    """DuckDB's `list_aggregate` over the ordered list of values."""
    of = f"{call.type_of(shown)}[]"

    def result(column: str) -> str:
        values = f"CAST({column} AS {of})"
        return _aggregated(f"list_reverse({values})" if is_turned else values, name, more)

    return AggregateParts(
        (f"list({'DISTINCT ' * call.is_distinct}{call.only(shown)})",), result, is_typed=is_typed
    )


def _aggregated(values: str, name: str, more: Sequence[str]) -> str:
    return f"list_aggregate({', '.join((values, literal(name), *more))})"


def _negated(fraction: str, call: AggregateCall) -> str:
    """SQL of a fraction, or of a list of fractions, that counts from the greatest value.

    Such fractions are negative.  Zero has no sign, so a number just below zero replaces it.
    """
    turned = "CASE WHEN {0} = 0 THEN -0.000000000000000001 ELSE -({0}) END"
    if isinstance(sql_type(call.type_of(fraction)), List | Array):
        return f"list_transform({fraction}, lambda each_: {turned.format('each_')})"
    return turned.format(fraction)


# Aggregates with a result that does not depend on how often a value occurs.
_ONCE = {"bool_or", "bool_and", "bit_or", "bit_and", "min", "max"}
_ALIASES = {
    **dict.fromkeys(("fsum", "kahan_sum", "sumkahan"), "sum"),
    "mean": "avg",
    "variance": "var_samp",
    "stddev": "stddev_samp",
}
# Aggregates of reductions that SQL does not have, or that have a row of their own below.
_NOT_PLAIN = {"top", "bottom", "distinct", "list", "count", "min", "max"}

_MAKERS: Mapping[str, Callable[[AggregateCall], AggregateParts]] = {
    **{name: _plain(name) for name in KINDS if name not in _NOT_PLAIN},
    **dict.fromkeys(("count", "count_star", "approx_count_distinct"), _count),
    **dict.fromkeys(("count_if", "countif"), _count_if),
    **{name: _plain(kind) for name, kind in _ALIASES.items()},
    **dict.fromkeys(("list", "array_agg"), _listed),
    **dict.fromkeys(("string_agg", "group_concat", "listagg"), _string),
    **{name: _quantile(name) for name in ("quantile_cont", "quantile_disc")},
    "quantile": _quantile("quantile_disc"),
    "approx_quantile": _quantile("quantile_cont", is_typed=False),
    "min": _extreme("min"),
    "max": _extreme("max"),
    "any_value": _any_value,
    **dict.fromkeys(("first", "arbitrary"), _end(is_last=False)),
    "last": _end(is_last=True),
    **dict.fromkeys(("arg_min", "min_by", "argmin"), _of_extreme("min")),
    **dict.fromkeys(("arg_max", "max_by", "argmax"), _of_extreme("max")),
    "arg_min_null": _of_extreme("min", may_be_null=True),
    "arg_max_null": _of_extreme("max", may_be_null=True),
    "arg_min_nulls_last": _of_extreme("min", nulls_last=True),
    "arg_max_nulls_last": _of_extreme("max", nulls_last=True),
}


def result_tree(parts: AggregateParts, names: list[str], alias: str, kind: str) -> Node:
    """The expression of a result over the columns of a reduction."""
    text = parts.result(*(f"{quoted(alias)}.{quoted(name)}" for name in names))
    of = sql_type(kind)
    if any(isinstance(each, Tuple) for each in within(of)):
        return tree(_unnamed(text, of))
    return tree(text if parts.is_typed else f"CAST({text} AS {kind})")


@dataclass(frozen=True, slots=True)
class Grouped:
    """A reduction as an item of FROM, and the rewriting of expressions over its columns."""

    item: Item
    replacements: tuple[tuple[Node, Node], ...]
    """Pairs of an expression of GROUP BY or a call of an aggregate, and its replacement."""

    def over(self, node: Node) -> Node:
        """Rewrite an expression of the query as one over the reduction.  Raises: SqlQueryError."""

        def change(node: Node) -> Node | None:
            plain = unplaced(node)
            result = next((other for each, other in self.replacements if each == plain), None)
            if result is None and node["class"] == "COLUMN_REF":
                result = self._part(plain)
            # A name alone is a parameter of a lambda.
            if result is None and node["class"] == "COLUMN_REF" and len(node["column_names"]) > 1:
                name = ".".join(node["column_names"][1:])
                problem = f'"{name}" is neither grouped by nor in an aggregate'
                raise SqlQueryError(problem, node.get("query_location"))
            return result

        result: Node = changed(node, change)
        return result

    def _part(self, node: Node) -> Node | None:
        """The replacement of a field of a struct that rows are grouped by."""
        *names, part = node["column_names"]
        if len(names) < 2:
            return None
        whole = {**node, "column_names": names}
        result = next((other for each, other in self.replacements if each == whole), None)
        result = self._part(whole) if result is None else result
        return result and {**result, "column_names": [*result["column_names"], part]}

    def with_names_of(self, item: Item) -> Item:
        """The item of the reduction; grouping columns keep the names they have in `item`."""
        stands = {
            tuple(each["column_names"]): other["column_names"][1]
            for each, other in self.replacements
            if each["class"] == other["class"] == "COLUMN_REF"
        }
        columns, hidden = (
            tuple(
                (of, name, stands[item.alias, field])
                for of, name, field in every
                if (item.alias, field) in stands
            )
            for every in (item.columns, item.hidden)
        )
        return replace(self.item, columns=columns, hidden=hidden)


def grouped(
    query: QueryTranslation,
    item: Item,
    groups: Listed,
    asked: Sequence[Node],
    *,
    sets: Sequence[Collection[int]] = (),
    of_none: bool = False,
) -> Grouped:
    """Group an item by expressions, and compute all aggregates in the expressions `asked`.

    `sets` are the grouping sets, if there are several: for each the positions of its groups.  With
    `of_none`, null columns of the reduction give the aggregates of no rows.
    """
    used: set[str] = set()
    alias = query.free_alias("g")
    item, of_elements = _with_elements(query, item, groups)
    by, replacements = _groups(item, groups, of_elements, alias, used)
    of_groups = [each for each, _ in replacements]
    calls_known, named = _aggregates(item, asked, of_groups, alias, used, of_none=of_none)
    if not named:
        # A group exists while it has a row, so it needs a count.
        named["count(*)"] = unused_name("count_star", used)
    aggregates = [(name, text) for text, name in named.items()]
    absent = unused_name("absent", used)
    replacements += calls_known + _groupings(
        groups, asked, column(alias, absent) if sets else None
    )
    making = query.making
    if not sets:
        present = [each for each in by if each is not None]
        # Without GROUP BY the result is one row even if there are no rows.
        relation = making.reduce(
            item.relation, "groups", present, aggregates, total=not groups, minimal=True
        )
    else:
        relation = _of_sets(making, item.relation, by, aggregates, sets, absent)
    return Grouped(Item(alias, relation), tuple(replacements))


_By = tuple[str, str, str]
"""A grouping column, its SQL and its type."""
_Replacements = list[tuple[Node, Node]]


def _with_elements(
    query: QueryTranslation, item: Item, groups: Listed
) -> tuple[Item, Callable[[Node], Node]]:
    """The item with a column for each list that groups unnest; and what replaces these lists."""
    lists = [each for each in own_nodes([node for _, node in groups]) if is_unnest(each)]
    if not lists:
        return item, lambda node: node
    columns = ColumnList([(name, column(item.alias, name)) for name in item.relation.types])
    fields = [(unplaced(each), columns.of(each, "element")) for each in lists]
    relation = selected(query, Froms([item]), columns.listed, "elements")

    def change(node: Node) -> Node | None:
        plain = unplaced(node)
        return next((column(item.alias, name) for each, name in fields if each == plain), None)

    return replace(item, relation=relation), lambda node: changed(node, change)


def _groups(
    item: Item,
    groups: Listed,
    of_elements: Callable[[Node], Node],
    alias: str,
    used: set[str],
) -> tuple[list[_By | None], _Replacements]:
    """The grouping columns by position, and the replacements of their expressions."""
    by_sql = [text_of(without_alias(item.alias, of_elements(node))) for _, node in groups]
    by: list[_By | None] = []
    replacements: _Replacements = []
    types = types_of(by_sql, item.relation.keyed())
    for (name, node), sql, kind in zip(groups, by_sql, types, strict=True):
        if kind == '"NULL"':
            # A constant null has no type, and all rows have the same.
            by.append(None)
            replacements.append((unplaced(node), tree("NULL")))
            continue
        name = unused_name(name, used)
        by.append((name, sql, kind))
        replacements.append((unplaced(node), column(alias, name)))
    return by, replacements


def _aggregates(
    item: Item,
    asked: Sequence[Node],
    groups: Sequence[Node],
    alias: str,
    used: set[str],
    *,
    of_none: bool,
) -> tuple[_Replacements, dict[str, str]]:
    """The replacements of calls, and the columns of the reduction's aggregates, by their SQL."""
    columns = item.relation.keyed()
    replacements: _Replacements = []
    named: dict[str, str] = {}
    for call in (call for node in asked for call in calls(node)):
        if unplaced(call) in groups or any(unplaced(call) == each for each, _ in replacements):
            continue
        inner = [each for each in nodes(call["arguments"]) if is_aggregate(each)]
        if inner:
            raise SqlQueryError(
                "an aggregate of an aggregate is not supported", inner[0].get("query_location")
            )
        unqualified = without_alias(item.alias, call)
        parts = parts_of(unqualified, lambda sql: types_of([sql], columns)[0])
        for text in parts.aggregates:
            if text not in named:
                named[text] = unused_name(short_name(call["function_name"].lower()), used)
        (kind,) = types_of([text_of(unqualified)], columns)
        names = [named[text] for text in parts.aggregates]
        result = result_tree(parts, names, alias, kind)
        replacements.append(
            (unplaced(call), _of_none(result, unqualified, columns, kind) if of_none else result)
        )
    return replacements, named


def _groupings(groups: Listed, asked: Sequence[Node], absent: Node | None) -> _Replacements:
    """Replacements of grouping(…): a bit for each argument that is absent in the grouping set.

    `absent` is the column with a bit for each absent group; None if there is only one set.
    """
    places = [unplaced(node) for _, node in groups]
    replacements: _Replacements = []
    for call in (each for each in own_nodes(list(asked)) if each["type"] == "GROUPING_FUNCTION"):
        terms = ["0::BIGINT"]
        for bit, argument in enumerate(reversed(call["children"])):
            if absent is not None:
                place = places.index(unplaced(argument))
                terms.append(f"((({text_of(absent)} >> {place}) & 1) << {bit})")
        replacements.append((unplaced(call), tree(" + ".join(terms))))
    return replacements


def _of_none(result: Node, call: Node, columns: Mapping[str, str], kind: str) -> Node:
    """The result of a call, with the aggregate of no rows in place of null."""
    value = of_no_rows(text_of(call), columns)
    if value is None:
        return result
    return tree(f"coalesce({text_of(result)}, CAST({literal(value)} AS {kind}))")


def _of_sets(
    making: Making,
    source: Table,
    by: Sequence[_By | None],
    aggregates: Sequence[tuple[str, str]],
    sets: Sequence[Collection[int]],
    absent: str,
) -> Table:
    """The sum of one reduction for each grouping set; groups outside of the set are null.

    Each is a reduction of its own, which a view with the same GROUP BY shares.
    """
    tables = []
    columns = [each for each in by if each is not None]
    for members in sets:
        present = [each for at in sorted(members) if (each := by[at]) is not None]
        reduced = making.reduce(
            source, "groups", present, aggregates, total=not members, minimal=True
        )
        number = sum(1 << at for at in range(len(by)) if at not in members)
        groups = [
            (name, quoted(name) if (name, sql, kind) in present else f"NULL::{kind}")
            for name, sql, kind in columns
        ]
        select = (
            *groups,
            *((name, quoted(name)) for name, _ in aggregates),
            (absent, f"{number}::BIGINT"),
        )
        key = struct([(absent, str(number)), *groups])
        tables.append(making.linear(reduced, "groups.set", Sql(select=select, key=key)))
    keys = Keys()
    if len({frozenset(members) for members in sets}) == len(sets):
        names = [absent, *(name for name, *_ in columns)]
        own_key, of_row = frozenset(names), frozenset((KEY,))
        keys = keys.with_unique(names, [KEY, *tables[0].types])
        keys = keys.with_dependencies([(own_key, of_row), (of_row, own_key)])
    return making.together("groups.sets", *tables, facts=KnownKeys(keys, keys))
