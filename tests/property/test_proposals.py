"""What `ikebana new` proposes, run over the very messages that it has read.

Rows, schemas and formats are drawn; the messages are written here, as their producers would write
them.  No message is an error, every row is there, and no value of a declared column is null.
"""

import json
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import date
from io import BytesIO
from typing import Any, NamedTuple

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from ikebana.processor.authoring.proposing.formats import Sample
from support.avro_messages import KnownSchemas
from support.proposed import run_of

CONNECT = "org.apache.kafka.connect.data"
_FAR = date.max.toordinal()
_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
_BYTES = st.binary(max_size=20)
_LONGS = st.integers(-(2**63), 2**63 - 1)
_DOUBLES = st.floats(allow_nan=False, allow_infinity=False)


class Kind(NamedTuple):
    """A kind of column: its schema in Connect's JSON, the values there, and the same in Avro."""

    connect: Mapping[str, Any]
    values: st.SearchStrategy[Any]
    avro: Any
    of_json: Callable[[Any], Any] = lambda value: value


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _named(kind: str, avro: str, name: str, values: st.SearchStrategy[Any]) -> Kind:
    return Kind({"type": kind, "name": name}, values, {"type": avro, "connect.name": name})


def _decimal(precision: int, scale: int) -> Kind:
    parts = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    name = f"{CONNECT}.Decimal"
    digits = st.integers(-(10**precision) + 1, 10**precision - 1).map(
        lambda number: number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
    )
    avro = {"type": "bytes", "connect.name": name, "connect.parameters": parts}
    return Kind({"type": "bytes", "name": name, "parameters": parts}, digits, avro, _base64)


_DAYS = st.integers(-_FAR, _FAR)
KINDS = (
    Kind({"type": "boolean"}, st.booleans(), "boolean"),
    Kind({"type": "int16"}, st.integers(-(2**15), 2**15 - 1),
         {"type": "int", "connect.type": "int16"}),
    Kind({"type": "int32"}, st.integers(-(2**31), 2**31 - 1), "int"),
    Kind({"type": "int64"}, _LONGS, "long"),
    Kind({"type": "double"}, _DOUBLES, "double"),
    Kind({"type": "float"}, st.floats(width=32, allow_nan=False, allow_infinity=False), "float"),
    Kind({"type": "string"}, _TEXTS, "string"),
    Kind({"type": "bytes"}, _BYTES, "bytes", _base64),
    _decimal(5, 2), _decimal(38, 0), _decimal(60, 30), _decimal(5, -2),
    *(_named("int32", "int", f"{of}.Date", _DAYS) for of in ("io.debezium.time", CONNECT)),
    _named("int32", "int", "io.debezium.time.Time", st.integers(-10**9, 10**9)),
    _named("int64", "long", "io.debezium.time.MicroTime", st.integers(-10**12, 10**12)),
    _named("int64", "long", "io.debezium.time.NanoTime", st.integers(0, 10**14)),
    _named("int64", "long", "io.debezium.time.Timestamp", _LONGS),
    _named("int64", "long", "io.debezium.time.MicroTimestamp", _LONGS),
    _named("int64", "long", "io.debezium.time.NanoTimestamp", _LONGS),
    _named("string", "string", "io.debezium.time.ZonedTimestamp",
           st.datetimes().map(lambda time: f"{time.isoformat()}Z")),
    _named("string", "string", "io.debezium.data.Uuid", st.uuids().map(str)),
    _named("string", "string", "io.debezium.data.Json",
           st.sampled_from(['{"a": 1.10}', "[]", "1"])),
    _named("string", "string", "io.debezium.data.Enum", _TEXTS),
    _named("string", "string", "some.connector.Unknown", _TEXTS),
    _named("int64", "long", "io.debezium.time.MicroDuration", st.integers(0, 10**12)),
    Kind({"type": "array", "items": {"type": "int32", "optional": True}},
         st.lists(st.none() | st.integers(0, 9), max_size=3),
         {"type": "array", "items": ["null", "int"]}),
    Kind({"type": "array", "items": {"type": "int32", "name": f"{CONNECT}.Date"}},
         st.lists(st.none() | _DAYS, max_size=3),
         {"type": "array", "items": ["null", {"type": "int", "connect.name": f"{CONNECT}.Date"}]}),
    Kind({"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}},
         st.dictionaries(_TEXTS, st.none() | _TEXTS, max_size=2),
         {"type": "map", "values": ["null", "string"]}),
)  # fmt: skip
# What a name may be; some cannot be declared, and are then left out by name.
NAMES = (
    *("a", "b", "A", "select", "on", "a.b", 'a "q"', "größe", "key", "value", "__x", "${x}"),
    *("full", "order", "1", " ", "'"),
)  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**140), 2**140) | _DOUBLES | _TEXTS
    | st.decimals(allow_nan=False, allow_infinity=False, min_value=-10**20, max_value=10**20),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXTS, inner, max_size=2),
    max_leaves=3,
)  # fmt: skip
MYSQL = (
    ("int(11)", st.integers(-(2**31), 2**31 - 1).map(str)),
    ("bigint(20) unsigned", st.integers(0, 2**64 - 1).map(str)),
    ("decimal(10,2)", st.integers(0, 10**10 - 1).map(lambda n: f"{n // 100}.{n % 100:02d}")),
    ("decimal(65,30)", st.just(f"{'1234567890' * 3}12345.{'0' * 29}1")),
    ("double", _DOUBLES.map(repr)),
    ("varchar(40)", _TEXTS),
    ("date", st.sampled_from(["2024-01-31", "0000-00-00", "2024-00-00"])),
    ("datetime(6)", st.sampled_from(["2024-01-31 12:34:56.5", "0000-00-00 00:00:00"])),
    ("time", st.sampled_from(["12:34:56", "-01:00:00", "838:59:59"])),
    ("blob", st.text(st.characters(max_codepoint=255), max_size=4)),
    ("year(4)", st.just("1999")), ("enum('a')", st.just("1")), ("set('a')", st.just("1")),
    ("bit(3)", st.just("5")), ("json", st.just("{}")), ("point", _TEXTS),
)  # fmt: skip
SOURCE = {"db": "shop", "table": "orders"}
Rows = list[dict[str, Any]]


