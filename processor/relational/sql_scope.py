"""Names in SQL queries: which column of which collection each of them means."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ikebana.processor.ground.spelling import instead
from ikebana.processor.linear.bound_query import QueryError
from ikebana.processor.linear.scope import KEY
from ikebana.processor.linear.syntax import Node
from ikebana.processor.linear.trees import changed, column, columns
from ikebana.processor.relational.making import Relation
from ikebana.processor.relational.sql_refusals import refuse_now


@dataclass(frozen=True, slots=True)
class Item:
    """A collection in FROM, under an alias that no other one has, with the names of its columns.

    `columns` are triples (qualifier, column, field of the collection).  A collection that is made
    of others has the columns of all of them, each with the qualifier that it had there.
    """

    alias: str
    relation: Relation
    columns: tuple[tuple[str, str, str], ...] = ()

    def found(self, qualifier: str | None, name: str) -> list[str]:
        """The fields that a name may mean."""
        return [
            each
            for of, called, each in self.columns
            if called.lower() == name.lower()
            and (qualifier is None or of.lower() == qualifier.lower())
        ]


@dataclass(slots=True)
class Froms:
    """What FROM and WHERE have brought together so far: collections, and conditions over them."""

    items: list[Item] = field(default_factory=list)
    conditions: list[Node] = field(default_factory=list)
    merged: set[str] = field(default_factory=set)
    """The columns of USING, of which the first one is meant."""


class Names:
    """The names that may stand in a query: its own, and those of the query around it."""

    def __init__(self, froms: Froms, outer: "Names | None" = None) -> None:
        self.froms = froms
        self.outer = outer
        self.aliased: dict[str, Node] = {}
        """Expressions of the select list by the names that they get, if these may be used."""

    def resolved(self, node: Node) -> Node:
        """The expression over aliases and fields.  Raises: QueryError."""
        refuse_now(node)
        made: Node = changed(node, self._column)
        return made

    def _column(self, node: Node) -> Node | None:
        if node["class"] != "COLUMN_REF":
            return None
        names = node["column_names"]
        found = self._found(names)
        if found is not None:
            return {**node, "column_names": list(found), "alias": ""}
        if len(names) == 1 and (meant := self.aliased.get(names[0].lower())) is not None:
            without = Names(self.froms, self.outer)
            return without.resolved({**meant, "alias": ""})
        # A name that SQL does not know is a parameter of a lambda.
        return node

    def _found(self, names: list[str]) -> tuple[str, ...] | None:
        for many in (2, 1):
            if len(names) < many:
                continue
            qualifier = names[0] if many == 2 else None
            meant = [
                (item.alias, each)
                for item in self.froms.items
                for each in item.found(qualifier, names[many - 1])
            ]
            if meant:
                return (*meant[0], *names[many:])
        return None if self.outer is None else self.outer._found(names)

    def have_all(self, node: Node) -> bool:
        """Whether an expression reads columns, and none that these are not."""
        read = columns(node)
        return bool(read) and all(self._found(list(names)) is not None for names in read)

    def aliases(self) -> set[str]:
        """The aliases of its own collections."""
        return {item.alias for item in self.froms.items}


def expanded(star: Node, froms: Froms) -> Iterator[tuple[str, Node]]:
    """The columns that `*` stands for, by name.  Raises: QueryError."""
    place = star.get("query_location")
    if star["replace_list"] or star["rename_list"] or star["columns"] or star["expr"]:
        raise QueryError('only "*", "t.*" and EXCLUDE are supported; name the columns', place)
    left_out = {name.lower() for name in star["exclude_list"]}
    of = star["relation_name"].lower()
    seen: set[str] = set()
    for item in froms.items:
        for qualifier, name, each in item.columns:
            is_merged = not of and name.lower() in froms.merged
            if name == KEY or (of and qualifier.lower() != of) or name.lower() in left_out:
                continue
            if is_merged and name.lower() in seen:
                continue
            seen.add(name.lower())
            yield name, column(item.alias, each)


def output_names(listed: Iterable[tuple[str, Node]]) -> list[tuple[str, Node]]:
    """The columns of a result, each with a name of its own.  Raises: QueryError."""
    found: dict[str, tuple[str, Node]] = {}
    for name, node in listed:
        place = node.get("query_location")
        if name.lower() in (KEY, "value") or name.startswith("__"):
            raise QueryError(f'a column cannot be named "{name}"; give it another AS', place)
        if name.lower() in found:
            raise QueryError(f'two columns are named "{name}"; give one another AS', place)
        found[name.lower()] = (name, node)
    return list(found.values())


def relation_item(alias: str, relation: Relation, called: str, names: Iterable[str] = ()) -> Item:
    """A collection in FROM, whose columns have other names if there are any."""
    own = list(relation.types)
    given = [*names, *own[len(list(names)) :]]
    columns = [(called, name, each) for name, each in zip(given, own, strict=True)]
    return Item(alias, relation, (*columns, (called, KEY, KEY)))


def no_table(name: str, known: Mapping[str, object], place: int | None) -> QueryError:
    """That FROM names what there is not."""
    return QueryError(f'there is no input or operator "{name}"{instead(name, known)}', place)
