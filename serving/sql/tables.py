"""Collections as tables of DuckDB: a row for each value, as often as it is there.

A key or a value that is a JSON object gives a column for each of its fields, in the types that
DuckDB finds in all of them; any other key is a column `key`, any other value a column `value`.
Where a key and its value have a field of the same name, the column is the key's.
"""

import json
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from ikebana.codecs.canonical import canonical
from ikebana.codecs.errors import DecodeError
from ikebana.serving.sql.parsed import SqlError, Wanted
from ikebana.serving.view import ArrangementView, Bounds, Row

_MOST_LOOKUPS = 10_000
_CHECK_EVERY = 10_000
_SAMPLE = 200


class LoadLimits(NamedTuple):
    """How much of collections a query may read, and until when."""

    bytes: int
    deadline: float


def load(
    database: duckdb.DuckDBPyConnection,
    view: ArrangementView,
    time: int,
    wanted: Wanted | None,
    limits: LoadLimits,
) -> None:
    """Make a table of a collection as of a time; of some keys, if a query wants no others.

    Raises:
        SqlError: the collection is too large, or has values that are less than nothing.
    """
    name = view.meta.topic
    keys = None if wanted is None else _keys(view, time, wanted)
    if keys is not None:
        rows: Iterable[Row] = map(Row, keys, view.get_many(keys, time))
    else:
        size = view.count(Bounds(), time).bytes
        if size > limits.bytes:
            raise SqlError(
                f'cannot read all of "{name}": it has {size:,} bytes, a query may read '
                f"{limits.bytes:,}",
                hint="Compare all columns of its key with constants, with = or IN.",
            )
        rows = view.rows(Bounds(), time)
    columns = _bag(name, rows, limits)
    # A few keys do not show all types: a column may be null in each of them.
    sample = _bag(name, _first(view, time, _SAMPLE), limits) if keys is not None else ([], [])
    _make(database, name, columns, sample)


def _first(view: ArrangementView, time: int, most: int) -> list[Row]:
    return view.page(Bounds(), time, None, most).rows


def _keys(view: ArrangementView, time: int, wanted: Wanted) -> list[bytes] | None:
    """Return the keys that equalities allow; None if they do not fix all parts of a key."""
    rows = _first(view, time, 1)
    if not rows or rows[0].key is None:
        return None
    try:
        shape = json.loads(rows[0].key)
    except ValueError:
        return None
    is_object = isinstance(shape, dict)
    fields: dict[str, Any] = shape if is_object else {"key": shape}
    choices: list[dict[str, Any]] = [{}]
    for field, example in fields.items():
        constants = wanted.get(field.lower())
        # A constant of another type would be cast by the comparison.
        if constants is None or any(type(each) is not type(example) for each in constants):
            return None
        choices = [{**choice, field: each} for choice in choices for each in constants]
        if len(choices) > _MOST_LOOKUPS:
            return None
    found = (choice if is_object else choice["key"] for choice in choices)
    return list(dict.fromkeys(canonical(json.dumps(each).encode()) for each in found))


def _bag(name: str, rows: Iterable[Row], limits: LoadLimits) -> tuple[list[str | None], list[str]]:
    """Return keys and values as text, each as often as it is there."""
    keys: list[str | None] = []
    values: list[str] = []
    size = 0
    for number, (key, found) in enumerate(rows):
        if number % _CHECK_EVERY == 0 and monotonic() > limits.deadline:
            raise SqlError("the query took too long", hint="Read fewer rows, or compare keys.")
        shown = None if key is None else _json(key)
        for value, count in found.items():
            if count < 0:
                raise SqlError(
                    f'cannot read "{name}" as a table: a value has the count {count}',
                    hint="Read it with `scan`, which has counts.",
                )
            size += count * (len(value) + len(key or b""))
            if size > limits.bytes:
                raise SqlError(f'cannot read "{name}": it has more than {limits.bytes:,} bytes')
            keys += [shown] * count
            values += [_json(value)] * count
    return keys, values


def _json(data: bytes) -> str:
    """Return bytes as the text of a JSON value; what is none becomes a string."""
    try:
        text = data.decode()
        canonical(data)
    except (UnicodeDecodeError, DecodeError):
        return json.dumps(data.decode(errors="backslashreplace"))
    return text


def _make(
    database: duckdb.DuckDBPyConnection,
    name: str,
    columns: tuple[list[str | None], list[str]],
    sample: tuple[list[str | None], list[str]],
) -> None:
    for table, (keys, values) in (("given", columns), ("sample", sample)):
        arrow = pa.table({"k": pa.array(keys, pa.string()), "v": pa.array(values, pa.string())})
        database.register("arriving", arrow)
        database.execute(
            f"CREATE TEMP TABLE {table} AS SELECT k::JSON AS k, v::JSON AS v FROM arriving"
        )
        database.unregister("arriving")
    selected = [
        f"CASE WHEN json_type({expression}) <> 'NULL' THEN {_typed(database, expression, kind)} "
        f"END AS {quoted(column)}"
        for column, expression, kind in _columns(database)
    ]
    # A collection without any row has no columns to be known.
    told = ", ".join(selected) or "NULL AS value"
    database.execute(f"CREATE TABLE {quoted(name)} AS SELECT {told} FROM given")
    database.execute("DROP TABLE given; DROP TABLE sample")


def _columns(database: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str, Any]]:
    """Yield the columns of a table: name, expression, and what DuckDB says of its structure."""
    taken: set[str] = set()
    for side, alone in (("k", "key"), ("v", "value")):
        answer = database.execute(
            f"SELECT json_group_structure({side}) FROM (FROM given UNION ALL FROM sample) "
            f"WHERE {side} IS NOT NULL"
        ).fetchone()
        if answer is None or answer[0] is None:
            continue
        structure = json.loads(answer[0])
        found = {alone: (side, structure)}
        if isinstance(structure, dict) and structure:
            found = {
                field: (f"({side}->{_literal('$.' + json.dumps(field))})", each)
                for field, each in structure.items()
            }
        for field, (expression, kind) in found.items():
            if field.lower() not in taken:
                taken.add(field.lower())
                yield field, expression, kind


def _typed(database: duckdb.DuckDBPyConnection, expression: str, kind: Any) -> str:
    match kind:
        case "VARCHAR":
            return f"{expression}->>'$'"
        case "UBIGINT" | "BIGINT":
            # Not unsigned, for a difference of positive numbers may be negative.
            narrow = f"TRY_CAST({expression}->>'$' AS BIGINT)"
            answer = database.execute(
                f"SELECT count({expression}->>'$') = count({narrow}) FROM given"
            ).fetchone()
            fits = answer is not None and answer[0]
            return f"({expression}->>'$')::{'BIGINT' if fits else 'HUGEINT'}"
        case "DOUBLE" | "BOOLEAN":
            return f"({expression}->>'$')::{kind}"
        case _:
            return expression


def quoted(name: str) -> str:
    """Quote a name."""
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
