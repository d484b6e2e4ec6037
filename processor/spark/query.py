"""Run a plan as one streaming query: take over, start, publish batches, stop."""

import functools
import os
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ikebana.errors import CheckpointError
from ikebana.processor.checkpoint.checkpoint import Birth, Checkpoint, newborn
from ikebana.processor.checkpoint.edit_plan import EditPlan
from ikebana.processor.checkpoint.evolution import (
    begun,
    edit_under_way,
    evolved,
    hints_kept,
    resumed,
)
from ikebana.processor.checkpoint.finishing import finishing, plan_of_before
from ikebana.processor.checkpoint.planned_edit import planned
from ikebana.processor.configuring.settings import Settings
from ikebana.processor.deciding.commits import Marker
from ikebana.processor.ground import faults
from ikebana.processor.kafka import client, progress_topic, rights
from ikebana.processor.kafka.inputs import Inputs
from ikebana.processor.kafka.loopback import Trimming
from ikebana.processor.kafka.takeover import Takeover, take_over
from ikebana.processor.planning import progress
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import Plan
from ikebana.processor.spark import keyed_operator, session, source
from ikebana.processor.spark.given_session import GivenSpark
from ikebana.processor.spark.keyed_operator import Groups
from ikebana.processor.spark.session import Spark
from ikebana.processor.spark.source import IkebanaSource, SourceConfig, inputs_told
from ikebana.processor.spark.triggers import Told, listen
from ikebana.processor.task import Job, encode_state
from ikebana.processor.timing.reach import Standing
from ikebana.processor.watching.batch_report import BatchReport, report

_LOOK_EVERY_S = 0.1


class Running:
    """A pipeline that is running; made by `start`.

    One that `finishes` runs what is on its way under the plan of before, and ends: another
    start goes on with the new one.
    """

    def __init__(
        self,
        query: StreamingQuery,
        checkpoint: Checkpoint,
        stop: Path,
        job: Job,
        ui: str | None,
        waiting: int,
        *,
        finishes: bool,
    ) -> None:
        self.finishes = finishes
        self.checkpoint_id = job.checkpoint
        self.incarnation = job.incarnation
        self.spark_ui = ui
        self.waiting = waiting
        self._query = query
        self._checkpoint = checkpoint
        self._stop = stop

    def wait(self, stopping: Callable[[], bool]) -> None:
        """Wait until the query has ended, or was stopped between two batches."""
        asked = False
        while not self._query.awaitTermination(_LOOK_EVERY_S):
            if not asked and stopping():
                self._stop.touch()
                asked = True
            if asked and self._is_between_batches():
                self._query.stop()
                return

    def standing(self) -> Standing | None:
        """The latest frontiers of the inputs with times of their own."""
        return inputs_told(self._stop)

    def _is_between_batches(self) -> bool:
        """Whether no batch is being made, nor will be: the source has been told to stop."""
        told = self._stop.with_suffix(".ack").exists() or not self._query.status["isTriggerActive"]
        logged = self._checkpoint.logged(0)
        return told and logged.batch == logged.committed


