"""Make a sink, and apply closed batches of topics to it, until it is stopped.

The loop pulls: while a target is slow or away, nothing is read, and records wait in the topics.
After a target or brokers were away, it begins again at the token of the target, with pauses that
double up to a minute.  It keeps nothing on disk except the spool of a large batch.

Probes say whether a delivery is live and ready, and have its metrics for Prometheus.
"""

import functools
import importlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ikebana.delivering.columns import TargetColumn
from ikebana.delivering.sink import Batch, Sink, TargetTable
from ikebana.delivering.spool import MOST_BYTES, Spooled, SpoolKeeper
from ikebana.errors import AwayError, ConfigError, SourceError
from ikebana.processor.authoring.deliver_section import DeliverSection, TableSection
from ikebana.processor.authoring.values import Section
from ikebana.processor.base.log_lines import note
from ikebana.processor.base.processes import AttemptFailed, Restarts, with_restarts
from ikebana.processor.base.texts import lag_s
from ikebana.processor.kafka import following, reading_rights
from ikebana.processor.planning.catalog import output_types
from ikebana.processor.planning.plan import Plan
from ikebana.processor.watching.monitor import families, scraped
from ikebana.serving.aligned import Aligning, OpenTopic, Span

# Returns the SQL types of the columns of a topic's values, for a topic and its format.
TypesOf = Callable[[str, str], Mapping[str, str]]


class SinkPlan(NamedTuple):
    """A sink with its tables, and the formats of their topics."""

    sink: Sink
    tables: tuple[TargetTable, ...]
    formats: Mapping[str, str]


def sink_plan(
    name: str, section: DeliverSection, plan: Plan | None, types_of: TypesOf
) -> SinkPlan:
    """Make the sink of a section, which has no `deliver_section.problems`.

    `from` names outputs of the plan, or topics without a plan.

    Raises: ConfigError.
    """
    tables = []
    formats: dict[str, str] = {}
    for table, of_table in section.tables.items():
        topic, form, types = _source(of_table, plan)
        if formats.setdefault(topic, form) != form:
            raise ConfigError(f'sink "{name}" reads topic "{topic}" in two formats')
        columns = [
            TargetColumn.of(column, of.type, of.field, of.whole)
            for column, of in of_table.columns.items()
        ] or [
            TargetColumn.of(column, kind)
            for column, kind in (types or types_of(topic, form)).items()
        ]
        tables.append(TargetTable(topic, table, of_table.mode, tuple(columns), of_table.key))
    return SinkPlan(_sink(name, section), tuple(tables), formats)


def _source(of_table: TableSection, plan: Plan | None) -> tuple[str, str, Mapping[str, str]]:
    """The topic of a table, its format, and the column types of the plan; empty without one."""
    if plan is None:
        return of_table.source, of_table.format or "diff", {}
    [output] = [output for output in plan.outputs if output.name == of_table.source]
    return output.topic, output.format, output_types(plan, output)


def _sink(name: str, section: DeliverSection) -> Sink:
    [kind] = section.targets
    try:
        # A target has a module of its name, which makes its sink.
        make: Callable[[str, Section], Sink]
        make = importlib.import_module(f"ikebana.delivering.{kind}").sink
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ikebana"):
            raise
        raise ConfigError(
            f'sink "{name}" needs the library {error.name}, which is not installed',
            hint=f'Install it: pip install "ikebana[{kind}]".',
        ) from error
    return make(name, getattr(section, kind))


def types_in_topic(settings: Mapping[str, str]) -> TypesOf:
    """Return a function that reads column types from a topic's progress."""

    def types_of(topic: str, form: str) -> Mapping[str, str]:
        from ikebana.processor.kafka.diff_topic import DiffTopic

        reading = DiffTopic(settings, topic, form)
        try:
            reading.require_output()
            last = reading.last_closed()
        finally:
            reading.close()
        if last is None or not last.columns:
            raise SourceError(
                f'"{topic}" does not tell the types of its columns, or nothing is closed yet',
                hint="List the columns with their types under `columns`.",
            )
        return last.columns

    return types_of


# A target is tried again however long it is away.
_RESTARTS = 10**9


class DeliveredTopics(NamedTuple):
    """The topics of a delivery: how one is opened, and the format of each."""

    open: OpenTopic
    formats: Mapping[str, str]
    spool_bytes: int = MOST_BYTES
    """The most bytes of a topic's closed batch in memory; a larger batch goes to a file."""


class DeliveryProgress(NamedTuple):
    """The progress of a delivery."""

    upper: int | None
    """The frontier of the applied batches; None before the target was asked."""
    updates: int
    """The number of updates applied since the start."""
    batches: int
    caught_up_s: float | None
    """The time since everything closed had been applied."""
    behind: int
    """The number of offsets not read yet, as of the last time everything closed was applied."""
    waits: str
    """The error, while the target or the brokers are away; else empty."""


