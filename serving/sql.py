"""SQL over served collections: one SELECT as of one time, in a sandbox, with limits.

DuckDB parses a query, so the tree that is checked is the one that runs.  Every table in it is a
collection or a name that it defines itself; table functions that read anything are refused, and so
are functions that return settings.

Each query has an in-memory database of its own.  The collections that it names are copied there;
then files, networks, extensions, Python's variables and settings are locked, and the query runs
with limits on its memory, its time and its result.

A collection becomes a table with a row for each value, as often as it is there.  Keys and values
that are JSON objects give a column for each of their fields; if some are no objects, they are one
column `key`, or `value`.  If keys and values have a field of the same name, the column is the
key's.  A column has the type in the topic's progress.  Without one, or if there are values of
another type, such as those from before an edit, it has the kind of the collection's shape.

An equality of key columns with constants restricts which keys of a collection are read, if the
collection is named once, and the equality is a condition that every row of the result fulfils.
Keys are looked up instead of scanned only if the shape guarantees that the equalities determine
their bytes.  So the result is the same either way.

`table_of` makes one table of a whole collection, in which a row comes once, with its count.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import duckdb
import pyarrow as pa

from ikebana.codecs.canonical import canonical
from ikebana.codecs.encodings import INTEGERS
from ikebana.codecs.errors import DecodeError
from ikebana.errors import ConfigError, IkebanaError
from ikebana.processor.linear.json_text import literal, quoted
from ikebana.processor.linear.query import field_texts
from ikebana.processor.linear.typed_json import from_json
from ikebana.serving.layout import Shape, ShapeLearner, SideShape
from ikebana.serving.view import ArrangementView, Bounds, ViewRow, check_kinds, common_newest


class SqlError(IkebanaError):
    """A query is refused, or cannot be answered."""


class QueryLimits(NamedTuple):
    """Limits of a query: seconds, bytes to read, bytes of memory, rows of the result.

    The memory limit also applies to the bytes of the result, which DuckDB does not count.  They
    are summed as they arrive, so the 2,048 rows that DuckDB makes at once may exceed the limit.
    """

    seconds: float = 30.0
    read_bytes: int = 256 << 20
    memory_bytes: int = 1 << 30
    rows: int = 100_000


class QueryResult(NamedTuple):
    """The rows of a query, and the time as of which all its collections were read."""

    as_of: int | None
    table: pa.Table


_INTERRUPT_EVERY_S = 0.05
# The size of rows is only known when they arrive, so batches are small.
_BATCH_ROWS = 100
_CONFIG = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "threads": "2",
}


def run(
    text: str,
    view_of: Callable[[str], ArrangementView],
    as_of: int | None = None,
    limits: QueryLimits = QueryLimits(),  # noqa: B008 - immutable
) -> QueryResult:
    """Run one SELECT over the collections that it names, all as of one time.

    Raises:
        SqlError: it is refused, fails, or exceeds a limit.
        MixedTimesError: the times of its collections are of different kinds.
        UnknownCollectionError: it names a collection that is not there.
        UnreadableTimeError: a collection cannot be read as of the time.
    """
    begun = monotonic()
    query = parsed(text)
    views = [view_of(name) for name in query.tables]
    check_kinds(views)
    if views and as_of is None:
        as_of = common_newest(views)
    config = {**_CONFIG, "memory_limit": f"{limits.memory_bytes // (1 << 20)}MiB"}
    with duckdb.connect(":memory:", config=config) as database:
        database.execute("SET TimeZone = 'UTC'").fetchall()
        loading = LoadLimits(limits.read_bytes, begun + limits.seconds)
        for view in views:
            assert as_of is not None
            view.check(as_of)
            equalities = query.equalities.get(view.meta.topic)
            try:
                load(database, view, as_of, equalities, loading)
            except duckdb.Error as error:
                raise _failed(error) from error
        database.execute("SET lock_configuration = true")
        left = max(0.0, limits.seconds - (monotonic() - begun))
        return QueryResult(as_of, _answer(database, text, left, limits))


def _answer(
    database: duckdb.DuckDBPyConnection, text: str, seconds: float, limits: QueryLimits
) -> pa.Table:
    done, ended = threading.Event(), threading.Event()

    def end() -> None:
        wait = seconds
        # An interrupt that comes before DuckDB has begun has no effect, so it is repeated.
        while not done.wait(wait):
            ended.set()
            database.interrupt()
            wait = _INTERRUPT_EVERY_S

    timer = threading.Thread(target=end, daemon=True)
    timer.start()
    try:
        reader = _in_arrow(database.sql(text)).to_arrow_reader(_BATCH_ROWS)
        batches: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in reader:
            rows += batch.num_rows
            size += batch.nbytes
            if rows > limits.rows:
                raise SqlError(
                    f"the query gives more than {limits.rows:,} rows", hint="Give it a LIMIT."
                )
            if size > limits.memory_bytes:
                raise SqlError(
                    f"the query gives more than {limits.memory_bytes:,} bytes",
                    hint="Give it a LIMIT, or fewer columns.",
                )
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)
    except duckdb.InterruptException as error:
        raise SqlError("the query took too long", hint="Read fewer rows.") from error
    except (duckdb.Error, pa.ArrowException) as error:
        if ended.is_set():
            raise SqlError("the query took too long", hint="Read fewer rows.") from error
        raise _failed(error) from error
    finally:
        done.set()
        timer.join()


# Types of which Arrow loses zones and digits, and those that it does not write as CSV or Parquet.
_NOT_IN_ARROW = re.compile(r"\b(TIME WITH TIME ZONE|UHUGEINT|INTERVAL|BIT|BIGNUM)\b")


def _in_arrow(result: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """A result with texts in place of values that Arrow does not have."""
    casts = ["::VARCHAR" if _NOT_IN_ARROW.search(str(kind)) else "" for kind in result.types]
    if not any(casts):
        return result
    columns = enumerate(zip(casts, result.columns, strict=True), 1)
    return result.project(
        ", ".join(f"#{at}{cast} AS {quoted(name)}" for at, (cast, name) in columns)
    )


def _failed(error: Exception) -> SqlError:
    return SqlError(f"the query failed: {str(error).strip()}")


# References to tables; any other, such as SHOW, is refused.
_REFERENCES = frozenset(
    {"BASE_TABLE", "SUBQUERY", "JOIN", "EMPTY", "EXPRESSION_LIST", "CTE", "TABLE_FUNCTION"}
)
_TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "repeat"})
_REFUSED = frozenset(
    {"current_setting", "getvariable", "getenv", "write_log", "query", "query_table"}
)
# A reference to a table has these fields, whatever it is.
_REFERENCE_FIELDS = frozenset({"type", "alias", "sample"})
_PLAIN_JOINS = frozenset({"REGULAR", "CROSS", "NATURAL"})
# Deeper queries would exceed Python's stack.
_MOST_NESTED = 200


# By column: the constants that it may have.
Equalities = dict[str, list[Any]]


class ParsedQuery(NamedTuple):
    """The collections of a query, and the columns of each that equal constants."""

    tables: list[str]
    equalities: dict[str, Equalities]


def parsed(text: str) -> ParsedQuery:
    """Parse a query, or refuse it.

    Raises:
        SqlError: it is not one SELECT, or uses something that is not allowed.
    """
    with duckdb.connect(":memory:", config={"enable_external_access": "false"}) as parser:
        try:
            [content] = parser.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
        except duckdb.Error as error:
            raise SqlError(f"cannot read the query: {_line(error)}") from error
    try:
        tree = json.loads(content)
    except RecursionError as error:
        raise SqlError("cannot read the query: it is nested too deeply") from error
    if tree["error"]:
        if tree.get("error_type") == "not implemented":
            raise SqlError(
                "cannot run the query: it is no SELECT",
                hint="Collections can be read only; pipelines change them.",
            )
        raise SqlError(f"cannot read the query: {tree['error_message']}")
    if len(tree["statements"]) != 1:
        raise SqlError("cannot run the query: give one statement")
    nodes = list(_nodes(tree, 0))
    defined = {entry["key"].lower() for node in nodes for entry in _definitions(node)}
    tables = []
    for node in nodes:
        if node.keys() >= _REFERENCE_FIELDS:
            if (name := _table(node, defined)) is not None:
                tables.append(name)
        elif node.get("class") == "FUNCTION" and node["function_name"].lower() in _REFUSED:
            raise SqlError(f"cannot run the query: it may not use {node['function_name']}()")
    once = {name for name, number in Counter(tables).items() if number == 1}
    equalities: dict[str, Equalities] = {}
    for node in nodes:
        if node.get("type") == "SELECT_NODE" and node.get("where_clause"):
            for table, of_table in _equalities(node).items():
                if table in once:
                    equalities[table] = of_table
    return ParsedQuery(sorted(set(tables)), equalities)


def _nodes(tree: Any, depth: int) -> Iterator[dict[str, Any]]:
    if depth > _MOST_NESTED:
        raise SqlError("cannot read the query: it is nested too deeply")
    if isinstance(tree, dict):
        yield tree
        for each in tree.values():
            yield from _nodes(each, depth + 1)
    elif isinstance(tree, list):
        for each in tree:
            yield from _nodes(each, depth + 1)


def _definitions(node: dict[str, Any]) -> list[dict[str, Any]]:
    definitions = node.get("cte_map")
    return definitions["map"] if isinstance(definitions, dict) else []


def _table(node: dict[str, Any], defined: set[str]) -> str | None:
    """Return the collection that a reference names; None if it names none."""
    kind = node["type"]
    if kind not in _REFERENCES:
        raise SqlError(f"cannot run the query: it may not use {kind.removesuffix('_REF')}")
    if kind == "TABLE_FUNCTION":
        function = node["function"]
        name = function.get("function_name", "")
        if name.lower() not in _TABLE_FUNCTIONS or function.get("schema"):
            raise SqlError(
                f"cannot run the query: it may not use the table function {name}()",
                hint="Tables are collections, by the names that `ikebana serve` has.",
            )
    if kind != "BASE_TABLE":
        return None
    name = str(node["table_name"])
    if schema := [part for each in ("catalog_name", "schema_name") if (part := node.get(each))]:
        raise SqlError(
            f'cannot run the query: it names a schema of "{name}"',
            hint="Collections have no schema; one with dots in its name is written in double "
            f'quotes, as in FROM "{".".join([*schema, name])}".',
        )
    return None if name.lower() in defined else name


def _equalities(select: dict[str, Any]) -> dict[str, Equalities]:
    """Return the equalities with constants that each table of a SELECT fulfils."""
    tables: dict[str, str] = {}
    if not _plain(select["from_table"], tables):
        return {}
    equalities: dict[str, Equalities] = {}
    for condition in _conjuncts(select["where_clause"]):
        column, constants = _equality(condition)
        if column is None:
            continue
        match column:
            case [name] if len(tables) == 1:
                table = next(iter(tables.values()))
            case [alias, name] if alias.lower() in tables:
                table = tables[alias.lower()]
            case _:
                continue
        equalities.setdefault(table, {}).setdefault(name.lower(), constants)
    return equalities


def _plain(reference: dict[str, Any], tables: dict[str, str]) -> bool:
    """Collect the tables of a FROM by alias; False if its joins are not by conditions alone."""
    if reference["type"] == "JOIN":
        return (
            reference["ref_type"] in _PLAIN_JOINS
            and reference["join_type"] in ("INNER", "LEFT", "RIGHT", "OUTER")
            and _plain(reference["left"], tables)
            and _plain(reference["right"], tables)
        )
    # A sample of fewer rows would be another one.
    if reference.get("sample") or reference.get("column_name_alias"):
        return False
    if reference["type"] == "BASE_TABLE":
        alias = (reference["alias"] or reference["table_name"]).lower()
        if alias in tables:
            return False
        tables[alias] = reference["table_name"]
        return True
    # An unqualified name could mean one of its columns.
    return False


def _conjuncts(condition: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if condition.get("type") == "CONJUNCTION_AND":
        for each in condition["children"]:
            yield from _conjuncts(each)
    else:
        yield condition


def _equality(condition: dict[str, Any]) -> tuple[list[str] | None, list[Any]]:
    """Read `column = constant` and `column IN (constants)`; None for anything else."""
    if condition.get("type") == "COMPARE_EQUAL":
        for one, other in (("left", "right"), ("right", "left")):
            column, constant = condition[one], condition[other]
            if column.get("type") == "COLUMN_REF" and _is_constant(constant):
                return column["column_names"], [_constant(constant)]
    elif condition.get("type") == "COMPARE_IN":
        column, *constants = condition["children"]
        if column.get("type") == "COLUMN_REF" and all(map(_is_constant, constants)):
            return column["column_names"], [_constant(each) for each in constants]
    return None, []


def _is_constant(node: dict[str, Any]) -> bool:
    return node.get("class") == "CONSTANT" and node.get("literal", {}).get("kind") in (
        "INTEGER",
        "STRING",
    )


def _constant(node: dict[str, Any]) -> int | str:
    literal = node["literal"]
    return int(literal["text"]) if literal["kind"] == "INTEGER" else str(literal["text"])


def _line(error: Exception) -> str:
    return str(error).splitlines()[0]


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
    view: ArrangementView,
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
        rows: Iterable[ViewRow] = map(ViewRow, keys, view.get_many(keys, time))
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


def _keys(view: ArrangementView, equalities: Equalities) -> list[bytes] | None:
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


def _bag(
    name: str, rows: Iterable[ViewRow], limits: LoadLimits
) -> tuple[list[str | None], list[str]]:
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
    view: ArrangementView,
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
        place = f"({side.name}->{literal('$.' + json.dumps(column))})"
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
    of_keys, of_values = ShapeLearner(SideShape()), ShapeLearner(SideShape())
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
            return _in_arrow(database.sql(f"SELECT {select} FROM {ARRIVING}")).to_arrow_table()

    return typed_or_not(types, table)
