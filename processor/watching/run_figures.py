"""The figures of a run for its console: what changes, by input, operator and output."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from ikebana.processor.watching import metrics
from ikebana.processor.watching.history import Sample
from ikebana.processor.watching.metrics import Metric
from ikebana.processor.watching.notes import NoticeFigures


class Series(NamedTuple):
    """The value of one series, by the labels of its metric without that of the pipeline."""

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
    """A run at a moment; `counted` has errors, late and drifted records by kind.

    `notices` are what is probably not meant.
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
    counted: dict[str, int]
    state: State


def run_figures(
    pipeline: str,
    verdict: tuple[bool, str],
    notices: list[NoticeFigures],
    series: Iterable[Series],
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
        counted={name: int(value) for name, value in by_name(metrics.COUNTED_KINDS).items()},
        state=State(
            len(sizes), int(sum(sizes.values())), int(sum(by_name(metrics.STATE_ENTRIES).values()))
        ),
    )


def samples(figures: RunFigures) -> dict[str, Sample]:
    """Take the samples of the outputs, and of the whole by no name: how many records it read."""
    found = {name: Sample(each.lag_s, each.updates) for name, each in figures.outputs.items()}
    return {"": Sample(figures.lag_s, figures.records), **found}


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
