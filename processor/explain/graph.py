"""Make graphs of a plan, with boxes and arrows: as it is written, and as it is run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

from ikebana.processor.authoring.deliver_section import DeliverSection
from ikebana.processor.base.texts import counted, printable
from ikebana.processor.explain import operators, reading
from ikebana.processor.explain.words import listed, named_lines, steps_lines
from ikebana.processor.linear.chain import Named
from ikebana.processor.linear.steps import Call
from ikebana.processor.planning import outputs, planner, progress
from ikebana.processor.planning.graph import graph_of
from ikebana.processor.planning.kinds import kind_of
from ikebana.processor.planning.plan import (
    ERRORS,
    Input,
    Output,
    Plan,
)
from ikebana.processor.planning.planner import Branch, Physical
from ikebana.processor.planning.progress import held_outputs

BoxKind = Literal[
    "topic",
    "input",
    "operator",
    "decoding",
    "state",
    "pass",
    "arrangement",
    "path",
    "join",
    "hold",
    "exchange",
    "output",
    "sink",
]

_PROMISES = {
    "upserts": "at most one value a key",
    "collection": "no count is negative",
    "changes": "sums may go below zero",
}
_POLICIES = {
    "record": "what cannot be used is recorded, and the pipeline goes on",
    "drop": "what cannot be used is only counted",
    "fail": "the first that cannot be used stops the pipeline",
}


class Box(NamedTuple):
    """A node of the graph, with a title and lines of description.

    `figures` are names of live values, such as frontiers, for which a picture leaves room.
    """

    id: str
    kind: BoxKind
    title: str
    lines: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()


class Arrow(NamedTuple):
    """The flow of data from one box to another, by their ids."""

    origin: str
    target: str


@dataclass(frozen=True, slots=True)
class Diagram:
    """A directed graph without cycles; boxes come before those to which they lead."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def as_written(plan: Plan) -> Diagram:
    """Draw inputs, operators and outputs in the form of the pipeline file."""
    ids = {source.name: f"input {source.name}" for source in plan.inputs}
    boxes = [Box(ids[i.name], "input", i.name, tuple(input_lines(i))) for i in plan.inputs]
    arrows: list[Arrow] = []
    # An operator may have the name of an input if no other operator reads that input.
    collections = {s.name: ids[s.name] for s in plan.inputs if s.is_collection}
    collections |= {operator.name: f"operator {operator.name}" for operator in plan.operators}
    for operator in plan.operators:
        lines = operators.written(operator)
        kind = kind_of(operator)
        origins = dict.fromkeys(kind.sources(operator))
        box_id = collections[operator.name]
        boxes.append(Box(box_id, "operator", operator.name, tuple(lines)))
        arrows += [
            Arrow((ids if kind.reads_rows else collections)[name], box_id) for name in origins
        ]
    for output in plan.outputs:
        box_id = f"output {output.name}"
        lines = [f"from: {output.source}", f"topic: {output.topic}", f"format: {output.format}"]
        if output.partitions is not None:
            lines.append(f"partitions: {output.partitions}")
        boxes.append(Box(box_id, "output", output.name, tuple(lines)))
        arrows.append(Arrow(collections[output.source], box_id))
    return Diagram("as written", _in_order(boxes, arrows), tuple(arrows))


def _behind(exchanges: int) -> Iterator[str]:
    if exchanges:
        yield f"its frontier follows {counted(exchanges, 'exchange')} behind the input's"


_HELD = (
    "updates that are early wait in the shards",
    "until the frontier has passed their time",
)


def as_run(plan: Plan, physical: Physical) -> Diagram:
    """Draw topics, decoding, state, passes, holds and outputs."""
    drawing = _Drawing(plan, physical)
    drawing.inputs()
    drawing.makers_of_keys()
    drawing.joins()
    drawing.outputs()
    unique = tuple(dict.fromkeys(drawing.arrows))
    return Diagram("as run", _in_order(drawing.boxes, list(unique)), unique)


def with_sinks(graph: Diagram, sinks: Mapping[str, DeliverSection]) -> Diagram:
    """Add sinks to a graph, with arrows from the outputs that they read."""
    boxes, arrows = list(graph.boxes), list(graph.arrows)
    for name, sink in sinks.items():
        box_id = f"sink {name}"
        lines = [f"table {key} from {table.source}" for key, table in sink.tables.items()]
        boxes.append(Box(box_id, "sink", name, (f"into {' '.join(sink.targets)}", *lines)))
        outputs = dict.fromkeys(table.source for table in sink.tables.values())
        arrows += [Arrow(f"output {output}", box_id) for output in outputs]
    return Diagram(graph.title, tuple(boxes), tuple(arrows))


