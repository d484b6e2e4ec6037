"""A database of PostgreSQL as the target of a sink."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import psycopg

from cdc.postgres import Postgres
from ikebana.delivering.postgres import CONTROL, PostgresSink
from ikebana.delivering.sink import ID, Sink, TargetTable
from ikebana.processor.linear.json_text import quoted

_NUMBERS = count()
# As PostgreSQL has no other form in Python that is as exact.
_AS_TEXT = ("jsonb", "uuid", "interval", "time with time zone")


class PostgresTarget:
    """A database of its own."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._name = f"suite_{next(_NUMBERS)}"
        server.run(f"CREATE DATABASE {self._name};")
        self.conninfo = (
            f"host={server.folder} port={server.port} user=postgres dbname={self._name}"
        )

    def sink(self) -> Sink:
        return PostgresSink("suite", self.conninfo)

    def rows(self, table: TargetTable) -> list[dict[str, Any]]:
        return self.as_of(table)[1]

    def as_of(self, table: TargetTable) -> tuple[int | None, list[dict[str, Any]]]:
        with psycopg.connect(self.conninfo) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            there = connection.execute(
                f"SELECT to_regclass('{table.name}') IS NOT NULL AND "
                f"to_regclass('{CONTROL}') IS NOT NULL"
            ).fetchone()
            if there != (True,):
                return None, []
            [(upper,)] = connection.execute(
                f"SELECT upper FROM {CONTROL} WHERE tables ? %s", (table.name,)
            ).fetchall()
            return upper, _rows(connection, table)

    @contextmanager
    def away(self) -> Iterator[None]:
        self._server.run(
            f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS false; SELECT "
            f"pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self._name}';"
        )
        yield
        self._server.run(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS true;")


def _rows(connection: "psycopg.Connection[Any]", table: TargetTable) -> list[dict[str, Any]]:
    names = [column.name for column in table.columns]
    names += [name for name in table.added if name != ID]
    types: dict[str, str] = dict(
        connection.execute(
            "SELECT attname, format_type(atttypid, -1) FROM pg_attribute "
            f"WHERE attrelid = '{table.name}'::regclass"
        ).fetchall()
    )
    selected = ", ".join(
        f"{quoted(name)}{'::text' if types[name] in _AS_TEXT else ''}" for name in names
    )
    found = connection.execute(f"SELECT {selected} FROM {table.name}").fetchall()
    return [dict(zip(names, row, strict=True)) for row in found]
