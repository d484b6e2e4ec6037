"""Schemas and values of Kafka Connect in Avro, as Confluent's converter writes them."""

import base64
from collections.abc import Iterator
from itertools import count
from typing import Any

Node = dict[str, Any]
_KINDS = {
    **dict.fromkeys(("int8", "int16", "int32"), "int"),
    "int64": "long",
    **{kind: kind for kind in ("boolean", "float", "double", "string", "bytes")},
}


def schema_of(node: Node, numbers: Iterator[int] | None = None) -> Any:
    """The Avro schema of a node of a Connect schema; each record has a name of its own."""
    numbers = count() if numbers is None else numbers
    made = _bare(node, numbers)
    if node.get("name"):
        made["connect.name"] = node["name"]
    if node.get("parameters"):
        made["connect.parameters"] = node["parameters"]
    if str(node.get("name")).endswith("connect.data.Decimal"):
        made |= {"logicalType": "decimal", "precision": 64}
        made["scale"] = int(node["parameters"]["scale"])
    return ["null", made] if node.get("optional") else made


def _bare(node: Node, numbers: Iterator[int]) -> dict[str, Any]:
    match node["type"]:
        case "struct":
            fields = [
                {"name": field["field"], "type": schema_of(field, numbers)}
                for field in node["fields"]
            ]
            return {"type": "record", "name": f"Record{next(numbers)}", "fields": fields}
        case "array":
            return {"type": "array", "items": schema_of(node["items"], numbers)}
        case "map":
            return {"type": "map", "values": schema_of(node["values"], numbers)}
        case kind:
            return {"type": _KINDS[kind]}


def value_of(node: Node, data: Any) -> Any:
    """The value that fastavro takes for one of Connect's JSON."""
    if data is None:
        return None
    match node["type"]:
        case "struct":
            return {f["field"]: value_of(f, data.get(f["field"])) for f in node["fields"]}
        case "array":
            return [value_of(node["items"], item) for item in data]
        case "map":
            return {name: value_of(node["values"], item) for name, item in data.items()}
        case "bytes":
            return base64.b64decode(data)
        case "float" | "double":
            # JSON has texts for those that are not finite.
            return float(data)
    return data
