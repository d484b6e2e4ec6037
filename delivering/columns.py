"""Columns of tables: ikebana's types as types of Arrow, and updates as rows of such columns.

A column is a field of keys or values that are JSON objects (if both have it, the key's), or the
key or the value as a whole.  Types that targets do not have are delivered as the nearest common
type:

| of ikebana | in Arrow |
|---|---|
| BOOLEAN, TINYINT to BIGINT, FLOAT, DOUBLE, DATE | the same |
| UTINYINT, USMALLINT, UINTEGER | int16, int32, int64 |
| UBIGINT, HUGEINT, UHUGEINT | decimal128(20, 0), decimal128(38, 0) |
| DECIMAL(w, s) | decimal128(w, s) |
| VARCHAR, ENUM, UUID, INTERVAL, JSON | string |
| BLOB | binary |
| TIME | time64[us] |
| TIMESTAMP, TIMESTAMP_S, TIMESTAMP_MS | timestamp[us] |
| TIMESTAMP WITH TIME ZONE | timestamp[us, UTC] |
| TIMESTAMP_NS, TIME WITH TIME ZONE and others of times | string |
| lists, STRUCT, MAP | list, struct, map of these |

All others are refused: their columns can be read as JSON.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import duckdb
import pyarrow as pa

from ikebana.codecs.sql_type import (
    Array,
    Decimal,
    Enum,
    List,
    Map,
    Scalar,
    SqlType,
    Struct,
    TypeTextError,
    parsed,
)
from ikebana.errors import ConfigError, SourceError
from ikebana.processor.authoring.deliver_section import Whole
from ikebana.processor.linear.database import connection, without_data
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.query import field_texts
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.typed_json import from_json
from ikebana.serving.sql import as_json

# The types that are delivered as another type.
_OTHERS: Mapping[str, SqlType] = {
    "UTINYINT": Scalar("SMALLINT"),
    "USMALLINT": Scalar("INTEGER"),
    "UINTEGER": Scalar("BIGINT"),
    "UBIGINT": Decimal(20, 0),
    "HUGEINT": Decimal(38, 0),
    "UHUGEINT": Decimal(38, 0),
    "TIMESTAMP_S": Scalar("TIMESTAMP"),
    "TIMESTAMP_MS": Scalar("TIMESTAMP"),
    **dict.fromkeys(
        ("UUID", "INTERVAL", "JSON", "TIMESTAMP_NS", "TIME_NS", "TIME WITH TIME ZONE"),
        Scalar("VARCHAR"),
    ),
}
_ARROW = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "BLOB": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", tz="UTC"),
}


def delivered_type(kind: SqlType) -> SqlType:
    """The type as which a type is delivered.

    >>> str(delivered_type(parsed("STRUCT(a UBIGINT, b UUID[])")))
    'STRUCT(a DECIMAL(20,0), b VARCHAR[])'
    """
    match kind:
        case Enum():
            return Scalar("VARCHAR")
        case List(of) | Array(of):
            return List(delivered_type(of))
        case Map(key, value):
            return Map(delivered_type(key), delivered_type(value))
        case Struct(fields):
            return Struct(tuple((name, delivered_type(of)) for name, of in fields))
        case Scalar(name):
            return _OTHERS.get(name, kind)
    return kind


def arrow_type(kind: SqlType) -> pa.DataType:
    """The Arrow type of a delivered type.  Raises: KeyError, if it cannot be delivered.

    >>> str(arrow_type(parsed("MAP(VARCHAR, HUGEINT[])")))
    'map<string, list<element: decimal128(38, 0)>>'
    """
    match delivered_type(kind):
        case Scalar(name):
            return _ARROW[name]
        case Decimal(width, scale):
            return pa.decimal128(width, scale)
        case List(of):
            return pa.list_(pa.field("element", arrow_type(of)))
        case Map(key, value):
            return pa.map_(arrow_type(key), arrow_type(value))
        case Struct(fields):
            return pa.struct([pa.field(name, arrow_type(of)) for name, of in fields])
    raise KeyError(str(kind))


@dataclass(frozen=True)
class TargetColumn:
    """A column of a target: its name, its SQL type, and its source.

    Raises: ConfigError, if no target takes the type.
    """

    name: str
    kind: SqlType
    field: str = ""
    """The field of keys or values; by default the one with the column's name."""
    whole: Whole | None = None
    """The key or the value as a whole, instead of a field."""

    def __post_init__(self) -> None:
        try:
            arrow_type(self.kind)
            from_json("x", str(self.kind))
        except (KeyError, ExpressionError):
            raise ConfigError(
                f'column "{self.name}" cannot be delivered as {self.kind}',
                hint="JSON takes everything: give the column this type.",
            ) from None

    @classmethod
    def of(
        cls, name: str, text: str, field: str = "", whole: Whole | None = None
    ) -> "TargetColumn":
        """Make a column with a type as text.  Raises: ConfigError, if it is no type."""
        try:
            return cls(name, parsed(text), field, whole)
        except TypeTextError:
            raise ConfigError(
                f'column "{name}" cannot have the type {text}: it is none of SQL',
                hint="It may be BIGINT, VARCHAR, DECIMAL(12,2), TIMESTAMP, JSON and so on.",
            ) from None

    @cached_property
    def arrow(self) -> pa.DataType:
        """Its type in Arrow."""
        return arrow_type(self.kind)

    @property
    def source(self) -> str:
        """The field that it is read from."""
        return self.field or self.name


