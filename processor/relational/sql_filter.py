"""FROM and WHERE of a SQL query: which collections are joined, and by which conditions."""

from collections.abc import Sequence

from ikebana.processor.linear.bound_query import QueryError
from ikebana.processor.linear.syntax import Node
from ikebana.processor.linear.trees import column, conjuncts, nodes
from ikebana.processor.relational.known import MakingError, Table
from ikebana.processor.relational.matching import Outer, Side, equal, outer_join, told_apart
from ikebana.processor.relational.sql_refusals import UNNEST
from ikebana.processor.relational.sql_scope import Froms, Item, Names, relation_item
from ikebana.processor.relational.sql_subqueries import Subqueries, has_subquery, takes_away
from ikebana.processor.relational.sql_time import bounded, bounded_after, told_from_others
from ikebana.processor.relational.sql_whole import Query, Views

_LATERAL = (
    "a query in FROM that reads a table beside it (LATERAL) is not supported; select the column "
    "that it is compared with, and JOIN it ON that one; for the first rows of each, write QUALIFY "
    "row_number() OVER (PARTITION BY … ORDER BY …) <= n"
)
# What to write for joins of other kinds.
_INSTEAD = {"ASOF": "write CREATE OPERATOR … WITH (as_of_join = …), or that section in YAML"}
_OUTER: dict[str, Outer] = {"LEFT": "left", "RIGHT": "right", "OUTER": "full", "FULL": "full"}


def filtered(query: Query, node: Node, views: Views, outer: Names | None) -> Names:
    """The names of a SELECT, with all that its FROM and its WHERE bring together."""
    bounds, others = told_from_others(node["where_clause"])
    found = _From(query, views, others)
    names = Names(found.froms(node["from_table"], kept=True), outer)
    for each in node["select_list"]:
        if each.get("alias") and each["class"] != "STAR":
            names.aliased.setdefault(each["alias"].lower(), each)
    waiting = []
    left = bounded(query, names, bounds)
    for condition in found.conditions:
        if has_subquery(condition):
            waiting.append(condition)
        else:
            names.froms.conditions.append(names.resolved(condition))
    subqueries = Subqueries(query, views, names, conjuncts(node["where_clause"]))
    # What is added to the join first, then what is taken away from its results.
    for condition in sorted(waiting, key=takes_away):
        subqueries.add(condition)
    bounded_after(query, names, left)
    return names