class _Drawing:
    """The boxes and arrows of a plan as it runs, while they are added."""

    def __init__(self, plan: Plan, physical: Physical) -> None:
        self.boxes: list[Box] = []
        self.arrows: list[Arrow] = []
        self._plan = plan
        self._physical = physical
        self._held = held_outputs(plan, physical)
        self._graph = progress.edges(plan)

    def inputs(self) -> None:
        """Add topics, decoding, and the state that inputs fill."""
        plan = self._plan
        for source in plan.inputs:
            decoding = f"decoding {source.name}"
            for topic in source.topics:
                if plan.readers(topic)[0] == source:
                    self.boxes.append(Box(f"topic {topic}", "topic", topic))
                self.arrows.append(Arrow(f"topic {topic}", decoding))
            lines = tuple(reading.decoding_lines(plan, source, self._physical))
            self.boxes.append(Box(decoding, "decoding", source.name, lines))
            for root in reading.roots_of(plan, source):
                at = decoding
                if root != source.name or not source.is_collection:
                    at = self._state(root)
                    self.arrows.append(Arrow(decoding, at))
                self._branch(root, at)
        for topic in plan.transaction_topics:
            self.boxes.append(Box(f"topic {topic}", "topic", topic, ("tells of transactions",)))
        self.arrows += [
            Arrow(f"topic {source.transaction_topic}", f"decoding {source.name}")
            for source in plan.inputs
            if source.transaction_topic is not None
        ]

    def makers_of_keys(self) -> None:
        """Add the state of operators with a key of their own, and the exchanges to it."""
        for node in graph_of(self._plan).makers_of_keys:
            if self._graph[node.name].exchanges:
                box_id = f"exchange {node.name}"
                lines = _exchange_lines(self._plan)
                self.boxes.append(Box(box_id, "exchange", node.name, lines))
                self.arrows.append(Arrow(box_id, f"state {node.name}"))
            self._branch(node.name, self._state(node.name))

    def joins(self) -> None:
        """Add the arrangements of joins, their paths, and their results."""
        for part in operators.parts(self._plan):
            self.boxes.append(Box(part.id, part.kind, part.title, part.lines))
            self.arrows += [Arrow(origin, part.id) for origin in part.origins]
        for join in self._plan.joins:
            self._branch(join.name, operators.join_id(join.name))

    def outputs(self) -> None:
        """Add outputs, and the holds of their early updates."""
        depths = progress.depths(self._graph)
        producers = progress.producers(self._plan)
        for output in self._plan.published:
            if output.name in self._held:
                self.boxes.append(Box(f"hold {output.name}", "hold", output.name, _HELD))
                self.arrows.append(Arrow(f"hold {output.name}", f"output {output.name}"))
            if output.name in (gathered := planner.gathered(self._plan)):
                box_id = f"exchange {gathered[output.name]}"
                lines = _exchange_lines(self._plan)
                self.boxes.append(Box(box_id, "exchange", output.name, lines))
                self.arrows.append(Arrow(box_id, self._end(output.name)))
            lines = (*output_lines(self._plan, output), *_repeats(self._physical, output))
            behind = max(depths[root] for root in producers[output.name])
            lines += tuple(_behind(behind))
            self.boxes.append(Box(f"output {output.name}", "output", output.name, lines))

    def _end(self, output: str) -> str:
        return f"{'hold' if output in self._held else 'output'} {output}"

    def _state(self, name: str) -> str:
        self.boxes.append(Box(f"state {name}", "state", name, _state_lines(self._plan, name)))
        return f"state {name}"

    def _branch(self, root: str, at: str) -> None:
        """Add the passes after a root, whose box is `at`, and their arrows."""
        fed, arranges = operators.boxes_of_feeds(self._plan), operators.arranges(self._plan)
        for number, branch in enumerate(self._physical.branches[root]):
            ends = []
            for name in branch.outputs:
                inlet = planner.inlet_of(name)
                ends.append(f"exchange {inlet}" if inlet in branch.exchanges else self._end(name))
            others = [planner.inlet_of(name) for name in branch.outputs]
            for names, kind in ((branch.inlets, "state"), (branch.exchanges, "exchange")):
                ends += [fed.get(name, f"{kind} {name}") for name in names if name not in others]
            begin = at
            # The box of an arrangement names its key itself.
            if any(name not in arranges for name, _ in branch.steps):
                begin = f"pass {root} {number}"
                self.boxes.append(_pass(self._plan, self._physical, branch, begin))
                self.arrows.append(Arrow(at, begin))
            self.arrows += [Arrow(begin, end) for end in dict.fromkeys(ends)]


