"""SQL over served collections: columns, one common time, lookups, and no way out."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ikebana.errors import IkebanaError
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.serving import sql
from ikebana.serving.sql import ParsedQuery, QueryLimits, SqlError, parsed
from ikebana.serving.view import (
    ArrangementView,
    Bounds,
    UnknownCollectionError,
    UnreadableTimeError,
    ViewRow,
)
from support.served_topics import MemoryTopics, caught_up, serving

PLANES = [
    (b'{"id":1}', b'{"id":1,"model":"A","seats":4}', 1, 1),
    (b'{"id":2}', b'{"id":2,"model":"B","seats":null}', 1, 1),
    (b'{"id":3}', b'{"id":3,"model":"it\'s","seats":300}', 1, 1),
    (b'{"id":3}', b'{"id":3,"model":"it\'s","seats":300}', 12, -1),
    (b'{"id":3}', b'{"id":3,"model":"C","seats":301}', 12, 1),
]
WHERE = [
    (b'"N1"', b'{"plane":1,"airport":"JFK"}', 2, 2),
    (b'"N2"', b'{"plane":3,"airport":"SFO"}', 3, 1),
]
Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ArrangementView]]:
    """Collections: planes, where they are, and numbers of all kinds."""
    topics = MemoryTopics()
    topics.close("planes", 10, *PLANES[:3])
    topics.close("planes", 20, *PLANES[3:])
    topics.close("where", 15, *WHERE)
    topics.close("odd-topic.1", 30, (b"key", b"\xff", 1, 1), (None, b'{"a":[1]}', 1, 1))
    topics.close("less", 30, (b"1", b"1", 1, -1))
    topics.close("often", 30, (b"1", b"1", 1, 100_000))
    names = ("planes", "where", "odd-topic.1", "less", "often")
    with serving(topics, tmp_path_factory.mktemp("served"), *names) as service:
        caught_up(service, topics, *names)
        found = {name: service.view(name) for name in names}
        yield lambda name: found[name] if name in found else service.view(name)


@pytest.fixture
def run(views: Callable[[str], ArrangementView]) -> Run:
    """Run a query; return its rows."""

    def rows(text: str, as_of: int | None = None, limits: QueryLimits = QueryLimits()) -> Any:  # noqa: B008
        return sql.run(text, views, as_of, limits).table.to_pylist()

    return rows


def test_columns_are_the_fields_of_keys_and_values(run: Run) -> None:
    """With types; rows come as often as they are there."""
    assert run("SELECT * FROM planes ORDER BY id") == [
        {"id": 1, "model": "A", "seats": 4},
        {"id": 2, "model": "B", "seats": None},
        {"id": 3, "model": "C", "seats": 301},
    ]
    assert run('SELECT * FROM "where" ORDER BY ALL') == [
        {"key": "N1", "plane": 1, "airport": "JFK"},
        {"key": "N1", "plane": 1, "airport": "JFK"},
        {"key": "N2", "plane": 3, "airport": "SFO"},
    ]
    assert run('SELECT count(*) AS n FROM "odd-topic.1"') == [{"n": 2}]


def test_collections_are_joined_at_one_time(run: Run) -> None:
    """The newest that all of them have, or another one."""
    joined = '"where" w JOIN planes p ON p.id = w.plane'
    text = f"SELECT airport, model, seats FROM {joined} WHERE p.id = 3"
    assert run(text) == [{"airport": "SFO", "model": "C", "seats": 301}]
    assert run(text, 11) == [{"airport": "SFO", "model": "it's", "seats": 300}]
    with pytest.raises(UnreadableTimeError, match='"where" as of 15'):
        run(text, 15)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("SELECT * FROM planes WHERE id = 3", [b'{"id":3}']),
        ("SELECT * FROM planes p WHERE 1 = p.id AND seats > 3", [b'{"id":1}']),
        ("SELECT * FROM planes WHERE id IN (1, 7) ORDER BY 1", [b'{"id":1}', b'{"id":7}']),
        ("SELECT * FROM planes WHERE ID = 2 LIMIT 5", [b'{"id":2}']),
        ("SELECT 1 IN (SELECT id FROM planes WHERE id = 1) AS yes", [b'{"id":1}']),
        ("WITH x AS (SELECT * FROM planes WHERE id = 1) SELECT * FROM x, x y", [b'{"id":1}']),
        ("SELECT * FROM planes WHERE id = 1 OR id = 2 ORDER BY 1", None),
        ("SELECT * FROM planes WHERE NOT id = 1 ORDER BY 1", None),
        ("SELECT * FROM planes WHERE id = '1'", None),
        ("SELECT * FROM planes WHERE model = 'A'", None),
        ("SELECT * FROM planes a, planes b WHERE a.id = 1 ORDER BY ALL", None),
        ("SELECT (SELECT max(id) FROM planes) AS m FROM planes WHERE id = 1", None),
        ("SELECT * FROM planes WHERE id = 1 + 1", None),
    ],
)
def test_an_equality_of_keys_becomes_a_lookup(
    run: Run, monkeypatch: pytest.MonkeyPatch, text: str, keys: list[bytes] | None
) -> None:
    """And gives what a scan gives."""
    looked: list[list[bytes]] = []
    whole = ArrangementView.get_many

    def get_many(self: ArrangementView, wanted: list[bytes], time: int) -> list[dict[bytes, int]]:
        looked.append(list(wanted))
        return whole(self, wanted, time)

    monkeypatch.setattr(ArrangementView, "get_many", get_many)
    found = run(text)
    assert looked == ([] if keys is None else [keys])
    monkeypatch.setattr("ikebana.serving.sql._keys", lambda *_: None)
    assert run(text) == found


# What a stranger may try; nothing of it reads or changes anything.
ATTACKS = [
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_csv_auto('/etc/passwd')",
    "SELECT * FROM read_blob('/proc/self/environ')",
    "SELECT * FROM glob('/*')",
    'SELECT * FROM "http://127.0.0.1/x.parquet"',
    "SELECT * FROM parquet_scan('x')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))",
    "WITH a AS (FROM read_text('/etc/passwd')) SELECT * FROM a",
    "WITH RECURSIVE a AS (SELECT 1 UNION ALL FROM read_text('/etc/passwd')) SELECT * FROM a",
    "SELECT * FROM planes, LATERAL (SELECT * FROM read_text(model))",
    "SELECT * FROM planes WHERE EXISTS (FROM read_text('/etc/passwd'))",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('planes')",
    "SELECT * FROM json_execute_serialized_sql('{}')",
    "SELECT current_setting('memory_limit')",
    "SELECT getvariable('x')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM pg_catalog.pg_settings",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM main.planes",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "DESCRIBE planes",
    "SUMMARIZE planes",
    "PIVOT planes ON id",
    "COPY planes TO '/tmp/ikebana-sql-attack.csv'",
    "COPY (SELECT 1) TO '/tmp/ikebana-sql-attack.csv'",
    "EXPORT DATABASE '/tmp/ikebana-sql-attack'",
    "ATTACH '/tmp/ikebana-sql-attack.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET memory_limit = '100GB'",
    "PRAGMA threads = 64",
    "RESET ALL",
    "CREATE TABLE x AS SELECT 1",
    "INSERT INTO planes VALUES (1)",
    "DELETE FROM planes",
    "DROP TABLE planes",
    "CALL pragma_version()",
    "EXPLAIN SELECT 1",
    "PREPARE x AS SELECT 1",
    "BEGIN",
    "SELECT 1; SELECT 2",
    "SELECT 1; COPY planes TO '/tmp/ikebana-sql-attack.csv'",
    "",
    ";",
    "SELECT",
    "SELECT " + "(" * 2_000 + "1" + ")" * 2_000,
    "SELECT " + "abs(" * 250 + "1" + ")" * 250,
    "SELECT * FROM views",
    "SELECT * FROM arriving",
    "SELECT * FROM given",
]


@pytest.mark.parametrize("text", ATTACKS)
def test_nothing_but_collections_is_read(run: Run, text: str) -> None:
    """A query is refused by name."""
    with pytest.raises((SqlError, UnknownCollectionError)):
        run(text)
    assert not Path("/tmp/ikebana-sql-attack.csv").exists()


def test_the_sandbox_holds_where_the_judgement_does_not(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB itself has no files, no network, no Python, and no settings to change."""
    monkeypatch.setattr("ikebana.serving.sql.parsed", lambda _: ParsedQuery([], {}))
    secret = pa.table({"a": [1]})
    for text in (
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "COPY (SELECT 1) TO '/tmp/ikebana-sql-attack.csv'",
        "ATTACH '/tmp/ikebana-sql-attack.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 8",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SELECT * FROM secret",
    ):
        with pytest.raises(SqlError):
            run(text)
    assert secret.num_rows == 1


