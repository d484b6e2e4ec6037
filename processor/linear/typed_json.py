"""Read JSON texts as typed columns, by SQL or in place of it; a type may not change the value.

A type takes values that it holds without loss: BIGINT no 27.5, DECIMAL(12,2) no 1.239, DATE no
time of day, TIME no zone.  Texts may spell numbers, as many databases' messages do, and
BOOLEAN takes 0 and 1.  DOUBLE and FLOAT take the nearest number that they have, but only words as
infinity.  A TIMESTAMP with an offset is that instant in UTC.  Years before 1 and after 9999 are
written as in ISO 8601, with a sign, or as SQL writes them.

DuckDB's own casts from JSON round, truncate, and make doubles of numbers; so a text is
cast to its type as text, and spoilt first if that would lose anything.  A pattern recognises
texts of the usual form, which lose nothing: that is as quick as DuckDB's own cast.

A statement that casts JSON texts takes DuckDB long to plan and to run.  Texts of the usual form of
their type become values here, much faster, for a statement without casts.  A column with any
other text is left to the statement with casts, which decides what it means.
"""

from collections.abc import Callable, Sequence

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

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
    depth,
    parsed,
    type_of,
    within,
)
from ikebana.processor.linear.json_text import (
    BLOB,
    INSTANTS,
    JSON,
    TIME_OF_DAY,
    WHOLE,
    ZONED,
    literal,
    quoted,
)
from ikebana.processor.linear.scope import ExpressionError

_NOT_IN_JSON = {"BIT", "BIGNUM", "TYPE"}
_INTEGERS = {*WHOLE, "UBIGINT", "HUGEINT", "UHUGEINT"}
_FLOATS = {"DOUBLE", "FLOAT"}
# The time that DuckDB takes to bind what is written here doubles with each level.
_DEEPEST = 10
# How many digits of a second a type has.
_SECOND_DIGITS = {
    "TIMESTAMP": 6,
    "TIMESTAMP_S": 0,
    "TIMESTAMP_MS": 3,
    "TIMESTAMP_NS": 9,
    ZONED: 6,
    "TIME": 6,
    "TIME WITH TIME ZONE": 6,
    "INTERVAL": 6,
}
# A time of day, followed by an offset or a zone other than Z.
_OFFSET = literal(r":[0-9.]+ *[+A-Ya-y-]")


def from_json(text: str, kind: str) -> str:
    """SQL that turns the text of canonical JSON into a type; null is null.

    Raises: ExpressionError, if JSON has no values of the type.
    """
    type_ = parsed(kind)
    if depth(type_) > _DEEPEST:
        raise ExpressionError(
            f"a type that nests deeper than {_DEEPEST} is not read from JSON; "
            "read JSON, and take it apart, as in x->'field'"
        )
    if Struct(()) in within(type_):
        raise ExpressionError("a STRUCT without fields is not read from JSON; read JSON")
    return _read(text, type_, 0)


def _read(text: str, type_: SqlType, level: int) -> str:
    kind = str(type_)
    if kind in _NOT_IN_JSON or isinstance(type_, Union | Tuple):
        remedy = f"read a text, and cast that, as in x::VARCHAR::{kind}"
        if isinstance(type_, Union | Tuple):
            remedy = "read JSON, and take it apart, as in x->'field'"
        raise ExpressionError(f"{kind} is not read from JSON; {remedy}")
    if kind == JSON:
        return f"{text}::JSON"
    if kind == "VARCHAR":
        # Only a string is unescaped: `->>` would make a double of a number.
        return (
            f"(CASE WHEN starts_with({text}, '\"') THEN {text} ->> '$' "
            f"WHEN {text} <> 'null' THEN {text} END)"
        )
    sql = _nested(text, type_, level) or _scalar(text, type_)
    usual = "".join(f"WHEN {form} THEN {cast} " for form, cast in _usual(text, type_))
    return f"(CASE {usual}ELSE {sql} END)" if usual else sql


_WHOLE_NUMBER = "-?[0-9]+"
_TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_INSTANT = rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ]{_TIME}"


