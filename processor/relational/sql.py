"""Translate a SQL query into linear operators, delta joins and reductions.

DuckDB parses the query and binds it over the columns of its tables; this module translates the
syntax tree.  A SELECT becomes, in this order:

* Windows in FROM (`windows`): linear operators, and for sessions a reduction.  MATCH_RECOGNIZE
  (`sql_patterns`): queries around an operator that finds matches.
* Conditions with `ikebana_now()` (`sql_filter`): linear operators with `valid_until`.
* FROM and WHERE (`sql_filter`): one delta join of all inner joins, with every condition; a linear
  operator if there is a single collection.  Outer joins come before it (`outer_joins`).
  Subqueries are further collections to join (`sql_subqueries`).
* Recursive WITH (`recursion`): a loop of these operators.
* GROUP BY (`sql_aggregates`): a reduction, filtered by HAVING, with linear steps for the columns.
* The select list, with window functions (`sql_over`); QUALIFY; DISTINCT; ORDER BY with LIMIT and
  OFFSET.  Distinct rows and the first rows of partitions are reductions (`rows`).

Everything else is refused with its place in the text.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import count
from typing import Any

from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.kernels.window_values import WHOLE_FRAME, FrameAggregate, Ranking
from ikebana.processor.linear.allowed import LOOSE, loose
from ikebana.processor.linear.bound_query import SqlQueryError, query_tree
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import KEY, ExpressionError
from ikebana.processor.linear.sql_functions import short_name
from ikebana.processor.linear.syntax import (
    Node,
    changed,
    column,
    columns,
    conjuncts,
    has_subquery,
    own_nodes,
    text_of,
    unplaced,
)
from ikebana.processor.planning.plan import Operator
from ikebana.processor.planning.relations import Keys, KnownKeys
from ikebana.processor.relational import rows
from ikebana.processor.relational.making import (
    ColumnList,
    KnownRelations,
    Listed,
    Making,
    MakingError,
    Table,
    name_like,
    unused_name,
)
from ikebana.processor.relational.outer_joins import Conditions, Item, anti_join, null_safe
from ikebana.processor.relational.recursion import RecursionLimits, limits_of, mutual
from ikebana.processor.relational.rows import Order, first_rows
from ikebana.processor.relational.sql_aggregates import calls, direction, grouped, is_aggregate
from ikebana.processor.relational.sql_dependent import OuterNames, with_columns
from ikebana.processor.relational.sql_filter import filtered
from ikebana.processor.relational.sql_over import (
    Over,
    OverColumns,
    WindowResult,
    is_growing,
    is_row_number,
    is_window,
    windows_of,
    with_functions,
)
from ikebana.processor.relational.sql_patterns import without_calls
from ikebana.processor.relational.sql_refusals import (
    NOW,
    bounded_by,
    has_groups,
    limit_of,
    refuse_select,
    targets_of,
    whole_number,
)
from ikebana.processor.relational.sql_scope import (
    Froms,
    Names,
    columns_of,
    output_names,
    stars_of,
)
from ikebana.processor.relational.sql_shape import as_duckdb, rewritten
from ikebana.processor.relational.sql_subqueries import Subqueries
from ikebana.processor.relational.sql_whole import (
    By,
    QueryTranslation,
    Recursion,
    Subquery,
    SubqueryTotals,
    named_tables,
    selected,
)


@dataclass(frozen=True, slots=True)
class _Ordered:
    """An expression to order by."""

    node: Node
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class _Behind:
    """The clauses that apply after the select list, over the columns of FROM or of groups."""

    qualify: tuple[Node, ...] = ()
    targets: tuple[Node, ...] = ()
    """The expressions of DISTINCT ON."""
    orders: tuple[_Ordered, ...] = ()

    def nodes(self) -> list[Node]:
        """All expressions."""
        return [*self.qualify, *self.targets, *(order.node for order in self.orders)]

    def over(self, change: Callable[[Node], Node]) -> "_Behind":
        """The same clauses with each expression changed."""
        orders = tuple(replace(order, node=change(order.node)) for order in self.orders)
        return _Behind(tuple(map(change, self.qualify)), tuple(map(change, self.targets)), orders)


def _by_columns(columns: ColumnList, orders: Sequence[_Ordered]) -> list[Order]:
    """The orders by columns; what no column has becomes a hidden one."""
    return [
        Order(columns.of(each.node), each.descending, each.nulls_first, text_of(each.node))
        for each in orders
    ]


class _Shown:
    """The collection of a SELECT; LIMIT and OFFSET apply to each value of the columns `by`."""

    def __init__(
        self,
        query: QueryTranslation,
        node: Node,
        listed: Listed,
        behind: _Behind,
        bounds: Mapping[str, int],
        by: Sequence[str] = (),
    ) -> None:
        self._by = by
        self._query, self._node, self._listed = query, node, listed
        self._behind, self._bounds = behind, bounds
        self._modifiers = {each["type"]: each for each in node["modifiers"]}

    def of(self, froms: Froms) -> Table:
        """Translate the clauses over the items of FROM.  Raises: SqlQueryError."""
        making, behind = self._query.making, self._behind
        asked = [*(node for _, node in self._listed), *behind.nodes()[len(behind.qualify) :]]
        firsts = [first for each in behind.qualify if (first := _first_of(each)) is not None]
        is_over = bool(windows_of(asked)) or len(firsts) < len(behind.qualify)
        over, columns = OverColumns(self._listed), ColumnList(self._listed)
        if is_over:
            columns = ColumnList([(name, over.over(node)) for name, node in self._listed])
            behind = behind.over(over.over)
        targets = [*map(columns.of, behind.targets)]
        orders = _by_columns(columns, behind.orders)
        if is_over:
            table = over.table(self._query, froms, self._most())
            table = making.where(table, "qualify", *map(text_of, behind.qualify))
            table = making.select(table, "shown", _texts(columns.listed))
            return self._cut(table, targets, orders)
        by = [
            ([*map(columns.of, each["partitions"])], _by_columns(columns, _orders(each)), limit)
            for each, limit in firsts
        ]
        table = selected(self._query, froms, columns.listed, "select")
        if by:
            # Each condition ranks all rows, so the result is the intersection.
            tables = [first_rows(making, table, *each) for each in by]
            table = rows.set_operation(making, "intersect", tables, every=True)
        return self._cut(table, targets, orders)

    def _cut(self, table: Table, targets: Sequence[str], orders: Sequence[Order]) -> Table:
        """Apply DISTINCT, LIMIT and OFFSET, and drop hidden columns."""
        making = self._query.making
        select = [(name, quoted(name)) for name, _ in self._listed]
        has_hidden = len(table.types) > len(select)
        if "DISTINCT_MODIFIER" in self._modifiers and not targets:
            if has_hidden:
                table = making.select(table, "shown", select)
            if any(order.column not in dict(select) for order in orders):
                raise SqlQueryError("with DISTINCT, ORDER BY needs columns of the result")
            return self._limited(rows.distinct(making, table), orders)
        if targets:
            table = first_rows(making, table, targets, orders, 1, "on")
        table = self._limited(table, orders)
        return making.select(table, "shown", select) if has_hidden else table

    def _limited(self, table: Table, orders: Sequence[Order]) -> Table:
        """The rows within LIMIT and OFFSET; without ORDER BY, they are ordered by all columns."""
        if (modifier := self._modifiers.get("LIMIT_MODIFIER")) is None:
            return table
        making, (limit, left_out, percent) = self._query.making, limit_of(modifier)
        if percent is not None:
            return self._part(table, orders, left_out, percent)
        if limit == 0:
            return making.where(table, "limit", "false")
        if not left_out:
            return table if limit is None else first_rows(making, table, self._by, orders, limit)
        if limit is None:
            left = first_rows(making, table, self._by, orders, left_out)
            return rows.set_operation(making, "except", [table, left], every=True)
        number = table.free_column("number")
        ranked = first_rows(making, table, self._by, orders, limit + left_out, number=number)
        ranked = making.where(ranked, "offset", f"{quoted(number)} > {left_out}")
        return making.select(ranked, "shown", [(name, quoted(name)) for name in table.types])

    def _part(
        self, table: Table, orders: Sequence[Order], left_out: int, percent: Decimal
    ) -> Table:
        """The rows of LIMIT n%, after the first `left_out` rows."""
        number, count = table.free_column("number"), table.free_column("count")
        functions = [
            WindowResult(number, Ranking("row_number")),
            WindowResult(count, FrameAggregate(Aggregate(count, "count"), frame=WHOLE_FRAME)),
        ]
        making, over = self._query.making, Over(tuple(self._by), tuple(orders))
        ranked = with_functions(making, table, over, functions, what="part")
        most = f"{left_out} + floor({quoted(count)} * {percent} / 100)"
        within = f"{quoted(number)} > {left_out} AND {quoted(number)} <= {most}"
        ranked = making.where(ranked, "limit", within)
        return making.select(ranked, "shown", [(name, quoted(name)) for name in table.types])

    def _most(self) -> tuple[Node, int] | None:
        """A rank that QUALIFY or the WHERE of the query around bounds, and its bound."""
        bounds = [each for each in map(bounded_by, self._behind.qualify) if each is not None]
        if not {"LIMIT_MODIFIER", "DISTINCT_MODIFIER"} & self._modifiers.keys():
            bounds += [
                (node, self._bounds[name.lower()])
                for name, node in self._listed
                if name.lower() in self._bounds
            ]
        return next((each for each in bounds if is_growing(each[0]) and each[1] > 0), None)


def _texts(listed: Listed) -> list[tuple[str, str]]:
    return [(name, text_of(node)) for name, node in listed]


def _first_of(condition: Node) -> tuple[Node, int] | None:
    """The row_number() of a condition that keeps the first rows, and how many; else None."""
    bound = bounded_by(condition)
    if bound is None or not is_row_number(bound[0]) or bound[1] < 1:
        return None
    node, limit = bound
    match condition["type"]:
        case "COMPARE_EQUAL":
            is_first = limit == 1
        case "COMPARE_BETWEEN":
            lower = whole_number(condition["lower"])
            is_first = lower is not None and lower <= 1
        case _:
            is_first = True
    return bound if is_first and node["orders"] and not node["arg_orders"] else None


def _orders(window: Node) -> list[_Ordered]:
    return [_Ordered(each["expression"], *direction(each)) for each in window["orders"]]


# Decision (views come from the syntax tree): A checkpoint belongs to the plan of operators, which
# must not change with DuckDB's planner, and operators keep the query's names. DuckDB binds the
# query first, so its words and places tell what is wrong.


def sql_operators(
    name: str, text: str, pipeline: KnownRelations, key: str | None = None
) -> tuple[Operator, ...]:
    """Translate a query into operators; the last one is called `name`.

    `key` is SQL over the columns of the result: its key.

    Raises:
        SqlQueryError: the query is refused.
        ReportedError: a collection that it reads has a problem of its own.
    """
    making = Making(pipeline, name)
    try:
        text, limits = limits_of(text)
        several = mutual(text)

        def translated(text: str, tables: Mapping[str, Table]) -> Table:
            return _translated(making, pipeline, text, tables, limits)

        if several is None:
            return making.finished(translated(text, {}), key)
        return making.finished(several.result(making, translated, limits), key)
    except (MakingError, ExpressionError) as error:
        raise SqlQueryError(str(error)) from None
    except RecursionError:
        raise SqlQueryError("it is nested too deeply") from None


def _translated(
    making: Making,
    pipeline: KnownRelations,
    text: str,
    tables: Mapping[str, Table],
    limits: RecursionLimits,
) -> Table:
    """Translate a query over the pipeline and over further `tables`.  Raises: SqlQueryError."""

    def within(text: str, tables: Mapping[str, Table]) -> Table:
        try:
            return _translated(making, pipeline, text, tables, limits)
        except SqlQueryError as error:
            # Its place is in a text that nobody wrote.
            raise SqlQueryError(error.problem) from None

    text, others = without_calls(text)
    written = query_tree(text)
    node = rewritten(written)
    recursion = Recursion(tables, limits)
    query = QueryTranslation(making, pipeline, node, select, others, recursion, within)
    query.bind(as_duckdb(text, written), written, {NOW: "TIMESTAMP", "mz_now": "TIMESTAMP"})
    for each in loose(node):
        raise SqlQueryError(LOOSE, each.get("query_location"))
    return query.result()


def tables_of(text: str) -> list[str]:
    """The collections that a query names in FROM; none if it cannot be parsed."""
    try:
        text, _ = limits_of(text)
        if (several := mutual(text)) is not None:
            return several.tables(tables_of)
        text, others = without_calls(text)
        node = query_tree(text)
    except SqlQueryError:
        return []
    named = [each["table_name"] for each in named_tables(node)]
    return [others[name].source if name in others else name for name in named]


def select(query: QueryTranslation, subquery: Subquery, by: By) -> Table | SubqueryTotals:
    """Translate a SELECT; the columns of `by` are the last ones of its result.

    Raises: SqlQueryError.
    """
    refuse_select(subquery.node)
    names = filtered(query, subquery, by.domain)
    return _Select(query, subquery, names, by).result()


def _field(node: Node) -> str:
    """The field of a reduction that joins a subquery with the query around it."""
    if node["class"] != "COLUMN_REF":
        problem = "a subquery is joined by a column that is always null; cast it to a type"
        raise SqlQueryError(problem, node.get("query_location"))
    name: str = node["column_names"][1]
    return name


def _grouped_by(node: Node, names: Names) -> Iterator[Node]:
    """The expressions of GROUP BY, with names not resolved.

    A name is that of a column, or else of an expression of the select list.
    """
    listed = node["select_list"]
    if node["aggregate_handling"] == "FORCE_AGGREGATES":
        yield from (each for each in listed if not calls(each))
    for each in node["group_expressions"]:
        at, name = whole_number(each), each.get("column_names", [""])[-1].lower()
        yield listed[at - 1] if at is not None and 0 < at <= len(listed) else each
        if name and names.meant(each["column_names"], (False,)) is None:
            yield from (of for of in listed if (of.get("alias") or "").lower() == name)


def _of_all(
    making: Making,
    domain: Item,
    groups: Item,
    fields: Sequence[str],
    of_none: Mapping[str, str],
    times: int,
) -> Item:
    """Groups with those of no rows for each value of a domain that has none, so many `times`.

    The fields of groups are the values of the domain.  Groups of no rows have nulls, except in
    columns with SQL in `of_none`.
    """
    columns = dict(zip(fields, domain.relation.types, strict=True))
    pairs = [
        (column(domain.alias, name), column(groups.alias, field))
        for field, name in columns.items()
    ]
    on = Conditions((), (), null_safe(pairs), ())
    without = anti_join(making, domain, groups, on, "none")
    listed = [
        (name, quoted(columns[name]) if name in columns else of_none.get(name, f"NULL::{kind}"))
        for name, kind in groups.relation.types.items()
    ]
    rows_of_none = making.select(without, "none", listed)
    keys = Keys()
    if not of_none:
        keys = keys.with_unique(fields, [KEY, *groups.relation.types])
    relation = making.together(
        "groups.every", groups.relation, *[rows_of_none] * times, facts=KnownKeys(keys, keys)
    )
    return replace(groups, relation=relation)


def _aggregates_within(
    query: QueryTranslation, subquery: Subquery, names: Names
) -> Iterator[tuple[str, Node]]:
    """The aggregates in subqueries of a SELECT that read its columns alone, each with a name."""
    reads, numbers = OuterNames(query.tables), count()
    parts = [subquery.node[part] for part in ("select_list", "having", "modifiers", "qualify")]
    for each in own_nodes(parts):
        if each["class"] != "SUBQUERY":
            continue
        for call, read in reads.outer_aggregates(subquery.within(each["subquery"]["node"])):
            if all(names.meant(name, (False,)) is not None for name in read):
                yield f"a{next(numbers)}", call


# The qualifier of columns with aggregates that subqueries read.
_LIFTED = "ikebana_aggregate"


def _with_nodes(value: Any, instead: Mapping[int, Node]) -> Any:
    """A tree, subqueries within it too, with nodes replaced by others, by their ids."""
    if id(value) in instead:
        return instead[id(value)]
    if isinstance(value, list):
        return [_with_nodes(each, instead) for each in value]
    if isinstance(value, dict):
        return {name: _with_nodes(each, instead) for name, each in value.items()}
    return value


def _apart(keys: Listed) -> Callable[[Node], Node]:
    """Return a function that partitions the windows of an expression by the keys too."""

    def change(node: Node) -> Node | None:
        if not is_window(node):
            return None
        return {**node, "partitions": [*(key for _, key in keys), *node["partitions"]]}

    def apart(node: Node) -> Node:
        result: Node = changed(node, change)
        return result

    return apart


class _Select:
    def __init__(self, query: QueryTranslation, subquery: Subquery, names: Names, by: By) -> None:
        self._query = query
        self._node = node = subquery.node
        self._subquery = subquery
        self._names = names
        self._by = by
        # Aggregates of this query within its subqueries, by names of hidden columns.
        self._lifted = dict(_aggregates_within(query, subquery, names))
        instead = {id(call): column(_LIFTED, name) for name, call in self._lifted.items()}
        self._node = _with_nodes(node, instead) if instead else node

    def result(self) -> Table | SubqueryTotals:
        node, names = self._node, self._names
        orders = [modifier.get("orders") for modifier in node["modifiers"]]
        parts = [node["select_list"], node["qualify"], orders, targets_of(node)]
        subqueries = Subqueries(self._query, self._subquery, names)
        if self._has_groups() or node["having"] or calls(parts) or self._lifted:
            subqueries.place([*_grouped_by(node, names), *calls([*parts, node["having"]])])
            names.froms = self._query.one(names.froms, "where", self._read())
            return self._of_groups()
        subqueries.place(parts)
        listed = output_names(self._listed())
        return self._shown(names.froms, listed, self._keys(listed), self._behind(listed))

    def _shown(self, froms: Froms, listed: Listed, keys: Listed, behind: _Behind) -> Table:
        """The result, with the keys as its last columns."""
        apart = _apart(keys)
        targets = [*(key for _, key in keys), *behind.targets] if behind.targets else []
        behind = replace(behind.over(apart), targets=tuple(targets))
        every = [*((name, apart(tree)) for name, tree in listed), *keys]
        of_each = [name for name, _ in keys]
        return _Shown(self._query, self._node, every, behind, self._by.bounds, of_each).of(froms)

    def _keys(self, listed: Listed) -> Listed:
        """The columns of `by`, with names that no other column has."""
        used = {name.lower() for name, _ in listed}
        by = self._by.columns(self._names)
        return [(unused_name(name_like(tree, "k"), used), tree) for tree in by]

    def _has_groups(self) -> bool:
        """Whether rows are grouped; GROUP BY ALL groups by each column without an aggregate."""
        if self._node["aggregate_handling"] != "FORCE_AGGREGATES":
            return has_groups(self._node)
        return bool(self._groups(output_names(self._listed())))

    def _read(self) -> set[tuple[str, ...]] | None:
        """The columns read after WHERE, as pairs (alias, field); None if it may be all."""
        node = self._node
        parts = [node[part] for part in ("select_list", "group_expressions", "having", "qualify")]
        parts += [node["modifiers"], self._by.expressions]
        if has_subquery(parts) or stars_of(node["select_list"]):
            return None
        return {tuple(names[:2]) for names in columns(self._names.resolved({"all": parts}))}

    def _of_groups(self) -> Table | SubqueryTotals:
        node, names = self._node, self._names
        listed = output_names(self._listed())
        keys, groups = self._keys(listed), self._groups(listed)
        having = [self._having(each, groups) for each in conjuncts(node["having"])]
        behind = self._behind(listed)
        lifted = [(name, names.resolved(call)) for name, call in self._lifted.items()]
        asked = [tree for _, tree in [*listed, *lifted]] + having + behind.nodes()
        (item,) = names.froms.items
        is_total = bool(keys and not groups)
        sets = self._sets(keys, listed, groups)
        bare_keys = [] if sets else [unplaced(tree) for _, tree in keys]
        by = [*keys, *(each for each in groups if unplaced(each[1]) not in bare_keys)]
        of_nothing = sum(not members for members in node["group_sets"]) if sets else int(is_total)
        has_none = bool(keys and of_nothing)
        reduction = grouped(self._query, item, by, asked, sets=sets, of_none=has_none)
        over = reduction.over
        fields = [_field(over(tree)) for _, tree in keys]
        domain = self._by.domain
        if has_none and domain is None:
            return SubqueryTotals(
                reduction.item, tuple(fields), [(name, over(tree)) for name, tree in listed]
            )
        group_item = reduction.with_names_of(item)
        if has_none and domain is not None:
            # A set of nothing lacks all groups, of which each is a bit behind those of keys.
            number = (1 << len(by)) - (1 << len(keys))
            absent = {list(group_item.relation.types)[-1]: f"{number}::BIGINT"} if sets else {}
            group_item = _of_all(
                self._query.making, domain, group_item, fields, absent, of_nothing
            )
        if lifted:
            hidden = [(_LIFTED, name, over(tree)) for name, tree in lifted]
            group_item = with_columns(self._query, group_item, hidden)
        of_groups = Names(
            Froms([group_item]), lambda node: (tree := names.shown(node)) and over(tree)
        )
        subqueries = Subqueries(self._query, self._subquery, of_groups, are_resolved=True)
        subqueries.add_all(map(over, having))
        shown = [(name, over(tree)) for name, tree in listed]
        behind = behind.over(over)
        subqueries.place([*(tree for _, tree in shown), *behind.nodes()])
        return self._shown(
            of_groups.froms,
            [(name, subqueries.resolved(tree)) for name, tree in shown],
            [(name, over(tree)) for name, tree in keys],
            behind.over(subqueries.resolved),
        )

    def _having(self, node: Node, groups: Listed) -> Node:
        """Resolve a condition of HAVING; names of groups hide names of the select list."""
        names = self._names
        grouped_by = [unplaced(tree) for _, tree in groups]

        def change(node: Node) -> Node | None:
            if is_aggregate(node):
                return names.resolved(node)
            meant = names.column(node)
            if meant is None or node["class"] == "SUBQUERY" or unplaced(meant) in grouped_by:
                return meant
            return names.shown(node) or meant

        result: Node = changed(node, change, parts_too=True)
        return result

    def _listed(self) -> Iterable[tuple[str, Node]]:
        for at, each in enumerate(self._node["select_list"]):
            name = each.get("alias") or ""
            if not name and each["class"] == "COLUMN_REF":
                name = self._names.called(each)
            elif not name and each["class"] == "FUNCTION" and calls(each)[:1] == [each]:
                name = short_name(each["function_name"].lower())
            if stars_of(each):
                for called, expression in columns_of(each, self._names):
                    yield called or name or f"column{at}", expression
                continue
            yield name or f"column{at}", self._names.resolved({**each, "alias": ""})

    def _groups(self, listed: Listed) -> Listed:
        """The distinct expressions of GROUP BY, with names."""
        if self._node["aggregate_handling"] == "FORCE_AGGREGATES":
            return [(name, tree) for name, tree in listed if columns(tree) and not calls(tree)]
        groups: Listed = []
        for each in self._node["group_expressions"]:
            name, tree = self._group(each, listed)
            if not any(unplaced(tree) == unplaced(other) for _, other in groups):
                groups.append((name, tree))
        return groups

    def _sets(self, keys: Listed, listed: Listed, groups: Listed) -> list[set[int]]:
        """The grouping sets as positions in keys and groups; empty if there is only one set."""
        sets = self._node["group_sets"]
        if len(sets) < 2:
            return []
        trees = [unplaced(tree) for _, tree in groups]
        expressions = self._node["group_expressions"]
        places = [trees.index(unplaced(self._group(each, listed)[1])) for each in expressions]
        of_keys = range(len(keys))
        return [{*of_keys, *(len(keys) + places[at] for at in members)} for members in sets]

    def _group(self, each: Node, listed: Listed) -> tuple[str, Node]:
        at = whole_number(each)
        if at is not None and 0 < at <= len(listed):
            return listed[at - 1]
        tree = self._names.resolved(each)
        if each["class"] == "COLUMN_REF":
            return each["column_names"][-1], tree
        return next(
            (name for name, other in listed if unplaced(other) == unplaced(tree)), "g"
        ), tree

    def _behind(self, listed: Listed) -> _Behind:
        modifiers = {each["type"]: each for each in self._node["modifiers"]}
        orders = modifiers.get("ORDER_MODIFIER", {}).get("orders", ())
        return _Behind(
            tuple(map(self._names.resolved, conjuncts(self._node["qualify"]))),
            tuple(
                node
                for each in targets_of(self._node)
                for node in _starred(each, self._names) or [self._meant(each, listed)]
            ),
            tuple(
                _Ordered(node, *direction(each))
                for each in orders
                for node in self._ordered_by(each["expression"], listed)
            ),
        )

    def _ordered_by(self, node: Node, listed: Listed) -> list[Node]:
        if node["class"] == "STAR" and not node["columns"]:
            # ORDER BY ALL.
            return [tree for _, tree in listed]
        return _starred(node, self._names) or [self._meant(node, listed)]

    def _meant(self, node: Node, listed: Listed) -> Node:
        """Resolve ORDER BY and DISTINCT ON: positions and names of the select list come first."""
        by_name = {name.lower(): tree for name, tree in listed}
        at = node.get("index") or whole_number(node)
        if at is not None and 0 < at <= len(listed):
            return listed[at - 1][1]
        if node["class"] == "COLUMN_REF" and len(node["column_names"]) == 1:
            shown = by_name.get(node["column_names"][0].lower())
            if shown is not None:
                return shown
        return self._names.resolved(node)


def _starred(node: Node, names: Names) -> list[Node]:
    """The expressions of one with stars; none if it has none."""
    return [tree for _, tree in columns_of(node, names)] if stars_of(node) else []
