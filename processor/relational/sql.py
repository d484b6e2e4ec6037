"""Translate a SQL query into linear operators, delta joins and reductions.

DuckDB parses the query and binds it over the columns that are known; what is done here is on
its syntax tree.  A SELECT becomes, in this order:

* Windows in FROM (`windows`): linear operators, and for sessions a reduction.
* Conditions with `ikebana_now()` (`sql_time`): linear operators with `valid_until`.
* FROM and WHERE (`sql_filter`): one delta join of all that inner joins bring together, with
  every condition; of a single collection, a linear operator.  Outer joins are made before
  (`matching`).  Subqueries are further collections to join (`sql_subqueries`).
* Recursive WITH (`sql_recursive`): a loop of what all of this makes.
* GROUP BY (`sql_aggregates`): a reduction, filtered by HAVING, and selected from.
* QUALIFY, DISTINCT and LIMIT (`rows`): reductions as well.

What is not supported is refused with its place in the text.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ikebana.processor.linear.bound_query import QueryError, query_tree
from ikebana.processor.linear.collations import LOOSE, loose
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.syntax import Node
from ikebana.processor.linear.trees import bare, changed, columns, conjuncts, own_nodes
from ikebana.processor.planning.plan import Operator
from ikebana.processor.relational import rows
from ikebana.processor.relational.known import Known, MakingError, Table
from ikebana.processor.relational.looping import Limits
from ikebana.processor.relational.making import Making
from ikebana.processor.relational.rows import Order, first_rows
from ikebana.processor.relational.sql_aggregates import calls, direction, grouped, is_aggregate
from ikebana.processor.relational.sql_filter import filtered
from ikebana.processor.relational.sql_recursive import limits_of, mutual
from ikebana.processor.relational.sql_refusals import (
    NOW,
    has_groups,
    limit_of,
    refuse_select,
    whole_number,
)
from ikebana.processor.relational.sql_rows import selected
from ikebana.processor.relational.sql_scope import Froms, Names, output_names
from ikebana.processor.relational.sql_shape import shaped
from ikebana.processor.relational.sql_stars import columns_of, stars_of
from ikebana.processor.relational.sql_subqueries import Subqueries, has_subquery, takes_away
from ikebana.processor.relational.sql_whole import (
    Listed,
    Query,
    Recursion,
    Views,
    free,
    named_tables,
)
from ikebana.processor.relational.windows import without_windows


def sql_operators(
    name: str, text: str, known: Known, key: str | None = None
) -> tuple[Operator, ...]:
    """The operators that a query becomes, the last one under the name.

    `key` is SQL over the columns of the result: its key.

    Raises:
        QueryError: the query is refused.
        UnmadeError: what it reads has a problem of its own.
    """
    making = Making(known, name)
    try:
        text, limits = limits_of(text)
        several = mutual(text)

        def translated(text: str, given: Mapping[str, Table]) -> Table:
            return _translated(making, known, text, given, limits)

        if several is None:
            return making.finished(translated(text, {}), key)
        return making.finished(several.made(making, translated, limits), key)
    except (MakingError, ExpressionError) as error:
        raise QueryError(str(error)) from None
    except RecursionError:
        raise QueryError("it is nested too deeply") from None


def _translated(
    making: Making, known: Known, text: str, given: Mapping[str, Table], limits: Limits
) -> Table:
    """What a query gives over what is known, and tables that are `given`.  Raises: QueryError."""
    text, windows = without_windows(text)
    node = shaped(query_tree(text))
    query = Query(making, known, node, select, filtered, windows, Recursion(given, limits))
    query.bind(text, {NOW: "TIMESTAMP"})
    for each in loose(node):
        raise QueryError(LOOSE, each.get("query_location"))
    return query.result()


def tables_of(text: str) -> list[str]:
    """The collections that a query names in FROM; none if it cannot be parsed."""
    try:
        text, _ = limits_of(text)
        if (several := mutual(text)) is not None:
            return several.tables(tables_of)
        text, windows = without_windows(text)
        node = query_tree(text)
    except QueryError:
        return []
    named = [each["table_name"] for each in named_tables(node)]
    return [windows[name].source if name in windows else name for name in named]


_FIRST = "write QUALIFY row_number() OVER (PARTITION BY … ORDER BY …) <= 3"
# How many more rows a comparison keeps than the number that it compares with.
_KEEPS = {"COMPARE_LESSTHANOREQUALTO": 0, "COMPARE_LESSTHAN": -1, "COMPARE_EQUAL": 0}


@dataclass(frozen=True, slots=True)
class _Ordered:
    """An expression to order by."""

    node: Node
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class _Ranked:
    """The first rows of partitions."""

    partitions: tuple[Node, ...]
    orders: tuple[_Ordered, ...]
    limit: int


def select(query: Query, node: Node, views: Views) -> Table:
    """The collection that a SELECT gives.  Raises: QueryError."""
    refuse_select(node)
    names = filtered(query, node, views, None)
    return _Select(query, node, views, names).relation()


def _refuse_windows(node: Node) -> None:
    for each in own_nodes(node):
        if each["class"] == "WINDOW":
            raise QueryError(
                f"a window in the select list is not supported; for the first rows {_FIRST}, for "
                "sums join a query with GROUP BY",
                each.get("query_location"),
            )


class _Select:
    def __init__(self, query: Query, node: Node, views: Views, names: Names) -> None:
        self._query = query
        self._node = node
        self._views = views
        self._names = names

    def relation(self) -> Table:
        node, names = self._node, self._names
        parts = [node["select_list"], node["qualify"], node["modifiers"]]
        if self._has_groups() or node["having"] or calls(parts):
            item = self._query.item(names.froms, "where", self._read())
            names.froms = Froms([item], [], names.froms.merged)
            return self._of_groups()
        listed = output_names(self._listed())
        ranked = [*self._windows(), *self._limits(listed)]
        return self._shown(names.froms, listed, ranked)

    def _has_groups(self) -> bool:
        """Whether rows are grouped; GROUP BY ALL groups by each column without an aggregate."""
        if self._node["aggregate_handling"] != "FORCE_AGGREGATES":
            return has_groups(self._node)
        return bool(self._groups(output_names(self._listed())))

    def _read(self) -> set[tuple[str, ...]] | None:
        """The columns that are read behind WHERE, as pairs (alias, field); None: it may be all."""
        node = self._node
        parts = [node[part] for part in ("select_list", "group_expressions", "having", "qualify")]
        parts.append(node["modifiers"])
        if has_subquery(parts) or stars_of(node["select_list"]):
            return None
        return {tuple(names[:2]) for names in columns(self._names.resolved({"all": parts}))}

    def _of_groups(self) -> Table:
        node, names = self._node, self._names
        listed = output_names(self._listed())
        groups = self._groups(listed)
        having = [self._having(each, groups) for each in conjuncts(node["having"])]
        # What takes away needs what there is as one collection, of which the rest is tested first.
        having.sort(key=lambda each: has_subquery(each) and 1 + takes_away(each))
        ranked = [*self._windows(), *self._limits(listed)]
        asked = [tree for _, tree in listed] + having
        asked += [tree for each in ranked for tree in each.partitions]
        asked += [order.node for each in ranked for order in each.orders]
        (item,) = names.froms.items
        found = grouped(self._query, item, groups, asked, sets=self._sets(listed, groups))
        over = found.over
        of_groups = Names(Froms([found.with_names_of(item)]))
        subqueries = Subqueries(self._query, self._views, of_groups, of_groups=True)
        for condition in having:
            if has_subquery(condition):
                subqueries.add(over(condition))
            else:
                of_groups.froms.conditions.append(over(condition))
        ranked = [
            _Ranked(
                tuple(map(over, each.partitions)),
                tuple(replace(order, node=over(order.node)) for order in each.orders),
                each.limit,
            )
            for each in ranked
        ]
        return self._shown(of_groups.froms, [(n, over(tree)) for n, tree in listed], ranked)

    def _having(self, node: Node, groups: Listed) -> Node:
        """A condition of HAVING; a name is of a group before it is one of the select list."""
        names = self._names
        grouped_by = [bare(tree) for _, tree in groups]

        def change(found: Node) -> Node | None:
            if is_aggregate(found):
                return names.resolved(found)
            meant = names.column(found)
            if meant is None or bare(meant) in grouped_by:
                return meant
            return names.shown(found) or meant

        made: Node = changed(node, change, parts_too=True)
        return made

    def _listed(self) -> Iterable[tuple[str, Node]]:
        for at, each in enumerate(self._node["select_list"]):
            if stars_of(each):
                yield from columns_of(each, self._names)
                continue
            if has_subquery(each):
                raise QueryError(
                    "a subquery in the select list is not supported; join it, as in "
                    "LEFT JOIN (SELECT k, sum(x) AS s FROM … GROUP BY k) t ON t.k = …",
                    each.get("query_location"),
                )
            _refuse_windows(each)
            name = each.get("alias") or ""
            if not name and each["class"] == "COLUMN_REF":
                name = self._names.called(each)
            elif not name and each["class"] == "FUNCTION" and calls(each)[:1] == [each]:
                name = each["function_name"].lower()
            yield name or f"column{at}", self._names.resolved({**each, "alias": ""})

    def _groups(self, listed: Listed) -> Listed:
        """What rows are grouped by, with names."""
        if self._node["aggregate_handling"] == "FORCE_AGGREGATES":
            return [(name, tree) for name, tree in listed if columns(tree) and not calls(tree)]
        found: Listed = []
        for each in self._node["group_expressions"]:
            name, tree = self._group(each, listed)
            if not any(bare(tree) == bare(other) for _, other in found):
                found.append((name, tree))
        return found

    def _sets(self, listed: Listed, groups: Listed) -> list[set[int]]:
        """The grouping sets as places of groups, if there are several."""
        sets = self._node["group_sets"]
        if len(sets) < 2:
            return []
        trees = [bare(tree) for _, tree in groups]
        expressions = self._node["group_expressions"]
        places = [trees.index(bare(self._group(each, listed)[1])) for each in expressions]
        return [{places[at] for at in members} for members in sets]

    def _group(self, each: Node, listed: Listed) -> tuple[str, Node]:
        at = whole_number(each)
        if at is not None and 0 < at <= len(listed):
            return listed[at - 1]
        tree = self._names.resolved(each)
        if each["class"] == "COLUMN_REF":
            return each["column_names"][-1], tree
        return next((name for name, other in listed if bare(other) == bare(tree)), "g"), tree

    def _limits(self, listed: Listed) -> list[_Ranked]:
        modifiers = {each["type"]: each for each in self._node["modifiers"]}
        if "LIMIT_MODIFIER" not in modifiers:
            return []
        limit = limit_of(modifiers["LIMIT_MODIFIER"])
        by_name = {name.lower(): tree for name, tree in listed}
        orders = []
        for order in modifiers["ORDER_MODIFIER"]["orders"]:
            each = order["expression"]
            if each["class"] == "STAR":
                # ORDER BY ALL.
                orders += [_Ordered(tree, *direction(order)) for _, tree in listed]
                continue
            at = whole_number(each)
            plain = each["class"] == "COLUMN_REF" and len(each["column_names"]) == 1
            if at is not None and 0 < at <= len(listed):
                tree = listed[at - 1][1]
            elif plain and each["column_names"][0].lower() in by_name:
                tree = by_name[each["column_names"][0].lower()]
            else:
                tree = self._names.resolved(each)
            orders.append(_Ordered(tree, *direction(order)))
        return [_Ranked((), tuple(orders), limit)]

    def _windows(self) -> list[_Ranked]:
        return [self._window(each) for each in conjuncts(self._node["qualify"])]

    def _window(self, node: Node) -> _Ranked:
        place = node.get("query_location")
        window = node.get("left") or {}
        limit = whole_number(node["right"]) if node.get("right") else None
        is_one = window.get("type") == "WINDOW_ROW_NUMBER"
        if node["type"] not in _KEEPS or not is_one or limit is None:
            raise QueryError(f"this QUALIFY is not supported; {_FIRST}", place)
        limit += _KEEPS[node["type"]]
        if limit < 1 or (node["type"] == "COMPARE_EQUAL" and limit != 1):
            raise QueryError(f"only the first rows can be kept; {_FIRST}", place)
        if window["arg_orders"]:
            problem = f"row_number(ORDER BY …) is not supported; {_FIRST}"
            raise QueryError(problem, window["arg_orders"][0]["expression"].get("query_location"))
        if not window["orders"]:
            raise QueryError(f"row_number() needs an ORDER BY; {_FIRST}", place)
        resolved = self._names.resolved
        orders = [_Ordered(resolved(o["expression"]), *direction(o)) for o in window["orders"]]
        return _Ranked(tuple(map(resolved, window["partitions"])), tuple(orders), limit)

    def _shown(self, froms: Froms, listed: Listed, ranked: Sequence[_Ranked]) -> Table:
        """What is selected, of which only the first rows are kept, each of them once."""
        making = self._query.making
        is_distinct = any(m["type"] == "DISTINCT_MODIFIER" for m in self._node["modifiers"])
        hidden: Listed = []
        used = {name.lower() for name, _ in listed}

        def shown_as(tree: Node) -> str:
            """The column that has an expression, which may be one that is not shown."""
            plain = bare(tree)
            for name, other in [*listed, *hidden]:
                if bare(other) == plain:
                    return name
            hidden.append((free("by", used), tree))
            return hidden[-1][0]

        by = [
            (
                [shown_as(tree) for tree in each.partitions],
                [Order(shown_as(o.node), o.descending, o.nulls_first) for o in each.orders],
                each.limit,
            )
            for each in ranked
        ]
        # QUALIFY is of what there is before DISTINCT, and LIMIT of what comes of both.
        of_qualify = sum(1 for _ in conjuncts(self._node["qualify"]))
        relation = selected(self._query, froms, [*listed, *hidden], "select")
        if of_qualify:
            # Each condition ranks all rows; equal ones may stand for each other.
            kept = [first_rows(making, relation, *each) for each in by[:of_qualify]]
            relation = rows.set_operation(making, "intersect", kept, every=True)
        after = by[of_qualify:]
        if not is_distinct:
            for partitions, orders, limit in after:
                relation = first_rows(making, relation, partitions, orders, limit)
        if hidden:
            own = [(name, quoted(name)) for name, _ in listed]
            relation = making.select(relation, "shown", own)
        if not is_distinct:
            return relation
        relation = rows.distinct(making, relation)
        for partitions, orders, limit in after:
            if any(order.column not in relation.types for order in orders):
                raise QueryError("with DISTINCT, ORDER BY needs columns of the result")
            relation = first_rows(making, relation, partitions, orders, limit)
        return relation
