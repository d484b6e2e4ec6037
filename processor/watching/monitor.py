"""Collect the reports of a run: its metrics, its health, and the data of its console.

`/metrics` is for Prometheus.  `/live` and `/ready` are probes: 200 or 503, with the reason as a
line or as JSON.  `/metrics/spark` passes on Spark's metrics of its driver and executors, if its UI
is on.  `/console/` is a page for people, which reads below `/v1/`.

The answers have the names in the pipeline file, numbers, sizes and places of records, but no data.
Only noted records are shown themselves, and only with tokens.  `answering` serves all of it, and
`guard` controls access.
"""

import functools
import json
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from ikebana import __version__
from ikebana.processor.authoring.deliver_section import DeliverSection
from ikebana.processor.base import notices
from ikebana.processor.base.fast_paths import FastPath, missed_owners
from ikebana.processor.base.notices import Notice
from ikebana.processor.base.rows import MessagePlace, Noted, NotedKind, NotedRecord
from ikebana.processor.checkpoint.edit_description import EditDescription
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.batch_selection import InputsState
from ikebana.processor.watching import console, metrics
from ikebana.processor.watching.console import HistorySample, Past, SampleHistory
from ikebana.processor.watching.health import Health, Verdict
from ikebana.processor.watching.metrics import (
    WHOLE,
    HotSeries,
    Metric,
    MetricSample,
    TriggerReport,
)
from ikebana.processor.watching.reports import (
    BatchReport,
    Filling,
    RunStart,
    Watcher,
    held_words,
    nothing,
)
from ikebana.processor.watching.sinks import FiguresOfSinks, SinkFigures, no_sinks

if TYPE_CHECKING:
    from ikebana.processor.checkpoint.edit_description import EditDescription

# The notes of a run since it began: how many records were late, drifted or made errors.
#
# For each kind and input the places of the last records are kept, so the plan bounds the memory.
# The present notices are here, too.

_RECORDS = 20


class RecordFigures(msgspec.Struct):
    """A record by its place; `at_ms` is the clock when its batch was committed."""

    topic: str
    partition: int
    offset: int
    late_by: int | None
    reason: str
    at_ms: int


class NotedFigures(msgspec.Struct):
    """The records of a kind and input since the run began, the last of them first."""

    kind: NotedKind
    input: str
    count: int
    since_ms: int
    last_ms: int
    records: list[RecordFigures]


class _Notes:
    def __init__(self, now_ms: int) -> None:
        self.count = 0
        self.since_ms = self.last_ms = now_ms
        self.records: deque[tuple[NotedRecord, int]] = deque(maxlen=_RECORDS)


class Notes:
    """The notes of all batches of a run; every method is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes: dict[tuple[NotedKind, str], _Notes] = {}

    def add(self, noted: Iterable[Noted], now_ms: int) -> None:
        """Take the notes of a batch that was committed now."""
        with self._lock:
            for each in noted:
                notes = self._notes.setdefault((each.kind, each.input), _Notes(now_ms))
                notes.count += each.count
                notes.last_ms = now_ms
                notes.records.extend((record, now_ms) for record in each.records)

    def figures(self) -> list[NotedFigures]:
        """Return all notes, by kind and input."""
        with self._lock:
            return [
                NotedFigures(
                    *name,
                    notes.count,
                    notes.since_ms,
                    notes.last_ms,
                    [_figures(*each) for each in reversed(notes.records)],
                )
                for name, notes in sorted(self._notes.items())
            ]

    def has(self, place: MessagePlace) -> bool:
        """Whether the record at a place is among those that are kept."""
        with self._lock:
            return any(
                record.place == place
                for notes in self._notes.values()
                for record, _ in notes.records
            )


class NoticeFigures(msgspec.Struct):
    """A present notice, and since when it holds."""

    kind: notices.NoticeKind
    input: str
    of: str
    words: str
    since_ms: int


class Notices:
    """The present notices, and since when each holds; every method is thread-safe."""

    def __init__(self) -> None:
        self._figures: list[NoticeFigures] = []

    def take(self, notices: Sequence[notices.Notice], now_ms: int) -> None:
        """Replace the present notices."""
        since = {(each.kind, each.input, each.of): each.since_ms for each in self._figures}
        # The list is replaced as a whole, so that no thread sees a part of it.
        self._figures = [
            NoticeFigures(*each.name, each.words, since.get(each.name, now_ms)) for each in notices
        ]

    def figures(self) -> list[NoticeFigures]:
        """Return all of them."""
        return self._figures


def _figures(record: NotedRecord, at_ms: int) -> RecordFigures:
    return RecordFigures(*record.place, record.late_by, record.reason, at_ms)


class MetricSeries(NamedTuple):
    """The value of one series, with the labels of its metric except the pipeline's."""

    name: str
    labels: tuple[str, ...]
    value: float


