"""A pipeline file as values, for YAML and SQL alike, with lines, columns and problems."""

from collections.abc import Mapping
from typing import NamedTuple


class Document(NamedTuple):
    """The values of a file; paths are keys joined by dots."""

    value: object
    lines: Mapping[str, int]
    """The line of each path, from 1."""
    problems: list[tuple[str, str]]
    unread: frozenset[str]
    """Paths with a value that could not be read; the value is then its source text."""
    columns: Mapping[str, int] = {}
    """The column of each path, from 1, if problems of this file have columns (SQL)."""
