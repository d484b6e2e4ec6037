"""The schema of the pipeline file, and what its parts become.

One model a section, with the file's own keys; a key that is not here is refused, and so
is a value of another type, in our words.  Numbers may also be written as text, since
that is what a substituted variable is.  Ranges, and whether the parts fit together, are
for `Plan` and `Settings` to judge.
"""

import re
from difflib import get_close_matches
from typing import Annotated, Any, NoReturn, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from ikebana.processor.plan import (
    Format,
    Input,
    Output,
    OutputFormat,
    Plan,
    Start,
    TimeDomain,
    Upsert,
)
from ikebana.processor.settings import Settings

_FORMATS: tuple[str, ...] = get_args(Format)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)?")
_SECONDS = {"ms": 0.001, None: 1, "s": 1, "m": 60, "h": 3600}


def shown(value: object) -> str:
    """Name a value as the file has it; of lists and mappings only that they are one."""
    match value:
        case None:
            return "empty"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return str(value)


def did_you_mean(word: object, choices: tuple[str, ...]) -> str | None:
    """The choice that `word` is probably a misspelling of."""
    close = get_close_matches(word, choices, n=1) if isinstance(word, str) else []
    return close[0] if close else None


def _refuse(value: object, wanted: str, choices: tuple[str, ...] = ()) -> NoReturn:
    close = did_you_mean(value, choices)
    problem = f"must be {wanted}; is {shown(value)}"
    problem += f'; did you mean "{close}"?' if close else ""
    # Given as context, since a template would read the braces that it may hold.
    raise PydanticCustomError("ikebana", "{problem}", {"problem": problem})


def _text(value: object) -> object:
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict | None):
        _refuse(value, "text")
    _refuse(value, "text (put it in quotes)")


