"""Check rows against the types that an input declares, in all columns, also unread ones.

The SQL that reads a type decides which values it takes (`linear.typed_json`).  Most values
have a usual form of their type, and for these SQL is not needed: a decoder that knows these
forms goes over the rows first, and only the rows that it refuses are given to SQL.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from msgspec import UNSET

from ikebana.codecs.fields import fit_a_struct
from ikebana.codecs.sql_type import VARCHAR, Decimal, List, Map, SqlType, Struct, parsed, parts
from ikebana.processor.linear.json_text import JSON, misfit_of, quoted
from ikebana.processor.linear.scope import KEY, VALUE, Scope, frozen
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.plan import Input

# These types take every JSON value.
_TAKES_ALL = (JSON, "VARCHAR")


def checked_columns(source: Input) -> tuple[str, ...]:
    """List the declared columns whose values may not fit their types, so must be decoded."""
    if source.traits.is_updates:
        return ()
    kinds = _kinds(source)
    encoded = () if source.traits.kind == "rows" else source.columns
    names = (*kinds, *(column.name for column in encoded if column.encoding is not None))
    return tuple(dict.fromkeys(names))


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
    """Say of values that do not fit a nested type which part of them does not."""
    from ikebana.processor.linear.typed_json import misfits

    reason = misfit_of(name, type_)
    which = [at for at, why in wrong.items() if why == reason]
    texts = [bytes(_columns(rows[at] or b"")[name]) for at in which]
    for at, (path, inner) in zip(which, misfits(texts, type_) if which else (), strict=True):
        wrong[at] = misfit_of(name, inner, path.lstrip("."))


_columns = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


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
        # The numbers stand as text, one a line, so that one pattern matches all of them.
        return all(
            fits(b"".join([b"%b\n" % n for n in numbers(map(column, decoded)) if n is not UNSET]))
            for column, numbers, fits in self._decimals
        )


def usual_of(source: Input) -> Usual | None:
    """Make the check of usual forms; None if no type is checked, or the format recodes values."""
    kinds = _kinds(source)
    encoded = any(column.encoding is not None for column in source.columns)
    return None if encoded or not fit_a_struct(tuple(kinds)) else Usual(kinds)


def _numbers_in(
    kind: SqlType,
) -> Iterator[tuple[Callable[[Iterable[Any]], Iterable[Any]], Decimal]]:
    """Functions from decoded values of a type to the texts of numbers in them that are decimals.

    There is one for each decimal type that it is made of; what is not there may be UNSET.
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


def _kinds(source: Input) -> dict[str, str]:
    """The types of the columns that refuse some JSON values."""
    if not source.columns:
        return {}
    kinds = {column.name: str(parsed(column.type)) for column in source.columns}
    return {name: kind for name, kind in kinds.items() if kind not in _TAKES_ALL}


@functools.lru_cache(maxsize=64)
def _query(kinds: tuple[tuple[str, str], ...]) -> Any:
    """Compile a query that reads each column by its type, and keeps every row."""
    from ikebana.processor.linear.query import compiled

    conditions = tuple(f"({quoted(name)} IS NULL) IS NOT NULL" for name, _ in kinds)
    scope = Scope({**dict(kinds), KEY: JSON, VALUE: JSON})
    return compiled((Sql(where=conditions),), frozen(scope))


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
    if kind in _TAKES_ALL:
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