def _dumped(data: Any) -> bytes:
    # Python's own encoder makes floats of decimals.
    return json.dumps(data, default=lambda number: _Number(number)).encode()


class _Number(float):
    """A decimal that is written with all of its digits."""

    def __new__(cls, number: Any) -> "_Number":
        made = super().__new__(cls, number)
        made.digits = format(number, "f")  # type: ignore[attr-defined]
        return made

    def __repr__(self) -> str:
        return self.digits  # type: ignore[attr-defined,no-any-return]


class Given(NamedTuple):
    """Messages, their schemas, and the rows that they have, nulls and all."""

    samples: list[Sample]
    rows: Rows
    schemas: Any = None


@st.composite
def columns(draw: st.DrawFn) -> dict[str, Kind]:
    names = draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
    return {name: draw(st.sampled_from(KINDS)) for name in names}


def _values(draw: st.DrawFn, kinds: Mapping[str, st.SearchStrategy[Any]]) -> Rows:
    count = draw(st.integers(1, 4))
    return [
        {"id": number, **{name: draw(st.none() | values) for name, values in kinds.items()}}
        for number in range(count)
    ]


@st.composite
def of_connect(draw: st.DrawFn) -> Given:
    """Events of Debezium or rows alone, with their schemas, without, or some of them."""
    kinds = draw(columns())
    rows = _values(draw, {name: kind.values for name, kind in kinds.items()})
    fields = [{"type": "int64", "optional": False, "field": "id"}]
    fields += [{**kind.connect, "optional": True, "field": name} for name, kind in kinds.items()]
    row_schema = {"type": "struct", "fields": fields, "optional": True}
    key_schema = {"type": "struct", "fields": fields[:1], "optional": False}
    flat, keyed = draw(st.booleans()), draw(st.booleans())
    schemas = draw(st.sampled_from([(True,), (False,), (True, False)]))
    samples = []
    for row in rows:
        image = {
            name: of if of is None or name not in kinds else kinds[name].of_json(of)
            for name, of in row.items()
        }
        wrapped = draw(st.sampled_from(schemas))
        schema: Any = row_schema
        payload: Any = {**image, "__deleted": "false"} if flat else image
        if not flat:
            images = [{**row_schema, "field": name} for name in ("before", "after")]
            schema = {"type": "struct", "fields": images}
            payload = {"before": None, "after": image, "source": SOURCE, "op": "c"}
        key: Any = {"id": row["id"]}
        if wrapped:
            payload, key = (
                {"schema": s, "payload": p} for s, p in ((schema, payload), (key_schema, key))
            )
        samples.append(Sample(_dumped(key) if keyed else None, _dumped(payload)))
    return Given(samples, rows)


def _encoded(schema: Any, data: Any) -> bytes:
    body = BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), data)
    return body.getvalue()


