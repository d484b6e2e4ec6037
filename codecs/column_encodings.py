"""The encodings of columns: declared in the pipeline file, or usual for a format.

An encoding says what a value in a message is, if neither JSON nor the message's schema says it:
a count of microseconds, the text of a JSON document.  It applies to messages without a schema, and
to types of a schema that leave the meaning open, such as `int64` or `string` without a name.  Its
name ends in "[]" for each array around the values.

A connector writes a JSON column as a text, and an interval as a count of microseconds, so the
formats of such connectors have an encoding for all declared columns of these types (`usual`).
That is a property of the column and the format: it depends neither on a message nor on who
reads the column.
"""

import re
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from ikebana.codecs import canonical
from ikebana.codecs.encodings import (
    COUNTED,
    Convert,
    decimal_of,
    duration,
    expected,
    from_base64,
    scale_of,
    variable_decimal,
)
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.nesting import DEEPEST, too_deep
from ikebana.codecs.semantic_types import Schema, of_connect
from ikebana.codecs.sql_type import Array, Decimal, List, SqlType, parsed
from ikebana.codecs.structured_times import structured

Usual = Literal["always", "named", "never"]
"""Whether a format has the usual encodings of JSON and INTERVAL columns: `named` only if a
schema names these types."""

_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "int", "long"})
_NUMBERS = _INTEGERS | {"float", "double"}
_BYTES = frozenset({"bytes", "fixed"})
_TEXTS = frozenset({"string"})
_USUAL = {"JSON": "json", "INTERVAL": "interval-micros"}
_NAMES = {
    "json": frozenset({"io.debezium.data.Json"}),
    "interval-micros": frozenset({"io.debezium.time.MicroDuration"}),
}
_ITEMS = "[]"
# Behind the names of usual encodings.
_ASSUMED, _NAMED = ":assumed", ":named"
_SUFFIXES = {(how, bare) for how in ("assumed", "named") for bare in _NAMES}


class Encoding(NamedTuple):
    """The conversion of a column's values, and the types of a schema that it applies to."""

    convert: Convert
    types: frozenset[str]
    names: frozenset[str] | None = None
    """The names that such a type has to have; None for any."""
    assumed: bool = False
    """Whether it is not declared; then it does not apply to documents, which have JSON values."""
    items: "Encoding | None" = None
    """The encoding of the items, if values are arrays."""

    def fits(self, kind: str, name: str | None = None) -> bool:
        """Whether it applies to a type of a schema, which is not that of an array."""
        return kind in self.types and (self.names is None or name in self.names)


def encoding(name: str) -> Encoding:
    """Find an encoding by its full name; its conversion leaves null unchanged.

    Raises:
        ValueError: there is no such encoding.

    >>> encoding("timestamp-millis").convert(1706704496789)
    '2024-01-31T12:34:56.789'
    >>> encoding("decimal:2").convert("MDk=")
    123.45
    >>> encoding("json[]").convert(['{"a": 1}', None])
    [{'a': 1}, None]
    """
    if name.endswith(_ITEMS):
        items = encoding(name.removesuffix(_ITEMS))
        return Encoding(_each(items.convert), frozenset(), items.names, items.assumed, items)
    if name.startswith("decimal:") and (scale := scale_of(name[8:])) is not None:
        return Encoding(_decimal(scale), _BYTES)
    bare, _, suffix = name.partition(":")
    if (result := _BY_NAME.get(bare)) is None or (suffix and (suffix, bare) not in _SUFFIXES):
        raise ValueError(f'"{name}" is none of {", ".join(CHOICES)}')
    if suffix == "named":
        return result._replace(names=_NAMES[bare])
    return result._replace(assumed=bool(suffix))


def encodings(names: Mapping[str, str]) -> dict[str, Encoding]:
    """Find the encodings of columns by their full names; plain ones are left out."""
    return {
        column: encoding(name) for column, name in names.items() if not name.startswith("plain")
    }


def bare(declared: Mapping[str, Encoding]) -> dict[str, Convert]:
    """The conversions of columns of messages without a schema."""
    return {name: each.convert for name, each in declared.items() if each.names is None}


def full_name(kind: str, name: str) -> str:
    """The full name of an encoding of a column: with the scale of its type, and with its arrays.

    >>> full_name("DECIMAL(12,2)[]", "decimal")
    'decimal:2[]'
    """
    items, arrays = _taken_apart(kind)
    if name == "decimal":
        name = f"decimal:{items.scale if isinstance(items, Decimal) else 0}"
    # The document in a text may be an array.
    whole = name.endswith(_ITEMS) or (name == "json" and str(items) != "JSON")
    return name + _ITEMS * (0 if whole else arrays)


