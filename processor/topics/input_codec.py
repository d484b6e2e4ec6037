"""The codec of each input with its options, and the check of rows against declared column types.

Rows are checked in all columns, also unread ones.  The SQL that reads a type decides which values
it takes (`linear.typed_json`).  Most values have a usual form of their type in JSON, which a
decoder recognizes far faster (`Usual`): only the rows that it refuses go to SQL.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET

from ikebana.codecs.canonical import fit_a_struct
from ikebana.codecs.change import Change, Codec, DeclaredColumns, Headers, Ignored, Needs
from ikebana.codecs.formats import EMPTY_VALUES, IN_REGISTRY
from ikebana.codecs.sql_type import (
    TAKE_ALL,
    VARCHAR,
    Array,
    Decimal,
    List,
    Map,
    SqlType,
    Struct,
    parsed,
    parts,
)
from ikebana.codecs.sql_type import quoted as quoted_text
from ikebana.processor.linear.json_text import JSON, misfit_of, quoted
from ikebana.processor.linear.scope import KEY, VALUE, Scope, frozen
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.typed_json import fit
from ikebana.processor.planning.input_rows import encodings_of
from ikebana.processor.planning.plan import Input, Reading

if TYPE_CHECKING:
    from ikebana.codecs.avro_schema import Schemas


def codec_of(source: Input, reading: Reading, schemas: "Schemas | None") -> Codec:
    """Make the codec of an input; `schemas` is the registry, for the formats that need one."""
    narrow = decoding_needs(source, reading)
    columns = checked_of(source, reading)
    wide = msgspec.structs.replace(narrow, columns=columns)
    traits = source.traits
    assert traits.codec is not None, f"{source.value_format} has updates, not changes"
    assert schemas is not None or not traits.in_registry, (
        f"input {source.name} is read without a schema registry"
    )
    codec = traits.codec(wide, source.key_format, schemas)
    if not traits.quick or columns == narrow.columns or (usual := usual_of(source)) is None:
        return codec
    return Vouched(traits.codec(narrow, source.key_format, schemas), codec, usual)


def decoding_needs(source: Input, reading: Reading) -> Needs:
    """Derive from an input and its `reading` what the codec has to decode."""
    cdc = source.traits.kind != "rows"
    diffs = cdc and source.mode == "diffs"
    schema = {} if source.schema is None else {"reader_schema": source.schema}
    return Needs(
        columns=columns_of_rows(source, reading),
        key=source.key,
        before=diffs or (cdc and source.drift),
        tables=source.tables,
        encodings=encodings_of(source),
        options={**dict(source.options), **schema},
        declared=declared_by(source),
        diffs=diffs,
    )


def checked_of(source: Input, reading: Reading) -> tuple[str, ...] | None:
    """List the columns to decode: those that are read, and those whose type is checked.

    None stands for all columns.
    """
    if reading.columns is None:
        return None
    return tuple(sorted({*(columns_of_rows(source, reading) or ()), *checked_columns(source)}))


def columns_of_rows(source: Input, reading: Reading) -> tuple[str, ...] | None:
    """List the columns that are read, without metadata columns, which no message's value has."""
    if reading.columns is None or not source.metadata:
        return reading.columns
    return tuple(name for name in reading.columns if name not in dict(source.metadata))


