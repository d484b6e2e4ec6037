"""Subqueries of WHERE and HAVING: EXISTS, IN, and single values, as further joins.

A subquery that reads columns of the query around it by equalities alone is grouped by its own
side of these, and joined by them.  What is to be there is a further input of the join; what is
not to be there is taken away from its results.

`x NOT IN (…)` is true where no row makes `x = y` true or null: so rows with null count as well,
on either side.
"""

from collections.abc import Iterable
from dataclasses import replace

from ikebana.processor.linear.bound_query import QueryError
from ikebana.processor.linear.syntax import Node, tree
from ikebana.processor.linear.trees import bare, changed, column, conjuncts, nodes, own_nodes
from ikebana.processor.relational.known import Table
from ikebana.processor.relational.matching import (
    Conditions,
    Side,
    aliases_of,
    equal,
    keys_of,
    met,
    told_apart,
    unmet,
)
from ikebana.processor.relational.sql_aggregates import calls, grouped
from ikebana.processor.relational.sql_over import windows_of
from ikebana.processor.relational.sql_refusals import (
    has_groups,
    refuse_now,
    refuse_select,
    targets_of,
)
from ikebana.processor.relational.sql_scope import Froms, Item, Names, output_names, relation_item
from ikebana.processor.relational.sql_time import bounded, bounded_after, told_from_others
from ikebana.processor.relational.sql_whole import Query, Views, with_views

_JOIN = "write a join with it"
_COMPARISONS = {
    *("COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_LESSTHAN", "COMPARE_GREATERTHAN"),
    *("COMPARE_LESSTHANOREQUALTO", "COMPARE_GREATERTHANOREQUALTO"),
}
_ARITHMETIC = {"+", "-", "*", "/", "//", "%"}


def has_subquery(value: object) -> bool:
    """Whether there is a subquery within."""
    return any(node["class"] == "SUBQUERY" for node in own_nodes(value))


def takes_away(condition: Node) -> bool:
    """Whether a condition is that something is not there."""
    return bool(condition["type"] == "OPERATOR_NOT")


