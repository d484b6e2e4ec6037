"""The syntax of SQL: tokens of texts, and trees of expressions.

DuckDB divides a text into tokens, and parses and writes all expressions but plain columns.  Other
statements are refused.  Names and functions are not resolved here.  A tree is a value: functions
that change it return a new one.
"""

# Decision (columns are read and written without the database): Two thirds of the calls of the
# parser and of the printer were for a column alone. A property compares both with DuckDB.

import functools
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import duckdb
import msgspec

from ikebana.codecs.sql_type import TypeTextError, parsed
from ikebana.processor.linear.database import first_line, rows_of
from ikebana.processor.linear.functions import FunctionError
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.sql_functions import SqlFunction, declare, function_of


class Token(NamedTuple):
    """A token: its kind in DuckDB's words, its text, and where that begins and ends."""

    kind: str
    text: str
    at: int
    end: int


def tokens(text: str) -> list[Token]:
    """All tokens but comments.  A text or name without an end extends to the end."""
    # DuckDB counts bytes; here characters are counted.
    bytes_before = list(accumulate((len(each.encode()) for each in text), initial=0))
    starts = [(bisect_left(bytes_before, at), kind) for at, kind in duckdb.tokenize(text)]
    result = []
    for number, (at, kind) in enumerate(starts):
        after = starts[number + 1][0] if number + 1 < len(starts) else len(text)
        word = text[at:after].rstrip()
        if kind != duckdb.token_type.comment:
            result.append(Token(str(kind).rpartition(".")[2], word, at, at + len(word)))
    return result


class TextPart(NamedTuple):
    """A part of a text, and its place."""

    text: str
    at: int


def items(part: TextPart) -> Iterator[TextPart]:
    """The parts between commas that are in no parentheses or brackets."""
    depth, begin = 0, 0
    for token in tokens(part.text):
        depth += (token.text in "([{") - (token.text in ")]}")
        if token.text == "," and not depth:
            yield TextPart(part.text[begin : token.at], part.at + begin)
            begin = token.end
    yield TextPart(part.text[begin:], part.at + begin)


def replaced(text: str, begin: int, end: int, by: str = "") -> str:
    """The text with a part replaced by a shorter one and spaces, so that places stay right."""
    rest = text[begin + len(by) : end]
    return text[:begin] + by + "".join("\n" if c == "\n" else " " for c in rest) + text[end:]


def unquoted(token: Token) -> str:
    """The name that a token is."""
    text = token.text
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


def with_long_names(text: str, functions: Mapping[str, SqlFunction]) -> str:
    """SQL in which calls of functions, by their short names in small letters, have long names.

    >>> risk = SqlFunction("risk", "shop:risk", ("BIGINT",), "DOUBLE")
    >>> with_long_names("risk(a) > t.risk", {"risk": risk})
    '"risk python:shop:risk(bigint)->double"(a) > t.risk'
    """
    if not any(name in text.lower() for name in functions):
        return text
    parts, end = [], 0
    all_tokens = tokens(text)
    for at, token in enumerate(all_tokens[:-1]):
        name = token.text.strip('"').lower()
        is_part = at > 0 and all_tokens[at - 1].text == "."
        if name not in functions or is_part or all_tokens[at + 1].text != "(":
            continue
        long_name = functions[name].long_name.replace('"', '""')
        parts += [text[end : token.at], f'"{long_name}"']
        end = token.end
    return "".join([*parts, text[end:]])


def with_long_names_in(value: Any, functions: Mapping[str, SqlFunction]) -> Any:
    """Replace short names in all texts of a value of a plan, except in long names alone."""
    if isinstance(value, str):
        return value if function_of(value) else with_long_names(value, functions)
    if isinstance(value, tuple):
        return tuple(with_long_names_in(each, functions) for each in value)
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        replaced = {name: with_long_names_in(of, functions) for name, of in fields.items()}
        return msgspec.structs.replace(value, **replaced)
    return value


Node = dict[str, Any]

