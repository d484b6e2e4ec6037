"""Make the pages of the reference from the code: commands, settings, Python, HTTP."""

import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import click

import ikebana
import ikebana.sinks
import ikebana.testing
from ikebana.processor.authoring.schema import published
from ikebana.processor.cli.main import cli
from ikebana.serving import operations

Schema = Mapping[str, Any]


def write(folder: Path) -> None:
    """Write all pages; a page that is as it was keeps its date, so it is not built again."""
    folder.mkdir(exist_ok=True)
    pages = {"commands": commands(), "settings": settings(), "api": api(), "http": http()}
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


def commands() -> str:
    """What `--help` says of each command."""
    root = click.Context(cli, info_name="ikebana")
    lines = ["# Commands", "", "What `ikebana COMMAND --help` says.", ""]
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        lines += _command(command, click.Context(command, root, name, terminal_width=96))
    return "\n".join(lines)


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    level = "#" * (2 + context.command_path.count(" ") - 1)
    yield from (f"{level} {context.command_path}", "", "```text", command.get_help(context))
    yield from ("```", "")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _command(found, click.Context(found, context, name, terminal_width=96))


def settings() -> str:
    """Each setting of a pipeline file, from its JSON Schema."""
    schema = json.loads(published())
    lines = [
        "# Settings of the pipeline file",
        "",
        "From the schema that `ikebana schema` prints. A name between angle brackets is yours to "
        "choose. [The pipeline file](../pipeline-file.md) explains them with examples.",
        "",
    ]
    for name, part in schema["properties"].items():
        lines += [f"## {name}", ""]
        for path, kind, default, meaning in _rows(name, part, schema):
            told = "; ".join(filter(None, (kind, default and f"default `{default}`")))
            lines += [f"`{path}` ({told})" if told else f"`{path}`", f": {meaning}", ""]
    return "\n".join(lines)


def _rows(path: str, part: Schema, schema: Schema) -> Iterator[tuple[str, str, str, str]]:
    part = _resolved(part, schema)
    default = json.dumps(part["default"]) if "default" in part else ""
    # Sections, and entries of a mapping, are told by what is around and within them.
    if meaning := " ".join(part.get("description", "").split()):
        yield path, _type(part, schema), default, meaning
    for name, each in _parts(part, schema).items():
        yield from _rows(f"{path}.{name}", each, schema)


def _parts(part: Schema, schema: Schema) -> dict[str, Schema]:
    """The settings within a setting, by name."""
    part = _resolved(part, schema)
    found = dict(part.get("properties", {}))
    for choice in (*part.get("anyOf", []), *part.get("oneOf", [])):
        found = {**_parts(choice, schema), **found}
    if isinstance(more := part.get("additionalProperties"), dict) and more:
        found["<name>"] = more
    return found


def _resolved(part: Schema, schema: Schema) -> Schema:
    if "$ref" not in part:
        return part
    found: Any = schema
    for step in part["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return {**found, **{k: v for k, v in part.items() if k != "$ref"}}


def _type(part: Schema, schema: Schema) -> str:
    if "const" in part:
        return f"`{json.dumps(part['const'])}`"
    if "enum" in part:
        return ", ".join(f"`{json.dumps(each)}`" for each in part["enum"])
    for kind in ("anyOf", "oneOf"):
        if kind in part:
            told = [_type(_resolved(each, schema), schema) for each in part[kind]]
            return " or ".join(dict.fromkeys(each for each in told if each))
    named = part.get("type", "")
    named = " or ".join(named) if isinstance(named, list) else str(named)
    if named == "array" and isinstance(part.get("items"), dict):
        within = _type(_resolved(part["items"], schema), schema)
        return f"array of {within}" if within else "array"
    return named


def api() -> str:
    """The public names of the package, with their docstrings."""
    lines = [
        "# Python",
        "",
        "The names of `ikebana`, `ikebana.sinks` and `ikebana.testing`. "
        "[Pipelines in Python](../python.md), "
        "[Delivering into databases and tables](../deliver.md) and "
        "[Testing a pipeline](../testing.md) explain them with examples.",
        "",
    ]
    told: set[int] = set()
    for module in (ikebana, ikebana.sinks, ikebana.testing):
        lines += [f"## {module.__name__}", ""]
        for name in sorted(module.__all__, key=str.lower):
            found = getattr(module, name)
            if id(found) not in told:
                lines += _documented(module.__name__, name, found)
            told.add(id(found))
    return "\n".join(lines)


def _documented(module: str, name: str, found: object) -> Iterator[str]:
    kind = (
        "autoclass"
        if inspect.isclass(found)
        else "autofunction"
        if isinstance(found, FunctionType)
        else "automodule"
        if inspect.ismodule(found)
        else "autodata"
    )
    where = found.__name__ if inspect.ismodule(found) else f"{module}.{name}"
    options = [":members:"] if kind in ("autoclass", "automodule") else []
    yield from (f"### {name}", "", "```{eval-rst}", f".. {kind}:: {where}")
    yield from (f"   {option}" for option in options)
    yield from ("```", "")


def http() -> str:
    """The requests that `ikebana serve` answers, from its OpenAPI document."""
    document = operations.openapi()
    lines = [
        "# HTTP",
        "",
        "What `ikebana serve` answers, from the document that it gives at `/openapi.json`. "
        "[Serving collections](../serving.md) explains it with examples.",
        "",
    ]
    statuses: dict[str, str] = {}
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            lines += [f"## {method.upper()} {path}", "", told.get("summary", ""), ""]
            for each in told.get("parameters", []):
                kind = ", ".join(filter(None, (each["in"], _type(each["schema"], document))))
                lines += [f"* `{each['name']}` ({kind}) {each.get('description', '')}".rstrip()]
            if body := told.get("requestBody"):
                lines += _body(body["content"]["application/json"]["schema"], document)
            lines.append("")
            statuses |= {s: a.get("description", "") for s, a in told["responses"].items()}
    lines += ["## Statuses", ""]
    lines += [f"* {status}: {meaning}" for status, meaning in sorted(statuses.items())]
    return "\n".join([*lines, ""])


def _body(part: Schema, document: Schema) -> Iterator[str]:
    """The fields of a body in JSON."""
    for name, each in _resolved(part, document).get("properties", {}).items():
        kind = ", ".join(filter(None, ("body", _type(_resolved(each, document), document))))
        yield f"* `{name}` ({kind}) {each.get('description', '')}".rstrip()