def _whole(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"[0-9]+", value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    _refuse(value, "a whole number")


def _seconds(value: object) -> object:
    if isinstance(value, str) and (duration := _DURATION.fullmatch(value)):
        return float(duration[1]) * _SECONDS[duration[2]]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    _refuse(value, "a number of seconds, or a duration such as 500ms, 10s or 5m")


def _scalar(value: object) -> object:
    if isinstance(value, list | dict | None):
        _refuse(value, "text, a number, true or false")
    return value if isinstance(value, str) else shown(value)


def _topics(value: object) -> object:
    topics = value if isinstance(value, list) else [value]
    if not all(isinstance(topic, str) for topic in topics):
        _refuse(value, "a topic or a list of topics")
    return tuple(topics)


def _formats(value: object) -> object:
    if isinstance(value, str) and value in _FORMATS:
        return {"key": value, "value": value}
    if isinstance(value, dict):
        return value
    _refuse(value, '"json", "bytes" or {key: …, value: …}', _FORMATS)


def _choice(literal: Any) -> BeforeValidator:
    choices: tuple[str, ...] = get_args(literal)

    def chosen(value: object) -> object:
        if value in choices:
            return value
        _refuse(value, " or ".join(f'"{choice}"' for choice in choices), choices)

    return BeforeValidator(chosen)


Text = Annotated[str, BeforeValidator(_text)]
Whole = Annotated[int, BeforeValidator(_whole)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
Scalars = dict[str, Annotated[str, BeforeValidator(_scalar)]]


class Part(BaseModel):
    """A section of the file; a key without a value is as if it were not there."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, value: object) -> object:
        if isinstance(value, dict):
            return {key: item for key, item in value.items() if item is not None}
        return value

    @classmethod
    def keys(cls) -> dict[str, Any]:
        """The keys that may stand in this section, with their types."""
        return {f.alias or name: f.annotation for name, f in cls.model_fields.items()}


class FormatsPart(Part):
    """`inputs.<name>.format`, written in full."""

    key: Annotated[Format, _choice(Format)] = "json"
    value: Annotated[Format, _choice(Format)] = "json"


class InputPart(Part):
    """`inputs.<name>`."""

    topic: Annotated[tuple[str, ...], BeforeValidator(_topics)]
    format: Annotated[FormatsPart, BeforeValidator(_formats)] = FormatsPart()
    start: Annotated[Start, _choice(Start)] = "earliest"


class OperatorPart(Part):
    """`operators.<name>`."""

    upsert: Text


class OutputPart(Part):
    """`outputs.<name>`."""

    source: Text = Field(alias="from")
    topic: Text
    format: Annotated[OutputFormat, _choice(OutputFormat)] = "diff"
    partitions: Whole | None = None


class ErrorsPart(Part):
    """`errors`."""

    topic: Text = ""


class SourcePart(Part):
    """`source`."""

    max_records_per_batch: Whole = 250_000
    kafka: Scalars = {}


class SinkPart(Part):
    """`sink`."""

    kafka: Scalars = {}
    topics: Scalars = {}
    replication_factor: Whole = 1


class RunPart(Part):
    """`run`."""

    checkpoint: Text = ""
    shards: Whole = 4
    trigger_interval: Seconds = 0.0
    heartbeat: Seconds = 10.0
    local_directory: Text | None = None
    master: Text = "local[*]"
    driver_memory: Text = "1g"
    retained_batches: Whole = 20
    max_batch: Seconds = 300.0


class PlanPart(Part):
    """The sections that say what is computed."""

    pipeline: Text
    inputs: dict[str, InputPart]
    operators: dict[str, OperatorPart]
    outputs: dict[str, OutputPart]
    errors: ErrorsPart = ErrorsPart()
    time: Annotated[TimeDomain, _choice(TimeDomain)] = "ingest"

    def plan(self) -> Plan:
        """The plan that these sections describe.  Raises: PlanError."""
        return Plan(
            name=self.pipeline,
            inputs=tuple(
                Input(name, i.topic, i.format.value, i.format.key, i.start)
                for name, i in self.inputs.items()
            ),
            operators=tuple(Upsert(name, o.upsert) for name, o in self.operators.items()),
            outputs=tuple(
                Output(name, o.source, o.topic, o.format, o.partitions)
                for name, o in self.outputs.items()
            ),
            error_topic=self.errors.topic,
            time=self.time,
        )


class SettingsPart(Part):
    """The sections that say where and how."""

    kafka: Scalars = {}
    source: SourcePart = SourcePart()
    sink: SinkPart = SinkPart()
    run: RunPart = RunPart()
    spark: Scalars = {}

    def settings(self, *, bootstrap_servers: str | None, checkpoint: str | None) -> Settings:
        """The settings of these sections; arguments win.  Raises: SettingsError."""
        given = {} if bootstrap_servers is None else {"bootstrap.servers": bootstrap_servers}
        return Settings(
            checkpoint=self.run.checkpoint if checkpoint is None else checkpoint,
            kafka={**self.kafka, **given},
            source_kafka=self.source.kafka,
            sink_kafka=self.sink.kafka,
            shards=self.run.shards,
            max_records_per_batch=self.source.max_records_per_batch,
            trigger_interval_s=self.run.trigger_interval,
            heartbeat_s=self.run.heartbeat,
            local_directory=self.run.local_directory,
            master=self.run.master,
            driver_memory=self.run.driver_memory,
            spark=self.spark,
            retained_batches=self.run.retained_batches,
            max_batch_s=self.run.max_batch,
            topic_settings=self.sink.topics,
            replication_factor=self.sink.replication_factor,
        )


class PipelineFile(SettingsPart, PlanPart):
    """The whole file."""


def part_keys(path: tuple[int | str, ...]) -> tuple[str, ...]:
    """The keys that may stand in the section at `path`."""
    here: Any = PipelineFile
    for step in path:
        # A section is a model, or a mapping from names to sections of one kind.
        keyed = isinstance(here, type) and issubclass(here, Part)
        here = here.keys()[step] if keyed else get_args(here)[1]
    return tuple(here.keys())


def worded(error: ErrorDetails) -> str:
    """What is wrong, in the file's terms."""
    kind, value = error["type"], error["input"]
    if kind == "missing":
        return "is missing"
    if kind in ("dict_type", "model_type"):
        return f"must be a mapping; is {shown(value)}"
    if kind == "extra_forbidden":
        allowed = part_keys(error["loc"][:-1])
        if close := did_you_mean(error["loc"][-1], allowed):
            return f'there is no such setting here; did you mean "{close}"?'
        return f"there is no such setting here; there are {', '.join(allowed)}"
    return error["msg"]
