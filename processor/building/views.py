"""Views in SQL of a pipeline written in Python."""

from typing import Any

from ikebana.errors import ConfigError
from ikebana.processor.building.collection import Collection
from ikebana.processor.building.parts import Parts
from ikebana.processor.linear.bound_query import QueryError
from ikebana.processor.planning.plan import Operator
from ikebana.processor.relational.making import Known, UnmadeError
from ikebana.processor.relational.sql import sql_operators


def view(parts: Parts, name: str, query: str, key: str | None) -> Collection[Any, Any]:
    """The collection of a query over the collections that there are.  Raises: ConfigError."""
    known = Known(parts.inputs.values(), parts.operators.values())
    try:
        operators = sql_operators(name, query, known, key)
    except QueryError as error:
        raise ConfigError(f'the query of view "{name}" is refused: {error.told(query)}') from None
    except UnmadeError:
        raise ConfigError(
            f'the query of view "{name}" reads a collection that has a problem of its own',
            hint="Look at `plan()` without the view: it lists every problem.",
        ) from None
    return added(parts, operators)


def added(parts: Parts, operators: tuple[Operator, ...]) -> Collection[Any, Any]:
    """Add operators that were made together, and return the collection of the last."""
    for operator in operators:
        last = parts.add(operator)
    return Collection(parts, last)