TOO_DEEP = "it is nested too deeply"
_NOT_ONE = "it is not one expression"
# Parts of a SELECT, and their places in a pipeline file.
_ELSEWHERE = {
    "where_clause": "a condition stands under where",
    "group_expressions": "GROUP BY is a reduce operator's by",
    "having": "HAVING is a where in a linear operator behind the reduce",
    "qualify": "what the rows of a key come to is for a reduce operator, such as top(3, …)",
    "sample": "a sample depends on more than the datum",
}
_MODIFIERS = {
    "DISTINCT_MODIFIER": "DISTINCT is a reduce operator by these columns",
    "LIMIT_MODIFIER": "LIMIT is a reduce operator's top(n, …)",
    "LIMIT_PERCENT_MODIFIER": "LIMIT is a reduce operator's top(n, …)",
    "ORDER_MODIFIER": "a collection has no order; the first of it are a reduce's top(n, …)",
}
_NEAR = re.compile(r'syntax error at or near "(.+)"')
# Texts, quoted names and comments, which stay unchanged; and a name in front of a dot.
_BEFORE_A_DOT = re.compile(
    r"""[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|/\*.*?\*/"""
    r"""|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$"""
    r"""|(?<![\w.$])(?P<name>[^\W\d]\w*)(?=\s*\.\s*(?:"|[^\W\d]))""",
    re.DOTALL,
)
_UNITS = {"second", "minute", "hour", "day", "week", "month", "year"}
_CONNECTIVES = {"and", "or", "not", "is", "in", "like", "between"}
_CLAUSES = {
    *("as", "by", "from", "group", "having", "join", "limit", "on", "order", "qualify", "select"),
    *("union", "using", "where", "window", "with"),
}
# Between these and a clause that begins too early, a name is missing.
_BEGINNINGS = {"as", "by", "from", "having", "limit", "on", "qualify", "using", "where", "with"}
_SET_OPERATIONS = {
    "UNION": "the updates of several operators together are a concat operator",
    "INTERSECT": "what stands in two collections is for a delta_join",
}


def tree_of(text: str) -> Node:
    """The syntax tree of `SELECT <text>`; if its `error` is true, the reason why it is invalid.

    A name that SQL reserves needs no quotes in front of a dot, such as `left` in `left.amount`:
    a text that cannot be parsed is parsed again with these names in quotes.
    """
    if "\0" in text or (not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text)):
        return {"error": True, "error_message": "it holds a character that SQL cannot"}
    try:
        declare(text)
        tree: Node = msgspec.json.decode(_parsed(text))
        if tree["error"] and (quoting := _with_quotes(text)) != text:
            tree = msgspec.json.decode(_parsed(quoting))
    except RecursionError:
        return {"error": True, "error_message": TOO_DEEP}
    except (duckdb.Error, FunctionError) as error:
        return {"error": True, "error_message": first_line(error)}
    return tree


def _with_quotes(text: str) -> str:
    """A text with reserved words in quotes if they come before a dot and a name."""

    def named(match: re.Match[str]) -> str:
        word = match["name"]
        return quoted(word) if word is not None and word.lower() in _reserved() else match[0]

    return _BEFORE_A_DOT.sub(named, text)


def _parsed(text: str) -> bytes:
    # The newline ends a comment at the end of the text.
    ((tree,),) = rows_of("SELECT json_serialize_sql(?)", f"SELECT {text}\n")
    return str(tree).encode()


# A column by a name in quotes, or behind a qualifier.
_COLUMN = re.compile(
    r"""(?:(?P<of>[A-Za-z_][A-Za-z_0-9]*|"[^"\0\ud800-\udfff]+")\.)?"""
    r"""(?P<name>[A-Za-z_][A-Za-z_0-9]*|"[^"\0\ud800-\udfff]+")"""
)
_PLAIN = re.compile(r"(?!_\d)[A-Za-z_][A-Za-z_0-9]*")


