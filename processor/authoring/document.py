"""A pipeline file as values, whatever it is written in, with what values do not know."""

from collections.abc import Mapping
from typing import NamedTuple


class Document(NamedTuple):
    """The values of a file; paths are keys joined by dots."""

    value: object
    lines: Mapping[str, int]
    """The line of each path, from 1."""
    problems: list[tuple[str, str]]
    unread: frozenset[str]
    """Paths whose problem is that the value could not be read: it is the text it was."""
    columns: Mapping[str, int] = {}
    """The column of each path, from 1, of a file whose problems are told with them."""
