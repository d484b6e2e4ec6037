"""The section `deliver`: sinks, and the tables that each keeps in its target."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from ikebana.codecs.formats import OutputFormat
from ikebana.processor.authoring.part import Part
from ikebana.processor.authoring.values import (
    Scalars,
    Text,
    as_column,
    as_columns,
    as_names,
    choice,
)

Mode = Literal["current", "changes", "history"]
Whole = Literal["key", "value"]


class DeliveredColumnPart(Part):
    """`deliver.<name>.tables.<name>.columns.<name>`, written in full."""

    type: Text
    field: Text = ""
    whole: Annotated[Whole | None, choice(Whole)] = None

    @model_validator(mode="before")
    @classmethod
    def _from_type(cls, value: object) -> object:
        return as_column(value)


class TablePart(Part):
    """`deliver.<name>.tables.<name>`."""

    source: Text = Field(alias="from")
    mode: Annotated[Mode, choice(Mode)] = "current"
    key: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    columns: Annotated[dict[str, DeliveredColumnPart], BeforeValidator(as_columns)] = {}
    format: Annotated[OutputFormat | None, choice(OutputFormat)] = None


class PostgresPart(Part):
    """`deliver.<name>.postgres`."""

    connection: Text = ""


class IcebergPart(Part):
    """`deliver.<name>.iceberg`."""

    catalog: Scalars
    namespace: Text


class DeltaPart(Part):
    """`deliver.<name>.delta`."""

    folder: Text
    storage: Scalars = {}


class ParquetPart(Part):
    """`deliver.<name>.parquet`."""

    folder: Text
    by_day: bool = False


class DeliverPart(Part):
    """`deliver.<name>`: a target, which is named by one of its keys, and tables."""

    postgres: PostgresPart | None = None
    iceberg: IcebergPart | None = None
    delta: DeltaPart | None = None
    parquet: ParquetPart | None = None
    tables: dict[str, TablePart]


TARGETS = tuple(name for name in DeliverPart.keys() if name != "tables")  # noqa: SIM118 -- no mapping
"""The keys that name a target."""


class SinkFile(Part):
    """A file of its own for `ikebana deliver`."""

    deliver: dict[str, DeliverPart]
    kafka: Scalars = {}
