"""SQL that writes typed columns as JSON texts, with every digit.

DuckDB's own `to_json` makes a double of each number, which would change a decimal of more than
15 digits; here a number is written as its text.  `typed_json` is the way back.
"""

# Decision (JSON as text): `to_json` and `json_transform` make doubles of decimals, so JSON is
# written and read as text. Comparing JSON with a number compares texts, so it is refused.

import re

import msgspec

from ikebana.codecs import sql_type
from ikebana.codecs.canonical import INFINITY, NAN
from ikebana.codecs.sql_type import (
    NULL,
    Array,
    Decimal,
    Enum,
    List,
    Map,
    Scalar,
    SqlType,
    Struct,
    Tuple,
    Union,
    parts,
    type_of,
    within,
)
from ikebana.processor.base.texts import is_seen

JSON = str(sql_type.JSON)
BLOB = "BLOB"
ZONED = "TIMESTAMP WITH TIME ZONE"
INSTANTS = ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", ZONED)
TIME_OF_DAY = ("TIME", "TIME WITH TIME ZONE")
_FROM_TEXT = (*INSTANTS, *TIME_OF_DAY, "UUID", "INTERVAL")
WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_AS_IT_IS = ("BOOLEAN", "DOUBLE", "FLOAT", "HUGEINT", "UHUGEINT", "UBIGINT", *WHOLE, JSON)
_IN_JSON = {"VARCHAR", BLOB, str(NULL), *_FROM_TEXT, *_AS_IT_IS}


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    r"""A text as SQL writes it; invisible characters are escaped, so it can be copied.

    >>> print(literal("it's"), literal("a\tb"))
    'it''s' E'a\x09b'
    """
    mark = ""
    if not all(map(is_seen, text)):
        mark, text = "E", "".join(map(_escaped, text))
    return mark + sql_type.literal(text)


def _escaped(character: str) -> str:
    if is_seen(character):
        return character.replace("\\", "\\\\")
    return "".join(f"\\x{byte:02x}" for byte in character.encode())


def misfit_of(column: str, type_: SqlType | str, field: str = "") -> str:
    """The reason why a row is wrong: a column, or a field in it, is not of its type."""
    part = f": field {field}" if field else ""
    return f'column "{column}"{part} is not of type {type_}'


def field_of(value: str, name: str) -> str:
    """SQL for a field of a value in JSON, as text.

    >>> print(field_of("value", "a"), field_of("value", "/a"))
    value->>'a' value->>'$."/a"'
    """
    if name.isidentifier():
        return f"{value}->>{literal(name)}"
    # Texts that begin with "$" or "/" are paths.
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    path = f'$."{escaped}"'
    return f"{value}->>{literal(path)}"


_BARE = re.compile(r'"(?:[^"\\]|\\.)*"|(-?(?:NaN|Infinity))', re.DOTALL)


def spelled(text: str) -> str:
    """JSON as DuckDB writes it, but with numbers that are not finite as texts.

    >>> spelled('{"NaN":NaN,"a":[-Infinity]}')
    '{"NaN":"NaN","a":["-Infinity"]}'
    """
    return _BARE.sub(lambda match: f'"{match[1]}"' if match[1] else match[0], text)


def milliseconds(column: str, kind: str) -> str:
    """SQL for the first whole millisecond since 1970 that is not before an instant.

    It is before the same milliseconds, and not before the same, as the instant itself.
    """
    if kind == "DATE":
        return f"epoch_ms({column})"
    unit, factor = ("ns", 1_000_000) if kind == "TIMESTAMP_NS" else ("us", 1_000)
    count = f"epoch_{unit}({column})"
    # Division rounds towards zero, which is up for negative numbers.
    return f"(CASE WHEN {count} > 0 THEN {count} + {factor - 1} ELSE {count} END) // {factor}"


def has_json_form(kind: SqlType) -> bool:
    """Whether values of a type can be written as JSON and read back."""
    match kind:
        case Scalar(name):
            return name in _IN_JSON
        case Decimal() | Enum():
            return True
        case Tuple() | Union():
            return False
    return all(map(has_json_form, parts(kind)))


