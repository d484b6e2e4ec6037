"""The section of an input, and the `Input` that it becomes."""

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from ikebana.codecs.change import Column
from ikebana.codecs.formats import FORMATS, Format, KeyFormat
from ikebana.processor.authoring.values import (
    Expression,
    Part,
    Scalars,
    Text,
    Whole,
    as_column,
    as_columns,
    as_finite_seconds,
    as_flag,
    as_formats,
    as_names,
    as_schema,
    as_seconds_or_never,
    as_start,
    as_topics,
    as_unique,
    choice,
)
from ikebana.processor.planning.plan import (
    Clock,
    EventTime,
    History,
    Input,
    Metadata,
    Mode,
    OnNewColumn,
)


class FormatsPart(Part):
    """`inputs.<name>.format`, written in full."""

    key: Annotated[KeyFormat, choice(KeyFormat)] = "json"
    value: Annotated[Format, choice(Format)] = "json"


class ColumnPart(Part):
    """`inputs.<name>.columns.<name>`, written in full."""

    type: Text
    encoding: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_type(cls, value: object) -> object:
        return as_column(value)


class EventTimePart(Part):
    """`inputs.<name>.event_time`."""

    of: Expression | None = None
    clock: Annotated[Clock | None, choice(Clock)] = None
    lateness: Annotated[float, BeforeValidator(as_finite_seconds)] = 0.0
    idle: Annotated[float | None, BeforeValidator(as_seconds_or_never)] = 60.0
    ahead: Annotated[float | None, BeforeValidator(as_seconds_or_never)] = 86_400.0
    transactions: Text | None = None

    def event_time(self) -> EventTime:
        """The event time that this section describes."""
        idle, ahead = (None if s is None else round(s * 1000) for s in (self.idle, self.ahead))
        lateness = round(self.lateness * 1000)
        return EventTime(self.of, self.clock, lateness, idle, ahead, self.transactions)


class HistoryPart(Part):
    """`inputs.<name>.history`."""

    files: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    key: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    bare_key: Annotated[bool, BeforeValidator(as_flag)] = False
    iceberg: Text = ""
    delta: Text = ""
    version: Whole | None = None
    catalog: Scalars = {}

    def history(self) -> History:
        """What this section describes."""
        return History(
            self.files,
            self.key,
            self.bare_key,
            self.iceberg,
            self.delta,
            self.version,
            tuple(self.catalog.items()),
        )


class InputPart(Part):
    """`inputs.<name>`."""

    topic: Annotated[tuple[str, ...], BeforeValidator(as_topics)]
    format: Annotated[FormatsPart, BeforeValidator(as_formats)] = FormatsPart()
    start: Annotated[str, BeforeValidator(as_start)] = "earliest"
    mode: Annotated[Mode | None, choice(Mode)] = None
    columns: Annotated[dict[str, ColumnPart], BeforeValidator(as_columns)] = {}
    key: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    tables: Text | None = None
    drift: Annotated[bool, BeforeValidator(as_flag)] = True
    avro_schema: Annotated[str | None, BeforeValidator(as_schema)] = Field(None, alias="schema")
    options: Scalars = {}
    event_time: EventTimePart | None = None
    unique: Annotated[tuple[tuple[str, ...], ...], BeforeValidator(as_unique)] = ()
    size: Whole | None = None
    metadata: dict[str, Annotated[Metadata, choice(Metadata)]] = {}
    on_new_column: Annotated[OnNewColumn, choice(OnNewColumn)] = "tell"
    history: HistoryPart | None = None

    def input(self, name: str) -> Input:
        """The input that this section describes."""
        return Input(
            name,
            self.topic,
            self.format.value,
            self.format.key,
            self.start,
            self.mode or ("diffs" if FORMATS[self.format.value].is_updates else "upsert"),
            tuple(Column(n, c.type, c.encoding) for n, c in self.columns.items()),
            self.key,
            self.tables,
            self.drift,
            self.avro_schema,
            tuple(self.options.items()),
            None if self.event_time is None else self.event_time.event_time(),
            self.unique,
            self.size,
            tuple(self.metadata.items()),
            self.on_new_column,
            None if self.history is None else self.history.history(),
        )
