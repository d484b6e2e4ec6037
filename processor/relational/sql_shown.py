"""The clauses of a SELECT that apply after FROM, WHERE and GROUP BY.

In this order: the select list, with window functions (`sql_over`); QUALIFY; DISTINCT; ORDER BY
with LIMIT and OFFSET.  The first rows of partitions are reductions (`rows.first_rows`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from ikebana.processor.kernels.window_values import ALL, Frame, WindowFunction
from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.syntax import Node, text_of
from ikebana.processor.linear.trees import bare
from ikebana.processor.relational import rows
from ikebana.processor.relational.making import Table
from ikebana.processor.relational.over import Over, Result, with_functions
from ikebana.processor.relational.rows import Order, first_rows
from ikebana.processor.relational.sql_aggregates import direction
from ikebana.processor.relational.sql_over import (
    OverColumns,
    is_growing,
    is_row_number,
    windows_of,
)
from ikebana.processor.relational.sql_refusals import bounded_by, limit_of
from ikebana.processor.relational.sql_rows import selected
from ikebana.processor.relational.sql_scope import Froms
from ikebana.processor.relational.sql_whole import Listed, Query, free


@dataclass(frozen=True, slots=True)
class Ordered:
    """An expression to order by."""

    node: Node
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Behind:
    """The clauses that apply after the select list, over the columns of FROM or of groups."""

    qualify: tuple[Node, ...] = ()
    targets: tuple[Node, ...] = ()
    """The expressions of DISTINCT ON."""
    orders: tuple[Ordered, ...] = ()

    def nodes(self) -> list[Node]:
        """All expressions."""
        return [*self.qualify, *self.targets, *(order.node for order in self.orders)]

    def over(self, change: Callable[[Node], Node]) -> "Behind":
        """The same clauses with each expression changed."""
        orders = tuple(replace(order, node=change(order.node)) for order in self.orders)
        return Behind(tuple(map(change, self.qualify)), tuple(map(change, self.targets)), orders)


class _Columns:
    """The columns of a result, and hidden ones that its clauses need."""

    def __init__(self, listed: Listed) -> None:
        self.listed = listed
        self.hidden: Listed = []
        self._used = {name.lower() for name, _ in listed}

    @property
    def every(self) -> Listed:
        """All columns."""
        return [*self.listed, *self.hidden]

    def of(self, node: Node) -> str:
        """The column of an expression; adds a hidden one if no column has it."""
        plain = bare(node)
        for name, other in self.every:
            if bare(other) == plain:
                return name
        self.hidden.append((free("by", self._used), node))
        return self.hidden[-1][0]

    def ordered(self, orders: Sequence[Ordered]) -> list[Order]:
        """The orders by columns."""
        return [
            Order(self.of(each.node), each.descending, each.nulls_first, text_of(each.node))
            for each in orders
        ]


class Shown:
    """The collection of a SELECT; LIMIT and OFFSET apply to each value of the columns `by`."""

    def __init__(
        self,
        query: Query,
        node: Node,
        listed: Listed,
        behind: Behind,
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
        if windows_of(asked) or len(firsts) < len(behind.qualify):
            over = OverColumns(self._listed)
            columns = _Columns([(name, over.over(node)) for name, node in self._listed])
            behind = behind.over(over.over)
            targets, orders = [*map(columns.of, behind.targets)], columns.ordered(behind.orders)
            table = over.table(self._query, froms, self._most())
            table = making.where(table, "qualify", *map(text_of, behind.qualify))
            table = making.select(table, "shown", _texts(columns.every))
        else:
            columns = _Columns(self._listed)
            targets, orders = [*map(columns.of, behind.targets)], columns.ordered(behind.orders)
            by = [
                ([*map(columns.of, node["partitions"])], columns.ordered(_orders(node)), limit)
                for node, limit in firsts
            ]
            table = selected(self._query, froms, columns.every, "select")
            if by:
                # Each condition ranks all rows, so the result is the intersection.
                tables = [first_rows(making, table, *each) for each in by]
                table = rows.set_operation(making, "intersect", tables, every=True)
        return self._cut(table, columns, targets, orders)

    def _cut(
        self, table: Table, columns: _Columns, targets: Sequence[str], orders: Sequence[Order]
    ) -> Table:
        """Apply DISTINCT, LIMIT and OFFSET, and drop hidden columns."""
        making = self._query.making
        select = [(name, quoted(name)) for name, _ in columns.listed]
        if "DISTINCT_MODIFIER" in self._modifiers and not targets:
            if columns.hidden:
                table = making.select(table, "shown", select)
            if any(order.column not in dict(select) for order in orders):
                raise SqlQueryError("with DISTINCT, ORDER BY needs columns of the result")
            return self._limited(rows.distinct(making, table), orders)
        if targets:
            table = first_rows(making, table, targets, orders, 1, "on")
        table = self._limited(table, orders)
        return making.select(table, "shown", select) if columns.hidden else table

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
            Result(number, WindowFunction(number, "row_number")),
            Result(count, WindowFunction(count, "count", frame=Frame("rows", ALL, ALL))),
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
    is_first = condition["type"] not in ("COMPARE_EQUAL", "COMPARE_BETWEEN") or limit == 1
    return bound if is_first and node["orders"] and not node["arg_orders"] else None


def _orders(window: Node) -> list[Ordered]:
    return [Ordered(each["expression"], *direction(each)) for each in window["orders"]]
