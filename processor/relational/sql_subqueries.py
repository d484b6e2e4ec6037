"""Subqueries in expressions, which become columns of joined collections.

A subquery becomes a collection (`sql_dependent`).  A column of it, or whether it has a matching
row, replaces the subquery in the expression.  In general the outer rows are joined with it by an
outer join, which keeps them all.  Conditions that are joined by AND need less: for EXISTS and IN
the distinct keys are one more input of the inner join, for NOT EXISTS and NOT IN an anti-join
removes the rows with a match, and a comparison with a missing value is not true.

`x <op> ANY (…)` is true if `x <op> y` is true for a row y, else null if it is null for one, else
false.  So it takes three questions: is there a row for which it is true, a row that is null, or,
if x is null, any row?  `ALL` is the negation of ANY with the negated operator.  `(a, b) = ANY (…)`
is true if both values are equal to those of a row, and null if each is equal or null, and one is
null; `<>` is null in the same cases.  By `<` and others, rows are compared value by value, and
null is greater than all others.

Where conditions other than equalities decide what matches, they are tested once for each distinct
tuple of the columns that they read, and the tuples that match are the keys.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ikebana.processor.linear.bound_query import SqlQueryError, is_null_of_nulls
from ikebana.processor.linear.json_text import literal, quoted
from ikebana.processor.linear.scope import KEY
from ikebana.processor.linear.syntax import (
    Node,
    changed,
    column,
    columns,
    conjuncts,
    equality_sides,
    has_subquery,
    own_nodes,
    renamed,
    text_of,
    tree,
    unplaced,
)
from ikebana.processor.relational.making import Listed, Table, unused_name
from ikebana.processor.relational.outer_joins import (
    Conditions,
    InputColumn,
    Item,
    anti_join,
    by_side,
    equality,
    keys_of,
    null_safe,
    outer_join,
    own_columns,
    without_alias,
)
from ikebana.processor.relational.sql_aggregates import calls
from ikebana.processor.relational.sql_dependent import (
    SubqueryResult,
    distinct_values,
    has_lists,
    is_one_row,
    leaves_none_out,
    translate_dependent,
)
from ikebana.processor.relational.sql_refusals import has_groups
from ikebana.processor.relational.sql_scope import VALUES, Froms, Names
from ikebana.processor.relational.sql_whole import QueryTranslation, Selection, Subquery

# Functions that are null if one of their arguments is.
_STRICT = {"+", "-", "*", "/", "//", "%"}
_COMPARISONS = {
    *("COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_LESSTHAN", "COMPARE_GREATERTHAN"),
    *("COMPARE_LESSTHANOREQUALTO", "COMPARE_GREATERTHANOREQUALTO", "COMPARE_BETWEEN"),
}
_EQUALITIES = ("COMPARE_EQUAL", "COMPARE_NOTEQUAL")
_SEVERAL = "a subquery for one value has several rows: "


class Subqueries:
    """Joins subqueries with the collections of a query, and replaces them in expressions.

    They stand in the query `around`; `beside` are conditions that are true for all rows.  If
    expressions `are_resolved` already, they read the first collection, which therefore keeps its
    alias and its columns.
    """

    def __init__(
        self,
        query: QueryTranslation,
        around: Subquery,
        names: Names,
        beside: Iterable[Node] = (),
        *,
        are_resolved: bool = False,
    ) -> None:
        self._query = query
        self._around = around
        self._names = names
        self._gathered = Gathered(query, names, are_resolved=are_resolved)
        self._nonnull = _nonnull(beside)
        self._are_resolved = are_resolved

    def add(self, condition: Node) -> None:
        """Add a condition that is joined to others by AND.  Raises: SqlQueryError."""
        inner, is_negative = condition, False
        while inner["type"] == "OPERATOR_NOT" and len(inner["children"]) == 1:
            inner, is_negative = inner["children"][0], not is_negative
        match inner.get("subquery_type") if inner["class"] == "SUBQUERY" else None:
            case "EXISTS" | "NOT_EXISTS" as kind:
                self._exists(inner, is_negative=is_negative ^ (kind == "NOT_EXISTS"))
            case "ANY":
                self._any(inner, is_negative=is_negative)
            case _:
                self.place([condition], is_strict=_is_strict(condition))
                self._names.froms.conditions.append(self.resolved(condition))

    def add_all(self, conditions: Iterable[Node]) -> None:
        """Add conditions: first those that do not need one collection of all items."""
        for condition in sorted(conditions, key=_rank):
            self.add(condition)

    def place(self, parts: Any, *, is_strict: bool = False) -> None:
        """Join the subqueries in expressions; `resolved` then replaces them by columns.

        With `is_strict`, rows may be dropped if a subquery has no value.  Raises: SqlQueryError.
        """
        for each in own_nodes(parts):
            if each["class"] == "SUBQUERY" and self._names.value(each) is None:
                value = self._placed(each, is_strict=is_strict)
                self._names.values.append((unplaced(each), value))

    def resolved(self, node: Node) -> Node:
        """Resolve an expression, and replace the subqueries in it that have been placed."""
        if not self._are_resolved:
            return self._names.resolved(node)

        def change(node: Node) -> Node | None:
            if node["class"] == "SUBQUERY":
                return self._names.value(node)
            return None

        result: Node = changed(node, change)
        return result

    def _placed(self, node: Node, *, is_strict: bool) -> Node:
        """Join a subquery; returns the expression over names that replaces it."""
        inner = node["subquery"]["node"]
        match node["subquery_type"]:
            case "SCALAR":
                return self._value(node, is_strict=is_strict)
            case "EXISTS" | "NOT_EXISTS" as kind:
                is_always = is_one_row(inner)
                mark = tree("true") if is_always else self._gathered.mark(self._rows_of(inner))
                return mark if kind == "EXISTS" else _negated(mark)
            case _:
                return self._any_of(node)

    def _exists(self, node: Node, *, is_negative: bool) -> None:
        inner = node["subquery"]["node"]
        if is_one_row(inner):
            self._names.froms.conditions += [tree("false")] * is_negative
            return
        if is_negative:
            self._gathered.left()
        self._gathered.keep(self._rows_of(inner), is_negative=is_negative)

    def _rows_of(self, inner: Node) -> SubqueryResult:
        """Translate a subquery of EXISTS: only whether it has a row matters."""
        is_plain = inner["type"] == "SELECT_NODE" and leaves_none_out(inner)
        if is_plain and not _shows_more(inner):
            inner = {**inner, "select_list": [tree("1")], "modifiers": []}
        return translate_dependent(self._query, self._around.within(inner), self._names)

    def _any(self, node: Node, *, is_negative: bool) -> None:
        if is_negative or node["comparison_type"] != "COMPARE_EQUAL":
            self._gathered.left()
        result, (is_true, *are_null) = self._compared(node)
        self._gathered.keep(result, is_true, is_negative=is_negative)
        for each in are_null if is_negative else ():
            self._gathered.keep(result, each, is_negative=True)

    def _any_of(self, node: Node) -> Node:
        """The value of ANY: true, null or false."""
        self._gathered.left()
        result, (is_true, *are_null) = self._compared(node)
        is_met = self._gathered.mark(result, is_true)
        unknown = [self._gathered.mark(result, each) for each in are_null]
        if not unknown:
            return is_met
        case = tree("CASE WHEN true THEN true WHEN true OR true THEN NULL::BOOLEAN ELSE false END")
        first, second = case["case_checks"]
        either = {**second["when_expr"], "children": [*unknown, tree("false")]}
        checks = [{**first, "when_expr": is_met}, {**second, "when_expr": either}]
        return {**case, "case_checks": checks}

    def _compared(self, node: Node) -> tuple[SubqueryResult, list[list[Node]]]:
        """The subquery of ANY; when the comparison with a row is true, and when it is null.

        Each of these is a list of conditions that are joined by AND.
        """
        self.place([node["child"]])
        inner, operator = node["subquery"]["node"], node["comparison_type"]
        result = translate_dependent(
            self._query, self._around.within(inner), self._names, may_be_totals=False
        )
        shown, parts = [each for _, each in result.shown], [node["child"]]
        if len(shown) > 1:
            parts = _parts_of(node["child"])
        if len(shown) != len(parts):
            raise SqlQueryError(
                f"a comparison with a subquery of {len(shown)} columns needs as many values: "
                "write (a, b) IN (SELECT c, d …)",
                node.get("query_location"),
            )
        values = [self.resolved(part) for part in parts]
        if len(parts) > 1 and operator not in _EQUALITIES:
            return result, [[{**equality(_row(values), _row(shown)), "type": operator}]]
        pairs = list(zip(values, shown, strict=True))
        is_true = [{**equality(*pair), "type": operator} for pair in pairs]
        nulls: list[list[Node]] = [[] for _ in parts]
        for part, (value, column_), null in zip(parts, pairs, nulls, strict=True):
            null += [] if _shows_no_nulls(inner) else [_is_null(column_)]
            null += [] if unplaced(part) in self._nonnull else [_is_null(value)]
        if len(parts) == 1:
            return result, [is_true, *([each] for each in nulls[0])]
        if operator == "COMPARE_NOTEQUAL":
            is_true = [_any_true(is_true)]
        every_null = [each for null in nulls for each in null]
        if not every_null:
            return result, [is_true]
        may_be_equal = [
            _any_true([equality(*pair), *null]) for pair, null in zip(pairs, nulls, strict=True)
        ]
        return result, [is_true, [*may_be_equal, _any_true(every_null)]]

    def _value(self, node: Node, *, is_strict: bool) -> Node:
        """A column with the value of a scalar subquery, which is null if it has no row."""
        inner = node["subquery"]["node"]
        result = translate_dependent(self._query, self._around.within(inner), self._names)
        if len(result.shown) != 1:
            raise SqlQueryError(
                f"a subquery for one value needs one column; it has {len(result.shown)}",
                node.get("query_location"),
            )
        ((_, value),) = result.shown
        relation = result.item.relation
        if result.is_total:
            text = text_of(without_alias(result.item.alias, value))
            is_joined = is_strict and is_null_of_nulls(text, relation.keyed())
        elif is_one_row(inner):
            is_joined = True
        elif relation.facts.sure.is_unique(result.fields):
            is_joined = is_strict
        else:
            result, value = self._checked(result, value)
            is_joined = False
        if is_joined:
            return self._gathered.joined(result, value)
        return self._gathered.attached(result.item, result.on, value)

    def _checked(self, result: SubqueryResult, value: Node) -> tuple[SubqueryResult, Node]:
        """One row of the result for each outer row, and its value, an error if it has several."""
        relation, alias = result.item.relation, self._query.free_alias("v")
        count, one = (relation.free_column(name) for name in ("n", "v"))
        by = [(name, quoted(name), relation.types[name]) for name in result.fields]
        least = f"min({text_of(without_alias(result.item.alias, value))})"
        listed = [(count, "count(*)"), (one, least)]
        table = self._query.making.reduce(relation, "value", by, listed, total=not by)
        rows, shown = (text_of(column(alias, name)) for name in (count, one))
        several = f"CASE WHEN CAST(({literal(_SEVERAL)} || {rows}) AS BOOLEAN) THEN {shown} END"
        checked = tree(f"CASE WHEN {rows} > 1 THEN {several} ELSE {shown} END")
        return replace(result, item=Item(alias, table)), checked


def _rank(condition: Node) -> int:
    if not has_subquery(condition):
        return 0
    is_one = condition["class"] == "SUBQUERY" and condition["subquery_type"] != "NOT_EXISTS"
    return 1 if is_one or _is_strict(condition) else 2


def _shows_more(node: Node) -> bool:
    """Whether the select list matters for the number of rows, or has aliases."""
    listed = node["select_list"]
    is_of_rows = not (has_groups(node) or node["having"] or node["qualify"] or calls(listed))
    return not is_of_rows or has_lists(listed) or any(each.get("alias") for each in listed)


def _shows_no_nulls(node: Node) -> bool:
    """Whether WHERE has IS NOT NULL for each column of the result."""
    # Grouping sets make nulls.
    if node["type"] != "SELECT_NODE" or len(node["group_sets"]) > 1:
        return False
    nonnull = _nonnull(conjuncts(node["where_clause"]))
    return all(unplaced({**each, "alias": ""}) in nonnull for each in node["select_list"])


def _nonnull(conditions: Iterable[Node]) -> list[Node]:
    """The expressions of IS NOT NULL conditions, without positions."""
    return [
        unplaced(each["children"][0])
        for each in conditions
        if each["type"] == "OPERATOR_IS_NOT_NULL"
    ]


def _parts_of(node: Node) -> list[Node]:
    """The values of a row such as (a, b); a list of the node itself for anything else."""
    is_row = node["class"] == "FUNCTION" and node["function_name"].lower() == "row"
    return [each["expression"] for each in node["arguments"]] if is_row else [node]


def _row(values: Iterable[Node]) -> Node:
    row = tree("row(true)")
    (argument,) = row["arguments"]
    return {**row, "arguments": [{**argument, "expression": each} for each in values]}


def _any_true(conditions: Sequence[Node]) -> Node:
    """The conditions joined by OR."""
    if len(conditions) == 1:
        return conditions[0]
    return {**tree("true OR true"), "children": [*conditions]}


def _is_null(node: Node) -> Node:
    return {**tree("NULL IS NULL"), "children": [node]}


def _negated(node: Node) -> Node:
    return {**tree("NOT true"), "children": [node]}


def _is_strict(node: Node) -> bool:
    """Whether an expression is null or false if one of its subqueries has no value."""
    if not has_subquery(node):
        return True
    match node["class"]:
        case "SUBQUERY":
            return bool(node["subquery_type"] == "SCALAR")
        case "COMPARISON" | "BETWEEN" if node["type"] in _COMPARISONS:
            sides = ("left", "right") if "left" in node else ("input", "lower", "upper")
            return all(_is_strict(node[side]) for side in sides)
        case "CAST":
            return _is_strict(node["child"])
        case "FUNCTION" if node["function_name"] in _STRICT:
            return all(_is_strict(each["expression"]) for each in node["arguments"])
    return False


NodePairs = Sequence[tuple[Node, Node]]
"""Equalities: an expression over the collections so far, and one over the joined collection."""


class Gathered:
    """The collections of a query so far, with which the results of subqueries are joined.

    If expressions `are_resolved` already, they read the first collection, which therefore keeps
    its alias and its columns.
    """

    def __init__(
        self, query: QueryTranslation, names: Names, *, are_resolved: bool = False
    ) -> None:
        self.names = names
        self._query = query
        self._are_resolved = are_resolved

    def keep(
        self, result: SubqueryResult, more: Sequence[Node] = (), *, is_negative: bool
    ) -> None:
        """Keep the rows that match a row of a subquery; if `is_negative`, the rows without."""
        froms, making = self.names.froms, self._query.making
        right, on = self._matching(result, more)
        if is_negative:
            (item,) = froms.items
            self._replace(anti_join(making, item, right, on, "not"))
            return
        conditions, keys = keys_of(making, froms.items, right, on, "in")
        froms.items.append(Item(right.alias, keys))
        froms.conditions += [*on.left, *conditions]

    def mark(self, result: SubqueryResult, more: Sequence[Node] = ()) -> Node:
        """Add a column that says whether a row matches a row of a subquery."""
        right, on = self._matching(result, more)
        items = self.names.froms.items
        conditions, keys = keys_of(self._query.making, items, right, on, "mark")
        pairs = tuple(pair for each in conditions if (pair := equality_sides(each)) is not None)
        # Keys are never null, so after the outer join a null means that there is no match.
        first = column(right.alias, next(iter(keys.types)))
        there = {**tree("NULL IS NOT NULL"), "children": [first]}
        return self.attached(Item(right.alias, keys), pairs, there, on.left)

    def _matching(self, result: SubqueryResult, more: Sequence[Node]) -> tuple[Item, Conditions]:
        """The right side of a semi-join, and its conditions, which have no `others`."""
        right = result.item
        conditions = [equality(*pair) for pair in result.on]
        on = by_side([*conditions, *more], self.names.aliases(), {right.alias})
        return self._by_values(right, on) if on.others else (right, on)

    def _by_values(self, right: Item, on: Conditions) -> tuple[Item, Conditions]:
        """The distinct values of the left that match a row of the right by all conditions."""
        (item,) = self.names.froms.items
        read = columns([[one for one, _ in on.equalities], on.others])
        around = [
            column(*names)
            for names in dict.fromkeys(each[:2] for each in read if each[0] == item.alias)
        ]
        values = distinct_values(self._query, self.names.froms, item, around)
        domain, alias = self._query.free_alias("d"), self._query.free_alias("m")
        renames = {
            (item.alias, each["column_names"][1]): (domain, name)
            for each, name in zip(around, values.types, strict=True)
        }
        conditions: list[Node] = renamed(replace(on, left=()).all, renames)
        matches = self._query.making.join(
            "matches",
            ((domain, values), (right.alias, right.relation)),
            map(text_of, conditions),
            [(name, text_of(column(domain, name))) for name in values.types],
            cartesian=not on.equalities,
        )
        pairs = null_safe(
            [*zip(around, (column(alias, name) for name in values.types), strict=True)]
        )
        return Item(alias, matches), Conditions(on.left, (), pairs, ())

    def joined(self, result: SubqueryResult, value: Node) -> Node:
        """Join a value as one more input of the inner join."""
        item, name = result.item, self._query.free_value()
        # Two outer expressions may equal the same field.
        keys = [(field, column(item.alias, field)) for field in dict.fromkeys(result.fields)]
        field = item.relation.free_column("v")
        relation = self._query.selected(Froms([item]), [*keys, (field, value)], "value")
        self.names.froms.items.append(Item(item.alias, relation, (), ((VALUES, name, field),)))
        self.names.froms.conditions += [equality(*pair) for pair in result.on]
        return column(VALUES, name)

    def attached(
        self, right: Item, on: NodePairs, value: Node, conditions: Sequence[Node] = ()
    ) -> Node:
        """Add a value as one more column, by an outer join."""
        name = self._query.free_value()
        (field,) = self.attach(right, on, [(name, value)], conditions)
        (item,) = self.names.froms.items
        with_value = replace(item, hidden=(*item.hidden, (VALUES, name, field)))
        self.names.froms.items[:] = [with_value]
        return column(VALUES, name)

    def attach(
        self, right: Item, on: NodePairs, values: Listed, conditions: Sequence[Node] = ()
    ) -> list[str]:
        """Add values by an outer join; without a match they are computed over nulls.

        `conditions` read the collections so far, which become one.  Returns its new fields.
        """
        moved = self.left()
        pairs = tuple((renamed(one, moved), other) for one, other in on)
        (item,) = self.names.froms.items
        used = {name.lower() for name in item.relation.types}
        fields = [unused_name(name, used) for name, _ in values]
        more = [(name, value) for name, (_, value) in zip(fields, values, strict=True)]
        by = Conditions(tuple(conditions), (), pairs, ())
        listed = [*own_columns(item), *more]
        self._replace(outer_join(self._query.making, item, right, by, listed, "left"))
        return fields

    def left(self) -> Mapping[InputColumn, InputColumn]:
        """Make one collection, the left of a further join, of the collections so far.

        Returns the columns that moved, with their new places.
        """
        names, query = self.names, self._query
        first, *more = names.froms.items
        has_key = any(
            name == KEY and field not in first.relation.types for _, name, field in first.columns
        )
        is_keyed = query.mentions_key and has_key
        if not more and not names.froms.conditions and not is_keyed:
            return {}
        selection = (
            self._every_column() if self._are_resolved else query.selection(names.froms.items)
        )
        alias = first.alias if self._are_resolved else query.free_alias("where")
        relation = query.selected(names.froms, selection.listed, "where")
        item = Item(alias, relation, selection.columns, selection.hidden)
        names.froms = names.froms.of_one(item)
        places = ((of["column_names"][:2], name) for name, of in selection.listed)
        return {(of[0], of[1]): (alias, name) for of, name in places if len(of) > 1}

    def _every_column(self) -> Selection:
        """All columns of the first collection, by their names, and values of subqueries."""
        first, *more = self.names.froms.items
        used = {name.lower() for name in first.relation.types}
        listed = [(name, column(first.alias, name)) for name in first.relation.types]
        hidden = list(first.hidden)
        for each in more:
            for of, name, field in each.hidden:
                hidden.append((of, name, unused_name(name, used)))
                listed.append((hidden[-1][2], column(each.alias, field)))
        return Selection(listed, first.columns, tuple(hidden))

    def _replace(self, relation: Table) -> None:
        """Replace the one collection by another one with the same columns."""
        (item,) = self.names.froms.items
        self.names.froms = self.names.froms.of_one(replace(item, relation=relation))
