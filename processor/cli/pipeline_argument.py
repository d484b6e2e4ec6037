"""The argument PIPELINE of a command: a file, or a pipeline in a Python module.

An input with `on_new_column: add` also has columns that its file does not declare: those that
runs have added, as the checkpoint records them, and those that are new in messages.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ikebana.errors import CheckpointError, ConfigError, IkebanaError
from ikebana.processor.authoring import pipeline
from ikebana.processor.authoring.pipeline import ConfiguredPlan
from ikebana.processor.authoring.pipeline_file import SETTINGS_VARIABLE
from ikebana.processor.authoring.pipeline_yaml import read_yaml
from ikebana.processor.authoring.proposing.proposal import Declarations, later_columns
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.notices import Notice
from ikebana.processor.base.texts import generation, shown
from ikebana.processor.building.pipeline import is_reference, pipeline_named
from ikebana.processor.checkpoint.checkpoint import Checkpoint
from ikebana.processor.checkpoint.recorded_plan import plan_if_readable
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics.input_codec import needs_registry
from ikebana.processor.watching.reports import Watcher
from ikebana.processor.watching.sinks import Say

if TYPE_CHECKING:
    pass

_NONE: Mapping[str, Declarations] = {}


class PipelineArgument(NamedTuple):
    """PIPELINE, and the options of its command that win over the file."""

    file: Path
    bootstrap_servers: str | None = None
    checkpoint: str | None = None

    def written(self, columns: Mapping[str, Declarations] = _NONE) -> ConfiguredPlan:
        """Read the plan and the settings; further `columns` of inputs are those of a file.

        A pipeline in Python takes its settings from the file that IKEBANA_SETTINGS names, and
        from the options, and has sinks of its own.  Its module is also looked for in the current
        directory.

        Raises:
            ConfigError: it cannot be read, or is refused; it lists every problem.
        """
        file, brokers, checkpoint = self
        if file.exists() or not is_reference(str(file)):
            return pipeline.read(
                file,
                bootstrap_servers=brokers,
                checkpoint=checkpoint,
                environ=os.environ,
                columns=columns,
            )
        in_python = pipeline_named(str(file))
        plan, sections = in_python.plan(), in_python.sections(_settings_file())
        settings = pipeline.settings_for(
            sections, plan, bootstrap_servers=brokers, checkpoint=checkpoint
        )
        return ConfiguredPlan(plan, settings)

    def read(self, columns: Mapping[str, Declarations] = _NONE) -> ConfiguredPlan:
        """Read it with further `columns`, and with those that its runs have added.

        Raises: ConfigError, as `written`.
        """
        result = self.written()
        added = _added(*result)
        names = {*added, *columns}
        whole = {name: {**added.get(name, {}), **columns.get(name, {})} for name in names}
        return self.written(whole) if whole and self.file.exists() else result

    def read_with_new_columns(self, say: Say) -> ConfiguredPlan:
        """Read it with the columns that are new in messages, too.

        Columns that it cannot have, such as one that makes a name of a view ambiguous, are left
        out; `say` gets the reasons.
        """
        before = self.read()
        columns = columns_to_add(*before)
        try:
            return _editable(self.read(columns)) if columns else before
        except ConfigError:
            pass
        after, good = before, dict[str, Declarations]()
        for name, declarations in columns.items():
            for column, declaration in declarations.items():
                more = {**good, name: {**good.get(name, {}), column: declaration}}
                try:
                    after = _editable(self.read(more))
                except ConfigError as error:
                    say(f'column "{column}" of input "{name}" is not added: {error.message}')
                else:
                    good = more
        return after

    def line_of(self, path: str) -> int | None:
        """The line of a path in the file, or of the section around it if it is missing."""
        if not self.file.exists():
            return None
        text = pipeline.file_text(self.file, "pipeline file")
        lines = pipeline.document_of(text, str(self.file), os.environ).lines
        while path and path not in lines:
            path = path.rpartition(".")[0]
        return lines.get(path)

    @contextmanager
    def with_lines(self) -> Iterator[None]:
        """Add the lines of the file to the error of a checkpoint that refuses it."""
        try:
            yield
        except CheckpointError as error:
            lines = {
                path: line for path in error.paths if (line := self.line_of(path)) is not None
            }
            if not lines:
                raise
            places = ", ".join(f"{path} on line {line}" for path, line in lines.items())
            message = f"{error.message} ({self.file}: {places})"
            raise CheckpointError(message, hint=error.hint, paths=error.paths) from None


def _settings_file() -> Mapping[str, object]:
    """The settings of the file that a variable names; none without it."""
    if (path := os.environ.get(SETTINGS_VARIABLE)) is None:
        return {}
    document = read_yaml(pipeline.file_text(Path(path), "settings file"), path, os.environ)
    if document.problems:
        listed = "; ".join(f"{place}: {problem}" for place, problem in document.problems)
        raise ConfigError(f"cannot read settings file {path}: {listed}")
    if document.value is None:
        return {}
    if not isinstance(document.value, dict):
        raise ConfigError(f"cannot read settings file {path}: it is not a mapping of settings")
    return document.value


def adding_inputs(plan: Plan) -> list[Input]:
    """The inputs with `on_new_column: add`."""
    return [source for source in plan.inputs if source.on_new_column == "add"]


def _added(plan: Plan, settings: Settings) -> dict[str, Declarations]:
    """The columns of such inputs that the checkpoint has and the file does not declare."""
    if not (inputs := adding_inputs(plan)):
        return {}
    metadata = Checkpoint(settings.checkpoint).metadata()
    before = None if metadata is None else plan_if_readable(metadata)
    inputs_before = () if before is None else before.inputs
    # An input that was read again has another generation; the last one counts.
    by_name = {shown(old.name): old for old in sorted(inputs_before, key=_generation)}
    added: dict[str, Declarations] = {}
    for source in inputs:
        declared = {column.name for column in source.columns}
        was = by_name[source.name].columns if source.name in by_name else ()
        added[source.name] = {
            column.name: column.type
            if column.encoding is None
            else {"type": column.type, "encoding": column.encoding}
            for column in was
            if column.name not in declared
        }
    return {name: columns for name, columns in added.items() if columns}


def _generation(source: Input) -> int:
    return generation(source.name)


def newest_columns(
    plan: Plan, settings: Settings, inputs: Sequence[Input] = (), *, takes_all: bool = False
) -> dict[str, Declarations]:
    """The columns of the newest messages that inputs, by default all, do not declare.

    Raises: IkebanaError, if messages cannot be read.
    """
    # Kafka's client and the registry's take a while to import.
    from ikebana.processor.kafka import records
    from ikebana.processor.kafka.registry import Registry

    declarations = {}
    for source in inputs or plan.inputs:
        if source.traits.codec is None:
            continue
        kafka = settings.reading_kafka
        messages = [m for topic in source.topics for m in records.newest(kafka, topic)]
        schemas = Registry(dict(settings.registry)) if needs_registry(source) else None
        columns = later_columns(source, messages, schemas, takes_all=takes_all)
        if columns:
            declarations[source.name] = columns
    return declarations


def columns_to_add(plan: Plan, settings: Settings) -> dict[str, Declarations]:
    """The columns that a run adds at its start; empty if messages cannot be read."""
    if not (inputs := adding_inputs(plan)):
        return {}
    try:
        return newest_columns(plan, settings, inputs, takes_all=True)
    except IkebanaError:
        # The run itself reports the error, such as a missing topic.
        return {}


def _editable(result: ConfiguredPlan) -> ConfiguredPlan:
    """The pipeline itself.  Raises: ConfigError, if its checkpoint cannot continue with it."""
    from ikebana.processor.checkpoint.describing_edits import describe
    from ikebana.processor.checkpoint.next_step import Desired, observed_at

    plan, settings = result
    observed = observed_at(Checkpoint(settings.checkpoint))
    edit = describe(settings.checkpoint, observed, Desired(plan.portable(), settings.shards))
    for refusal in edit.refused:
        raise ConfigError(f"{refusal.path}: {refusal.reason}")
    return result


class Adding(Watcher):
    """A watcher that ends a run when inputs with `on_new_column: add` have new columns.

    `reread` reads the pipeline with its new columns.
    """

    def __init__(
        self, plan: Plan, stop: Callable[[], None], reread: Callable[[], ConfiguredPlan]
    ) -> None:
        self.has_columns = False
        self._plan = plan
        self._names = {source.name for source in adding_inputs(plan)}
        self._stop, self._reread = stop, reread
        self._seen: set[Notice] = set()

    def notice(self, notices: Sequence[Notice]) -> None:
        """Stop the run if a notice is of new columns, and the pipeline can have any of them."""
        new = {n for n in notices if n.kind == "new column" and n.input in self._names}
        if new <= self._seen:
            return
        self._seen |= new
        try:
            self.has_columns = self._reread().plan.inputs != self._plan.inputs
        except IkebanaError:
            return  # The file is being changed.
        if self.has_columns:
            self._stop()
