"""A collection as one table, with a column for each field and the count of each row.

The columns are those that SQL gives it (`tables`); unlike there, a row comes once.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import duckdb
import pyarrow as pa

from ikebana.codecs.encodings import INTEGERS
from ikebana.errors import ConfigError
from ikebana.serving.shape import Seen, Shape, Side
from ikebana.serving.sql.tables import ARRIVING, as_json, columns_of, quoted, typed_or_not

COUNT = "count"


def table_of(
    rows: Iterable[tuple[bytes | None, bytes, int]],
    types: Mapping[str, str] = MappingProxyType({}),
) -> pa.Table:
    """Make a table of keys, values and counts, in their order.

    `types` are the SQL types of columns, as far as the topic has them.
    The last column is `count`, with underscores appended if another column has that name.

    Raises:
        ConfigError: a count is beyond 64 bits.
    """
    keys: list[str | None] = []
    values: list[str] = []
    counts: list[int] = []
    of_keys, of_values = Seen(Side()), Seen(Side())
    for key, value, count in rows:
        if key is not None:
            of_keys.add(key)
        of_values.add(value)
        keys.append(None if key is None else as_json(key))
        values.append(as_json(value))
        if count not in INTEGERS:
            raise ConfigError(
                "cannot make a table: a count is beyond 64 bits",
                hint="JSON has it: --output json.",
            )
        counts.append(count)
    shape = Shape(of_keys.side, of_values.side)

    def table(columns: Mapping[str, str]) -> pa.Table:
        arriving, listed = columns_of(keys, values, shape, columns)
        used = {column.lower() for column, _ in listed}
        name = COUNT
        while name in used:
            name += "_"
        selected = [f"{typed} AS {quoted(column)}" for column, typed in listed]
        select = ", ".join([*selected, f"c AS {quoted(name)}"])
        with duckdb.connect(":memory:", config={"enable_external_access": "false"}) as database:
            database.execute("SET TimeZone = 'UTC'").fetchall()
            arriving["c"] = pa.array(counts, pa.int64())
            database.register("arriving", pa.table(arriving))
            return database.sql(f"SELECT {select} FROM {ARRIVING}").to_arrow_table()

    return typed_or_not(types, table)
