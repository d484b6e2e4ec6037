"""What connectors write for the columns of each database, and what it is in a column of SQL.

A line of `golden/connector_values.jsonl` is a type of a database in one way of writing it: by the
documentation of Debezium 3.6 and its source, as `Value` says.  The messages of real servers,
which are recorded beside it, have the same forms (`golden/debezium_captured`,
`golden/mariadb_captured`).
"""

from pathlib import Path
from typing import Any

import msgspec

Node = dict[str, Any]
"""A schema of Kafka Connect, as its JSON converter writes it."""


class Value(msgspec.Struct, frozen=True):
    """A value of Debezium.

    * `database`, `type`, `mode`: the column in its database, and the connector's setting.
    * `schema`, `json`: what the message has, with a schema beside it, by its name, or without.
    * `declared`: the column's type in the pipeline file.
    * `sql`: the text of the value in SQL.
    * `encoding`: what has to be declared of messages without a schema, or of texts and numbers
      that have no name in the schema; None: nothing.
    * `avro`: whether Avro has the same value.
    """

    database: str
    type: str
    schema: str
    json: Any
    declared: str
    sql: str | None
    mode: str = ""
    encoding: str | None = None
    avro: bool = True

    @property
    def name(self) -> str:
        """What a column of it is called."""
        mode = f", {self.mode}" if self.mode else ""
        return f"{self.database} {self.type} as {self.declared}{mode}"


def struct(_name: str, **fields: Node) -> Node:
    """The schema of an object of this name, with fields that may be null."""
    members = [{**node, "field": name, "optional": True} for name, node in fields.items()]
    return {**_is("struct", _name), "fields": members}


def node_of(schema: str) -> Node:
    """The schema of a name, such as `Json`, `Decimal(2)` or `array of Date`."""
    if schema.startswith("array of "):
        return _array(node_of(schema.removeprefix("array of ")))
    if schema.startswith("Decimal("):
        name = "org.apache.kafka.connect.data.Decimal"
        return _is("bytes", name, scale=schema[8:].rstrip(")"))
    return _SCHEMAS[schema]


def _is(kind: str, name: str | None = None, **parameters: str) -> Node:
    named: Node = {} if name is None else {"name": name, "version": 1}
    return {"type": kind, **named, **({"parameters": parameters} if parameters else {})}


def _array(items: Node, name: str | None = None) -> Node:
    return {**_is("array", name), "items": {**items, "optional": True}}


def _map(keys: Node, values: Node) -> Node:
    return {**_is("map"), "keys": keys, "values": {**values, "optional": True}}


_KINDS = ("boolean", "int8", "int16", "int32", "int64", "float", "double", "string", "bytes")
_PLAIN = {kind: _is(kind) for kind in _KINDS}
_TIME, _DATA = "io.debezium.time.", "io.debezium.data."
_DAY = dict.fromkeys(("year", "month", "day"), _PLAIN["int32"])
_CLOCK = dict.fromkeys(("hour", "minute", "second", "nanos", "precision"), _PLAIN["int32"])
_ZONE = {"offsetSeconds": _PLAIN["int32"]}
_ENDLESS = {"specialValue": _PLAIN["string"]}
_SPAN = ("years", "months", "days", "hours", "minutes", "nanos")
_XY = {"x": _PLAIN["double"], "y": _PLAIN["double"]}
_SHAPE = {"wkb": _PLAIN["bytes"], "srid": _PLAIN["int32"]}
_SCHEMAS: dict[str, Node] = {
    **_PLAIN,
    "Bits": _is("bytes", _DATA + "Bits", length="12"),
    **{name: _is("string", _DATA + name) for name in ("Json", "Xml", "Uuid", "Ltree", "TsVector")},
    "Enum": _is("string", _DATA + "Enum", allowed="sad,happy"),
    "EnumSet": _is("string", _DATA + "EnumSet", allowed="a,b,c"),
    **{name: _is("int32", _TIME + name) for name in ("Date", "Time", "Year")},
    **{
        name: _is("int64", _TIME + name)
        for name in ("MicroTime", "NanoTime", "Timestamp", "MicroTimestamp", "NanoTimestamp")
    },
    **{
        f"Connect {name}": _is(kind, f"org.apache.kafka.connect.data.{name}")
        for name, kind in {"Date": "int32", "Time": "int32", "Timestamp": "int64"}.items()
    },
    **{
        name: _is("string", _TIME + name)
        for name in ("ZonedTimestamp", "ZonedTime", "IsoDate", "IsoTime", "IsoTimestamp")
    },
    "MicroDuration": _is("int64", _TIME + "MicroDuration"),
    "double MicroDuration": _is("double", _TIME + "MicroDuration"),
    "Interval": _is("string", _TIME + "Interval"),
    "StructuredDate": struct(_TIME + "StructuredDate", **_DAY, **_ENDLESS),
    "StructuredTime": struct(_TIME + "StructuredTime", **_CLOCK),
    "StructuredTimestamp": struct(_TIME + "StructuredTimestamp", **_DAY, **_CLOCK, **_ENDLESS),
    "StructuredZonedTime": struct(_TIME + "StructuredZonedTime", **_CLOCK, **_ZONE),
    "StructuredZonedTimestamp": struct(
        _TIME + "StructuredZonedTimestamp",
        **{**_DAY, **_CLOCK, **_ZONE, "zoneId": _PLAIN["string"], **_ENDLESS},
    ),
    "StructuredDuration": struct(
        _TIME + "StructuredDuration",
        **dict.fromkeys(_SPAN, _PLAIN["int32"]),
        seconds=_PLAIN["int64"],
    ),
    "VariableScaleDecimal": struct(
        _DATA + "VariableScaleDecimal", scale=_PLAIN["int32"], value=_PLAIN["bytes"]
    ),
    "Geometry": struct(_DATA + "geometry.Geometry", **_SHAPE),
    "Point": struct(_DATA + "geometry.Point", **_XY, **_SHAPE),
    "Circle": struct(
        _DATA + "geometry.Circle",
        center=struct(_DATA + "geometry.Point", **_XY),
        radius=_PLAIN["double"],
    ),
    "DoubleVector": _array(_PLAIN["double"], _DATA + "DoubleVector"),
    "FloatVector": _array(_PLAIN["float"], _DATA + "FloatVector"),
    "SparseDoubleVector": struct(
        _DATA + "SparseDoubleVector",
        dimensions=_PLAIN["int16"],
        vector=_map(_PLAIN["int16"], _PLAIN["double"]),
    ),
    "map of string": _map(_PLAIN["string"], _PLAIN["string"]),
}

_FILE = Path(__file__).parents[1] / "golden" / "connector_values.jsonl"
VALUES: tuple[Value, ...] = tuple(msgspec.json.Decoder(Value).decode_lines(_FILE.read_bytes()))


class Bare(msgspec.Struct, frozen=True):
    """A value of a format whose messages have no schema; `mysql` is Canal's type of its column."""

    format: str
    type: str
    json: Any
    declared: str
    sql: str | None
    encoding: str | None = None
    mysql: str | None = None


_OTHERS = Path(__file__).parents[1] / "golden" / "other_connector_values.jsonl"
BARE: tuple[Bare, ...] = tuple(msgspec.json.Decoder(Bare).decode_lines(_OTHERS.read_bytes()))
