"""Avro schemas of a registry, resolved: with full names and the definitions of all types."""

from collections.abc import Sequence
from typing import Any, Protocol

SIMPLE = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


class SchemaUnknown(Exception):
    """A schema id is unknown, or its schema cannot be used; `reason` says which."""

    def __init__(self, reason: str = "schema id is unknown") -> None:
        super().__init__(reason)
        self.reason = reason


class Schemas(Protocol):
    """A source of writers' schemas, such as a registry."""

    def parsed(self, id: int | str) -> object:  # noqa: A002 -- as registries call it
        """Look up the schema of an id, with its references, as `self_contained` returns it.

        Raises:
            SchemaUnknown: the id has no schema, or one that cannot be used.
        """
        ...


def self_contained(schema: Any, references: Sequence[Any] = ()) -> Any:
    """Resolve a schema: names become full, and each type is defined where it first occurs.

    `references` has the schemas that it refers to, each after the schemas that it needs.

    Raises:
        SchemaUnknown: it is no Avro schema, or names a type that is not defined.
    """
    types: dict[str, Any] = {}
    try:
        for reference in references:
            _named(reference, "", types, set())
        return _named(schema, "", types, set())
    except (AttributeError, KeyError, RecursionError, TypeError):
        raise SchemaUnknown("its schema is no Avro schema") from None


def _named(schema: Any, namespace: str, types: dict[str, Any], seen: set[str]) -> Any:
    if isinstance(schema, list):
        return [_named(branch, namespace, types, seen) for branch in schema]
    if isinstance(schema, str):
        if schema in SIMPLE:
            return schema
        local = f"{namespace}.{schema}" if namespace and "." not in schema else schema
        for name in (local, schema):
            if name in seen:
                return name
            if name in types:
                return _named(types[name], "", types, seen)
        raise SchemaUnknown("its schema names a type that is not defined")
    kind = schema["type"]
    if kind == "array":
        return {**schema, "items": _named(schema["items"], namespace, types, seen)}
    if kind == "map":
        return {**schema, "values": _named(schema["values"], namespace, types, seen)}
    if kind in ("record", "error", "enum", "fixed"):
        name = schema["name"]
        if "." not in name and (space := schema.get("namespace", namespace)):
            name = f"{space}.{name}"
        if name in seen:
            return name
        seen.add(name)
        resolved = {**schema, "name": name}
        resolved.pop("namespace", None)
        if "fields" in schema:
            space = name.rpartition(".")[0]
            resolved["type"] = "record"
            resolved["fields"] = [
                {**field, "type": _named(field["type"], space, types, seen)}
                for field in schema["fields"]
            ]
        types[name] = resolved
        return resolved
    return schema if isinstance(kind, str) and kind in SIMPLE else _named(
        kind, namespace, types, seen
    )  # fmt: skip