class _From:
    """The items of FROM, and the conditions of WHERE that are still to be tested.

    A condition over what a LEFT or RIGHT JOIN keeps is tested before the join: then neither the
    join nor what it reads has rows that are left out in the end.
    """

    def __init__(self, query: Query, views: Views, conditions: Sequence[Node]) -> None:
        self.conditions = list(conditions)
        self._query = query
        self._views = views
        self._beside: set[str] = set()
        self._queries = 0

    def froms(self, node: Node, *, kept: bool) -> Froms:
        """The collections of FROM, with the conditions of inner joins.

        `kept` are those of which a row is in a result only if WHERE is true of that row.
        """
        place = node.get("query_location")
        if node.get("sample"):
            raise QueryError("a sample depends on chance; write a condition", place)
        match node["type"]:
            case "BASE_TABLE":
                relation = self._query.table(node, self._views)
                called = node["alias"] or node["table_name"]
            case "SUBQUERY":
                relation = self._nested(node)
                called = node["alias"] or self._unnamed()
            case "JOIN":
                return self._join(node, kept=kept)
            case "EMPTY":
                raise QueryError(
                    "a query without FROM is not supported: its row comes from no collection; "
                    "read one, and write constants beside its columns"
                )
            case "EXPRESSION_LIST":
                raise QueryError(
                    "VALUES in FROM is not supported: rows come from inputs; write the few that "
                    "never change as CASE … WHEN … THEN …",
                    place,
                )
            case "TABLE_FUNCTION":
                name = node["function"]["function_name"]
                raise QueryError(
                    UNNEST if name == "unnest" else f"{name}() in FROM is not supported", place
                )
            case other:
                named = other.lower().replace("_", " ")
                raise QueryError(f"{named} in FROM is not supported", place)
        names = node["column_name_alias"]
        has_key = node["type"] == "BASE_TABLE" and node["table_name"].lower() not in self._views
        alias = self._query.free_alias(called)
        return Froms([relation_item(alias, relation, called, names, has_key=has_key)])

    def _unnamed(self) -> str:
        """What DuckDB calls a query in FROM that has no name."""
        self._queries += 1
        return f"unnamed_subquery{self._queries if self._queries > 1 else ''}"

    def _nested(self, node: Node) -> Table:
        """The relation of a query in FROM, which does not see the tables beside it."""
        query = node["subquery"]["node"]
        try:
            return self._query.query(query, self._views)
        except (QueryError, MakingError) as error:
            for each in nodes(query):
                if each["class"] == "COLUMN_REF":
                    name, *more = each["column_names"]
                    if more and name.lower() in self._beside:
                        raise QueryError(_LATERAL, each.get("query_location")) from error
            raise

    def _join(self, node: Node, *, kept: bool) -> Froms:
        place = node.get("query_location")
        if node["ref_type"] not in ("REGULAR", "CROSS"):
            instead = _INSTEAD.get(node["ref_type"], "write JOIN … ON, with the columns")
            raise QueryError(f"{node['ref_type']} JOIN is not supported; {instead}", place)
        kind = _OUTER.get(node["join_type"])
        keeps = {side: kept and kind in (None, side) for side in ("left", "right")}
        left = self.froms(node["left"], kept=keeps["left"])
        self._beside.update(of.lower() for item in left.items for of, _, _ in item.columns)
        right = self.froms(node["right"], kept=keeps["right"])
        if kind is not None:
            for side, froms in (("left", left), ("right", right)):
                if keeps[side]:
                    self._test(froms)
            return self._outer(kind, left, right, node)
        if node["join_type"] != "INNER":
            raise QueryError(
                f"{node['join_type']} JOIN is not supported; write WHERE [NOT] EXISTS (…)", place
            )
        merged = left.merged | right.merged
        conditions = [*left.conditions, *right.conditions]
        both = Froms([*left.items, *right.items], conditions, merged)
        both.conditions += self._on(node, left, right, both)
        return both

    def _test(self, froms: Froms) -> None:
        """Test the conditions of WHERE that read these collections alone."""
        names = Names(froms)
        for condition in list(self.conditions):
            if not has_subquery(condition) and names.have_all(condition):
                froms.conditions.append(names.resolved(condition))
                self.conditions.remove(condition)

    def _on(self, node: Node, left: Froms, right: Froms, both: Froms) -> list[Node]:
        """The conditions of a join."""
        found = []
        for condition in conjuncts(node["condition"]):
            if has_subquery(condition):
                place = condition.get("query_location")
                raise QueryError("a subquery in ON is not supported; write it in WHERE", place)
            found.append(Names(both).resolved(condition))
        for name in node["using_columns"]:
            sides = [Names(each).resolved(column(name)) for each in (left, right)]
            found.append(equal(*sides))
            first, second = (both.known_by(each.named(name)) for each in (left, right))
            both.merged |= dict.fromkeys([first, second], first)
            both.merged |= {each: first for each, by in both.merged.items() if by == second}
        return found

    def _outer(self, kind: Outer, left: Froms, right: Froms, node: Node) -> Froms:
        if node["using_columns"] and kind != "left":
            raise QueryError(
                "USING in an outer join is supported in a LEFT JOIN; write ON",
                node.get("query_location"),
            )
        query = self._query
        items = [query.item(each, "joined") for each in (left, right)]
        one, other = (Froms([each]) for each in items)
        both = Froms(items, [], left.merged | right.merged)
        on = self._on(node, one, other, both)
        listed, columns = query.wanted(items)
        first, second = (Side(item.alias, item.relation) for item in items)
        conditions = told_apart(on, {first.alias}, {second.alias})
        made = outer_join(query.making, first, second, conditions, listed, kind)
        item = Item(query.free_alias(kind), made, tuple(columns))
        return Froms([item], [], both.merged)
