"""Refusals of SQL that is not supported, with what to write instead."""

from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from ikebana.processor.linear.allowed import CLOCKS
from ikebana.processor.linear.bound_query import SqlQueryError, constant
from ikebana.processor.linear.json_text import ZONED
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.syntax import TURNED, Node, has_subquery, own_nodes, text_of

NOW = "ikebana_now"
NAMES_OF_NOW = (NOW, "mz_now", "now")
"""The names that the time of a read has in WHERE."""
# What a cast of it to such a type leaves as it is.
_MOMENTS = tuple(f" AS {kind})" for kind in ("TIMESTAMP", "TIMESTAMPTZ", ZONED))
_FORM = (
    "ikebana_now() stands alone on one side of a comparison in WHERE, or beside an INTERVAL "
    "without months, as in placed > ikebana_now() - INTERVAL 30 DAYS; now() and mz_now() mean the "
    "same there"
)
OF_A_CLOCK = f"depends on more than the datum; for rows that leave in time {_FORM}"


def is_now(node: Node) -> bool:
    """Whether a node is a call of `ikebana_now`, by any of its names, perhaps as a timestamp."""
    if node["class"] == "CAST" and is_now(node["child"]):
        return text_of(node).endswith(_MOMENTS)
    return node["class"] == "FUNCTION" and node["function_name"].lower() in NAMES_OF_NOW


def reads_now(value: object) -> bool:
    """Whether an expression calls `ikebana_now`, by any name, outside of its subqueries."""
    return any(map(is_now, own_nodes(value)))


def refuse_now(value: object) -> None:
    """Refuse `ikebana_now()` and clocks in an expression.  Raises: SqlQueryError."""
    for node in own_nodes(value):
        name = node["function_name"].lower() if node["class"] == "FUNCTION" else ""
        if name in CLOCKS:
            raise SqlQueryError(f"{name}() {OF_A_CLOCK}", node.get("query_location"))
        if name in NAMES_OF_NOW:
            raise SqlQueryError(_FORM, node.get("query_location"))


def refuse_stars(value: object) -> None:
    """Refuse `*` and COLUMNS(…) in an expression.  Raises: SqlQueryError."""
    for node in own_nodes(value):
        if node["class"] == "STAR":
            raise SqlQueryError(
                "* and COLUMNS(…) stand for columns in a select list; name the columns here",
                node.get("query_location"),
            )


def refuse_select(node: Node) -> None:
    """Refuse parts of a SELECT that are not supported.  Raises: SqlQueryError."""
    if node["sample"]:
        raise SqlQueryError("a sample depends on chance; write a condition")


LISTS = ("unnest", "generate_series", "range")


def refuse_before(node: Node) -> None:
    """Refuse a node of FROM, a LIMIT or a parameter that DuckDB would refuse in other words.

    Raises: SqlQueryError.
    """
    if node.get("type") == "TABLE_FUNCTION":
        name = node["function"].get("function_name", "").lower()
        if name not in LISTS:
            raise SqlQueryError(
                f"{name}() in FROM is not supported; there are {', '.join(LISTS)}, and tumble, "
                "hop and session of an input or operator",
                node.get("query_location"),
            )
    if node.get("class") == "PARAMETER":
        raise SqlQueryError(
            "a parameter has no value here; write the value", node.get("query_location")
        )
    if node.get("type") == "SHOW_REF":
        raise SqlQueryError("DESCRIBE, SHOW and SUMMARIZE are not supported; write a SELECT")
    if node.get("type") == "LIMIT_MODIFIER":
        limit_of(node)
    if node.get("type") == "SELECT_NODE":
        _refuse_numbers(node)


def _refuse_numbers(select: Node) -> None:
    """Refuse numbers in GROUP BY that name no column.  Raises: SqlQueryError."""
    listed = select["select_list"]
    if any(each["class"] == "STAR" for each in own_nodes(listed)):
        return
    for each in select["group_expressions"]:
        literal = each.get("literal") or {}
        if literal.get("kind") == "INTEGER" and not 0 < int(literal["text"]) <= len(listed):
            problem = "a number in GROUP BY names a column of the select list, from 1 to"
            raise SqlQueryError(f"{problem} {len(listed)}", each.get("query_location"))


def targets_of(node: Node) -> list[Node]:
    """The expressions of DISTINCT ON."""
    return [each for m in node["modifiers"] for each in m.get("distinct_on_targets") or ()]


def has_groups(node: Node) -> bool:
    """Whether a SELECT has a GROUP BY, including ALL and an empty one."""
    is_of_all = node["aggregate_handling"] == "FORCE_AGGREGATES"
    return bool(node["group_expressions"] or node["group_sets"] or is_of_all)


class Limit(NamedTuple):
    """How many rows a LIMIT keeps, None for all, and how many OFFSET leaves out before them.

    With `percent`, it keeps such a part of all rows.
    """

    rows: int | None = None
    left_out: int = 0
    percent: Decimal | None = None


def limit_of(modifier: Node) -> Limit:
    """What a LIMIT and an OFFSET keep.  Raises: SqlQueryError."""
    limit, offset = modifier["limit"], modifier["offset"]
    left_out = _number(offset, "OFFSET must be a whole number")
    skipped = int(_whole(left_out or 0, "OFFSET must be a whole number", modifier))
    if modifier["limit_type"] == "PERCENTAGE":
        return Limit(None, skipped, _number(limit, "LIMIT of a percentage must be a number"))
    problem = "LIMIT must be a whole number"
    rows = _number(limit, problem)
    return Limit(None if rows is None else int(_whole(rows, problem, modifier)), skipped)


def _number(node: Node | None, problem: str) -> Decimal | None:
    """The number that an expression over no columns comes to, None for null or no expression.

    Raises: SqlQueryError.
    """
    if node is None:
        return None
    try:
        value = constant(text_of(node))
        return None if value is None else Decimal(str(value))
    except (ExpressionError, InvalidOperation):
        if has_subquery(node):
            problem += "; write QUALIFY row_number() OVER (ORDER BY x) <= (SELECT …)"
        raise SqlQueryError(problem, node.get("query_location")) from None


def _whole(number: Decimal | int, problem: str, modifier: Node) -> Decimal | int:
    if number % 1:
        raise SqlQueryError(problem, _place_of_limit(modifier))
    return number


def whole_number(node: Node) -> int | None:
    """The value of a whole-number constant; None for anything else."""
    literal = node.get("literal") or {}
    text = str(literal.get("text", ""))
    is_whole = literal.get("kind") == "INTEGER" and text.isdigit()
    return int(text) if node["class"] == "CONSTANT" and is_whole else None


def _place_of_limit(modifier: Node) -> int | None:
    node = modifier["limit"] or modifier["offset"] or {}
    place: int | None = node.get("query_location")
    return place


# How much greater a bound is than the number that a rank is compared with.
_BOUNDS = {"COMPARE_LESSTHANOREQUALTO": 0, "COMPARE_LESSTHAN": -1, "COMPARE_EQUAL": 0}


def bounded_by(condition: Node) -> tuple[Node, int] | None:
    """The expression that a condition bounds from above, and its greatest value."""
    kind = condition["type"]
    if kind == "COMPARE_BETWEEN":
        bound = whole_number(condition["upper"])
        return None if bound is None else (condition["input"], bound)
    for sign, of, by in ((kind, "left", "right"), (TURNED.get(kind, kind), "right", "left")):
        if sign in _BOUNDS and (bound := whole_number(condition[by])) is not None:
            return condition[of], bound + _BOUNDS[sign]
    return None
