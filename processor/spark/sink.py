"""The sink of the query: it runs a batch by one action, and publishes the batch's progress."""

import time
from collections.abc import Callable

from pyspark.sql import DataFrame

from ikebana.processor.configuring.settings import Settings
from ikebana.processor.ground import faults
from ikebana.processor.kafka import client, progress_topic
from ikebana.processor.kafka.loopback import Trimming
from ikebana.processor.kafka.takeover import Takeover
from ikebana.processor.spark import left_rows
from ikebana.processor.spark.left_markers import markers_folder, markers_of
from ikebana.processor.spark.source_config import SourceConfig
from ikebana.processor.task import Job
from ikebana.processor.watching.batch_report import BatchReport, report


class Sink:
    """Runs a batch with one action, and publishes its progress from the markers."""

    def __init__(
        self,
        job: Job,
        taken: Takeover,
        settings: Settings,
        on_batch: Callable[[BatchReport], None],
        *,
        begin: int,
        config: SourceConfig,
    ) -> None:
        self._job = job
        self._begin = begin
        self._rows = config.rows
        self._markers_in = markers_folder(config.rows, job.labels)
        left_rows.forget(self._rows)  # of a batch that begins anew, and may do so often
        self._lease = taken.lease
        self._published = taken.published
        self._ends = dict(taken.ends)
        self._new = taken.new
        self._admin = client.admin(settings.kafka)
        self._on_batch = on_batch
        self._trimming = (
            Trimming(self._admin, job.plan.loopback_topic, job.retained)
            if config.exchanges
            else None
        )

    def __call__(self, frame: DataFrame, spark_batch: int) -> None:
        job = self._job
        begun = time.monotonic()
        # Only one action, because each would run the keyed operator again.
        markers = markers_of(frame, self._markers_in)
        begun -= left_rows.reading_s(self._rows)
        left_rows.forget(self._rows)
        batch = job.first_batch + spark_batch
        shards = sorted(marker.shard for marker in markers)
        assert shards == list(range(len(job.labels))), f"batch {batch}: markers of {shards}"
        assert {marker.batch for marker in markers} == {batch}, f"batch {batch}: {markers}"
        faults.point("before_progress", batch)
        if batch > self._published:
            records = progress_topic.publish(
                job.plan,
                self._lease,
                self._admin,
                markers,
                self._new,
                self._begin,
                progress_topic.ends_before(job.plan, job.kafka, markers),
                self._ends,
            )
            self._ends |= {record.topic: record.ends for record in records}
            self._published, self._new = batch, frozenset()
        faults.point("after_progress", batch)
        if self._trimming is not None:
            self._trimming.after(markers)
        self._on_batch(report(markers, time.monotonic() - begun))
