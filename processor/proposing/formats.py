"""Which format messages are in, and which rows they tell of, by what they look like."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ikebana.codecs.formats import Format, KeyFormat


class Sample(NamedTuple):
    """A message of a topic, with the names of its headers."""

    key: bytes | None
    value: bytes | None
    headers: tuple[str, ...] = ()


class Told(NamedTuple):
    """What the messages in one format tell of their rows: by table, with the key's columns."""

    tables: Counter[str]
    keys: Counter[tuple[str, ...]]
    rows: list[dict[str, Any]]


# Ahead of what Confluent's and Apicurio's serializers write stands a zero, then an id.
_FRAMED = 5


def is_framed(data: bytes) -> bool:
    """Whether bytes begin as serializers with a schema registry begin them."""
    return len(data) > _FRAMED and data[0] == 0


def parsed(data: bytes | None) -> Any:
    """The JSON of bytes; `...` if they are none."""
    try:
        return ... if data is None else msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ...


def key_format(samples: Sequence[Sample]) -> KeyFormat:
    """How keys are read: as JSON if all are, else as the bytes that they are."""
    keys = [sample.key for sample in samples if sample.key is not None]
    if keys and all(map(is_framed, keys)):
        return "avro"
    return "json" if all(parsed(key) is not ... for key in keys) else "bytes"


def value_format(samples: Sequence[Sample]) -> Format:
    """The format that most values are in; `json` if there are none."""
    votes = Counter(_format_of(sample) for sample in samples if sample.value not in (None, b""))
    # A topic of changes has other messages in between, such as heartbeats and plain JSON.
    telling = [form for form, _ in votes.most_common() if form not in ("json", "bytes")]
    plain: list[Format] = [form for form, _ in votes.most_common()]
    return (telling or plain or ["json"])[0]


def _format_of(sample: Sample) -> Format:
    if sample.value is None or is_framed(sample.value):
        return "avro"
    if {"time", "diff"} <= set(sample.headers):
        return "diff"
    value = parsed(sample.value)
    if value is ...:
        return "bytes"
    return _of_object(value) if isinstance(value, dict) else "json"


def _of_object(value: dict[str, Any]) -> Format:
    given = value.keys()
    inner = payload(value)
    if {"op", "source"} <= inner.keys() and inner.keys() & {"before", "after"}:
        return "debezium-json"
    if {"__op", "__deleted"} & inner.keys():
        return "debezium-flat-json"
    if {"isDdl", "data", "table"} <= given:
        return "canal"
    if {"op_type", "op_ts", "table"} <= given:
        return "goldengate"
    if "metadata" in given and isinstance(metadata := value["metadata"], dict):
        return "dms" if {"operation", "record-type"} <= metadata.keys() else "json"
    if {"database", "table", "type", "data"} <= given:
        return "maxwell"
    if given and given <= {"updates", "progress"}:
        return "cdcv2-json"
    return "json"


def payload(value: dict[str, Any]) -> dict[str, Any]:
    """What a message of Kafka Connect carries, with its schema or without."""
    inner = value.get("payload")
    return inner if isinstance(inner, dict) and "schema" in value else value


def told(form: Format, samples: Sequence[Sample]) -> Told:
    """The rows that the messages in a format have, of which tables, and by which keys."""
    found = Told(Counter(), Counter(), [])
    for sample in samples:
        value = parsed(sample.value)
        if not isinstance(value, dict) or (form != "json" and _of_object(value) != form):
            continue
        for table, columns, row in _changes(form, value):
            if table:
                found.tables[table] += 1
            if columns:
                found.keys[columns] += 1
            found.rows.append(row)
    return found


def _changes(
    form: Format, value: dict[str, Any]
) -> Iterator[tuple[str, tuple[str, ...], dict[str, Any]]]:
    table, columns = "", _names(None)
    rows: list[Any] = [value]
    match form:
        case "debezium-json":
            inner = payload(value)
            source = inner["source"] if isinstance(inner["source"], dict) else {}
            parts = (source.get(name) for name in ("db", "schema", "table"))
            table = ".".join(part for part in parts if isinstance(part, str))
            rows = [inner.get("before"), inner.get("after")]
        case "debezium-flat-json":
            inner = payload(value)
            rows = [{name: of for name, of in inner.items() if not name.startswith("__")}]
        case "maxwell":
            if str(value["type"]) not in ("insert", "update", "delete", "bootstrap-insert"):
                return
            table = f"{value['database']}.{value['table']}"
            columns, rows = _names(value.get("primary_key_columns")), [value["data"]]
        case "canal":
            if value["isDdl"] or not isinstance(value["data"], list):
                return
            table = f"{value.get('database')}.{value['table']}"
            columns, rows = _names(value.get("pkNames")), value["data"]
        case "goldengate":
            table = str(value["table"])
            columns = _names(value.get("primary_keys"))
            rows = [value.get("before"), value.get("after")]
        case "dms":
            if value["metadata"]["record-type"] != "data":
                return
            parts = (value["metadata"].get(name) for name in ("schema-name", "table-name"))
            table, rows = ".".join(map(str, parts)), [value.get("data")]
    yield from ((table, columns, row) for row in rows if isinstance(row, dict))


def _names(given: Any) -> tuple[str, ...]:
    return tuple(map(str, given)) if isinstance(given, list) else ()
