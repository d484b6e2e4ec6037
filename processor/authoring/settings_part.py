"""The sections of settings (where and how a pipeline runs), and files that have only these.

A file of settings over a pipeline file says where and how this copy of the pipeline runs.  Its
values win key by key, so a platform can set brokers, credentials, checkpoint and Spark without a
change of the pipeline file.
"""

from collections.abc import Mapping

from ikebana.processor.authoring.deliver_part import DeliverPart
from ikebana.processor.authoring.document import Document
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.authoring.values import Part, Scalars, Seconds, Text, Whole


class SourcePart(Part):
    """`source`."""

    max_records_per_batch: Whole = 250_000
    kafka: Scalars = {}


class SinkPart(Part):
    """`sink`."""

    kafka: Scalars = {}
    topics: Scalars = {}
    replication_factor: Whole = 1


class RunPart(Part):
    """`run`."""

    checkpoint: Text = ""
    shards: Whole = 4
    trigger_interval: Seconds = 0.45
    heartbeat: Seconds = 10.0
    local_directory: Text | None = None
    master: Text = "local[*]"
    driver_memory: Text = "1g"
    retained_batches: Whole = 2
    max_batch: Seconds = 300.0
    restarts: Whole = 10
    max_executors: Whole = 0


class SettingsPart(Part):
    """The sections of settings."""

    kafka: Scalars = {}
    source: SourcePart = SourcePart()
    sink: SinkPart = SinkPart()
    registry: Scalars = {}
    run: RunPart = RunPart()
    spark: Scalars = {}
    deliver: dict[str, DeliverPart] = {}

    def settings(self, *, bootstrap_servers: str | None, checkpoint: str | None) -> Settings:
        """The settings of these sections; arguments win.  Raises: SettingsError."""
        brokers = {} if bootstrap_servers is None else {"bootstrap.servers": bootstrap_servers}
        return Settings(
            checkpoint=self.run.checkpoint if checkpoint is None else checkpoint,
            kafka={**self.kafka, **brokers},
            source_kafka=self.source.kafka,
            sink_kafka=self.sink.kafka,
            registry=self.registry,
            shards=self.run.shards,
            max_records_per_batch=self.source.max_records_per_batch,
            trigger_interval_s=self.run.trigger_interval,
            heartbeat_s=self.run.heartbeat,
            local_directory=self.run.local_directory,
            master=self.run.master,
            driver_memory=self.run.driver_memory,
            spark=self.spark,
            retained_batches=self.run.retained_batches,
            max_batch_s=self.run.max_batch,
            restarts=self.run.restarts,
            max_executors=self.run.max_executors,
            topic_settings=self.sink.topics,
            replication_factor=self.sink.replication_factor,
            deliver=self.deliver,
        )


SETTINGS_VARIABLE = "IKEBANA_SETTINGS"

Placed = Mapping[str, tuple[str, int]]
"""Paths that another file sets, with its name and the line in it."""


def overlaid(document: Document, over: Document, source: str) -> tuple[Document, Placed]:
    """The document with the settings of `over`, a file called `source`, on top of it."""
    placed = {path: (source, line) for path, line in over.lines.items()}
    if over.value is None:
        return document, {}
    if not isinstance(over.value, dict):
        problem = (source, "is not a mapping of settings")
        return document._replace(problems=[*document.problems, problem]), {}
    keys = SettingsPart.keys()
    problems = [
        (path, f"does not belong in a file of settings; these do: {', '.join(keys)}")
        for path in over.value
        if path not in keys
    ]
    return (
        Document(
            _merged(document.value, {k: v for k, v in over.value.items() if k in keys}),
            document.lines,
            [*document.problems, *problems, *over.problems],
            document.unread | over.unread,
        ),
        placed,
    )


def _merged(below: object, above: object) -> object:
    if isinstance(below, dict) and isinstance(above, dict):
        merged = {key: _merged(below.get(key), value) for key, value in above.items()}
        return {**below, **merged}
    return below if above is None else above