class Subqueries:
    """Adds what conditions with subqueries mean to what a query has brought together."""

    def __init__(
        self,
        query: Query,
        views: Views,
        names: Names,
        beside: Iterable[Node] = (),
        *,
        of_groups: bool = False,
    ) -> None:
        self._query = query
        self._views = views
        self._names = names
        self._nonnull = nonnull(beside)
        # Conditions over groups are resolved: the first collection is that of the groups, which
        # keeps its alias and its columns.
        self._of_groups = of_groups

    def add(self, condition: Node) -> None:
        """Add a condition that has a subquery.  Raises: QueryError."""
        place = condition.get("query_location")
        found, is_negative = condition, False
        while found["type"] == "OPERATOR_NOT":
            found, is_negative = found["children"][0], not is_negative
        kind = found.get("subquery_type") if found["class"] == "SUBQUERY" else None
        is_negative ^= kind == "NOT_EXISTS"
        if is_negative:
            self._left()
        match kind:
            case "EXISTS" | "NOT_EXISTS":
                right, on = self._matching(found, None)
                self._keep(right, on, is_negative=is_negative)
            case "ANY" if found["comparison_type"] == "COMPARE_EQUAL":
                if is_negative:
                    self._not_in(found)
                else:
                    right, on = self._matching(found, found["child"])
                    self._keep(right, on, is_negative=False)
            case None if found["type"] in _COMPARISONS and not is_negative:
                self._compare(found)
            case _:
                raise QueryError(
                    "a subquery is supported in [NOT] EXISTS (…), in x [NOT] IN (…) and in "
                    "comparisons, joined by AND with other conditions; " + _JOIN,
                    place,
                )

    # EXISTS and IN.

    def _keep(self, right: Side, on: Conditions, *, is_negative: bool) -> None:
        froms, making = self._names.froms, self._query.making
        if not is_negative and not on.others and not on.left:
            conditions, keys = keys_of(making, right, on, "in")
            froms.items.append(Item(right.alias, keys))
            froms.conditions += conditions
            return
        left = self._left()
        take = unmet if is_negative else met
        self._replace(take(making, left, right, on, "not" if is_negative else "in"))

    def _left(self) -> Side:
        """What there is as one collection."""
        names = self._names
        first, *more = names.froms.items
        if not self._of_groups:
            item = self._query.item(names.froms, "where")
        elif more or names.froms.conditions:
            listed = [(name, column(first.alias, name)) for name in first.relation.types]
            item = replace(first, relation=self._query.selected(names.froms, listed, "where"))
        else:
            item = first
        names.froms = Froms([item], [], names.froms.merged)
        return Side(item.alias, item.relation)

    def _resolved(self, node: Node) -> Node:
        """A part of a condition over aliases and fields."""
        return node if self._of_groups else self._names.resolved(node)

    def _replace(self, relation: Table) -> None:
        (item,) = self._names.froms.items
        columns = tuple(each for each in item.columns if each[2] in relation.types)
        made = Item(item.alias, relation, columns)
        self._names.froms = Froms([made], [], self._names.froms.merged)

    def _not_in(self, node: Node) -> None:
        """Take away what is equal to a row, and, if either is null, what there are rows for.

        What a condition beside it says is not null needs no look at nulls.
        """
        making = self._query.making
        inner = self._inner(node)
        (shown,) = inner.shown()
        child = self._resolved(node["child"])
        aliases = self._names.aliases()
        right = Side(inner.item.alias, inner.item.relation)
        conditions = [equal(child, shown)]
        if not inner.has_no_nulls:
            conditions.append(_is_null(shown))
        if bare(node["child"]) not in self._nonnull:
            conditions.append(_is_null(child))
        for condition in conditions:
            on = told_apart((*inner.resolved(), condition), aliases, {right.alias})
            left = self._left()
            self._replace(unmet(making, left, right, on, "not"))

    def _matching(self, node: Node, child: Node | None) -> tuple[Side, Conditions]:
        """The right of a semi-join, and what decides a match; of IN, also `child = column`."""
        inner = self._inner(node)
        on = self._conditions(inner, child)
        if on.others or on.left:
            # The left becomes one collection, whose columns have other names.
            self._left()
            on = self._conditions(inner, child)
        return Side(inner.item.alias, inner.item.relation), on

    def _conditions(self, inner: "_Found", child: Node | None) -> Conditions:
        conditions = list(inner.resolved())
        if child is not None:
            (shown,) = inner.shown()
            conditions.append(equal(self._resolved(child), shown))
        aliases = self._names.aliases()
        self._refuse_further(conditions, aliases | {inner.item.alias})
        return told_apart(conditions, aliases, {inner.item.alias})

    def _refuse_further(self, conditions: list[Node], aliases: set[str]) -> None:
        for condition in conditions:
            if aliases_of(condition) - aliases:
                raise QueryError(
                    "a subquery that reads a query two levels around it is not supported",
                    condition.get("query_location"),
                )

    def _inner(self, node: Node) -> "_Found":
        """What a subquery brings together, and the columns that it shows."""
        inner = node["subquery"]["node"]
        is_shown = node["subquery_type"] == "ANY"
        if _is_plain(inner) and not (is_shown and _has_star(inner)):
            return _found(self._query, self._views, inner, self._names)
        relation = self._query.query(inner, self._views)
        alias = self._query.free_alias("s")
        # They are resolved already: an alias is a qualifier that nothing else has.
        item = relation_item(alias, relation, alias)
        columns = [column(alias, name) for name in relation.types]
        return _Found(Names(Froms([item]), self._names), (), columns)

    # Single values.

    def _compare(self, condition: Node) -> None:
        """Join the values that a comparison has; where there is none, it is not true."""
        found = [each for each in own_nodes(condition) if each["class"] == "SUBQUERY"]
        self._refuse_loose(condition)
        values = {id(each): self._value(each) for each in found}

        def change(node: Node) -> Node | None:
            # What is resolved already is not looked up again: a column may be named like it.
            value = values.get(id(node))
            return value if value is not None or self._of_groups else self._names.column(node)

        refuse_now(condition)
        made = changed(condition, change, parts_too=True)
        self._names.froms.conditions.append(made)

    def _refuse_loose(self, node: Node) -> None:
        """Refuse what would be true of a value that is not there."""
        match node["class"]:
            case "SUBQUERY":
                if node["subquery_type"] != "SCALAR":
                    place = node.get("query_location")
                    raise QueryError(f"this subquery is not supported here; {_JOIN}", place)
            case "COMPARISON":
                self._refuse_loose(node["left"])
                self._refuse_loose(node["right"])
            case "CAST":
                self._refuse_loose(node["child"])
            case "FUNCTION" if node["function_name"] in _ARITHMETIC:
                for each in node["arguments"]:
                    self._refuse_loose(each["expression"])
            case _ if has_subquery(node):
                place = node.get("query_location")
                raise QueryError(
                    f"a subquery is supported in comparisons and arithmetic; {_JOIN}", place
                )

    def _value(self, node: Node) -> Node:
        """A column with the value of a subquery, whose collection is joined."""
        inner, place = node["subquery"]["node"], node.get("query_location")
        listed = inner.get("select_list", [])
        if inner["type"] != "SELECT_NODE" or len(listed) != 1 or not calls(listed):
            raise QueryError(
                "a subquery for a single value must have an aggregate, so that it has one row; "
                "or write a join",
                place,
            )
        if inner["group_expressions"] or inner["having"] or inner["modifiers"] or inner["qualify"]:
            raise QueryError(
                f"a subquery for a single value has no GROUP BY, HAVING or LIMIT; {_JOIN}", place
            )
        found = _found(self._query, self._views, inner, self._names)
        item = found.item
        value = found.names.resolved({**listed[0], "alias": ""})
        conditions = list(found.resolved())
        aliases = self._names.aliases()
        self._refuse_further(conditions, aliases | {item.alias})
        on = told_apart(conditions, aliases, {item.alias})
        if on.others or on.left or on.right:
            raise QueryError(
                "a subquery for a single value can be joined by equalities of its columns alone; "
                + _JOIN,
                place,
            )
        if on.equalities:
            _refuse_of_none(listed[0])
        groups = [(f"k{at}", own) for at, (_, own) in enumerate(on.equalities)]
        made = grouped(self._query, item, groups, [value], "value")
        alias = self._query.free_alias("v")
        columns = [(name, made.over(own)) for name, own in groups]
        relation = self._query.selected(
            Froms([made.item]), output_names([*columns, ("v", made.over(value))]), "value"
        )
        self._names.froms.items.append(Item(alias, relation))
        for at, (other, _) in enumerate(on.equalities):
            self._names.froms.conditions.append(equal(other, column(alias, f"k{at}")))
        return column(alias, "v")


