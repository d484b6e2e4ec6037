"""A table with a column of every type of MariaDB, and its rows as each producer tells them.

What a producer loses is in `LOST`: what comes instead, and the reason.  Of other types there is
nothing here: Debezium's parser of DDL ends at `inet4` and `inet6`, and Maxwell at `uuid`.
"""

import struct
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

from cdc.mariadb import MariaDb


class Column(NamedTuple):
    """A column: its type, an ordinary value, an extreme one, and its value in JSON as SQL."""

    type: str
    usual: str
    extreme: str
    json: str = "{0}"


_GEOMETRY = "json_object('wkb', to_base64(st_aswkb({0})), 'srid', st_srid({0}))"
_BYTES = "replace(to_base64({0}), '\\n', '')"

COLUMNS = {
    "a_tinyint": Column("tinyint", "-128", "127"),
    "u_tinyint": Column("tinyint unsigned", "255", "0"),
    "a_flag": Column("tinyint(1)", "1", "0"),
    "a_bool": Column("bool", "true", "false"),
    "a_smallint": Column("smallint", "-32768", "32767"),
    "u_smallint": Column("smallint unsigned", "65535", "0"),
    "a_mediumint": Column("mediumint", "-8388608", "8388607"),
    "u_mediumint": Column("mediumint unsigned", "16777215", "0"),
    "a_int": Column("int", "-2147483648", "2147483647"),
    "u_int": Column("int unsigned", "4294967295", "0"),
    "z_int": Column("int(8) zerofill", "7", "4294967295", "{0} + 0"),
    "a_bigint": Column("bigint", "-9223372036854775808", "9223372036854775807"),
    "u_bigint": Column("bigint unsigned", "18446744073709551615", "0"),
    "a_decimal": Column("decimal(12,2)", "-123456.70", "9999999999.99"),
    "w_decimal": Column("decimal(30,0)", "1", "123456789012345678901234567890"),
    "l_decimal": Column("decimal(65,30)", "1.5", f"{'1234567890' * 3}12345.{'0' * 29}1"),
    "u_decimal": Column("decimal(5,1) unsigned", "0.1", "9999.9"),
    "a_float": Column("float", "0.1", "-3.40282e38", "cast({0} AS double)"),
    "a_double": Column("double", "0.1", "-1e300"),
    "one_bit": Column("bit(1)", "b'1'", "b'0'", "{0} + 0"),
    "some_bits": Column("bit(12)", "b'1010'", "b'111100001111'", "{0} + 0"),
    "a_date": Column("date", "'2024-01-31'", "'1000-01-01'"),
    "z_date": Column("date", "'2024-01-31'", "'0000-00-00'"),
    "a_datetime": Column("datetime", "'2024-01-31 12:34:56'", "'9999-12-31 23:59:59'"),
    "a_datetime6": Column(
        "datetime(6)", "'1901-02-03 04:05:06.000007'", "'9999-12-31 23:59:59.999999'"
    ),
    "z_datetime": Column("datetime", "'2024-01-31 12:34:56'", "'0000-00-00 00:00:00'"),
    "a_timestamp": Column("timestamp NULL", "'2024-01-31 12:34:56'", "'1970-01-01 00:00:01'"),
    "a_timestamp3": Column(
        "timestamp(3) NULL", "'2024-01-31 12:34:56.789'", "'2038-01-19 03:14:07.999'"
    ),
    "z_timestamp": Column("timestamp NULL", "'2024-01-31 12:34:56'", "'0000-00-00 00:00:00'"),
    "a_time": Column("time", "'23:59:59'", "'00:00:00'"),
    "a_time6": Column("time(6)", "'00:00:00.000001'", "'12:00:00'"),
    "l_time": Column("time", "'-01:00:00'", "'838:59:59'"),
    "a_year": Column("year", "1999", "2155"),
    "a_char": Column("char(5)", "'ab'", "'é🌷'"),
    "a_varchar": Column("varchar(10)", "'x'", "''"),
    "a_latin": Column("varchar(10) CHARACTER SET latin1", "'é'", "'x'"),
    "a_binary": Column("binary(4)", "x'00ff'", "x'80818283'", _BYTES),
    "a_varbinary": Column("varbinary(16)", "x'00ff10'", "x''", _BYTES),
    "a_tinytext": Column("tinytext", "'Zoë \"Ünal\" 🌷'", "''"),
    "a_text": Column("text", "'a\\tb\\\\n'", "''"),
    "a_mediumtext": Column("mediumtext", "'m'", "''"),
    "a_longtext": Column("longtext", "'l'", "''"),
    "a_tinyblob": Column("tinyblob", "x'00ff'", "x''", _BYTES),
    "a_blob": Column("blob", "x'00ff'", "x''", _BYTES),
    "a_mediumblob": Column("mediumblob", "x'00ff'", "x''", _BYTES),
    "a_longblob": Column("longblob", "x'00ff'", "x''", _BYTES),
    "a_enum": Column("enum('sad','happy')", "'sad'", "'happy'"),
    "a_set": Column("set('a','b','c')", "'a,c'", "''"),
    "a_json": Column("json", '\'{"a": 1.10, "b": [null]}\'', "'\"x\"'", "concat({0}, '')"),
    "a_point": Column(
        "point", "point(1, 2.5)", "point(-1e10, 0)", "json_object('x', st_x({0}), 'y', st_y({0}))"
    ),
    "a_geometry": Column(
        "geometry", "st_geomfromtext('LINESTRING(0 0,1 1)', 4326)", "point(1, 2)", _GEOMETRY
    ),
}


