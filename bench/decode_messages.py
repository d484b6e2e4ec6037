"""The messages that `decode.py` measures: one table of 30 columns in every format.

The rows are those of `pushdown.py`, and each message is an update of one of them.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import fastavro
import generate
import msgspec
import pushdown

from ikebana import Column, Input
from ikebana.codecs.avro_schema import Schemas, self_contained
from ikebana.processor.topics.messages import Message

_encode = msgspec.json.Encoder().encode
_parse = msgspec.json.Decoder().decode
_DECLARED = (
    Column("id", "BIGINT"),
    Column("status", "VARCHAR"),
    Column("amount", "DECIMAL(12,2)"),
)
_COLUMNS = tuple(pushdown.row(0, ""))


@dataclass(frozen=True)
class Case:
    """Messages of an input, and what parses their values without ikebana."""

    name: str
    source: Input
    write: Callable[[int], tuple[bytes, bytes | None]]
    parse: Callable[[bytes], Any] = _parse
    schemas: Schemas | None = None

    def messages(self, count: int) -> list[Message]:
        """The first messages of a partition."""
        return [Message(at, *self.write(at)) for at in range(count)]


class _Known:
    """Schemas by id, as a registry has them."""

    def __init__(self, schemas: Mapping[int, Any]) -> None:
        self._schemas = {number: self_contained(schema) for number, schema in schemas.items()}

    def parsed(self, id: int | str) -> object:  # noqa: A002 -- as registries call it
        return self._schemas[int(id)]


def _input(form: Any, **given: Any) -> Input:
    key: Any = "avro" if form.endswith("avro") else "bytes" if form == "bytes" else "json"
    return Input("in", ("t",), form, key, **given)


def _main_job(at: int, *, _made: list[tuple[bytes, bytes | None]] = []) -> Any:  # noqa: B006
    if at >= len(_made):
        _made[:] = generate.upserts(max(10_000, 2 * at), 200_000)
    return _made[at]


def _rows(at: int) -> tuple[dict[str, Any], dict[str, Any]]:
    return pushdown.row(at, "open"), pushdown.row(at, "paid")


def _json_row(at: int) -> tuple[bytes, bytes]:
    return b'{"id":%d}' % at, _encode(pushdown.row(at, "paid"))


def _debezium(at: int) -> tuple[bytes, bytes]:
    return b'{"id":%d}' % at, _encode(pushdown.event(at))


def _created(at: int) -> tuple[bytes, bytes]:
    """A row that is new, of a kilobyte: there is no old image."""
    return b'{"id":%d}' % at, _encode({**pushdown.event(at), "before": None, "op": "c"})


def _wrapped(at: int) -> tuple[bytes, bytes]:
    key = {"schema": _connect_schema({"id": at}, "Key"), "payload": {"id": at}}
    row = _connect_schema(pushdown.row(at, ""), "Value")
    images = [{**row, "field": name} for name in ("before", "after")]
    schema = {"type": "struct", "fields": images, "optional": False, "name": "Envelope"}
    return _encode(key), _encode({"schema": schema, "payload": pushdown.event(at)})


def _connect_schema(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    kinds = {int: "int64", float: "double", str: "string"}
    fields = [
        {"type": kinds[type(value)], "optional": True, "field": column}
        for column, value in row.items()
    ]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"orders.{name}"}


def _flat(at: int) -> tuple[bytes, bytes]:
    return b'{"id":%d}' % at, _encode({**pushdown.row(at, "paid"), "__op": "u"})


def _maxwell(at: int) -> tuple[bytes, bytes]:
    _, new = _rows(at)
    message = {
        **{"database": "shop", "table": "orders", "type": "update", "ts": 1_700_000_000 + at},
        **{"xid": at, "commit": True, "primary_key_columns": ["id"]},
        **{"data": new, "old": {"status": "open"}},
    }
    return b'{"database":"shop","table":"orders","pk.id":%d}' % at, _encode(message)


def _canal(at: int) -> tuple[bytes, bytes]:
    _, new = _rows(at)
    kinds = {int: "bigint", float: "double", str: "varchar(64)"}
    message = {
        "data": [{name: str(value) for name, value in new.items()}],
        "database": "shop",
        "es": 1_700_000_000_000 + at,
        "id": at,
        "isDdl": False,
        "mysqlType": {name: kinds[type(value)] for name, value in new.items()},
        "old": [{"status": "open"}],
        "pkNames": ["id"],
        "sql": "",
        "sqlType": dict.fromkeys(new, 12),
        "table": "orders",
        "ts": 1_700_000_000_005 + at,
        "type": "UPDATE",
    }
    return b"%d" % at, _encode(message)


def _goldengate(at: int) -> tuple[bytes, bytes]:
    old, new = _rows(at)
    message = {
        **{"table": "SHOP.ORDERS", "op_type": "U", "op_ts": "2026-01-01 00:00:00.000000"},
        **{"current_ts": "2026-01-01T00:00:01.000000", "pos": f"{at:020d}"},
        **{"primary_keys": ["id"], "before": old, "after": new},
    }
    return b"%d" % at, _encode(message)


def _dms(at: int) -> tuple[bytes, bytes]:
    metadata = {
        **{"timestamp": "2026-01-01T00:00:00.000000Z", "record-type": "data"},
        **{"operation": "update", "partition-key-type": "primary-key"},
        **{"schema-name": "shop", "table-name": "orders", "transaction-id": at},
    }
    return b"%d" % at, _encode({"data": pushdown.row(at, "paid"), "metadata": metadata})


def _avro_row(name: str, columns: tuple[str, ...] = _COLUMNS) -> dict[str, Any]:
    kinds = {int: "long", float: "double", str: "string"}
    example = pushdown.row(0, "")
    fields = [
        {"name": column, "type": ["null", kinds[type(example[column])]], "default": None}
        for column in columns
    ]
    return {"type": "record", "name": name, "namespace": "shop.orders", "fields": fields}


def _avro_source() -> dict[str, Any]:
    texts = ["version", "connector", "name", "snapshot", "db", "table", "file"]
    numbers = ["ts_ms", "server_id", "pos", "row"]
    fields: list[dict[str, Any]] = [{"name": name, "type": "string"} for name in texts]
    fields += [{"name": name, "type": "long"} for name in numbers]
    fields.append({"name": "gtid", "type": ["null", "string"], "default": None})
    name, space = "Source", "io.debezium.connector.mysql"
    return {"type": "record", "name": name, "namespace": space, "fields": fields}


_KEY = _avro_row("Key", ("id",))
_ROW = _avro_row("Value")
_EVENT = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.orders",
    "fields": [
        {"name": "before", "type": ["null", _ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": _avro_source()},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
_SCHEMAS = _Known({1: _KEY, 2: _ROW, 3: _EVENT})


def _in_avro(number: int, schema: Any, data: Any) -> bytes:
    out = io.BytesIO(b"\0" + number.to_bytes(4, "big"))
    out.seek(5)
    fastavro.schemaless_writer(out, schema, data)
    return out.getvalue()


def _avro_writer(number: int, schema: Any, make: Callable[[int], Any]) -> Any:
    key_schema, schema = fastavro.parse_schema(_KEY), fastavro.parse_schema(schema)
    return lambda at: (
        _in_avro(1, key_schema, {"id": at}),
        _in_avro(number, schema, make(at)),
    )


def _parser(schema: Any) -> Callable[[bytes], Any]:
    parsed = fastavro.parse_schema(schema)
    return lambda value: fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed, None)


_FULL = (("row_image", "full"),)
_typed = partial(_input, key=("id",), columns=_DECLARED)
CASES = (
    Case("bytes", _input("bytes"), _main_job),
    Case("json", _input("json"), _main_job),
    Case("json, 30 columns", _input("json"), _json_row),
    Case("debezium-json", _input("debezium-json", drift=False), _debezium),
    Case("debezium-json, created", _input("debezium-json", drift=False), _created),
    Case("debezium-json, drift", _input("debezium-json"), _debezium),
    Case("debezium-json, key and types", _typed("debezium-json", drift=False), _debezium),
    Case("debezium-json, schemas", _input("debezium-json", drift=False), _wrapped),
    Case("debezium-flat-json", _input("debezium-flat-json"), _flat),
    Case(
        "debezium-avro",
        _input("debezium-avro", drift=False),
        _avro_writer(3, _EVENT, pushdown.event),
        _parser(_EVENT),
        _SCHEMAS,
    ),
    Case(
        "debezium-avro, drift",
        _input("debezium-avro"),
        _avro_writer(3, _EVENT, pushdown.event),
        _parser(_EVENT),
        _SCHEMAS,
    ),
    Case(
        "avro",
        _input("avro"),
        _avro_writer(2, _ROW, lambda at: pushdown.row(at, "paid")),
        _parser(_ROW),
        _SCHEMAS,
    ),
    Case("maxwell", _input("maxwell", drift=False), _maxwell),
    Case("canal", _input("canal", drift=False), _canal),
    Case("goldengate", _input("goldengate", drift=False, options=_FULL), _goldengate),
    Case("dms", _input("dms", key=("id",), drift=False), _dms),
)
