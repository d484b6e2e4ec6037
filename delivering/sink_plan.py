"""Make the sink of a sink file or of the section `deliver`, with its tables and topics."""

import importlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ikebana.delivering.columns import TargetColumn
from ikebana.delivering.sink import Sink, TargetTable
from ikebana.errors import ConfigError, SourceError
from ikebana.processor.authoring.deliver_section import DeliverSection, TableSection
from ikebana.processor.authoring.values import Section
from ikebana.processor.planning.catalog import output_types
from ikebana.processor.planning.plan import Plan

# Returns the SQL types of the columns of a topic's values, for a topic and its format.
TypesOf = Callable[[str, str], Mapping[str, str]]


class SinkPlan(NamedTuple):
    """A sink with its tables, and the formats of their topics."""

    sink: Sink
    tables: tuple[TargetTable, ...]
    formats: Mapping[str, str]


def sink_plan(
    name: str, section: DeliverSection, plan: Plan | None, types_of: TypesOf
) -> SinkPlan:
    """Make the sink of a section, which has no `deliver_section.problems`.

    `from` names outputs of the plan, or topics without a plan.

    Raises: ConfigError.
    """
    tables = []
    formats: dict[str, str] = {}
    for table, of_table in section.tables.items():
        topic, form, types = _source(of_table, plan)
        if formats.setdefault(topic, form) != form:
            raise ConfigError(f'sink "{name}" reads topic "{topic}" in two formats')
        columns = [
            TargetColumn.of(column, of.type, of.field, of.whole)
            for column, of in of_table.columns.items()
        ] or [
            TargetColumn.of(column, kind)
            for column, kind in (types or types_of(topic, form)).items()
        ]
        tables.append(TargetTable(topic, table, of_table.mode, tuple(columns), of_table.key))
    return SinkPlan(_sink(name, section), tuple(tables), formats)


def _source(of_table: TableSection, plan: Plan | None) -> tuple[str, str, Mapping[str, str]]:
    """The topic of a table, its format, and the column types of the plan; empty without one."""
    if plan is None:
        return of_table.source, of_table.format or "diff", {}
    [output] = [output for output in plan.outputs if output.name == of_table.source]
    return output.topic, output.format, output_types(plan, output)


def _sink(name: str, section: DeliverSection) -> Sink:
    [kind] = section.targets
    try:
        # A target has a module of its name, which makes its sink.
        make: Callable[[str, Section], Sink]
        make = importlib.import_module(f"ikebana.delivering.{kind}").sink
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ikebana"):
            raise
        raise ConfigError(
            f'sink "{name}" needs the library {error.name}, which is not installed',
            hint=f'Install it: pip install "ikebana[{kind}]".',
        ) from error
    return make(name, getattr(section, kind))


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
