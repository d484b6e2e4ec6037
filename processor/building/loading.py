"""Pipelines that are written elsewhere: in a YAML file, or in a Python module."""

import os
from collections.abc import Mapping
from pathlib import Path

from ikebana.errors import ConfigError
from ikebana.processor.building.pipeline import Pipeline
from ikebana.processor.configuring.pipeline import read
from ikebana.processor.linear.modules import ModuleError, look_in, module_named
from ikebana.processor.planning.plan import Plan


def load(given: Path | str, *, environ: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline of a YAML file, or of a module as `module:name`.

    `load("orders.yaml").evaluate(...)` tests a file in milliseconds; `ikebana.testing` takes it as
    well, and `run` and `start` have the settings of the file.  A file need not name brokers or
    a checkpoint as long as it is not run.  Its variables are read from `environ`, which is the
    process's own by default.

    Raises:
        ConfigError: it cannot be used; every problem at once.
    """
    if not Path(given).exists() and is_reference(str(given)):
        return pipeline_named(str(given))
    path = Path(given)
    plan, _ = read(
        path,
        bootstrap_servers="localhost:9092",
        checkpoint="./checkpoint",
        environ=os.environ if environ is None else environ,
    )
    return Pipeline.of(plan, file=path)


def is_reference(given: str) -> bool:
    """Whether this is of the form `module:name`."""
    module, colon, name = given.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), name))


def pipeline_named(given: str) -> Pipeline:
    """The pipeline that a module has under a name, `module:name`.

    The module is looked for in the current directory, too.

    Raises:
        ConfigError: the module cannot be imported, or has no such pipeline.
    """
    module, _, name = given.partition(":")
    look_in(os.getcwd())
    try:
        there = module_named(module)
    except ModuleError as error:
        raise ConfigError(f'module "{module}" cannot be imported: {error}') from None
    found = getattr(there, name, None)
    if isinstance(found, Pipeline):
        return found
    if isinstance(found, Plan):
        return Pipeline.of(found)
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
