"""Run a plan as one streaming query: take over, start, publish batches, report triggers, stop.

Spark's own Python listener reads an event property by property, in about a hundred calls into
the JVM: 30 ms of CPU for each batch, on either side.  Here the event of a trigger is one JSON
text, fetched in one call.  It arrives after the batch is committed, in a thread of its own.
"""

import functools
import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base import processes
from ikebana.processor.base.processes import collect_now_and_then
from ikebana.processor.base.texts import shown
from ikebana.processor.checkpoint.checkpoint import CheckpointFiles, CheckpointMetadata
from ikebana.processor.checkpoint.commits import CommitRecord, reports_of
from ikebana.processor.checkpoint.recorded_plan import edit_under_way
from ikebana.processor.engine.opening import Opened, opened
from ikebana.processor.engine.task import Job, encode_state
from ikebana.processor.kafka import client, progress_topic
from ikebana.processor.kafka.own_topics import Trimming, registered
from ikebana.processor.kafka.takeover import Takeover
from ikebana.processor.planning import progress
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.edits import Edit
from ikebana.processor.planning.plan import Plan
from ikebana.processor.spark import connection, failures, keyed_operator, source
from ikebana.processor.spark.caller_session import CallerSpark
from ikebana.processor.spark.executors import Placing, autoscaler
from ikebana.processor.spark.keyed_operator import GroupResult, Groups
from ikebana.processor.spark.session import Spark
from ikebana.processor.spark.signals import Signals
from ikebana.processor.spark.source import IkebanaSource
from ikebana.processor.spark.source_task import SourceConfig
from ikebana.processor.spark.workers import left_rows
from ikebana.processor.topics import replays
from ikebana.processor.topics.batch_selection import InputsState
from ikebana.processor.topics.reclock import Edited
from ikebana.processor.topics.source_offset import SourceOffset
from ikebana.processor.watching.health import BatchProgress
from ikebana.processor.watching.metrics import TriggerReport
from ikebana.processor.watching.reports import BatchReport, RunStart, Watcher, nothing, report

# Decision (a listener of our own): pyspark's takes an event apart in some hundred calls into the
# JVM; one JSON text replaces them.

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


# Decision (an idle run asks the JVM for nothing): A thread waits for the query's end, and what is
# frozen out of garbage collection is not counted: `gc.get_freeze_count` walks over all of it.

# Decision (commit records by the plainest action): To collect a frame plans a second query and
# reads bytecode; `collectAsync` of the RDD behind it does neither. Commit records from Kafka would
# wait for the last stable offset.


class ProgressSink:
    """Runs a batch with one action, and publishes its progress from the commit records."""

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
        self._rows = config.rows_folder
        self._signals = Signals(Path(config.stop))
        self._signals.write(takeover.state.reports)
        left_rows.forget(self._rows)  # of a batch that is repeated, perhaps many times
        self._producer = takeover.producer
        continuation = takeover.state.continuation
        self._published = continuation.published
        self._ends = dict(continuation.ends)
        self._new = continuation.new
        self._admin = client.admin(settings.kafka)
        self._on_batch = on_batch
        self._on_missed = on_missed
        self._trimming = (
            Trimming(self._admin, job.plan.exchange_topic, job.retained)
            if config.exchanges
            else None
        )

    def __call__(self, frame: DataFrame, spark_batch: int) -> None:
        job = self._job
        begun = time.monotonic()
        # Only one action, because each would run the keyed operator again.
        results = results_of(frame)
        begun -= self._signals.take_reading_time_s()
        left_rows.forget(self._rows)
        batch = job.first_batch + spark_batch
        commits = [
            msgspec.json.decode(each, type=CommitRecord)
            for result in results
            for each in result.commits
        ]
        shards = sorted(commit.shard for commit in commits)
        assert shards == list(range(job.shards)), f"batch {batch}: commits of {shards}"
        assert {commit.batch for commit in commits} == {batch}, f"batch {batch}: {commits}"
        processes.fault_point("before_progress", batch)
        if batch > self._published:
            records = progress_topic.publish(
                job.plan,
                self._producer,
                self._admin,
                commits,
                self._new,
                self._begin,
                self._ends,
            )
            self._ends |= {record.topic: record.ends for record in records}
            self._published, self._new = batch, frozenset()
        processes.fault_point("after_progress", batch)
        self._signals.write(reports_of(commits))
        if self._trimming is not None:
            self._trimming.after(commits)
        owned = all(result.owned for result in results)
        if missed := {host for result in results for host in result.missed}:
            self._on_missed(missed)
        self._on_batch(report(commits, time.monotonic() - begun, owned=owned))


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


