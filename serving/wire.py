"""Keys, values, updates and tables as answers have them: as JSON, and as Arrow streams.

In JSON, bytes that are JSON are that JSON, other UTF-8 text is a string, and all others are
`{"base64": ...}`.  With `encoding=base64` all keys and values are strings of base64, from which
the exact bytes can be read.

A table that a query gives may have dates and times that Python cannot represent: infinite ones,
years before 1 and after 9999, nanoseconds.  In JSON and in terminals they are ISO 8601 text.
Numbers that are not finite are text too, as JSON does not have them.
"""

import base64
import binascii
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec
import pyarrow as pa

from ikebana.arrangements.update import pieces
from ikebana.codecs.canonical import canonical, finite
from ikebana.codecs.encodings import INTEGERS, clock, far_date
from ikebana.codecs.errors import DecodeError
from ikebana.errors import ConfigError
from ikebana.processor.base.arrow_json import DIGITS, INFINITE, is_readable
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.serving.view import ViewRow

ByteEncoding = Literal["json", "base64"]
ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"

encode = msgspec.json.Encoder(decimal_format="number").encode
_raw = msgspec.json.Decoder(msgspec.Raw)

_DAY_S = 86_400
# DuckDB's infinite dates, with either sign.
_INFINITE_DAYS = 2**31 - 1


class Value(msgspec.Struct):
    """A value of a key, and how many times it is there."""

    value: Any
    count: int


class KeyValues(msgspec.Struct):
    """A key and its values; a value without a key has the key null."""

    key: Any
    values: list[Value]

    def row(self) -> ViewRow:
        """Return the row, if it was written in base64."""
        values = {from_own_base64(each.value): each.count for each in self.values}
        return ViewRow(None if self.key is None else from_own_base64(self.key), values)


class CountChange(msgspec.Struct):
    """The count of (key, value) changes by `diff` at `time`."""

    key: Any
    value: Any
    time: int
    diff: int

    def update(self) -> KeyedUpdate:
        """Return the update, if it was written in base64."""
        key = None if self.key is None else from_own_base64(self.key)
        return KeyedUpdate(key, from_own_base64(self.value), self.time, self.diff)


def readable(data: bytes) -> Any:
    """Return bytes as something that is encoded as readable JSON."""
    try:
        raw = _raw.decode(data)
        # It does not look into strings.
        if not data.isascii():
            data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    else:
        return raw
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": to_base64(data)}


def to_base64(data: bytes) -> str:
    """Encode bytes as base64."""
    return base64.b64encode(data).decode()


def from_own_base64(text: str) -> bytes:
    """Decode base64 of our own."""
    return base64.b64decode(text)


def from_base64(text: str, what: str) -> bytes:
    """Decode base64.  Raises: ConfigError, naming `what`."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"cannot read {what}: it is not base64") from error


def key_bytes(text: str) -> bytes:
    """Encode a key that is written as JSON, in its canonical form, or as any other text.

    >>> key_bytes('{"b": 1.0, "a": "x"}'), key_bytes("N12345")
    (b'{"a":"x","b":1}', b'N12345')
    """
    raw = text.encode()
    try:
        return canonical(raw)
    except DecodeError:
        return raw


def writer(encoding: ByteEncoding) -> Callable[[bytes], Any]:
    """Return a function that writes keys and values."""
    return readable if encoding == "json" else to_base64


def key_values(row: ViewRow, write: Callable[[bytes], Any]) -> KeyValues:
    """Write a row."""
    key, values = row
    return KeyValues(
        None if key is None else write(key),
        [Value(write(value), count) for value, count in values.items()],
    )


def change(update: KeyedUpdate, write: Callable[[bytes], Any]) -> CountChange:
    """Write an update."""
    key, value, time, diff = update
    return CountChange(None if key is None else write(key), write(value), time, diff)


_ROWS = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("count", pa.int64())])
_UPDATES = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("time", pa.int64()), ("diff", pa.int64())]
)


def rows_table(rows: Iterable[ViewRow]) -> pa.Table:
    """Make a table of rows: one row for each key and value.

    Raises:
        ConfigError: a count is beyond 64 bits.
    """
    flat = [(row.key, value, count) for row in rows for value, count in row.values.items()]
    if not all(count in INTEGERS for _, _, count in flat):
        raise ConfigError(
            "cannot answer with an Arrow stream: a count is beyond 64 bits",
            hint="Ask for JSON, whose numbers have no bound.",
        )
    return _table(flat, _ROWS)


def updates_stream(updates: Sequence[KeyedUpdate]) -> bytes:
    """Write updates as an Arrow stream; a diff beyond 64 bits as several rows."""
    # With hidden columns several updates become one, with the sum of their diffs.
    flat = [(*update[:3], piece) for update in updates for piece in pieces(update.diff)]
    return stream(_table(flat, _UPDATES))


def rows_stream(rows: Iterable[ViewRow]) -> bytes:
    """Write rows as an Arrow stream: one row for each key and value."""
    return stream(rows_table(rows))


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def stream(table: pa.Table) -> bytes:
    """Write a table as an Arrow stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writing:
        writing.write_table(table)
    return sink.getvalue()