class _Found:
    """What a subquery brings together as one item, and what of it reads the query around it."""

    def __init__(
        self,
        names: Names,
        correlated: tuple[Node, ...],
        shown: list[Node],
        *,
        has_no_nulls: bool = False,
    ) -> None:
        self.names = names
        self.has_no_nulls = has_no_nulls
        self._correlated = correlated
        self._shown = shown

    @property
    def item(self) -> Item:
        """Its one item."""
        (item,) = self.names.froms.items
        return item

    def resolved(self) -> list[Node]:
        """The conditions that read both queries."""
        return [self.names.resolved(each) for each in self._correlated]

    def shown(self) -> list[Node]:
        """The column that it shows."""
        if len(self._shown) != 1:
            raise QueryError(
                f"IN needs a subquery with one column; it has {len(self._shown)}: of several "
                "columns write EXISTS (SELECT 1 FROM … WHERE …), with an equality for each"
            )
        return [self.names.resolved(each) for each in self._shown]


def _found(query: Query, views: Views, inner: Node, outer: Names) -> _Found:
    """FROM and WHERE of a subquery, but for the conditions that read the query around it."""
    refuse_select(inner)
    views = with_views(inner, views)
    within = query.filtered(query, {**inner, "where_clause": None}, views, outer)
    own, correlated, waiting = [], [], []
    bounds, others = told_from_others(inner["where_clause"])
    left = bounded(query, within, bounds)
    for condition in others:
        if has_subquery(condition):
            waiting.append(condition)
        elif aliases_of(within.resolved(condition)) <= within.aliases():
            own.append(within.resolved(condition))
        else:
            correlated.append(condition)
    within.froms.conditions += own
    subqueries = Subqueries(query, views, within, conjuncts(inner["where_clause"]))
    for condition in sorted(waiting, key=takes_away):
        subqueries.add(condition)
    bounded_after(query, within, left)
    within.froms = Froms([query.item(within.froms, "sub")], [], within.froms.merged)
    known = nonnull(conjuncts(inner["where_clause"]))
    has_no_nulls = all(bare({**each, "alias": ""}) in known for each in inner["select_list"])
    columns = (
        [{**each, "alias": ""} for each in inner["select_list"]] if not _has_star(inner) else []
    )
    return _Found(within, tuple(correlated), columns, has_no_nulls=has_no_nulls)


def nonnull(conditions: Iterable[Node]) -> list[Node]:
    """What conditions say is not null, without places."""
    return [
        bare(each["children"][0]) for each in conditions if each["type"] == "OPERATOR_IS_NOT_NULL"
    ]


def _has_star(node: Node) -> bool:
    return any(each["class"] == "STAR" for each in node["select_list"])


def _is_plain(node: Node) -> bool:
    """Whether a subquery is FROM, WHERE and columns alone."""
    if node["type"] != "SELECT_NODE" or has_groups(node) or node["having"]:
        return False
    listed = node["select_list"]
    if node["qualify"] or calls(listed) or windows_of(listed) or targets_of(node):
        return False
    return all(each["type"] == "DISTINCT_MODIFIER" for each in node["modifiers"])


def _is_null(node: Node) -> Node:
    test = tree("NULL IS NULL")
    return {**test, "children": [node]}


def _refuse_of_none(node: Node) -> None:
    """Refuse an expression that has a value where there are no rows, and so no group."""
    for call in calls(node):
        if call["function_name"].lower().startswith("count"):
            raise QueryError(
                "a count in a subquery is 0 where it has no rows; write LEFT JOIN (SELECT k, "
                "count(*) AS n … GROUP BY k) t ON …, and coalesce(t.n, 0)",
                call.get("query_location"),
            )
    for each in nodes(node):
        is_one = each["class"] in ("COLUMN_REF", "CONSTANT", "CAST", "TYPE")
        name = str(each.get("function_name", "")).lower()
        is_function = each["class"] == "FUNCTION" and (
            name in _ARITHMETIC or calls(each)[:1] == [each]
        )
        if is_one or is_function:
            continue
        if any(each is inner for call in calls(node) for inner in nodes(call)):
            continue
        raise QueryError(
            "a subquery for a single value is supported with aggregates and arithmetic; " + _JOIN,
            each.get("query_location"),
        )
