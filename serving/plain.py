"""The values of a table as Python values, for JSON and for terminals.

A query may return dates and times that Python cannot represent: infinite ones, years before 1 and
after 9999, nanoseconds.  They become ISO 8601 text.  Numbers that are not finite become text too,
as JSON does not have them.
"""

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ikebana.codecs.canonical import spelled_out
from ikebana.codecs.encodings import clock, far_date

_DAY_S = 86_400
_encode = msgspec.json.Encoder(decimal_format="number").encode
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
# DuckDB's infinite dates and timestamps, with either sign.
_INFINITE_DAYS = 2**31 - 1
_INFINITE = 2**63 - 1


def rows_of(table: pa.Table) -> list[list[Any]]:
    """Return the rows of a table, each as the values of its columns."""
    return [list(row) for row in zip(*map(_values, table.columns), strict=True)]


def flat(table: pa.Table) -> pa.Table:
    """Return a table for CSV, which has no lists, structs and maps: these become JSON."""
    columns = []
    for column in table.columns:
        if pa.types.is_nested(column.type):
            texts = [None if each is None else _encode(each).decode() for each in _values(column)]
            column = pa.chunked_array([pa.array(texts, pa.string())])
        columns.append(column)
    return pa.Table.from_arrays(columns, table.column_names)


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_float32(column.type):
        # The shortest digits that identify a 32-bit float.
        texts = pc.cast(column, pa.string()).to_pylist()
        return [None if text is None else spelled_out(float(text)) for text in texts]
    # Nanoseconds would become values of pandas, which JSON does not have.
    if "[ns" not in str(column.type) and "map<" not in str(column.type):
        try:
            values: list[Any] = column.to_pylist()
        except (OverflowError, ValueError):
            pass
        else:
            kind = str(column.type)
            return [*map(spelled_out, values)] if "double" in kind or "float" in kind else values
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
        case pa.Date32Scalar():
            try:
                return scalar.as_py()
            except (OverflowError, ValueError):
                return _infinite(scalar.value, _INFINITE_DAYS) or _day(scalar.value)
        case _:
            return spelled_out(scalar.as_py())


def _timestamp(scalar: pa.TimestampScalar) -> Any:
    kind, value = scalar.type, scalar.value
    if kind.unit != "ns" or value % 1_000 == 0:
        unit = "us" if kind.unit == "ns" else kind.unit
        try:
            return scalar.cast(pa.timestamp(unit, kind.tz)).as_py()
        except (OverflowError, ValueError):
            pass
    if (infinite := _infinite(value, _INFINITE)) is not None:
        return infinite
    digits = _DIGITS[kind.unit]
    seconds, fraction = divmod(value, 10**digits)
    days, second = divmod(seconds, _DAY_S)
    text = f"{_day(days)}T{clock(second)}"
    if fraction:
        text += f".{fraction:0{digits}d}"
    return text if kind.tz is None else f"{text}Z"


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
