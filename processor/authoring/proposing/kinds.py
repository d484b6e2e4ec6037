"""Infer the SQL type of a column: from the schema of its messages, else from its values.

A type fits every value that the schema allows, or that was seen, without loss.  Values are in the
normal form of decoders (`codecs.encodings`).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

from ikebana.codecs import sql_type
from ikebana.codecs.avro_schema import semantics_of
from ikebana.codecs.column_encodings import WIDEST_DECIMAL, Schema, decimal_type, meaning_of_name
from ikebana.codecs.encodings import from_base64
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.sql_type import type_of
from ikebana.processor.linear.json_text import JSON, quoted

TEXT = str(sql_type.VARCHAR)


class ColumnKind(NamedTuple):
    """A SQL type, and the encoding to declare for messages that have no schema."""

    type: str
    encoding: str | None = None


_CONNECT = {
    **{"int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT"},
    **{"float": "FLOAT", "float32": "FLOAT", "double": "DOUBLE", "float64": "DOUBLE"},
    **{"boolean": "BOOLEAN", "string": TEXT, "bytes": "BLOB"},
}


def of_connect(node: Schema) -> ColumnKind:
    """The kind of values of a Kafka Connect JSON schema.

    >>> of_connect(Schema("int64", name="io.debezium.time.MicroTimestamp"))
    ColumnKind(type='TIMESTAMP', encoding='timestamp-micros')
    """
    try:
        if meaning := meaning_of_name(node.name, node.parameters, from_base64):
            return ColumnKind(meaning.type, meaning.encoding)
    except DecodeError:
        return ColumnKind(JSON)
    match node.type:
        case "struct":
            fields = [(each.field or "", of_connect(each).type) for each in node.fields or ()]
            return ColumnKind(_struct(fields))
        case "array" if node.items:
            return ColumnKind(f"{of_connect(node.items).type}[]")
        # Without texts as keys, a map is an array of pairs.
        case "map" if node.keys and node.values and node.keys.type == "string":
            return ColumnKind(_map(of_connect(node.values).type))
    return ColumnKind(_CONNECT.get(node.type, JSON))


def fields_of(node: Schema | None) -> dict[str, ColumnKind]:
    """The kinds of the fields of a struct."""
    fields = (node.fields if node else None) or ()
    return {each.field: of_connect(each) for each in fields if each.field is not None}


_AVRO = {
    **{"int": "INTEGER", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE"},
    **{"boolean": "BOOLEAN", "string": TEXT, "enum": TEXT, "bytes": "BLOB", "fixed": "BLOB"},
}
_NARROW = {"int8": "TINYINT", "int16": "SMALLINT"}


class AvroKinds:
    """The kinds of the types of one self-contained Avro schema."""

    def __init__(self, schema: object) -> None:
        self._types: dict[str, Any] = {}
        self._open: list[str] = []
        self._learn(schema)

    def _learn(self, schema: Any) -> None:
        """Remember the definitions of all named types."""
        if isinstance(schema, list):
            for branch in schema:
                self._learn(branch)
        elif isinstance(schema, dict):
            if "name" in schema:
                self._types[schema["name"]] = schema
            for inner in ("type", "items", "values"):
                self._learn(schema.get(inner))
            for field in schema.get("fields", ()):
                self._learn(field["type"])

    def fields(self, schema: Any) -> dict[str, Any]:
        """The types of a record's fields, by name; empty if the type is no record."""
        node = self._one(schema)
        if not isinstance(node, dict) or node["type"] != "record":
            return {}
        return {field["name"]: field["type"] for field in node["fields"]}

    def of(self, schema: Any) -> ColumnKind:
        """The kind of values of a type."""
        node = self._one(schema)
        if isinstance(node, list):
            return ColumnKind(JSON)
        if isinstance(node, str):
            return ColumnKind(_AVRO.get(node, JSON))
        if meaning := semantics_of(node):
            return ColumnKind(meaning.type, meaning.encoding)
        kind = node["type"]
        match kind:
            case "array":
                return ColumnKind(f"{self.of(node['items']).type}[]")
            case "map":
                return ColumnKind(_map(self.of(node["values"]).type))
            case "record":
                return ColumnKind(self._record(node))
        return ColumnKind(_NARROW.get(node.get("connect.type"), _AVRO.get(kind, JSON)))

    def _record(self, schema: Any) -> str:
        # A record within itself has no type in SQL.
        if schema["name"] in self._open:
            return JSON
        self._open.append(schema["name"])
        kinds = [(name, self.of(kind).type) for name, kind in self.fields(schema).items()]
        self._open.pop()
        return _struct(kinds)

    def _one(self, schema: Any) -> Any:
        """The one branch of an optional type, and the definition of a named type."""
        if isinstance(schema, list) and len(left := [s for s in schema if s != "null"]) == 1:
            (schema,) = left
        return self._types.get(schema, schema) if isinstance(schema, str) else schema


