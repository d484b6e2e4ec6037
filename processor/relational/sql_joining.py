"""The kinds of joins in FROM: USING and NATURAL, outer ones, semi-joins and anti-joins."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.syntax import Node, tree
from ikebana.processor.linear.trees import column
from ikebana.processor.relational.matching import (
    Conditions,
    Outer,
    Side,
    equal,
    keys_of,
    met,
    null_safe,
    outer_join,
    outer_of,
    told_apart,
    unmet,
)
from ikebana.processor.relational.sql_scope import Froms, Item, Merged, Names
from ikebana.processor.relational.sql_whole import Listed, Query, free

OUTER: dict[str, Outer] = {"LEFT": "left", "RIGHT": "right", "OUTER": "full", "FULL": "full"}
HALF = ("SEMI", "ANTI")


def using(node: Node, left: Froms, right: Froms) -> list[Node]:
    """The equalities of USING and NATURAL.  Raises: SqlQueryError."""
    first, second = Names(left), Names(right)
    return [
        equal(first.resolved(column(name)), second.resolved(column(name)))
        for name in _names(node, left, right)
    ]


def merged(node: Node, left: Froms, right: Froms) -> Merged:
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
    query: Query,
    kind: Outer,
    left: Item,
    right: Item,
    conditions: Sequence[Node],
    of: Merged,
    tested: Callable[[Item], Side] | None = None,
) -> Item:
    """An outer join as one collection.

    `tested` filters the pairs for which the conditions are true by further conditions.
    """
    selection = query.selection([left, right])
    listed, columns = list(selection.listed), list(selection.columns)
    if kind != "left":
        _add_merged(kind, listed, columns, of)
    first, second = (Side(item.alias, item.relation) for item in (left, right))
    if tested is None:
        on = told_apart(conditions, {first.alias}, {second.alias})
        relation = outer_join(query.making, first, second, on, listed, kind)
    else:
        pairs = query.selected(Froms([left, right], [*conditions]), listed, "both")
        alias = query.free_alias("both")
        matched = tested(Item(alias, pairs, tuple(columns), selection.hidden))
        relation = outer_of(query.making, first, second, matched, listed, kind)
    return Item(query.free_alias(kind), relation, tuple(columns), selection.hidden)


def half(
    query: Query,
    join: str,
    left: Froms,
    right: Item,
    on: Callable[[Froms], Sequence[Node]],
    tested: Callable[[Item], Side] | None = None,
) -> Froms:
    """The rows of the left with a match in the right (SEMI), or without one (ANTI).

    `on` returns the conditions over a left, since the left may have to become one collection;
    `tested` is as in an outer join.
    """
    side = Side(right.alias, right.relation)
    if tested is not None:
        one = Froms([query.item(left, "joined")], [], left.merged)
        side, conditions = _tested_pairs(query, one.items[0], right, on(one), tested)
        return _matching(query, join, one, side, conditions)
    conditions = told_apart(on(left), {each.alias for each in left.items}, {right.alias})
    if join == "SEMI" and not conditions.others and not conditions.left:
        equalities, keys = keys_of(query.making, side, conditions, "semi")
        items = [*left.items, Item(right.alias, keys)]
        return Froms(items, [*left.conditions, *equalities], left.merged)
    one = Froms([query.item(left, "joined")], [], left.merged)
    (first,) = one.items
    return _matching(query, join, one, side, told_apart(on(one), {first.alias}, {right.alias}))


def _matching(query: Query, join: str, left: Froms, right: Side, on: Conditions) -> Froms:
    """The rows of one collection that meet a row of the right, or those that meet none."""
    (first,) = left.items
    take = met if join == "SEMI" else unmet
    relation = take(query.making, Side(first.alias, first.relation), right, on, "half")
    return Froms([replace(first, relation=relation)], [], left.merged)


def _tested_pairs(
    query: Query,
    left: Item,
    right: Item,
    conditions: Sequence[Node],
    tested: Callable[[Item], Side],
) -> tuple[Side, Conditions]:
    """Pairs that match by all conditions, and by what rows of the left meet theirs."""
    selection = query.selection([left, right])
    used = {name.lower() for name, _ in selection.listed}
    left_columns = [(free(name, used), column(left.alias, name)) for name in left.relation.types]
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
        listed.append((free(name, used), either))
        columns.insert(at, ("", name, listed[-1][0]))
