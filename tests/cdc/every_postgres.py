"""A table with a column of every type of PostgreSQL, and its rows as ikebana has them.

The database itself says in JSON what each value is.  What the connector loses is in `LOST`, with
the reason, and so are the types that it does not capture, in `UNTOLD`.
"""

import json
import re
import struct
from base64 import b64encode
from decimal import Decimal
from typing import Any, NamedTuple

from cdc.postgres import Postgres


class Column(NamedTuple):
    """A column: its type, two values in SQL, and SQL for a value in JSON.

    `plain` is that for messages without a schema, if they show another one.
    """

    type: str
    usual: str
    extreme: str
    json: str = "to_jsonb({0})"
    plain: str = ""


_BYTES = "to_jsonb(encode({0}, 'base64'))"
_TEXT = "to_jsonb({0}::text)"
_EXACT = "to_jsonb({0}::numeric)"
_MICROS = "to_jsonb((extract(epoch FROM {0}) * 1000000)::bigint)"
_MILLIS = "to_jsonb((extract(epoch FROM {0}) * 1000)::bigint)"
_EPOCH = "to_jsonb(extract(epoch FROM {0}))"
_DAYS = "to_jsonb({0} - date '1970-01-01')"
_UTC = "to_jsonb({0} AT TIME ZONE 'UTC')"
# What Debezium writes for a timestamp that is infinite.
_FINITE = f"CASE WHEN isfinite({{0}}) THEN {_MICROS} ELSE '9223372036825200000' END"


def _each(item: str) -> str:
    """SQL for an array of the values that an array's items have."""
    return f"(SELECT coalesce(jsonb_agg({item.format('x')}), '[]') FROM unnest({{0}}) x)"


