"""SQL over rows that are being joined: what they carry, and the data that they have met.

A row carries the columns that later steps read, as a JSON object of flat columns; where it
comes straight from a relation it is that relation's datum instead.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from ikebana.processor.batch.datum import parts_of
from ikebana.processor.joins.qualified import Flat, alias_of
from ikebana.processor.linear.json_text import BLOB, JSON, quoted
from ikebana.processor.linear.keys import key_sql
from ikebana.processor.linear.query import Query, compiled, field_texts
from ikebana.processor.linear.scope import KEY, VALUE, FrozenScope
from ikebana.processor.linear.steps import Sql

_base64 = msgspec.json.encode


class Sources(NamedTuple):
    """Whose columns lie where: `payload` if rows are data of an input, `datum` of what they met.

    All other columns are carried.
    """

    payload: str | None
    datum: str | None


class Failed(NamedTuple):
    """A row of which nothing can be made, and why."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Made:
    """What rows have become, in columns of one length; `rows` says which they are."""

    rows: list[int]
    keys: list[bytes]
    values: list[bytes]
    failed: list[Failed]


class Maker:
    """Conditions over rows, and what is made of those that fulfil them."""

    def __init__(
        self,
        types: Mapping[str, str],
        sources: Sources,
        where: Iterable[Flat],
        select: Iterable[tuple[str, str]],
        key: str,
    ) -> None:
        self._types = types
        self._sources = sources
        step = Sql(where=tuple(each.sql for each in where), select=tuple(select), key=key)
        scope = FrozenScope((*types.items(), (KEY, JSON), (VALUE, JSON)), open=False, declare="")
        self._query: Query = compiled((step,), scope)

    def make(self, payloads: Sequence[bytes], data: Sequence[bytes | None]) -> Made:
        """What becomes of rows; `data` are what they have met, each None if that is nothing."""

        def columns(fields: tuple[str, ...]) -> list[Sequence[bytes | None]]:
            found: dict[str, Sequence[bytes | None]] = {}
            by_source: dict[str | None, list[str]] = {}
            for name in fields:
                alias = alias_of(name)
                known = alias if alias in self._sources else None
                by_source.setdefault(known, []).append(name)
            for of, names in by_source.items():
                if of is None:
                    found |= zip(names, field_texts(tuple(names), payloads), strict=True)
                else:
                    given = payloads if of == self._sources.payload else data
                    found |= self._parts(of, names, given)
            return [found[name] for name in fields]

        made, failed = self._query.outcome_of(len(payloads), columns)
        told = [Failed(each.row, each.reason) for each in failed]
        return Made(made.rows, made.keys or [], made.values or [], told)

    def _parts(
        self, alias: str, names: Sequence[str], data: Sequence[bytes | None]
    ) -> Iterator[tuple[str, Sequence[bytes | None]]]:
        """Columns of data of one input."""
        parts = [(None, b"{}") if datum is None else parts_of(datum) for datum in data]
        values = [value for _, value in parts]
        own = {name: name.removeprefix(f"{alias}.") for name in names}
        fields = tuple(column for column in own.values() if column not in (KEY, VALUE))
        texts = dict(zip(fields, field_texts(fields, values), strict=True)) if fields else {}
        for name, column in own.items():
            if column in texts:
                yield name, texts[column]
                continue
            raw: list[bytes | None] = (
                [key for key, _ in parts]
                if column == KEY
                else [
                    None if datum is None else value
                    for datum, value in zip(data, values, strict=True)
                ]
            )
            in_bytes = self._types[name] == BLOB
            yield name, [_text(each, in_bytes=in_bytes) for each in raw]


def _text(raw: bytes | None, *, in_bytes: bool) -> bytes | None:
    if raw is None:
        return None
    if in_bytes:
        return _base64(raw)
    return None if raw == b"null" else raw


def carried(columns: Iterable[str]) -> list[tuple[str, str]]:
    """A select of columns as they are."""
    return [(name, quoted(name)) for name in columns]


def asked(key: Sequence[Flat]) -> str:
    """SQL for the key that a row asks for."""
    return key_sql(tuple(each.sql for each in key))
