"""Define the metrics of a pipeline, and compute their samples from reports.

The sample of a counter is an increment, of a gauge the new value, and of a histogram one
observation.  Labels are names of the plan, numbers of shards, phases, and the kinds that codecs
count.  Only the hashes of a few hot keys come from data, so the plan bounds the number of series:
there is the hottest key of each input, operator and join, and a limited number of hashes of each.

The entries of a shard's files are counted instead of its keys: a key counts once in the base and
once in each later file that changed it.  The number of updates that cancelled before they were
written is unknown.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from ikebana.processor.base.fast_paths import FastPath
from ikebana.processor.base.notices import Notice, counts
from ikebana.processor.base.sharding import Hot
from ikebana.processor.base.texts import lag_s, shown
from ikebana.processor.planning.joins.stages import joined
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.batch_selection import InputsState
from ikebana.processor.watching.health import BatchProgress, Health
from ikebana.processor.watching.reports import BatchReport, RunStart
from ikebana.processor.watching.sinks import SinkFigures

# Decision (lag): Lag is the age of a look at the topics, not of the newest time: in the ingest
# domain times are new even in a backlog of days, and in the offset domain they are no times of
# day.

MetricKind = Literal["counter", "gauge", "histogram"]
# Spark's name for the duration of a whole trigger.
WHOLE = "triggerExecution"
# Kinds with a sample of 0 before the first occurrence; all others are kinds of messages.
COUNTED = ("drift", "error dropped", "late", "outdated")


class Metric(NamedTuple):
    """A metric; all have the label `pipeline` first."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    meaning: str


class MetricSample(NamedTuple):
    """One value of a metric."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


class TriggerReport(NamedTuple):
    """Spark's report on a micro-batch: milliseconds by phase, and the frontiers reached."""

    phases_ms: Mapping[str, int]
    frontiers: Mapping[str, int]
    """The frontiers of operators by name."""
    progress: BatchProgress


def _metric(name: str, kind: MetricKind, meaning: str, *labels: str) -> Metric:
    return Metric(f"ikebana_{name}", kind, labels, meaning)


