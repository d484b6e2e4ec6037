"""Pydantic's errors in the words of the pipeline file."""

from collections.abc import Sequence
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from pydantic_core import ErrorDetails

from ikebana.processor.authoring.pipeline_file import PipelineFile
from ikebana.processor.authoring.values import Part, shown
from ikebana.processor.base.texts import hint

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


def part_keys(path: tuple[int | str, ...]) -> tuple[str, ...]:
    """The keys of the section at `path`."""
    here: Any = PipelineFile
    for step in path:
        if isinstance(here, type) and issubclass(here, Part):
            here = here.keys()[str(step)]
        else:
            # A mapping from names to sections of one kind, or a list of them.
            here = get_args(here)[0 if isinstance(step, int) else 1]
        if get_origin(here) is Annotated:
            here = get_args(here)[0]
        if isinstance(here, UnionType):
            # A section that may be left out.
            here = next(kind for kind in get_args(here) if kind is not type(None))
    return tuple(here.keys())


def worded(error: ErrorDetails) -> str:
    """The problem of an error, in the words of the file."""
    kind, value = error["type"], error["input"]
    if kind == "missing":
        return "is missing"
    if kind in ("dict_type", "model_type"):
        return f"must be a mapping; is {shown(value)}"
    if kind == "extra_forbidden":
        allowed = part_keys(error["loc"][:-1])
        if remedy := remedy_for(error["loc"]):
            return f"there is no such setting here; {remedy}"
        if meant := hint(error["loc"][-1], allowed):
            return f"there is no such setting here{meant}"
        return f"there is no such setting here; there are {', '.join(allowed)}"
    return error["msg"]
