"""The kinds of joins in FROM: USING and NATURAL, outer ones, semi-joins and anti-joins, ASOF.

ASOF JOIN joins each row of the left with the one row of the right that is nearest in an order.

The right of `t ASOF JOIN p ON t.symbol = p.symbol AND t.at >= p.at` becomes spans: window
functions over the rows of each symbol, ordered by `p.at`, give each row the `at` of its successor.
An ordinary join then gives each row of the left the right row with a span that covers it.  So no
state has all pairs, and a new row of the right changes two spans.

Where further conditions read both sides, the join keeps all pairs for which they are true, and a
reduction keeps the best pair of each row of the left.

Of right rows with the same symbol and order, the first by their columns is taken.  DuckDB takes
any of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ikebana.processor.kernels.window_values import End, Frame, FrameBound, Offset
from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.syntax import TURNED, Node, column, shown, text_of, tree
from ikebana.processor.relational.making import Listed, Table, struct, unused_name
from ikebana.processor.relational.outer_joins import (
    Conditions,
    Item,
    Outer,
    aliases_of,
    anti_join,
    by_side,
    equality,
    identity_of,
    keys_of,
    null_safe,
    of_compared_type,
    outer_join,
    outer_of,
    semi_join,
    without_alias,
)
from ikebana.processor.relational.rows import Order, first_rows, set_operation, union_all
from ikebana.processor.relational.sql_over import Over, WindowResult, with_functions
from ikebana.processor.relational.sql_scope import Froms, Merged, Names
from ikebana.processor.relational.sql_whole import QueryTranslation

OUTER: dict[str, Outer] = {"LEFT": "left", "RIGHT": "right", "OUTER": "full", "FULL": "full"}
HALF = ("SEMI", "ANTI")
# How the left's value compares to the begin of the span that it is in, and to its end.
_BOUNDS = {
    "COMPARE_GREATERTHAN": (">", "<="),
    "COMPARE_GREATERTHANOREQUALTO": (">=", "<"),
    "COMPARE_LESSTHAN": ("<", ">="),
    "COMPARE_LESSTHANOREQUALTO": ("<=", ">"),
}

# The frame of the rows with the next value of the order.
_NEXT = Frame("groups", FrameBound("following", 1), FrameBound("following", 1))


def using(node: Node, left: Froms, right: Froms) -> list[Node]:
    """The equalities of USING and NATURAL.  Raises: SqlQueryError."""
    first, second = Names(left), Names(right)
    return [
        equality(first.resolved(column(name)), second.resolved(column(name)))
        for name in _names(node, left, right)
    ]


def columns_of_using(node: Node, left: Froms, right: Froms) -> Merged:
    """The columns of USING; each pair becomes one column of the result.

    It is the column of the left, or a column of its own if a row may have no left side.
    """
    columns = left.merged | right.merged
    for name in _names(node, left, right):
        pairs = [columns.get(pair, pair) for pair in (left.named(name), right.named(name))]
        may_lack = OUTER.get(node["join_type"]) in ("right", "full")
        one = ("", name.lower()) if may_lack else pairs[0]
        columns |= dict.fromkeys([*pairs, one], one)
        columns |= {each: one for each, by in columns.items() if by in pairs}
    return columns


def outer(
    query: QueryTranslation,
    kind: Outer,
    left: Item,
    right: Item,
    conditions: Sequence[Node],
    of: Merged,
    tested: Callable[[Item], Item] | None = None,
) -> Item:
    """An outer join as one collection.

    `tested` filters the pairs for which the conditions are true by further conditions.
    """
    selection = query.selection([left, right])
    listed, columns = list(selection.listed), list(selection.columns)
    if kind != "left":
        _add_merged(kind, listed, columns, of)
    if tested is None:
        on = by_side(conditions, {left.alias}, {right.alias})
        relation = outer_join(query.making, left, right, on, listed, kind)
    else:
        pairs = query.selected(Froms([left, right], [*conditions]), listed, "both")
        alias = query.free_alias("both")
        matched = tested(Item(alias, pairs, tuple(columns), selection.hidden))
        relation = outer_of(query.making, left, right, matched, listed, kind)
    return Item(query.free_alias(kind), relation, tuple(columns), selection.hidden)


def semi_or_anti(
    query: QueryTranslation,
    join: str,
    left: Froms,
    right: Item,
    on: Callable[[Froms], Sequence[Node]],
    tested: Callable[[Item], Item] | None = None,
) -> Froms:
    """The rows of the left with a match in the right (SEMI), or without one (ANTI).

    `on` returns the conditions over a left, since the left may have to become one collection;
    `tested` is as in an outer join.
    """
    if tested is not None:
        one = query.one(left, "joined")
        side, conditions = _tested_pairs(query, one.items[0], right, on(one), tested)
        return _matching(query, join, one, side, conditions)
    conditions = by_side(on(left), {each.alias for each in left.items}, {right.alias})
    if join == "SEMI" and not conditions.others and not conditions.left:
        equalities, keys = keys_of(query.making, left.items, right, conditions, "semi")
        items = [*left.items, Item(right.alias, keys)]
        return Froms(items, [*left.conditions, *equalities], left.merged)
    one = query.one(left, "joined")
    (first,) = one.items
    return _matching(query, join, one, right, by_side(on(one), {first.alias}, {right.alias}))


def _matching(
    query: QueryTranslation, join: str, left: Froms, right: Item, on: Conditions
) -> Froms:
    """The rows of one collection that meet a row of the right, or those that meet none."""
    (first,) = left.items
    take = semi_join if join == "SEMI" else anti_join
    relation = take(query.making, first, right, on, "half")
    return left.of_one(replace(first, relation=relation))


def _tested_pairs(
    query: QueryTranslation,
    left: Item,
    right: Item,
    conditions: Sequence[Node],
    tested: Callable[[Item], Item],
) -> tuple[Item, Conditions]:
    """Pairs that match by all conditions, and by what rows of the left meet theirs."""
    selection = query.selection([left, right])
    used = {name.lower() for name, _ in selection.listed}
    left_columns = [(unused_name(name, used), node) for name, node in identity_of(left)]
    listed = [*selection.listed, *left_columns]
    pairs = query.selected(Froms([left, right], [*conditions]), listed, "both")
    alias = query.free_alias("both")
    matched = tested(Item(alias, pairs, tuple(selection.columns), selection.hidden))
    by = null_safe([(of, column(matched.alias, name)) for name, of in left_columns])
    return matched, Conditions((), (), by, ())


def refuse_join(node: Node) -> None:
    """Refuse the kinds of joins that are not supported.  Raises: SqlQueryError."""
    place, ref, join = node.get("query_location"), node["ref_type"], node["join_type"]
    if ref == "POSITIONAL":
        raise SqlQueryError("POSITIONAL JOIN is by an order, which collections do not have", place)
    if ref not in ("REGULAR", "CROSS", "NATURAL", "ASOF"):
        raise SqlQueryError(
            f"{ref} JOIN is not supported; write JOIN … ON, with the columns", place
        )
    if join not in (*OUTER, *HALF, "INNER"):
        raise SqlQueryError(f"{join} JOIN is not supported; write WHERE [NOT] EXISTS (…)", place)


def _names(node: Node, left: Froms, right: Froms) -> list[str]:
    """The columns of USING; for a NATURAL JOIN, those that both sides have."""
    if node["ref_type"] != "NATURAL":
        return list(node["using_columns"])
    others = {name.lower() for name in right.names()}
    common = {name.lower(): name for name in left.names() if name.lower() in others}
    if not common:
        raise SqlQueryError(
            "NATURAL JOIN needs a column of one name on both sides; write JOIN … ON",
            node.get("query_location"),
        )
    return list(common.values())


def _add_merged(
    kind: Outer, listed: Listed, columns: list[tuple[str, str, str]], merged: Merged
) -> None:
    """Add the columns of USING that combine both sides, before the columns they combine."""
    trees = dict(listed)
    used = {name.lower() for name in trees}
    for one in [each for each, by in merged.items() if each == by and not each[0]]:
        parts = [
            (at, each)
            for at, each in enumerate(columns)
            if merged.get((each[0].lower(), each[1].lower())) == one
        ]
        if not parts:
            continue
        sides = [trees[field] for _, (of, _, field) in parts if of]
        # In a right join each row has a right side, so its column comes first.
        either = {**tree("coalesce(a)"), "children": sides if kind == "full" else sides[::-1]}
        at, (_, name, _) = parts[0]
        listed.append((unused_name(name, used), either))
        columns.insert(at, ("", name, listed[-1][0]))


@dataclass(frozen=True, slots=True)
class _Order:
    """The one comparison of an ASOF JOIN that is no equality."""

    left: Node
    right: Node
    comparison: str

    @property
    def is_before(self) -> bool:
        """Whether the matching row of the right comes before the row of the left."""
        return self.comparison.startswith("COMPARE_GREATERTHAN")


def as_of(
    query: QueryTranslation,
    left: Item,
    right: Item,
    conditions: Sequence[Node],
    place: int | None,
    *,
    keeps_right: bool,
) -> tuple[Item, list[Node]]:
    """The spans of the right, and the conditions that join a row of the left with its span.

    With `keeps_right`, rows of the right that no row can meet are there too, without a span.
    Raises: QueryError.
    """
    on = by_side(conditions, {left.alias}, {right.alias})
    order, others = _order(on, left, right, place)
    if others:
        return _best(query, left, right, conditions, order)
    pairs = of_compared_type(on.equalities, [left], right)
    item, names = _spans(query, right, replace(on, equalities=pairs), order)
    if keeps_right:
        item = replace(item, relation=_with_others(query, right, item.relation, names))
    first, second = _BOUNDS[order.comparison]
    value, at, other = (
        text_of(order.left),
        *(f"{shown(item.alias)}.{quoted(x)}" for x in names[:2]),
    )
    equalities = [
        equality(of_left, column(item.alias, name))
        for (of_left, _), name in zip(on.equalities, names[2:], strict=True)
    ]
    spans = [
        tree(f"({value}) {first} {at}"),
        tree(f"{other} IS NULL OR ({value}) {second} {other}"),
    ]
    return item, [*on.left, *equalities, *spans]


def _order(
    on: Conditions, left: Item, right: Item, place: int | None
) -> tuple[_Order, list[Node]]:
    """The comparison that orders the right, with the left side first; and all others."""
    orders, others = [], []
    for condition in on.others:
        one, other, comparison = _sides(condition)
        sides = aliases_of(one), aliases_of(other)
        if sides == ({right.alias}, {left.alias}):
            one, other, comparison = other, one, TURNED.get(comparison, "")
        elif sides != ({left.alias}, {right.alias}):
            comparison = ""
        if comparison in _BOUNDS:
            orders.append(_Order(one, other, comparison))
        else:
            others.append(condition)
    if len(orders) != 1:
        raise SqlQueryError(
            "an ASOF JOIN needs one comparison by which the right is ordered, such as "
            f"t.at >= p.at; it has {len(orders)}",
            place,
        )
    return orders[0], others


def _best(
    query: QueryTranslation, left: Item, right: Item, conditions: Sequence[Node], order: _Order
) -> tuple[Item, list[Node]]:
    """The best row of the right for each row of the left, and the conditions that join both.

    Conditions over both sides may exclude any pair, so all pairs are compared.
    """
    making = query.making
    fields, columns, hidden = query.selection([right])
    used = {name.lower() for name, _ in fields}
    names = [(unused_name("l", used), node) for _, node in identity_of(left)]
    at = unused_name("at", used)
    listed = [*names, *fields, (at, order.right)]
    pairs = making.join(
        "as_of.pairs",
        [(each.alias, each.relation) for each in (left, right)],
        map(text_of, conditions),
        [(name, text_of(node)) for name, node in listed],
        cartesian=True,
    )
    by = [name for name, _ in names]
    best = first_rows(making, pairs, by, [Order(at, descending=order.is_before)], 1, "as_of")
    item = Item(query.free_alias(right.alias), best, columns, hidden)
    # A comparison of structs, in which null equals null.
    one = struct((name, text_of(node)) for name, node in names)
    other = struct((name, text_of(column(item.alias, name))) for name in by)
    return item, [tree(f"{one} = {other}")]


def _sides(condition: Node) -> tuple[Node, Node, str]:
    if condition["class"] != "COMPARISON":
        return condition, condition, ""
    return condition["left"], condition["right"], condition["type"]


def _spans(
    query: QueryTranslation, right: Item, on: Conditions, order: _Order
) -> tuple[Item, list[str]]:
    """The spans of the right; and the names of their begin, their end and their keys."""
    making = query.making
    fields, columns, hidden = query.selection([right])
    used = {name.lower() for name, _ in fields}
    by = [key for _, key in on.equalities]
    at, other, before = (unused_name(name, used) for name in ("at", "other", "before"))
    keys = [unused_name(f"k{number}", used) for number, _ in enumerate(by)]
    listed = [*fields, (at, order.right), *zip(keys, by, strict=True)]
    select = tuple((name, _unqualified(right, node)) for name, node in listed)
    nonnull = [f"({_unqualified(right, node)}) IS NOT NULL" for node in (order.right, *by)]
    where = (*(_unqualified(right, each) for each in on.right), *nonnull)
    rows = making.linear(right.relation, "as_of.rows", Sql(where=where, select=select))

    def cast(value: str) -> str:
        return f"CAST({value} AS {rows.types[at]})"

    results = [WindowResult(before, Offset("lag", quoted(at)), cast)]
    if order.is_before:
        function = End("first_value", quoted(at), frame=_NEXT)
        results.append(WindowResult(other, function, cast))
    table = with_functions(making, rows, Over(tuple(keys), (Order(at),)), results, what="as_of")
    # Of rows with an equal order, the first one.
    first = Sql(
        where=(f"{quoted(before)} IS DISTINCT FROM {quoted(at)}",),
        select=(
            *((name, quoted(name)) for name, _ in listed),
            (other, quoted(other if order.is_before else before)),
        ),
    )
    spans = making.linear(table, "as_of.spans", first)
    return Item(query.free_alias(right.alias), spans, columns, hidden), [at, other, *keys]


def _with_others(
    query: QueryTranslation, right: Item, spans: Table, names: Sequence[str]
) -> Table:
    """The spans, and the other rows of the right, with nulls in the columns `names`."""
    making = query.making
    fields = [(name, _unqualified(right, node)) for name, node in query.selection([right]).listed]
    every = making.select(right.relation, "as_of.every", fields)
    shown_fields = [(name, quoted(name)) for name, _ in fields]
    met = making.select(spans, "as_of.met", shown_fields)
    others = set_operation(making, "except", [every, met], every=True)
    nulls = [(name, f"NULL::{spans.types[name]}") for name in names]
    as_spans = dict([*shown_fields, *nulls])
    listed = [(name, as_spans[name]) for name in spans.types]
    return union_all(making, [spans, making.select(others, "as_of.others", listed)])


def _unqualified(item: Item, node: Node) -> str:
    """SQL of an expression over an item, with unqualified columns."""
    return text_of(without_alias(item.alias, node))
