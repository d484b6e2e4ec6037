"""Names in SQL queries: which column of which collection each of them means."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ikebana.processor.ground.spelling import instead
from ikebana.processor.linear.bound_query import QueryError
from ikebana.processor.linear.scope import KEY, SHORT, is_ours
from ikebana.processor.linear.syntax import Node
from ikebana.processor.linear.trees import changed, columns
from ikebana.processor.relational.known import Table
from ikebana.processor.relational.sql_refusals import refuse_now, refuse_stars


@dataclass(frozen=True, slots=True)
class Item:
    """A collection in FROM, under an alias that no other one has, with the names of its columns.

    `columns` are triples (qualifier, column, field of the collection).  A collection that is made
    of others has the columns of all of them, each with the qualifier that it had there.
    """

    alias: str
    relation: Table
    columns: tuple[tuple[str, str, str], ...] = ()


_Field = TypeVar("_Field")


def of_name(
    columns: Sequence[tuple[str, str, _Field]], name: str
) -> list[tuple[str, str, _Field]]:
    """The columns that have a name: if none has it, `key` is the whole key."""
    found = [each for each in columns if each[1].lower() == name.lower()]
    if not found and name.lower() in SHORT:
        found = [each for each in columns if each[1] == SHORT[name.lower()]]
    return found


Merged = dict[tuple[str, str], tuple[str, str]]
"""Columns of USING, as (qualifier, name) in lower case, and the first one that is equal."""


@dataclass(slots=True)
class Froms:
    """What FROM and WHERE have brought together so far: collections, and conditions over them."""

    items: list[Item] = field(default_factory=list)
    conditions: list[Node] = field(default_factory=list)
    merged: Merged = field(default_factory=dict)
    """The columns of USING, of which `*` has the first one that it shows."""

    def named(self, name: str) -> tuple[str, str]:
        """The column that a name alone means, as (qualifier, name) in lower case."""
        lower = name.lower()
        columns = [each for item in self.items for each in item.columns]
        return of_name(columns, name)[0][0].lower(), lower

    def names(self) -> list[str]:
        """The names of all columns, in their order, but for those of keys."""
        return [name for item in self.items for _, name, _ in item.columns if name != KEY]

    def known_by(self, pair: tuple[str, str]) -> tuple[str, str]:
        """The first of the columns of USING that a column is one of, or this one."""
        return self.merged.get(pair, pair)


class Names:
    """The names that a query may use: its own, and those of the query around it."""

    def __init__(self, froms: Froms, outer: "Names | None" = None) -> None:
        self.froms = froms
        self.outer = outer
        self.aliased: dict[str, Node] = {}
        """Expressions of the select list by the names that they get, if these may be used."""

    def resolved(self, node: Node, stars: Mapping[int, Node] | None = None) -> Node:
        """The expression over aliases and fields.  Raises: QueryError.

        `stars` has the columns, resolved, that stars within stand for, by their ids.
        """
        refuse_now(node)
        if stars is None:
            refuse_stars(node)

        def change(found: Node) -> Node | None:
            return (stars or {}).get(id(found)) or self.column(found)

        made: Node = changed(node, change, parts_too=True)
        for names in columns(made):
            if not self._has(*names):
                problem = f'"{".".join(names)}" is no column of what FROM names'
                raise QueryError(problem + self._around(*names), node.get("query_location"))
        return made

    def _around(self, qualifier: str, *more: str) -> str:
        """What to write for a column that seems to be one of a query around this one."""
        own = {of.lower() for item in self.froms.items for of, _, _ in item.columns}
        if not more or qualifier.lower() in own:
            return ""
        return (
            "; a query reads the tables of the one around it in its WHERE, as one of EXISTS, IN "
            "or a comparison without groups and LIMIT"
        )

    def _has(self, alias: str, field: str = "", *_: str) -> bool:
        """Whether a collection has a field: its own, or one of the query around it."""
        for item in self.froms.items:
            if item.alias == alias:
                return field in item.relation.types or any(
                    field == own for *_, own in item.columns
                )
        return self.outer is not None and self.outer._has(alias, field)

    def column(self, node: Node) -> Node | None:
        """What a column means, over aliases and fields; None for any other node."""
        if node["class"] != "COLUMN_REF":
            return None
        names = node["column_names"]
        found = self._found(names)
        if found is not None:
            return {**node, "column_names": list(found), "alias": ""}
        # What nothing is named is a part of a lambda's parameter.
        return self.shown(node) or node

    def called(self, node: Node) -> str:
        """The name of a column as it was given; SQL does not tell names apart by case."""
        named: str = node["column_names"][-1]
        alias, *field = self._found(node["column_names"]) or ("",)
        return next(
            (
                name
                for item in self.froms.items
                for _, name, each in item.columns
                if item.alias == alias and [each] == field and name.lower() == named.lower()
            ),
            named,
        )

    def shown(self, node: Node) -> Node | None:
        """The expression of the select list that has a column's name, if these may be used."""
        name, *more = node["column_names"]
        if not more and name.lower() in self.aliased:
            # It is itself over the names that stand before it.
            before = Names(self.froms, self.outer)
            for each, meant in self.aliased.items():
                if each == name.lower():
                    return before.resolved({**meant, "alias": ""})
                before.aliased[each] = meant
        return None

    def _found(self, names: list[str]) -> tuple[str, ...] | None:
        for many in (2, 1):
            if len(names) < many:
                continue
            qualifier = names[0] if many == 2 else None
            # What a table calls `key` comes before the whole key of another one.
            every = [
                (of, name, (item.alias, field))
                for item in self.froms.items
                for of, name, field in item.columns
                if qualifier is None or of.lower() == qualifier.lower()
            ]
            for *_, (alias, found) in of_name(every, names[many - 1]):
                return (alias, found, *names[many:])
        return None if self.outer is None else self.outer._found(names)

    def have_all(self, node: Node) -> bool:
        """Whether an expression reads columns, and none that these are not."""
        read = columns(node, with_parts=True)
        return bool(read) and all(self._found(list(names)) is not None for names in read)

    def aliases(self) -> set[str]:
        """The aliases of its own collections."""
        return {item.alias for item in self.froms.items}


def output_names(listed: Iterable[tuple[str, Node]]) -> list[tuple[str, Node]]:
    """The columns of a result, each with a name of its own.  Raises: QueryError.

    Of several that have one name, those behind the first get `_1`, `_2` and so on behind it, as
    in a table that DuckDB creates of a query.
    """
    found: dict[str, tuple[str, Node]] = {}
    for name, node in listed:
        if is_ours(name):
            problem = f'no column can be named "{name}"; give it another AS'
            raise QueryError(problem, node.get("query_location"))
        own, number = name, 0
        while own.lower() in found:
            number += 1
            own = f"{name}_{number}"
        found[own.lower()] = (own, node)
    return list(found.values())


def relation_item(
    alias: str,
    relation: Table,
    called: str,
    names: Sequence[str] = (),
    *,
    has_key: bool = False,
) -> Item:
    """A collection in FROM, whose columns have other names if there are any.

    With `has_key` its key may be named: that of a query in FROM is no column.
    """
    own = list(relation.types)
    given = [*names, *own[len(names) :]]
    columns = [(called, name, each) for name, each in zip(given, own, strict=True)]
    return Item(
        alias, relation, (*columns, *([(called, KEY, relation.key_name)] if has_key else []))
    )


def no_table(name: str, known: Mapping[str, object], place: int | None) -> QueryError:
    """That FROM names what there is not."""
    return QueryError(f'there is no input or operator "{name}"{instead(name, known)}', place)