def compares_as_data(kind: str) -> bool:
    """Whether values of a type that are equal in SQL are equal as data.

    Intervals need not be: 1 month is 30 days.
    """
    return Scalar("INTERVAL") not in within(type_of(kind))


def to_text(column: str, kind: SqlType, depth: int = 0) -> str:
    """SQL that turns a column into JSON text, never null.

    Timestamps are written with a T, with zone in UTC; bytes in base64; numbers that are not
    finite, which JSON does not have, as texts.
    """
    name = str(kind)
    each = f"e{depth}"
    if name in ("DOUBLE", "FLOAT"):
        text = (
            f"CASE WHEN isfinite({column}) THEN {column}::VARCHAR "
            f"WHEN isnan({column}) THEN '\"{NAN}\"' WHEN {column} > 0 THEN '\"{INFINITY}\"' "
            f"WHEN {column} < 0 THEN '\"-{INFINITY}\"' END"
        )
    elif isinstance(kind, Decimal) and kind.width == kind.scale:
        # DuckDB writes no digit before the point of such a decimal.
        text = f"regexp_replace({column}::VARCHAR, '^(-?)[.]', '\\10.')"
    elif name in _AS_IT_IS or isinstance(kind, Decimal):
        text = f"{column}::VARCHAR"
    elif isinstance(kind, List | Array):
        element = kind.of
        inner = to_text(each, element, depth + 1)
        parts = f"list_transform({column}::{element}[], lambda {each}: {inner})"
        text = f"'[' || array_to_string({parts}, ',') || ']'"
    elif isinstance(kind, Struct):
        fields = [
            f"{literal(to_field(label))} || "
            + to_text(f"({column}).{quoted(label)}", child, depth + 1)
            for label, child in kind.fields
        ]
        inside = " || ',' || ".join(fields) or "''"
        text = f"CASE WHEN {column} IS NOT NULL THEN '{{' || {inside} || '}}' END"
    elif isinstance(kind, Map):
        entry = f"to_json({each}.key::VARCHAR)::VARCHAR || ':' || " + to_text(
            f"{each}.value", kind.value, depth + 1
        )
        parts = f"list_transform(map_entries({column}), lambda {each}: {entry})"
        text = f"'{{' || array_to_string({parts}, ',') || '}}'"
    else:
        text = f"to_json({_plain(column, name)})::VARCHAR"
    return f"coalesce({text}, 'null')"


def to_object(columns: dict[str, SqlType]) -> str:
    """SQL for the JSON text of an object of columns."""
    if not columns:
        return "'{}'"
    parts = [
        f"{literal(to_field(name))} || {to_text(quoted(name), kind)}"
        for name, kind in columns.items()
    ]
    return "'{' || " + " || ',' || ".join(parts) + " || '}'"


def to_field(name: str) -> str:
    """A field's name as JSON writes it, with its colon."""
    return msgspec.json.encode(name).decode() + ":"


def _plain(column: str, name: str) -> str:
    if name == ZONED:
        return _iso(f"replace({column}::VARCHAR, '+00', 'Z')")
    if name in INSTANTS:
        return _iso(f"{column}::VARCHAR")
    if name == BLOB:
        return f"to_base64({column})"
    return f"{column}::VARCHAR"


def _iso(text: str) -> str:
    """SQL that turns SQL's text of a date or timestamp into ISO 8601.

    SQL counts years before 1 from 1, with a word behind the day; in ISO 8601 the year before 1
    is 0, and years before it have a sign.
    """
    year = f"split_part({text}, '-', 1)::INTEGER - 1"
    sign = f"CASE WHEN {year} > 0 THEN '-' ELSE '' END"
    rest = f"replace(substr({text}, strpos({text}, '-')), ' (BC)', '')"
    before = f"{sign} || printf('%04d', {year}) || {rest}"
    return f"replace(CASE WHEN contains({text}, '(') THEN {before} ELSE {text} END, ' ', 'T')"
