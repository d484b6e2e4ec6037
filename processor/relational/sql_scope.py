"""Resolution of names in SQL queries to columns of items, and expansion of stars to columns.

Stars are `*`, `t.*` and COLUMNS(…), alone and within expressions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeVar

from ikebana.codecs.sql_type import Map, Struct, Union, type_of
from ikebana.processor.base.texts import suggestion
from ikebana.processor.linear.allowed import CLOCKS
from ikebana.processor.linear.bound_query import SqlQueryError, constant
from ikebana.processor.linear.json_text import literal
from ikebana.processor.linear.scope import KEY, SHORT, ExpressionError, is_ours
from ikebana.processor.linear.syntax import (
    Node,
    changed,
    column,
    columns,
    has_subquery,
    objects_with,
    own_nodes,
    text_of,
    tree,
    unplaced,
)
from ikebana.processor.relational.making import Table
from ikebana.processor.relational.outer_joins import ColumnOfItem, Item, QualifiedColumn
from ikebana.processor.relational.sql_refusals import OF_A_CLOCK, refuse_now, refuse_stars

VALUES = "ikebana_subquery"
"""The qualifier of columns with values of subqueries."""


_Field = TypeVar("_Field")


def of_name(
    columns: Sequence[tuple[str, str, _Field]], name: str
) -> list[tuple[str, str, _Field]]:
    """The columns with a name; if none has it, `key` means the row's key."""
    matches = [each for each in columns if each[1].lower() == name.lower()]
    if not matches and name.lower() in SHORT:
        matches = [each for each in columns if each[1] == SHORT[name.lower()]]
    return matches


Merged = dict[tuple[str, str], tuple[str, str]]
"""Columns of USING as (qualifier, name) in lower case, by the columns that they replace."""


@dataclass(slots=True)
class Froms:
    """The items of FROM so far, to be joined by the conditions."""

    items: list[Item] = field(default_factory=list)
    conditions: list[Node] = field(default_factory=list)
    merged: Merged = field(default_factory=dict)
    """The columns of USING; `*` has each of them once."""

    def of_one(self, item: Item) -> "Froms":
        """The same with one item in place of all, and without conditions, which are tested."""
        return Froms([item], [], self.merged)

    def named(self, name: str) -> tuple[str, str]:
        """The column that an unqualified name means, as (qualifier, name) in lower case."""
        lower = name.lower()
        columns = [each for item in self.items for each in item.columns]
        return of_name(columns, name)[0][0].lower(), lower

    def names(self) -> list[str]:
        """The names of all columns except keys, in order."""
        return [name for item in self.items for _, name, _ in item.columns if name != KEY]

    def known_by(self, pair: tuple[str, str]) -> tuple[str, str]:
        """The column of USING that represents a column, or the column itself."""
        return self.merged.get(pair, pair)


