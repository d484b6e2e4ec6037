"""Whether rows are of the types that an input declares, in all columns, whoever reads them.

What a type takes is decided by the SQL that reads it (`linear.typed_json`).  Values of the
usual forms need not be asked about: a decoder that knows them goes over the rows once, and
only rows that it stumbles on are given to SQL.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from msgspec import UNSET

from ikebana.codecs.fields import fit_a_struct
from ikebana.processor.linear.json_text import JSON, quoted
from ikebana.processor.linear.scope import KEY, VALUE, Scope, frozen
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.plan import Input

# They take all that JSON has.
_TAKES_ALL = (JSON, "VARCHAR")


def checked_columns(source: Input) -> tuple[str, ...]:
    """The declared columns that have to be decoded, whoever reads them, since they may not fit."""
    if source.traits.is_updates:
        return ()
    kinds = _kinds(source)
    encoded = () if source.traits.kind == "rows" else source.columns
    names = (*kinds, *(column.name for column in encoded if column.encoding is not None))
    return tuple(dict.fromkeys(names))


class ColumnTypes:
    """Tells rows in which a declared column is not of its type."""

    def __init__(self, source: Input) -> None:
        self._kinds = _kinds(source)
        fit = fit_a_struct(tuple(self._kinds))
        self._usual = Usual(self._kinds) if fit else None

    @property
    def checks(self) -> bool:
        """Whether any column has a type that a value may not fit."""
        return bool(self._kinds)

    def wrong(self, rows: Sequence[bytes | None]) -> dict[int, str]:
        """Why rows do not fit, by their index; None is no row."""
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
        return {asked[row]: reason for row, _, reason in failed}

    def _unusual(self, rows: list[bytes]) -> Sequence[int]:
        """The rows of which the decoder cannot tell that they fit."""
        if self._usual is None:
            return range(len(rows))
        if self._usual.takes(rows):
            return ()
        return [at for at, row in enumerate(rows) if not self._usual.takes([row])]


class Usual:
    """Knows rows whose columns all have the usual forms of their types."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        names = {f"f{at}": name for at, name in enumerate(kinds)}
        row: Any = msgspec.defstruct(
            "Row",
            [(field, _usual(kinds[name]), msgspec.UNSET) for field, name in names.items()],
            rename=names,
        )
        self.row = row
        """The type of a row as it is decoded."""
        self._decode = msgspec.json.Decoder(list[row]).decode
        self._decimals = [
            (attrgetter(field), _decimals(kinds[name]))
            for field, name in names.items()
            if kinds[name].startswith("DECIMAL(")
        ]

    def takes(self, rows: Sequence[bytes]) -> bool:
        """Whether all of the rows are usual."""
        try:
            decoded = self._decode(b"[" + b",".join(rows) + b"]")
        except msgspec.DecodeError:
            return False
        return self.fit(decoded)

    def fit(self, decoded: Sequence[Any]) -> bool:
        """Whether the numbers that the decoder leaves as they are written are usual as well."""
        # A number as it is written, each on a line: one pattern goes over all of them.
        return all(
            fits(b"".join([b"%b\n" % n for row in decoded if (n := number(row)) is not UNSET]))
            for number, fits in self._decimals
        )


def usual_of(source: Input) -> Usual | None:
    """The usual forms of an input's columns, where their values stand in messages as they are."""
    kinds = _kinds(source)
    encoded = any(column.encoding is not None for column in source.columns)
    return None if encoded or not fit_a_struct(tuple(kinds)) else Usual(kinds)


def _decimals(kind: str) -> Callable[[bytes], object]:
    """Tells lines of numbers that a DECIMAL takes as they are."""
    width, _, scale = kind.removeprefix("DECIMAL(").rstrip(")").partition(",")
    fraction = rb"(?:\.\d{1,%d})?" % int(scale) if int(scale) else b""
    whole = int(width) - int(scale)
    number = rb"-?%b%b" % (rb"\d{1,%d}" % whole if whole else b"0", fraction)
    return re.compile(rb"(?>(?:%b|null)\n)*+" % number).fullmatch


def _kinds(source: Input) -> dict[str, str]:
    """The types of the columns that do not take everything."""
    if not source.columns:
        return {}
    # DuckDB takes a while to import, and memory: only where there is SQL.
    from ikebana.processor.linear.expressions import type_named

    kinds = {column.name: type_named(column.type) for column in source.columns}
    return {name: kind for name, kind in kinds.items() if kind not in _TAKES_ALL}


@functools.lru_cache(maxsize=64)
def _query(kinds: tuple[tuple[str, str], ...]) -> Any:
    """What reads each column by its type, and keeps every row."""
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
    """What msgspec is to take without asking; at least null, and no more than the type takes."""
    if kind in _WHOLE:
        least, most = _WHOLE[kind]
        return Annotated[int, msgspec.Meta(ge=least, le=most)] | None
    if kind == "DOUBLE":
        return float | None
    if kind == "FLOAT":
        return Annotated[float, msgspec.Meta(ge=-1e38, le=1e38)] | None
    if kind == "BOOLEAN":
        return bool | None
    if kind in _PATTERNS:
        return Annotated[str, msgspec.Meta(pattern=_PATTERNS[kind])] | None
    # Looked at by itself, or not at all: then only null is usual.
    return msgspec.Raw if kind.startswith("DECIMAL(") else None
