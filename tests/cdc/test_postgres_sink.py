"""The sink for PostgreSQL passes what every sink has to pass, on a real server."""

import json
from collections.abc import Iterator

import psycopg
import pytest

from cdc.fetched import Unavailable
from cdc.postgres import Postgres, running
from cdc.postgres_target import PostgresTarget
from ikebana.delivering.columns import TargetColumn
from ikebana.delivering.postgres import PostgresSink
from ikebana.delivering.sink import TargetTable
from ikebana.errors import ConfigError, SourceError
from support.served_topics import MemoryTopics
from support.sink_conformance import SinkConformance, delivered

pytestmark = [pytest.mark.cdc, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    try:
        opened = running()
        found = opened.__enter__()
    except Unavailable as reason:
        pytest.skip(str(reason))
    yield found
    opened.__exit__(None, None, None)


# A type, a value of it in a message, and the text that PostgreSQL has for it.
_UNREADABLE = (
    ("DATE", "-0043-03-15", "0044-03-15 BC"),
    ("DATE", "+10000-01-01", "10000-01-01"),
    ("DATE", "-infinity", "-infinity"),
    ("TIMESTAMP", "-0043-03-15T00:00:00.5", "0044-03-15 00:00:00.5 BC"),
    ("TIMESTAMP", "infinity", "infinity"),
    ("TIMESTAMPTZ", "infinity", "infinity"),
    ("TIMESTAMPTZ", "-0043-03-15T00:00:00Z", "0044-03-15 00:00:00+00 BC"),
    ("TIME", "24:00:00", "24:00:00"),
)


@pytest.mark.parametrize(("table", "column"), [("t", "é" * 32), ("shop." + "t" * 64, "a")])
def test_a_name_that_postgresql_would_cut_is_refused(table: str, column: str) -> None:
    """A start after the first one missed the column by its whole name."""
    columns = (TargetColumn.of(column, "BIGINT"),)
    with pytest.raises(ConfigError, match="more than 63 bytes"):
        PostgresSink("suite", "").open([TargetTable("t", table, "changes", columns)])


class TestPostgresSink(SinkConformance):
    @pytest.fixture
    def target(self, server: Postgres) -> PostgresTarget:
        return PostgresTarget(server)

    def test_dates_and_times_are_all_that_postgresql_has(self, target: PostgresTarget) -> None:
        """Also infinite ones, those before year 1 and after 9999, and the end of a day."""
        columns = [TargetColumn.of(f"c{at}", kind) for at, (kind, _, _) in enumerate(_UNREADABLE)]
        table, topics = TargetTable("t", "dates", "current", tuple(columns)), MemoryTopics()
        row = {f"c{at}": value for at, (_, value, _) in enumerate(_UNREADABLE)}
        topics.close("t", 5, (None, json.dumps(row).encode(), 1, 1))
        delivered(target.sink(), [table], topics)
        texts = ", ".join(f"{column.name}::text" for column in columns)
        with psycopg.connect(target.conninfo, options="-c timezone=UTC") as connection:
            assert connection.execute(f"SELECT {texts} FROM dates").fetchall() == [
                tuple(text for _, _, text in _UNREADABLE)
            ]

    def test_a_value_that_postgresql_lacks_is_refused(self, target: PostgresTarget) -> None:
        """By table and column, without the value."""
        table = TargetTable("t", "far", "current", (TargetColumn.of("day", "DATE"),))
        topics = MemoryTopics()
        topics.close("t", 5, (None, b'{"day":"+5881580-07-10"}', 1, 1))
        with pytest.raises(SourceError, match=r'table "far", column "day": date out of range\n'):
            delivered(target.sink(), [table], topics)