class InputFigures(msgspec.Struct):
    """An input with times of its own."""

    frontier: int | None
    silent: bool
    holds: bool


class OperatorFigures(msgspec.Struct):
    """An operator; `lag_s` is null if times are not milliseconds."""

    frontier: int | None
    lag_s: float | None


class OutputFigures(msgspec.Struct):
    """An output; `updates` is the number of its messages since the start."""

    frontier: int | None
    lag_s: float | None
    updates: int


class StateFiles(msgspec.Struct):
    """The files of all shards."""

    shards: int
    bytes: int
    entries: int


class RunFigures(msgspec.Struct):
    """A run at a moment; `counted` has the numbers of errors, late and drifted records by kind.

    `notices` are about probable mistakes.
    """

    pipeline: str
    ready: bool
    reason: str
    notices: list[NoticeFigures]
    lag_s: float | None
    batch: int | None
    records: int
    restarts: int
    inputs: dict[str, InputFigures]
    operators: dict[str, OperatorFigures]
    outputs: dict[str, OutputFigures]
    sinks: dict[str, SinkFigures]
    counted: dict[str, int]
    state: StateFiles


def run_figures(
    pipeline: str,
    verdict: tuple[bool, str],
    notices: list[NoticeFigures],
    sinks: dict[str, SinkFigures],
    series: Iterable[MetricSeries],
) -> RunFigures:
    """Take the figures of a pipeline from the series of its metrics."""
    by_metric: dict[str, dict[tuple[str, ...], float]] = {}
    for name, labels, value in series:
        by_metric.setdefault(name, {})[labels] = value

    def one(metric: Metric) -> float | None:
        return by_metric.get(metric.name, {}).get(())

    def by_name(metric: Metric) -> Mapping[str, float]:
        return {labels[0]: value for labels, value in by_metric.get(metric.name, {}).items()}

    batch, ready, reason = one(metrics.BATCH), *verdict
    frontiers, lags = by_name(metrics.OPERATOR_FRONTIER), by_name(metrics.OPERATOR_LAG)
    closed, behind = by_name(metrics.OUTPUT_FRONTIER), by_name(metrics.OUTPUT_LAG)
    seen, silent = by_name(metrics.INPUT_FRONTIER), by_name(metrics.INPUT_SILENT)
    holding, sizes = by_name(metrics.INPUT_HOLDS), by_name(metrics.STATE_BYTES)
    return RunFigures(
        pipeline=pipeline,
        ready=ready,
        reason=reason,
        notices=notices,
        lag_s=one(metrics.LAG),
        batch=_whole(batch),
        records=int(one(metrics.RECORDS) or 0),
        restarts=int(one(metrics.RESTARTS) or 0),
        inputs={
            name: InputFigures(_whole(seen.get(name)), bool(value), bool(holding.get(name)))
            for name, value in silent.items()
        },
        operators={
            name: OperatorFigures(_whole(value), lags.get(name))
            for name, value in frontiers.items()
        },
        outputs={
            name: OutputFigures(_whole(closed.get(name)), behind.get(name), int(value))
            for name, value in by_name(metrics.UPDATES).items()
        },
        sinks=sinks,
        counted={name: int(value) for name, value in by_name(metrics.COUNTED_KINDS).items()},
        state=StateFiles(
            len(sizes), int(sum(sizes.values())), int(sum(by_name(metrics.STATE_ENTRIES).values()))
        ),
    )


def samples(figures: RunFigures) -> dict[str, HistorySample]:
    """Take the samples of the outputs; the run itself, with its records, has the empty name."""
    outputs = {
        name: HistorySample(each.lag_s, each.updates) for name, each in figures.outputs.items()
    }
    return {"": HistorySample(figures.lag_s, figures.records), **outputs}


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


