"""Columns of inputs that the pipeline file does not declare.

They are columns of the newest messages, and columns that a run has added to inputs with
`on_new_column: add`, as its checkpoint records them.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ikebana.errors import ConfigError, IkebanaError
from ikebana.processor.authoring import pipeline
from ikebana.processor.authoring.proposing.proposal import Declarations, later_columns
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.notices import Notice
from ikebana.processor.base.texts import generation, shown
from ikebana.processor.checkpoint.checkpoint import Checkpoint
from ikebana.processor.checkpoint.evolution import plan_if_readable
from ikebana.processor.cli import finding
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics.input_codec import needs_registry
from ikebana.processor.watching.sinks import Say

if TYPE_CHECKING:
    from ikebana.processor.checkpoint.edit_plan import EditPlan
    from ikebana.processor.watching.reports import BatchReport

_NONE: Mapping[str, Declarations] = {}


def read(
    file: Path,
    *,
    bootstrap_servers: str | None = None,
    checkpoint: str | None = None,
    environ: Mapping[str, str],
    columns: Mapping[str, Declarations] = _NONE,
) -> pipeline.ConfiguredPlan:
    """Read PIPELINE with further `columns`, and with the columns that its runs have added.

    Raises: ConfigError, as `finding.read`.
    """
    result = finding.read(
        file, bootstrap_servers=bootstrap_servers, checkpoint=checkpoint, environ=environ
    )
    added = _added(result.plan, result.settings)
    names = {*added, *columns}
    whole = {name: {**added.get(name, {}), **columns.get(name, {})} for name in names}
    if not whole or not file.exists():
        return result
    return pipeline.read(
        file,
        bootstrap_servers=bootstrap_servers,
        checkpoint=checkpoint,
        environ=environ,
        columns=whole,
    )


def adding_inputs(plan: Plan) -> list[Input]:
    """The inputs with `on_new_column: add`."""
    return [source for source in plan.inputs if source.on_new_column == "add"]


def _added(plan: Plan, settings: Settings) -> dict[str, Declarations]:
    """The columns of such inputs that the checkpoint has and the file does not declare."""
    if not (inputs := adding_inputs(plan)):
        return {}
    birth = Checkpoint(settings.checkpoint).birth()
    before = None if birth is None else plan_if_readable(birth)
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


def read_with_new_columns(
    read: Callable[..., pipeline.ConfiguredPlan], say: Say
) -> pipeline.ConfiguredPlan:
    """Read a pipeline with the columns that are new in messages; `read` is `later.read` of a file.

    Columns that it cannot have, such as one that makes a name of a view ambiguous, are left out;
    `say` gets the reasons.
    """
    before = read(environ=os.environ)
    columns = columns_to_add(*before)
    try:
        return _editable(read(environ=os.environ, columns=columns)) if columns else before
    except ConfigError:
        pass
    after, good = before, dict[str, Declarations]()
    for name, declarations in columns.items():
        for column, declaration in declarations.items():
            more = {**good, name: {**good.get(name, {}), column: declaration}}
            try:
                after = _editable(read(environ=os.environ, columns=more))
            except ConfigError as error:
                say(f'column "{column}" of input "{name}" is not added: {error.message}')
            else:
                good = more
    return after


def _editable(result: pipeline.ConfiguredPlan) -> pipeline.ConfiguredPlan:
    """The pipeline itself.  Raises: ConfigError, if its checkpoint cannot continue with it."""
    from ikebana.processor.checkpoint.next_step import Desired, observed_at
    from ikebana.processor.checkpoint.planned_edit import planned

    plan, settings = result
    observed = observed_at(Checkpoint(settings.checkpoint))
    edit = planned(settings.checkpoint, observed, Desired(plan.portable(), settings.shards))
    for refusal in edit.refused:
        raise ConfigError(f"{refusal.path}: {refusal.reason}")
    return result


class Adding:
    """A watcher that ends a run when inputs with `on_new_column: add` have new columns.

    `reread` reads the pipeline with its new columns, as `read_with_new_columns` does.
    """

    def __init__(
        self, plan: Plan, stop: Callable[[], None], reread: Callable[[], pipeline.ConfiguredPlan]
    ) -> None:
        self.has_columns = False
        self._plan = plan
        self._names = {source.name for source in adding_inputs(plan)}
        self._stop, self._reread = stop, reread
        self._seen: set[Notice] = set()

    def step(self, what: str) -> None: ...

    def edit(self, plan: "EditPlan") -> None: ...

    def batch(self, report: "BatchReport") -> None: ...

    def restart(self, cause: Exception, pause_s: float) -> None: ...

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
