"""Report each trigger of a query to its watchers, from Spark's events.

Spark's own Python listener reads an event property by property, in about a hundred calls into
the JVM: 30 ms of CPU for each batch, on either side.  Here an event is one JSON text, fetched in
one call.  It arrives after the batch is committed, in a thread of its own.
"""

# Decision (a listener of our own): pyspark's takes an event apart in some hundred calls into the
# JVM; one JSON text replaces them.

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from ikebana.processor.base.sharding import shown
from ikebana.processor.topics.source_offset import SourceOffset
from ikebana.processor.watching.health import BatchProgress
from ikebana.processor.watching.metrics import TriggerReport

OnTrigger = Callable[[TriggerReport | None], None]


class TriggerListener:
    """A listener of a session, until its end."""

    def __init__(self, manager: Any, listener: Any) -> None:
        self._manager, self._listener = manager, listener

    def end(self) -> None:
        """Report nothing more; a JVM that is gone reports nothing anyway."""
        with suppress(Py4JError, OSError):
            self._manager.removeListener(self._listener)


def listen(spark: SparkSession, tell: OnTrigger) -> TriggerListener:
    """Report each trigger that ran a batch; report None now and then while none does."""
    ensure_callback_server_started(spark.sparkContext._gateway)
    streaming = spark._jvm.org.apache.spark.sql.streaming
    listener = streaming.PythonStreamingQueryListenerWrapper(_Events(tell))
    spark.streams._jsqm.addListener(listener)
    return TriggerListener(spark.streams._jsqm, listener)


class _Events:
    """Implements the Java interface of Spark's listeners in Python."""

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)

    def __init__(self, tell: OnTrigger) -> None:
        self._tell = tell

    def onQueryStarted(self, event: Any) -> None:
        """Ignore the event: the start is known without it."""

    def onQueryProgress(self, event: Any) -> None:
        self._tell(trigger_of(msgspec.json.decode(event.progress().json())))

    def onQueryIdle(self, event: Any) -> None:
        self._tell(None)

    def onQueryTerminated(self, event: Any) -> None:
        """Ignore the event: the end is known without it."""


def trigger_of(progress: Mapping[str, Any]) -> TriggerReport:
    """Make a trigger from Spark's JSON on the progress of its query."""
    offset = SourceOffset.from_json(progress["sources"][0]["endOffset"])
    phases_ms = progress["durationMs"]
    done = sum(at for by in offset.positions.values() for at in by.values())
    # A batch that was logged before a restart is not minted again, so no topics were looked up.
    looked = "latestOffset" in phases_ms
    return TriggerReport(
        phases_ms,
        {shown(name): at for name, at in offset.frontiers.items()},
        BatchProgress(
            done=done,
            offered=done + offset.behind if looked else None,
            upper=offset.upper,
            closed=min(offset.frontiers.values(), default=offset.upper),
        ),
    )
