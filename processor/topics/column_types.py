"""Check rows against the types that an input declares, in all columns, also unread ones.

The SQL that reads a type decides which values it takes (`linear.typed_json`).  Most values have a
usual form of their type, which a fast decoder recognizes (`usual_forms`): only the rows that it
refuses go to SQL.
"""

import functools
from collections.abc import Sequence
from typing import Any

import msgspec

from ikebana.codecs.fields import fit_a_struct
from ikebana.codecs.sql_type import TAKE_ALL, SqlType, parsed, parts
from ikebana.processor.linear.json_text import JSON, misfit_of, quoted
from ikebana.processor.linear.scope import KEY, VALUE, Scope, frozen
from ikebana.processor.linear.steps import Sql
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
    from ikebana.processor.topics.misfits import misfits

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
