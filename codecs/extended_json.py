"""MongoDB's Extended JSON: values of documents that JSON has no form for, as objects.

An object such as {"$numberLong": "5"} is its value in the normal forms of columns: identifiers,
symbols and UUIDs are texts, numbers numbers, dates timestamps in UTC, binary data base64 text.
The canonical form, the relaxed one and the older one of Debezium are read.  Objects for which a
column has no form, such as {"$minKey": 1}, stay as they are, and so do values that do not fit.

Source: https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from ikebana.codecs import canonical
from ikebana.codecs.encodings import from_base64, timestamp_of, zoned_timestamp
from ikebana.codecs.errors import DecodeError

_UUID = "4"
_millis = timestamp_of(3)


def plain(value: Any) -> Any:
    """A value of a document, at any depth without the objects of Extended JSON.

    >>> plain({"_id": {"$oid": "5f"}, "n": [{"$numberLong": "7"}, {"$date": 0}]})
    {'_id': '5f', 'n': [7, '1970-01-01T00:00:00Z']}
    """
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    name = next(iter(value), "")
    if (convert := _CONVERTS.get(name)) is not None and value.keys() <= {name, "$type"}:
        try:
            return convert(value[name], value.get("$type"))
        except (DecodeError, ArithmeticError, ValueError):
            return value
    return {name: plain(item) for name, item in value.items()}


def _text(value: Any, _: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _number(value: Any, _: Any) -> Any:
    text = _text(value, None)
    return (
        text if text.lstrip("-") in (canonical.NAN, canonical.INFINITY) else canonical.number(text)
    )


def _date(value: Any, _: Any) -> str | None:
    count = plain(value)
    if count.__class__ is str:
        return zoned_timestamp(count)
    text = _millis(count)
    return f"{text}Z"


def _binary(value: Any, kind: Any) -> str:
    if isinstance(value, dict):
        value, kind = value.get("base64"), value.get("subType")
    raw = from_base64(value)
    return str(UUID(bytes=raw)) if str(kind).lstrip("0") == _UUID else str(value)


_CONVERTS: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("$oid", "$symbol", "$uuid"), _text),
    **dict.fromkeys(("$numberInt", "$numberLong", "$numberDouble", "$numberDecimal"), _number),
    "$date": _date,
    "$binary": _binary,
    "$undefined": lambda value, _: None,
}
