"""Joins of the collections of subqueries with those of FROM.

A semi-join adds distinct keys to the join, an anti-join removes rows, and an outer join adds a
column: whether a row matches, or a value.  Where conditions other than equalities decide what
matches, they are tested once for each distinct tuple of the columns that they read, and the tuples
that match are the keys.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ikebana.processor.linear.scope import KEY
from ikebana.processor.linear.syntax import Node, text_of, tree
from ikebana.processor.linear.trees import (
    column,
    columns,
    equated,
    renamed,
)
from ikebana.processor.relational.known import Table
from ikebana.processor.relational.matching import (
    Conditions,
    Side,
    equal,
    keys_of,
    null_safe,
    outer_join,
    own_columns,
    told_apart,
    unmet,
)
from ikebana.processor.relational.sql_dependent import (
    SubqueryResult,
    distinct_values,
)
from ikebana.processor.relational.sql_scope import VALUES, Froms, Item, Names
from ikebana.processor.relational.sql_whole import Listed, Query, Selection, free

Pairs = Sequence[tuple[Node, Node]]
"""Equalities: an expression over the collections so far, and one over the joined collection."""
Place = tuple[str, str]
"""An alias, and a field."""


class Gathered:
    """The collections of a query so far, with which the results of subqueries are joined.

    If expressions `are_resolved` already, they read the first collection, which therefore keeps
    its alias and its columns.
    """

    def __init__(self, query: Query, names: Names, *, are_resolved: bool = False) -> None:
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
            self._replace(unmet(making, Side(item.alias, item.relation), right, on, "not"))
            return
        conditions, keys = keys_of(making, right, on, "in")
        froms.items.append(Item(right.alias, keys))
        froms.conditions += [*on.left, *conditions]

    def mark(self, result: SubqueryResult, more: Sequence[Node] = ()) -> Node:
        """Add a column that says whether a row matches a row of a subquery."""
        right, on = self._matching(result, more)
        conditions, keys = keys_of(self._query.making, right, on, "mark")
        pairs = tuple(pair for each in conditions if (pair := equated(each)) is not None)
        # Keys are never null, so after the outer join a null means that there is no match.
        first = column(right.alias, next(iter(keys.types)))
        there = {**tree("NULL IS NOT NULL"), "children": [first]}
        return self.attached(Side(right.alias, keys), pairs, there, on.left)

    def _matching(self, result: SubqueryResult, more: Sequence[Node]) -> tuple[Side, Conditions]:
        """The right side of a semi-join, and its conditions, which have no `others`."""
        right = Side(result.item.alias, result.item.relation)
        conditions = [equal(*pair) for pair in result.on]
        on = told_apart([*conditions, *more], self.names.aliases(), {right.alias})
        return self._by_values(right, on) if on.others else (right, on)

    def _by_values(self, right: Side, on: Conditions) -> tuple[Side, Conditions]:
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
        return Side(alias, matches), Conditions(on.left, (), pairs, ())

    def joined(self, result: SubqueryResult, value: Node) -> Node:
        """Join a value as one more input of the inner join."""
        item, name = result.item, self._query.free_value()
        # Two outer expressions may equal the same field.
        keys = [(field, column(item.alias, field)) for field in dict.fromkeys(result.fields)]
        field = item.relation.free_column("v")
        relation = self._query.selected(Froms([item]), [*keys, (field, value)], "value")
        self.names.froms.items.append(Item(item.alias, relation, (), ((VALUES, name, field),)))
        self.names.froms.conditions += [equal(*pair) for pair in result.on]
        return column(VALUES, name)

    def attached(
        self, right: Side, on: Pairs, value: Node, conditions: Sequence[Node] = ()
    ) -> Node:
        """Add a value as one more column, by an outer join."""
        name = self._query.free_value()
        (field,) = self.attach(right, on, [(name, value)], conditions)
        (item,) = self.names.froms.items
        with_value = replace(item, hidden=(*item.hidden, (VALUES, name, field)))
        self.names.froms.items[:] = [with_value]
        return column(VALUES, name)

    def attach(
        self, right: Side, on: Pairs, values: Listed, conditions: Sequence[Node] = ()
    ) -> list[str]:
        """Add values by an outer join; without a match they are computed over nulls.

        `conditions` read the collections so far, which become one.  Returns its new fields.
        """
        moved = self.left()
        pairs = tuple((renamed(one, moved), other) for one, other in on)
        (item,) = self.names.froms.items
        left = Side(item.alias, item.relation)
        used = {name.lower() for name in item.relation.types}
        fields = [free(name, used) for name, _ in values]
        more = [(name, value) for name, (_, value) in zip(fields, values, strict=True)]
        by = Conditions(tuple(conditions), (), pairs, ())
        listed = [*own_columns(left), *more]
        self._replace(outer_join(self._query.making, left, right, by, listed, "left"))
        return fields

    def left(self) -> Mapping[Place, Place]:
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
        names.froms = Froms([item], [], names.froms.merged)
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
                hidden.append((of, name, free(name, used)))
                listed.append((hidden[-1][2], column(each.alias, field)))
        return Selection(listed, first.columns, tuple(hidden))

    def _replace(self, relation: Table) -> None:
        """Replace the one collection by another one with the same columns."""
        (item,) = self.names.froms.items
        new_item = replace(item, relation=relation)
        self.names.froms = Froms([new_item], [], self.names.froms.merged)