_DECIMALS = ("a_decimal", "w_decimal", "l_decimal", "u_decimal")
# By the column: the producers, the rows, what comes instead, and the reason.
_DEBEZIUM_S = ("json", "headers", "confluent", "plain")
_USUAL, _EXTREME = (1, 11), (2, 12)
_ZEROS = "a date of zeros is null"
_PADDED = "zeros at the end of a binary are cut off"
LOST: dict[str, list[tuple[Sequence[str], Sequence[int], Any, str]]] = {
    "u_bigint": [
        (("json", "headers", "plain"), _USUAL, -1, "negative, unless its handling is precise")
    ],
    "z_date": [(_DEBEZIUM_S, _EXTREME, None, _ZEROS)],
    "z_datetime": [(_DEBEZIUM_S, _EXTREME, None, _ZEROS)],
    "z_timestamp": [
        (_DEBEZIUM_S, (2,), None, _ZEROS),
        (_DEBEZIUM_S, (12,), "1970-01-01T00:00:00Z", "a streamed timestamp of zeros is 1970"),
    ],
    "z_int": [(("maxwell",), _EXTREME, -1, "it does not know ZEROFILL as unsigned")],
    "l_time": [
        (("maxwell",), _USUAL, "15:00:00", "a negative time is another one"),
        (("maxwell",), _EXTREME, "22:59:59", "a time loses its days"),
    ],
    "a_binary": [(("maxwell", "canal"), _USUAL, "AP8=", _PADDED)],
    "a_latin": [(("canal",), _USUAL, "\ufffd", "it takes all texts for UTF-8")],
    "a_geometry": [
        (("maxwell",), _USUAL, "LINESTRING (0 0, 1 1)", "a shape loses its reference system"),
        (("maxwell",), _EXTREME, "POINT (1 2)", "a shape loses its reference system"),
    ],
}
MAKE = "CREATE TABLE everything (id int PRIMARY KEY, {});".format(
    ", ".join(f"{name} {column.type}" for name, column in COLUMNS.items())
)


def insert(first: int) -> str:
    """SQL for a usual row, an extreme one, and one of nulls."""
    columns = COLUMNS.values()
    rows = [[column.usual for column in columns], [column.extreme for column in columns]]
    values = [f"({first + at}, {', '.join(row)})" for at, row in enumerate(rows)]
    statements = [f"INSERT INTO everything VALUES {row};" for row in values]
    nulls = f"INSERT INTO everything (id) VALUES ({first + 2});"
    # Dates of zeros are none in the usual mode.
    return (
        f"SET SESSION sql_mode = ''; {''.join(statements)}{nulls}SET SESSION sql_mode = DEFAULT;"
    )


def rows_of(database: MariaDb) -> dict[int, dict[str, Any]]:
    """The rows by their ids."""
    fields = ", ".join(f"'{name}', {column.json.format(name)}" for name, column in COLUMNS.items())
    rows = database.rows(f"SELECT json_object('id', id, {fields}) FROM store.everything;")
    return {row["id"]: row for row in rows}