class Typing:
    """Makes rows of updates: `columns`, then an id (if `identity` names it), a time and a diff.

    The id is 16 bytes of the SHA-256 of the row's JSON texts, so equal rows have equal ids.
    """

    def __init__(
        self,
        topic: str,
        columns: Sequence[TargetColumn],
        identity: str | None,
        added: tuple[str, str],
    ) -> None:
        self._topic = topic
        self._columns = columns
        self._fields = tuple({c.source: None for c in columns if c.whole is None})
        fields = [pa.field(column.name, column.arrow) for column in columns]
        if identity is not None:
            fields.append(pa.field(identity, pa.binary(16), nullable=False))
        fields += [pa.field(name, pa.int64(), nullable=False) for name in added]
        self.schema = pa.schema(fields)
        self._sql = self._select(identity)

    def rows(self, chunk: pa.RecordBatch) -> pa.RecordBatch:
        """Make rows of a chunk of keys, values, times and diffs.

        Raises:
            SourceError: a value does not fit the type of its column; it names the column.
        """
        keys, values = (chunk.column(name).to_pylist() for name in ("key", "value"))
        arrays = {}
        for at, texts in enumerate(self._texts(keys, values)):
            data = pa.array(texts, pa.binary())
            arrays[f"c{at}"] = data if self._is_raw(at) else data.view(pa.string())
        arriving = pa.table({**arrays, "t": chunk.column("time"), "d": chunk.column("diff")})
        try:
            rows = _run(self._sql, arriving)
        except duckdb.Error as error:
            raise self._refused(arriving, error) from None
        return rows.cast(self.schema).combine_chunks().to_batches()[0]

    def _texts(
        self, keys: list[bytes | None], values: list[bytes]
    ) -> Iterator[Sequence[bytes | None]]:
        """The texts of each column: JSON, or raw bytes for a key or value of type BLOB."""
        by_field = dict(zip(self._fields, _fields_of(self._fields, keys, values), strict=True))
        for at, column in enumerate(self._columns):
            if column.whole is None:
                yield by_field[column.source]
                continue
            data: Sequence[bytes | None] = keys if column.whole == "key" else values
            if not self._is_raw(at):
                data = [None if each is None else as_json(each).encode() for each in data]
            yield data

    def _is_raw(self, at: int) -> bool:
        column = self._columns[at]
        return column.whole is not None and str(column.kind) == "BLOB"

    def _select(self, identity: str | None) -> str:
        selected = [
            f"{self._read(at)} AS {quoted(column.name)}" for at, column in enumerate(self._columns)
        ]
        if identity is not None:
            # Within canonical JSON a line break is escaped, so it separates texts. They are in the
            # order of names: an edit may give the columns another order.
            texts = [
                f"coalesce({f'to_base64(c{at})' if self._is_raw(at) else f'c{at}'}, 'null')"
                for _, at in sorted((column.name, at) for at, column in enumerate(self._columns))
            ]
            digest = f"sha256(concat_ws(chr(10), {', '.join(texts)}))"
            selected.append(f"unhex(substr({digest}, 1, 32)) AS {quoted(identity)}")
        added = [field.name for field in self.schema][-2:]
        selected += [f"{of} AS {quoted(name)}" for of, name in zip("td", added, strict=True)]
        return f"SELECT {', '.join(selected)} FROM arriving"

    def _read(self, at: int) -> str:
        if self._is_raw(at):
            return f"c{at}"
        kind = self._columns[at].kind
        read = from_json(f"c{at}", str(kind))
        target = delivered_type(kind)
        return read if target == kind else f"CAST({read} AS {target})"

    def _refused(self, arriving: pa.Table, error: duckdb.Error) -> SourceError:
        """The error of the first column that cannot be read."""
        for at, column in enumerate(self._columns):
            try:
                _run(f"SELECT {self._read(at)} AS x FROM arriving", arriving)
            except duckdb.Error:
                said = without_data(error)
                return SourceError(
                    f'cannot deliver "{self._topic}": a value of column "{column.name}" is no '
                    f"{column.kind}{_as_other(column.kind)}{f': {said}' if said else ''}",
                    hint="Give the column another type, such as JSON or VARCHAR.",
                )
        return SourceError(f'cannot deliver "{self._topic}": {without_data(error)}')


def _as_other(kind: SqlType) -> str:
    return "" if delivered_type(kind) == kind else f" that fits {delivered_type(kind)}"


def in_sql(column: pa.Array) -> pa.Array:
    """The texts of dates and times as SQL writes them, also of those that are not readable."""
    text = r"regexp_replace(x::VARCHAR, '^(\S+) \(BC\)(.*)', '\1\2 BC')"
    rows = _run(f"SELECT {text} AS x FROM arriving", pa.table({"x": column}))
    return rows.column("x").combine_chunks()


def _fields_of(
    fields: tuple[str, ...], keys: list[bytes | None], values: list[bytes]
) -> list[Sequence[bytes | None]]:
    """The texts of fields; if both key and value have a field, the key's is taken."""
    if not fields:
        return []
    of_values = [[*texts] for texts in field_texts(fields, values)]
    if any(key is not None and key[:1] == b"{" for key in keys):
        of_keys = field_texts(fields, [key or b"" for key in keys])
        for of_value, others in zip(of_values, of_keys, strict=True):
            for at, text in enumerate(others):
                if text is not None and text != b"null":
                    of_value[at] = text
    return [*of_values]


def _run(sql: str, arriving: pa.Table) -> pa.Table:
    """Run a statement over the table `arriving` in this thread's database."""
    database = connection()
    database.register("arriving", arriving)
    try:
        return database.sql(sql).to_arrow_table()
    finally:
        database.unregister("arriving")