def start(
    spark: Spark | GivenSpark,
    plan: Plan,
    settings: Settings,
    *,
    once: bool,
    on_batch: Callable[[BatchReport], None],
    on_step: Callable[[str], None],
    on_begin: Callable[[], None],
    on_edit: Callable[[EditPlan], None] = lambda _: None,
    on_trigger: Told | None = None,
) -> Running:
    """Take over the pipeline and start its query; with `once` it ends when caught up.

    If the plan differs from the last one, and something is on its way, the query runs the plan of
    before, reads nothing new, finishes what is on its way, and ends.

    If the plan differs from the last one, `on_edit` gets the changes.  `on_begin` is called right
    before the query starts; from then on it has to be ended between two batches.  `on_trigger`
    also gets triggers that found nothing to do.

    Raises:
        PlanError: the parts of the plan do not fit.
        IkebanaError: checkpoint, topics and plan do not belong together.
    """
    # From here on the plan is sent to other processes.
    plan = given = checked(plan).portable()
    checkpoint = Checkpoint(settings.checkpoint)
    birth = checkpoint.birth()
    on_step("looking at the input topics")
    kafka = {**settings.kafka, **settings.source_kafka}
    client.reach(kafka)
    rights.demand(plan, settings, settings.shards if birth is None else birth.shards)
    inputs = Inputs(plan, kafka)
    start_offset = inputs.start()
    known, ran = birth, _ran(checkpoint, birth)
    birth = ran or newborn(settings.checkpoint, plan, settings.shards, start_offset)
    for hint in hints_kept(birth, plan):
        on_step(f"going on as joins were laid out, with {hint} as it was")
    plan = resumed(birth, given)
    new = _ToRun(plan, evolved(birth, given, settings.shards))

    def take(found: _ToRun) -> Takeover:
        return take_over(
            found.plan,
            settings,
            found.birth,
            look=functools.partial(checkpoint.logged, found.birth.first_batch),
            accepted=functools.partial(_accept, checkpoint, found.birth, known, ran),
            holder=f"{socket.gethostname()}:{os.getpid()}",
            finishes=found.finishes,
        )

    on_step("taking over the outputs")
    found = _to_run(checkpoint, ran, new)
    try:
        taken = take(found)
    except CheckpointError:
        # Until it was fenced, an older instance may have gone on with the plan of before.
        again = _to_run(checkpoint, ran, new)
        if found.finishes or not again.finishes:
            raise
        found, taken = again, take(again)
    if ran is not None and new.birth != ran:
        logged = checkpoint.logged(ran.first_batch)
        on_edit(planned(settings.checkpoint, ran, given, settings.shards, logged=logged))
    plan, birth = found.plan, found.birth
    if found.finishes:
        rights.demand(plan, settings, birth.shards)
        on_step("finishing what is on its way under the plan of before")
    on_step("starting Spark")
    running = spark.session()
    running.dataSource.register(IkebanaSource)
    labels = session.labels(running, settings.shards)
    stop = spark.folder / f"stop-{taken.incarnation}"
    config = SourceConfig(
        plan=plan,
        kafka=kafka,
        start=birth.start,
        labels=list(labels),
        readers=running.sparkContext.defaultParallelism,
        max_records=settings.max_records_per_batch,
        heartbeat_s=settings.heartbeat_s,
        stop=str(stop),
        incarnation=taken.incarnation,
        registry=dict(settings.registry),
        adopted=taken.adopted,
        released=birth.released,
        edits=birth.edits,
        finishes=found.finishes,
    )
    job = Job(
        plan=plan,
        kafka=dict(settings.kafka),
        sink_kafka=dict(settings.sink_kafka),
        checkpoint=birth.id,
        epoch=birth.epoch,
        incarnation=taken.incarnation,
        first_batch=birth.first_batch,
        location=settings.checkpoint,
        local=settings.local_directory or _local_directory(spark, settings),
        labels=labels,
        seeds={shard: encode_state(manifest) for shard, manifest in birth.seeds.items()},
        retained=settings.retained_batches,
        max_batch_s=settings.max_batch_s,
        edit=edit_under_way(birth, checkpoint.logged(birth.first_batch).offset or birth.start),
    )
    # What is told of a query is told of the one that goes on: each start listens anew.
    if on_trigger is not None and not found.finishes:
        listen(running, on_trigger)
    on_step("starting the query")
    on_begin()
    ends = once or found.finishes
    groups = Groups.of(job, spark.owners)
    sink = _Sink(job, taken, settings, on_batch)
    query = _query(running, config, groups, f"{plan.name}-{birth.id}", settings, sink, once=ends)
    ui = running.sparkContext.uiWebUrl
    return Running(query, checkpoint, stop, job, ui, taken.waiting, finishes=found.finishes)


class _ToRun(NamedTuple):
    """The plan to run now, and the birth record with it."""

    plan: Plan
    birth: Birth
    finishes: bool = False