_LOOK_EVERY_S = 0.1
_SPARK_EVERY = 10
# A batch that has lost a host usually fails within this time.  If another executor has repeated
# it, it takes as long as others; after twice that, it waits in vain.
_WAITS_S = 10.0


class Going(NamedTuple):
    """A started query, and the means to watch it.

    `signals` are those to and from its source.  `listening` reports triggers, and `has_ended` says
    whether Spark has ended in a JVM that still runs.  `give_up` ends Spark without waiting for
    anything.  `placing` is None if shards need no places.
    """

    query: StreamingQuery
    signals: Signals
    listening: TriggerListener | None
    has_ended: Callable[[], bool]
    give_up: Callable[[], None]
    placing: Placing | None


class Running:
    """A running pipeline; made by `start`.

    A run that `precedes` the plan ends by itself: it finishes the work of the old plan, or reads
    inputs again beside it.  Another start then goes on with the plan.
    """

    def __init__(
        self, going: Going, layout: CheckpointFiles, incarnation: int, *, precedes: bool
    ) -> None:
        self.incarnation, self.precedes = incarnation, precedes
        self._query, self._signals, self._listening = going.query, going.signals, going.listening
        self._has_ended, self._give_up, self._placing = going[3:]
        self._layout = layout
        self._waits_since = -1, 0.0

    def wait(self, stopping: Callable[[], bool]) -> None:
        """Wait until the query has ended by itself, or was stopped between two batches.

        Raises:
            LostError: Spark has ended, or has ended the query without a reason.
        """
        try:
            self._wait(stopping)
        finally:
            if self._listening is not None:
                self._listening.end()

    def _wait(self, stopping: Callable[[], bool]) -> None:
        asked = False
        ending = _Ending(self._query)
        for look in itertools.count():
            if ending.within(_LOOK_EVERY_S):
                break
            if not asked and (stopping() or self._signals.filled.exists()):
                self._signals.stop.touch()
                asked = True
            if asked and self._is_between_batches():
                self._query.stop()
                return
            if look % _SPARK_EVERY == 0:
                collect_now_and_then()
                # A query may hang for ever when its cluster has ended Spark.
                if self._has_ended():
                    raise failures.unexpected_end()
                if self._placing is not None:
                    self._go_on_without(self._placing.look())
        if not (asked or self._signals.done.exists() or self._signals.filled.exists()):
            raise failures.unexpected_end()

    def _go_on_without(self, lost: frozenset[str]) -> None:
        """End Spark if a batch seems to wait for lost executors.

        A closed connection ends such a wait; a connection to a machine that hangs does not.

        Raises:
            LostError: Spark was ended.
        """
        logged = self._layout.logged()
        if lost:
            self._waits_since = logged.batch, time.monotonic()
        batch, since = self._waits_since
        waits_s = _WAITS_S + 2 * logged.took_s
        if batch == logged.batch > logged.committed and time.monotonic() > since + waits_s:
            self._give_up()
            raise failures.lost_executor()

    def _is_between_batches(self) -> bool:
        """Whether no batch runs, and none will: the source has acknowledged the stop."""
        is_idle = (
            self._signals.acknowledgement.exists() or not self._query.status["isTriggerActive"]
        )
        logged = self._layout.logged()
        return is_idle and logged.batch == logged.committed


class _Ending:
    """Waits in a thread for the end of a query, since asking the JVM takes a millisecond."""

    def __init__(self, query: StreamingQuery) -> None:
        self._is_over = threading.Event()
        self._error: Exception | None = None
        threading.Thread(target=self._await, args=(query,), daemon=True).start()

    def within(self, seconds: float) -> bool:
        """Wait for the end for a time; return whether the query has ended.

        Raises:
            Exception: the error that has ended the query.
        """
        if not self._is_over.wait(seconds):
            return False
        if self._error is not None:
            raise self._error
        return True

    def _await(self, query: StreamingQuery) -> None:
        try:
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001 -- it is raised where one waits
            self._error = error
        finally:
            self._is_over.set()