def test_a_name_of_its_own_is_no_collection(run: Run) -> None:
    """And table functions that read nothing may be used."""
    assert run("WITH a AS (SELECT 7 AS b) SELECT * FROM a") == [{"b": 7}]
    assert run("SELECT sum(range) AS s FROM range(4)") == [{"s": 6}]
    assert run("SELECT unnest([1, 2]) AS u") == [{"u": 1}, {"u": 2}]
    with pytest.raises(UnknownCollectionError, match='"plane"; did you mean "planes"'):
        run("SELECT * FROM plane")


def test_time_memory_rows_and_bytes_have_limits(run: Run) -> None:
    """Each with a reason."""
    endless = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"
    with pytest.raises(SqlError, match="took too long"):
        run(endless, limits=QueryLimits(seconds=0.2))
    with pytest.raises(SqlError, match="more than 10 rows"):
        run("SELECT * FROM range(100)", limits=QueryLimits(rows=10))
    with pytest.raises(SqlError, match=r"[Mm]emory"):
        run(
            "SELECT count(DISTINCT r) FROM (SELECT hash(range)::VARCHAR r FROM range(20000000))",
            limits=QueryLimits(memory_bytes=64 << 20),
        )
    with pytest.raises(SqlError, match=r'all of "planes": it has \d+ bytes'):
        run("SELECT * FROM planes", limits=QueryLimits(read_bytes=20))


