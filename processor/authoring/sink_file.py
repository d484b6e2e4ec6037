"""A file of sinks alone, with the sections `deliver` and `kafka`."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ikebana.errors import ConfigError
from ikebana.processor.authoring import deliver_part, pipeline
from ikebana.processor.authoring.deliver_part import SinkFile
from ikebana.processor.authoring.pipeline_yaml import read_yaml
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.authoring.settings_part import SETTINGS_VARIABLE, Placed, overlaid
from ikebana.processor.planning.catalog import output_types
from ikebana.processor.planning.plan import Plan


def read(path: Path, environ: Mapping[str, str]) -> SinkFile | None:
    """Read a file of sinks; None if it is a pipeline, which may also be one in Python.

    A file of settings, named by the variable IKEBANA_SETTINGS, wins.

    Raises: ConfigError, for a file that cannot be read or that has problems.
    """
    source = str(path)
    if not path.exists() and ":" in source:
        return None
    document = pipeline.document_of(pipeline.file_text(path, "sink file"), source, environ)
    if "pipeline" in pipeline.mapping_of(document, source):
        return None
    placed: Placed = {}
    if over := environ.get(SETTINGS_VARIABLE):
        above = read_yaml(pipeline.file_text(Path(over), "settings file"), over, environ)
        document, placed = overlaid(document, above, over)
    content = pipeline.mapping_of(document, source)
    errors = pipeline.schema_errors(content, SinkFile)
    problems = [*document.problems, *pipeline.schema_problems(errors, document.unread)]
    if not errors:
        problems += deliver_part.problems(SinkFile.model_validate(content).deliver, None)
    if problems:
        raise ConfigError(pipeline.listed(problems, source, document, placed))
    return SinkFile.model_validate(content)


def text_of(plan: Plan, settings: Settings) -> str:
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
