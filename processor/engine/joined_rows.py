"""SQL over rows that are being joined: over the columns they carry and the data they matched.

A row carries the columns that later steps read, as a JSON object of flat columns; a row that
comes straight from a relation is that relation's datum instead.

Paths test predicates in different orders, and all have to come to the same result.  So a row
on which a predicate fails goes on, marked with the reason, and becomes an error after the last
step, unless another predicate is false.  Columns are carried without a type; a type is applied
where they are used.  A row with no key for the next lookup ends: the arrangement by that key
reports the error.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

import msgspec

from ikebana.processor.base.rows import keys_of, values_of
from ikebana.processor.linear.json_text import BLOB, JSON, quoted
from ikebana.processor.linear.keys import key_sql
from ikebana.processor.linear.picking import picked, picking
from ikebana.processor.linear.query import Query, compiled, data_field_texts, field_texts
from ikebana.processor.linear.scope import KEY, VALUE, FrozenScope
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.joins.qualified import Flat, alias_of

_base64 = msgspec.json.encode
_text_of = msgspec.json.encode
# A name with this prefix is the column without a type.  Names of inputs do not begin with it.
_AS_IT_IS = "~"
# A row that a predicate has failed on begins with this and the reason.
_MARK = b'{"!":'
_reason_of = msgspec.json.Decoder(str).decode


class Sources(NamedTuple):
    """Which input's columns are where.

    `payload`: the input, if rows are its data; `datum`: the input of their matches.  All other
    columns are carried by the rows.
    """

    payload: str | None
    datum: str | None


class RowFailure(NamedTuple):
    """A row that cannot be evaluated, and why."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """Results in columns of one length; `rows` has the position of the row behind each."""

    rows: list[int]
    keys: list[bytes]
    values: list[bytes]
    failed: list[RowFailure]


class Maker:
    """Conditions over rows, and the key and value of rows that fulfil them.

    Failures become errors only at the `last` step.
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
        raw = ((_AS_IT_IS + name, JSON) for name in types)
        self._scope = FrozenScope(
            (*types.items(), *raw, (KEY, JSON), (VALUE, JSON)), open=False, declare=""
        )
        self._step = Sql(where=self._where, select=self._select, key=key)
        self._picking = picking(picked((self._step,), self._scope.thawed()))

    @cached_property
    def _query(self) -> Query:
        """The step compiled: a step that only picks columns mostly does without."""
        return self._compiled(self._step)

    def make(self, payloads: Sequence[bytes], data: Sequence[bytes | None]) -> JoinedRows:
        """Evaluate rows; `data` has the match of each, None for a row without one."""
        if (picked := self._picked(payloads, data)) is not None:
            outcome, failed = picked, list[RowFailure]()
        else:
            outcome, failed = self._outcome(self._query, payloads, data)
        # On rows straight from a relation no predicate has failed yet.
        marks = {} if self._sources.payload else _marks(payloads)
        if not failed and not marks:
            return outcome
        reasons = {row: [marks[row]] for row in outcome.rows if row in marks}
        reasons |= self._undecided(payloads, data, [each.row for each in failed], marks)
        result = _without(outcome, reasons)
        if self._last:
            failures = {each.row: each.reason for each in failed}
            # Paths may meet the reasons in any order, so the least one is reported.
            result.failed.extend(
                RowFailure(row, min(why, default=failures.get(row, "")))
                for row, why in reasons.items()
            )
        else:
            self._go_on(result, payloads, data, reasons)
        return result

    def _go_on(
        self,
        result: JoinedRows,
        payloads: Sequence[bytes],
        data: Sequence[bytes | None],
        reasons: Mapping[int, Sequence[str]],
    ) -> None:
        """Add results without regard to predicates, marked with the reason of the failure."""
        rows = sorted(reasons)
        anyway = self._compiled(Sql(select=self._select, key=self._key))
        outcome, _ = self._outcome(anyway, [payloads[r] for r in rows], [data[r] for r in rows])
        for at, key, value in zip(outcome.rows, outcome.keys, outcome.values, strict=True):
            result.rows.append(rows[at])
            result.keys.append(key)
            why = reasons[rows[at]]
            result.values.append(_marked(value, min(why)) if why else value)

    def _undecided(
        self,
        payloads: Sequence[bytes],
        data: Sequence[bytes | None],
        rows: list[int],
        marks: Mapping[int, str],
    ) -> dict[int, list[str]]:
        """The rows for which no predicate is false, with the reasons of predicates that failed."""
        left = {row: [marks[row]] if row in marks else [] for row in rows}
        for text in self._where:
            asked_of = list(left)
            query = self._compiled(Sql(where=(text,), key="NULL"))
            outcome, failed = self._outcome(
                query, [payloads[row] for row in asked_of], [data[row] for row in asked_of]
            )
            reasons = {each.row: each.reason for each in failed}
            true = set(outcome.rows)
            for at, row in enumerate(asked_of):
                if at in reasons:
                    left[row].append(reasons[at])
                elif at not in true:
                    del left[row]
        return left

    def _compiled(self, step: Sql) -> Query:
        return compiled((step,), self._scope)

    def _picked(
        self, payloads: Sequence[bytes], data: Sequence[bytes | None]
    ) -> JoinedRows | None:
        """The results of a step that only picks columns, if their texts may stay unchanged."""
        if self._picking is None or not payloads:
            return None
        columns = self._columns(self._picking.fields, payloads, data)
        if not self._picking.takes(columns):
            return None
        keys, values = self._picking.pick(columns)
        return JoinedRows([*range(len(payloads))], keys or [], values or [], [])

    def _outcome(
        self, query: Query, payloads: Sequence[bytes], data: Sequence[bytes | None]
    ) -> tuple[JoinedRows, list[RowFailure]]:
        if not payloads:
            return JoinedRows([], [], [], []), []

        def columns(fields: tuple[str, ...]) -> list[Sequence[bytes | None]]:
            return self._columns(fields, payloads, data)

        outcome, failed = query.outcome_of(len(payloads), columns, whose=self._whose)
        failures = [RowFailure(each.row, each.reason) for each in failed]
        return JoinedRows(outcome.rows, outcome.keys or [], outcome.values or [], []), failures

    def _columns(
        self, fields: Sequence[str], payloads: Sequence[bytes], data: Sequence[bytes | None]
    ) -> list[Sequence[bytes | None]]:
        """The texts of columns, with or without a type, of rows and their matches."""
        names = [name.removeprefix(_AS_IT_IS) for name in fields]
        texts: dict[str, Sequence[bytes | None]] = {}
        by_source: dict[str | None, list[str]] = {}
        for name in dict.fromkeys(names):
            alias = alias_of(name)
            source = alias if alias in self._sources else None
            by_source.setdefault(source, []).append(name)
        for of, group in by_source.items():
            if of is None:
                texts |= zip(group, field_texts(tuple(group), payloads), strict=True)
            else:
                source_rows = payloads if of == self._sources.payload else data
                texts |= self._parts(of, group, source_rows)
        return [texts[name] for name in names]

    def _parts(
        self, alias: str, names: Sequence[str], data: Sequence[bytes | None]
    ) -> Iterator[tuple[str, Sequence[bytes | None]]]:
        """Columns of data of one input; repeated data are read once."""
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
        columns = {name: name.removeprefix(f"{alias}.") for name in names}
        fields = tuple(column for column in columns.values() if column not in (KEY, VALUE))
        texts = dict(zip(fields, data_field_texts(fields, data), strict=True)) if fields else {}
        for name, column in columns.items():
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
    """The reasons of earlier failures, by row."""
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


def _without(result: JoinedRows, rows: Collection[int]) -> JoinedRows:
    """The results of all other rows."""
    places = [at for at, row in enumerate(result.rows) if row not in rows]
    return JoinedRows(
        [result.rows[at] for at in places],
        [result.keys[at] for at in places],
        [result.values[at] for at in places],
        [],
    )