COLUMNS = {
    "a_smallint": Column("smallint", "-32768", "32767"),
    "a_integer": Column("integer", "-2147483648", "2147483647"),
    "a_bigint": Column("bigint", "-9223372036854775808", "9223372036854775807"),
    "a_numeric": Column("numeric(12,3)", "-123456.700", "999999999.999", plain=_TEXT),
    "long_numeric": Column(
        "numeric(50,10)", "1.5", "1234567890123456789012345678901234567890.5", plain=_TEXT
    ),
    "whole_numeric": Column("numeric(30,0)", "1", "123456789012345678901234567890", plain=_TEXT),
    "free_numeric": Column("numeric", "12345678901234567890.123456789", "1e-20", plain=_TEXT),
    "hundreds": Column("numeric(5,-2)", "1234567", "100", plain=_TEXT),
    "tiny": Column("numeric(3,5)", "0.00123", "-0.00999", plain=_TEXT),
    # Debezium's text of it is NAN.
    "odd_numeric": Column("numeric", "'NaN'", "1", plain="to_jsonb(upper({0}::text))"),
    "a_money": Column(
        "money",
        "'-1234.50'",
        "'92233720368547758.07'",
        _EXACT,
        plain="to_jsonb({0}::numeric::text)",
    ),
    "a_real": Column("real", "0.1", "3.4028235e38"),
    "a_double": Column("double precision", "0.1", "-1e300"),
    "odd_real": Column("real", "'NaN'", "'-Infinity'"),
    "odd_double": Column("double precision", "'Infinity'", "'NaN'"),
    "a_boolean": Column("boolean", "true", "false"),
    "a_char": Column("char(5)", "'ab'", "'é🌷'", "to_jsonb({0}::bpchar)"),
    "a_varchar": Column("varchar(10)", "'x'", "''"),
    "a_text": Column("text", "'Zoë \"Ünal\" 🌷'", "E'tab\\t\\\\n'"),
    "one_char": Column('"char"', "'x'", "'y'"),
    "a_name": Column("name", "'n'", "'m'"),
    "a_citext": Column("citext", "'Ab'", "'aB'", _TEXT),
    "a_ltree": Column("ltree", "'a.b'", "'c'", _TEXT),
    "a_bytea": Column("bytea", "'\\x00ff10'", "''", _BYTES),
    "a_bit": Column("bit(1)", "'1'", "'0'", "to_jsonb({0} = B'1')"),
    "some_bits": Column("bit(12)", "'000000001010'", "'111100001111'", _TEXT),
    "a_varbit": Column("varbit", "'101010101'", "'1'", _TEXT),
    "a_date": Column("date", "'2024-01-31'", "'0001-01-01'", plain=_DAYS),
    "a_time": Column("time", "'23:59:59.5'", "'24:00:00'", plain=_MICROS),
    "a_time3": Column("time(3)", "'00:00:00.001'", "'12:00'", plain=_MILLIS),
    "a_timetz": Column(
        "timetz", "'12:34:56.789+02'", "'00:00:00+00'", "to_jsonb(({0} AT TIME ZONE 'UTC')::text)"
    ),
    "a_timestamp": Column(
        "timestamp", "'1901-02-03 04:05:06.000007'", "'infinity'", plain=_FINITE
    ),
    "a_timestamp3": Column(
        "timestamp(3)", "'2024-01-31 12:34:56.789'", "'1969-12-31 23:59:59.999'", plain=_MILLIS
    ),
    "a_timestamptz": Column("timestamptz", "'2024-01-31 12:34:56.789+02'", "'-infinity'", _UTC),
    "an_interval": Column("interval", "'1 day 04:05:06.7'", "'-00:00:01'", _EPOCH, plain=_MICROS),
    "a_uuid": Column(
        "uuid", "'6f1c2d9e-0a3b-4c5d-8e7f-001122334455'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"
    ),
    "a_json": Column("json", '\'{"a": 1.10, "b": [null]}\'', "'\"x\"'", plain=_TEXT),
    "a_jsonb": Column("jsonb", '\'{"a": 1.10, "b": [null]}\'', "'[]'", plain=_TEXT),
    "an_xml": Column("xml", "'<a>1</a>'", "'<b/>'", _TEXT),
    "a_hstore": Column(
        "hstore", "'a=>1, b=>NULL'", "''", "hstore_to_jsonb({0})", plain="to_jsonb({0})"
    ),
    "an_inet": Column("inet", "'10.0.0.1/8'", "'::1'"),
    "a_cidr": Column("cidr", "'10.0.0.0/8'", "'::/0'", _TEXT),
    "a_macaddr": Column("macaddr", "'08:00:2b:01:02:03'", "'ff:ff:ff:ff:ff:ff'", _TEXT),
    "a_macaddr8": Column(
        "macaddr8", "'08:00:2b:01:02:03:04:05'", "'00:00:00:00:00:00:00:00'", _TEXT
    ),
    "an_int4range": Column("int4range", "'[1,5)'", "'empty'", _TEXT),
    "an_int8range": Column("int8range", "'[1,)'", "'(,)'", _TEXT),
    "a_numrange": Column("numrange", "'[1.5,2.5]'", "'empty'", _TEXT),
    "a_tsrange": Column("tsrange", "'[2024-01-31,2024-02-01)'", "'empty'", _TEXT),
    "a_tstzrange": Column(
        "tstzrange", "'[2024-01-31 00:00+00,2024-02-01 00:00+00)'", "'empty'", _TEXT
    ),
    "a_daterange": Column("daterange", "'[2024-01-31,2024-02-01)'", "'empty'", _TEXT),
    "a_point": Column(
        "point", "'(1,2.5)'", "'(-1e10,0)'", "jsonb_build_object('x', {0}[0], 'y', {0}[1])"
    ),
    "an_enum": Column("mood", "'sad'", "'happy'"),
    "a_domain": Column("positive", "7", "1"),
    "an_oid": Column("oid", "1", "4294967295", "to_jsonb({0}::bigint)"),
    "a_tsvector": Column("tsvector", "'fat:2 cat:3'", "''", _TEXT),
    "integers": Column("integer[]", "'{1,NULL,-2}'", "'{}'"),
    "texts": Column("text[]", "'{a,NULL,\"b c\"}'", "'{\"\"}'"),
    "numbers": Column(
        "numeric(10,2)[]", "'{1.50,NULL,-2}'", "'{}'", plain="to_jsonb({0}::text[])"
    ),
    "booleans": Column("boolean[]", "'{t,f}'", "'{}'"),
    "doubles": Column("double precision[]", "'{0.1,1e300}'", "'{}'"),
    "dates": Column("date[]", "'{2024-01-31,NULL}'", "'{}'", plain=_each(_DAYS)),
    "times": Column("timestamp[]", "'{2024-01-31 12:34:56.5}'", "'{}'", plain=_each(_MICROS)),
    "moments": Column("timestamptz[]", "'{2024-01-31 12:34:56.5+00}'", "'{}'"),
    "uuids": Column("uuid[]", "'{6f1c2d9e-0a3b-4c5d-8e7f-001122334455}'", "'{}'"),
    "blobs": Column("bytea[]", "'{\"\\\\x00ff\"}'", "'{}'", _each(_BYTES)),
    "documents": Column(
        "jsonb[]", "ARRAY['{\"a\": 1}'::jsonb]", "'{}'", plain="to_jsonb({0}::text[])"
    ),
    "moods": Column("mood[]", "'{sad,happy}'", "'{}'"),
}

