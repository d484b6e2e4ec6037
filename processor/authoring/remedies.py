"""Keys of other systems that the pipeline file does not have: what to write instead."""

from collections.abc import Sequence

_TOP = "the first rows by an order are a first operator, with order, count and partition"

_OF_OPERATORS = {
    "join": "a join is a delta_join, or an as_of_join",
    "inner_join": "a join is a delta_join, or an as_of_join",
    "outer_join": "an outer join is a left_join, a right_join or a full_join",
    "except": "the rows of one operator without those of others are a minus",
    "group_by": "a reduce operator has its key under by",
    "groupby": "a reduce operator has its key under by",
    "order_by": _TOP,
    "limit": _TOP,
    "from": "write what it reads behind its kind, as in linear: orders",
    "input": "write what it reads behind its kind, as in linear: orders",
    "name": "an operator's name is the key that it stands under",
    "window": "valid_until ends a row after some time, and by may have date_trunc('hour', ...)",
}


def remedy_for(path: Sequence[int | str]) -> str | None:
    """What to write instead of the key at this path of the file; None if nothing is known.

    >>> remedy_for(("operators", "totals", "group_by"))
    'a reduce operator has its key under by'
    >>> remedy_for(("inputs", "orders", "group_by")) is None
    True
    """
    if len(path) < 3 or path[0] != "operators":
        return None
    return _OF_OPERATORS.get(str(path[-1]).lower())
