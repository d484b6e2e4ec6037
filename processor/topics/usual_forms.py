"""The usual forms of types in JSON, which a decoder recognizes far faster than SQL does.

A value that it refuses may fit a type nevertheless: `linear.typed_json` decides.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from msgspec import UNSET

from ikebana.codecs.fields import fit_a_struct
from ikebana.codecs.sql_type import TAKE_ALL, VARCHAR, Decimal, List, Map, SqlType, Struct, parsed


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