# Before its first batch; while it reads the state; while its time is not closed; when it is done.
EditState = Literal["to come", "filling", "waiting", "through"]


class FillingFigures(msgspec.Struct):
    """The progress of an edit that fills: its part of all parts, the share, and keys so far."""

    part: int
    parts: int
    name: str
    share: float
    keys: int


class EditFigures(msgspec.Struct):
    """The last edit as `ikebana plan` describes it, if there was one, and its progress.

    `state` is null before the first batch of a run.
    """

    edit: dict[str, Any] | None
    state: EditState | None = None
    filling: FillingFigures | None = None


def filling_figures(filling: Filling, keys: int) -> FillingFigures:
    """Make the figures of the progress of an edit."""
    part = min(filling.done + 1, filling.parts)
    return FillingFigures(part, filling.parts, filling.name, filling.share, keys)


def edit_figures(
    edit: EditDescription | None,
    filling: FillingFigures | None,
    frontiers: Mapping[str, int],
    *,
    to_come: bool,
) -> EditFigures:
    """Make the figures of an edit; `frontiers` of outputs are empty before the first batch."""
    if edit is None:
        return EditFigures(None)
    state: EditState | None = "through"
    if to_come:
        state = "to come"
    elif filling is not None:
        state = "filling"
    elif not frontiers:
        state = None
    elif edit.frontier is not None:
        shown = [part.name for part in edit.parts if part.shows in ("difference", "everything")]
        if any(frontiers.get(name, edit.frontier + 1) <= edit.frontier for name in shown):
            state = "waiting"
    return EditFigures(edit.as_json(), state, filling)


# From an empty batch to the longest that transactions allow by default.
_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_SPARK_PATH = "/metrics/executors/prometheus/"
_SPARK_WITHIN_S = 5.0


SinksOfRun = tuple[Mapping[str, DeliverSection], FiguresOfSinks]
"""The sinks of a run by name, and how they stand now."""


class NotedAnswer(msgspec.Struct):
    """The notes; with `shows`, clients that may see everything can look at the records."""

    shows: bool
    inputs: list[str]
    noted: list[NotedFigures]


