"""FROM and WHERE of a SQL query: which collections are joined, and by which conditions."""

from collections.abc import Sequence

from ikebana.processor.linear.bound_query import QueryError
from ikebana.processor.linear.syntax import Node, text_of
from ikebana.processor.linear.trees import conjuncts, nodes
from ikebana.processor.relational.known import MakingError, Table
from ikebana.processor.relational.sql_as_of import as_of
from ikebana.processor.relational.sql_bounds import bounded_by
from ikebana.processor.relational.sql_joining import (
    HALF,
    OUTER,
    half,
    merged,
    outer,
    refuse_join,
    using,
)
from ikebana.processor.relational.sql_rows import reads_columns, series_of, taken_apart, values
from ikebana.processor.relational.sql_scope import Froms, Item, Names, relation_item
from ikebana.processor.relational.sql_subqueries import Subqueries, has_subquery, takes_away
from ikebana.processor.relational.sql_time import bounded, bounded_after, told_from_others
from ikebana.processor.relational.sql_whole import Bounds, Query, Views

_LATERAL = (
    "a query in FROM that reads a table beside it (LATERAL) is not supported; select the column "
    "that it is compared with, and JOIN it ON that one; for the first rows of each, write QUALIFY "
    "row_number() OVER (PARTITION BY … ORDER BY …) <= n"
)


def filtered(query: Query, node: Node, views: Views, outer: Names | None) -> Names:
    """The names of a SELECT, with all that its FROM and its WHERE bring together."""
    bounds, others = told_from_others(node["where_clause"])
    found = _From(query, views, others, _bounds(node["where_clause"]))
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


# The qualifier of a column, which may be empty, and its name, in lower case; and its bound.
_Bound = tuple[str, str, int]


def _bounds(where: Node | None) -> list[_Bound]:
    """The columns that WHERE bounds from above."""
    found = []
    for each in conjuncts(where):
        bound = bounded_by(each)
        if bound is not None and bound[0]["class"] == "COLUMN_REF":
            names = [name.lower() for name in bound[0]["column_names"]]
            if len(names) < 3:
                found.append(("" if len(names) == 1 else names[0], names[-1], bound[1]))
    return found


