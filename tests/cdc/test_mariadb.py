"""From a real MariaDB through the real producers: what we show is what its tables are.

Debezium writes JSON, and Avro with a real registry, in two framings; Maxwell and Canal
write their own JSON.  Everything goes through one pipeline in one run.  What they say of a
fixed scenario is stored in `tests/golden/mariadb_captured`, for the codecs' own tests;
IKEBANA_GOLDEN=write stores it anew.  What cannot be had here is skipped by its name.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cdc import decoded, every_mariadb, mariadb, store
from cdc.declared import declared
from cdc.decoded import changes, codec_of, folded
from cdc.fetched import Unavailable
from cdc.store import Store, topic_of
from cdc.telling import Row, told
from ikebana.processor.kafka.registry import Registry
from support import recorded_mariadb
from support.output_judge import committed
from support.pipeline_processes import ends_of
from support.recorded_mariadb import AVRO, CONNECTORS, PRODUCERS, Recorded, Schemas
from support.waiting import patient

pytestmark = [pytest.mark.cdc, pytest.mark.kafka, pytest.mark.timeout(900)]

SEED = 20
# Maxwell says nothing of a TRUNCATE, so that what it says of `goods` is not the table.
SHOWN = [
    (producer, table)
    for producer in PRODUCERS
    for table in ("goods", "orders")
    if (producer, table) != ("maxwell", "goods")
]
FORMATS = {
    "json": "debezium-json",
    "headers": "debezium-avro",
    "confluent": "debezium-avro",
    "maxwell": "maxwell",
    "canal": "canal",
}
OPTIONS = {"headers": {"options": {"framing": "headers"}}}
# What is another one in each run.
_OTHER = {
    *("ts_ms", "ts_us", "ts_ns", "pos", "file", "thread", "__debezium.context.runId"),
    *("ts", "xid", "xoffset", "es", "_uuid"),
    *("apicurio.key.contentId", "apicurio.value.contentId"),
}


@pytest.fixture(scope="module")
def captured(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Servers start at the same time; of them the broker and the registry go on."""
    try:
        store.require()
        with ExitStack() as stack, ThreadPoolExecutor() as pool:
            starting = pool.submit(stack.enter_context, mariadb.running())
            servers = request.getfixturevalue("broker").bootstrap_servers
            apicurio = request.getfixturevalue("apicurio")
            database = starting.result()
            yield stack.enter_context(store.captured(servers, apicurio, database, SEED))
    except Unavailable as reason:
        pytest.skip(str(reason))


def present(captured: Store, producer: str) -> None:
    """Skip what needs a producer that cannot be had here."""
    if producer in captured.missing:
        pytest.skip(captured.missing[producer])


@pytest.fixture(scope="module")
def schemas(captured: Store) -> Schemas:
    """The writers' schemas of the scenario's messages, as the registry has them."""
    numbers = set()
    for producer in AVRO:
        for message in _messages(captured, producer):
            numbers |= set(recorded_mariadb.schema_ids(message))
    return Schemas({number: _schema(captured, number) for number in sorted(numbers)})


@pytest.mark.parametrize("producer", PRODUCERS)
def test_producers_say_what_is_stored(captured: Store, schemas: Schemas, producer: str) -> None:
    """The codecs' own tests read messages as they are written."""
    present(captured, producer)
    found = _messages(captured, producer)
    if os.environ.get("IKEBANA_GOLDEN") == "write":
        recorded_mariadb.record(producer, found)
        recorded_mariadb.record_tables(
            {name: captured.tables[name] for name in ("samples", "emptied")}
        )
        if producer in AVRO:
            recorded_mariadb.record_schemas(schemas)

    there = recorded_mariadb.messages_of(producer)
    assert _told(producer, found, schemas) == _told(producer, there, recorded_mariadb.schemas())