def input_lines(source: Input) -> Iterator[str]:
    """Write an input in the form of the file, without default values."""
    yield f"topic: {', '.join(source.topics)}"
    if source.key_format == source.value_format or (
        source.key_format == "json" and source.traits.is_updates
    ):
        yield f"format: {source.value_format}"
    else:
        yield f"format: key {source.key_format}, value {source.value_format}"
    yield f"mode: {source.mode}, start: {source.start}"
    if source.columns:
        yield f"columns: {len(source.columns)} declared"
        for column in source.columns:
            encoded = f", {column.encoding}" if column.encoding else ""
            yield "  " + printable(f"{column.name}: {column.type}{encoded}")
    if source.key:
        yield f"key: {', '.join(map(printable, source.key))}"
    for columns in source.unique:
        yield f"unique: {', '.join(map(printable, columns))}"
    if source.size is not None:
        yield f"size: {source.size:,}"
    if source.tables is not None:
        yield f"tables: {printable(source.tables)}"
    if not source.drift:
        yield "drift: false"
    if source.schema is not None:
        yield "schema: given"
    if source.event_time is not None:
        yield f"event time: {reading.event_time_line(source.event_time)}"
    if source.history is not None:
        yield printable(f"history: {', '.join(source.history.names)}")
    for name, value in source.options:
        yield printable(f"options.{name}: {value}")


def output_lines(plan: Plan, output: Output) -> Iterator[str]:
    """Describe an output's messages and its guarantees for readers."""
    promise = outputs.promise(plan, output)
    yield f"topic {output.topic}, as {output.format}"
    yield f"progress in {output.progress_topic}"
    yield f"promises {promise}: {_PROMISES[promise]}"
    if outputs.watches_values(plan, output):
        yield "watched: its state has each key's rows, and a second value of a key is an error"
    if output.name == ERRORS:
        yield _POLICIES[plan.on_error]


def _state_lines(plan: Plan, root: str) -> tuple[str, ...]:
    """Describe the state of each key."""
    node = graph_of(plan).nodes[root]
    assert node.operator is not None, root
    more = operators.of_upsert(plan, root) if node.is_of_decoding else ()
    return operators.state_of(node.operator), "1 arrangement, by key, in the shards", *more


def _exchange_lines(plan: Plan) -> tuple[str, ...]:
    return (
        "to the shards of other keys, a micro-batch later",
        f"through topic {plan.exchange_topic}",
    )


def _repeats(physical: Physical, output: Output) -> Iterator[str]:
    """Describe the collections that reach an output more than once, so that it shows repeats."""
    for root, branches in physical.branches.items():
        for branch in branches:
            if (count := branch.outputs.count(output.name)) > 1:
                through = f" through {listed(_names(branch))}" if branch.steps else ""
                yield f"shows {root}{through} {count} times"


def _names(branch: Branch) -> list[str]:
    return list(dict.fromkeys(name for name, _ in branch.steps))


def fused(steps: tuple[Named, ...]) -> str:
    """Describe how many operators a pass has, and what executes it."""
    names = dict.fromkeys(name for name, _ in steps)
    calls = [called for called, _ in groupby(isinstance(step, Call) for _, step in steps)]
    parts = []
    if statements := calls.count(False):
        parts.append(counted(statements, "SQL statement"))
    if calls.count(True):
        parts.append(counted(calls.count(True), "run") + " of Python")
    return f"{counted(len(names), 'operator')} in 1 pass: {', '.join(parts)}"


def _pass(plan: Plan, physical: Physical, branch: Branch, box_id: str) -> Box:
    where = "in the shards"
    node = graph_of(plan).nodes[branch.root]
    if node.operator is not None and node.is_of_decoding:
        where = "behind the upsert, in the shards"
    elif node.operator is None and physical.fused:
        where = "in the decoding tasks"
    names = _names(branch)
    steps = steps_lines([step for _, step in branch.steps])
    lines = [fused(branch.steps), where, *(named_lines(branch.steps) if len(names) > 1 else steps)]
    return Box(box_id, "pass", " + ".join(names), tuple(lines))


def _in_order(boxes: list[Box], arrows: list[Arrow]) -> tuple[Box, ...]:
    """Sort boxes before those to which they lead, and keep their order otherwise."""
    missing = {box.id: {a.origin for a in arrows if a.target == box.id} for box in boxes}
    waiting = list(boxes)
    result: list[Box] = []
    while waiting:
        box = next(box for box in waiting if missing[box.id] <= {done.id for done in result})
        waiting.remove(box)
        result.append(box)
    return tuple(result)
