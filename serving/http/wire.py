"""Keys, values and updates as they are in requests and answers: JSON, and Arrow streams.

In JSON, bytes that are JSON are that JSON, other UTF-8 text is a string, and all others are
`{"base64": ...}`.  With `encoding=base64` all keys and values are strings of base64, from which
the exact bytes can be read.
"""

import base64
import binascii
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec
import pyarrow as pa

from ikebana.arrangements.update import pieces
from ikebana.codecs.canonical import canonical
from ikebana.codecs.encodings import INTEGERS
from ikebana.codecs.errors import DecodeError
from ikebana.errors import ConfigError
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.serving.view import Row

Encoding = Literal["json", "base64"]
ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"

encode = msgspec.json.Encoder(decimal_format="number").encode
_raw = msgspec.json.Decoder(msgspec.Raw)


class Value(msgspec.Struct):
    """A value of a key, and how many times it is there."""

    value: Any
    count: int


class KeyValues(msgspec.Struct):
    """A key and its values; a value without a key has the key null."""

    key: Any
    values: list[Value]

    def row(self) -> Row:
        """Return the row, if it was written in base64."""
        values = {debased(each.value): each.count for each in self.values}
        return Row(None if self.key is None else debased(self.key), values)


class Change(msgspec.Struct):
    """The count of (key, value) changes by `diff` at `time`."""

    key: Any
    value: Any
    time: int
    diff: int

    def update(self) -> KeyedUpdate:
        """Return the update, if it was written in base64."""
        key = None if self.key is None else debased(self.key)
        return KeyedUpdate(key, debased(self.value), self.time, self.diff)


def shown(data: bytes) -> Any:
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
        return {"base64": based(data)}


def based(data: bytes) -> str:
    """Encode bytes as base64."""
    return base64.b64encode(data).decode()


def debased(text: str) -> bytes:
    """Decode base64 of our own."""
    return base64.b64decode(text)


def unbased(text: str, what: str) -> bytes:
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


def writer(encoding: Encoding) -> Callable[[bytes], Any]:
    """Return a function that writes keys and values."""
    return shown if encoding == "json" else based


def key_values(row: Row, write: Callable[[bytes], Any]) -> KeyValues:
    """Write a row."""
    key, values = row
    return KeyValues(
        None if key is None else write(key),
        [Value(write(value), count) for value, count in values.items()],
    )


def change(update: KeyedUpdate, write: Callable[[bytes], Any]) -> Change:
    """Write an update."""
    key, value, time, diff = update
    return Change(None if key is None else write(key), write(value), time, diff)


_ROWS = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("count", pa.int64())])
_UPDATES = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("time", pa.int64()), ("diff", pa.int64())]
)


def rows_table(rows: Iterable[Row]) -> pa.Table:
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


def rows_stream(rows: Iterable[Row]) -> bytes:
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
