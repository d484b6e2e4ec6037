"""The section `deliver`: sinks, and the tables that each keeps in its target."""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from ikebana.codecs.formats import OUTPUT_FORMATS, OutputFormat
from ikebana.processor.authoring.values import (
    Scalars,
    Section,
    Text,
    as_column,
    as_columns,
    as_flag,
    as_names,
    choice,
)
from ikebana.processor.base.texts import suggestion
from ikebana.processor.planning.catalog import output_types
from ikebana.processor.planning.plan import Plan

# current: the rows of the collection.  changes: its updates, which are only added.
# history: its rows with the interval of time in which they exist.
Mode = Literal["current", "changes", "history"]
Whole = Literal["key", "value"]


class DeliveredColumnSection(Section):
    """`deliver.<name>.tables.<name>.columns.<name>`, written in full."""

    type: Text
    field: Text = ""
    whole: Annotated[Whole | None, choice(Whole)] = None

    @model_validator(mode="before")
    @classmethod
    def _from_type(cls, value: object) -> object:
        return as_column(value)


class TableSection(Section):
    """`deliver.<name>.tables.<name>`."""

    source: Text = Field(alias="from")
    mode: Annotated[Mode, choice(Mode)] = "current"
    key: Annotated[tuple[str, ...], BeforeValidator(as_names)] = ()
    columns: Annotated[dict[str, DeliveredColumnSection], BeforeValidator(as_columns)] = {}
    format: Annotated[OutputFormat | None, choice(OutputFormat)] = None


class PostgresSection(Section):
    """`deliver.<name>.postgres`."""

    connection: Text = ""


class IcebergSection(Section):
    """`deliver.<name>.iceberg`."""

    catalog: Scalars
    namespace: Text


class DeltaSection(Section):
    """`deliver.<name>.delta`."""

    folder: Text
    storage: Scalars = {}


class ParquetSection(Section):
    """`deliver.<name>.parquet`."""

    folder: Text
    by_day: Annotated[bool, BeforeValidator(as_flag)] = False


class DeliverSection(Section):
    """`deliver.<name>`: a target, which is named by one of its keys, and tables."""

    postgres: PostgresSection | None = None
    iceberg: IcebergSection | None = None
    delta: DeltaSection | None = None
    parquet: ParquetSection | None = None
    tables: dict[str, TableSection]

    @property
    def targets(self) -> list[str]:
        """The keys that name a target; a sink without problems has one."""
        return [name for name in TARGETS if getattr(self, name) is not None]


TARGETS = tuple(name for name in DeliverSection.keys() if name != "tables")  # noqa: SIM118 -- no mapping
"""The keys that name a target."""


# The most bytes of a name in PostgreSQL, which would cut a longer one.
_LONGEST_NAME = 63


def cut_names(table: str, columns: Iterable[str]) -> Iterator[str]:
    """Say which names of a table and its columns PostgreSQL would cut."""
    for name in (*table.split(".", 1), *columns):
        if len(name.encode()) > _LONGEST_NAME:
            yield (
                f'PostgreSQL would cut the name "{name}", which has more than {_LONGEST_NAME} '
                "bytes"
            )


class SinkFile(Section):
    """A file of its own for `ikebana deliver`."""

    deliver: dict[str, DeliverSection]
    kafka: Scalars = {}


def problems(
    sinks: Mapping[str, DeliverSection], plan: Plan | None, unread: Container[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield the problems of sinks, with their paths.

    With a plan, `from` names one of its outputs (those in `unread` could not be parsed); without a
    plan, it names a topic.
    """
    for name, sink in sinks.items():
        path = f"deliver.{name}"
        if len(sink.targets) != 1:
            yield (
                path,
                f"has to have one target; it has {', '.join(sink.targets) or 'none'}. A target is "
                f"one of {', '.join(TARGETS)}, as in: postgres: {{connection: …}}",
            )
        if not sink.tables:
            yield f"{path}.tables", "is empty; name at least one table"
        for table, section in sink.tables.items():
            yield from _of_table(f"{path}.tables.{table}", section, plan, unread)
            if sink.postgres is not None:
                yield from _cut_names(f"{path}.tables.{table}", table, section, plan)


def _cut_names(
    path: str, name: str, table: TableSection, plan: Plan | None
) -> Iterator[tuple[str, str]]:
    """Yield the names of a table and its columns that PostgreSQL would cut."""
    columns = [*table.columns]
    if plan is not None and not columns:
        outputs = (output for output in plan.outputs if output.name == table.source)
        columns = [column for output in outputs for column in output_types(plan, output)]
    remedy = "give it another name: a column under `columns` has that of its source as `field`"
    for problem in cut_names(name, columns):
        yield path, f"{problem}; {remedy}"


def _of_table(
    path: str, table: TableSection, plan: Plan | None, unread: Container[str]
) -> Iterator[tuple[str, str]]:
    form = table.format or "diff"
    if plan is not None:
        outputs = {output.name: output for output in plan.outputs}
        if table.source not in outputs:
            if "outputs" not in unread and f"outputs.{table.source}" not in unread:
                close = suggestion(table.source, outputs)
                yield f"{path}.from", f'there is no output "{table.source}"{close}'
            return
        if table.format is not None:
            yield f"{path}.format", "an output of the pipeline has its own; leave this out"
        form = outputs[table.source].format
    if OUTPUT_FORMATS[form].needs_earlier:
        yield (
            f"{path}.from",
            f'"{table.source}" has the format {form}, which cannot be delivered; '
            "deliver an output in the format diff",
        )