INFO = _metric(
    "info", "gauge", "Which pipeline this is; always 1", "version", "checkpoint", "time"
)
FAST_PATH = _metric(
    "fast_path", "gauge", "Whether a way that makes a run cheap is on: 1 or 0", "path"
)
INCARNATION = _metric("incarnation", "gauge", "How often the pipeline has been started so far")
RESTARTS = _metric(
    "restarts_total", "counter", "How often this run has started its query again after a failure"
)
LIVE = _metric("live", "gauge", "What /live says: 1 or 0")
READY = _metric("ready", "gauge", "What /ready says: 1 or 0")
QUIET = _metric("quiet_seconds", "gauge", "Time since the last sign of life")
LAG = _metric(
    "lag_seconds", "gauge", "All that was in the input topics this long ago is published"
)
BEHIND = _metric("behind_offsets", "gauge", "Offsets left for later by the last batch")
BATCH = _metric("batch", "gauge", "Number of the last committed batch")
BATCH_SECONDS = _metric("batch_duration_seconds", "histogram", "Duration of micro-batches")
PHASE_SECONDS = _metric(
    "batch_phase_seconds_total", "counter", "Time in each of Spark's phases of a batch", "phase"
)
SHARD_SECONDS = _metric(
    "shard_phase_seconds_total",
    "counter",
    "Time in each phase of a shard's task: catch_up, compute, store, send",
    "shard",
    "phase",
)
SHARD_RECORDS = _metric(
    "shard_records_total", "counter", "Records that a shard has taken, without exchanges", "shard"
)
SHARD_BYTES = _metric(
    "shard_bytes_total", "counter", "Bytes that a shard has taken, with exchanges", "shard"
)
HOT_KEY_SHARE = _metric(
    "hot_key_share",
    "gauge",
    "The hottest key's share in the last batch's records of an input or operator",
    "of",
    "hash",
)
JOIN_KEY_MATCHES = _metric(
    "join_key_matches",
    "gauge",
    "The number of rows that a join's hottest key has met in the last batch",
    "join",
    "hash",
)
RECORDS = _metric("records_total", "counter", "Records read")
UPDATES = _metric(
    "updates_total", "counter", "Messages written to outputs, errors among them", "output"
)
COUNTED_KINDS = _metric(
    "counted_total", "counter", "What else is counted: drift, messages ignored, ...", "kind"
)
NOTICES = _metric(
    "notices",
    "gauge",
    "What is probably not meant now: a column, errors, json text, envelope, topic, times",
    "kind",
    "input",
)
ARRANGEMENT_INFO = _metric(
    "arrangement_info",
    "gauge",
    "What an arrangement of joins is of; always 1",
    "operator",
    "arrangement",
)
INPUT_FRONTIER = _metric(
    "input_frontier",
    "gauge",
    "Times before this are closed in an input with times of its own",
    "input",
)
INPUT_SILENT = _metric(
    "input_silent", "gauge", "Whether nothing is expected of the input: 1 or 0", "input"
)
INPUT_HOLDS = _metric(
    "input_holds", "gauge", "Whether the pipeline's frontier waits for the input: 1 or 0", "input"
)
WAITING = _metric("waiting_records", "gauge", "Records that wait until their times are closed")
EDIT_PARTS = _metric(
    "edit_parts",
    "gauge",
    "The parts that a running edit of the plan goes through; 0 without one",
)
EDIT_PARTS_DONE = _metric(
    "edit_parts_done", "gauge", "How many of these parts all shards are done with"
)
EDIT_KEYS = _metric("edit_keys_total", "counter", "Keys of the state that edits went through")
OPERATOR_FRONTIER = _metric(
    "operator_frontier", "gauge", "Times before this are closed for the operator", "operator"
)
OUTPUT_FRONTIER = _metric(
    "output_frontier", "gauge", "Times before this are closed in the output", "output"
)
OPERATOR_LAG = _metric(
    "operator_frontier_lag_seconds",
    "gauge",
    "Age of the operator's frontier, where times are milliseconds",
    "operator",
)
OUTPUT_LAG = _metric(
    "output_frontier_lag_seconds",
    "gauge",
    "Age of the output's frontier, where times are milliseconds",
    "output",
)
SINK_READY = _metric(
    "sink_ready", "gauge", "Whether a sink has applied what was closed lately: 1 or 0", "sink"
)
SINK_RESTARTS = _metric(
    "sink_restarts", "gauge", "How often this run has started a sink's process again", "sink"
)
SINK_FRONTIER = _metric(
    "sink_frontier", "gauge", "A sink has applied all updates before this", "sink"
)
SINK_LAG = _metric(
    "sink_lag_seconds", "gauge", "Age of a sink's frontier, where times are milliseconds", "sink"
)
SINK_BEHIND = _metric(
    "sink_behind_offsets", "gauge", "Offsets of its topics that a sink has not read yet", "sink"
)
STATE_BYTES = _metric("state_bytes", "gauge", "Size of the files of a shard's state", "shard")
STATE_ENTRIES = _metric(
    "state_entries", "gauge", "Entries in the files of a shard: keys, and changes since", "shard"
)
STATE_FILES = _metric("state_files", "gauge", "Files of a shard's state: base and deltas", "shard")
STATE_VERSION = _metric("state_version", "gauge", "How often a shard has changed", "shard")
BASE_VERSION = _metric(
    "state_base_version", "gauge", "The version of a shard's base; a new base changes it", "shard"
)
BASE_BYTES = _metric("state_base_bytes", "gauge", "Size of a shard's base", "shard")

METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