class Usual:
    """Recognizes rows whose columns all have the usual forms of their types."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        names = {f"f{at}": name for at, name in enumerate(kinds)}
        row: Any = msgspec.defstruct(
            "Row",
            [(field, _usual(kinds[name]), msgspec.UNSET) for field, name in names.items()],
            rename=names,
        )
        self.row = row
        """The type that a row is decoded as."""
        self._decode = msgspec.json.Decoder(list[row]).decode
        self._decimals = [
            (attrgetter(field), numbers, _decimals(kind))
            for field, name in names.items()
            for numbers, kind in _numbers_in(parsed(kinds[name]))
        ]

    def takes(self, rows: Sequence[bytes]) -> bool:
        """Whether every row has the usual forms."""
        try:
            decoded = self._decode(b"[" + b",".join(rows) + b"]")
        except msgspec.DecodeError:
            return False
        return self.fit(decoded)

    def fit(self, decoded: Sequence[Any]) -> bool:
        """Whether the decimals, which the decoder leaves as text, have the usual form too."""
        # The numbers are joined as text, one a line, so that one pattern matches all of them.
        return all(
            fits(b"".join([b"%b\n" % n for n in numbers(map(column, decoded)) if n is not UNSET]))
            for column, numbers, fits in self._decimals
        )


def _numbers_in(
    kind: SqlType,
) -> Iterator[tuple[Callable[[Iterable[Any]], Iterable[Any]], Decimal]]:
    """Functions from decoded values of a type to the texts of the decimals in them.

    There is one function for each decimal type within it; a missing number may be UNSET.
    """
    match kind:
        case Decimal():
            yield _as_they_are, kind
        case List(of):
            for numbers, decimal in _numbers_in(of):
                yield partial(_of_lists, numbers), decimal
        case Map(_, of):
            for numbers, decimal in _numbers_in(of):
                yield partial(_of_maps, numbers), decimal
        case Struct(fields):
            for at, (_, of) in enumerate(fields):
                for numbers, decimal in _numbers_in(of):
                    yield partial(_of_structs, attrgetter(f"f{at}"), numbers), decimal


def _as_they_are(values: Iterable[Any]) -> Iterable[Any]:
    return values


def _of_lists(numbers: Callable[..., Iterable[Any]], values: Iterable[Any]) -> Iterable[Any]:
    return numbers(item for value in values if value for item in value)


def _of_maps(numbers: Callable[..., Iterable[Any]], values: Iterable[Any]) -> Iterable[Any]:
    return numbers(item for value in values if value for item in value.values())


def _of_structs(
    field: Callable[[Any], Any], numbers: Callable[..., Iterable[Any]], values: Iterable[Any]
) -> Iterable[Any]:
    return numbers(field(value) for value in values if value is not None and value is not UNSET)


def _decimals(kind: Decimal) -> Callable[[bytes], object]:
    """Make a test whether a DECIMAL takes each line of numbers without rounding."""
    fraction = rb"(?:\.\d{1,%d})?" % kind.scale if kind.scale else b""
    whole = kind.width - kind.scale
    number = rb"-?%b%b" % (rb"\d{1,%d}" % whole if whole else b"0", fraction)
    return re.compile(rb"(?>(?:%b|null)\n)*+" % number).fullmatch


_WHOLE = {
    "TINYINT": (-(2**7), 2**7 - 1),
    "SMALLINT": (-(2**15), 2**15 - 1),
    "INTEGER": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
    "HUGEINT": (-(2**63), 2**63 - 1),
    "UTINYINT": (0, 2**8 - 1),
    "USMALLINT": (0, 2**16 - 1),
    "UINTEGER": (0, 2**32 - 1),
    "UBIGINT": (0, 2**63 - 1),
    "UHUGEINT": (0, 2**63 - 1),
}
_DAY = (
    r"(1[6-9]|20)\d\d-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|"
    r"(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))"
)
_CLOCK = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?"
_INSTANT = rf"^{_DAY}[T ]{_CLOCK}(Z|[+-](0\d|1[0-3]):[0-5]\d)?$"
_PATTERNS = {
    "DATE": rf"^{_DAY}$",
    "TIME": rf"^{_CLOCK}$",
    "TIMESTAMP": _INSTANT,
    "TIMESTAMP WITH TIME ZONE": _INSTANT,
    "UUID": r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
}


def _usual(kind: str) -> Any:
    """The msgspec type of the usual forms: null, and only values that the type takes."""
    if kind in _WHOLE:
        least, most = _WHOLE[kind]
        return Annotated[int, msgspec.Meta(ge=least, le=most)] | None
    if kind == "DOUBLE":
        return float | None
    if kind == "FLOAT":
        return Annotated[float, msgspec.Meta(ge=-1e38, le=1e38)] | None
    if kind == "BOOLEAN":
        return bool | None
    if kind in TAKE_ALL:
        return msgspec.Raw
    if kind in _PATTERNS:
        return Annotated[str, msgspec.Meta(pattern=_PATTERNS[kind])] | None
    match parsed(kind):
        case Decimal():
            # Its text is checked by a pattern.
            return msgspec.Raw
        case Struct(fields) if fit_a_struct([name for name, _ in fields]):
            names = {f"f{at}": name for at, (name, _) in enumerate(fields)}
            members = [
                (at, _usual(str(of)), msgspec.UNSET)
                for at, (_, of) in zip(names, fields, strict=True)
            ]
            return msgspec.defstruct("Fields", members, rename=names) | None
        case List(of):
            return list[_usual(str(of))] | None  # type: ignore[misc]
        case Map(key, of) if key == VARCHAR:
            return dict[str, _usual(str(of))] | None  # type: ignore[misc]
    # Of other types only null is usual.
    return None


def checked_columns(source: Input) -> tuple[str, ...]:
    """List the declared columns that must be decoded, since a value may not fit the type."""
    if source.traits.is_updates:
        return ()
    return tuple(dict.fromkeys((*_kinds(source), *encodings_of(source))))


class ColumnTypes:
    """Finds rows in which a declared column is not of its type."""

    def __init__(self, source: Input) -> None:
        self._kinds = _kinds(source)
        fit = fit_a_struct(tuple(self._kinds))
        self._usual = Usual(self._kinds) if fit else None

    @property
    def checks(self) -> bool:
        """Whether any column has a type that a value may not fit."""
        return bool(self._kinds)

    def wrong(self, rows: Sequence[bytes | None]) -> dict[int, str]:
        """Give the reasons why rows do not fit, by index; a row of None always fits."""
        if not self._kinds:
            return {}
        objects = [at for at, row in enumerate(rows) if row is not None and row[:1] == b"{"]
        unusual = self._unusual([rows[at] or b"" for at in objects])
        if not unusual:
            return {}
        asked = [objects[at] for at in unusual]
        _, failed = _query(tuple(self._kinds.items())).run(
            [b"null"] * len(asked), [rows[at] or b"" for at in asked]
        )
        wrong = {asked[row]: reason for row, _, reason in failed}
        for name, kind in self._kinds.items():
            if parts(type_ := parsed(kind)):
                _name_parts(wrong, rows, name, type_)
        return wrong

    def _unusual(self, rows: list[bytes]) -> Sequence[int]:
        """Give the indexes of the rows that the decoder refuses: they may fit or not."""
        if self._usual is None:
            return range(len(rows))
        if self._usual.takes(rows):
            return ()
        return [at for at, row in enumerate(rows) if not self._usual.takes([row])]


def _name_parts(
    wrong: dict[int, str], rows: Sequence[bytes | None], name: str, type_: SqlType
) -> None:
    """Name the part that does not fit, in values of a nested type."""

    reason = misfit_of(name, type_)
    which = [at for at, why in wrong.items() if why == reason]
    texts = [bytes(_columns(rows[at] or b"")[name]) for at in which]
    for at, (path, inner) in zip(which, misfits(texts, type_) if which else (), strict=True):
        wrong[at] = misfit_of(name, inner, path.lstrip("."))


_columns = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def usual_of(source: Input) -> Usual | None:
    """Make the check of usual forms; None if no type is checked, or the format recodes values."""
    kinds = _kinds(source)
    return None if encodings_of(source) or not fit_a_struct(tuple(kinds)) else Usual(kinds)


def _kinds(source: Input) -> dict[str, str]:
    """The types of the columns that refuse some JSON values."""
    if not source.columns:
        return {}
    kinds = {column.name: str(parsed(column.type)) for column in source.columns}
    return {name: kind for name, kind in kinds.items() if kind not in TAKE_ALL}


@functools.lru_cache(maxsize=64)
def _query(kinds: tuple[tuple[str, str], ...]) -> Any:
    """Compile a query that reads each column by its type, and keeps every row."""
    from ikebana.processor.linear.query import compiled

    conditions = tuple(f"({quoted(name)} IS NULL) IS NOT NULL" for name, _ in kinds)
    scope = Scope({**dict(kinds), KEY: JSON, VALUE: JSON})
    return compiled((Sql(where=conditions),), frozen(scope))


def misfits(texts: Sequence[bytes], type_: SqlType) -> list[tuple[str, SqlType]]:
    """Say where values in canonical JSON do not fit a type; none of them fits.

    The result has a path and the type there for each value.  The path is empty if the value
    itself does not fit.  Keys of maps are data, so the path does not show them.
    """
    result = [("", type_)] * len(texts)
    parts: dict[SqlType, list[tuple[int, str, bytes]]] = {}
    for row, text in enumerate(texts):
        for path, part, of in _parts_of(text, type_):
            parts.setdefault(of, []).append((row, path, part))
    for of, places in parts.items():
        unfit = _unfit([part for _, _, part in places], of)
        wrong = [place for place in places if place[2] in unfit]
        # The first one of each row.
        first = {row: (path, part) for row, path, part in reversed(wrong)}
        inner = misfits([part for _, part in first.values()], of) if first else []
        for (row, (path, _)), (rest, kind) in zip(first.items(), inner, strict=True):
            if not result[row][0]:
                result[row] = path + rest, kind
    return result


def _unfit(texts: Iterable[bytes], type_: SqlType) -> set[bytes]:
    """The texts that do not fit a type; SQL is asked only about unusual ones."""
    kind = str(type_)
    if kind in TAKE_ALL:
        return set()
    usual = _usual_of(kind)
    asked = [text for text in dict.fromkeys(texts) if not usual.takes([b'{"v":%b}' % text])]
    return {text for text, fits in zip(asked, fit(asked, type_), strict=True) if not fits}


@lru_cache(maxsize=256)
def _usual_of(kind: str) -> Usual:
    return Usual({"v": kind})


def _parts_of(text: bytes, type_: SqlType) -> Iterator[tuple[str, bytes, SqlType]]:
    """The parts of a value, as far as it has the form of its type: paths, texts, and types."""
    try:
        match type_:
            case Struct(fields):
                members = _object(text)
                for name, of in fields:
                    if name in members:
                        yield f".{quoted_text(name)}", bytes(members[name]), of
            case List(element) | Array(element):
                for number, each in enumerate(_list(text), 1):
                    yield f"[{number}]", bytes(each), element
            case Map(_, value):
                for each in _object(text).values():
                    yield "[…]", bytes(each), value
    except msgspec.MsgspecError:
        return


_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def declared_by(source: Input) -> DeclaredColumns:
    """List the columns that an input declares, with their types as DuckDB names them."""
    if not source.columns:
        return DeclaredColumns()
    return DeclaredColumns({column.name: str(parsed(column.type)) for column in source.columns})


def takes_empty_for_null(source: Input) -> bool:
    """Whether a value of zero bytes counts as a null value."""
    if source.traits.kind != "changes":
        return False
    return dict(source.options).get("empty_value", EMPTY_VALUES[0]) == EMPTY_VALUES[0]


def needs_registry(source: Input) -> bool:
    """Whether an input's messages can be read only with a schema registry."""
    return source.traits.in_registry or source.key_format in IN_REGISTRY


