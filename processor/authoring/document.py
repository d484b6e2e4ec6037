"""A pipeline file as values, for YAML and SQL alike, and the model of its sections."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, model_validator


class Document(NamedTuple):
    """The values of a file, with lines, columns and problems; paths are keys joined by dots."""

    value: object
    lines: Mapping[str, int]
    """The line of each path, from 1."""
    problems: list[tuple[str, str]]
    unread: frozenset[str]
    """Paths with a value that could not be read; the value is then its source text."""
    columns: Mapping[str, int] = {}
    """The column of each path, from 1, if problems of this file have columns (SQL)."""


class Part(BaseModel):
    """A section of the file; a key without a value counts as absent."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, value: object) -> object:
        if isinstance(value, dict):
            return {key: item for key, item in value.items() if item is not None}
        return value

    @classmethod
    def keys(cls) -> dict[str, Any]:
        """The keys of this section, with their types."""
        return {f.alias or name: f.annotation for name, f in cls.model_fields.items()}
