"""Expansion of `*`, `t.*` and COLUMNS(…), alone and within expressions, to columns."""

from collections.abc import Iterator
from typing import Any

from ikebana.codecs.sql_type import Struct, type_of
from ikebana.processor.linear.bound_query import SqlQueryError, constant
from ikebana.processor.linear.json_text import literal
from ikebana.processor.linear.scope import KEY, ExpressionError
from ikebana.processor.linear.syntax import Node, text_of, tree
from ikebana.processor.linear.trees import bare, changed, column, own_nodes
from ikebana.processor.relational.sql_scope import Names

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
    if any(bare(each) != bare(first) for each in stars):
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