def frontiers_of(plan: Plan, report: BatchReport) -> dict[str, int]:
    """Return the frontier of each output after a batch."""
    # All shards have the same intervals.
    intervals = report.commits[0].intervals if report.commits else {}
    of = {shown(name): interval for name, interval in intervals.items()}
    return {o.name: of[o.name][1] if o.name in of else report.upper for o in plan.published}


def of_plan(plan: Plan) -> Iterator[MetricSample]:
    """Make the samples that follow from the plan, and the counters that begin at 0."""
    yield MetricSample(RECORDS, (), 0)
    yield MetricSample(RESTARTS, (), 0)
    yield MetricSample(EDIT_KEYS, (), 0)
    for output in plan.published:
        yield MetricSample(UPDATES, (output.name,), 0)
    for kind in COUNTED:
        yield MetricSample(COUNTED_KINDS, (kind,), 0)
    yield from of_notices(plan, ())
    for name, each in joined(plan).arrangements.items():
        yield MetricSample(ARRANGEMENT_INFO, (name, str(each.arrangement)), 1)


def of_notices(plan: Plan, notices: Sequence[Notice]) -> Iterator[MetricSample]:
    """Make the samples of the notices that hold now."""
    for labels, count in counts([source.name for source in plan.inputs], notices).items():
        yield MetricSample(NOTICES, labels, count)


def of_start(plan: Plan, version: str, start: RunStart) -> Iterator[MetricSample]:
    """Make the samples of a take-over."""
    yield MetricSample(INFO, (version, start.checkpoint, plan.time), 1)
    yield MetricSample(INCARNATION, (), start.incarnation)
    yield from of_fast_paths(start.fast_paths)


def of_fast_paths(paths: Sequence[FastPath]) -> Iterator[MetricSample]:
    """Make the samples of the fast paths."""
    for path in paths:
        yield MetricSample(FAST_PATH, (path.name,), not path.why_not)


def of_restart() -> Iterator[MetricSample]:
    """Make the sample of a restart of the query."""
    yield MetricSample(RESTARTS, (), 1)


def of_batch(plan: Plan, report: BatchReport) -> Iterator[MetricSample]:
    """Make the samples of a committed batch."""
    yield MetricSample(BATCH, (), report.batch)
    yield MetricSample(BEHIND, (), report.behind)
    if plan.is_dated:
        yield MetricSample(WAITING, (), report.waiting)
    yield MetricSample(RECORDS, (), report.records)
    filling = report.filling
    yield MetricSample(EDIT_PARTS, (), 0 if filling is None else filling.parts)
    yield MetricSample(EDIT_PARTS_DONE, (), 0 if filling is None else filling.done)
    yield MetricSample(EDIT_KEYS, (), 0 if filling is None else filling.keys)
    for output, count in report.counts.items():
        yield MetricSample(UPDATES, (output,), count)
    for kind, count in report.counted.items():
        yield MetricSample(COUNTED_KINDS, (kind,), count)
    for output, frontier in frontiers_of(plan, report).items():
        yield MetricSample(OUTPUT_FRONTIER, (output,), frontier)
    for commit in report.commits:
        shard, manifest = str(commit.shard), commit.manifest
        yield MetricSample(STATE_BYTES, (shard,), manifest.size)
        yield MetricSample(STATE_ENTRIES, (shard,), sum(run.entries for run in manifest.runs))
        yield MetricSample(STATE_FILES, (shard,), len(manifest.runs))
        yield MetricSample(STATE_VERSION, (shard,), manifest.version)
        base = manifest.runs[:1]
        yield MetricSample(BASE_VERSION, (shard,), sum(run.upper for run in base))
        yield MetricSample(BASE_BYTES, (shard,), sum(run.size for run in base))
        yield MetricSample(SHARD_RECORDS, (shard,), commit.records)
        yield MetricSample(SHARD_BYTES, (shard,), commit.size)
        for phase, seconds in commit.took.items():
            yield MetricSample(SHARD_SECONDS, (shard, phase), seconds)