def _to_run(checkpoint: Checkpoint, ran: Birth | None, new: _ToRun) -> _ToRun:
    """The new plan, or that of before as long as anything of it is on its way."""
    if ran is None or finishing(ran, new.plan, checkpoint.logged(ran.first_batch)) is None:
        return new
    return _ToRun(plan_of_before(ran, new.plan), ran, finishes=True)


def _ran(checkpoint: Checkpoint, birth: Birth | None) -> Birth | None:
    """Drop from the metadata an edit of which no batch has run."""
    return birth and begun(birth, checkpoint.logged(birth.first_batch).offset)


def _accept(checkpoint: Checkpoint, birth: Birth, known: Birth | None, ran: Birth | None) -> None:
    """Write the metadata of the run, after the take-over has accepted it.

    Raises: CheckpointError, if an older instance has changed the plan since it was read.
    """
    # An older instance is fenced only now, and the edit was computed from what was read before.
    if checkpoint.birth() != known or _ran(checkpoint, known) != ran:
        raise CheckpointError(
            f'the plan of checkpoint "{checkpoint.location}" was changed by another instance of '
            "the pipeline while this one started",
            hint="Start again if this is the plan that should run.",
        )
    if birth != known:
        checkpoint.write(birth)
    checkpoint.forget_nothing(birth.first_batch)


def _local_directory(spark: Spark | GivenSpark, settings: Settings) -> str:
    """Choose the folder of the local databases by default: temporary, if the run is local."""
    if settings.master.startswith("local"):
        return str(spark.folder / "shards")
    return f"{tempfile.gettempdir()}/ikebana-shards"


def _query(
    spark: SparkSession,
    config: SourceConfig,
    groups: Groups,
    name: str,
    settings: Settings,
    sink: "_Sink",
    *,
    once: bool,
) -> StreamingQuery:
    rows = (
        spark.readStream.format(source.NAME)
        .option(source.OPTION, msgspec.json.encode(config).decode())
        .load()
    )
    found = rows.groupBy("label").applyInPandasWithState(
        functools.partial(keyed_operator.run_group, groups),
        keyed_operator.OUTPUT_SCHEMA,
        keyed_operator.STATE_SCHEMA,
        "append",
        "NoTimeout",
    )
    writer = (
        found.writeStream.foreachBatch(sink)
        .option("checkpointLocation", settings.checkpoint)
        .queryName(name)
    )
    if once:
        return writer.trigger(availableNow=True).start()
    interval_ms = int(settings.trigger_interval_s * 1000)
    return writer.trigger(processingTime=f"{interval_ms} milliseconds").start()


class _Sink:
    """Runs a batch with one action, and publishes its progress from the markers."""

    def __init__(
        self,
        job: Job,
        taken: Takeover,
        settings: Settings,
        on_batch: Callable[[BatchReport], None],
    ) -> None:
        self._job = job
        self._lease = taken.lease
        self._published = taken.published
        self._new = taken.new
        self._admin = client.admin(settings.kafka)
        self._on_batch = on_batch
        hops = progress.has_hops(job.plan)
        self._trimming = (
            Trimming(self._admin, job.plan.loopback_topic, job.retained) if hops else None
        )

    def __call__(self, frame: DataFrame, spark_batch: int) -> None:
        job = self._job
        begun = time.monotonic()
        # Only one action, because each would run the keyed operator again.
        markers = [msgspec.json.decode(bytes(row[0]), type=Marker) for row in frame.collect()]
        batch = job.first_batch + spark_batch
        shards = sorted(marker.shard for marker in markers)
        assert shards == list(range(len(job.labels))), f"batch {batch}: markers of {shards}"
        assert {marker.batch for marker in markers} == {batch}, f"batch {batch}: {markers}"
        faults.point("before_progress", batch)
        if batch > self._published:
            progress_topic.publish(job.plan, self._lease, self._admin, markers, self._new)
            self._published, self._new = batch, frozenset()
        faults.point("after_progress", batch)
        if self._trimming is not None:
            self._trimming.after(markers)
        self._on_batch(report(markers, time.monotonic() - begun))
