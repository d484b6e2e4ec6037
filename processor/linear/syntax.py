"""Syntax trees of SQL expressions: parse and write them, and refuse other statements.

DuckDB parses and writes all but plain columns.  Names and functions are not resolved here.
"""

# Decision (columns are read and written without the database): Two thirds of the calls of the
# parser and of the printer were for a column alone. A property compares both with DuckDB.

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import duckdb
import msgspec

from ikebana.processor.linear.database import asked, first_line
from ikebana.processor.linear.functions import FunctionError
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.sql_functions import declare

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
    ((tree,),) = asked("SELECT json_serialize_sql(?)", f"SELECT {text}\n")
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
    return dict(asked("SELECT keyword_name, keyword_category FROM duckdb_keywords()"))


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


def written(node: Node) -> str:
    """The expression of a SELECT node, as SQL."""
    statement = {"error": False, "statements": [{"node": node, "named_param_map": []}]}
    return _printed(msgspec.json.encode(statement).decode())


def text_of(node: Node) -> str:
    """An expression as SQL, without its alias.  Raises: ExpressionError."""
    if node["class"] == "COLUMN_REF":
        return _column_text(node["column_names"])
    return written({**select_of("1"), "select_list": [{**node, "alias": ""}]})


@functools.lru_cache(maxsize=4096)
def _printed(tree: str) -> str:
    try:
        ((sql,),) = asked("SELECT json_deserialize_sql(?)", tree)
    except duckdb.Error as error:
        raise ExpressionError(first_line(error)) from None
    return str(sql).removeprefix("SELECT ").removesuffix(";")


def called(text: str) -> tuple[str, str] | None:
    """The function and the argument of an expression that is a call with one argument."""
    try:
        node = select_of(text)
        (root,) = node["select_list"]
        if root.get("class") != "FUNCTION" or len(root["arguments"]) != 1 or modified(root):
            return None
        argument = written({**node, "select_list": [root["arguments"][0]["expression"]]})
    except (ExpressionError, RecursionError):
        return None
    return root["function_name"].lower(), argument


def modified(call: Node) -> str:
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