def of_trigger(trigger: TriggerReport) -> Iterator[MetricSample]:
    """Make the samples of Spark's report on a batch."""
    for operator, frontier in trigger.frontiers.items():
        yield MetricSample(OPERATOR_FRONTIER, (operator,), frontier)
    for phase, took_ms in trigger.phases_ms.items():
        if phase == WHOLE:
            yield MetricSample(BATCH_SECONDS, (), took_ms / 1000)
        else:
            yield MetricSample(PHASE_SECONDS, (phase,), took_ms / 1000)


def of_inputs(plan: Plan, inputs: InputsState) -> Iterator[MetricSample]:
    """Make the samples of the inputs with times of their own."""
    for name, frontier in inputs.frontiers.items():
        yield MetricSample(INPUT_FRONTIER, (name,), frontier)
    for source in plan.inputs:
        if source.is_dated:
            yield MetricSample(INPUT_SILENT, (source.name,), source.name in inputs.silent)
            yield MetricSample(INPUT_HOLDS, (source.name,), source.name in inputs.held_by)


def of_sinks(sinks: Mapping[str, SinkFigures]) -> Iterator[MetricSample]:
    """Make the samples of the sinks, as they have told of themselves."""
    for name, each in sinks.items():
        yield MetricSample(SINK_READY, (name,), each.ready)
        yield MetricSample(SINK_RESTARTS, (name,), each.restarts)
        yield MetricSample(SINK_BEHIND, (name,), each.behind)
        for metric, value in ((SINK_FRONTIER, each.frontier), (SINK_LAG, each.lag_s)):
            if value is not None:
                yield MetricSample(metric, (name,), value)


def of_moment(
    health: Health,
    operators: Mapping[str, int],
    outputs: Mapping[str, int],
    now_ms: int,
) -> Iterator[MetricSample]:
    """Make the samples that change with the clock, from the last frontiers."""
    yield MetricSample(LIVE, (), health.live().good)
    yield MetricSample(READY, (), health.ready().good)
    yield MetricSample(QUIET, (), health.quiet_s)
    if health.lag_s is not None:
        yield MetricSample(LAG, (), health.lag_s)
    for metric, frontiers in ((OPERATOR_LAG, operators), (OUTPUT_LAG, outputs)):
        for name, frontier in frontiers.items():
            if (lag := lag_s(frontier, now_ms)) is not None:
                yield MetricSample(metric, (name,), lag)


# The most hashes of an input or join; later ones are reported as one.
_MOST_HASHES = 10
OTHER_KEYS = "other"


class HotSeries:
    """The hottest keys so far as series: the present one has its value, earlier ones have 0."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[str, str], dict[str, None]] = {}
        self._last: dict[tuple[str, str], str] = {}

    def samples(self, keys: Iterable[Hot]) -> Iterator[MetricSample]:
        """Make the samples of a batch in which these keys were the hottest."""
        now = {(hot.kind, shown(hot.of)): hot for hot in keys if hot.hash}
        for name, before in self._last.items():
            if name not in now:
                yield _hot_sample(*name, before, 0.0)
        self._last = {name: self._last[name] for name in self._last if name in now}
        for name, hot in now.items():
            hashes = self._hashes.setdefault(name, {})
            label = hot.hash if hot.hash in hashes or len(hashes) < _MOST_HASHES else OTHER_KEYS
            hashes[label] = None
            before = self._last.get(name, label)
            if before != label:
                yield _hot_sample(*name, before, 0.0)
            self._last[name] = label
            yield _hot_sample(*name, label, hot.most if hot.kind == "matches" else hot.share)


def _hot_sample(kind: str, of: str, key: str, value: float) -> MetricSample:
    return MetricSample(JOIN_KEY_MATCHES if kind == "matches" else HOT_KEY_SHARE, (of, key), value)