_MYSQL_TYPE = re.compile(r"([a-z]+)\s*(?:\(([^)]*)\))?").match
_MYSQL = {
    **{"tinyint": "TINYINT", "smallint": "SMALLINT", "mediumint": "INTEGER", "int": "INTEGER"},
    **{"integer": "INTEGER", "bigint": "BIGINT", "bool": "TINYINT", "boolean": "TINYINT"},
    **{"year": "SMALLINT", "float": "FLOAT", "double": "DOUBLE", "real": "DOUBLE"},
    **{"datetime": "TIMESTAMP", "timestamp": "TIMESTAMP", "date": "DATE", "time": "TIME"},
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob"), "BLOB"),
    **{"longblob": "BLOB", "json": JSON},
}
_MYSQL_DECIMALS = ("decimal", "dec", "numeric", "fixed")
_MYSQL_DIGITS = (10, 0)


def of_mysql(text: str) -> ColumnKind:
    """The kind of values of a MySQL type; unknown types are text.

    >>> [of_mysql(text).type for text in ("decimal(12,2)", "int(10) unsigned", "set('a')")]
    ['DECIMAL(12,2)', 'UINTEGER', 'VARCHAR']
    """
    match = _MYSQL_TYPE(text.lower())
    if match is None:
        return ColumnKind(TEXT)
    name, arguments = match.groups()
    if name in _MYSQL_DECIMALS:
        digits = [int(part) for part in re.findall(r"\d+", arguments or "")]
        precision, scale = (*digits, *_MYSQL_DIGITS[len(digits) :])
        return ColumnKind(decimal_type(precision, scale))
    kind = _MYSQL.get(name, TEXT)
    return ColumnKind(f"U{kind}" if "unsigned" in text.lower() and kind in _INTEGERS else kind)


def of_values(values: Iterable[Any]) -> ColumnKind | None:
    """The kind that fits all values; None if all are null.

    Numbers get an integer type, else DOUBLE if it has all their digits, else a DECIMAL or text.
    Values of different types are JSON.

    >>> of_values([1, 2.5]), of_values([1, "a"]), of_values([None])
    (ColumnKind(type='DOUBLE', encoding=None), ColumnKind(type='JSON', encoding=None), None)
    """
    there = [value for value in values if value is not None]
    kinds = {_class_of(value) for value in there}
    if not kinds:
        return None
    if kinds == {"number", TEXT}:
        # Beside numbers, the texts NaN and Infinity are numbers too.
        numbers = [value for value in there if value not in _NOT_FINITE]
        if len(numbers) < len(there) and all(map(_is_double, numbers)):
            return ColumnKind("DOUBLE")
    if kinds == {"number"}:
        return ColumnKind(_number(there))
    return ColumnKind(kinds.pop() if len(kinds) == 1 else JSON)


_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


def _is_double(value: object) -> bool:
    return _class_of(value) == "number" and _fits_a_double(value)


def _class_of(value: object) -> str:
    match value:
        case bool():
            return "BOOLEAN"
        case int() | float() | Decimal():
            return "number"
        case str():
            return TEXT
    return JSON


_WHOLE = {"BIGINT": 63, "HUGEINT": 127}


def _number(values: Sequence[Any]) -> str:
    whole = [value for value in values if isinstance(value, int)]
    if len(whole) == len(values):
        for kind, bits in _WHOLE.items():
            if all(-(1 << bits) <= value < 1 << bits for value in whole):
                return kind
    elif all(map(_fits_a_double, values)):
        return "DOUBLE"
    exact = [Decimal(repr(value) if isinstance(value, float) else value) for value in values]
    digits = [(max(each.adjusted() + 1, 0), _places(each)) for each in exact]
    left, right = (max(side) for side in zip(*digits, strict=True))
    return f"DECIMAL({WIDEST_DECIMAL},{right})" if left + right <= WIDEST_DECIMAL else TEXT


def _fits_a_double(value: Any) -> bool:
    try:
        return isinstance(value, float) or Decimal(repr(float(value))) == value
    except OverflowError:
        return False


