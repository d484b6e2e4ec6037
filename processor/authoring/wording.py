"""Pydantic's errors in the words of the pipeline file."""

from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from pydantic_core import ErrorDetails

from ikebana.processor.authoring.part import Part
from ikebana.processor.authoring.pipeline_file import PipelineFile
from ikebana.processor.authoring.remedies import remedy_for
from ikebana.processor.authoring.values import shown
from ikebana.processor.base.spelling import hint


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
