"""`ikebana deliver` from a real broker into a real PostgreSQL, as the docs show it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.fetched import Unavailable
from cdc.postgres import Postgres, running
from ikebana.processor.kafka.broker import Broker
from support.doc_blocks import named
from support.http_answers import ask, ask_json
from support.waiting import patient, wait_until
from support.written_topics import Written

pytestmark = [pytest.mark.cdc, pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.fixture
def server() -> Iterator[Postgres]:
    try:
        with running() as found:
            found.run("CREATE USER shop SUPERUSER; CREATE DATABASE shop;")
            yield found
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def written(broker: Broker, topic_name: Callable[[str], str]) -> Written:
    """What the README's first pipeline writes."""
    found = Written(broker.bootstrap_servers, topic_name("whereabouts"))
    jfk, mia, lga = (json.dumps({"at": place}).encode() for place in ("JFK", "MIA", "LGA"))
    found.batch([(0, b"N1", jfk, 0, 1), (0, b"N2", lga, 1, 1)], 2)
    found.batch([(0, b"N1", jfk, 2, -1), (0, b"N1", mia, 2, 1), (0, b"N2", lga, 3, -1)], 4)
    return found


@pytest.fixture
def ours(server: Postgres, written: Written, tmp_path: Path) -> Path:
    """The file of the docs, with our addresses."""
    text = named("deliver-1").text
    for theirs, our in [
        ("localhost:9092", written.servers),
        ("host=127.0.0.1", f"host=127.0.0.1 port={server.port}"),
        ("from: whereabouts", f"from: {written.name}"),
    ]:
        assert theirs in text
        text = text.replace(theirs, our)
    path = tmp_path / "shop.yaml"
    path.write_text(text)
    return path


def deliver(*words: str) -> subprocess.Popen[str]:
    ikebana = str(Path(sys.executable).with_name("ikebana"))
    return subprocess.Popen(
        [ikebana, "deliver", *words], stderr=subprocess.PIPE, text=True, env={**os.environ}
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=patient(120))
    return process.returncode, said


def rows(server: Postgres) -> list[Any]:
    query = "SELECT to_jsonb(w) FROM whereabouts AS w ORDER BY tail;"
    return [json.loads(line) for line in server.run(f"\\connect shop\n{query}").splitlines()]


def test_the_tables_are_the_collections(server: Postgres, written: Written, ours: Path) -> None:
    """Once, again, and while it goes on; a second instance ends the first one with status 3."""
    assert ended(deliver(str(ours), "--once"))[0] == 0
    assert rows(server) == [{"tail": "N1", "at": "MIA"}]
    code, said = ended(deliver(str(ours), "--once"))
    assert (code, "delivered 0 updates, frontier 4" in said) == (0, True), said

    first = deliver(str(ours), "--http", "127.0.0.1:0")
    assert first.stderr is not None
    url = first.stderr.readline().partition("serving ")[2].partition("/metrics")[0]
    written.batch([(0, b"N3", json.dumps({"at": "SFO"}).encode(), 5, 1)], 6)
    wait_until(lambda: len(rows(server)) == 2, 60, "the new row")
    assert ask_json(f"{url}/ready")[1]["upper"] == 6
    assert 'ikebana_delivered_updates_total{sink="shop"} 1.0' in ask(f"{url}/metrics")[1]

    second = deliver(str(ours))
    wait_until(lambda: generation(server) == 4, 60, "the second instance")
    written.batch([(0, b"N3", json.dumps({"at": "SFO"}).encode(), 7, -1)], 8)
    code, said = ended(first)
    assert (code, "newer instance" in said) == (3, True), said
    wait_until(lambda: len(rows(server)) == 1, 60, "the row that has gone")
    second.terminate()
    assert ended(second)[0] == 0


def generation(server: Postgres) -> int:
    found = server.run("\\connect shop\nSELECT generation FROM ikebana_sinks;")
    return int(found.split()[-1])


def test_a_database_that_is_not_there_is_waited_for(server: Postgres, ours: Path) -> None:
    """A line says so, and SIGTERM ends it meanwhile."""
    ours.write_text(ours.read_text().replace("dbname=shop", "dbname=later"))
    process = deliver(str(ours))
    assert process.stderr is not None
    line = process.stderr.readline()
    process.terminate()

    assert 'sink "shop" waits: ' in line
    assert '"later" does not exist' in line
    assert ended(process)[0] == 0


def test_the_documented_sink_counts(
    written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to what is closed, however often it is called."""
    monkeypatch.chdir(tmp_path)
    module: dict[str, Any] = {}
    exec(compile(named("deliver-7").text, "deliver-2", "exec"), module)

    for _ in range(2):
        module["totals"](written.name, bootstrap_servers=written.servers)

    assert counted(tmp_path) == [(written.name, 1)]


def counted(folder: Path) -> list[tuple[str, int]]:
    import sqlite3

    return sqlite3.connect(folder / "totals.db").execute("SELECT * FROM total").fetchall()
