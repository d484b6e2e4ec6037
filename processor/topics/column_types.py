"""Check rows against the types that an input declares, in all columns, also unread ones.

The SQL that reads a type decides which values it takes (`linear.typed_json`).  Most values have a
usual form of their type, which a fast decoder recognizes (`usual_forms`): only the rows that it
refuses go to SQL.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ikebana.codecs.fields import fit_a_struct
from ikebana.codecs.sql_type import TAKE_ALL, Array, List, Map, SqlType, Struct, parsed, parts
from ikebana.codecs.sql_type import quoted as quoted_text
from ikebana.processor.linear.json_text import JSON, misfit_of, quoted
from ikebana.processor.linear.scope import KEY, VALUE, Scope, frozen
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.typed_json import fit
from ikebana.processor.planning.input_rows import encodings_of
from ikebana.processor.planning.plan import Input
from ikebana.processor.topics.usual_forms import Usual


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