def start(
    spark: Spark | CallerSpark,
    plan: Plan,
    settings: Settings,
    watcher: Watcher,
    *,
    once: bool,
    incarnation: int = 0,
    on_begin: Callable[[], None] = nothing,
    on_trigger: OnTrigger | None = None,
) -> Running:
    """Take over the pipeline and start its query; with `once` it ends when caught up.

    `incarnation` is the one that this run had before it was restarted; 0 at its first start.
    `on_begin` is called right before the query starts; from then on it has to be ended between two
    batches.  `on_trigger` gets all triggers, also those without a batch.

    Raises:
        PlanError: the parts of the plan do not fit.
        IkebanaError: checkpoint, topics and plan do not belong together.
    """
    portable, on_step, on_edit = _portable(plan, settings), watcher.step, watcher.edit
    opening = opened(
        portable, settings, on_step, on_edit, incarnation=incarnation, tasks=spark.tasks
    )
    metadata, takeover = opening.step.metadata, opening.takeover
    on_step("starting Spark")
    running = spark.session()
    groups = _laid_out(running, metadata)
    signals = Signals(spark.folder / f"stop-{takeover.incarnation}")
    edit = _edit(opening)
    readers = running.sparkContext.defaultParallelism
    config = _source_config(opening, settings, groups, readers, signals.stop, edit, spark.rows)
    job = _job(opening, settings, groups, _local_directory(spark, settings), edit)
    listening = _listener(running, opening, on_trigger)
    on_step("starting the query")
    on_begin()
    placing = _placing(running, metadata, signals) if spark.places else None
    on_missed = placing.leave_out if placing is not None else lambda _: None
    on_batch = autoscaler(settings, spark.session, watcher.batch, on_step)
    # If inputs were read from snapshots, nothing is known about earlier times.
    begin = metadata.begin
    sink = ProgressSink(
        job, takeover, settings, on_batch, begin=begin, config=config, on_missed=on_missed
    )
    query = _query(running, config, job, settings, sink, once=once or opening.step.finishes)
    watcher.started(_run_start(opening, spark, running, signals))
    going = Going(query, signals, listening, spark.has_ended, spark.give_up, placing)
    return Running(going, opening.layout, takeover.incarnation, precedes=opening.step.precedes)


def _run_start(
    opening: Opened, spark: Spark | CallerSpark, running: SparkSession, signals: Signals
) -> RunStart:
    return RunStart(
        opening.step.metadata.id,
        opening.takeover.incarnation,
        running.sparkContext.uiWebUrl,
        functools.partial(signals.last, InputsState),
        opening.takeover.state.continuation.waiting,
        opening.step.precedes,
        tuple(spark.fast_paths),
    )


def _portable(plan: Plan, settings: Settings) -> Plan:
    """A plan that can be sent to other processes, with its schemas registered.

    Schemas are registered before an older instance is stopped, since a registry may refuse them.
    """
    portable = checked(plan).portable()
    registered(portable, settings.registry)
    return portable


def _listener(
    running: SparkSession, opening: Opened, on_trigger: OnTrigger | None
) -> TriggerListener | None:
    # A query that only finishes work is over before there is anything to report.
    if on_trigger is None or opening.step.finishes:
        return None
    return listen(running, on_trigger)


def _placing(
    running: SparkSession, metadata: CheckpointMetadata, signals: Signals
) -> Placing | None:
    """Place shards on executors; None if these have a task each."""
    if metadata.state_partitions > 1:
        return None
    placing = Placing(running, metadata.shards, signals.hosts)
    placing.begin()
    return placing


def _edit(opening: Opened) -> Edit | None:
    """Return the edit that the query continues, if there is one."""
    logged, metadata = opening.layout.logged(), opening.step.metadata
    is_done = logged.batch <= logged.committed
    return edit_under_way(metadata, logged.offset or metadata.start, is_done=is_done)