class Monitor(Watcher):
    """Collects reports on a run, and answers requests; every method is thread-safe."""

    def __init__(
        self,
        plan: Plan,
        health: Health,
        last_edit: "Callable[[], EditDescription | None]" = nothing,
        sinks: SinksOfRun = ({}, no_sinks),
    ) -> None:
        """Watch a run; `last_edit` reads the last edit of its checkpoint."""
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._plan = plan
        self._health = health
        self._sinks, self._sinks_stand = sinks
        self._registry = CollectorRegistry()
        self._collectors = {
            metric: _collector(metric, self._registry) for metric in metrics.METRICS
        }
        ProcessCollector(registry=self._registry)
        self._operators: Mapping[str, int] = {}
        self._outputs: Mapping[str, int] = {}
        self._spark_ui: str | None = None
        self._waiting = 0
        self._fast_paths: tuple[FastPath, ...] = ()
        self._filling: Filling | None = None
        self._filled_keys = 0
        self._greatest = -1
        self._inputs: Callable[[], InputsState | None] = nothing
        self._notes, self._history, self._hot = Notes(), SampleHistory(), HotSeries()
        self._notices = Notices()
        self._last_edit = functools.cache(last_edit)
        self._to_come: EditDescription | None = None
        self._take(metrics.of_plan(plan))

    def step(self, what: str) -> None:
        """Record the current step of the start."""
        self._health.step(what)

    def edit(self, description: "EditDescription") -> None:
        """Record that the plan has changed; batches then report the progress of the edit."""
        if description.edited:
            self._to_come = description

    def started(self, start: RunStart) -> None:
        """Record that the pipeline has been taken over and its query started."""
        if not start.precedes:
            self._to_come = None
        self._last_edit.cache_clear()
        self._spark_ui, self._inputs, self._waiting = (
            start.spark_ui,
            start.inputs,
            start.waiting,
        )
        self._fast_paths = start.fast_paths
        self._take(metrics.of_start(self._plan, __version__, start))

    def batch(self, report: BatchReport) -> None:
        """Record a committed batch."""
        self._health.committed()
        self._outputs = metrics.frontiers_of(self._plan, report)
        self._waiting = report.waiting
        self._filling = report.filling
        self._filled_keys += 0 if report.filling is None else report.filling.keys
        seen = (seen.greatest for commit in report.commits for seen in commit.seen)
        self._greatest = max([self._greatest, *(time for time in seen if time is not None)])
        self._take(metrics.of_batch(self._plan, report))
        if not report.owned:
            self._fast_paths = missed_owners(self._fast_paths)
            self._take(metrics.of_fast_paths(self._fast_paths))
        self._take(self._hot.samples(report.hot))
        self._notes.add(report.noted, _now_ms())

    def restart(self, cause: Exception, pause_s: float) -> None:
        """Record that the query has failed and is restarted after a pause."""
        self._health.step(f"starting again after: {cause}"[:200].splitlines()[0])
        self._take(metrics.of_restart())

    def notice(self, notices: Sequence[Notice]) -> None:
        """Record the notices that hold now."""
        self._notices.take(notices, _now_ms())
        self._take(metrics.of_notices(self._plan, notices))

    def trigger(self, trigger: TriggerReport | None) -> None:
        """Record a finished batch of Spark, or None if there was nothing to do."""
        self._history.take(_now_ms(), lambda: samples(self.figures()))
        if trigger is None:
            inputs = self._inputs()
            self._health.idle(waits=inputs is not None and inputs.ahead)
            return
        self._operators = trigger.frontiers
        self._take(metrics.of_trigger(trigger))
        # The records that were read are published when the greatest of their times is closed.
        reached = max(trigger.progress.upper, self._greatest + 1)
        progress = trigger.progress._replace(upper=reached)
        self._health.batch(trigger.phases_ms.get(WHOLE, 0) / 1000, progress)

    def live(self) -> Verdict:
        """See `Health.live`."""
        return self._health.live()

    def ready(self) -> Verdict:
        """See `Health.ready`."""
        return self._health.ready()

    def readiness(self) -> tuple[bool, bytes]:
        """Return whether the run is ready, and JSON: reason, lag, waiting records, their inputs.

        The JSON also has the notices, and while an edit fills, its progress.
        """
        verdict, lag_s, inputs = self.ready(), self._health.lag_s, self._inputs()
        answer: dict[str, object] = {"ready": verdict.good, "reason": verdict.reason}
        answer["lag_seconds"] = None if lag_s is None else round(lag_s, 1)
        if self._fast_paths:
            answer["fast_paths"] = {name: why_not or "yes" for name, why_not in self._fast_paths}
        answer["notices"] = msgspec.to_builtins(self._notices.figures())
        if self._sinks:
            # A sink does not hold the pipeline up, which is ready without it.
            answer["sinks"] = msgspec.to_builtins(self._sinks_stand())
        if self._plan.is_dated:
            answer["waiting_records"] = self._waiting
            if not verdict.good and (words := held_words(inputs, self._waiting)):
                answer["reason"] = f"{verdict.reason}; {words}"
        if (filling := self._filling) is not None:
            answer["reason"] = f"{answer['reason']}; {filling.words()}"
            figures = filling_figures(filling, self._filled_keys)
            answer["filling"] = {
                name: getattr(figures, name) for name in ("part", "parts", "name", "keys")
            }
        if inputs is not None:
            answer |= {"frontier": inputs.upper, "held_by": inputs.held_by}
            answer["inputs"] = {
                source.name: {
                    "frontier": inputs.frontiers.get(source.name),
                    "silent": source.name in inputs.silent,
                }
                for source in self._plan.inputs
                if source.is_dated
            }
        return verdict.good, json.dumps(answer, indent=2).encode() + b"\n"

    def scrape(self, accept: str) -> tuple[str, bytes]:
        """Render all metrics in an accepted format; return the content type and the text."""
        self._take_moment()
        return exposed(self._registry, accept)

    @functools.cached_property
    def drawn(self) -> msgspec.Raw:
        """The drawing of the plan, as JSON."""
        return msgspec.Raw(msgspec.json.encode(console.of_run(self._plan, self._sinks)))

    def edited(self) -> EditFigures:
        """Return the last edit, or the next one, and its progress."""
        filling = None
        if self._filling is not None:
            filling = filling_figures(self._filling, self._filled_keys)
        edit = self._to_come or self._last_edit()
        to_come = self._to_come is not None
        return edit_figures(edit, filling, self._outputs, to_come=to_come)

    def past(self) -> Past:
        """Return the history of lag and updates."""
        return self._history.past()

    def has_noted(self, place: MessagePlace) -> bool:
        """Whether the record at a place is among the kept notes."""
        return self._notes.has(place)

    def noted(self, *, shows: bool) -> NotedAnswer:
        """Return the notes; `shows` says whether records can be looked at."""
        inputs = [each.name for each in self._plan.inputs]
        return NotedAnswer(shows, inputs, self._notes.figures())

    def figures(self) -> RunFigures:
        """Return the figures of this moment."""
        self._take_moment()
        series = (
            MetricSeries(sample.name, tuple(sample.labels.values())[1:], sample.value)
            for name, metric in self._collectors.items()
            if name.kind != "histogram"
            for family in metric.collect()
            for sample in family.samples
        )
        notices, sinks = self._notices.figures(), dict(self._sinks_stand())
        return run_figures(self._plan.name, self.ready(), notices, sinks, series)

    def spark(self) -> tuple[int, bytes]:
        """Fetch the executors' metrics from Spark's UI; return the status and the text."""
        if self._spark_ui is None:
            return 404, b"Spark's UI is off: set spark.ui.enabled under spark in the file\n"
        try:
            with urllib.request.urlopen(
                self._spark_ui + _SPARK_PATH, timeout=_SPARK_WITHIN_S
            ) as page:
                return 200, page.read()
        except (urllib.error.URLError, TimeoutError) as error:
            return 502, f"Spark's UI does not answer: {error}\n".encode()

    def _take_moment(self) -> None:
        self._take(metrics.of_moment(self._health, self._operators, self._outputs, _now_ms()))
        self._take(metrics.of_sinks(self._sinks_stand()))
        if (inputs := self._inputs()) is not None:
            self._take(metrics.of_inputs(self._plan, inputs))

    def _take(self, samples: Iterable[MetricSample]) -> None:
        for metric, labels, value in samples:
            series = self._collectors[metric].labels(self._plan.name, *labels)
            match series:
                case Counter():
                    series.inc(value)
                case Gauge():
                    series.set(value)
                case Histogram():
                    series.observe(value)