def needs_headers(source: Input) -> bool:
    """Whether decoding needs the headers of messages."""
    of_metadata = any(kind == "headers" for _, kind in source.metadata)
    return needs_registry(source) or source.traits.kind == "updates" or of_metadata


def needs_timestamps(source: Input) -> bool:
    """Whether decoding needs the timestamps of messages."""
    of_metadata = any(kind == "timestamp" for _, kind in source.metadata)
    return source.event_time is not None or of_metadata


# Check the types of columns that nobody reads, mostly without decoding them.
#
# A full check needs a column's value, and canonical values of all declared columns would cost as
# much as reading few columns saves.  So each message first goes through a decoder that accepts
# only the usual forms of each type and builds no values.  If it accepts a message, only the
# columns that are read are decoded; otherwise all declared columns are decoded, and checked.


class Wide(Change):
    """A change with all checked columns, which has yet to be narrowed to those that are read."""

    __slots__ = ()


class Vouched:
    """A codec of Debezium's JSON that decodes unread columns only if it must check them.

    `narrow` decodes the columns that are read, `wide` also those that are checked.
    """

    def __init__(self, narrow: Codec, wide: Codec, usual: Usual) -> None:
        self._narrow = narrow
        self._wide = wide
        self._usual = usual
        image = usual.row | None
        # Events inside a payload or a text have no "op" at the top, so they go the wide way.
        event: Any = msgspec.defstruct(
            "Event", [("op", str), ("before", image, None), ("after", image, None)]
        )
        self._decode = msgspec.json.Decoder(event).decode

    def key(self, key: bytes | None) -> bytes | None:
        """Decode the Kafka key alone into the canonical key."""
        return self._narrow.key(key)

    def changes(
        self, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Sequence[Change] | Ignored:
        """Decode a message into changes with the columns that are read, or more (`Wide`)."""
        if value is None or self._vouches(value):
            return self._narrow.changes(key, value, headers)
        changes = self._wide.changes(key, value, headers)
        return changes if isinstance(changes, Ignored) else [Wide(*change) for change in changes]

    def _vouches(self, value: bytes) -> bool:
        """Whether all declared columns of both images have the usual forms."""
        try:
            event = self._decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return self._usual.fit([row for row in (event.before, event.after) if row is not None])