def rows_of(table: pa.Table) -> list[list[Any]]:
    """Return the rows of a table, each as the values of its columns."""
    return [list(row) for row in zip(*map(_values, table.columns), strict=True)]


def flat_for_csv(table: pa.Table) -> pa.Table:
    """Return a table for CSV, where nested values are JSON, and others as JSON's texts."""
    columns = []
    for column in table.columns:
        write: Callable[[Any], Any] | None = None
        if pa.types.is_nested(column.type):
            write = _json_text
        elif pa.types.is_binary(column.type) or not all(map(is_readable, column.chunks)):
            write = msgspec.to_builtins
        if write is not None:
            texts = [None if each is None else write(each) for each in _values(column)]
            column = pa.chunked_array([pa.array(texts, pa.string())])
        columns.append(column)
    return pa.Table.from_arrays(columns, table.column_names)


def _json_text(value: Any) -> str:
    return encode(value).decode()


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_float32(column.type):
        # The shortest digits that identify a 32-bit float.
        texts = column.cast(pa.string()).to_pylist()
        return [None if text is None else finite(float(text)) for text in texts]
    # Nanoseconds would become values of pandas, which JSON does not have, and 24:00:00 midnight.
    kind = str(column.type)
    are_plain = "time64" not in kind or all(map(is_readable, column.chunks))
    if "[ns" not in kind and "map<" not in kind and are_plain:
        try:
            values: list[Any] = column.to_pylist()
        except (OverflowError, ValueError):
            pass
        else:
            return [*map(finite, values)] if "double" in kind or "float" in kind else values
    return [_value(each) for each in column]


def _value(scalar: pa.Scalar) -> Any:
    """Return one value; nested values are converted one by one."""
    if not scalar.is_valid:
        return None
    match scalar:
        case pa.StructScalar():
            return {name: _value(scalar[at]) for at, name in enumerate(scalar)}
        case pa.MapScalar():
            pairs = [(_value(entry["key"]), _value(entry["value"])) for entry in scalar.values]
            # As an object of JSON, where the keys are texts.
            return dict(pairs) if pa.types.is_string(scalar.type.key_type) else pairs
        case pa.ListScalar():
            return [_value(each) for each in scalar.values]
        case pa.UnionScalar() | pa.DictionaryScalar():
            return _value(scalar.value)
        case pa.TimestampScalar():
            return _timestamp(scalar)
        case pa.Time64Scalar():
            return _clock(scalar.value, DIGITS[scalar.type.unit])
        case pa.Date32Scalar():
            try:
                return scalar.as_py()
            except (OverflowError, ValueError):
                return _infinite(scalar.value, _INFINITE_DAYS) or _day(scalar.value)
        case _:
            return finite(scalar.as_py())


def _timestamp(scalar: pa.TimestampScalar) -> Any:
    kind, value = scalar.type, scalar.value
    if kind.unit != "ns" or value % 1_000 == 0:
        unit = "us" if kind.unit == "ns" else kind.unit
        try:
            return scalar.cast(pa.timestamp(unit, kind.tz)).as_py()
        except (OverflowError, ValueError):
            pass
    if (infinite := _infinite(value, INFINITE)) is not None:
        return infinite
    digits = DIGITS[kind.unit]
    days, rest = divmod(value, _DAY_S * 10**digits)
    text = f"{_day(days)}T{_clock(rest, digits)}"
    return text if kind.tz is None else f"{text}Z"


def _clock(value: int, digits: int) -> str:
    """Write a time of day, which is a count of the units of a second with so many digits.

    >>> _clock(86_400_000_000, 6), _clock(1_500_000, 6)
    ('24:00:00', '00:00:01.500000')
    """
    second, fraction = divmod(value, 10**digits)
    return clock(second) + (f".{fraction:0{digits}d}" if fraction else "")


def _infinite(value: int, most: int) -> str | None:
    if abs(value) != most:
        return None
    return "infinity" if value > 0 else "-infinity"


def _day(days: int) -> str:
    """Write the day that comes so many days after the first of 1970.

    >>> _day(0), _day(-719_529), _day(3_000_000)
    ('1970-01-01', '-0001-12-31', '10183-09-21')
    """
    year, date = far_date(days)
    return f"{year:0{5 if year < 0 else 4}d}{date:-%m-%d}"
