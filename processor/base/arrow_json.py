"""Rows of Arrow as JSON objects, in the forms that rows have everywhere.

Dates and times are as in ISO 8601, those with a zone in UTC; bytes are base64, decimals numbers.
"""

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ikebana.codecs import canonical
from ikebana.errors import SourceError

DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""The digits of fractions of a second, by the unit of a type."""
INFINITE = 2**63 - 1
"""DuckDB's infinite timestamps, with either sign."""
_DAY_S = 86_400
# The first day of year 1 and the last one of year 9999.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


def objects(batch: pa.RecordBatch, names: Sequence[str]) -> list[bytes]:
    """Encode some columns of each row as one JSON object.

    Raises:
        SourceError: JSON has no form of a value.
    """
    chosen = batch.select(list(names))
    plain = {field.name: _plain(field.type) for field in chosen.schema}
    encoded = []
    for row in chosen.to_pylist():
        for name, convert in plain.items():
            if convert is not None and row[name] is not None:
                row[name] = convert(row[name])
        try:
            encoded.append(canonical.encode(row))
        except (TypeError, ValueError) as error:
            raise SourceError(f"a row cannot be JSON: {error}") from error
    return encoded


def _plain(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return what makes values of a type plain JSON; None for those that are."""
    if pa.types.is_timestamp(kind):
        return _instant
    if pa.types.is_time(kind):
        return lambda value: _without_zeros(value.isoformat())
    if pa.types.is_map(kind):
        inner = _plain(kind.item_type)
        return lambda pairs: {
            key: item if inner is None or item is None else inner(item) for key, item in pairs
        }
    if pa.types.is_list(kind) and (of_item := _plain(kind.value_type)) is not None:
        return lambda items: [None if item is None else of_item(item) for item in items]
    if pa.types.is_struct(kind):
        fields = {field.name: _plain(field.type) for field in kind}
        conversions = {name: convert for name, convert in fields.items() if convert is not None}
        if conversions:
            return lambda struct: (
                struct
                | {
                    name: convert(struct[name])
                    for name, convert in conversions.items()
                    if struct[name] is not None
                }
            )
    return None


def _instant(value: datetime.datetime) -> str:
    if value.tzinfo is None:
        return _without_zeros(value.isoformat())
    return _without_zeros(value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat()) + "Z"


def _without_zeros(text: str) -> str:
    """A time of day without zeros at the end of a fraction."""
    return text.rstrip("0") if "." in text else text


def is_readable(column: pa.Array) -> bool:
    """Whether all dates and times in a column, also nested ones, are of the years 1 to 9999.

    Others are infinite, or a time is 24:00:00; libraries have no texts for them, or wrong ones.

    >>> is_readable(pa.array([[0, 2**31 - 1]], pa.list_(pa.date32())))
    False
    """
    kind = column.type
    if pa.types.is_struct(kind):
        return all(map(is_readable, column.flatten()))
    if pa.types.is_map(kind):
        return is_readable(column.keys) and is_readable(column.items)
    if pa.types.is_list(kind):
        return is_readable(column.flatten())
    if not pa.types.is_temporal(kind) or pa.types.is_interval(kind):
        return True
    if pa.types.is_date(kind):
        column, first, last = column.view(pa.int32()), _FIRST_DAY, _LAST_DAY
    else:
        day = _DAY_S * 10 ** DIGITS[kind.unit]
        first, last = (0, 0) if pa.types.is_time(kind) else (_FIRST_DAY, _LAST_DAY)
        first, last = max(first * day, 1 - INFINITE), min((last + 1) * day, INFINITE) - 1
        column = column.cast(pa.int64())
    least, greatest = pc.min_max(column).as_py().values()
    return least is None or first <= least <= greatest <= last
