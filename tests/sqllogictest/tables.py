"""Tables of a file: a database in memory has them, and their changes are those of inputs."""

import json
from collections.abc import Mapping
from typing import Any

import duckdb

from ikebana import Column
from ikebana.codecs.sql_type import Decimal, parsed

Change = tuple[Any, Mapping[str, Any] | None, int]
"""The key of a row, what it becomes (None: it is deleted), and when."""

MOST_ROWS = 5_000
# Statements that only say how others are run.
_SETTINGS = ("set ", "pragma", "reset", "explain", "checkpoint", "vacuum", "analyze", "call")
_AS_TEXT = {
    *("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "INTERVAL"),
    *("TIMESTAMP WITH TIME ZONE", "TIME WITH TIME ZONE", "UUID", "HUGEINT", "UHUGEINT"),
    *("FLOAT", "DOUBLE"),
}


class TooLargeError(Exception):
    """A table has more rows than a test should run over."""


class Tables:
    """Runs statements, and has the changes of each table; the times are 0, 1, 2 and so on."""

    def __init__(self) -> None:
        self.database = duckdb.connect(
            ":memory:", config={"threads": 1, "enable_external_access": "false"}
        )
        self.database.execute("SET TimeZone = 'UTC'")
        self.time = 0
        self._rows: dict[str, dict[Any, str]] = {}
        self._columns: dict[str, list[tuple[str, str]]] = {}
        self._changes: dict[str, list[Change]] = {}
        self._is_read = True
        self.large: set[str] = set()
        """Tables without changes: with more rows than a test should run over, or with columns that
        have a collation, which columns of inputs have not."""

    def close(self) -> None:
        """Forget all tables."""
        self.database.close()

    def run(self, sql: str) -> None:
        """Run a statement.  Raises: duckdb.Error."""
        if sql.lower().startswith(_SETTINGS):
            return
        self._is_read = False
        self.database.execute(sql)

    def answer(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query, with intervals as texts and JSON parsed.  Raises: duckdb.Error."""
        cursor = self.database.execute(sql)
        kinds = [str(each[1]) for each in cursor.description or ()]
        if "INTERVAL" in kinds:
            shown = (f"#{at}{'::VARCHAR' * (of == 'INTERVAL')}" for at, of in enumerate(kinds, 1))
            cursor = self.database.execute(f"SELECT {', '.join(shown)} FROM ({sql})")
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        if "JSON" not in kinds:
            return rows
        return [
            tuple(
                json.loads(value) if of == "JSON" and value is not None else value
                for value, of in zip(row, kinds, strict=True)
            )
            for row in rows
        ]

    def answer_over_turned(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query over the same tables, stored in the opposite order.

        Raises: duckdb.Error.
        """
        self.database.execute("BEGIN")
        try:
            for name in self._columns:
                table = '"' + name.replace('"', '""') + '"'
                turned = f"SELECT * FROM {table} ORDER BY rowid DESC"
                self.database.execute(f"CREATE TEMP TABLE ikebana_turned AS {turned}")
                self.database.execute(f"DELETE FROM {table}")
                self.database.execute(f"INSERT INTO {table} FROM ikebana_turned")
                self.database.execute("DROP TABLE ikebana_turned")
            return self.answer(sql)
        finally:
            self.database.execute("ROLLBACK")

    def views(self) -> dict[str, str]:
        """The queries of views, by name."""
        found = self.database.execute(
            "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal"
        ).fetchall()
        return {str(name): str(sql) for name, sql in found}

    def changes(self) -> Mapping[str, list[Change]]:
        """The changes of all tables so far."""
        if self._is_read:
            return self._changes
        there = self._there()
        self.large.clear()
        for name in [*self._rows]:
            if there.get(name) != self._columns[name]:
                del self._rows[name], self._columns[name], self._changes[name]
        self._columns = there
        for name in there:
            self._take(name)
        self._is_read = True
        self.time += 1
        return self._changes

    def columns(self, name: str) -> list[Column]:
        """The columns of a table, as those of an input."""
        return [Column(*each) for each in self._columns[name]]

    def _there(self) -> dict[str, list[tuple[str, str]]]:
        found: dict[str, list[tuple[str, str]]] = {}
        rows = self.database.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal "
            "AND table_name IN (SELECT table_name FROM duckdb_tables()) "
            "AND schema_name = 'main' ORDER BY table_name, column_index"
        ).fetchall()
        for table, column, kind in rows:
            found.setdefault(str(table), []).append((str(column), str(kind)))
        return found

    def _take(self, name: str) -> None:
        """Take the difference between what a table was and what it is."""
        known = self._rows.setdefault(name, {})
        changes = self._changes.setdefault(name, [])
        now = self._read(name)
        for key in known.keys() - now.keys():
            changes.append((key, None, self.time))
        for key, row in now.items():
            if known.get(key) != row:
                changes.append((key, json.loads(row), self.time))
        self._rows[name] = now

    def _read(self, name: str) -> dict[Any, str]:
        table = '"' + name.replace('"', '""') + '"'
        ((many,),) = self.database.execute(f"SELECT count(*) FROM {table}").fetchall()
        ((statement,),) = self.database.execute(
            "SELECT sql FROM duckdb_tables() WHERE schema_name = 'main' AND table_name = ?", [name]
        ).fetchall()
        if many > MOST_ROWS or " COLLATE " in statement:
            self.large.add(name)
            return {}
        listed = ", ".join(
            f"{_text(column)}: {_encoded(column, kind)}" for column, kind in self._columns[name]
        )
        rows = self.database.execute(
            f"SELECT rowid, to_json({{{listed}}})::VARCHAR FROM {table}"
        ).fetchall()
        return {key: str(row) for key, row in rows}


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _encoded(column: str, kind: str) -> str:
    """SQL of a column as a message has it."""
    name = '"' + column.replace('"', '""') + '"'
    if kind in _AS_TEXT or isinstance(_parsed(kind), Decimal):
        return f"CAST({name} AS VARCHAR)"
    if kind == "BLOB":
        return f"base64({name})"
    return name


def _parsed(kind: str) -> object:
    try:
        return parsed(kind)
    except ValueError:
        return None