class Names:
    """The names that a query may use: its own, and those of the queries around it."""

    def __init__(
        self, froms: Froms, of_alias: Callable[[Node], Node | None] | None = None
    ) -> None:
        self.froms = froms
        self._of_alias = of_alias
        self.aliased: dict[str, Node] = {}
        """Expressions of the select list by alias, where other clauses may use aliases."""
        self.values: list[tuple[Node, Node]] = []
        """Pairs of a subquery, without positions, and the expression that replaces it."""

    def resolved(self, node: Node, stars: Mapping[int, Node] | None = None) -> Node:
        """Resolve the names in an expression to (alias, field).  Raises: QueryError.

        `stars` maps the id of a star in the expression to the resolved column that replaces it.
        """
        refuse_now(node)
        if stars is None:
            refuse_stars(node)

        def change(node: Node) -> Node | None:
            return (stars or {}).get(id(node)) or self.column(node)

        result: Node = changed(node, change, parts_too=True)
        for names in columns(result):
            if not self._has(*names):
                name = ".".join(names)
                # SQL calls these functions without parentheses.
                is_clock = name.lower() in CLOCKS
                unknown = f'"{name}" is no column of what FROM names'
                problem = f"{name} {OF_A_CLOCK}" if is_clock else unknown
                every = (each for each in own_nodes(node) if each["class"] == "COLUMN_REF")
                read = next((each for each in every if each["column_names"] == [*names]), node)
                raise SqlQueryError(problem, read.get("query_location"))
        return result

    def _has(self, alias: str, field: str = "", *_: str) -> bool:
        """Whether a collection has a field."""
        for item in self.froms.items:
            if item.alias == alias:
                return field in item.relation.types or any(
                    field == name for *_, name in (*item.columns, *item.hidden)
                )
        return False

    def column(self, node: Node) -> Node | None:
        """Resolve a column or a subquery; None for other nodes."""
        if node["class"] == "SUBQUERY":
            return self.value(node)
        if node["class"] == "POSITIONAL_REFERENCE":
            return self._at(node["index"])
        if node["class"] != "COLUMN_REF":
            return None
        names = node["column_names"]
        meant = self.meant(names, (False,))
        # A name of the select list comes before one of a query around.
        if meant is None and (shown := self.shown(node)) is not None:
            return shown
        # An unresolved name is a lambda's parameter, or a field of one.
        if (path := self._path(names)) is None:
            return (None if names[1:] else _row(self.froms, names[0])) or node
        return {**node, "column_names": [*path], "alias": ""}

    def _at(self, number: int) -> Node:
        """The column at a place in FROM, from 1."""
        every = [
            column(item.alias, field)
            for item in self.froms.items
            for _, name, field in item.columns
            if name != KEY
        ]
        return every[number - 1]

    def unaliased(self, node: Node) -> Node:
        """Replace aliases of subqueries in the select list by these subqueries."""

        def change(node: Node) -> Node | None:
            if node["class"] != "COLUMN_REF" or len(node["column_names"]) > 1:
                return None
            meant = self.aliased.get(node["column_names"][0].lower())
            if not has_subquery(meant) or self.meant(node["column_names"], (False,)):
                return None
            return {**meant, "alias": ""} if meant else None

        result: Node = changed(node, change)
        return result

    def value(self, node: Node) -> Node | None:
        """The expression that replaces a subquery; None if it has none yet."""
        plain = unplaced(node)
        result = next((other for each, other in self.values if each == plain), None)
        return result and self.resolved(result)

    def called(self, node: Node) -> str:
        """The name of a column in its declared case, whatever the case in the query."""
        named: str = node["column_names"][-1]
        alias, *field = self._path(node["column_names"]) or ("",)
        return next(
            (
                name
                for item in self.froms.items
                for _, name, each in (*item.columns, *item.hidden)
                if item.alias == alias and [each] == field and name.lower() == named.lower()
            ),
            named,
        )

    def shown(self, node: Node) -> Node | None:
        """The expression of the select list with this alias, where aliases may be used."""
        if self._of_alias is not None:
            return self._of_alias(node)
        name, *more = node["column_names"]
        if not more and name.lower() in self.aliased:
            # An expression may use the aliases before it, and no others.
            before = Names(self.froms)
            before.values = self.values
            for each, meant in self.aliased.items():
                if each == name.lower():
                    return before.resolved({**meant, "alias": ""})
                before.aliased[each] = meant
        return None

    def _path(self, names: Sequence[str]) -> tuple[str, ...] | None:
        """The path of a name: alias, field and fields of a struct; None if it means no column."""
        if (meant := self.meant(names)) is None:
            return None
        item, (*_, field), more = meant
        return (item.alias, field, *more)

    def meant(
        self, names: Sequence[str], hidden: Sequence[bool] = (False, True)
    ) -> tuple[Item, QualifiedColumn, Sequence[str]] | None:
        """The item and column that a name means, and the rest of the name: fields of a struct."""
        for among, many in product(hidden, (2, 1)):
            if len(names) < many:
                continue
            qualifier = names[0] if many == 2 else None
            # A column called `key` of one table comes before the key of another table's rows.
            every = [of for item in self.froms.items for of in item.among(qualifier, hidden=among)]
            for *_, (item, which) in of_name(every, names[many - 1]):
                if not names[many:] or _has_fields(item.relation.type_of(which[2])):
                    return item, which, names[many:]
        return None

    def hidden(self, of: str, name: str) -> Node:
        """A hidden column."""
        every = [each for item in self.froms.items for each in item.among(of, hidden=True)]
        (*_, (item, (*_, field))), *_ = of_name(every, name)
        return column(item.alias, field)

    def all_meant(self, read: Iterable[Sequence[str]]) -> list[ColumnOfItem]:
        """The columns that names mean; names that mean none are skipped."""
        every = map(self.meant, read)
        return [meant[:2] for meant in every if meant is not None]

    def have_all(self, node: Node) -> bool:
        """Whether an expression reads columns, and these names have all of them."""
        read = columns(node, with_parts=True)
        return bool(read) and all(self.meant(names) is not None for names in read)

    def aliases(self) -> set[str]:
        """The aliases of its own collections."""
        return {item.alias for item in self.froms.items}


