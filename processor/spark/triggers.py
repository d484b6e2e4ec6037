"""What Spark says of each trigger of a query, as a value for whoever watches.

Spark's event becomes one JSON text in one call: taken apart in Python, property by
property, it would cost some hundred calls into the JVM a batch.
"""

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ikebana.processor.metrics import Trigger
from ikebana.processor.reclock import SourceOffset

Told = Callable[[Trigger | None], None]


class Triggers(StreamingQueryListener):  # type: ignore[misc]
    """Tells each trigger that ran a batch, and None now and then for one that had none."""

    def __init__(self, tell: Told) -> None:
        self._tell = tell

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """The start is known without it."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        self._tell(trigger_of(progress.durationMs, progress.sources[0].endOffset))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self._tell(None)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The end is known without it."""


def trigger_of(phases_ms: dict[str, int], end_offset: str) -> Trigger:
    """A trigger, from its durations and the offset that its batch read up to."""
    offset = SourceOffset.from_json(msgspec.json.decode(end_offset))
    return Trigger(
        phases_ms=phases_ms,
        done=sum(at for by in offset.positions.values() for at in by.values()),
        behind=offset.behind,
        # A batch that was logged before a restart is not minted again.
        looked="latestOffset" in phases_ms,
    )
