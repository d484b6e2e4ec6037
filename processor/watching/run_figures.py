"""The figures of a run for its console: by input, operator and output, and of its last edit."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from ikebana.processor.checkpoint.edit_plan import EditPlan
from ikebana.processor.watching import metrics
from ikebana.processor.watching.batch_report import Filling
from ikebana.processor.watching.history import HistorySample
from ikebana.processor.watching.metrics import Metric
from ikebana.processor.watching.notes import NoticeFigures
from ikebana.processor.watching.sinks import SinkFigures


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


class State(msgspec.Struct):
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
    state: State


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
        state=State(
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
    edit: EditPlan | None,
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