def told(producer: str, number: int, row: dict[str, Any]) -> dict[str, Any]:
    """A row as a producer tells it in its own form; what it loses is as it comes, by `LOST`."""
    rules = _RULES[producer]
    lost = {
        name: instead
        for name, losses in LOST.items()
        for producers, numbers, instead, _ in losses
        if producer in producers and number in numbers
    }
    found = {
        name: rules[name](of) if of is not None and name in rules else of
        for name, of in row.items()
        if name not in lost
    }
    return comparable({**found, **lost})


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """A row with floats as floats of 32 bits, and flags as numbers."""
    found = {name: int(of) if isinstance(of, bool) else of for name, of in row.items()}
    if found.get("a_float") is not None:
        found["a_float"] = struct.unpack("f", struct.pack("f", float(found["a_float"])))[0]
    # Without a schema decimals are texts.
    for name in _DECIMALS:
        if found.get(name) is not None:
            found[name] = Decimal(found[name])
    if isinstance(found["id"], str):
        found["id"] = int(found["id"])
    return found


def _instant(text: str) -> str:
    if text.startswith("0000"):
        return text
    return _without_zeros(text.replace(" ", "T"))


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _whole(text: str) -> str:
    return text.partition(".")[0]


def _bits(number: int) -> str:
    return b64encode(number.to_bytes(2, "little")).decode()


def _point(point: dict[str, Any]) -> dict[str, Any] | None:
    if point["x"] is None:
        return None
    wkb = struct.pack("<BIdd", 1, 1, float(point["x"]), float(point["y"]))
    return {**point, "wkb": b64encode(wkb).decode(), "srid": None}


def _as_stored(shape: dict[str, Any]) -> str | None:
    """A shape as MariaDB stores it: its reference system before it."""
    if "x" in shape:
        shape = {"srid": 0, **(_point(shape) or {}), **({"srid": 0})}
    if shape.get("wkb") is None:
        return None
    return b64encode(struct.pack("<I", shape["srid"]) + b64decode(shape["wkb"])).decode()


def _geometry(shape: dict[str, Any]) -> dict[str, Any] | None:
    # Debezium leaves out the number 0 of no reference system.
    return None if shape["wkb"] is None else {**shape, "srid": shape["srid"] or None}


def _count(text: str, of: int = 1) -> int:
    """A time, a date or both in microseconds, divided by `of`."""
    day, _, clock = text.rpartition(" ") if ":" in text else (text, "", "")
    sign = -1 if clock.startswith("-") else 1
    hours, minutes, seconds = (clock.lstrip("-") or "0:0:0").split(":")
    whole = (int(hours) * 60 + int(minutes)) * 60
    micros = sign * (whole * 10**6 + int(Decimal(seconds) * 10**6))
    days = (date.fromisoformat(day) - date(1970, 1, 1)).days if day else 0
    return (days * 86_400 * 10**6 + micros) // of


_DEBEZIUM: dict[str, Any] = {
    **dict.fromkeys(("a_datetime", "a_datetime6", "z_datetime"), _instant),
    **dict.fromkeys(("a_timestamp", "a_timestamp3", "z_timestamp"), lambda t: f"{_instant(t)}Z"),
    **dict.fromkeys(("a_time6",), _without_zeros),
    **{"some_bits": _bits, "a_point": _point, "a_geometry": _geometry},
}
_RULES: dict[str, dict[str, Any]] = {
    "json": _DEBEZIUM,
    "headers": _DEBEZIUM,
    "confluent": _DEBEZIUM,
    "plain": {
        **_DEBEZIUM,
        **dict.fromkeys(("a_datetime", "z_datetime"), lambda text: _count(text, 1000)),
        **dict.fromkeys(("a_datetime6", "a_time", "a_time6", "l_time"), _count),
        **dict.fromkeys(("a_date", "z_date"), lambda text: _count(text, 86_400 * 10**6)),
    },
    "maxwell": {
        **dict.fromkeys(("a_datetime6", "a_timestamp3", "a_time6"), _whole),
        "a_set": lambda text: text.split(",") if text else [],
        "a_point": lambda p: None if p["x"] is None else f"POINT ({p['x']} {p['y']})",
        "a_geometry": lambda shape: None,
    },
    "canal": {
        **dict.fromkeys(("a_datetime", "a_datetime6", "z_datetime"), _instant),
        **dict.fromkeys(("a_timestamp", "a_timestamp3", "z_timestamp"), _instant),
        **dict.fromkeys(("a_time6",), _without_zeros),
        **dict.fromkeys(("one_bit", "some_bits"), str),
        "a_enum": lambda text: ["sad", "happy"].index(text) + 1,
        "a_set": lambda text: {"a,c": "5", "": "0"}[text],
        "a_point": _as_stored,
        "a_geometry": _as_stored,
    },
}