def exposed(registry: CollectorRegistry, accept: str) -> tuple[str, bytes]:
    """Render a registry in an accepted format; return the content type and the text."""
    try:
        encode, content_type = choose_encoder(accept)
    except (TypeError, ValueError):
        # prometheus_client fails on a malformed version; such a client gets the common format.
        encode, content_type = choose_encoder("")
    return content_type, encode(registry)


def families(
    metrics: Iterable[tuple[str, bool, str]],
    label: str,
    values: Mapping[str, Mapping[str, float | None]],
) -> list[CounterMetricFamily | GaugeMetricFamily]:
    """Make the samples of metrics with one label; `values` has those of each of its values.

    A metric has a name, whether it is a counter, and a description; its value has the name without
    the first two words.  One that is None has no sample.
    """
    result = []
    for name, counts, text in metrics:
        family = (CounterMetricFamily if counts else GaugeMetricFamily)(name, text, labels=[label])
        for of, by_name in values.items():
            if (value := by_name[name.split("_", 2)[2]]) is not None:
                family.add_metric([of], value)
        result.append(family)
    return result


def scraped(collector: Collector, accept: str) -> tuple[str, bytes]:
    """Render the samples of a collector, and those of this process, in an accepted format."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    return exposed(registry, accept)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _collector(metric: Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    labels = ("pipeline", *metric.labels)
    match metric.kind:
        case "counter":
            return Counter(metric.name, metric.meaning, labels, registry=registry)
        case "gauge":
            return Gauge(metric.name, metric.meaning, labels, registry=registry)
        case "histogram":
            return Histogram(
                metric.name, metric.meaning, labels, registry=registry, buckets=_BUCKETS
            )