@pytest.mark.parametrize("name", ["transaction", "ddl"])
def test_debezium_says_of_transactions_and_ddl_what_is_stored(captured: Store, name: str) -> None:
    """A DDL statement and a TRUNCATE begin a transaction that has no end."""
    found = _transactions(captured) if name == "transaction" else _ddl(captured)
    if os.environ.get("IKEBANA_GOLDEN") == "write":
        recorded_mariadb.record(name, found)

    assert _told("json", found) == _told("json", recorded_mariadb.messages_of(name))


@pytest.mark.parametrize(("producer", "table"), SHOWN)
def test_what_a_producer_says_comes_to_the_table(
    captured: Store, producer: str, table: str
) -> None:
    """Through the codec and, for Avro, the reader of registries; no Spark is needed."""
    present(captured, producer)
    topic = topic_of(producer, table)
    messages = committed(captured.servers, topic)
    registry = Registry({"url": captured.registry.url}, 30)
    begun = time.monotonic()
    parts = ((each.key(), each.value(), each.headers()) for each in messages)
    rows = folded(changes(codec_of(producer, table, registry), parts))
    seconds = time.monotonic() - begun

    expected = [told(producer, row) for row in captured.tables[table]]
    assert len(expected) > 20
    assert sorted(rows.values(), key=_key) == sorted(expected, key=_key)
    print(
        f"{producer}, {table}: {len(rows)} rows are the table's, from {len(messages)} messages "
        f"in {topic} read in {seconds:.1f} s; {captured.seconds[topic]:.1f} s behind the database"
    )


@pytest.mark.parametrize("producer", [*PRODUCERS, store.PLAIN])
def test_every_type_is_read_as_new_alone_declares_it(
    captured: Store, producer: str, tmp_path: Path
) -> None:
    """The rows are those of the database, but for what a producer does not write."""
    present(captured, producer)
    topic, table = topic_of(producer, "everything"), ("--table", "store.everything")
    messages = committed(captured.servers, topic)
    found = declared(
        tmp_path,
        *(topic, messages, captured.servers, captured.registry.url),
        *(() if producer in (*CONNECTORS, store.PLAIN) else table),
    )
    rows = captured.everything
    if producer == "maxwell":
        rows = {number: row for number, row in rows.items() if number > 10}

    assert found.rows.keys() == rows.keys()
    for number, row in rows.items():
        there = every_mariadb.comparable(found.rows[number])
        assert there == every_mariadb.told(producer, number, row)


@dataclass(frozen=True)
class Shown:
    """What the pipeline's outputs have in the end, and how long the run took."""

    rows: dict[tuple[str, str], Counter[bytes]]
    seconds: float


