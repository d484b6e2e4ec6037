"""DuckDB's types as values: one parser and one printer of their texts.

`parsed` reads a type as SQL may write it: in any case, by any of its names, nested, with
modifiers.  The text of a value is the type's full name as DuckDB itself writes it, so equal
types have equal texts, and a printed text can replace the type where a text is needed, such as in
SQL, in messages and as a key.  Code that needs the parts of a type parses its text.

>>> parsed("struct(a int, \\"B c\\" numeric(10,2)[])")
Struct(fields=(('a', Scalar(name='INTEGER')), ('B c', List(of=Decimal(width=10, scale=2)))))
>>> str(parsed("struct(a int, \\"B c\\" numeric(10,2)[3])[]"))
'STRUCT(a INTEGER, "B c" DECIMAL(10,2)[3])[]'
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn, TypeVar

_WORDS = """
abort absolute access action add admin after aggregate all also alter always analyse analyze and
anti any approx array as asc asof assertion assignment asymmetric at attach attribute
authorization backward before begin between bigint binary bit boolean both by cache call called
cascade cascaded case cast catalog centuries century chain char character characteristics check
checkpoint class close cluster coalesce collate collation column columns comment comments commit
committed compression concurrently configuration conflict connect connection constraint
constraints content continue conversion copy cost create cross csv cube current cursor cycle
data database day days deallocate dec decade decades decimal declare default defaults deferrable
deferred definer delete delimiter delimiters depends desc describe destroy detach dictionary
disable discard disconnect distance distinct do document domain double drop each else enable
encoding encrypted end enum error escape event exact except exclude excluding exclusive execute
exists explain export export_state extension extensions external extract false family fetch
filter first float following for force foreign forward freeze from full function functions
generated glob global grant granted group grouping grouping_id groups handler having header hold
hour hours identity if ignore ilike immediate immutable implicit import in include including
increment index indexes inherit inherits initially inline inner inout input insensitive insert
install instead int integer intersect interval into invoker is isnull isolation join json key
label lambda language large last lateral leading leakproof left level like limit listen load
local location lock locked logged macro map mapping match matched materialized maxvalue merge
method microsecond microseconds millennia millennium millisecond milliseconds minute minutes
minvalue mode month months move name names national natural nchar nearest new next no none not
nothing notify notnull nowait null nullif nulls numeric object of off offset oids old on only
operator option options or order ordinality others out outer over overlaps overlay overriding
owned owner parallel parser partial partition partitioned passing password percent persistent
pivot pivot_longer pivot_wider placing plans policy position positional pragma preceding
precision prepare prepared preserve primary prior privileges procedural procedure program
publication qualify quarter quarters quote range read real reassign recheck recursive ref
references referencing refresh register reindex relative release rename repeatable replace
replica reset resource resources respect restart restrict returning returns revoke right role
rollback rollup row rows rule sample savepoint schema schemas scope scroll search second seconds
secret secure security select semi sequence sequences serializable server session set setof sets
share show similar similarity simple skip smallint snapshot some sorted source sql stable
standalone start statement statistics stdin stdout storage stored strict strip struct
subscription substring summarize symmetric sysid system table tables tablesample tablespace
target temp template temporary text then ties time timestamp to trailing transaction transform
treat trigger trim true truncate trusted try_cast tuple type types unbounded uncommitted
unencrypted union unique unknown unlisten unlogged unpack unpivot until update use user using
vacuum valid validate validator value values varchar variable variadic varying verbose version
view views virtual volatile week weeks when where whitespace window with within without work
wrapper write xml xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse
xmlpi xmlroot xmlserialize xmltable year years yes zone
"""
KEYWORDS = frozenset(_WORDS.split())


_Item = TypeVar("_Item")


class TypeTextError(ValueError):
    """A text is not a type of SQL; `reason` is empty if it may be a misspelt name of one."""

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(f'"{text}" is not a SQL type{reason and f": {reason}"}')
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type without parts and parameters: its name says all."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Decimal:
    """Numbers of at most `width` digits, `scale` of them behind the point."""

    width: int
    scale: int

    def __str__(self) -> str:
        return f"DECIMAL({self.width},{self.scale})"


@dataclass(frozen=True, slots=True)
class Enum:
    """Texts, each one of these."""

    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"ENUM({', '.join(map(literal, self.values))})"


@dataclass(frozen=True, slots=True)
class List:
    """Lists of any length."""

    of: "SqlType"

    def __str__(self) -> str:
        return f"{self.of}[]"


@dataclass(frozen=True, slots=True)
class Array:
    """Lists of one length."""

    of: "SqlType"
    size: int

    def __str__(self) -> str:
        return f"{self.of}[{self.size}]"


@dataclass(frozen=True, slots=True)
class Map:
    """Maps from keys to values."""

    key: "SqlType"
    value: "SqlType"

    def __str__(self) -> str:
        return f"MAP({self.key}, {self.value})"


@dataclass(frozen=True, slots=True)
class Struct:
    """Rows with named fields."""

    fields: tuple[tuple[str, "SqlType"], ...]

    def __str__(self) -> str:
        return f"STRUCT({_listed(self.fields)})" if self.fields else "STRUCT"


@dataclass(frozen=True, slots=True)
class Tuple:
    """Rows with fields that have no names."""

    parts: tuple["SqlType", ...]

    def __str__(self) -> str:
        return f"TUPLE({', '.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class Union:
    """Values of any of these types."""

    members: tuple[tuple[str, "SqlType"], ...]

    def __str__(self) -> str:
        return f"UNION({_listed(self.members)})"


SqlType = Scalar | Decimal | Enum | List | Array | Map | Struct | Tuple | Union

NULL = Scalar('"NULL"')
"""The type of a null without any other type."""
JSON = Scalar("JSON")
VARCHAR = Scalar("VARCHAR")
TAKE_ALL = (str(JSON), str(VARCHAR))
"""The types that take every JSON value."""


def parts(kind: SqlType) -> tuple[SqlType, ...]:
    """The direct parts of a type."""
    match kind:
        case List(of) | Array(of):
            return (of,)
        case Map(key, value):
            return (key, value)
        case Struct(fields) | Union(fields):
            return tuple(of for _, of in fields)
        case Tuple(of_fields):
            return of_fields
    return ()


def within(kind: SqlType) -> Iterator[SqlType]:
    """A type, and all types in it at any depth."""
    yield kind
    for part in parts(kind):
        yield from within(part)


def depth(kind: SqlType) -> int:
    """How many types are nested around the innermost part of a type.

    >>> depth(parsed("STRUCT(a INTEGER[])")), depth(parsed("DECIMAL(9,2)"))
    (2, 0)
    """
    return max((1 + depth(part) for part in parts(kind)), default=0)


def quoted(name: str) -> str:
    """The name of a field as DuckDB writes it: in quotes if SQL would misread it."""
    if _PLAIN(name) and name.lower() not in KEYWORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


_PLAIN = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*").fullmatch


def literal(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def _listed(fields: tuple[tuple[str, SqlType], ...]) -> str:
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in fields)


@lru_cache(maxsize=4096)
def parsed(text: str) -> SqlType:
    """The type that a text of SQL names.  Raises: TypeTextError."""
    reader = _Reader(text)
    try:
        kind = reader.type()
    except RecursionError:
        reader.refuse()
    if reader.now:
        reader.refuse()
    return kind


def type_of(name: str) -> SqlType:
    """The type with this full name in DuckDB, or in the scope of an expression.

    A scope has a name that is no SQL: the type that another mistake leaves unknown.
    """
    try:
        return parsed(name)
    except TypeTextError:
        return Scalar(name)


# The other names of a type, by its full name, as `duckdb_types()` lists them.
_ALIASES = {
    "BOOLEAN": "BOOL LOGICAL",
    "TINYINT": "INT1",
    "SMALLINT": "INT2 INT16 SHORT",
    "INTEGER": "INT INT4 INT32 INTEGRAL SIGNED",
    "BIGINT": "INT8 INT64 LONG OID",
    "HUGEINT": "INT128",
    "UTINYINT": "UINT8",
    "USMALLINT": "UINT16",
    "UINTEGER": "UINT32",
    "UBIGINT": "UINT64",
    "UHUGEINT": "UINT128",
    "BIGNUM": "VARINT",
    "FLOAT": "FLOAT4 REAL",
    "DOUBLE": "FLOAT8",
    "VARCHAR": "CHAR BPCHAR TEXT STRING NVARCHAR CHARACTER NCHAR",
    "BLOB": "BYTEA BINARY VARBINARY",
    "BIT": "BITSTRING",
    "UUID": "GUID",
    "DATE": "",
    "TIME": "",
    "TIME_NS": "",
    "TIME WITH TIME ZONE": "TIMETZ",
    "TIMESTAMP": "DATETIME TIMESTAMP_US",
    "TIMESTAMP_S": "",
    "TIMESTAMP_MS": "",
    "TIMESTAMP_NS": "",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ",
    "TIMESTAMPTZ_NS": "",
    "INTERVAL": "",
    "JSON": "",
    "GEOMETRY": "",
    "VARIANT": "",
    "TYPE": "",
    '"NULL"': "NULL",
    "DECIMAL": "DEC NUMERIC",
}
_NAMES = {name: full for full, others in _ALIASES.items() for name in (full, *others.split())}
NAMES = frozenset({*_NAMES, "STRUCT", "MAP", "UNION", "ENUM"} - {"NULL", '"NULL"'})
"""The names that a type may begin with."""
_UNITS = frozenset(
    f"{unit}{plural}"
    for unit in (
        *("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"),
        *("WEEK", "QUARTER", "DECADE"),
    )
    for plural in ("", "S")
) | {"CENTURY", "CENTURIES", "MILLENNIUM", "MILLENNIA"}
_MOST_DIGITS = 38
_MOST_ELEMENTS = 100_000
_TOKEN = re.compile(
    r"""(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*
    (?:(?P<word>[^\W\d][\w$]*)|"(?P<name>(?:[^"]|"")+)"|'(?P<text>(?:[^']|'')*)'
    |(?P<number>\d+)|(?P<sign>[][(),])|(?P<end>$))""",
    re.VERBOSE | re.DOTALL,
).match


_DIGITS_OF_DECIMALS = (
    f"DECIMAL(p,s) has p digits, {_MOST_DIGITS} at most, of which s follow the point; "
    "read longer numbers as VARCHAR"
)


class _Reader:
    """Reads the text of a type token by token; `now` is the current one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._kind, self.now = "", ""
        self._next()

    def refuse(self, reason: str = "") -> NoReturn:
        """Refuse the text.  Raises: TypeTextError."""
        raise TypeTextError(self._text, reason) from None

    def type(self) -> SqlType:
        """Read a type, with the brackets behind it."""
        kind = self._base()
        while (is_word := self._word("ARRAY") is not None) or self._is_at("["):
            if is_word and not self._is_at("["):
                kind = List(kind)
                continue
            self._sign("[")
            size = self._number(1, _MOST_ELEMENTS) if self._kind == "number" else None
            self._sign("]")
            kind = List(kind) if size is None else Array(kind, size)
        return kind

    def _base(self) -> SqlType:
        if self._kind not in ("word", "name"):
            self.refuse()
        is_word, name = self._kind == "word", self.now.upper()
        self._next()
        if is_word and name == "NATIONAL":
            name = self._word("CHARACTER", "CHAR") or self.refuse()
        if name in ("STRUCT", "ROW", "MAP", "UNION", "ENUM", "TUPLE"):
            return self._nested_type(name)
        full = _NAMES.get(name)
        if full is None or (is_word and name == "NULL"):
            self.refuse()
        if is_word:
            if name in ("CHARACTER", "CHAR", "NCHAR", "BIT"):
                self._word("VARYING")
            elif name == "DOUBLE":
                self._word("PRECISION")
            elif name == "INTERVAL" and self._word(*_UNITS) and self._word("TO"):
                self._word(*_UNITS) or self.refuse()
        return self._modified(name, full)

    def _nested_type(self, name: str) -> SqlType:
        if not self._is_at("(") and name in ("STRUCT", "ROW"):
            return Struct(())
        self._sign("(")
        match name:
            case "ENUM":
                values = self._list(self._literal)
                return Enum(values) if len({*values}) == len(values) else self.refuse()
            case "TUPLE":
                return Tuple(self._list(self.type))
            case "MAP":
                key = self.type()
                self._sign(",")
                value = self.type()
                self._sign(")")
                return Map(key, value)
        fields = self._list(self._field)
        if len({field.lower() for field, _ in fields}) < len(fields):
            self.refuse()
        return Union(fields) if name == "UNION" else Struct(fields)

    def _field(self) -> tuple[str, SqlType]:
        if self._kind not in ("word", "name"):
            self.refuse()
        name = self.now
        self._next()
        return name, self.type()

    def _literal(self) -> str:
        if self._kind != "text":
            self.refuse()
        text = self.now
        self._next()
        return text

    def _modified(self, name: str, full: str) -> SqlType:
        """A type of this name with the numbers in brackets that follow."""
        numbers: tuple[int, ...] = ()
        if self._is_at("("):
            self._next()
            if full == "GEOMETRY":
                systems = self._list(self._literal)
                return Scalar(f"GEOMETRY({', '.join(map(literal, systems))})")
            numbers = self._list(lambda: self._number(0, 2**31))
        match full, numbers:
            case "DECIMAL", ():
                return Decimal(18, 3)
            case "DECIMAL", (width, *rest) if 0 < width <= _MOST_DIGITS and len(rest) < 2:
                scale = rest[0] if rest else 0
                if scale <= width:
                    return Decimal(width, scale)
                self.refuse(_DIGITS_OF_DECIMALS)
            case "DECIMAL", _:
                self.refuse(_DIGITS_OF_DECIMALS)
            case (("TIME" | "TIMESTAMP"), _) if name in ("TIME", "TIMESTAMP", "DATETIME"):
                return self._of_time(full, numbers)
            case _, ():
                return Scalar(full)
            case "FLOAT", (digits,) if name == "FLOAT" and 0 < digits <= 53:
                return Scalar("FLOAT" if digits < 25 else "DOUBLE")
            case (("VARCHAR" | "BIT"), (_,)):
                return Scalar(full)
        self.refuse(f"{full} takes no such number in parentheses")

    def _of_time(self, full: str, numbers: tuple[int, ...]) -> SqlType:
        zone = self._word("WITH", "WITHOUT")
        if zone and not (self._word("TIME") and self._word("ZONE")):
            self.refuse()
        if zone == "WITH" and not numbers:
            return Scalar(f"{full} WITH TIME ZONE")
        match full, numbers:
            case _, ():
                return Scalar(full)
            case "TIMESTAMP", (digits,) if digits <= 9 and zone != "WITH":
                return Scalar(_BY_DIGITS[(digits + 2) // 3])
        self.refuse()

    def _list(self, item: Callable[[], _Item]) -> tuple[_Item, ...]:
        """Read items after an opening bracket, up to the closing one."""
        items = [item()]
        while self._is_at(","):
            self._next()
            items.append(item())
        self._sign(")")
        return tuple(items)

    def _number(self, least: int, most: int) -> int:
        if self._kind != "number" or len(self.now) > 10 or not least <= int(self.now) <= most:
            self.refuse()
        number = int(self.now)
        self._next()
        return number

    def _word(self, *words: str) -> str | None:
        """Read one of these words, if it is the current token."""
        if self._kind != "word" or self.now.upper() not in words:
            return None
        word = self.now.upper()
        self._next()
        return word

    def _sign(self, sign: str) -> None:
        if not self._is_at(sign):
            self.refuse()
        self._next()

    def _is_at(self, sign: str) -> bool:
        return self._kind == "sign" and self.now == sign

    def _next(self) -> None:
        match = _TOKEN(self._text, self._at)
        if match is None:
            self.refuse()
        self._kind = match.lastgroup or ""
        self.now, self._at = match[self._kind], match.end()
        if self._kind == "name":
            self.now = self.now.replace('""', '"')
        elif self._kind == "text":
            self.now = self.now.replace("''", "'")


_BY_DIGITS = ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP", "TIMESTAMP_NS")