def test_a_result_has_the_limit_of_the_memory(run: Run) -> None:
    """DuckDB does not count what it gives away."""
    text = "SELECT repeat('x', 10000) AS s FROM range(4000)"
    limits = QueryLimits(memory_bytes=16 << 20)

    with pytest.raises(SqlError, match="gives more than 16,777,216 bytes"):
        run(text, limits=limits)
    assert len(run(f"{text} LIMIT 1000", limits=limits)) == 1_000


def test_a_small_value_that_is_there_often_is_large(run: Run) -> None:
    """Each of its rows takes memory, whatever its key and value have."""
    text = "SELECT count(*) AS n FROM often"

    with pytest.raises(SqlError, match="more than 1,048,576 bytes"):
        run(text, limits=QueryLimits(read_bytes=1 << 20))
    assert run(text, limits=QueryLimits(read_bytes=2 << 20)) == [{"n": 100_000}]


def test_a_value_that_is_less_than_nothing_is_no_row(run: Run) -> None:
    """A table has no counts."""
    with pytest.raises(SqlError, match="a value has the count -1"):
        run("SELECT * FROM less")


def test_what_a_query_reads_is_known_before_it_runs() -> None:
    """With the equalities of its keys."""
    found = parsed("SELECT * FROM a JOIN \"b.c\" x ON a.i = x.i WHERE x.i = 3 AND a.j IN ('p')")
    assert found.tables == ["a", "b.c"]
    assert found.equalities == {"b.c": {"i": [3]}, "a": {"j": ["p"]}}
    asof = "SELECT * FROM a ASOF JOIN b ON a.t >= b.t WHERE b.i = 3"
    assert parsed(asof).equalities == {}
    assert parsed("SELECT * FROM a LEFT JOIN b USING (i) WHERE b.i = 3").equalities == {
        "b": {"i": [3]}
    }


def test_errors_of_a_query_are_told(run: Run) -> None:
    """As DuckDB tells them."""
    with pytest.raises(IkebanaError, match="seat"):
        run("SELECT seat FROM planes")


def test_the_rows_of_a_view_are_not_changed_by_reading(
    views: Callable[[str], ArrangementView], run: Run
) -> None:
    """However often it is queried."""
    before = list(views("planes").rows(Bounds(), 19))
    run("SELECT * FROM planes")
    assert list(views("planes").rows(Bounds(), 19)) == before
    assert before[0] == ViewRow(b'{"id":1}', {PLANES[0][1]: 1})
    assert KeyedUpdate(*PLANES[0]).diff == 1
