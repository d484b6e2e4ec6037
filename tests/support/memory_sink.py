"""A sink over a target in memory: what other sinks are compared with, in the plainest form.

A target has transactions: `apply` works on a copy, which takes the place of the target's tables
together with the token, if the generation is still the sink's own.
"""

from collections.abc import Sequence
from typing import Any

from ikebana.delivering.sink import (
    COUNT,
    DIFF,
    ID,
    TIME,
    VALID_FROM,
    VALID_TO,
    Batch,
    Table,
    TargetAwayError,
)
from ikebana.errors import ConfigError, FencedError, SourceError

Row = dict[str, Any]


class MemoryTarget:
    """Tables, and the token and the generation of each sink."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {}
        self.columns: dict[str, list[tuple[str, str]]] = {}
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
        self._tables: Sequence[Table] = ()
        self._generation = 0

    def open(self, tables: Sequence[Table]) -> str | None:
        target = self._target
        target.ask()
        self._generation = target.generations.get(self.name, 0) + 1
        target.generations[self.name] = self._generation
        for table in tables:
            columns = [(column.name, str(column.kind)) for column in table.columns]
            columns += [(name, "") for name in table.added]
            there = target.columns.get(table.name, columns)
            for one, other in zip(columns, there, strict=False):
                if one != other:
                    raise ConfigError(f'table "{table.name}" does not fit: column "{one[0]}"')
            if len(there) != len(columns):
                raise ConfigError(f'table "{table.name}" does not fit')
        for table in tables:
            target.tables.setdefault(table.name, [])
            target.columns[table.name] = [
                *((column.name, str(column.kind)) for column in table.columns),
                *((name, "") for name in table.added),
            ]
        self._tables = tables
        return target.tokens.get(self.name)

    def apply(self, batch: Batch) -> None:
        self._target.ask()
        changed = {}
        for table in self._tables:
            rows = [row for rows in batch.updates(table) for row in rows.to_pylist()]
            changed[table.name] = _applied(table, self._target.tables[table.name], rows)
        self._target.ask()
        if self._target.generations[self.name] != self._generation:
            raise FencedError(f'sink "{self.name}" was taken over by a newer instance')
        self._target.tables |= changed
        self._target.uppers |= dict.fromkeys(changed, batch.upper)
        self._target.tokens[self.name] = batch.token

    def close(self) -> None:
        pass


def _applied(table: Table, before: list[Row], updates: list[Row]) -> list[Row]:
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


def _history(table: Table, before: list[Row], updates: list[Row]) -> list[Row]:
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


def _key(table: Table, row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in table.key)
