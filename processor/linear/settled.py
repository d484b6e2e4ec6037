"""Parts of a plan as they are kept: lists and mappings, as users give them, become tuples."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ikebana.errors import ConfigError


def tuples(value: Any) -> Any:
    """A list as a tuple, a mapping as a tuple of pairs, and so what is in them.

    >>> tuples({"a": ["x", "y"]})
    (('a', ('x', 'y')),)
    """
    if isinstance(value, Mapping):
        return tuple((name, tuples(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(tuples, value))
    return value


def settle(part: msgspec.Struct, *several: str) -> None:
    """Make the collections in the fields of a part tuples; `several` are of more than a text.

    Raises: ConfigError, for a text in place of a collection, which would be taken apart.
    """
    what = f'{type(part).__name__} "{getattr(part, "name", "")}"'.removesuffix(' ""')
    settle_fields(what, part, part.__struct_fields__, several, msgspec.structs.force_setattr)


def settle_fields(
    what: str,
    part: object,
    fields: tuple[str, ...],
    several: tuple[str, ...],
    put: Callable[[Any, str, Any], None],
) -> None:
    """The same of any object whose fields can be `put`."""
    for name in fields:
        value = getattr(part, name)
        if name in several and isinstance(value, str):
            raise ConfigError(
                f"{what}: {name} is a tuple, and not the text {value!r}",
                hint=f'Give ("{value}",).',
            )
        if isinstance(value, list | tuple | Mapping):
            put(part, name, tuples(value))