@st.composite
def of_avro(draw: st.DrawFn) -> Given:
    """Events of Debezium or rows alone, whose schemas are in a registry."""
    kinds = draw(columns())
    rows = _values(draw, {name: kind.values for name, kind in kinds.items()})
    # Names in Avro are letters and digits.
    safe = {name: f"c{at}" for at, name in enumerate(kinds)}
    fields: list[Any] = [{"name": "id", "type": "long"}]
    fields += [{"name": safe[name], "type": ["null", kind.avro]} for name, kind in kinds.items()]
    row_schema: Any = {"type": "record", "name": "Row", "fields": fields}
    key_schema = {"type": "record", "name": "Key", "fields": fields[:1]}
    is_event, keyed = draw(st.booleans()), draw(st.booleans())
    source: Any = {"type": "record", "name": "Source", "fields": [
        {"name": name, "type": "string"} for name in SOURCE
    ]}  # fmt: skip
    event: Any = {"type": "record", "name": "Envelope", "fields": [
        {"name": "before", "type": ["null", row_schema]},
        {"name": "after", "type": ["null", "Row"]},
        {"name": "source", "type": source}, {"name": "op", "type": "string"},
    ]}  # fmt: skip
    framing = draw(st.sampled_from(["confluent", "apicurio", "headers"]))
    schema = event if is_event else row_schema
    samples, told = [], []
    for row in rows:
        data = {safe.get(name, name): of for name, of in row.items()}
        told.append(data)
        body: Any = (
            {"before": None, "after": data, "source": SOURCE, "op": "c"} if is_event else data
        )
        key, value = _encoded(key_schema, {"id": row["id"]}), _encoded(schema, body)
        headers: tuple[tuple[str, bytes], ...] = ()
        if framing == "headers":
            ids = {"key": 1, "value": 2} if keyed else {"value": 2}
            headers = tuple((f"apicurio.{p}.contentId", n.to_bytes(8)) for p, n in ids.items())
        else:
            packed = ">I" if framing == "confluent" else ">Q"
            key, value = (b"\0" + struct.pack(packed, n) + p for n, p in ((1, key), (2, value)))
        samples.append(Sample(key if keyed else None, value, headers))
    return Given(samples, told, KnownSchemas({1: key_schema, 2: schema}))


@st.composite
def of_values(draw: st.DrawFn) -> Given:
    """Rows of any values, alone or in the changes of Maxwell, GoldenGate and DMS."""
    names = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    rows = _values(draw, dict.fromkeys(names, ANYTHING))
    form = draw(st.sampled_from(["json", "maxwell", "goldengate", "dms"]))
    keyed = draw(st.booleans())
    samples = []
    for row in rows:
        key: Any = row["id"]
        match form:
            case "maxwell":
                value: Any = {"database": "shop", "table": "orders", "type": "insert", "data": row}
                key = {"database": "shop", "table": "orders", "pk.id": row["id"]}
            case "goldengate":
                value = {"table": "shop.orders", "op_type": "I", "op_ts": "x", "after": row}
                if keyed:
                    value["primary_keys"] = ["id"]
            case "dms":
                metadata = {"record-type": "data", "operation": "insert"}
                named = {"schema-name": "shop", "table-name": "orders"}
                value = {"data": row, "metadata": {**metadata, **named}}
            case _:
                value = row
        samples.append(Sample(_dumped(key) if keyed else None, _dumped(value)))
    return Given(samples, rows)


@st.composite
def of_canal(draw: st.DrawFn) -> Given:
    """Texts of MySQL's types, several rows a message."""
    names = draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
    types = {name: draw(st.sampled_from(MYSQL)) for name in names}
    rows = _values(draw, {name: values for name, (_, values) in types.items()})
    data = [{name: str(of) if name == "id" else of for name, of in row.items()} for row in rows]
    value = {
        "database": "shop", "table": "orders", "isDdl": False, "type": "INSERT", "data": data,
        "pkNames": draw(st.sampled_from([["id"], None])), "sqlType": None, "old": None,
        "mysqlType": {"id": "int(11)", **{name: kind for name, (kind, _) in types.items()}},
    }  # fmt: skip
    return Given([Sample(None, _dumped(value))], rows)


@given(of_connect() | of_avro() | of_values() | of_canal())
def test_what_is_proposed_reads_what_it_was_made_from(given: Given) -> None:
    """No error, no row lost, and no value of a declared column is null."""
    run = run_of(given.samples, given.schemas)

    assert run.errors == []
    assert len(run.rows) == len(given.rows)
    declared = {column.name for column in run.source.columns}
    noted = " ".join(run.proposal.notes)
    left_out = {name for name in given.rows[0] if f'"{name}" is not declared' in noted}
    if run.source.value_format != "json" or declared != {"payload"}:
        # Fields of this prefix are the connector's, in rows without an envelope.
        flat = run.source.value_format == "debezium-flat-json"
        added = {name for name in given.rows[0] if flat and name.startswith("__")}
        assert declared | left_out >= set(given.rows[0]) - added
        by_id = {row["id"]: row for row in run.rows}
        for row in given.rows:
            found = _missing(
                row, by_id[row["id"]] if row["id"] in by_id else by_id[str(row["id"])]
            )
            assert not found & declared


def _missing(row: Mapping[str, Any], found: Mapping[str, Any]) -> set[str]:
    """The columns that have a value in a row, and none in what was found of it."""
    return {name for name, of in row.items() if of is not None and found.get(name) is None}
