"""User-defined functions and aggregates in the SQL of a pipeline written in Python."""

from collections.abc import Mapping
from typing import Any, Literal

from ikebana.codecs.sql_type import parsed
from ikebana.errors import ConfigError
from ikebana.processor.building.parts import Parts
from ikebana.processor.linear import sql_functions
from ikebana.processor.linear.functions import name_of, why_not_portable
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.sql_functions import SqlFunction


def declared(
    parts: Parts,
    name: str,
    function: Any,
    parameters: Mapping[str, str],
    returns: str,
    on_null: Literal["null", "call"],
) -> str:
    """Add a function; return its name in SQL.  Raises: ConfigError."""
    kinds = (*parameters.values(), returns)
    problems = [sql_functions.problem_of_name(name)]
    problems += map(sql_functions.problem_of_type, kinds)
    problems.append(
        sql_functions.problem_of_function(function)
        if isinstance(function, str)
        else why_not_portable(function) or ""
    )
    for problem in filter(None, problems):
        raise ConfigError(f'cannot declare the function "{name}": {problem}')
    *of, result = (str(parsed(kind)) for kind in kinds)
    sql_function = SqlFunction(name, name_of(function), tuple(of), result, on_null == "call")
    return _added(parts, sql_function)


def aggregate(
    parts: Parts, name: str, class_: type | str, parameters: Mapping[str, str], returns: str
) -> str:
    """Add a user-defined aggregate; return its name in SQL.  Raises: ConfigError."""
    kinds = (*parameters.values(), returns)
    problems = [sql_functions.problem_of_name(name)]
    problems += map(sql_functions.problem_of_type, kinds)
    problems.append("" if isinstance(class_, str) else why_not_portable(class_) or "")
    for problem in filter(None, problems):
        raise ConfigError(f'cannot declare the aggregate "{name}": {problem}')
    *of, result = (str(parsed(kind)) for kind in kinds)
    function = SqlFunction(name, name_of(class_), tuple(of), result, is_aggregate=True)
    if problem := sql_functions.problem_of_aggregate(function):
        raise ConfigError(f'cannot declare the aggregate "{name}": {problem}')
    return _added(parts, function)


def _added(parts: Parts, function: SqlFunction) -> str:
    """Add a function to those of the pipeline; return its long name, quoted."""
    name = function.name
    if parts.functions.setdefault(name.lower(), function) != function:
        raise ConfigError(f'pipeline "{parts.pipeline}" declares "{name}" twice, and they differ')
    return quoted(function.long_name)
