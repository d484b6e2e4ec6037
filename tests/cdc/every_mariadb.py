"""A table with a column of every type of MariaDB, and its rows as ikebana has them."""

from typing import NamedTuple


class Column(NamedTuple):
    """A column: its type, an ordinary value, an extreme one, and its value in JSON as SQL."""

    type: str
    usual: str
    extreme: str
    json: str = "{0}"


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
    "l_decimal": Column("decimal(65,30)", "1.5", "12345678901234567890123456789012345.000000000000000000000000000001"),
    "u_decimal": Column("decimal(5,1) unsigned", "0.1", "9999.9"),
    "a_float": Column("float", "0.1", "-3.40282e38", "cast({0} AS double)"),
    "a_double": Column("double", "0.1", "-1e300"),
    "one_bit": Column("bit(1)", "b'1'", "b'0'", "{0} + 0"),
    "some_bits": Column("bit(12)", "b'1010'", "b'111100001111'", "{0} + 0"),
    "a_date": Column("date", "'2024-01-31'", "'0001-01-01'"),
    "z_date": Column("date", "'2024-01-31'", "'0000-00-00'"),
    "a_datetime": Column("datetime", "'2024-01-31 12:34:56'", "'9999-12-31 23:59:59'"),
    "a_datetime6": Column("datetime(6)", "'1901-02-03 04:05:06.000007'", "'9999-12-31 23:59:59.999999'"),
    "z_datetime": Column("datetime", "'2024-01-31 12:34:56'", "'0000-00-00 00:00:00'"),
    "a_timestamp": Column("timestamp NULL", "'2024-01-31 12:34:56'", "'1970-01-01 00:00:01'"),
    "a_timestamp3": Column("timestamp(3) NULL", "'2024-01-31 12:34:56.789'", "'2038-01-19 03:14:07.999'"),
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
    "a_json": Column("json", "'{\"a\": 1.10, \"b\": [null]}'", "'\"x\"'", "concat({0}, '')"),
    "a_point": Column("point", "point(1, 2.5)", "point(-1e10, 0)", "json_object('x', st_x({0}), 'y', st_y({0}))"),
    "a_geometry": Column("geometry", "st_geomfromtext('LINESTRING(0 0,1 1)', 4326)", "point(1, 2)", "json_object('wkb', to_base64(st_aswkb({0})), 'srid', st_srid({0}))"),
}  # fmt: skip


def make(table: str, columns: dict[str, Column]) -> str:
    """SQL that makes the table."""
    return (
        f"CREATE TABLE {table} (id int PRIMARY KEY, "
        + ", ".join(f"{name} {column.type}" for name, column in columns.items())
        + ");"
    )


def insert(table: str, columns: dict[str, Column], first: int) -> str:
    """SQL for a usual row, an extreme one, and one of nulls."""
    rows = [
        [getattr(column, part) for column in columns.values()] for part in ("usual", "extreme")
    ]
    values = [f"({first + at}, {', '.join(row)})" for at, row in enumerate(rows)]
    return (
        "SET SESSION sql_mode = ''; "
        + "".join(f"INSERT INTO {table} VALUES {v};" for v in values)
        + (f"INSERT INTO {table} (id) VALUES ({first + 2});")
    )


def rows(table: str, columns: dict[str, Column]) -> str:
    """SQL for all rows, each as JSON."""
    fields = ", ".join(f"'{name}', {column.json.format(name)}" for name, column in columns.items())
    return f"SELECT json_object('id', id, {fields}) FROM store.{table} ORDER BY id;"
