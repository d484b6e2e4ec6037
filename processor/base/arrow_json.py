"""Rows of Arrow as JSON objects, in the forms that rows have everywhere.

Dates and times are as in ISO 8601, those with a zone in UTC; bytes are base64, decimals numbers.
"""

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from ikebana.codecs import canonical
from ikebana.errors import SourceError


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
