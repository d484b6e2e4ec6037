"""The section of user-defined functions, and the renaming of their calls in expressions."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from ikebana.codecs.sql_type import TypeTextError, parsed
from ikebana.processor.authoring.part import Part
from ikebana.processor.authoring.values import Text, choice
from ikebana.processor.linear import sql_functions
from ikebana.processor.linear.sql_functions import SqlFunction, with_long_names

OnNull = Literal["null", "call"]
# Keys of inputs that have expressions, beside those of operators.
_OF_INPUTS = ("event_time",)


class FunctionPart(Part):
    """`functions.<name>`."""

    python: Text = ""
    aggregate: Text = ""
    parameters: dict[str, Text] = {}
    returns: Text
    on_null: Annotated[OnNull, choice(OnNull)] = "null"


def with_functions(document: Mapping[str, object]) -> Mapping[str, object]:
    """Replace function names in expressions by long names, which include their definition."""
    sections = document.get("functions")
    if not isinstance(sections, dict) or not sections:
        return document
    functions: dict[str, SqlFunction] = {}
    for name, section in sections.items():
        if isinstance(section, FunctionPart):
            part = section
        else:
            try:
                part = FunctionPart.model_validate(section)
            except ValueError:
                # The schema says what is wrong.
                continue
        function = sql_function(name, part)
        if sql_functions.function_of(function.long_name) == function:
            functions[name.lower()] = function

    def within(value: object) -> object:
        if isinstance(value, str):
            return with_long_names(value, functions)
        if isinstance(value, list):
            return [within(each) for each in value]
        if isinstance(value, dict):
            return {key: within(each) for key, each in value.items()}
        return value

    result = dict(document)
    if "operators" in result:
        result["operators"] = within(result["operators"])
    inputs = result.get("inputs")
    if isinstance(inputs, dict):
        result["inputs"] = {
            name: {key: within(each) if key in _OF_INPUTS else each for key, each in of.items()}
            if isinstance(of, dict)
            else of
            for name, of in inputs.items()
        }
    return result


def sql_function(name: str, part: FunctionPart) -> SqlFunction:
    """The function that a section describes."""
    kinds = tuple(map(_in_full, part.parameters.values()))
    return SqlFunction(
        name,
        part.python or part.aggregate,
        kinds,
        _in_full(part.returns),
        part.on_null == "call",
        bool(part.aggregate),
    )


def _in_full(kind: str) -> str:
    try:
        return str(parsed(kind))
    except TypeTextError:
        return kind


def function_problems(functions: Mapping[str, FunctionPart]) -> Iterator[tuple[str, str]]:
    """The problems of functions, with their paths."""
    for name, part in functions.items():
        path = f"functions.{name}"
        if problem := sql_functions.problem_of_name(name):
            yield path, problem
        for parameter, kind in part.parameters.items():
            if problem := sql_functions.problem_of_type(kind):
                yield f"{path}.parameters.{parameter}", problem
        if problem := sql_functions.problem_of_type(part.returns):
            yield f"{path}.returns", problem
        if bool(part.python) == bool(part.aggregate):
            yield path, "has either python, a function, or aggregate, a class"
        elif part.python and (problem := sql_functions.problem_of_function(part.python)):
            yield f"{path}.python", problem
        elif part.aggregate:
            of = sql_function(name, part)
            if problem := sql_functions.problem_of_aggregate(of):
                yield f"{path}.aggregate", problem