def _column_of(text: str) -> Node | None:
    """The tree of a column; None if the text may be more, which the parser tells."""
    match = _COLUMN.fullmatch(text)
    if match is None or (match["of"] is None and text[0] != '"'):
        return None
    names = [each for each in (match["of"], match["name"]) if each is not None]
    if any(each.lower() in _keywords() for each in names):
        return None
    place = {"query_location": len("SELECT "), "query_location_length": len(text.encode())}
    kind = {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": ""}
    return {**kind, **place, "column_names": [each.strip('"') for each in names]}


def _column_text(names: Iterable[str]) -> str:
    """A column as DuckDB writes it: with quotes where it needs them."""
    return ".".join(
        name if _PLAIN.fullmatch(name) and name.lower() not in _keywords() else quoted(name)
        for name in names
    )


@functools.lru_cache(maxsize=2048)
def select_of(text: str) -> Node:
    """The SELECT node of exactly one expression; it must not be changed.

    A text is parsed once in a process, so callers may ask for its tree by the text.

    Raises: ExpressionError.
    """
    if (named := _column_of(text)) is not None:
        return {**select_of("1"), "select_list": [named]}
    answer = tree_of(text)
    if answer["error"]:
        problem = first_line(answer["error_message"])
        raise ExpressionError(f"{problem}{remedy(problem, text)}")
    if len(answer["statements"]) != 1:
        raise ExpressionError(_NOT_ONE)
    node: Node = answer["statements"][0]["node"]
    for hint in _more_than_one(node):
        raise ExpressionError(f"{_NOT_ONE}; {hint}" if hint else _NOT_ONE)
    if alias := node["select_list"][0].get("alias"):
        raise ExpressionError(
            f'an alias has no meaning here; names stand under select, as in {{"{alias}": …}}'
        )
    return node


def remedy(problem: str, text: str) -> str:
    """What to write instead, if a syntax error suggests it."""
    near = _NEAR.match(problem)
    if near is None:
        return ""
    word = near[1].lower()
    if word == "recursive" and "mutually" in text.lower():
        return "; WITH MUTUALLY RECURSIVE begins a view: make one of it, and read that"
    if word.rstrip("s") in _UNITS:
        return "; a length of time is an interval, as in INTERVAL 1 HOUR"
    names = [word] if word.isidentifier() else []
    is_last = text.rstrip("; \n").lower().endswith(word)
    if is_last and (not names or word in _BEGINNINGS or word not in _keywords()):
        return "; something is missing behind it"
    if not names or word in _CLAUSES:
        # A reserved name may be parsed as a keyword; then the error is behind it.
        before = re.search(rf"(\w+)\s*{re.escape(near[1])}", text)
        no_names = {*_CONNECTIVES, *(_BEGINNINGS if names else ())}
        is_first = before is None or not text[: before.start()].strip()
        if before and not (names and is_first) and before[1].lower() in _reserved() - no_names:
            names.insert(0, before[1])
    for name in names:
        if name not in _CONNECTIVES and name.lower() in _keywords():
            return f'; names that SQL reserves stand in double quotes, as in "{name}"'
    return ""


@functools.cache
def _keywords() -> Mapping[str, str]:
    """The words of SQL, each with its category."""
    return dict(rows_of("SELECT keyword_name, keyword_category FROM duckdb_keywords()"))


def _reserved() -> frozenset[str]:
    """Words that must be quoted to be names of columns."""
    categories = ("reserved", "type_function")
    return frozenset(word for word, of in _keywords().items() if of in categories)


def _more_than_one(node: Node) -> Iterator[str]:
    """The reasons why a statement is not one expression: what to write instead, if known."""
    if node["type"] != "SELECT_NODE":
        yield _SET_OPERATIONS.get(node.get("setop_type", ""), "")
        return
    if node["from_table"]["type"] != "EMPTY":
        yield "an operator names what it reads; what another one has is for a delta_join"
    yield from (hint for part, hint in _ELSEWHERE.items() if node.get(part))
    if node.get("group_sets") or node.get("aggregate_handling") != "STANDARD_HANDLING":
        yield _ELSEWHERE["group_expressions"]
    yield from (_MODIFIERS.get(modifier["type"], "") for modifier in node["modifiers"])
    if node.get("cte_map", {}).get("map"):
        yield ""
    if len(node["select_list"]) != 1:
        yield "several are several columns of a select, or a list of conditions"


def tree(text: str) -> Node:
    """The tree of one expression.  Raises: ExpressionError."""
    root: Node = select_of(text)["select_list"][0]
    return root


def sql_of(node: Node) -> str:
    """The expression of a SELECT node, as SQL."""
    statement = {"error": False, "statements": [{"node": node, "named_param_map": []}]}
    return _printed(msgspec.json.encode(statement).decode())


def text_of(node: Node) -> str:
    """An expression as SQL, without its alias.  Raises: ExpressionError."""
    if node["class"] == "COLUMN_REF":
        return _column_text(node["column_names"])
    return sql_of({**select_of("1"), "select_list": [{**node, "alias": ""}]})


@functools.lru_cache(maxsize=4096)
def _printed(tree: str) -> str:
    try:
        ((sql,),) = rows_of("SELECT json_deserialize_sql(?)", tree)
    except duckdb.Error as error:
        raise ExpressionError(first_line(error)) from None
    return str(sql).removeprefix("SELECT ").removesuffix(";")


def call_of(text: str) -> tuple[str, str] | None:
    """The function and the argument of an expression that is a call with one argument."""
    try:
        node = select_of(text)
        (root,) = node["select_list"]
        if root.get("class") != "FUNCTION" or len(root["arguments"]) != 1 or modifiers_of(root):
            return None
        argument = sql_of({**node, "select_list": [root["arguments"][0]["expression"]]})
    except (ExpressionError, RecursionError):
        return None
    return root["function_name"].lower(), argument


def modifiers_of(call: Node) -> str:
    """The modifiers of a call: FILTER, ORDER BY, DISTINCT; empty if there are none."""
    if call.get("filter"):
        return "FILTER"
    if (call.get("order_bys") or {}).get("orders"):
        return "ORDER BY"
    return "DISTINCT" if call.get("distinct") else ""


def shown(name: str) -> str:
    """A column's name as SQL, in quotes only if needed.

    >>> shown("amount"), shown("order")
    ('amount', '"order"')
    """
    try:
        root = tree(name)
    except ExpressionError:
        root = {}
    plain = root.get("class") == "COLUMN_REF" and root["column_names"] == [name]
    return name if plain else quoted(name)


_PLACES = ("query_location", "query_location_length", "alias")


def column(*names: str) -> Node:
    """A reference to a column, behind its qualifier if there is one."""
    return {
        "class": "COLUMN_REF",
        "type": "COLUMN_REF",
        "alias": "",
        "query_location": 0,
        "query_location_length": 0,
        "column_names": list(names),
    }


def objects_with(value: Any, part: str, without: str | None = None) -> Iterator[Node]:
    """All objects within that have a part of this name, outermost first, in the text's order.

    Fields called `without` are left out.
    """
    if isinstance(value, list | tuple):
        for item in value:
            yield from objects_with(item, part, without)
    elif isinstance(value, dict):
        if part in value:
            yield value
        for name, item in value.items():
            if name != without:
                yield from objects_with(item, part, without)


def nodes(value: Any, without: str | None = None) -> Iterator[Node]:
    """All nodes within, outermost first, except those in fields called `without`."""
    return objects_with(value, "class", without)


def own_nodes(value: Any) -> Iterator[Node]:
    """All nodes within, except those of subqueries."""
    return nodes(value, without="subquery")


def has_subquery(value: Any) -> bool:
    """Whether there is a subquery within."""
    return any(node["class"] == "SUBQUERY" for node in own_nodes(value))


def columns(value: Any, *, with_parts: bool = False) -> list[tuple[str, ...]]:
    """The names of all columns that are read, except in subqueries.

    Parameters of lambdas are no columns.  `with_parts` includes qualified names that may be a part
    of a parameter: they are one only if no table has a column of that name.
    """
    names: list[tuple[str, ...]] = []

    def look(node: Node) -> None:
        if node["class"] == "COLUMN_REF":
            names.append(tuple(node["column_names"]))

    changed(value, look, parts_too=with_parts)
    return names


def changed(value: Any, change: Callable[[Node], Node | None], *, parts_too: bool = False) -> Any:
    """The tree with nodes replaced, outermost first; for None the node stays, its children follow.

    Subqueries stay unchanged, and so do the parameters of lambdas: a parameter that would capture
    a column inserted into its lambda gets another name.  With `parts_too`, qualified names that
    may be a part of a parameter are passed to `change` as well.
    """
    if isinstance(value, list | tuple):
        return [changed(item, change, parts_too=parts_too) for item in value]
    if not isinstance(value, dict):
        return value
    if "class" in value and (new := change(value)) is not None:
        return new
    if is_lambda(value):
        return _changed_lambda(value, change, parts_too=parts_too)
    return {
        name: changed(item, change, parts_too=parts_too)
        if isinstance(item, list | dict) and name != "subquery"
        else item
        for name, item in value.items()
    }


def is_lambda(node: Node) -> bool:
    """Whether a node is a lambda; `x -> y` is parsed as one, and takes a part out of JSON."""
    return node.get("class") == "LAMBDA" and node.get("syntax_type") != "SINGLE_ARROW"


def _changed_lambda(node: Node, change: Callable[[Node], Node | None], *, parts_too: bool) -> Node:
    parameters = {names[0].lower() for names in columns(node["lhs"])}
    come: set[str] = set()

    def change_within(inner: Node) -> Node | None:
        if inner["class"] == "COLUMN_REF":
            first, *parts = inner["column_names"]
            if first.lower() in parameters and not (parts and parts_too):
                return inner
        new = change(inner)
        if new is not None and new is not inner:
            come.update(name.lower() for names in columns(new) for name in names)
        return new

    body = changed(node["expr"], change_within, parts_too=parts_too)
    if captured := parameters & come:
        read = {name.lower() for names in columns(node["expr"]) for name in names}
        anew = {name: _free(name, {*come, *parameters, *read}) for name in sorted(captured)}
        unmistaken = _with_parameters(node, anew, change if parts_too else None)
        return _changed_lambda(unmistaken, change, parts_too=parts_too)
    return {**node, "expr": body}


def _with_parameters(
    node: Node, names: Mapping[str, str], change: Callable[[Node], Node | None] | None
) -> Node:
    """A lambda with other names of parameters, except names that `change` replaces as columns."""

    def named(inner: Node) -> Node | None:
        if inner["class"] != "COLUMN_REF":
            return None
        first, *parts = inner["column_names"]
        new = change(inner) if parts and change is not None else None
        if new is not None and new is not inner:
            return None
        return {**inner, "column_names": [names.get(first.lower(), first), *parts]}

    return {**node, "lhs": changed(node["lhs"], named), "expr": changed(node["expr"], named)}


def _free(name: str, others: Collection[str]) -> str:
    while name in others:
        name += "_"
    return name


def renamed(value: Any, names: Mapping[tuple[str, str], tuple[str, ...]]) -> Any:
    """The tree with columns (qualifier, name) renamed."""

    def change(node: Node) -> Node | None:
        if node["class"] != "COLUMN_REF":
            return None
        names_now = node["column_names"]
        new = names.get(tuple(names_now[:2]))
        return None if new is None else {**node, "column_names": [*new, *names_now[2:]]}

    return changed(value, change)


def equality_sides(condition: Node) -> tuple[Node, Node] | None:
    """The sides of an equality; None if the condition is none."""
    if condition.get("type") != "COMPARE_EQUAL":
        return None
    return condition["left"], condition["right"]


TURNED = {
    "COMPARE_LESSTHAN": "COMPARE_GREATERTHAN",
    "COMPARE_GREATERTHAN": "COMPARE_LESSTHAN",
    "COMPARE_LESSTHANOREQUALTO": "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_GREATERTHANOREQUALTO": "COMPARE_LESSTHANOREQUALTO",
}
"""Inequalities, by those that mean the same with both sides exchanged."""


def unplaced(value: Any) -> Any:
    """The tree without places and aliases, so that equal expressions are equal.

    A type has its full name, however it is spelt.
    """
    if isinstance(value, list):
        return [unplaced(item) for item in value]
    if isinstance(value, dict):
        if value.get("class") == "TYPE":
            value = _in_full(value)
        return {name: unplaced(item) for name, item in value.items() if name not in _PLACES}
    return value


def with_full_types(value: Any) -> Any:
    """The tree with each type by its full name, however it is spelt."""
    return changed(value, lambda node: _in_full(node) if node["class"] == "TYPE" else None)


def _in_full(node: Node) -> Node:
    try:
        cast = text_of({**tree("CAST(NULL AS BIGINT)"), "type_expr": node})
        kind = parsed(cast.removeprefix("CAST(NULL AS ").removesuffix(")"))
    except (ExpressionError, TypeTextError):
        # The type does not exist; binding will report it.
        return node
    named: Node = tree(f"CAST(NULL AS {kind})")["type_expr"]
    return named


def conjuncts(node: Node | None) -> Iterator[Node]:
    """The conditions that AND joins."""
    if node is None:
        return
    if node.get("type") == "CONJUNCTION_AND":
        for child in node["children"]:
            yield from conjuncts(child)
    else:
        yield node


def conjunction(conditions: Sequence[Node]) -> Node | None:
    """The conditions joined by AND; None for none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return {**tree("true AND true"), "children": [*conditions]}


def conditions(text: str) -> list[tuple[str, Node]]:
    """The conditions that AND joins in a condition, as SQL and as trees.

    Raises: ExpressionError.
    """
    whole = tree(text)
    try:
        return [(text if each is whole else text_of(each), each) for each in conjuncts(whole)]
    except RecursionError:
        raise ExpressionError(TOO_DEEP) from None


def condition_texts(text: str) -> list[str]:
    """The conditions that AND joins, as SQL; an invalid text is returned unchanged."""
    try:
        return [each for each, _ in conditions(text)]
    except ExpressionError:
        return [text]