def _has_fields(kind: str) -> bool:
    return kind in ("JSON", "VARIANT") or isinstance(type_of(kind), Struct | Map | Union)


def _row(froms: Froms, called: str) -> Node | None:
    """A struct of all columns of a table, which its name alone means; None if there is none."""
    every = [
        f"{literal(name)}: {text_of(column(item.alias, field))}"
        for item in froms.items
        for of, name, field in item.columns
        if of.lower() == called.lower() and name != KEY
    ]
    return tree(f"{{{', '.join(every)}}}") if every else None


def output_names(listed: Iterable[tuple[str, Node]]) -> list[tuple[str, Node]]:
    """Make the names of a result's columns unique.  Raises: QueryError.

    Repeated names get the suffixes `_1`, `_2` and so on, as in CREATE TABLE AS of DuckDB.
    """
    columns: dict[str, tuple[str, Node]] = {}
    for name, node in listed:
        if is_ours(name):
            problem = f'no column can be named "{name}"; give it another AS'
            raise SqlQueryError(problem, node.get("query_location"))
        unique, number = name, 0
        while unique.lower() in columns:
            number += 1
            unique = f"{name}_{number}"
        columns[unique.lower()] = (unique, node)
    return list(columns.values())


def relation_item(
    alias: str,
    relation: Table,
    called: str,
    names: Sequence[str] = (),
    *,
    has_key: bool = False,
) -> Item:
    """An item of FROM; `names` rename its first columns.

    With `has_key` names may mean the row's key; a query in FROM has none.
    """
    fields = list(relation.types)
    labels = [*names, *fields[len(names) :]]
    columns = [(called, name, each) for name, each in zip(labels, fields, strict=True)]
    return Item(
        alias, relation, (*columns, *([(called, KEY, relation.key_name)] if has_key else []))
    )


def no_table(name: str, names: Mapping[str, object], place: int | None) -> SqlQueryError:
    """The error for a name in FROM that no input or operator has."""
    return SqlQueryError(f'there is no input or operator "{name}"{suggestion(name, names)}', place)


# `* LIKE 'a%'` stands for the columns with such names.
_FILTERS = ("~~", "!~~", "~~*", "!~~*", "~~~", "regexp_full_match")
_ALONE = "*COLUMNS(…) stands among the arguments of a function; alone it is written as COLUMNS(…)"
_ALIAS = "a name of COLUMNS(…) with parts is of a regular expression, as in COLUMNS('(.*)_id')"


def stars_of(node: object) -> list[Node]:
    """The stars in an expression, without stars inside of another star's condition."""
    stars: list[Node] = []

    def look(each: Node) -> Node | None:
        if each["class"] != "STAR":
            return None
        stars.append(each)
        return each

    changed(node, look)
    return stars


def columns_of(node: Node, names: Names) -> Iterator[tuple[str, Node]]:
    """Expand an expression of a select list that has stars; its name is empty if it has none.

    Raises: SqlQueryError.
    """
    node, resolved = _unpacked(node, names)
    stars = stars_of(node)
    if not stars:
        yield node.get("alias") or "", names.resolved({**node, "alias": ""}, resolved)
        return
    first, place = stars[0], stars[0].get("query_location")
    if node["class"] == "FUNCTION" and node["function_name"] in _FILTERS and not first["columns"]:
        call = {
            **node,
            "arguments": [{"name": "", "expression": column("name")}, *node["arguments"][1:]],
        }
        yield from _named(call, [*expanded(first, names)])
        return
    if any(unplaced(each) != unplaced(first) for each in stars):
        raise SqlQueryError("several COLUMNS(…) in one expression must be the same", place)
    if not first["columns"] and node is not first:
        raise SqlQueryError("* in an expression is written as COLUMNS(*)", place)
    alias = node.get("alias") or ""
    for name, each in expanded(first, names):
        yield (
            _called(alias, first, name),
            names.resolved({**node, "alias": ""}, resolved | {id(star): each for star in stars})
            if node is not first
            else each,
        )