def usual_name(kind: str, usual: Usual) -> str | None:
    """The full name of the usual encoding of a column; None if it has none."""
    items, arrays = _taken_apart(kind)
    name = _USUAL.get(str(items))
    if usual == "never" or name is None:
        return None
    return name + (_NAMED if usual == "named" else _ASSUMED) + _ITEMS * arrays


def _taken_apart(kind: str) -> tuple[SqlType, int]:
    """Split a type into the type of the items, and the number of arrays around them."""
    items, arrays = parsed(kind), 0
    while isinstance(items, List | Array):
        items, arrays = items.of, arrays + 1
    return items, arrays


def of_columns(
    schema: Schema, declared: Mapping[str, Encoding], judges: Callable[[str], bool]
) -> dict[str, Convert]:
    """Find the conversions of the columns of a row by its Kafka Connect JSON schema.

    A declared encoding applies if the schema leaves the meaning open.  Normal columns are left
    out.  A value that contradicts the schema is an error in a column for which `judges` holds, and
    stays unchanged in others.

    Raises:
        DecodeError: it is no schema.
    """
    converts = {}
    for field in schema.fields or ():
        name = field.field
        if name is None:
            continue
        convert = of_connect(field, strict=judges(name))
        if convert is None and (of_column := declared.get(name)) is not None:
            convert = _open(field, of_column)
        if convert is not None:
            converts[name] = convert
    return converts


def _open(node: Schema, of_column: Encoding) -> Convert | None:
    if of_column.items is not None:
        inner = _open(node.items, of_column.items) if node.type == "array" and node.items else None
        return of_column.convert if inner is not None else None
    return of_column.convert if of_column.fits(node.type, node.name) else None


def _each(convert: Convert) -> Convert:
    def items(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise expected("an array", value)
        return [convert(item) for item in value]

    return items


def _decimal(scale: int) -> Convert:
    digits, variable = decimal_of(scale, from_base64), variable_decimal(from_base64)
    return lambda value: (variable if value.__class__ is dict else digits)(value)


_decode = canonical.decoder(Any)


def _json(value: Any) -> Any:
    if value.__class__ is not str:
        # Connectors write documents as texts; arrays and objects come from other columns.
        return value
    try:
        text = value.encode()
        # Its row is an object, and may have an array around it.
        if not too_deep(b"[[%b]]" % text):
            return _decode(text)
        reason = f"it is nested more than {DEEPEST} deep"
    except UnicodeError:
        reason = "it is not UTF-8"
    except canonical.REFUSALS as error:
        reason = canonical.refused("value", error).reason
    raise DecodeError("value", f"expected JSON, found another text: {reason}")


def _bytes_of(decode: Callable[[str], bytes], what: str) -> Convert:
    def convert(value: Any) -> str | None:
        if value is None:
            return None
        if value.__class__ is not str:
            raise expected(what, value)
        try:
            return b64encode(decode(value)).decode()
        except ValueError:
            raise expected(what, value) from None

    return convert


def _from_url_safe(text: str) -> bytes:
    if not _URL_SAFE(text):
        raise ValueError
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


_URL_SAFE = re.compile(r"[A-Za-z0-9_-]*={0,2}").fullmatch


def _from_hex(text: str) -> bytes:
    if not _HEX(text):
        raise ValueError
    return bytes.fromhex(text)


_HEX = re.compile(r"[0-9A-Fa-f]*").fullmatch

_BY_NAME = {
    **{name: Encoding(convert, _INTEGERS) for name, convert in COUNTED.items()},
    "interval-micros": Encoding(duration, _NUMBERS),
    "json": Encoding(_json, _TEXTS),
    "base64": Encoding(_bytes_of(from_base64, "base64 text"), _TEXTS),
    "base64-url-safe": Encoding(_bytes_of(_from_url_safe, "URL-safe base64 text"), _TEXTS),
    "hex": Encoding(_bytes_of(_from_hex, "hexadecimal digits"), _TEXTS),
    "structured": Encoding(structured, frozenset()),
    "plain": Encoding(lambda value: value, frozenset()),
}
CHOICES = (*COUNTED, "decimal", *(name for name in _BY_NAME if name not in COUNTED))
"""The encodings that may be declared."""