@pytest.fixture(scope="module")
def shown(captured: Store, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """One run of one pipeline for all producers."""
    folder = tmp_path_factory.mktemp("store")
    sources = [each for each in SHOWN if each[0] not in captured.missing]
    path = folder / "pipeline.json"
    path.write_text(json.dumps(_pipeline(captured, sources, folder)))
    command = [str(Path(sys.executable).with_name("ikebana")), "run", str(path), "--once"]
    begun = time.monotonic()
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(folder), "TMPDIR": str(folder)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=patient(300), check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    seconds = time.monotonic() - begun
    servers = captured.servers
    assert ends_of(servers, ["store.errors"]), "no error topic"
    assert [message.value() for message in committed(servers, "store.errors")] == []
    rows: dict[tuple[str, str], Counter[bytes]] = {}
    for producer, table in sources:
        found: Counter[bytes] = Counter()
        for message in committed(servers, f"{producer}.{table}.now"):
            found[message.value()] += int(dict(message.headers())["diff"])
        rows[producer, table] = found
    return Shown(rows, seconds)


@pytest.mark.spark
@pytest.mark.parametrize(("producer", "table"), SHOWN)
def test_what_is_shown_is_the_table(
    captured: Store, shown: Shown, producer: str, table: str
) -> None:
    """After inserts, updates, changed keys, deletes, truncates and added columns."""
    present(captured, producer)
    counts = shown.rows[producer, table]
    expected = [told(producer, row) for row in captured.tables[table]]

    assert set(counts.values()) <= {0, 1}
    found = [decoded.row(data) for data in +counts]
    assert len(expected) > 20
    assert sorted(found, key=_key) == sorted(expected, key=_key)
    topic = topic_of(producer, table)
    messages = sum(ends_of(captured.servers, [topic]).values())
    print(
        f"{producer}, {table}: {len(found)} rows are the table's, from {messages} messages in "
        f"{topic}; {captured.seconds[topic]:.1f} s behind the database, run {shown.seconds:.0f} s"
    )


def _key(row: Row) -> Any:
    return row.get("region"), row.get("number"), row.get("id")


def _pipeline(captured: Store, sources: Sequence[tuple[str, str]], folder: Path) -> dict[str, Any]:
    return {
        "pipeline": "store",
        "inputs": {
            f"{producer}_{table}": {
                "topic": topic_of(producer, table),
                "format": FORMATS[producer],
                **OPTIONS.get(producer, {}),
                **({} if producer in CONNECTORS else {"tables": rf"store\.{table}"}),
            }
            for producer, table in sources
        },
        "operators": {
            f"{producer}_{table}_now": {"upsert": f"{producer}_{table}"}
            for producer, table in sources
        },
        "outputs": {
            f"{producer}_{table}": {
                "from": f"{producer}_{table}_now",
                "topic": f"{producer}.{table}.now",
            }
            for producer, table in sources
        },
        "kafka": {"bootstrap.servers": captured.servers},
        "registry": {"url": captured.registry.url},
        "run": {
            "checkpoint": str(folder / "checkpoint"),
            "local_directory": str(folder / "local"),
            "shards": 2,
            "master": "local[2]",
            "driver_memory": "512m",
        },
    }


def _messages(captured: Store, producer: str) -> list[Recorded]:
    """What a producer says of the scenario's tables, from before it to its end."""
    topics = dict.fromkeys(topic_of(producer, table) for table in ("samples", "emptied"))
    avro = producer in AVRO
    found = [Recorded.of(each, avro=avro) for name in topics for each in captured.messages[name]]
    if producer in CONNECTORS:
        return found
    return [each for each in found if _table(each) in ("samples", "emptied")]


def _table(message: Recorded) -> str | None:
    told = json.loads(bytes(message.value))
    if told["database"] != store.SCHEMA:
        return None
    return str(told["table"])


def _transactions(captured: Store) -> list[Recorded]:
    """Those of the scenario; others are Maxwell's own."""
    found = [Recorded.of(each, avro=False) for each in captured.messages["json.transaction"]]
    own = f'"{store.DOMAIN}-'.encode()
    return [message for message in found if own in bytes(message.value)]


def _ddl(captured: Store) -> list[Recorded]:
    found = [Recorded.of(each, avro=False) for each in captured.messages["json"]]
    return [each for each in found if b"ALTER TABLE" in bytes(each.value)]


def _schema(captured: Store, number: int) -> Any:
    with urllib.request.urlopen(f"{captured.registry.url}/schemas/ids/{number}") as answer:
        return json.loads(json.load(answer)["schema"])


def _told(producer: str, messages: Sequence[Recorded], schemas: Schemas | None = None) -> Any:
    """Messages without what is another one in each run."""
    found = []
    for message in messages:
        if producer in AVRO:
            assert schemas is not None
            key, value = schemas.plain(message)
        else:
            key, value = (json.loads(bytes(part)) for part in (message.key, message.value))
        if producer == "canal":
            value["id"] = "…"  # a batch's, which has what had come by then
        if isinstance(key, str):
            key = "…"  # Maxwell's of a DDL statement is a new UUID
        found.append([message.topic, _without_other(key), _without_other(value)])
        found[-1].append({n: "…" if n in _OTHER else v for n, v in message.headers.items()})
    return found


def _without_other(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: "…" if name in _OTHER else _without_other(v) for name, v in data.items()}
    return [_without_other(item) for item in data] if isinstance(data, list) else data
