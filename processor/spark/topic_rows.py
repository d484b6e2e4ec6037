"""The rows that Spark gets for updates: the raw key and value, or columns of their JSON.

The columns `key`, `value`, `time` and `diff` are the fields of the update, and `count` is another
name of `diff`.  Any other column is a field of the key, if that is a JSON object with this field,
or else of the value.
"""

import datetime
import decimal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from ikebana.codecs.encodings import INTEGERS
from ikebana.codecs.sql_type import Decimal, type_of
from ikebana.codecs.upsert_out import changed, violation
from ikebana.errors import ConfigError, SourceError
from ikebana.processor.authoring.proposing.notices import absent_words
from ikebana.processor.base.rows import KeyedUpdate

SCHEMA = "key BINARY, value BINARY, time BIGINT, diff BIGINT"
_ROWS = 10_000
_RAW = ("key", "value")
_NUMBERS = ("time", "diff", "count")
Column = Callable[[Any], Any]
# Numbers keep all of their digits, for columns that are decimals.
_decode = msgspec.json.Decoder(float_hook=decimal.Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode
# Spark's types for SQL types; any other type becomes STRING.
_COLUMNS = {
    **{name: name for name in ("BOOLEAN", "TINYINT", "SMALLINT", "BIGINT", "DOUBLE", "FLOAT")},
    **{"INTEGER": "INT", "UTINYINT": "SMALLINT", "USMALLINT": "INT", "UINTEGER": "BIGINT"},
    **{"UBIGINT": "DECIMAL(20,0)", "HUGEINT": "DECIMAL(38,0)", "DATE": "DATE"},
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS"), "TIMESTAMP"),
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
}


def schema_of(columns: Mapping[str, str]) -> str:
    """The schema of rows with columns of SQL types, and their time and count.

    >>> schema_of({"id": "BIGINT", "a`b": "DECIMAL(9,2)", "l": "BIGINT[]"})
    '`id` BIGINT, `a``b` DECIMAL(9,2), `l` STRING, time BIGINT, diff BIGINT'
    """
    fields = []
    for name, kind in columns.items():
        if name not in (*_RAW, *_NUMBERS):
            of_spark = kind if isinstance(type_of(kind), Decimal) else _COLUMNS.get(kind, "STRING")
            fields.append(f"`{name.replace('`', '``')}` {of_spark}")
    return ", ".join([*fields, "time BIGINT, diff BIGINT"])


def net_rows(updates: Iterable[KeyedUpdate], time: int, topic: str) -> Iterator[KeyedUpdate]:
    """Sum updates up to one row, at `time`, for each key that changes.

    The row has the key's new value with a diff of 1, or its old one with -1 if the key is gone.

    >>> ups = [KeyedUpdate(b"1", b"a", 3, -1), KeyedUpdate(b"1", b"b", 4, 1)]
    >>> list(net_rows(ups, 5, "t"))
    [KeyedUpdate(key=b'1', value=b'b', time=5, diff=1)]

    Raises:
        SourceError: a key has several values, or a value several times.
    """
    for _, key, diffs in changed((key, value, time, diff) for key, value, _, diff in updates):
        if (reason := violation(key, diffs)) is not None:
            raise SourceError(
                f'cannot read net rows of "{topic}": key {key!r}: {reason}',
                hint="Read all updates: they say how often a key has each of its values.",
            )
        value, diff = max(diffs.items(), key=lambda of_value: of_value[1])
        yield KeyedUpdate(key, value, time, diff)


class RowMaker:
    """Makes the rows of a schema.

    Raises:
        ConfigError: a column has a type that it cannot have.
    """

    def __init__(self, topic: str, schema: StructType) -> None:
        self._topic = topic
        self._schema = schema
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        self._fields = {
            field.name: _field(field.name, field.dataType)
            for field in schema.fields
            if field.name not in (*_RAW, *_NUMBERS)
        }
        self._texts = {}
        for field in schema.fields:
            if field.name in _NUMBERS and not isinstance(field.dataType, LongType):
                raise _wrong(field.name, field.dataType, "BIGINT")
            if field.name in _RAW:
                if not isinstance(field.dataType, (BinaryType, StringType)):
                    raise _wrong(field.name, field.dataType, "BINARY or STRING")
                self._texts[field.name] = isinstance(field.dataType, StringType)

    def absent(self, messages: Sequence[tuple[bytes | None, bytes | None]]) -> list[str]:
        """Describe the columns that none of these keys and values has."""
        fields = [
            set().union(*(part for part in map(_object, message)))
            for message in messages
            if message[1] is not None
        ]
        there = set().union(*fields)
        others = there - self._fields.keys()
        return [
            "".join(absent_words(len(fields), name, "column", there, others))
            for name in self._fields
            if fields and name not in there
        ]

    def batches(self, updates: Iterable[KeyedUpdate]) -> Iterator[pa.RecordBatch]:
        """Make batches of rows.

        Raises:
            SourceError: a key or value is not what the schema says, or a count is beyond 64 bits.
        """
        iterator = iter(updates)
        while rows := list(islice(iterator, _ROWS)):
            fields = [self._decoded(update) for update in rows] if self._fields else []
            columns = [
                pa.array(self._column(name, rows, fields), self._arrow.field(at).type)
                for at, name in enumerate(self._arrow.names)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self._arrow)

    def _column(
        self, name: str, rows: list[KeyedUpdate], fields: list[dict[str, Any]]
    ) -> list[Any]:
        if name in self._fields:
            return [self._value(name, row.get(name)) for row in fields]
        if name == "time":
            return [update.time for update in rows]
        if name in _NUMBERS:
            diffs = [update.diff for update in rows]
            if not all(diff in INTEGERS for diff in diffs):
                raise SourceError(
                    f'cannot read column {name} of "{self._topic}": a count is beyond 64 bits',
                    hint="A stream has its updates, and `ikebana snapshot` prints it.",
                )
            return diffs
        raw = [update.key if name == "key" else update.value for update in rows]
        if not self._texts[name]:
            return raw
        try:
            return [None if each is None else each.decode() for each in raw]
        except UnicodeDecodeError:
            raise SourceError(
                f'cannot read "{self._topic}": a {name} is not UTF-8',
                hint=f"Give the column {name} the type BINARY.",
            ) from None

    def _decoded(self, update: KeyedUpdate) -> dict[str, Any]:
        """Decode the fields of a value and, over them, of a key."""
        fields: dict[str, Any] = {}
        try:
            for data in (update.value, update.key):
                decoded = None if data is None else _decode(data)
                if isinstance(decoded, dict):
                    fields |= decoded
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise SourceError(
                f'cannot read columns of "{self._topic}": a key or a value is not JSON',
                hint="Give no schema, or one of key, value, time and diff.",
            ) from None
        return fields

    def _value(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        try:
            return self._fields[name](value)
        except (ValueError, TypeError, ArithmeticError):
            kind = self._schema[name].dataType.simpleString()
            raise SourceError(
                f'cannot read column {name} of "{self._topic}" as {kind}: a value is not one',
                hint="Give the column the type STRING, which takes everything.",
            ) from None


def _object(data: bytes | None) -> dict[str, Any]:
    """The fields of a JSON object; none of anything else."""
    try:
        decoded = None if data is None else _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _field(name: str, kind: DataType) -> Column:
    match kind:
        case StringType():
            return _text
        case ByteType() | ShortType() | IntegerType() | LongType():
            return _integer
        case DoubleType() | FloatType():
            return _number
        case BooleanType():
            return _boolean
        case DecimalType():
            return _decimal
        case DateType():
            return datetime.date.fromisoformat
        case TimestampType():
            return _timestamp
        case _:
            types = "STRING, BOOLEAN, whole numbers, DOUBLE, DECIMAL, DATE, TIMESTAMP"
            raise _wrong(name, kind, types)


def _wrong(name: str, kind: DataType, types: str) -> ConfigError:
    return ConfigError(
        f"cannot read column {name} as {kind.simpleString()}: it can be {types}",
        hint="Nested JSON comes as STRING, for from_json.",
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _encode(value).decode()


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, decimal.Decimal)):
        raise TypeError(value)
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _decimal(value: Any) -> decimal.Decimal:
    if isinstance(value, bool):
        raise TypeError(value)
    return decimal.Decimal(value)


def _timestamp(value: Any) -> datetime.datetime:
    """Milliseconds since 1970, or text, which is in UTC unless it says otherwise."""
    if isinstance(value, str):
        instant = datetime.datetime.fromisoformat(value)
        return instant if instant.tzinfo is not None else instant.replace(tzinfo=datetime.UTC)
    return datetime.datetime.fromtimestamp(_number(value) / 1000, datetime.UTC)
