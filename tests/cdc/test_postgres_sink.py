"""The sink for PostgreSQL passes what every sink has to pass, on a real server."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import psycopg
import pytest

from cdc.fetched import Unavailable
from cdc.postgres import Postgres, running
from ikebana.delivering.postgres import PostgresSink
from ikebana.delivering.sink import ID, Sink, Table
from support.sink_conformance import SinkConformance

pytestmark = [pytest.mark.cdc, pytest.mark.timeout(600)]
_NUMBERS = count()
# As PostgreSQL has no other form in Python that is as exact.
_AS_TEXT = ("jsonb", "uuid", "interval", "time with time zone")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    try:
        opened = running()
        found = opened.__enter__()
    except Unavailable as reason:
        pytest.skip(str(reason))
    yield found
    opened.__exit__(None, None, None)


class Target:
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

    def rows(self, table: Table) -> list[dict[str, Any]]:
        names = [column.name for column in table.columns]
        names += [name for name in table.added if name != ID]
        with psycopg.connect(self.conninfo) as connection:
            types: dict[str, str] = dict(
                connection.execute(
                    "SELECT attname, format_type(atttypid, -1) FROM pg_attribute "
                    f"WHERE attrelid = '{table.name}'::regclass"
                ).fetchall()
            )
            selected = ", ".join(
                f'"{name}"{"::text" if types[name] in _AS_TEXT else ""}' for name in names
            )
            found = connection.execute(f"SELECT {selected} FROM {table.name}").fetchall()
        return [dict(zip(names, row, strict=True)) for row in found]

    @contextmanager
    def away(self) -> Iterator[None]:
        self._server.run(
            f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS false; SELECT "
            f"pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self._name}';"
        )
        yield
        self._server.run(f"ALTER DATABASE {self._name} ALLOW_CONNECTIONS true;")


class TestPostgresSink(SinkConformance):
    @pytest.fixture
    def target(self, server: Postgres) -> Target:
        return Target(server)
