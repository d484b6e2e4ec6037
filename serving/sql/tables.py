"""Collections as tables of DuckDB: a row for each value, as often as it is there.

Keys and values that are JSON objects give a column for each of their fields; if some are no
objects, they are one column `key`, or `value`.  If keys and values have a field of the same name,
the column is the key's.  A column has the type in the topic's progress.  Without one, or if there
are values of another type, such as those from before an edit, it has the kind of the collection's
shape.

Keys are looked up instead of scanned only if the shape guarantees that the equalities determine
the bytes of the keys.  So the result is the same either way.

`table_of` makes one table of a whole collection, in which a row comes once, with its count.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import duckdb
import pyarrow as pa

from ikebana.codecs.canonical import canonical
from ikebana.codecs.encodings import INTEGERS
from ikebana.codecs.errors import DecodeError
from ikebana.errors import ConfigError
from ikebana.processor.linear.query import field_texts
from ikebana.processor.linear.typed_json import from_json
from ikebana.serving.shape import Seen, Shape, Side
from ikebana.serving.sql.parsed import Equalities, SqlError
from ikebana.serving.view import Bounds, CollectionView, Row

_MOST_LOOKUPS = 10_000
_CHECK_EVERY = 10_000
_KINDS = {int: "BIGINT", str: "VARCHAR"}
# The least bytes to count for a row, which is an item in a list of keys and in one of values.
_LEAST_ROW = 16
_Result = TypeVar("_Result")


class LoadLimits(NamedTuple):
    """How much of collections a query may read, and until when."""

    bytes: int
    deadline: float


def load(
    database: duckdb.DuckDBPyConnection,
    view: CollectionView,
    time: int,
    equalities: Equalities | None,
    limits: LoadLimits,
) -> None:
    """Make a table of a collection as of a time; of some keys, if the query needs no others.

    Raises:
        SqlError: the collection is too large, or has values with negative counts.
    """
    name = view.meta.topic
    keys = None if equalities is None else _keys(view, equalities)
    if keys is not None:
        rows: Iterable[Row] = map(Row, keys, view.get_many(keys, time))
    else:
        # The size of some columns alone is only known when they are read.
        size = view.count(Bounds(), time).bytes if view.columns is None else 0
        if size > limits.bytes:
            raise SqlError(
                f'cannot read all of "{name}": it has {size:,} bytes, a query may read '
                f"{limits.bytes:,}",
                hint="Compare all columns of its key with constants, with = or IN.",
            )
        rows = view.rows(Bounds(), time)
    _make(database, view, _bag(name, rows, limits))


def _keys(view: CollectionView, equalities: Equalities) -> list[bytes] | None:
    """Return the keys that satisfy equalities; None if these do not determine all keys."""
    fields = view.meta.shape.keys.looked_up()
    if fields is None:
        return None
    choices: list[dict[str, Any]] = [{}]
    for field, kind in fields.items():
        constants = equalities.get(field.lower())
        # A constant of another type would be cast by the comparison.
        if constants is None or any(_KINDS[type(each)] != kind for each in constants):
            return None
        # Different texts may be the same date, and keys have only one of them.
        if (view.meta.columns.get(field, kind) == "VARCHAR") != (kind == "VARCHAR"):
            return None
        choices = [{**choice, field: each} for choice in choices for each in constants]
        if len(choices) > _MOST_LOOKUPS:
            return None
    is_object = view.meta.shape.keys.objects
    keys = (choice if is_object else choice["key"] for choice in choices)
    return list(dict.fromkeys(canonical(json.dumps(each).encode()) for each in keys))


def _bag(name: str, rows: Iterable[Row], limits: LoadLimits) -> tuple[list[str | None], list[str]]:
    """Return keys and values as text, each as often as its count."""
    keys: list[str | None] = []
    values: list[str] = []
    size = 0
    for number, (key, state) in enumerate(rows):
        if number % _CHECK_EVERY == 0 and monotonic() > limits.deadline:
            raise SqlError("the query took too long", hint="Read fewer rows, or compare keys.")
        shown = None if key is None else as_json(key)
        for value, count in state.items():
            if count < 0:
                raise SqlError(
                    f'cannot read "{name}" as a table: a value has the count {count}',
                    hint="Read it with `scan`, which has counts.",
                )
            size += count * max(_LEAST_ROW, len(value) + len(key or b""))
            if size > limits.bytes:
                raise SqlError(f'cannot read "{name}": it has more than {limits.bytes:,} bytes')
            keys += [shown] * count
            values += [as_json(value)] * count
    return keys, values


def as_json(data: bytes) -> str:
    """Return bytes as the text of a JSON value; other bytes become a JSON string."""
    try:
        return canonical(data).decode()
    except DecodeError:
        return json.dumps(data.decode(errors="backslashreplace"))


def _make(
    database: duckdb.DuckDBPyConnection,
    view: CollectionView,
    columns: tuple[list[str | None], list[str]],
) -> None:
    meta = view.meta

    def create(types: Mapping[str, str]) -> None:
        arriving, listed = columns_of(*columns, meta.shape, types)
        # A collection that never had a row has no columns to be known.
        select = ", ".join(f"{sql} AS {quoted(column)}" for column, sql in listed)
        database.register("arriving", pa.table(arriving))
        try:
            database.execute(
                f"CREATE TABLE {quoted(meta.topic)} AS SELECT {select or 'NULL AS value'} "
                f"FROM {ARRIVING}"
            )
        finally:
            database.unregister("arriving")

    typed_or_not(meta.columns, create)


ARRIVING = "(SELECT * REPLACE (k::JSON AS k, v::JSON AS v) FROM arriving)"
"""The FROM clause for the expressions of `columns_of`."""


def typed_or_not(
    types: Mapping[str, str], make: Callable[[Mapping[str, str]], _Result]
) -> _Result:
    """Call `make` with the types, or without them if some values have other types."""
    try:
        return make(types)
    except duckdb.ConversionException:
        if not types:
            raise
    return make({})


def columns_of(
    keys: Sequence[str | None], values: Sequence[str], shape: Shape, types: Mapping[str, str]
) -> tuple[dict[str, pa.Array], list[tuple[str, str]]]:
    """The columns of a table of keys and values.

    Returns the columns of the table `arriving`, and pairs of a column's name and SQL over it.
    """
    arriving = {"k": pa.array(keys, pa.string()), "v": pa.array(values, pa.string())}
    listed = []
    for column, side, kind in _columns(shape, types):
        alone = side.columns is None
        if not alone and column in types:
            text = f"t{len(arriving)}"
            documents = keys if side.name == "k" else values
            arriving[text] = _texts(column, documents)
            listed.append((column, from_json(text, types[column])))
            continue
        place = f"({side.name}->{_literal('$.' + json.dumps(column))})"
        expression = side.name if alone else place
        typed = _typed(expression, kind)
        listed.append((column, f"CASE WHEN json_type({expression}) <> 'NULL' THEN {typed} END"))
    return arriving, listed


class _Side(NamedTuple):
    """Keys `k` or values `v`, with the kinds of their fields; None: each is one column."""

    name: str
    columns: Mapping[str, str] | None


def _columns(shape: Shape, types: Mapping[str, str]) -> Iterator[tuple[str, _Side, str]]:
    """Yield each column with its side (keys or values), and the kind of its values."""
    names: set[str] = set()
    for name, alone, side in (("k", "key", shape.keys), ("v", "value", shape.values)):
        fields = side.columns()
        if name == "v" and (fields is not None or side.alone() is None):
            # Typed columns that no row has had yet are null.
            fields = {**dict.fromkeys(types, "NULL"), **(fields or {})} or None
        if fields is not None:
            columns = dict(sorted(fields.items()))
        elif (kind := side.alone()) is not None:
            columns = {alone: kind}
        else:
            continue
        for field, kind in columns.items():
            if field.lower() not in names:
                names.add(field.lower())
                yield field, _Side(name, fields), kind


def _texts(column: str, documents: Sequence[str | None]) -> pa.Array:
    """The JSON texts of a field, with all digits of numbers."""
    (texts,) = field_texts((column,), [(each or "{}").encode() for each in documents])
    return pa.array(texts, pa.binary()).view(pa.string())


def _typed(expression: str, kind: str) -> str:
    match kind:
        case "VARCHAR":
            return f"{expression}->>'$'"
        case "BIGINT" | "HUGEINT" | "DOUBLE" | "BOOLEAN":
            return f"({expression}->>'$')::{kind}"
        case _:
            return expression


def quoted(name: str) -> str:
    """Quote a name."""
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


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