def _places(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return max(-exponent, 0) if isinstance(exponent, int) else 0


_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
# The next type that also has the numbers below zero.
_SIGNED = {f"U{kind}": wide for kind, wide in pairwise(_INTEGERS)}
_DIGITS = dict(zip(_INTEGERS, (3, 5, 10, 19, 39), strict=True))
_TEXTS = ("DATE", "TIME", "TIMETZ", "TIMESTAMP", "TIMESTAMP_NS", "TIMESTAMPTZ", "UUID", TEXT)


def common(kinds: Sequence[ColumnKind]) -> ColumnKind:
    """The kind that fits all of several kinds (at least one), as a schema changed over time.

    >>> common([ColumnKind("INTEGER"), ColumnKind("BIGINT")]).type
    'BIGINT'
    >>> common([ColumnKind("DATE"), ColumnKind("UUID")]).type
    'VARCHAR'
    >>> common([ColumnKind("INTEGER"), ColumnKind("UINTEGER")]).type
    'BIGINT'
    >>> common([ColumnKind("INTEGER"), ColumnKind("DECIMAL(9,2)")]).type
    'DECIMAL(12,2)'
    """
    types = {kind.type for kind in kinds}
    if len(types) == 1:
        return kinds[-1]
    types = {_SIGNED.get(kind, kind) for kind in types}
    if types <= set(_INTEGERS):
        return ColumnKind(max(types, key=_INTEGERS.index))
    if types == {"FLOAT", "DOUBLE"}:
        return ColumnKind("DOUBLE")
    of_digits = {kind: decimal_type(_DIGITS[kind], 0) for kind in types & {*_INTEGERS}}
    decimals = [
        each
        for kind in types
        if isinstance(each := type_of(of_digits.get(kind, kind)), sql_type.Decimal)
    ]
    if len(decimals) == len(types):
        scale = max(each.scale for each in decimals)
        return ColumnKind(
            decimal_type(max(each.width - each.scale for each in decimals) + scale, scale)
        )
    return ColumnKind(TEXT if types <= set(_TEXTS) else JSON)


# The largest and smallest instants since 1973 in each unit, which are later than numbers of rows.
_UNITS: Mapping[str, range] = {
    unit: range(10 ** (8 + digits), 5 * 10 ** (9 + digits))
    for unit, digits in (("millis", 3), ("micros", 6), ("nanos", 9))
}
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?").fullmatch


def hint(values: Iterable[Any]) -> str:
    """A comment on what values without a schema may mean, and how to declare that; or ""."""
    there = [value for value in values if value is not None]
    for looks_so, words in _HINTS:
        if there and all(map(looks_so, there)):
            return words
    return ""


def _counts(unit: str) -> Callable[[Any], bool]:
    # True is no number here, and a range knows it as 1.
    return lambda value: value.__class__ is int and value in _UNITS[unit]


def _may_be_digits(value: Any) -> bool:
    return isinstance(value, str) and value.endswith("=") and _BASE64(value) is not None


def _is_variable(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"scale", "value"}


def _is_of_dynamodb(value: Any) -> bool:
    names = "S", "N", "B", "BOOL", "NULL", "M", "L", "SS", "NS", "BS"
    return isinstance(value, dict) and len(value) == 1 and not value.keys().isdisjoint(names)


def _is_fraction(value: Any) -> bool:
    return isinstance(value, float | Decimal)


_HINTS: Sequence[tuple[Callable[[Any], bool], str]] = (
    *(
        (
            _counts(unit),
            f"If these are {unit}: {{type: TIMESTAMP, encoding: timestamp-{unit}}}.",
        )
        for unit in _UNITS
    ),
    (
        _may_be_digits,
        'If these are bytes: BLOB; if decimals: {type: "DECIMAL(12,2)", encoding: decimal}.',
    ),
    (_is_fraction, "If these are decimals: DECIMAL(12,2), with their digits."),
    (_is_of_dynamodb, "A value with its type in DynamoDB: in SQL, column->>'$.S' is a text."),
    (_is_variable, "A decimal of any scale; decimal.handling.mode=string makes it readable."),
)


def _map(values: str) -> str:
    return f"MAP(VARCHAR, {values})"


def _struct(fields: Sequence[tuple[str, str]]) -> str:
    # In SQL, names that differ in case alone are the same.
    if not fields or len({name.casefold() for name, _ in fields}) < len(fields):
        return JSON
    return f"STRUCT({', '.join(f'{quoted(name)} {kind}' for name, kind in fields)})"
