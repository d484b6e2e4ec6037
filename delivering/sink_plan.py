"""Make the sink of a sink file or of the section `deliver`, with its tables and topics."""

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ikebana.codecs.formats import OUTPUT_FORMATS
from ikebana.delivering.columns import Column
from ikebana.delivering.sink import Sink, Table
from ikebana.errors import ConfigError, SourceError
from ikebana.processor.authoring.deliver_part import TARGETS, DeliverPart, TablePart
from ikebana.processor.authoring.part import Part
from ikebana.processor.base.spelling import instead
from ikebana.processor.kafka import following
from ikebana.processor.planning.catalog import output_types
from ikebana.processor.planning.plan import Plan

# The keys of `DeliverPart` that name a target, with the function that makes its sink.
KINDS: Mapping[str, str] = MappingProxyType(
    {kind: f"ikebana.delivering.{kind}:sink" for kind in TARGETS}
)
# Returns the SQL types of the columns of a topic's values, for a topic and its format.
TypesOf = Callable[[str, str], Mapping[str, str]]


class SinkPlan(NamedTuple):
    """A sink with its tables, and the formats of their topics."""

    sink: Sink
    tables: tuple[Table, ...]
    formats: Mapping[str, str]


def sink_plan(name: str, part: DeliverPart, plan: Plan | None, types_of: TypesOf) -> SinkPlan:
    """Make the sink of a section; `from` names outputs of the plan, or topics without a plan.

    Raises: ConfigError.
    """
    tables = []
    formats: dict[str, str] = {}
    for table, table_part in part.tables.items():
        topic, form, types = _source(name, table, table_part, plan)
        if formats.setdefault(topic, form) != form:
            raise ConfigError(f'sink "{name}" reads topic "{topic}" in two formats')
        if not following.goes_on(form):
            raise ConfigError(
                f'sink "{name}" cannot read topic "{topic}": in the format {form} the old value '
                "of a key is in an earlier message, which may be gone",
                hint="Write an output in the format diff, and deliver that.",
            )
        columns = [
            Column.of(column, of.type, of.field, of.whole)
            for column, of in table_part.columns.items()
        ] or [Column.of(column, kind) for column, kind in (types or types_of(topic, form)).items()]
        tables.append(Table(topic, table, table_part.mode, tuple(columns), table_part.key))
    if not tables:
        raise ConfigError(f'sink "{name}" has no tables', hint="Name at least one in `tables`.")
    return SinkPlan(_sink(name, part), tuple(tables), formats)


def _source(
    sink: str, table: str, table_part: TablePart, plan: Plan | None
) -> tuple[str, str, Mapping[str, str]]:
    """The topic of a table, its format, and the column types of the plan; empty without one."""
    if plan is None:
        form = table_part.format or "diff"
        if form not in OUTPUT_FORMATS:
            raise ConfigError(f'there is no format "{form}"{instead(form, OUTPUT_FORMATS)}')
        return table_part.source, form, {}
    for output in plan.outputs:
        if output.name == table_part.source:
            if table_part.format is not None:
                raise ConfigError(
                    f"deliver.{sink}.tables.{table}.format: an output of the pipeline has its own"
                )
            return output.topic, output.format, output_types(plan, output)
    names = [output.name for output in plan.outputs]
    raise ConfigError(
        f'deliver.{sink}.tables.{table}.from: there is no output "{table_part.source}"'
        f"{instead(table_part.source, names)}"
    )


def _sink(name: str, part: DeliverPart) -> Sink:
    kinds = [kind for kind in TARGETS if getattr(part, kind) is not None]
    if len(kinds) != 1:
        raise ConfigError(
            f'sink "{name}" has to have one target; it has {", ".join(kinds) or "none"}',
            hint=f"A target is one of {', '.join(TARGETS)}, as in: postgres: {{connection: …}}.",
        )
    [kind] = kinds
    module, _, function = KINDS[kind].partition(":")
    try:
        make: Callable[[str, Part], Sink] = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ikebana"):
            raise
        raise ConfigError(
            f'sink "{name}" needs the library {error.name}, which is not installed',
            hint=f'Install it: pip install "ikebana[{kind}]".',
        ) from error
    return make(name, getattr(part, kind))


def types_in_topic(settings: Mapping[str, str]) -> TypesOf:
    """Return a function that reads column types from a topic's progress."""

    def types_of(topic: str, form: str) -> Mapping[str, str]:
        from ikebana.processor.kafka.diff_topic import DiffTopic

        reading = DiffTopic(settings, topic, form)
        try:
            reading.require_output()
            last = reading.last_closed()
        finally:
            reading.close()
        if last is None or not last.columns:
            raise SourceError(
                f'"{topic}" does not tell the types of its columns, or nothing is closed yet',
                hint="List the columns with their types under `columns`.",
            )
        return last.columns

    return types_of