def _laid_out(running: SparkSession, metadata: CheckpointMetadata) -> tuple[int, ...]:
    """Set the number of state partitions; return the groups of shards.

    Unfinished work is finished with the old number of shards and tasks.
    """
    running.conf.set("spark.sql.shuffle.partitions", metadata.state_partitions)
    return connection.groups(running, metadata.shards, metadata.state_partitions)


def _source_config(
    opening: Opened,
    settings: Settings,
    groups: Sequence[int],
    readers: int,
    stop: Path,
    edit: Edit | None,
    rows_folder: str,
) -> SourceConfig:
    """Make the configuration of the source, for minting and reading batches."""
    plan, metadata, takeover = opening.step.plan, opening.step.metadata, opening.takeover
    last = opening.layout.logged().offset or metadata.start
    return SourceConfig(
        plan=plan,
        reading_kafka=settings.reading_kafka,
        start=metadata.start,
        begins=replays.begins(plan, replays.first_offsets(metadata.begins, last)),
        groups=list(groups),
        readers=readers,
        max_records=settings.max_records_per_batch,
        heartbeat_s=settings.heartbeat_s,
        max_batch_s=settings.max_batch_s,
        stop=str(stop),
        incarnation=takeover.incarnation,
        registry=dict(settings.registry),
        adopted=takeover.state.adopted,
        edited=Edited.of(metadata.edits, edit, metadata.released, finishes=opening.step.finishes),
        exchanges=_exchanges(plan, edit),
        kafka=dict(settings.kafka),
        interval_s=settings.trigger_interval_s,
        rows_folder=rows_folder,
    )


def _job(
    opening: Opened, settings: Settings, groups: tuple[int, ...], local: str, edit: Edit | None
) -> Job:
    """Make the job that the tasks of shards get."""
    plan, metadata = opening.step.plan, opening.step.metadata
    return Job(
        plan=plan,
        kafka=dict(settings.kafka),
        writing_kafka=settings.writing_kafka,
        checkpoint=metadata.id,
        epoch=metadata.epoch,
        incarnation=opening.takeover.incarnation,
        first_batch=metadata.first_batch,
        location=opening.layout.location,
        local=local,
        groups=groups,
        seeds={shard: encode_state(manifest) for shard, manifest in metadata.seeds.items()},
        retained=settings.retained_batches,
        max_batch_s=settings.max_batch_s,
        edit=edit,
        # The plan of before may have other schemas, which are registered already.
        schemas=registered(plan, settings.registry),
    )


def _exchanges(plan: Plan, edit: Edit | None) -> bool:
    """Whether the exchange topic is used, by the plan or by joins of the old one in an edit."""
    return any(progress.has_exchanges(each) for each in (plan, *([edit.before] if edit else ())))


def _local_directory(spark: Spark | CallerSpark, settings: Settings) -> str:
    """Choose the folder of the local databases: by default temporary, if the run is local."""
    if settings.local_directory:
        return settings.local_directory
    if settings.is_local:
        return str(spark.folder / "shards")
    return f"{tempfile.gettempdir()}/ikebana-shards"


def _query(
    spark: SparkSession,
    config: SourceConfig,
    job: Job,
    settings: Settings,
    sink: ProgressSink,
    *,
    once: bool,
) -> StreamingQuery:
    spark.dataSource.register(IkebanaSource)
    rows = (
        spark.readStream.format(source.NAME)
        .option(source.OPTION, msgspec.json.encode(config).decode())
        .load()
    )
    if len({*job.groups}) == 1:
        # One task runs all shards: nothing is to be shuffled.
        rows = rows.coalesce(1)
    results = rows.groupBy("group_number").applyInPandasWithState(
        functools.partial(keyed_operator.run_group, Groups.of(job)),
        keyed_operator.OUTPUT_SCHEMA,
        keyed_operator.STATE_SCHEMA,
        "append",
        "NoTimeout",
    )
    # A projection, even one that only renames, makes rows that tasks can send.
    results = results.withColumnRenamed("result", "answer")
    writer = (
        results.writeStream.foreachBatch(sink)
        .option("checkpointLocation", job.location)
        .queryName(f"{job.plan.name}-{job.checkpoint}")
    )
    if once:
        return writer.trigger(availableNow=True).start()
    # The source keeps the interval: Spark's would also delay updates between operators, and the
    # first record after a pause.
    return writer.trigger(processingTime="0 seconds").start()
