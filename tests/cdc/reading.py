"""What Debezium's messages come to, read plainly: the oracle of these tests.

It shares no code with ikebana on purpose, and knows just the types of the shop.
"""

import json
from base64 import b64decode
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from confluent_kafka import Message

_UNCHANGED = "__debezium_unavailable_value"


def payload(data: bytes | None) -> Any:
    """A key or value without the schema that it may carry; None as it is."""
    told = None if data is None else json.loads(data, parse_float=Decimal)
    return told["payload"] if isinstance(told, dict) and "schema" in told else told


def collection(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """The rows in the end, ordered by id."""
    rows: dict[int, dict[str, Any]] = {}
    for message in messages:
        if message.value() is None:
            continue  # a tombstone repeats a delete
        told = payload(message.value())
        match told["op"]:
            case "t":
                rows.clear()
            case "d":
                del rows[payload(message.key())["id"]]
            case "r" | "c" | "u":
                schemas, after = _schemas(message.value()), told["after"]
                said = {
                    name: _read(value, schemas.get(name, {}))
                    for name, value in after.items()
                    if value != _UNCHANGED
                }
                old = rows.get(after["id"], {}) if told["op"] == "u" else {}
                rows[after["id"]] = old | said
            case other:
                raise AssertionError(other)
    return [rows[key] for key in sorted(rows)]


def _schemas(value: bytes) -> dict[str, Any]:
    schema = json.loads(value).get("schema", {"fields": []})
    fields = [f for part in schema["fields"] if part["field"] == "after" for f in part["fields"]]
    return {field["field"]: field for field in fields}


def _read(value: Any, schema: Any) -> Any:
    if value is None:
        return None
    match schema.get("name", "").rpartition(".")[2]:
        case "Decimal":
            return _decimal(value, int(schema["parameters"]["scale"]))
        case "VariableScaleDecimal":
            return _decimal(value["value"], value["scale"])
        case "Date":
            return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
        case "MicroTime":
            return _without_zeros(_instant(value).time().isoformat())
        case "Timestamp":
            return _without_zeros(_instant(value * 1000).isoformat())
        case "MicroTimestamp":
            return _without_zeros(_instant(value).isoformat())
        case "ZonedTimestamp":
            return _without_zeros(value.removesuffix("Z")) + "Z"
    return value


def _decimal(digits: str, scale: int) -> Decimal:
    return Decimal(f"{int.from_bytes(b64decode(digits), signed=True)}E{-scale}")


def _instant(microseconds: int) -> datetime:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return (epoch + timedelta(microseconds=microseconds)).replace(tzinfo=None)


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