def _usual(text: str, type_: SqlType) -> list[tuple[str, str]]:
    """Conditions for usual forms of a type, and SQL that casts such a text directly."""

    def matches(pattern: str) -> str:
        return f"regexp_full_match({text}, {literal(pattern)})"

    kind = str(type_)
    number, string = f"CAST({text} AS {kind})", f"CAST({text} ->> '$' AS {kind})"
    match type_:
        case List(Scalar(name)) if name in _INTEGERS:
            numbers = rf"\[({_WHOLE_NUMBER}(,{_WHOLE_NUMBER})*)?\]"
            return [(matches(numbers), f"CAST({text}::JSON AS {kind})")]
        case Decimal(_, scale):
            fraction = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
            return [(matches(_WHOLE_NUMBER + fraction), number)]
    if kind in _INTEGERS:
        return [(matches(_WHOLE_NUMBER), number)]
    if kind in _FLOATS:
        # So few digits are within the greatest number of both types.
        return [(matches(r"-?[0-9]{1,38}(\.[0-9]+)?"), number)]
    if kind == "BOOLEAN":
        return [(f"{text} IN ('true', 'false')", number)]
    if kind == "DATE":
        return [(f"{text} LIKE '\"____-__-__\"'", string)]
    if kind == "TIME":
        return [(matches(f'"{_TIME}"'), string)]
    if kind not in ("TIMESTAMP", ZONED):
        return []
    # Seconds end the text, so there is neither a fraction nor an offset.
    plain = f"length({text}) = 21 AND substr({text}, 18, 1) = ':'"
    in_utc = f"CAST(CAST({text} ->> '$' AS {ZONED}) AS {kind})"
    return [(plain, string), (matches(f'"{_INSTANT}(Z|[+-][0-9]{{2}}:[0-9]{{2}})?"'), in_utc)]


def _scalar(text: str, type_: SqlType) -> str:
    kind, there = str(type_), f"nullif({text}, 'null')"
    if kind in _INTEGERS:
        # A text that DuckDB would read in another base is made invalid.
        whole = f"""translate({there}, '_ xXbBoO"', '!!!!!!!!')"""
        return _unless(f"{_places(whole)} > 0", whole, kind)
    number = f"""translate({there}, '_ "', '!!')"""
    if kind in _FLOATS:
        # The words of Debezium's decimals, when these are texts.
        word = f"replace(replace({number}, 'POSITIVE!INF', 'Inf'), 'NEGATIVE!INF', '-Inf')"
        # DuckDB makes infinity of a number beyond the greatest.
        digits = f"regexp_matches({number}, '[0-9]')"
        return _unless(f"{digits} AND isinf(TRY_CAST({number} AS {kind}))", word, kind)
    if isinstance(type_, Decimal):
        # A cast to fewer digits would refuse 1e-6, since it has one digit before the point.
        wide, exact = str(Decimal(38, type_.scale)), number
        if type_.scale == _MOST_DIGITS:
            exact = _fraction(number)
        return f"CAST({_unless(f'{_places(number)} > {type_.scale}', exact, wide)} AS {kind})"
    if kind == "BOOLEAN":
        word = f"""translate({there}, '"', '')"""
        return _unless(f"{word} NOT IN ('true', 'false', '0', '1', 't', 'f')", word, kind)
    if kind == BLOB:
        return f"from_base64({_string(text)})"
    if kind in INSTANTS:
        # ISO 8601 has a plus before a year of more than four digits, as codecs write it.
        year = f"regexp_replace({_string(text)}, '^[+]', '')"
        # GoldenGate has a blank before an offset.
        return _of_string(f"regexp_replace({year}, ' ([+-][0-9:]+)$', '\\1')", kind)
    if kind in ("UUID", *_SECOND_DIGITS):
        return _of_string(_string(text), kind)
    if type_ == NULL:
        return f"CAST({there} AS {kind})"
    return f"CAST({text}::JSON AS {kind})"


def _of_string(string: str, kind: str) -> str:
    """SQL that reads a text without escapes as an instant, a time, an interval or a UUID."""
    if kind == "UUID":
        return f"CAST({string} AS UUID)"
    if kind == "DATE":
        instant = f"CAST(CAST({string} AS {ZONED}) AS TIMESTAMP)"
        of_instant = (
            f"CASE WHEN {instant} = date_trunc('day', {instant}) THEN CAST({instant} AS DATE) "
            f"ELSE CAST('!' || {string} AS DATE) END"
        )
        day = f"regexp_replace({string}, '[Zz]$', '')"
        return f"CASE WHEN contains({string}, ':') THEN {of_instant} ELSE CAST({day} AS DATE) END"
    digits = f"length(rtrim(regexp_extract({string}, '\\.([0-9]+)', 1), '0'))"
    spoilt = f"{digits} > {_SECOND_DIGITS[kind]}"
    if kind in ("TIME", "TIMESTAMP_NS"):
        return _unless(f"{spoilt} OR regexp_matches({string}, {_OFFSET})", string, kind)
    if kind in TIME_OF_DAY:
        # DuckDB's times have no letter for UTC.
        return _unless(spoilt, f"regexp_replace({string}, '[Zz]$', '+00')", kind)
    if kind == "INTERVAL":
        return _unless(spoilt, _duration(string), kind)
    if kind == ZONED:
        return _unless(spoilt, string, kind)
    instant = f"CAST({_unless(spoilt, string, ZONED)} AS TIMESTAMP)"
    return instant if kind == "TIMESTAMP" else f"CAST({instant} AS {kind})"


