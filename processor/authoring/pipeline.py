"""The pipeline file: YAML or SQL text -> a plan and its settings, or every problem at once.

Problems of all kinds (of the YAML, the variables, the schema, the plan, the settings)
are one list, in the order of the file, each with its path and line.  A part that cannot be
read is left out, and the rest is still checked, except for problems that would only follow
from the missing part.  No broker and no Spark is needed.

A second file may have settings, which win over those of the first one: the pipeline is
the same everywhere, where and how it runs is not.

A file of sinks alone has the sections `deliver` and `kafka`, and no plan: `read_sinks`.
"""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ikebana.errors import ConfigError, PlanError
from ikebana.processor.authoring import deliver_section
from ikebana.processor.authoring.deliver_section import SinkFile
from ikebana.processor.authoring.operator_kinds import KINDS
from ikebana.processor.authoring.pipeline_file import (
    SETTINGS_VARIABLE,
    PipelineFile,
    Placed,
    PlanSections,
    SettingsSections,
    with_overlay,
)
from ikebana.processor.authoring.pipeline_yaml import Document, read_yaml
from ikebana.processor.authoring.settings import (
    KAFKA_NAMES,
    OWNED_KAFKA,
    Settings,
    SettingsError,
    value_problem,
)
from ikebana.processor.authoring.values import Section, shown
from ikebana.processor.base.texts import counted, did_you_mean, hint, printable
from ikebana.processor.linear.functions import look_in
from ikebana.processor.linear.sql_functions import as_written
from ikebana.processor.planning.catalog import output_types
from ikebana.processor.planning.plan import Plan, Unread
from ikebana.processor.topics.input_codec import needs_registry

AnySection = TypeVar("AnySection", bound=Section)
# Pairs of a path in the file and its problem.
Problems = list[tuple[str, str]]


# A problem within a view of a SQL file begins with its place in the file.
_WITHIN = re.compile(r"line (\d+), column (\d+): (.*)", re.DOTALL)


class _Place(NamedTuple):
    """Where a problem is: in another file, or, without a name, in this one."""

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        column = f", column {self.column}" if self.column else ""
        return f"{f'{self.file}, ' if self.file else ''}line {self.line}{column}"


class ConfiguredPlan(NamedTuple):
    """A plan, and the settings of its run."""

    plan: Plan
    settings: Settings


def read(
    path: Path,
    *,
    bootstrap_servers: str | None = None,
    checkpoint: str | None = None,
    environ: Mapping[str, str],
    columns: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
) -> ConfiguredPlan:
    """Read a pipeline file; the options win over its settings.

    A file of settings, named by the variable IKEBANA_SETTINGS, wins over the pipeline file,
    and the options win over both.  A relative checkpoint stays relative to the current
    directory.  Modules of functions are also searched in the file's own folder.  `columns` are
    further declared columns, by input.
    Raises: ConfigError, for a file that cannot be read or that has problems.
    """
    over = environ.get(SETTINGS_VARIABLE)
    text = file_text(path, "pipeline file")
    look_in(str(path.resolve().parent))
    return parse(
        text,
        str(path),
        over=(over, file_text(Path(over), "settings file")) if over else None,
        bootstrap_servers=bootstrap_servers,
        checkpoint=checkpoint,
        environ=environ,
        columns=columns,
    )


