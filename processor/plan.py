"""The dataflow as immutable values: inputs, keyed operators, outputs.

A plan says what is computed and nothing of where: brokers, checkpoints and batch sizes
are `Settings`.  Names identify operators in the state of a running pipeline, so a name
is kept as long as its state is wanted.  A plan that exists is consistent: building one
that is not raises a `PlanError` that lists every problem.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from ikebana.arrangements.errors import PlanError
from ikebana.codecs.progress import Promise

Format = Literal["json", "bytes"]
OutputFormat = Literal["diff"]
Start = Literal["earliest", "latest"]
# ingest: each micro-batch has one time, milliseconds.  offset: each record has its own.
TimeDomain = Literal["ingest", "offset"]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Input:
    """Topics of keyed upserts; several topics are one relation, ordered as listed."""

    name: str
    topics: tuple[str, ...]
    value_format: Format = "json"
    key_format: Format = "json"
    start: Start = "earliest"


@dataclass(frozen=True, slots=True)
class Upsert:
    """The collection of (key, current value) that an input's upserts describe."""

    name: str
    input: str


@dataclass(frozen=True, slots=True)
class Output:
    """A topic that receives the updates of an operator's collection."""

    name: str
    source: str
    topic: str
    format: OutputFormat = "diff"
    partitions: int | None = None
    """How many partitions to make the topic with; None: as many as its input has."""

    @property
    def progress_topic(self) -> str:
        """Where the frontier of this output is published."""
        return self.topic + ".progress"


@dataclass(frozen=True, slots=True)
class Plan:
    """Inputs, operators and outputs that fit together."""

    name: str
    inputs: tuple[Input, ...]
    operators: tuple[Upsert, ...]
    outputs: tuple[Output, ...]
    error_topic: str = ""
    """The topic of what could not be used; `<name>.errors` when empty."""
    time: TimeDomain = "ingest"

    def __post_init__(self) -> None:
        if not self.error_topic:
            object.__setattr__(self, "error_topic", self.name + ".errors")
        if problems := list(_problems(self)):
            raise PlanError(self.name, problems)

    @property
    def published(self) -> tuple[Output, ...]:
        """Every output with a progress topic: the named ones, then the errors."""
        return (*self.outputs, Output(ERRORS, "", self.error_topic, partitions=1))

    @property
    def markers_topic(self) -> str:
        """Where shards mark what they have committed; the pipeline's own, by its name."""
        return self.name + ".markers"

    def input(self, name: str) -> Input:
        """The input of that name."""
        return next(i for i in self.inputs if i.name == name)

    def promise(self, output: Output) -> Promise:
        """What a reader of `output` may rely on."""
        # An upsert's own collection has one value a key; two bad values that stand in
        # different places can give the same error record twice, so errors only count.
        return "upserts" if output.source else "collection"

    def fingerprint(self) -> str:
        """Names the plan in offsets and markers: a replay under another plan is refused."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:16]


ERRORS = "errors"


def _problems(plan: Plan) -> Iterator[tuple[str, str]]:
    """Every reason why the parts of a plan do not fit, with the path of the part."""
    yield from _name_problems("pipeline", plan.name)
    inputs = {i.name: i for i in plan.inputs}
    operators = {o.name: o for o in plan.operators}
    for kind, parts in (
        ("inputs", plan.inputs),
        ("operators", plan.operators),
        ("outputs", plan.outputs),
    ):
        if not parts:
            yield kind, "at least one is needed"
        counted = Counter(part.name for part in parts)
        for name, count in counted.items():
            yield from _name_problems(f"{kind}.{name}", name)
            if count > 1:
                yield f"{kind}.{name}", f"the name is used {count} times"
    for i in plan.inputs:
        if not i.topics:
            yield f"inputs.{i.name}.topic", "at least one topic is needed"
    readers: dict[str, str] = {}
    for operator in plan.operators:
        if operator.input in readers:
            yield (
                f"operators.{operator.name}.upsert",
                f"operator {readers[operator.input]!r} already upserts {operator.input!r}; "
                "use it, outputs may share an operator",
            )
        readers[operator.input] = operator.name
        if operator.input not in inputs:
            yield (
                f"operators.{operator.name}.upsert",
                f"there is no input {operator.input!r}{_among(inputs)}",
            )
    for output in plan.outputs:
        if output.name == ERRORS:
            yield f"outputs.{ERRORS}", "the name is taken by the error topic"
        if output.source not in operators:
            yield (
                f"outputs.{output.name}.from",
                f"there is no operator {output.source!r}{_among(operators)}",
            )
        if output.partitions is not None and output.partitions < 1:
            yield f"outputs.{output.name}.partitions", "must be at least 1"
    yield from _topic_problems(plan)


def _topic_problems(plan: Plan) -> Iterator[tuple[str, str]]:
    read = {topic: f"inputs.{i.name}.topic" for i in plan.inputs for topic in i.topics}
    written = {plan.markers_topic: "pipeline"}
    if plan.markers_topic in read:
        yield (
            "pipeline",
            (f"topic {plan.markers_topic!r} is also read, at {read[plan.markers_topic]}"),
        )
    places = [(f"outputs.{o.name}.topic", o.topic) for o in plan.outputs]
    places.append(("errors.topic", plan.error_topic))
    for path, topic in [*((path, topic) for topic, path in read.items()), *places]:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            yield path, f"{topic!r} is not a Kafka topic name (letters, digits, '.', '_', '-')"
    listed: dict[str, str] = {}
    for i in plan.inputs:
        for topic in i.topics:
            if topic in listed:
                yield f"inputs.{i.name}.topic", f"topic {topic!r} is also read, at {listed[topic]}"
            listed[topic] = f"inputs.{i.name}.topic"
    for path, topic in places:
        if _TOPIC.fullmatch(topic) and not _TOPIC.fullmatch(topic + ".progress"):
            yield path, f"{topic!r} is too long to have a topic '<topic>.progress' beside it"
        for used in (topic, topic + ".progress"):
            if used in read:
                yield path, f"topic {used!r} is also read, at {read[used]}"
            elif used in written:
                yield path, f"topic {used!r} is also written, at {written[used]}"
            written[used] = path


def _name_problems(path: str, name: str) -> Iterator[tuple[str, str]]:
    if not _NAME.fullmatch(name):
        yield path, f"{name!r} is not a name (letters, digits, '.', '_', '-')"


def _among(names: Mapping[str, object]) -> str:
    return f"; there are {', '.join(sorted(names))}" if names else ""
