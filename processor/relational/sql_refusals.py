"""Refusals of SQL that is not supported, with what to write instead."""

from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.syntax import Node
from ikebana.processor.linear.trees import own_nodes

NOW = "ikebana_now"
_FORM = (
    "ikebana_now() stands alone on one side of a comparison in WHERE, as in "
    "placed + INTERVAL 30 DAYS > ikebana_now() or ikebana_now() >= starts"
)
_CLOCKS = ("now", "get_current_timestamp", "current_timestamp", "transaction_timestamp")


def is_now(node: Node) -> bool:
    """Whether a node is a call of `ikebana_now`."""
    return bool(node["class"] == "FUNCTION" and node["function_name"].lower() == NOW)


def reads_now(value: object) -> bool:
    """Whether an expression calls `ikebana_now` outside of its subqueries."""
    return any(map(is_now, own_nodes(value)))


def refuse_now(value: object) -> None:
    """Refuse `ikebana_now()` and clocks in an expression.  Raises: QueryError."""
    for node in own_nodes(value):
        if is_now(node):
            raise SqlQueryError(_FORM, node.get("query_location"))
        if node["class"] == "FUNCTION" and node["function_name"].lower() in _CLOCKS:
            called = f"{node['function_name']}()"
            problem = (
                f"{called} depends on more than the datum; for rows that leave in time {_FORM}"
            )
            raise SqlQueryError(problem, node.get("query_location"))


def refuse_stars(value: object) -> None:
    """Refuse `*` and COLUMNS(…) in an expression.  Raises: QueryError."""
    for node in own_nodes(value):
        if node["class"] == "STAR":
            raise SqlQueryError(
                "* and COLUMNS(…) stand for columns in a select list; name the columns here",
                node.get("query_location"),
            )


def refuse_select(node: Node) -> None:
    """Refuse parts of a SELECT that are not supported.  Raises: QueryError."""
    if node["sample"]:
        raise SqlQueryError("a sample depends on chance; write a condition")


def targets_of(node: Node) -> list[Node]:
    """The expressions of DISTINCT ON."""
    return [each for m in node["modifiers"] for each in m.get("distinct_on_targets") or ()]


def has_groups(node: Node) -> bool:
    """Whether a SELECT has a GROUP BY, including ALL and an empty one."""
    is_of_all = node["aggregate_handling"] == "FORCE_AGGREGATES"
    return bool(node["group_expressions"] or node["group_sets"] or is_of_all)


def limit_of(modifier: Node) -> tuple[int | None, int]:
    """The number of LIMIT, None without one; and the number of OFFSET.

    Raises: QueryError.
    """
    limit, offset = modifier["limit"], modifier["offset"]
    if modifier["limit_type"] != "ROW_COUNT":
        named = modifier["limit_type"].lower().replace("_", " ")
        raise SqlQueryError(
            f"LIMIT of a {named} is not supported; write a number of rows",
            _place_of_limit(modifier),
        )
    left_out = 0 if offset is None else whole_number(offset)
    if left_out is None:
        raise SqlQueryError("OFFSET must be a whole number", offset.get("query_location"))
    count = None if limit is None else whole_number(limit)
    if limit is not None and (count is None or count < 1):
        problem = "LIMIT must be a whole number, of at least 1"
        raise SqlQueryError(problem, _place_of_limit(modifier))
    return count, left_out


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