class _From:
    """The items of FROM, and the conditions of WHERE that are still to be tested.

    A condition over what a LEFT or RIGHT JOIN keeps is tested before the join: then neither the
    join nor what it reads has rows that are left out in the end.
    """

    def __init__(
        self, query: Query, views: Views, conditions: Sequence[Node], bounds: Sequence[_Bound]
    ) -> None:
        self._bounds = bounds
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
                called = node["alias"] or node["table_name"]
                relation = self._query.table(node, self._views, self._bounds_of(called, node))
            case "SUBQUERY":
                called = node["alias"] or self._unnamed()
                relation = self._nested(node, self._bounds_of(called, node))
            case "JOIN":
                return self._join(node, kept=kept)
            case "EMPTY":
                return Froms([Item(self._query.free_alias("one"), self._query.one_row())])
            case "EXPRESSION_LIST":
                relation = values(self._query, node)
                called = node["alias"] or "valueslist"
            case "TABLE_FUNCTION":
                return taken_apart(self._query, None, series_of(node))
            case other:
                named = other.lower().replace("_", " ")
                raise QueryError(f"{named} in FROM is not supported", place)
        names = node.get("column_name_alias", ())
        has_key = node["type"] == "BASE_TABLE" and node["table_name"].lower() not in self._views
        alias = self._query.free_alias(called)
        return Froms([relation_item(alias, relation, called, names, has_key=has_key)])

    def _unnamed(self) -> str:
        """What DuckDB calls a query in FROM that has no name."""
        self._queries += 1
        return f"unnamed_subquery{self._queries if self._queries > 1 else ''}"

    def _bounds_of(self, called: str, node: Node) -> Bounds:
        """What WHERE bounds of the columns of a query in FROM, of which it needs no other rows."""
        if node["column_name_alias"]:
            return {}
        return {n: most for of, n, most in self._bounds if of in ("", called.lower())}

    def _nested(self, node: Node, bounds: Bounds) -> Table:
        """The relation of a query in FROM, which does not see the tables beside it."""
        query = node["subquery"]["node"]
        try:
            return self._query.query(query, self._views, bounds)
        except (QueryError, MakingError) as error:
            for each in nodes(query):
                if each["class"] == "COLUMN_REF":
                    name, *more = each["column_names"]
                    if more and name.lower() in self._beside:
                        raise QueryError(_LATERAL, each.get("query_location")) from error
            raise

    def _join(self, node: Node, *, kept: bool) -> Froms:
        refuse_join(node)
        ref, join = node["ref_type"], node["join_type"]
        kind, is_half = OUTER.get(join), join in HALF
        # Of a semi-join or an anti-join the rows of the left are in the result.
        keeps = {
            "left": kept and kind in (None, "left"),
            "right": kept and not is_half and kind in (None, "right"),
        }
        left = self.froms(node["left"], kept=keeps["left"])
        self._beside.update(of.lower() for item in left.items for of, _, _ in item.columns)
        if node["right"]["type"] == "TABLE_FUNCTION" and reads_columns(node["right"]):
            return self._with_elements(left, node)
        right = self.froms(node["right"], kept=keeps["right"])
        if join != "INNER":
            for side, froms in (("left", left), ("right", right)):
                if keeps[side]:
                    self._test(froms)
        if kind is not None or ref == "ASOF":
            left = self._one(left)
        if join != "INNER" or ref == "ASOF":
            right = self._one(right)
        of = merged(node, left, right)
        if ref == "ASOF":
            right, conditions = self._as_of(node, left, right)
        else:
            conditions = self._on(node, left, right)
        if kind is not None:
            item = outer(self._query, kind, left.items[0], right.items[0], conditions, of)
            return Froms([item], [], of)
        if is_half:

            def on(one: Froms) -> list[Node]:
                return conditions if one.items == left.items else self._on(node, one, right)

            return half(self._query, join, left, right.items[0], on)
        every = [*left.conditions, *right.conditions, *conditions]
        return Froms([*left.items, *right.items], every, of)

    def _one(self, froms: Froms) -> Froms:
        """One collection in place of several and their conditions."""
        return Froms([self._query.item(froms, "joined")], [], froms.merged)

    def _with_elements(self, left: Froms, node: Node) -> Froms:
        """A join of rows with the elements of lists that they have."""
        place, conditions = node.get("query_location"), list(conjuncts(node["condition"]))
        is_left = node["join_type"] == "LEFT"
        is_true = all(text_of(each).upper() == "TRUE" for each in conditions)
        is_plain = not node["using_columns"] and node["ref_type"] in ("REGULAR", "CROSS")
        if not is_plain or node["join_type"] not in ("INNER", "LEFT") or (is_left and not is_true):
            raise QueryError(
                "a list of columns is joined by a comma, or by LEFT JOIN … ON true, which keeps "
                "rows without elements; write conditions in WHERE",
                place,
            )
        found = taken_apart(self._query, left, series_of(node["right"], keeps=is_left))
        names = Names(found)
        found.conditions += [names.resolved(each) for each in conditions if not is_left]
        return found

    def _test(self, froms: Froms) -> None:
        """Test the conditions of WHERE that read these collections alone."""
        names = Names(froms)
        for condition in list(self.conditions):
            if not has_subquery(condition) and names.have_all(condition):
                froms.conditions.append(names.resolved(condition))
                self.conditions.remove(condition)

    def _on(self, node: Node, left: Froms, right: Froms) -> list[Node]:
        """The conditions of a join."""
        both = Names(Froms([*left.items, *right.items], [], left.merged | right.merged))
        found = []
        for condition in conjuncts(node["condition"]):
            if has_subquery(condition):
                place = condition.get("query_location")
                raise QueryError("a subquery in ON is not supported; write it in WHERE", place)
            found.append(both.resolved(condition))
        return [*found, *using(node, left, right)]

    def _as_of(self, node: Node, left: Froms, right: Froms) -> tuple[Froms, list[Node]]:
        """The right of an ASOF JOIN, and the conditions by which a row of the left meets one."""
        conditions = self._on(node, left, right)
        if node["using_columns"]:
            # Of USING it is the last one that need not be equal.
            conditions[-1] = {**conditions[-1], "type": "COMPARE_GREATERTHANOREQUALTO"}
        (first,), (second,) = left.items, right.items
        item, found = as_of(self._query, first, second, conditions, node.get("query_location"))
        return Froms([item], [], right.merged), found