def file_text(path: Path, kind: str) -> str:
    """The text of a file; errors name it by `kind` and path.

    Raises:
        ConfigError: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except IsADirectoryError as err:
        raise ConfigError(
            f"cannot read {kind} {path}: it is a folder", hint="Name a file, such as orders.yaml."
        ) from err
    except OSError as err:
        raise ConfigError(f"could not read {kind} {path}: {err.strerror}") from err
    except UnicodeDecodeError as err:
        raise ConfigError(f"cannot read {kind} {path}: it is not UTF-8 text") from err


def parse(
    text: str,
    source: str,
    *,
    over: tuple[str, str] | None = None,
    bootstrap_servers: str | None = None,
    checkpoint: str | None = None,
    environ: Mapping[str, str],
    columns: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
) -> ConfiguredPlan:
    """Read the text of a pipeline file; errors call it `source`.  See `read`.

    `over` is the name and the text of a file of settings.
    """
    document = document_of(text, source, environ)
    placed: Placed = {}
    if over is not None:
        document, placed = with_overlay(document, read_yaml(over[1], over[0], environ), over[0])
    content = _with_columns(_mapping_of(document, source), columns)
    errors = schema_errors(content)
    readable, lost = _readable(content, errors)
    left_out = {*document.unread, *lost, *_meant_instead(errors)}
    plan, of_plan = _plan(readable, left_out)
    sections = _read(SettingsSections, readable)
    settings, of_settings = _settings(sections, bootstrap_servers, checkpoint)
    judged = [*of_plan, *of_settings, *kafka_values(sections)]
    if plan is not None and settings is not None:
        judged += registry_missing(plan, settings.registry)
    if plan is not None and sections is not None:
        judged += deliver_section.problems(sections.deliver, plan, left_out)
    schema = _schema_problems(errors, document.unread)
    left_out |= _not_judged(errors, schema)
    overridden = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "run.checkpoint": checkpoint,
    }
    problems = [
        *document.problems,
        *schema,
        *(p for p in judged if left_out.isdisjoint(_sections(p[0]))),
    ]
    if problems := [p for p in problems if not overridden.get(p[0])]:
        raise ConfigError(_listed(problems, source, document, placed))
    if plan is None or settings is None:
        raise AssertionError(f"pipeline file {source} has neither problems nor a plan")
    return ConfiguredPlan(plan, settings)


def document_of(text: str, source: str, environ: Mapping[str, str]) -> Document:
    """Parse a pipeline file: SQL if it begins with CREATE, else YAML.  Raises: ConfigError."""
    if source.endswith(".py"):
        raise ConfigError(
            f"cannot read pipeline file {source}: a pipeline in Python is an object of a module",
            hint=f"Name both, such as {Path(source).stem}:pipeline.",
        )
    # The text decides: standard input has no name.
    is_sql = _SQL.match(text) or (source.endswith(".sql") and not _YAML.search(text))
    if not is_sql:
        return read_yaml(text, source, environ)
    # DuckDB takes a while to import, and memory.
    from ikebana.processor.authoring.pipeline_sql import read_sql

    return read_sql(text, environ)


# A line that each pipeline in YAML has, and the beginning of each in SQL, after comments.
_YAML = re.compile(r"^pipeline\s*:", re.MULTILINE)
_SQL = re.compile(r"\A(?:\s+|--[^\n]*\n|/\*.*?\*/)*CREATE\s", re.DOTALL | re.IGNORECASE)


def _mapping_of(document: Document, source: str) -> dict[str, object]:
    """The document as a mapping.  Raises: ConfigError, where it is none."""
    if isinstance(document.value, dict):
        return document.value
    problem = "it is empty" if document.value is None else "it is not a mapping of settings"
    raise ConfigError(
        f"cannot read pipeline file {source}: {problem}",
        hint="`ikebana new FILE` writes a first one, with comments.",
    )


def _with_columns(
    content: dict[str, object], columns: Mapping[str, Mapping[str, object]]
) -> dict[str, object]:
    """The document with further declared columns of inputs."""
    inputs = content.get("inputs")
    if not isinstance(inputs, dict):
        return content
    more = {
        name: {**part, "columns": {**part["columns"], **columns[name]}}
        for name, part in inputs.items()
        if name in columns and isinstance(part, dict) and isinstance(part.get("columns"), dict)
    }
    return {**content, "inputs": {**inputs, **more}}


def _plan(readable: dict[str, object], left_out: set[str]) -> tuple[Plan | None, Problems]:
    """The plan of the readable parts, or its problems."""
    plan_keys = PlanSections.keys()
    unread = Unread(frozenset(p for p in left_out if p.partition(".")[0] in plan_keys))
    sections = _read(PlanSections, _named(readable, unread))
    try:
        return (sections.plan(unread) if sections else None), []
    except PlanError as err:
        return None, list(err.problems)


def _settings(
    sections: SettingsSections | None, bootstrap_servers: str | None, checkpoint: str | None
) -> tuple[Settings | None, Problems]:
    """The settings of sections, or their problems; arguments win."""
    if sections is None:
        return None, []
    try:
        return sections.settings(bootstrap_servers=bootstrap_servers, checkpoint=checkpoint), []
    except SettingsError as err:
        return None, list(err.problems)


def _schema_problems(errors: list[ErrorDetails], unread: Container[str]) -> Problems:
    """The problems of the schema, each once.

    A misspelt key and the absence of the key that it was meant to be are one problem.
    """
    meant = _meant_instead(errors)
    return [
        (_dotted(e["loc"]), _worded(e))
        for e in errors
        if not (e["type"] == "missing" and _dotted(e["loc"]) in meant)
        and (e["type"] == "extra_forbidden" or _dotted(e["loc"]) not in unread)
    ]


def _not_judged(errors: list[ErrorDetails], schema: Problems) -> set[str]:
    """The sections that are not checked further, since they have problems in the schema."""
    # A part that was left out has a problem already; its absence is not another one.
    paths = {path for path, _ in schema}
    # The rest of an input can only be checked if its format is known.
    paths |= {_dotted(e["loc"][:2]) for e in errors if e["loc"][2:3] == ("format",)}
    # If the key that names an operator's kind could not be read, its kind is not known.
    paths |= {
        _dotted(e["loc"][:2])
        for e in errors
        if e["loc"][:1] == ("operators",) and e["loc"][2:3] and e["loc"][2] in KINDS
    }
    return paths


def kafka_values(sections: SettingsSections | None) -> Iterator[tuple[str, str]]:
    """Problems of values that Kafka's clients would refuse; no broker is asked."""
    if sections is None:
        return
    for path, values in (
        ("kafka", sections.kafka),
        ("source.kafka", sections.source.kafka),
        ("sink.kafka", sections.sink.kafka),
    ):
        for name in values.keys() & KAFKA_NAMES - OWNED_KAFKA.keys() - {"bootstrap.servers"}:
            if problem := value_problem(name, values[name]):
                yield f"{path}.{name}", problem


