"""SQL over rows that are being joined: what they carry, and the data that they have met.

A row carries the columns that later steps read, as a JSON object of flat columns; where it
comes straight from a relation it is that relation's datum instead.

Paths test predicates in different orders, and what one has said of a row another must take
back.  So a row that a predicate fails on goes on, marked by the reason, and is an error when
all is joined, unless another predicate is false of it.  Columns are carried as they are: of
what type they are is asked where they are used.  A row that no key can be made for ends:
what is arranged by that key tells the error.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import msgspec

from ikebana.processor.base.datum import keys_of, values_of
from ikebana.processor.linear.json_text import BLOB, JSON, quoted
from ikebana.processor.linear.keys import key_sql
from ikebana.processor.linear.query import Query, compiled, data_field_texts, field_texts
from ikebana.processor.linear.scope import KEY, VALUE, FrozenScope
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.joins.qualified import Flat, alias_of

_base64 = msgspec.json.encode
_text_of = msgspec.json.encode
# Before a column's name it is the column as it is, of no type.  Names of inputs do not begin so.
_AS_IT_IS = "~"
# A row that a predicate has failed on begins with this and the reason.
_MARK = b'{"!":'
_reason_of = msgspec.json.Decoder(str).decode


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
    """Conditions over rows, and what is made of those that fulfil them.

    Unless it is the `last`, nothing is an error yet.
    """

    def __init__(
        self,
        types: Mapping[str, str],
        sources: Sources,
        where: Iterable[Flat],
        select: Iterable[tuple[str, str]],
        key: str,
        *,
        last: bool = True,
        whose: str = "",
    ) -> None:
        self._whose = whose
        self._types = types
        self._sources = sources
        self._where = tuple(each.sql for each in where)
        self._select, self._key, self._last = tuple(select), key, last
        self._query = self._compiled(Sql(where=self._where, select=self._select, key=key))

    def make(self, payloads: Sequence[bytes], data: Sequence[bytes | None]) -> Made:
        """What becomes of rows; `data` are what they have met, each None if that is nothing."""
        made, failed = self._outcome(self._query, payloads, data)
        # What comes straight from a relation has failed on nothing.
        marks = {} if self._sources.payload else _marks(payloads)
        if not failed and not marks:
            return made
        reasons = {row: [marks[row]] for row in made.rows if row in marks}
        reasons |= self._undecided(payloads, data, [each.row for each in failed], marks)
        found = _without(made, reasons)
        if self._last:
            told = {each.row: each.reason for each in failed}
            # Paths may find several in any order.
            found.failed.extend(
                Failed(row, min(why, default=told.get(row, ""))) for row, why in reasons.items()
            )
        else:
            self._go_on(found, payloads, data, reasons)
        return found

    def _go_on(
        self,
        found: Made,
        payloads: Sequence[bytes],
        data: Sequence[bytes | None],
        reasons: Mapping[int, Sequence[str]],
    ) -> None:
        """Add what becomes of rows whatever predicates say, marked by what they failed with."""
        rows = sorted(reasons)
        anyway = self._compiled(Sql(select=self._select, key=self._key))
        made, _ = self._outcome(anyway, [payloads[r] for r in rows], [data[r] for r in rows])
        for at, key, value in zip(made.rows, made.keys, made.values, strict=True):
            found.rows.append(rows[at])
            found.keys.append(key)
            why = reasons[rows[at]]
            found.values.append(_marked(value, min(why)) if why else value)

    def _undecided(
        self,
        payloads: Sequence[bytes],
        data: Sequence[bytes | None],
        rows: list[int],
        marks: Mapping[int, str],
    ) -> dict[int, list[str]]:
        """The rows of which no predicate is false, with why some have failed on them."""
        left = {row: [marks[row]] if row in marks else [] for row in rows}
        for text in self._where:
            asked_of = list(left)
            query = self._compiled(Sql(where=(text,), key="NULL"))
            made, failed = self._outcome(
                query, [payloads[row] for row in asked_of], [data[row] for row in asked_of]
            )
            reasons = {each.row: each.reason for each in failed}
            true = set(made.rows)
            for at, row in enumerate(asked_of):
                if at in reasons:
                    left[row].append(reasons[at])
                elif at not in true:
                    del left[row]
        return left

    def _compiled(self, step: Sql) -> Query:
        raw = ((_AS_IT_IS + name, JSON) for name in self._types)
        types = (*self._types.items(), *raw, (KEY, JSON), (VALUE, JSON))
        return compiled((step,), FrozenScope(types, open=False, declare=""))

    def _outcome(
        self, query: Query, payloads: Sequence[bytes], data: Sequence[bytes | None]
    ) -> tuple[Made, list[Failed]]:
        if not payloads:
            return Made([], [], [], []), []

        def columns(fields: tuple[str, ...]) -> list[Sequence[bytes | None]]:
            names = [name.removeprefix(_AS_IT_IS) for name in fields]
            found: dict[str, Sequence[bytes | None]] = {}
            by_source: dict[str | None, list[str]] = {}
            for name in dict.fromkeys(names):
                alias = alias_of(name)
                known = alias if alias in self._sources else None
                by_source.setdefault(known, []).append(name)
            for of, own in by_source.items():
                if of is None:
                    found |= zip(own, field_texts(tuple(own), payloads), strict=True)
                else:
                    given = payloads if of == self._sources.payload else data
                    found |= self._parts(of, own, given)
            return [found[name] for name in names]

        made, failed = query.outcome_of(len(payloads), columns, whose=self._whose)
        told = [Failed(each.row, each.reason) for each in failed]
        return Made(made.rows, made.keys or [], made.values or [], []), told

    def _parts(
        self, alias: str, names: Sequence[str], data: Sequence[bytes | None]
    ) -> Iterator[tuple[str, Sequence[bytes | None]]]:
        """Columns of data of one input; of data that come several times each is read once."""
        distinct = dict.fromkeys(data)
        if 2 * len(distinct) <= len(data):
            places = dict(zip(distinct, range(len(distinct)), strict=True))
            again = itemgetter(*map(places.__getitem__, data))
            yield from ((name, again(of)) for name, of in self._read(alias, names, [*distinct]))
        else:
            yield from self._read(alias, names, data)

    def _read(
        self, alias: str, names: Sequence[str], data: Sequence[bytes | None]
    ) -> Iterator[tuple[str, Sequence[bytes | None]]]:
        own = {name: name.removeprefix(f"{alias}.") for name in names}
        fields = tuple(column for column in own.values() if column not in (KEY, VALUE))
        texts = dict(zip(fields, data_field_texts(fields, data), strict=True)) if fields else {}
        for name, column in own.items():
            if column in texts:
                yield name, texts[column]
                continue
            raw: list[bytes | None] = (
                keys_of(data)
                if column == KEY
                else [
                    None if datum is None else value
                    for datum, value in zip(data, values_of(data, nothing=b"{}"), strict=True)
                ]
            )
            if self._types[name] == BLOB:
                yield name, [None if each is None else _base64(each) for each in raw]
            else:
                yield name, [None if each == b"null" else each for each in raw]


def carried(columns: Iterable[str]) -> list[tuple[str, str]]:
    """A select of columns as they are."""
    return [(name, quoted(_AS_IT_IS + name)) for name in columns]


def asked(key: Sequence[Flat]) -> str:
    """SQL for the key that a row asks for."""
    return key_sql(tuple(each.sql for each in key))


def _marks(payloads: Sequence[bytes]) -> dict[int, str]:
    """Why predicates have failed on rows before."""
    return {
        row: _reason_of(texts)
        for row, payload in enumerate(payloads)
        if payload.startswith(_MARK)
        for texts in field_texts(("!",), [payload])[0]
        if texts is not None
    }


def _marked(value: bytes, reason: str) -> bytes:
    rest = value[1:] if value == b"{}" else b"," + value[1:]
    return _MARK + _text_of(reason) + rest


def _without(made: Made, rows: Collection[int]) -> Made:
    """What has been made of all other rows."""
    kept = [at for at, row in enumerate(made.rows) if row not in rows]
    return Made(
        [made.rows[at] for at in kept],
        [made.keys[at] for at in kept],
        [made.values[at] for at in kept],
        [],
    )
