"""Pipelines that are written elsewhere: in a YAML file, or in a Python module."""

import os
from collections.abc import Mapping
from pathlib import Path

from ikebana.errors import ConfigError
from ikebana.processor.authoring.pipeline import read
from ikebana.processor.building.pipeline import Pipeline
from ikebana.processor.linear.functions import ModuleError, look_in, module_named
from ikebana.processor.planning.plan import Plan


def load(source: Path | str, *, environ: Mapping[str, str] | None = None) -> Pipeline:
    """Load the pipeline of a YAML file, or of a Python module as `module:name`.

    `load("orders.yaml").evaluate(...)` tests a file in milliseconds, and `ikebana.testing.Run`
    takes it too.  `run` and `start` use the settings of the file; a file that is only tested need
    not name brokers or a checkpoint.  Its variables are read from `environ`, by default the
    environment of the process.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import ikebana as ik
    >>> text = '''
    ... pipeline: shop
    ... inputs: {stock: {topic: stock}}
    ... operators: {current: {upsert: stock}}
    ... outputs: {changes: {from: current, topic: stock.changes}}
    ... '''
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "shop.yaml").write_text(text)
    ...     shop = ik.load(Path(folder, "shop.yaml"))
    >>> for update in shop.evaluate(stock=[("tea", 5, 0), ("tea", 4, 1)])["changes"]:
    ...     print(*update)
    ('tea', 5) 0 1
    ('tea', 5) 1 -1
    ('tea', 4) 1 1

    Raises:
        ConfigError: the file or module cannot be used; it lists every problem.
    """
    if not Path(source).exists() and is_reference(str(source)):
        return pipeline_named(str(source))
    path = Path(source)
    plan, _ = read(
        path,
        bootstrap_servers="localhost:9092",
        checkpoint="./checkpoint",
        environ=os.environ if environ is None else environ,
    )
    return Pipeline.of(plan, file=path)


def is_reference(text: str) -> bool:
    """Return whether a text has the form `module:name`."""
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), name))


def pipeline_named(reference: str) -> Pipeline:
    """Import the pipeline that a module has under a name, given as `module:name`.

    The module may be in the current directory.

    Raises:
        ConfigError: the module cannot be imported, or has no such pipeline.
    """
    module, _, name = reference.partition(":")
    look_in(os.getcwd())
    try:
        there = module_named(module)
    except ModuleError as error:
        raise ConfigError(f'module "{module}" cannot be imported: {error}') from None
    pipeline = getattr(there, name, None)
    if isinstance(pipeline, Pipeline):
        return pipeline
    if isinstance(pipeline, Plan):
        return Pipeline.of(pipeline)
    there_are = [n for n, each in vars(there).items() if isinstance(each, Pipeline | Plan)]
    problem = (
        f'module "{module}" has no "{name}"'
        if pipeline is None
        else f'"{name}" of module "{module}" is of type {type(pipeline).__name__}'
    )
    raise ConfigError(
        f'cannot read pipeline "{reference}": {problem}',
        hint=f"Its pipelines are {', '.join(there_are)}."
        if there_are
        else "Make a pipeline in it: shop = ikebana.Pipeline(...).",
    )
