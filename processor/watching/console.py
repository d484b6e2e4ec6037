"""What the console shows of any run or server: the drawing of a plan, and the last hour.

The drawing is that of `ikebana explain`, with room for the figures of running parts and without a
style of its own.  In its SVG, a box has its id in `data-box`, and the text of a figure has the
figure's name in `data-figure`.

Lag and throughput are kept for an hour, for charts that begin before they are opened.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from ikebana.errors import IkebanaError
from ikebana.processor.authoring.deliver_section import DeliverSection
from ikebana.processor.explain.explanation import explained
from ikebana.processor.explain.graph import Diagram, with_sinks
from ikebana.processor.explain.pictures import drawing
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.plan import Plan


class NoPlanError(IkebanaError):
    """A server has no plan to draw."""


def no_plan() -> "PlanView":
    """Say that there is no plan to draw."""
    raise NoPlanError(
        "there is no plan: topics are served by their names",
        hint="Start `ikebana serve` with the file of a pipeline.",
    )


class Drawing(msgspec.Struct):
    """A picture as SVG; `width` is in pixels."""

    title: str
    width: int
    svg: str


class PlanView(msgspec.Struct):
    """The drawings of a plan as it runs and as it is written.

    `boxes`: the name of the part with the figures of a box, by the id of the box.  `errors`: the
    collection of the pipeline's errors, if it can be read at the same place.
    """

    name: str
    fingerprint: str
    time: str
    boxes: dict[str, str]
    drawings: list[Drawing]
    errors: str | None = None


class Figured(msgspec.Struct, frozen=True):
    """A running part with figures: its name, and the names of the figures."""

    name: str
    figures: tuple[str, ...]


_NO_SINKS: Mapping[str, DeliverSection] = {}


def plan_view(
    plan: Plan, figured: Mapping[str, Figured], sinks: Mapping[str, DeliverSection] = _NO_SINKS
) -> PlanView:
    """Draw a plan and its sinks, with room for figures in some boxes, by their ids.

    Raises:
        PlanError: the parts of the plan do not fit.
    """
    explanation = explained(plan)
    run = _with_room(with_sinks(explanation.run, sinks), figured)
    return PlanView(
        name=explanation.name,
        fingerprint=explanation.fingerprint,
        time=explanation.time,
        boxes={box.id: figured[box.id].name for box in run.boxes if box.figures},
        drawings=[_drawn(run), _drawn(explanation.written)],
    )


def of_served(plan: Plan) -> PlanView:
    """Draw a plan with served outputs; the figures of an output belong to its topic."""
    figures = ("frontier", "lag", "keys", "rate")
    view = plan_view(
        plan, {f"output {each.name}": Figured(each.topic, figures) for each in plan.published}
    )
    return msgspec.structs.replace(view, errors=plan.error_topic)


def of_run(plan: Plan, sinks: Mapping[str, DeliverSection] = _NO_SINKS) -> PlanView:
    """Draw a running plan; the figures of a box belong to its input, operator, output or sink."""
    dated = [source for source in plan.inputs if source.is_dated]
    stateful = [each.name for each in plan.operators if not kind_of(each).is_linear]
    figured = {f"decoding {each.name}": Figured(each.name, ("frontier", "held")) for each in dated}
    # The box of an operator shows its state, or the results of a join.
    for name in stateful:
        figured[f"state {name}"] = figured[f"join {name}"] = Figured(name, ("frontier", "lag"))
    figured |= {
        f"output {each.name}": Figured(each.name, ("frontier", "lag", "rate"))
        for each in plan.published
    }
    of_sink = ("state", "frontier", "lag")
    figured |= {f"sink {name}": Figured(name, of_sink) for name in sinks}
    return plan_view(plan, figured, sinks)


def _with_room(graph: Diagram, figured: Mapping[str, Figured]) -> Diagram:
    boxes = [
        box._replace(figures=figured[box.id].figures) if box.id in figured else box
        for box in graph.boxes
    ]
    return Diagram(graph.title, tuple(boxes), graph.arrows)


def _drawn(graph: Diagram) -> Drawing:
    width, svg = drawing(graph, graph.title, styled=False)
    return Drawing(graph.title, width, svg)


class PlanOfFile:
    """Draws the plan of a file, again when the file has changed.

    `read` reads the plan, and `version` returns the version of the file.  While a changed file
    cannot be read, the drawing stays the same.
    """

    def __init__(
        self, plan: Plan, read: Callable[[], Plan], version: Callable[[], object]
    ) -> None:
        self._read, self._version = read, version
        self._drawn = version(), of_served(plan)

    def __call__(self) -> PlanView:
        """Draw the plan as it is in the file now."""
        version = self._version()
        if version != self._drawn[0]:
            with contextlib.suppress(IkebanaError):
                self._drawn = version, of_served(self._read())
        return self._drawn[1]


# A sample every few seconds makes an hour.
EVERY_MS = 5_000
CAPACITY = 720


class HistorySample(NamedTuple):
    """The lag in seconds and the count of updates at a moment; None if they are not known."""

    lag: float | None
    updates: int | None


NOTHING = HistorySample(None, None)


class Samples(msgspec.Struct):
    """The lag in seconds and the count of a series at each moment; null if it was not known."""

    lag: list[float | None]
    updates: list[int | None]


class Past(msgspec.Struct):
    """The moments of all samples in milliseconds, and the samples of each series by its name."""

    at: list[int]
    series: dict[str, Samples]


class SampleHistory:
    """The samples of several series, the last `CAPACITY` of them; every method is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[tuple[int, Mapping[str, HistorySample]]] = deque(maxlen=CAPACITY)

    def take(self, now_ms: int, figures: Callable[[], Mapping[str, HistorySample]]) -> None:
        """Take a sample of each series, if the last one is old enough."""
        with self._lock:
            if self._samples and now_ms - self._samples[-1][0] < EVERY_MS:
                return
            self._samples.append((now_ms, figures()))

    def past(self) -> Past:
        """Return all samples."""
        with self._lock:
            samples = list(self._samples)
        names = dict.fromkeys(name for _, each in samples for name in each)
        return Past([at for at, _ in samples], {name: _of(name, samples) for name in names})


def _of(name: str, samples: list[tuple[int, Mapping[str, HistorySample]]]) -> Samples:
    series = [each.get(name, NOTHING) for _, each in samples]
    return Samples([each.lag for each in series], [each.updates for each in series])
