"""A section of the pipeline file: a model with the file's own keys."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


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