def _unpacked(node: Node, names: Names) -> tuple[Node, dict[int, Node]]:
    """Expand each `*COLUMNS(…)` in lists of arguments; also the resolved columns, by id of node.

    Raises: SqlQueryError.
    """
    replacements: dict[int, Node] = {}

    def one_by_one(part: Any) -> list[Any]:
        node = part.get("expression", part) if isinstance(part, dict) else {}
        if node.get("type") != "OPERATOR_UNPACK":
            return [within(part)]
        (star,) = node["children"]
        columns = [dict(each) for _, each in expanded(star, names)]
        replacements.update((id(each), each) for each in columns)
        return columns if node is part else [{**part, "expression": each} for each in columns]

    def within(value: Any) -> Any:
        if isinstance(value, list):
            return [item for each in value for item in one_by_one(each)]
        if not isinstance(value, dict):
            return value
        if value.get("type") == "OPERATOR_UNPACK":
            raise SqlQueryError(_ALONE, value.get("query_location"))
        return {k: item if k == "subquery" else within(item) for k, item in value.items()}

    has_any = any(each["type"] == "OPERATOR_UNPACK" for each in own_nodes(node))
    return (within(node), replacements) if has_any else (node, replacements)


def _called(alias: str, star: Node, name: str) -> str:
    """The name of a column of COLUMNS(…); an alias may refer to groups of its pattern."""
    if not alias or "\\" not in alias:
        return alias or name
    pattern = (star["expr"] or {}).get("literal", {}).get("text")
    if pattern is None:
        raise SqlQueryError(_ALIAS, star.get("query_location"))
    whole = f"^.*?{pattern}.*$"
    return str(constant(f"regexp_replace({', '.join(map(literal, (name, whole, alias)))})"))


def expanded(star: Node, names: Names) -> list[tuple[str, Node]]:
    """The columns of a star, by name, with REPLACE and RENAME applied.  Raises: SqlQueryError."""
    columns = list(_columns(star, names))
    if star["expr"] is not None:
        columns = _named(star["expr"], columns)
    replaced = {each["key"].lower(): each["value"] for each in star["replace_list"]}
    others = {each["key"]["column"].lower(): each["value"] for each in star["rename_list"]}
    _require([*replaced, *others], columns, star)
    return [
        (
            others.get(name.lower(), name),
            names.resolved(replaced[name.lower()]) if name.lower() in replaced else each,
        )
        for name, each in columns
    ]


def _require(names: list[str], columns: list[tuple[str, Node]], star: Node) -> None:
    there = {name.lower() for name, _ in columns}
    for name in names:
        if name not in there:
            problem = f'REPLACE and RENAME are of columns that * has; it has no "{name}"'
            raise SqlQueryError(problem, star.get("query_location"))


def _named(condition: Node, columns: list[tuple[str, Node]]) -> list[tuple[str, Node]]:
    """The columns with names that match a regular expression, a list, or a condition."""
    every = ", ".join(literal(name) for name, _ in columns)
    if (condition.get("literal") or {}).get("kind") == "STRING":
        sql = f"list_filter([{every}], lambda name: regexp_matches(name, {text_of(condition)}))"
    elif [each for each in own_nodes(condition) if each["class"] == "STAR"]:
        whole = tree(f"[{every}]")
        sql = text_of(changed(condition, lambda each: whole if each["class"] == "STAR" else None))
    elif condition["class"] == "FUNCTION" and condition["function_name"] in _FILTERS:
        sql = f"list_filter([{every}], lambda name: {text_of(condition)})"
    else:
        sql = text_of(condition)
    try:
        matches = constant(sql)
    except ExpressionError:
        raise SqlQueryError(
            "COLUMNS(…) takes a regular expression, a list of names, or lambda c: c LIKE 'a%'",
            condition.get("query_location"),
        ) from None
    names = {str(name).lower() for name in matches or ()}
    fitting = [(name, each) for name, each in columns if name.lower() in names]
    if not fitting:
        raise SqlQueryError("no column has such a name", condition.get("query_location"))
    return fitting


