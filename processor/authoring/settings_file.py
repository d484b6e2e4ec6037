"""A file of settings over a pipeline file: where and how this copy of a pipeline runs.

It has the sections of a pipeline file that are settings, and no others.  Its values win key
by key, so a platform can set brokers, credentials, checkpoint and Spark without a change of
the pipeline file.
"""

from collections.abc import Mapping

from ikebana.processor.authoring.document import Document
from ikebana.processor.authoring.settings_part import SettingsPart

SETTINGS_VARIABLE = "IKEBANA_SETTINGS"

Placed = Mapping[str, tuple[str, int]]
"""Paths that another file sets, with its name and the line in it."""


def overlaid(document: Document, over: Document, source: str) -> tuple[Document, Placed]:
    """The document with the settings of `over`, a file called `source`, on top of it."""
    placed = {path: (source, line) for path, line in over.lines.items()}
    if over.value is None:
        return document, {}
    if not isinstance(over.value, dict):
        problem = (source, "is not a mapping of settings")
        return document._replace(problems=[*document.problems, problem]), {}
    keys = SettingsPart.keys()
    problems = [
        (path, f"does not belong in a file of settings; these do: {', '.join(keys)}")
        for path in over.value
        if path not in keys
    ]
    return (
        Document(
            _merged(document.value, {k: v for k, v in over.value.items() if k in keys}),
            document.lines,
            [*document.problems, *problems, *over.problems],
            document.unread | over.unread,
        ),
        placed,
    )


def _merged(below: object, above: object) -> object:
    if isinstance(below, dict) and isinstance(above, dict):
        merged = {key: _merged(below.get(key), value) for key, value in above.items()}
        return {**below, **merged}
    return below if above is None else above