def registry_missing(plan: Plan, registry: Mapping[str, str]) -> Problems:
    """A problem if the plan needs a schema registry and `registry` has no url."""
    if registry.get("url"):
        return []
    needing = [
        *(f"input {i.name!r} is read" for i in plan.inputs if needs_registry(i)),
        *(f"output {o.name!r} is written" for o in plan.outputs if o.traits.in_registry),
    ]
    return [("registry.url", f"is missing: {what} by its schemas") for what in needing[:1]]


def schema_errors(
    document: dict[str, object], model: type[Section] = PipelineFile
) -> list[ErrorDetails]:
    """The errors of a model's validation of a document."""
    try:
        model.model_validate(document)
    except ValidationError as err:
        return err.errors(include_url=False)
    return []


def _meant_instead(errors: list[ErrorDetails]) -> set[str]:
    """The paths of the keys that misspelt keys were meant to be."""
    meant = set()
    for error in errors:
        *section, key = error["loc"]
        if error["type"] == "extra_forbidden":
            close = did_you_mean(key, _part_keys(tuple(section)))
            meant |= {_dotted((*section, close))} if close else set()
    return meant


def _dotted(loc: tuple[int | str, ...]) -> str:
    return ".".join(map(str, loc))


def _sections(path: str) -> Iterator[str]:
    """The path, then the paths of the sections around it, from the inside out."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _readable(
    document: dict[str, object], errors: list[ErrorDetails]
) -> tuple[dict[str, object], set[str]]:
    """A copy of the document without the parts that have errors; and the paths of these.

    A section without a key that it needs is left out as a whole.
    """
    lost: set[str] = set()
    while errors:
        wrong = {e["loc"][:-1] if e["type"] == "missing" else e["loc"] for e in errors}
        lost |= {_dotted(e["loc"]) for e in errors} | set(map(_dotted, wrong - {()}))
        document = _without(document, wrong)
        errors = [e for e in schema_errors(document) if len(e["loc"]) > 1]
    return document, lost


def _without(document: dict[str, object], wrong: set[tuple[int | str, ...]]) -> dict[str, object]:
    def copy_of(value: object, path: tuple[int | str, ...]) -> object:
        if isinstance(value, list):
            # Items of a list are emptied, not removed, so the others keep their places.
            places = [(*path, at) for at in range(len(value))]
            pairs = zip(value, places, strict=True)
            return [{} if place in wrong else copy_of(item, place) for item, place in pairs]
        if not isinstance(value, dict):
            return value
        items = {key: item for key, item in value.items() if (*path, key) not in wrong}
        return {key: copy_of(item, (*path, key)) for key, item in items.items()}

    copy = copy_of(document, ())
    assert isinstance(copy, dict)
    return copy


def _named(document: dict[str, object], unread: Unread) -> dict[str, object]:
    """The document with placeholders for missing sections that a plan needs."""
    needed: dict[str, object] = {"inputs": {}, "outputs": {}}
    name = document.get("pipeline")
    readable = isinstance(name, str) and "pipeline" not in unread.paths
    return {**needed, **document, "pipeline": name if readable else "pipeline"}


def _read(model: type[AnySection], document: Mapping[str, object]) -> AnySection | None:
    """The sections of a document that `model` describes; None if it lacks a key."""
    keys = model.keys()
    try:
        return model.model_validate({k: v for k, v in document.items() if k in keys})
    except ValidationError:
        return None


def _listed(problems: Problems, source: str, document: Document, over: Placed) -> str:
    """The text of an error with all problems in the order of the file, with their lines."""

    def place(path: str, problem: str) -> tuple[_Place | None, str]:
        within = document.columns and _WITHIN.fullmatch(problem)
        if within:
            return _Place("", int(within[1]), int(within[2])), within[3]
        # A missing key has no line: the line of the section around it is shown.
        for section in _sections(path):
            if section in over:
                return _Place(*over[section]), problem
            if section in document.lines:
                line, column = document.lines[section], document.columns.get(section, 0)
                return _Place("", line, column), problem
        return None, problem

    placed = [(*place(path, as_written(problem)), path) for path, problem in problems]
    placed.sort(key=lambda p: (p[0] is None, p[0]))
    listed = [
        printable(f"  {path}: {problem}") + ("" if at is None else f" ({at})")
        for at, problem, path in placed
    ]
    return "\n".join([f"pipeline file {source} has {counted(len(placed), 'problem')}:", *listed])


def settings_for(
    sections: Mapping[str, Any],
    plan: Plan,
    *,
    bootstrap_servers: str | None = None,
    checkpoint: str | None = None,
) -> Settings:
    """The settings for a plan; the options win over the sections.

    Raises:
        ConfigError: with every problem.
    """
    errors = schema_errors({**sections}, SettingsSections)
    model = _read(SettingsSections, sections)
    settings, problems = _settings(model, bootstrap_servers, checkpoint)
    problems += _schema_problems(errors, ())
    if model is not None:
        problems += kafka_values(model)
        problems += registry_missing(plan, model.registry)
        problems += deliver_section.problems(model.deliver, plan)
    if settings is None or problems:
        listed = [f"  {path}: {problem}" for path, problem in problems]
        heading = f'settings of pipeline "{plan.name}" have {counted(len(problems), "problem")}:'
        raise ConfigError("\n".join([heading, *listed]))
    return settings


def read_sinks(path: Path, environ: Mapping[str, str]) -> SinkFile | None:
    """Read a file of sinks; None if it is a pipeline, which may also be one in Python.

    A file of settings, named by the variable IKEBANA_SETTINGS, wins.

    Raises: ConfigError, for a file that cannot be read or that has problems.
    """
    source = str(path)
    if not path.exists() and ":" in source:
        return None
    document = document_of(file_text(path, "sink file"), source, environ)
    if "pipeline" in _mapping_of(document, source):
        return None
    placed: Placed = {}
    if over := environ.get(SETTINGS_VARIABLE):
        above = read_yaml(file_text(Path(over), "settings file"), over, environ)
        document, placed = with_overlay(document, above, over)
    content = _mapping_of(document, source)
    errors = schema_errors(content, SinkFile)
    problems = [*document.problems, *_schema_problems(errors, document.unread)]
    sinks = None if errors else SinkFile.model_validate(content)
    if sinks is not None:
        problems += deliver_section.problems(sinks.deliver, None)
    if sinks is None or problems:
        raise ConfigError(_listed(problems, source, document, placed))
    return sinks


def text_of_sinks(plan: Plan, settings: Settings) -> str:
    """The text of a file of the sinks of a pipeline, which names topics and all columns."""
    outputs = {output.name: output for output in plan.outputs}
    sinks = {}
    for name, sink in settings.deliver.items():
        section = sinks[name] = sink.model_dump(by_alias=True, exclude_defaults=True)
        for table in section["tables"].values():
            output = outputs[table["from"]]
            table |= {"from": output.topic, "format": output.format}
            table.setdefault("columns", dict(output_types(plan, output)))
    content = {"deliver": sinks, "kafka": settings.reading_kafka}
    # Variables were replaced when the pipeline was read.
    return msgspec.json.encode(content).decode().replace("${", "$${")


_TOP = "the first rows by an order are a first operator, with order, count and partition"

_OF_OPERATORS = {
    "join": "a join is a delta_join, or an as_of_join",
    "inner_join": "a join is a delta_join, or an as_of_join",
    "outer_join": "an outer join is a left_join, a right_join or a full_join",
    "except": "the rows of one operator without those of others are a minus",
    "group_by": "a reduce operator has its key under by",
    "groupby": "a reduce operator has its key under by",
    "order_by": _TOP,
    "limit": _TOP,
    "from": "write what it reads behind its kind, as in linear: orders",
    "input": "write what it reads behind its kind, as in linear: orders",
    "name": "an operator's name is the key that it stands under",
    "window": "valid_until ends a row after some time, and by may have date_trunc('hour', ...)",
}


_OF_FILES = {
    "sinks": "deliver has the sinks, tables of a database or a lake",
    "sources": "inputs has the topics that are read",
}


def _remedy_for(path: Sequence[int | str]) -> str | None:
    """What to write instead of the key at this path of the file; None if nothing is known.

    >>> _remedy_for(("operators", "totals", "group_by"))
    'a reduce operator has its key under by'
    >>> _remedy_for(("sinks",))
    'deliver has the sinks, tables of a database or a lake'
    >>> _remedy_for(("inputs", "orders", "group_by")) is None
    True
    """
    if len(path) == 1:
        return _OF_FILES.get(str(path[0]))
    if len(path) < 3 or path[0] != "operators":
        return None
    return _OF_OPERATORS.get(str(path[-1]).lower())


def _part_keys(path: tuple[int | str, ...]) -> tuple[str, ...]:
    """The keys of the section at `path`."""
    here: Any = PipelineFile
    for step in path:
        if isinstance(here, type) and issubclass(here, Section):
            here = here.keys()[str(step)]
        else:
            # A mapping from names to sections of one kind, or a list of them.
            here = get_args(here)[0 if isinstance(step, int) else 1]
        if get_origin(here) is Annotated:
            here = get_args(here)[0]
        if isinstance(here, UnionType):
            # A section that may be left out.
            here = next(kind for kind in get_args(here) if kind is not type(None))
    return tuple(here.keys())


def _worded(error: ErrorDetails) -> str:
    """The problem of an error, in the words of the file."""
    kind, value = error["type"], error["input"]
    if kind == "missing":
        return "is missing"
    if kind in ("dict_type", "model_type"):
        return f"must be a mapping; is {shown(value)}"
    if kind == "extra_forbidden":
        allowed = _part_keys(error["loc"][:-1])
        if remedy := _remedy_for(error["loc"]):
            return f"there is no such setting here; {remedy}"
        if meant := hint(error["loc"][-1], allowed):
            return f"there is no such setting here{meant}"
        return f"there is no such setting here; there are {', '.join(allowed)}"
    return error["msg"]
