"""Read the argument PIPELINE of a command: a YAML file, or a pipeline in a Python module."""

from collections.abc import Mapping
from pathlib import Path

from ikebana.errors import ConfigError
from ikebana.processor.building.loading import is_reference, pipeline_named
from ikebana.processor.configuring import pipeline
from ikebana.processor.configuring.given_settings import given_settings
from ikebana.processor.configuring.pipeline_yaml import read_yaml
from ikebana.processor.configuring.settings_file import SETTINGS_VARIABLE


def read(
    given: Path,
    *,
    bootstrap_servers: str | None = None,
    checkpoint: str | None = None,
    environ: Mapping[str, str],
) -> pipeline.Pipeline:
    """Read the plan and the settings of a file, or of `module:name`.

    A pipeline in Python takes its settings from the file that IKEBANA_SETTINGS names, and
    from the options.  Its module is also looked for in the current directory.

    Raises:
        ConfigError: it cannot be read, or is refused; it lists every problem.
    """
    if given.exists() or not is_reference(str(given)):
        return pipeline.read(
            given, bootstrap_servers=bootstrap_servers, checkpoint=checkpoint, environ=environ
        )
    plan = pipeline_named(str(given)).plan()
    found = given_settings(
        _given_in(environ.get(SETTINGS_VARIABLE), environ),
        plan,
        bootstrap_servers=bootstrap_servers,
        checkpoint=checkpoint,
    )
    return pipeline.Pipeline(plan, found)


def _given_in(path: str | None, environ: Mapping[str, str]) -> Mapping[str, object]:
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
