"""Recognise the format of messages, and extract their rows."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ikebana.codecs.formats import Format, KeyFormat


class Sample(NamedTuple):
    """A message of a topic, with the names of its headers."""

    key: bytes | None
    value: bytes | None
    headers: tuple[str, ...] = ()


class Told(NamedTuple):
    """The rows in the messages of one format, with their tables and key columns counted."""

    tables: Counter[str]
    keys: Counter[tuple[str, ...]]
    rows: list[dict[str, Any]]


# Confluent's and Apicurio's serializers write a zero byte and an id before the data.
_FRAMED = 5


def is_framed(data: bytes) -> bool:
    """Return whether bytes have the prefix of serializers with a schema registry."""
    return len(data) > _FRAMED and data[0] == 0


def parsed(data: bytes | None) -> Any:
    """Parse bytes as JSON; return `...` if they are no JSON."""
    try:
        return ... if data is None else msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ...


def key_format(samples: Sequence[Sample]) -> KeyFormat:
    """Choose the format of keys: JSON if all keys are JSON, else bytes."""
    keys = [sample.key for sample in samples if sample.key is not None]
    if keys and all(map(is_framed, keys)):
        return "avro"
    return "json" if all(parsed(key) is not ... for key in keys) else "bytes"


def value_format(samples: Sequence[Sample]) -> Format:
    """Choose the format of most values; `json` if there are no values."""
    votes = Counter(_format_of(sample) for sample in samples if sample.value not in (None, b""))
    # A topic of changes may also have other messages, such as heartbeats and plain JSON.
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
    return next((form for form, its in LOOKS.items() if its.looks_so(value)), "json")


def payload(value: dict[str, Any]) -> dict[str, Any]:
    """Return the payload of a message of Kafka Connect, which may have a schema."""
    inner = value.get("payload")
    return inner if isinstance(inner, dict) and "schema" in value else value


def told(form: Format, samples: Sequence[Sample]) -> Told:
    """Extract the rows of the messages in a format, with their tables and key columns."""
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


class _Seen(NamedTuple):
    """The table, key columns and rows of one message, as far as it names them."""

    table: str = ""
    columns: tuple[str, ...] = ()
    rows: Sequence[Any] = ()


class _Looks(NamedTuple):
    """A test that recognises messages of a format, and a function that extracts their rows."""

    looks_so: Callable[[dict[str, Any]], bool]
    tells: Callable[[dict[str, Any]], _Seen]


def _changes(
    form: Format, value: dict[str, Any]
) -> Iterator[tuple[str, tuple[str, ...], dict[str, Any]]]:
    seen = LOOKS[form].tells(value) if form in LOOKS else _Seen(rows=[value])
    yield from ((seen.table, seen.columns, row) for row in seen.rows if isinstance(row, dict))


def _is_debezium(value: dict[str, Any]) -> bool:
    inner = payload(value).keys()
    return {"op", "source"} <= inner and bool(inner & {"before", "after"})


def _debezium(value: dict[str, Any]) -> _Seen:
    inner = payload(value)
    source = inner["source"] if isinstance(inner["source"], dict) else {}
    parts = (source.get(name) for name in ("db", "schema", "table"))
    table = ".".join(part for part in parts if isinstance(part, str))
    return _Seen(table, rows=[inner.get("before"), inner.get("after")])


def _is_flat(value: dict[str, Any]) -> bool:
    return bool({"__op", "__deleted"} & payload(value).keys())


def _flat(value: dict[str, Any]) -> _Seen:
    inner = payload(value)
    return _Seen(rows=[{name: of for name, of in inner.items() if not name.startswith("__")}])


def _is_canal(value: dict[str, Any]) -> bool:
    return {"isDdl", "data", "table"} <= value.keys()


def _canal(value: dict[str, Any]) -> _Seen:
    if value["isDdl"] or not isinstance(value["data"], list):
        return _Seen()
    table = f"{value.get('database')}.{value['table']}"
    return _Seen(table, _names(value.get("pkNames")), value["data"])


def _is_goldengate(value: dict[str, Any]) -> bool:
    return {"op_type", "op_ts", "table"} <= value.keys()


def _goldengate(value: dict[str, Any]) -> _Seen:
    rows = [value.get("before"), value.get("after")]
    return _Seen(str(value["table"]), _names(value.get("primary_keys")), rows)


def _is_dms(value: dict[str, Any]) -> bool:
    metadata = value.get("metadata")
    return isinstance(metadata, dict) and {"operation", "record-type"} <= metadata.keys()


def _dms(value: dict[str, Any]) -> _Seen:
    metadata = value["metadata"]
    if metadata["record-type"] != "data":
        return _Seen()
    parts = (metadata.get(name) for name in ("schema-name", "table-name"))
    return _Seen(".".join(map(str, parts)), rows=[value.get("data")])


def _is_maxwell(value: dict[str, Any]) -> bool:
    return {"database", "table", "type", "data"} <= value.keys()


def _maxwell(value: dict[str, Any]) -> _Seen:
    if str(value["type"]) not in ("insert", "update", "delete", "bootstrap-insert"):
        return _Seen()
    table = f"{value['database']}.{value['table']}"
    return _Seen(table, _names(value.get("primary_key_columns")), [value["data"]])


def _is_cdcv2(value: dict[str, Any]) -> bool:
    return bool(value) and value.keys() <= {"updates", "progress"}


# Tried in this order, because a message of Canal has all fields of one of Maxwell.
LOOKS: Mapping[Format, _Looks] = {
    "debezium-json": _Looks(_is_debezium, _debezium),
    "debezium-flat-json": _Looks(_is_flat, _flat),
    "canal": _Looks(_is_canal, _canal),
    "goldengate": _Looks(_is_goldengate, _goldengate),
    "dms": _Looks(_is_dms, _dms),
    "maxwell": _Looks(_is_maxwell, _maxwell),
    "cdcv2-json": _Looks(_is_cdcv2, lambda value: _Seen(rows=[value])),
}


def _names(given: Any) -> tuple[str, ...]:
    return tuple(map(str, given)) if isinstance(given, list) else ()
