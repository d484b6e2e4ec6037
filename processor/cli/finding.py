"""What a command is given as PIPELINE: a YAML file, or a pipeline of a Python module."""

import os
from collections.abc import Mapping
from pathlib import Path

from ikebana.arrangements.errors import ConfigError
from ikebana.processor.building.pipeline import Pipeline
from ikebana.processor.configuring import pipeline
from ikebana.processor.configuring.given_settings import given_settings
from ikebana.processor.configuring.pipeline_yaml import read_yaml
from ikebana.processor.configuring.settings_file import SETTINGS_VARIABLE
from ikebana.processor.linear.modules import ModuleError, look_in, module_named
from ikebana.processor.planning.plan import Plan


def read(
    given: Path,
    *,
    bootstrap_servers: str | None = None,
    checkpoint: str | None = None,
    environ: Mapping[str, str],
) -> pipeline.Pipeline:
    """The plan and the settings of a file, or of `module:name`.

    A pipeline in Python has the settings of the file that IKEBANA_SETTINGS names, and those
    of the options.  Its module is looked for in the current directory, too.

    Raises:
        ConfigError: it cannot be read, or has problems.
    """
    if given.exists() or not _is_reference(str(given)):
        return pipeline.read(
            given, bootstrap_servers=bootstrap_servers, checkpoint=checkpoint, environ=environ
        )
    plan = _plan_named(str(given))
    found = given_settings(
        _given_in(environ.get(SETTINGS_VARIABLE), environ),
        plan,
        bootstrap_servers=bootstrap_servers,
        checkpoint=checkpoint,
    )
    return pipeline.Pipeline(plan, found)


def _is_reference(given: str) -> bool:
    module, colon, name = given.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), name))


def _plan_named(given: str) -> Plan:
    module, _, name = given.partition(":")
    look_in(os.getcwd())
    try:
        there = module_named(module)
    except ModuleError as error:
        raise ConfigError(f'module "{module}" cannot be imported: {error}') from None
    found = getattr(there, name, None)
    if isinstance(found, Pipeline):
        return found.plan()
    if isinstance(found, Plan):
        return found
    there_are = [n for n, each in vars(there).items() if isinstance(each, Pipeline | Plan)]
    problem = (
        f'module "{module}" has no "{name}"'
        if found is None
        else f'"{name}" of module "{module}" is of type {type(found).__name__}'
    )
    raise ConfigError(
        f'cannot read pipeline "{given}": {problem}',
        hint=f"Its pipelines are {', '.join(there_are)}."
        if there_are
        else "Make a pipeline in it: shop = ikebana.Pipeline(...).",
    )


def _given_in(path: str | None, environ: Mapping[str, str]) -> Mapping[str, object]:
    if path is None:
        return {}
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"could not read settings file {path}: {error}") from error
    document = read_yaml(text, path, environ)
    if document.problems:
        listed = "; ".join(f"{place}: {problem}" for place, problem in document.problems)
        raise ConfigError(f"cannot read settings file {path}: {listed}")
    if not isinstance(document.value, dict):
        raise ConfigError(f"cannot read settings file {path}: it is not a mapping of settings")
    return document.value