def _duration(string: str) -> str:
    """SQL for a duration of ISO 8601 as DuckDB writes intervals; other texts stay."""
    day, time = (f"split_part({string}, 'T', {part})" for part in (1, 2))
    for letter, unit in (("Y", "years"), ("M", "months"), ("W", "weeks"), ("D", "days")):
        day = f"replace({day}, '{letter}', ' {unit} ')"
    for letter, unit in (("H", "hours"), ("M", "minutes"), ("S", "seconds")):
        time = f"replace({time}, '{letter}', ' {unit} ')"
    return (
        f"CASE WHEN regexp_full_match({string}, {literal(_ISO_DURATION)}) "
        f"THEN substr({day}, 2) || {time} ELSE {string} END"
    )


_ISO_DURATION = (
    r"P(-?\d+Y)?(-?\d+M)?(-?\d+W)?(-?\d+D)?"
    r"(T(-?\d+H)?(-?\d+M)?(-?\d+(\.\d+)?S)?)?"
)


def _unless(spoilt: str, text: str, kind: str) -> str:
    """SQL that casts a text, and fails under a condition."""
    return f"CAST(CASE WHEN {spoilt} THEN '!' || {text} ELSE {text} END AS {kind})"


def _string(text: str) -> str:
    """SQL for the text of a JSON string without escapes; other texts fail later."""
    return (
        f"(CASE WHEN starts_with({text}, '\"') THEN trim({text}, '\"') "
        f"WHEN {text} <> 'null' THEN '!' END)"
    )


def _places(number: str) -> str:
    """SQL for the number of decimal places; only small numbers have exponents."""
    digits = f"split_part(lower({number}), 'e', 1)"
    exponent = f"nullif(split_part(lower({number}), 'e', 2), '')"
    fraction = f"length(rtrim(split_part({digits}, '.', 2), '0'))"
    return f"({fraction} - coalesce(CAST({exponent} AS INTEGER), 0))"


def _fraction(number: str) -> str:
    """SQL for a number below one without its exponent, which would be a digit before the point."""
    digits, exponent = (f"split_part(lower({number}), 'e-', {part})" for part in (1, 2))
    whole = f"ltrim(split_part({digits}, '.', 1), '-')"
    sign = f"CASE WHEN starts_with({number}, '-') THEN '-0.' ELSE '0.' END"
    zeros = f"repeat('0', CAST({exponent} AS INTEGER) - length({whole}))"
    plain = f"{sign} || {zeros} || {whole} || split_part({digits}, '.', 2)"
    return f"CASE WHEN contains(lower({number}), 'e-') THEN {plain} ELSE {number} END"


def _nested(text: str, kind: SqlType, level: int) -> str | None:
    """SQL that reads a nested type, part by part; None if it is not nested."""
    each = f"e{level}"

    def part(name: str, of: SqlType) -> str:
        return _read(f"struct_extract({each}, {literal(name)})::VARCHAR", of, level + 1)

    match kind:
        case Enum():
            return f"CAST({text} ->> '$' AS {kind})"
        case List(element) | Array(element):
            inner = _read(f"{each}::VARCHAR", element, level + 1)
            result = f"list_transform({_parts(text, 'JSON[]')}, lambda {each}: {inner})"
            return result if isinstance(kind, List) else f"CAST({result} AS {kind})"
        case Struct(fields):
            packed = ", ".join(f"{quoted(name)} := {part(name, of)}" for name, of in fields)
            # In a list of one, so that the text is parsed once.
            result = f"CASE WHEN {each} IS NOT NULL THEN struct_pack({packed}) END"
            listed = f"[{_fields_of(text, [name for name, _ in fields])}]"
            return f"list_transform({listed}, lambda {each}: {result})[1]"
        case Map(of_key, of_value):
            key = f"to_json(struct_extract({each}, 'key'))::VARCHAR"
            entry = (
                f"struct_pack(key := {_read(key, of_key, level + 1)}, "
                f"value := {part('value', of_value)})"
            )
            entries = f"map_entries({_parts(text, 'MAP(VARCHAR, JSON)')})"
            result = f"map_from_entries(list_transform({entries}, lambda {each}: {entry}))"
            return f"CASE WHEN {text} <> 'null' THEN {result} END"
    return None


