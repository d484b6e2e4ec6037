"""The OpenAPI document of the reads, made of the types of their parameters and answers."""

from typing import Any

import msgspec

from ikebana import __version__
from ikebana.processor.base.listening import Problem
from ikebana.serving.http import parameters, wire
from ikebana.serving.http.operations import OPERATIONS
from ikebana.serving.http.parameters import Operation

_REFUSALS = {
    "400": "A parameter is not right.",
    "401": "There is no token, or a wrong one.",
    "404": "There is no such collection.",
    "408": "A time was not closed before the deadline.",
    "409": "The time is not closed yet: `upper` is the frontier.",
    "410": "The history of the time is gone: `since` is the earliest time that is left.",
    "413": "The body is too large.",
}
_ANY_BODY = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}


def document() -> dict[str, Any]:
    """Make the document."""
    types = {operation.answers for operation in OPERATIONS} | {Problem}
    bodies = {each.takes for each in OPERATIONS if each.method == "POST"}
    ordered = sorted(types | bodies, key=lambda each: each.__name__)
    template = "#/components/schemas/{name}"
    _, schemas = msgspec.json.schema_components(ordered, ref_template=template)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    paths["/v1/subscribe"] = {"get": _subscribe()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ikebana serve",
            "version": __version__,
            "description": "Reads of collections as of any time that is kept.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _described(operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {
        wire.JSON: {"schema": {"$ref": f"#/components/schemas/{operation.answers.__name__}"}}
    }
    if operation.streams:
        content[wire.ARROW] = {"schema": {"type": "string", "format": "binary"}}
    description: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [],
        "responses": {"200": {"description": "The answer.", "content": content}, **_refused()},
    }
    if "{name}" in operation.path:
        description["parameters"].append(
            {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        )
    if operation.method == "POST":
        body = {"$ref": f"#/components/schemas/{operation.takes.__name__}"}
        description["requestBody"] = {"required": True, "content": {wire.JSON: {"schema": body}}}
    else:
        description["parameters"] += _parameters(operation.takes)
    return description


def _subscribe() -> dict[str, Any]:
    stream = {"text/event-stream": {"schema": {"type": "string"}}}
    return {
        "operationId": "subscribe",
        "summary": "Send collections as of a time, then each closed batch, as events.",
        "parameters": _parameters(parameters.Subscribe),
        "responses": {"200": {"description": "Events.", "content": stream}, **_refused()},
    }


def _parameters(takes: type[msgspec.Struct]) -> list[dict[str, Any]]:
    schema = msgspec.json.schema(takes)
    struct = schema["$defs"][takes.__name__] if "$ref" in schema else schema
    required = struct.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": each}
        for name, each in struct["properties"].items()
    ]


def _refused() -> dict[str, Any]:
    return {
        status: {"description": reason, "content": _ANY_BODY}
        for status, reason in _REFUSALS.items()
    }
