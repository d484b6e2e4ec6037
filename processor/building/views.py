"""SQL views and relational operators of a pipeline written in Python."""

from collections.abc import Callable
from typing import Any

from ikebana.errors import ConfigError
from ikebana.processor.building.parts import Parts
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.relational import sections
from ikebana.processor.relational.making import KnownRelations, MakingError, UnmadeError
from ikebana.processor.relational.sections import Derived, Windowed, from_sql
from ikebana.processor.relational.sections import iterated as iterated_query
from ikebana.processor.relational.sections import windowed as with_window


def view(parts: Parts, name: str, query: str, key: str | None) -> str:
    """Add a query over the collections so far; return its name.  Raises: ConfigError."""
    query, key = parts.with_functions(query), parts.with_functions(key)
    return _added(parts, from_sql(name, query, key))


def windowed(parts: Parts, name: str, source: str, of: Any) -> str:
    """Add window functions over a collection; return its name.  Raises: ConfigError."""
    return _added(parts, with_window(name, source, Windowed(*parts.with_functions(of))))


def iterated(parts: Parts, name: str, query: str, columns: Any, rounds: int) -> str:
    """Add a query that reads itself; return its name.  Raises: ConfigError."""
    return _added(parts, iterated_query(name, parts.with_functions(query), columns, rounds))


def derived(parts: Parts, section: Callable[[Any], Derived]) -> str:
    """Add a relational operator of `sections`; return its name.  Raises: ConfigError."""
    return _added(parts, section(sections))


def _added(parts: Parts, section: Derived) -> str:
    """Translate a section and add its operators; return the name of the last."""
    pipeline = KnownRelations(parts.inputs.values(), parts.operators.values())
    try:
        operators = section.make(pipeline)
    except (MakingError, ExpressionError) as error:
        part = getattr(error, "part", "") or section.kind
        raise ConfigError(f'cannot make "{section.name}": {part}: {error}') from None
    except UnmadeError:
        raise ConfigError(
            f'cannot make "{section.name}": it reads a collection that has a problem of its own',
            hint="Look at `plan()` without it: it lists every problem.",
        ) from None
    for operator in operators:
        parts.add(operator)
    return operators[-1].name
