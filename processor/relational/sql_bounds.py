"""Conditions that bound an expression from above, such as `rank <= 3`."""

from ikebana.processor.linear.syntax import Node
from ikebana.processor.relational.sql_refusals import whole_number

# How much greater a bound is than the number that a rank is compared with.
_BOUNDS = {"COMPARE_LESSTHANOREQUALTO": 0, "COMPARE_LESSTHAN": -1, "COMPARE_EQUAL": 0}
_TURNED = {"COMPARE_GREATERTHANOREQUALTO": 0, "COMPARE_GREATERTHAN": -1, "COMPARE_EQUAL": 0}


def bounded_by(condition: Node) -> tuple[Node, int] | None:
    """The expression that a condition bounds from above, and its greatest value."""
    kind = condition["type"]
    if kind == "COMPARE_BETWEEN":
        bound = whole_number(condition["upper"])
        return None if bound is None else (condition["input"], bound)
    for bounds, of, by in ((_BOUNDS, "left", "right"), (_TURNED, "right", "left")):
        if kind in bounds and (bound := whole_number(condition[by])) is not None:
            return condition[of], bound + bounds[kind]
    return None
