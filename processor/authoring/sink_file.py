"""The sections `deliver` and `kafka` of a file: a pipeline's, or a file of sinks alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ikebana.errors import ConfigError
from ikebana.processor.authoring import deliver_part, pipeline
from ikebana.processor.authoring.deliver_part import SinkFile
from ikebana.processor.authoring.document import Document
from ikebana.processor.authoring.pipeline_yaml import read_yaml
from ikebana.processor.authoring.settings_file import SETTINGS_VARIABLE, Placed, overlaid


class Sinks(NamedTuple):
    """The sections, and whether the file is a pipeline; its other sections are not checked."""

    sections: SinkFile
    of_pipeline: bool


def read(path: Path, environ: Mapping[str, str]) -> Sinks:
    """Read the sections of a file; a pipeline in Python has them in its settings file alone.

    A file of settings, named by the variable IKEBANA_SETTINGS, wins.

    Raises: ConfigError, for a file that cannot be read or that has problems.
    """
    source = str(path)
    document = Document({}, {}, [], frozenset())
    placed: Placed = {}
    if path.exists() or ":" not in source:
        text = pipeline.file_text(path, "sink file")
        document = pipeline.document_of(text, source, environ)
    if over := environ.get(SETTINGS_VARIABLE):
        above = read_yaml(pipeline.file_text(Path(over), "settings file"), over, environ)
        document, placed = overlaid(document, above, over)
    content = pipeline.mapping_of(document, source)
    of_pipeline = not path.exists() or "pipeline" in content
    if of_pipeline:
        content = {
            "deliver": {},
            **{key: content[key] for key in SinkFile.keys() & content.keys()},
        }
    errors = pipeline.schema_errors(content, SinkFile)
    problems = [
        *(each for each in document.problems if not of_pipeline or each[0].startswith("deliver")),
        *pipeline.schema_problems(errors, document.unread),
    ]
    if not (errors or of_pipeline):
        problems += deliver_part.problems(SinkFile.model_validate(content).deliver, None)
    if problems:
        raise ConfigError(pipeline.listed(problems, source, document, placed))
    return Sinks(SinkFile.model_validate(content), of_pipeline)
