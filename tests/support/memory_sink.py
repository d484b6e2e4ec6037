"""A sink over a target in memory: what other sinks are compared with, in the plainest form.

A target has transactions: `apply` works on a copy, which takes the place of the target's tables
together with the token, if the generation is still the sink's own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ikebana.delivering.sink import (
    COUNT,
    DIFF,
    ID,
    TIME,
    VALID_FROM,
    VALID_TO,
    Batch,
    TargetAwayError,
    TargetTable,
)
from ikebana.errors import ConfigError, FencedError, SourceError

Row = dict[str, Any]


class MemoryTarget:
    """Tables, and the token and the generation of each sink."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {}
        self.columns: dict[str, dict[str, str]] = {}
        self.tokens: dict[str, str] = {}
        self.uppers: dict[str, int] = {}
        """The frontier of each table."""
        self.generations: dict[str, int] = {}
        self.away = False

    def ask(self) -> None:
        """Answer, or be away."""
        if self.away:
            raise TargetAwayError("the target in memory does not answer")


class MemorySink:
    """Applies batches row by row."""

    def __init__(self, target: MemoryTarget, name: str = "memory") -> None:
        self.name = name
        self._target = target
        self._tables: Sequence[TargetTable] = ()
        self._generation = 0

    def open(self, tables: Sequence[TargetTable]) -> str | None:
        target = self._target
        target.ask()
        self._generation = target.generations.get(self.name, 0) + 1
        target.generations[self.name] = self._generation
        columns = {table.name: _columns(table, target.columns.get(table.name)) for table in tables}
        for name in columns:
            target.tables.setdefault(name, [])
        target.columns |= columns
        self._tables = tables
        return target.tokens.get(self.name)

    def apply(self, batch: Batch) -> None:
        self._target.ask()
        changed = {}
        for table in self._tables:
            rows = [row for rows in batch.updates(table) for row in rows.to_pylist()]
            nulls = dict.fromkeys(self._target.columns[table.name])
            applied = _applied(table, self._target.tables[table.name], rows)
            changed[table.name] = [{**nulls, **row} for row in applied]
        self._target.ask()
        if self._target.generations[self.name] != self._generation:
            raise FencedError(f'sink "{self.name}" was taken over by a newer instance')
        self._target.tables |= changed
        self._target.uppers |= dict.fromkeys(changed, batch.upper)
        self._target.tokens[self.name] = batch.token

    def close(self) -> None:
        pass


def _columns(table: TargetTable, there: Mapping[str, str] | None) -> dict[str, str]:
    """The types of a table's columns by name, those that it has already and those that it gets.

    Columns beside those of the collection have no type.  Raises: ConfigError, if it does not fit.
    """
    columns = {column.name: str(column.kind) for column in table.columns}
    columns |= dict.fromkeys(table.added, "")
    if there is None:
        return columns
    problem = f'table "{table.name}" does not fit: column'
    for name, kind in columns.items():
        if name not in there and (table.counted or name in (*table.key, *table.added)):
            raise ConfigError(f'{problem} "{name}" is missing, and tells rows apart')
        if there.get(name, kind) != kind:
            raise ConfigError(f'{problem} "{name}" is {there[name]}')
    for name, kind in there.items():
        if table.counted and name not in columns:
            raise ConfigError(f'{problem} "{name}" is no column, and rows are told apart by all')
        if not kind and name not in columns:
            raise ConfigError(f'{problem} "{name}" is of another mode')
    return {**there, **columns}


def _applied(table: TargetTable, before: list[Row], updates: list[Row]) -> list[Row]:
    if table.mode == "changes":
        return [*before, *updates]
    if table.mode == "history":
        return _history(table, before, updates)
    net: dict[bytes, Row] = {}
    for update in updates:
        row = net.setdefault(update[ID], {**update, DIFF: 0})
        row[DIFF] += update[DIFF]
    names = [column.name for column in table.columns]
    if not table.key:
        found = {row[ID]: row for row in before}
        for number, row in net.items():
            count = row[DIFF] + found.get(number, {COUNT: 0})[COUNT]
            found[number] = {**{name: row[name] for name in names}, ID: number, COUNT: count}
        return [row for row in found.values() if row[COUNT]]
    rows = {_key(table, row): row for row in before}
    for row in sorted(net.values(), key=lambda row: int(row[DIFF])):
        at = _key(table, row)
        if row[DIFF] not in (-1, 0, 1) or ((row[DIFF] == 1) == (at in rows) and row[DIFF]):
            raise SourceError(f'table "{table.name}": not one row for key {at}')
        if row[DIFF] == -1:
            del rows[at]
        elif row[DIFF] == 1:
            rows[at] = {name: row[name] for name in names}
    return list(rows.values())


def _history(table: TargetTable, before: list[Row], updates: list[Row]) -> list[Row]:
    """Versions of rows: each change of a row's count ends one and begins the next."""
    net: dict[tuple[int, bytes], Row] = {}
    for update in updates:
        row = net.setdefault((update[TIME], update[ID]), {**update, DIFF: 0})
        row[DIFF] += update[DIFF]
    names = [column.name for column in table.columns]
    versions = [dict(row) for row in before]

    def identity(row: Row) -> Any:
        return row[ID] if table.counted else _key(table, row)

    standing = {identity(row): row for row in versions if row[VALID_TO] is None}
    for (time, _), row in sorted(net.items(), key=lambda each: (each[0][0], each[1][DIFF])):
        if not row[DIFF]:
            continue
        last = standing.pop(identity(row), None)
        if last is not None:
            last[VALID_TO] = time
        count = row[DIFF] + (0 if last is None else last[COUNT] if table.counted else 1)
        if not table.counted and count not in (0, 1):
            raise SourceError(f'table "{table.name}": not one row for key {_key(table, row)}')
        if count:
            version = {name: row[name] for name in names}
            if table.counted:
                version |= {ID: row[ID], COUNT: count}
            version |= {VALID_FROM: time, VALID_TO: None}
            standing[identity(row)] = version
            versions.append(version)
    return versions


def _key(table: TargetTable, row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in table.key)
