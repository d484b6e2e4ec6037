"""Pipelines on a secured broker, whose clients are users of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from support.pipeline_processes import Pipeline


@dataclass(frozen=True)
class Guarded(Pipeline):
    """A pipeline with an exchange, whose clients are users of a secured broker."""

    clients: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The pipeline file."""
        found = super().document()
        found["inputs"]["changes"]["format"] = {"key": "bytes", "value": "json"}
        found["operators"]["counts"] = {
            "reduce": "current",
            "by": "value",
            "aggregates": {"n": "count(*)"},
        }
        found["outputs"]["out"] = {"from": "counts", "topic": self.target, "partitions": 1}
        found["kafka"] = dict(self.clients["kafka"])
        for section in ("source", "sink"):
            if section in self.clients:
                found.setdefault(section, {})["kafka"] = dict(self.clients[section])
        return found
