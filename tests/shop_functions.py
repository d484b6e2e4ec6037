"""Functions that pipeline files of the tests name; Spark's workers import them from here."""

from typing import Any


def twice(data: Any) -> list[tuple[Any, int]]:
    """The same data, two of each."""
    return [(data, 2)]