def _parts(text: str, kind: str) -> str:
    """SQL that divides JSON into parts in JSON, with every digit of their numbers."""
    # DuckDB reads nested numbers as doubles, unless the type has a decimal.
    return f"(CAST(({_wrapped(text)})::JSON AS STRUCT(v {kind}, d DECIMAL(38,0)))).v"


def _wrapped(text: str) -> str:
    return f"'{{\"v\":' || {text} || ',\"d\":0}}'"


def _fields_of(text: str, names: Sequence[str]) -> str:
    """SQL that extracts these fields from an object, as `_parts` does.

    A missing field is null, and other fields are ignored, as in a whole row.
    """
    # A cast would fail on both; this accepts anything, and makes nulls of it.
    other = f"{text} <> 'null' AND NOT starts_with({text}, '{{')"
    an_object = f"CASE WHEN {other} THEN '!' ELSE {text} END"
    form = msgspec.json.encode({"v": dict.fromkeys(names, JSON), "d": "DECIMAL(38,0)"}).decode()
    return f"from_json(({_wrapped(an_object)})::JSON, {literal(form)}).v"


def fit(texts: Sequence[bytes], kind: SqlType) -> list[bool]:
    """Which texts of canonical JSON fit a type; null does."""
    import pyarrow as pa

    from ikebana.processor.linear.database import MemoryLimitError, rows_over, source_of

    if not texts:
        return []
    column = [None if text == b"null" else text.decode() for text in texts]
    table = pa.table({"t": pa.array(column, pa.string())})
    try:
        rows = rows_over(
            f"SELECT TRY(struct_pack(v := {_read('t', kind, 0)})) IS NOT NULL "
            f"FROM {source_of(table.schema)}",
            table,
        )
    except (duckdb.Error, MemoryLimitError):
        # An error that TRY does not catch.
        if len(texts) == 1:
            return [False]
        half = len(texts) // 2
        return [*fit(texts[:half], kind), *fit(texts[half:], kind)]
    return [fits for (fits,) in rows]


# JSON texts of a column; None is null or absent.
JsonColumn = Sequence[bytes | None]

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


def column_of(column: JsonColumn, kind: pa.DataType) -> pa.Array | None:
    """A column of a type; None if a text lacks the usual form of that type."""
    return _MAKERS.get(kind, _numbers)(column, kind)


def _binary(column: JsonColumn, kind: pa.DataType) -> pa.Array:
    return pa.array(column, kind)


def _texts(column: JsonColumn, kind: pa.DataType = TEXT) -> pa.Array:
    # A view suffices: JSON that has been decoded once is UTF-8.
    return pa.array(column, pa.binary()).view(kind)


def _json(column: JsonColumn, kind: pa.DataType) -> pa.Array:
    # DuckDB does not parse texts again that are marked as JSON.
    return pa.ExtensionArray.from_storage(kind, _texts(column))


def _booleans(column: JsonColumn, kind: pa.DataType) -> pa.Array | None:
    texts = _texts(column)
    is_true = pc.equal(texts, "true")
    if pc.all(pc.or_(is_true, pc.equal(texts, "false"))).as_py() is False:
        return None
    return is_true


def _numbers(column: JsonColumn, kind: pa.DataType) -> pa.Array | None:
    texts = _texts(column)
    if pa.types.is_decimal(kind) and not _fits_decimals(texts, kind.scale):
        return None
    try:
        numbers = pc.cast(texts, kind)
    except pa.ArrowInvalid:
        return None
    # A number beyond the greatest double is infinity here, and an error where SQL casts it.
    if pa.types.is_floating(kind) and pc.all(pc.is_finite(numbers)).as_py() is False:
        return None
    return numbers


def _fits_decimals(texts: pa.Array, scale: int) -> bool:
    """Whether no text has an exponent, or more digits than Arrow's cast can count."""
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    exponents = pc.any(pc.match_substring(texts, "e", ignore_case=True)).as_py()
    return longest + scale <= _MOST_DIGITS and not exponents


def _strings(column: JsonColumn, kind: pa.DataType) -> pa.Array | None:
    joined = b"[" + b",".join([b"null" if text is None else text for text in column]) + b"]"
    # SQL treats such a character differently.
    if b"\\u0000" in joined:
        return None
    try:
        return pa.array(_decoded(joined), kind)
    except (msgspec.DecodeError, pa.ArrowInvalid, UnicodeEncodeError):
        return None


_decoded = msgspec.json.Decoder(list[str | None]).decode
_MAKERS: dict[pa.DataType, Callable[[JsonColumn, pa.DataType], pa.Array | None]] = {
    pa.binary(): _binary,
    TEXT: _texts,
    _JSON: _json,
    pa.bool_(): _booleans,
    pa.large_string(): _strings,
}