class Delivery:
    """One run of a sink over its topics.

    `run` returns when it is stopped or, unless it waits, when all that is closed now was applied.
    """

    def __init__(
        self,
        sink: Sink,
        tables: Sequence[TargetTable],
        topics: DeliveredTopics,
        say: Callable[[str], None],
        *,
        wait: bool = True,
    ) -> None:
        self._sink = sink
        self._tables = tables
        self._topics = topics
        self._say = say
        self._wait = wait
        self._stopping = threading.Event()
        self._following: Aligning[Spooled] | None = None
        self._upper: int | None = None
        self._updates = self._batches = self._behind = 0
        self._caught_up: float | None = None
        self._waits = ""

    def run(self) -> None:
        """Deliver until `stop`.

        Raises:
            ConfigError: a table of the target does not fit, or the token is of other topics.
            FencedError: a newer instance of the sink has taken over.
            SourceError: a topic cannot be read on, or has values that a table cannot take.
        """
        with_restarts(self._attempt, Restarts(_RESTARTS), self._tell, self._stopping.wait)

    def stop(self) -> None:
        """End after the batch that is being applied; from any thread."""
        self._stopping.set()
        if (following := self._following) is not None:
            following.stop()

    def progress(self) -> DeliveryProgress:
        """Return the progress; from any thread."""
        age = None if self._caught_up is None else time.monotonic() - self._caught_up
        return DeliveryProgress(
            self._upper, self._updates, self._batches, age, self._behind, self._waits
        )

    def _attempt(self) -> None:
        if self._stopping.is_set():
            return
        try:
            self._deliver()
        except AwayError as error:
            raise AttemptFailed from error
        finally:
            with suppress(AwayError):
                self._sink.close()

    def _deliver(self) -> None:
        token = self._sink.open(self._tables)
        keeper = functools.partial(SpoolKeeper, self._topics.spool_bytes)
        with Aligning(
            self._topics.open,
            self._topics.formats,
            keeper,
            resume=token,
            wait=self._wait,
            caught_up=self._idle,
        ) as following:
            self._following = following
            if self._stopping.is_set():
                return
            self._upper, self._waits = following.upper, ""
            for span in following.spans():
                self._apply(span, is_first=token is None)
                token = span.token

    def _apply(self, span: Span[Spooled], *, is_first: bool) -> None:
        lower, upper, updates, token, times = span
        self._sink.apply(Batch(lower, upper, token, updates, is_first=is_first, times=times))
        self._upper = upper
        self._batches += 1
        self._updates += sum(each.count() for each in updates.values())

    def _idle(self) -> None:
        self._caught_up = time.monotonic()
        if self._following is not None:
            self._behind = self._following.behind()

    def _tell(self, cause: Exception, pause_s: float) -> None:
        self._waits = str(cause).splitlines()[0]
        self._say(f"{self._waits}; trying again in {pause_s:g} s")


def deliver(
    sink: Sink,
    tables: Sequence[TargetTable],
    *,
    bootstrap_servers: str = "localhost:9092",
    config: Mapping[str, str] | None = None,
    wait: bool = True,
) -> None:
    """Deliver topics in the format `diff` into a sink, until its process ends.

    Unless it waits, it returns when everything that is closed now was delivered.  `config` has
    settings of the Kafka client.

    Raises:
        ConfigError, FencedError, SourceError: as `Delivery.run`.
    """
    formats = dict.fromkeys((table.collection for table in tables), "diff")
    settings = {**(config or {}), "bootstrap.servers": bootstrap_servers}
    reading_rights.reach(settings, formats)
    topics = DeliveredTopics(functools.partial(following.follow, settings), formats)
    Delivery(sink, tables, topics, note, wait=wait).run()


# Name, whether it is a counter, description; all with the label `sink`.
METRICS = (
    ("ikebana_delivered_updates", True, "Updates applied since the start."),
    ("ikebana_delivered_batches", True, "Closed batches applied since the start."),
    ("ikebana_delivered_frontier", False, "The frontier: all updates before it were applied."),
    ("ikebana_delivered_lag_seconds", False, "Age of the frontier, if times are milliseconds."),
    ("ikebana_delivered_behind_offsets", False, "Offsets of the topics that were not read yet."),
    ("ikebana_delivered_caught_up_seconds", False, "Time since everything closed was applied."),
    ("ikebana_delivered_waits", False, "1 while the target or the brokers are away."),
)


class DeliveryProbes(Collector):
    """Answers probes of one delivery; ready if everything that is closed was applied lately."""

    def __init__(
        self, name: str, progress: Callable[[], DeliveryProgress], ready_within: float
    ) -> None:
        self._name = name
        self._progress = progress
        self._ready_within = ready_within

    def live(self) -> tuple[bool, str]:
        """Return true: a delivery that fails ends its process, and a waiting one retries."""
        return True, "delivering"

    def ready(self) -> tuple[bool, bytes]:
        """Return whether it is ready, and more about that as JSON."""
        progress = self._progress()
        age = progress.caught_up_s
        good = not progress.waits and age is not None and age <= self._ready_within
        reason = progress.waits or ("delivering" if good else "catching up")
        body = {
            "ready": good,
            "reason": reason,
            "sink": self._name,
            "upper": progress.upper,
            "lag_seconds": lag_s(progress.upper),
            "caught_up_seconds": None if age is None else round(age, 1),
            "behind_offsets": progress.behind,
            "updates": progress.updates,
        }
        return good, json.dumps(body, indent=2).encode() + b"\n"

    def scrape(self, accept: str) -> tuple[str, bytes]:
        """Render the metrics in an accepted format; return its content type and the text."""
        return scraped(self, accept)

    def collect(self) -> list[CounterMetricFamily | GaugeMetricFamily]:
        """Make all samples of this moment."""
        progress = self._progress()
        values: dict[str, float | None] = {
            "updates": progress.updates,
            "batches": progress.batches,
            "frontier": progress.upper,
            "lag_seconds": lag_s(progress.upper),
            "behind_offsets": progress.behind,
            "caught_up_seconds": progress.caught_up_s,
            "waits": bool(progress.waits),
        }
        return families(METRICS, "sink", {self._name: values})