def _columns(star: Node, names: Names) -> Iterator[tuple[str, Node]]:
    """The columns of a star without its EXCLUDE list; for `s.*` of a struct, its fields."""
    of, froms = star["relation_name"].lower(), names.froms
    left_out = {name.lower() for name in star["exclude_list"]}
    left_out_of = {
        (each["table"].lower(), each["column"].lower()) for each in star["qualified_exclude_list"]
    }
    if of and not any(of == each.lower() for item in froms.items for each, _, _ in item.columns):
        for name, node in _fields(star, names):
            if name.lower() not in left_out:
                yield name, node
        return
    seen: set[tuple[str, str]] = set()
    for item in froms.items:
        for qualifier, name, each in item.columns:
            pair = qualifier.lower(), name.lower()
            if name == KEY or (of and pair[0] != of):
                continue
            if pair[1] in left_out or pair in left_out_of:
                continue
            known_by = pair if of else froms.known_by(pair)
            if known_by not in seen:
                seen.add(known_by)
                yield name, column(item.alias, each)


def _fields(star: Node, names: Names) -> list[tuple[str, Node]]:
    """The fields of the struct in `s.*`.  Raises: SqlQueryError."""
    place = star.get("query_location")
    whole = names.resolved({**column(star["relation_name"]), "query_location": place})
    alias, field = whole["column_names"]
    (kind,) = (item.relation.type_of(field) for item in names.froms.items if item.alias == alias)
    struct = type_of(kind)
    if not isinstance(struct, Struct):
        problem = f'"{star["relation_name"]}.*" is of a table or a struct; this is {kind}'
        raise SqlQueryError(problem, place)
    return [(name, column(alias, field, name)) for name, _ in struct.fields]


def views_of(node: Node) -> list[Node]:
    """The named queries of WITH."""
    listed: list[Node] = (node.get("cte_map") or {}).get("map") or []
    return listed


def read_whole(query: Node, tables: Mapping[str, Table]) -> Iterator[str]:
    """The names of tables and structs of which a query may read any column; "" is any table."""
    # A NATURAL JOIN is by any column, and the rows of an UNPIVOT have all other columns.
    if any(each["ref_type"] == "NATURAL" for each in objects_with(query, "ref_type")) or any(
        each["unpivot_names"] for each in objects_with(query, "unpivot_names")
    ):
        yield ""
    views = {each["key"].lower() for of in objects_with(query, "cte_map") for each in views_of(of)}
    there = {name.lower(): table for name, table in tables.items() if name.lower() not in views}
    every = {_qualifier(each) for each in objects_with(query, "column_name_alias")} - {""}
    for select in objects_with(query, "select_list"):
        items = [*objects_with(select["from_table"], "column_name_alias", "subquery")]
        columns_there = {
            name.lower()
            for each in items
            if not each["column_name_alias"]
            for name in getattr(there.get(each.get("table_name", "").lower()), "types", ())
        }
        joins = objects_with(select["from_table"], "join_type", "subquery")
        if any(each["join_type"] in ("SEMI", "ANTI") for each in joins):
            # Their right has no names behind ON.
            columns_there = set()
        for part, value in select.items():
            shown = set() if part == "from_table" else columns_there
            for each in own_nodes(value if part != "cte_map" else None):
                (name, *more) = each.get("column_names", ("",))
                if each["class"] == "STAR":
                    of = each["relation_name"].lower()
                    yield from [of] if of else map(_qualifier, items)
                elif each["class"] == "POSITIONAL_REFERENCE":
                    yield ""
                # The name of a table alone is a struct of its columns.
                elif not more and name.lower() in every and name.lower() not in shown:
                    yield name.lower()


def _qualifier(item: Node) -> str:
    """The qualifier of the columns of an item of FROM; empty if it has none in the query."""
    called: str = item["alias"] or item.get("table_name") or ""
    return called.lower()