# Debezium captures no columns of these types, unless it is told to.
UNTOLD = ("line", "lseg", "box", "path", "polygon", "circle", "tsquery", "pg_lsn", "jsonpath",
          "int4multirange", "pair")  # fmt: skip
# What the connector does not write, by the server and the rows, with the reason.
_NAME = "a streamed value of the type name is null"
_NAN = "a numeric NaN is null, unless decimals are texts"
LOST = {
    ("typed", 11, "a_name"): _NAME,
    ("typed", 12, "a_name"): _NAME,
    ("plain", 11, "a_name"): _NAME,
    ("plain", 12, "a_name"): _NAME,
    ("avro", 11, "a_name"): _NAME,
    ("avro", 12, "a_name"): _NAME,
    ("typed", 1, "odd_numeric"): _NAN,
    ("typed", 11, "odd_numeric"): _NAN,
    ("avro", 1, "odd_numeric"): _NAN,
    ("avro", 11, "odd_numeric"): _NAN,
}

MAKE = f"""
CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE TYPE pair AS (a integer, b text);
CREATE TABLE everything (
    id integer PRIMARY KEY, {", ".join(f"{name} {c.type}" for name, c in COLUMNS.items())},
    {", ".join(f"no_{kind} {kind}" for kind in UNTOLD)}
);
"""


def insert(first: int) -> str:
    """SQL for a usual row, an extreme one, and one of nulls."""
    columns = COLUMNS.values()
    rows = [[column.usual for column in columns], [column.extreme for column in columns]]
    values = [f"({first + at}, {', '.join(row)})" for at, row in enumerate(rows)]
    names = ", ".join(["id", *COLUMNS])
    return (
        (
            f"INSERT INTO everything ({names}) VALUES {', '.join(values)};"
            f"INSERT INTO everything (id) VALUES ({first + 2});"
        )
        .replace("{", "{")
        .replace("}", "}")
    )


def rows_of(database: Postgres, *, plain: bool) -> dict[int, dict[str, Any]]:
    """The rows by their ids, in the form that ikebana gives them, with a schema or without."""
    fields = [
        f"jsonb_build_object('{name}', CASE WHEN {name} IS NOT NULL THEN {of.format(name)} END)"
        for name, column in COLUMNS.items()
        for of in [(column.plain if plain else "") or column.json]
    ]
    asked = " || ".join(["jsonb_build_object('id', id)", *fields])
    rows = database.rows(f"SELECT {asked} FROM everything ORDER BY id;")
    return {row["id"]: {name: _shown(name, of) for name, of in row.items()} for row in rows}


def _shown(name: str, value: Any) -> Any:
    """A value of PostgreSQL as it stands in a row: instants with Z, bits as bytes."""
    if value is None:
        return None
    if name in ("some_bits", "a_varbit"):
        # The least significant first, without zeros at the end.
        bits = int(value, 2)
        return b64encode(bits.to_bytes(max(1, (bits.bit_length() + 7) // 8), "little")).decode()
    if name == "a_point":
        x, y = float(value["x"]), float(value["y"])
        wkb = struct.pack("<BIdd", 1, 1, x, y)
        return {"x": value["x"], "y": value["y"], "wkb": b64encode(wkb).decode(), "srid": None}
    if name in ("a_timestamptz", "a_timetz"):
        return value if "infinity" in value else f"{value.removesuffix('+00')}Z"
    if name == "moments":
        return [each.replace("+00:00", "Z") for each in value]
    return value


def shown(name: str, value: Any) -> Any:
    """A value of a row as it can be compared: intervals in seconds, numbers as numbers."""
    if value is None:
        return None
    if name == "an_interval" and isinstance(value, str):
        return Decimal(value.removeprefix("PT").removesuffix("S"))
    if name == "a_hstore" and isinstance(value, str):
        return json.loads(value)
    if name == "hundreds":
        return Decimal(value)
    if name == "a_timestamptz":
        return _ZEROS(r"\1Z", value)
    if name == "moments":
        return [_ZEROS(r"\1Z", each) for each in value]
    return value


# Without a schema instants are the texts that Debezium writes.
_ZEROS = re.compile(r"(\.[0-9]*?[1-9])0*Z$").sub
