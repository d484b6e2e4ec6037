"""Read the argument PIPELINE of a command: a file, or a pipeline in a Python module."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ikebana.errors import CheckpointError, ConfigError
from ikebana.processor.authoring import pipeline
from ikebana.processor.authoring.pipeline import settings_for
from ikebana.processor.authoring.pipeline_file import SETTINGS_VARIABLE
from ikebana.processor.authoring.pipeline_yaml import read_yaml
from ikebana.processor.building.pipeline import is_reference, pipeline_named


def read(
    argument: Path,
    *,
    bootstrap_servers: str | None = None,
    checkpoint: str | None = None,
    environ: Mapping[str, str],
) -> pipeline.ConfiguredPlan:
    """Read the plan and the settings of a file, or of `module:name`.

    A pipeline in Python takes its settings from the file that IKEBANA_SETTINGS names, and
    from the options, and has sinks of its own.  Its module is also looked for in the current
    directory.

    Raises:
        ConfigError: it cannot be read, or is refused; it lists every problem.
    """
    if argument.exists() or not is_reference(str(argument)):
        return pipeline.read(
            argument, bootstrap_servers=bootstrap_servers, checkpoint=checkpoint, environ=environ
        )
    in_python = pipeline_named(str(argument))
    plan = in_python.plan()
    settings = settings_for(
        in_python.sections(_settings_in(environ.get(SETTINGS_VARIABLE), environ)),
        plan,
        bootstrap_servers=bootstrap_servers,
        checkpoint=checkpoint,
    )
    return pipeline.ConfiguredPlan(plan, settings)


@contextmanager
def placed_in(file: Path) -> Iterator[None]:
    """Add the lines of the pipeline file to the error of a checkpoint that refuses it."""
    try:
        yield
    except CheckpointError as error:
        lines = {path: line for path in error.paths if (line := line_of(file, path)) is not None}
        if not lines:
            raise
        places = ", ".join(f"{path} on line {line}" for path, line in lines.items())
        message = f"{error.message} ({file}: {places})"
        raise CheckpointError(message, hint=error.hint, paths=error.paths) from None


def line_of(file: Path, path: str) -> int | None:
    """The line of a path in a pipeline file, or of the section around it if it is missing."""
    if not file.exists():
        return None
    text = pipeline.file_text(file, "pipeline file")
    lines = pipeline.document_of(text, str(file), os.environ).lines
    while path and path not in lines:
        path = path.rpartition(".")[0]
    return lines.get(path)


def _settings_in(path: str | None, environ: Mapping[str, str]) -> Mapping[str, object]:
    if path is None:
        return {}
    document = read_yaml(pipeline.file_text(Path(path), "settings file"), path, environ)
    if document.problems:
        listed = "; ".join(f"{place}: {problem}" for place, problem in document.problems)
        raise ConfigError(f"cannot read settings file {path}: {listed}")
    if document.value is None:
        return {}
    if not isinstance(document.value, dict):
        raise ConfigError(f"cannot read settings file {path}: it is not a mapping of settings")
    return document.value
