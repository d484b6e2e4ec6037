"""The columns of the table that a statement reads: JSON texts, or values of their types.

A statement that casts JSON texts takes DuckDB long to plan and to run.  Texts of the usual form of
their type become values here, much faster, for a statement without casts.  A column with any
other text is left to the statement with casts, which decides what it means.
"""

from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.codecs.sql_type import Decimal, type_of
from ikebana.processor.linear.json_text import BLOB, JSON

# JSON texts of a column; None is null or absent.
Column = Sequence[bytes | None]

TEXT = pa.string()
_JSON = pa.json_(pa.string())
_NUMBERS = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "DOUBLE": pa.float64(),
}
# The most digits of a decimal of 128 bits.
_MOST_DIGITS = 38


def type_of_field(kind: str) -> pa.DataType:
    """The Arrow type of values of a SQL type; texts, if SQL has to cast them."""
    if kind == JSON:
        return _JSON
    if kind == "BOOLEAN":
        return pa.bool_()
    if kind == "VARCHAR":
        # Texts and JSON texts have different types in the table.
        return pa.large_string()
    if isinstance(decimal := type_of(kind), Decimal):
        return pa.decimal128(decimal.width, decimal.scale)
    return _NUMBERS.get(kind, TEXT)


def type_of_whole(kind: str) -> pa.DataType:
    """The type of the column of whole keys or values, which are JSON or bytes."""
    return pa.binary() if kind == BLOB else _JSON


def column_of(column: Column, kind: pa.DataType) -> pa.Array | None:
    """A column of a type; None if a text lacks the usual form of that type."""
    return _MAKERS.get(kind, _numbers)(column, kind)


def _binary(column: Column, kind: pa.DataType) -> pa.Array:
    return pa.array(column, kind)


def _texts(column: Column, kind: pa.DataType = TEXT) -> pa.Array:
    # A view suffices: JSON that has been decoded once is UTF-8.
    return pa.array(column, pa.binary()).view(kind)


def _json(column: Column, kind: pa.DataType) -> pa.Array:
    # DuckDB does not parse texts again that are marked as JSON.
    return pa.ExtensionArray.from_storage(kind, _texts(column))


def _booleans(column: Column, kind: pa.DataType) -> pa.Array | None:
    texts = _texts(column)
    is_true = pc.equal(texts, "true")
    if pc.all(pc.or_(is_true, pc.equal(texts, "false"))).as_py() is False:
        return None
    return is_true


def _numbers(column: Column, kind: pa.DataType) -> pa.Array | None:
    texts = _texts(column)
    if pa.types.is_decimal(kind) and not _fits_decimals(texts, kind.scale):
        return None
    try:
        numbers = pc.cast(texts, kind)
    except pa.ArrowInvalid:
        return None
    # A number beyond the greatest double is infinity here, but an error in SQL.
    if pa.types.is_floating(kind) and pc.all(pc.is_finite(numbers)).as_py() is False:
        return None
    return numbers


def _fits_decimals(texts: pa.Array, scale: int) -> bool:
    """Whether no text has an exponent, or more digits than Arrow's cast can count."""
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    exponents = pc.any(pc.match_substring(texts, "e", ignore_case=True)).as_py()
    return longest + scale <= _MOST_DIGITS and not exponents


def _strings(column: Column, kind: pa.DataType) -> pa.Array | None:
    joined = b"[" + b",".join([b"null" if text is None else text for text in column]) + b"]"
    # SQL treats such a character differently.
    if b"\\u0000" in joined:
        return None
    try:
        return pa.array(_decoded(joined), kind)
    except (msgspec.DecodeError, pa.ArrowInvalid, UnicodeEncodeError):
        return None


_decoded = msgspec.json.Decoder(list[str | None]).decode
_MAKERS: dict[pa.DataType, Callable[[Column, pa.DataType], pa.Array | None]] = {
    pa.binary(): _binary,
    TEXT: _texts,
    _JSON: _json,
    pa.bool_(): _booleans,
    pa.large_string(): _strings,
}
