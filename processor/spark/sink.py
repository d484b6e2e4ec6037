"""The sink of the query: it runs a batch by one action, and publishes the batch's progress."""

# Decision (markers by the plainest action): To collect a frame plans a second query and reads
# bytecode; `collectAsync` of the RDD behind it does neither. Markers from Kafka would wait for
# the last stable offset.

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base import faults
from ikebana.processor.checkpoint.commits import Marker
from ikebana.processor.engine.task import Job
from ikebana.processor.kafka import client, progress_topic
from ikebana.processor.kafka.loopback import Trimming
from ikebana.processor.kafka.takeover import Takeover
from ikebana.processor.spark.keyed_operator import GroupResult
from ikebana.processor.spark.source_config import SourceConfig
from ikebana.processor.spark.source_files import reading_s
from ikebana.processor.spark.workers import left_rows
from ikebana.processor.watching.batch_report import BatchReport, report


class ProgressSink:
    """Runs a batch with one action, and publishes its progress from the markers."""

    def __init__(
        self,
        job: Job,
        takeover: Takeover,
        settings: Settings,
        on_batch: Callable[[BatchReport], None],
        *,
        begin: int,
        config: SourceConfig,
        on_missed: Callable[[set[str]], None],
    ) -> None:
        self._job = job
        self._begin = begin
        self._rows = config.rows
        self._stop = Path(config.stop)
        left_rows.forget(self._rows)  # of a batch that is repeated, perhaps many times
        self._lease = takeover.lease
        go_on = takeover.state.go_on
        self._published = go_on.published
        self._ends = dict(go_on.ends)
        self._new = go_on.new
        self._admin = client.admin(settings.kafka)
        self._on_batch = on_batch
        self._on_missed = on_missed
        self._trimming = (
            Trimming(self._admin, job.plan.loopback_topic, job.retained)
            if config.exchanges
            else None
        )

    def __call__(self, frame: DataFrame, spark_batch: int) -> None:
        job = self._job
        begun = time.monotonic()
        # Only one action, because each would run the keyed operator again.
        results = results_of(frame)
        begun -= reading_s(self._stop)
        left_rows.forget(self._rows)
        batch = job.first_batch + spark_batch
        markers = [
            msgspec.json.decode(each, type=Marker) for result in results for each in result.markers
        ]
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
        owned = all(result.owned for result in results)
        if missed := {host for result in results for host in result.missed}:
            self._on_missed(missed)
        self._on_batch(report(markers, time.monotonic() - begun, owned=owned))


def results_of(frame: DataFrame) -> list[GroupResult]:
    """Run a batch by the cheapest action, and return the results of its groups.

    To collect the rows of a frame, Spark would plan a second query and read its own classes to
    find the references of its functions, a quarter of the time of the query's thread.
    """
    try:
        # The RDD from which `foreachBatch` has made its frame.
        rows = frame._jdf.queryExecution().logical().rdd().toJavaRDD().collectAsync()
    except Py4JError:
        results = [row[0] for row in frame.collect()]
    else:
        # Spark uses an object for all rows of a partition, which has one of them.
        results = [row.getBinary(0) for row in rows.get()]
    return [msgspec.msgpack.decode(bytes(each), type=GroupResult) for each in results]
