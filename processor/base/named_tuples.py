"""Named tuples, made by the million."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=tuple[Any, ...])


def maker(kind: type[Kind]) -> Callable[[tuple[Any, ...]], Kind]:
    """Return a function that makes a named tuple from a tuple of its fields, like `kind._make`.

    It takes a third of the time, and does not check the number of fields.
    """
    return partial(tuple.__new__, kind)
