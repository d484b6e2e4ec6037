"""Sinks beside each other, from topics of one broker: changes a second, and CPU of a change.

    PYTHONPATH=tests python bench/deliver.py [--changes 200000] [--rounds 3] [--only NAME,...]

The rows are inserted, and then changed in turns.  ikebana reads them as updates, the others as
Debezium's messages in JSON with schemas, all from one partition.  A sink has been started, and has
delivered one row, when its time and its CPU begin to count; they end when the last change is in
the target.  CPU is that of the sink's processes; that of PostgreSQL stands beside it.  PostgreSQL
syncs nothing; tables of files are on the local disk, those of Iceberg in one REST catalog, whose
CPU does not count.

* `ikebana-TARGET-MODE`: `ikebana deliver`, batches of 10,000 changes, exactly once.
* `connect-postgres`: Debezium's JDBC sink in Kafka Connect, upserts in batches of 5,000, the last
  of each key, at least once.
* `flink-postgres`: Flink's JDBC connector, the same batches, checkpoints each second.
* `connect-iceberg`: Iceberg's sink in Kafka Connect, which can only add rows: to be compared with
  `ikebana-iceberg-changes`.  A commit each second.

Iceberg's connector of Flink (1.10.1, for Flink 2.0) commits nothing under Flink 2.3: each of its
checkpoints is aborted.
"""

import argparse
import functools
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import flink
import markdown
import psutil
import pyspark
import yaml
from confluent_kafka import Producer

from cdc import child, connect, postgres, rest_catalog
from cdc.fetched import LOGGING, WORKER, Archive, Jar, fetched
from cdc.postgres import Postgres
from ikebana.delivering.sink import MODES
from ikebana.processor.kafka import broker
from ikebana.processor.kafka.broker import KAFKA_VERSION, jars_folder
from support.pipeline_processes import create
from support.waiting import wait_until
from support.written_topics import Row, Written

_BATCH = 10_000
_COLUMNS = {"id": "BIGINT", "name": "VARCHAR", "price": "DOUBLE"}
# The row that comes first, and the one that comes last.
_FIRST, _LAST = -1, -2
_WAITS_S = 300.0
_JDBC = "4.0.0-2.0"
_ICEBERG = "1.10.1"
_ROWS_A_STATEMENT = "5000"
_SCHEMA = {
    "type": "struct",
    "optional": False,
    "name": "shop.orders.Envelope",
    "fields": [
        *(
            {
                "type": "struct",
                "optional": True,
                "name": "shop.orders.Value",
                "field": part,
                "fields": [
                    {"type": "int64", "optional": False, "field": "id"},
                    {"type": "string", "optional": True, "field": "name"},
                    {"type": "double", "optional": True, "field": "price"},
                ],
            }
            for part in ("before", "after")
        ),
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ],
}
_KEY_SCHEMA = {
    "type": "struct",
    "optional": False,
    "name": "shop.orders.Key",
    "fields": [{"type": "int64", "optional": False, "field": "id"}],
}


class Change(NamedTuple):
    """A row gets another version; None before it is there."""

    number: int
    before: int | None
    after: int

    def row(self, version: int | None) -> dict[str, object] | None:
        """The row of a version."""
        if version is None:
            return None
        return {"id": self.number, "name": f"frank {version}", "price": version + 0.5}


def changes(rows: int, count: int) -> Iterator[Change]:
    """Insert rows, and then change them in turns."""
    for number in range(rows):
        yield Change(number, None, 0)
    for at in range(count):
        version = at // rows
        yield Change(at % rows, version, version + 1)
    yield Change(_LAST, None, 0)


class Topics:
    """The same changes as updates, and as messages of Debezium."""

    def __init__(self, servers: str, name: str) -> None:
        self.servers = servers
        self.updates = Written(servers, f"{name}_updates")
        self.messages = f"{name}_messages"
        create(servers, self.messages, 1)

    def write_updates(self, some: Iterator[Change]) -> None:
        """Write and close batches."""
        rows: list[Row] = []
        for each in some:
            key = json.dumps({"id": each.number}).encode()
            for version, diff in ((each.before, -1), (each.after, 1)):
                if (row := each.row(version)) is not None:
                    value = json.dumps({name: row[name] for name in ("name", "price")})
                    rows.append((0, key, value.encode(), self.updates.upper, diff))
            if len(rows) >= 2 * _BATCH:
                self.updates.batch(rows, self.updates.upper + 1)
                rows = []
        if rows:
            self.updates.batch(rows, self.updates.upper + 1)

    def write_messages(self, some: Iterator[Change]) -> None:
        """Write messages with schemas, as Debezium's JSON has them."""
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 20})
        for each in some:
            key = {"schema": _KEY_SCHEMA, "payload": {"id": each.number}}
            payload = {
                "before": each.row(each.before),
                "after": each.row(each.after),
                "op": "c" if each.before is None else "u",
                "ts_ms": 0,
            }
            value = {"schema": _SCHEMA, "payload": payload}
            producer.produce(self.messages, json.dumps(value), json.dumps(key))
            producer.poll(0)
        producer.flush(60)


class Target(NamedTuple):
    """Where rows go: its settings for a sink of ikebana, and whether a row is there.

    `place` is its URL for Java: of JDBC, or of a catalog.
    """

    settings: Mapping[str, object]
    has: Callable[[int], bool]
    place: str = ""
    server: Postgres | None = None


@contextmanager
def database(_: Path) -> Iterator[Target]:
    """A PostgreSQL with an empty table."""
    with postgres.running() as server:
        server.run("CREATE TABLE orders (id bigint PRIMARY KEY, name text, price float8);")
        place = f"host={server.folder} port={server.port} user=postgres dbname=postgres"

        def has(number: int) -> bool:
            # `ikebana` makes the table of changes itself.
            if not server.run("SELECT to_regclass('orders');").strip():
                return False
            query = f"SELECT count(*) FROM orders WHERE id = {number};"
            return server.run(query).strip() == "1"

        url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres?reWriteBatchedInserts=true"
        yield Target({"postgres": {"connection": place}}, has, url, server)


@contextmanager
def iceberg(folder: Path) -> Iterator[Target]:
    """A REST catalog."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.manifest import ManifestContent

    with rest_catalog.running(folder / "warehouse") as catalog:
        loaded = load_catalog("lake", **catalog)
        loaded.create_namespace("shop")

        def has(number: int) -> bool:
            try:
                table = loaded.load_table("shop.orders")
            except NoSuchTableError:
                return False
            if (snapshot := table.current_snapshot()) is None:
                return False
            # PyIceberg reads no tables with equality deletes. But the rows that are waited for
            # have the least ids, and so are the bounds of a file.
            column = table.schema().find_field("id").field_id
            return any(
                int.from_bytes(entry.data_file.lower_bounds[column], "little", signed=True)
                <= number
                for manifest in snapshot.manifests(table.io)
                if manifest.content == ManifestContent.DATA
                for entry in manifest.fetch_manifest_entry(table.io)
            )

        settings = {"iceberg": {"catalog": catalog, "namespace": "shop"}}
        yield Target(settings, has, catalog["uri"])


@contextmanager
def delta(folder: Path) -> Iterator[Target]:
    """A folder."""
    from deltalake import DeltaTable
    from pyarrow import compute

    def has(number: int) -> bool:
        if not DeltaTable.is_deltatable(f"{folder}/orders"):
            return False
        found = DeltaTable(f"{folder}/orders").to_pyarrow_dataset()
        return bool(found.count_rows(compute.field("id") == number) == 1)

    yield Target({"delta": {"folder": str(folder)}}, has)


@contextmanager
def parquet(folder: Path) -> Iterator[Target]:
    """A folder."""
    from pyarrow import compute, dataset

    def has(number: int) -> bool:
        files = sorted(str(file) for file in (folder / "orders").glob("*.parquet"))
        if not files:
            return False
        return int(dataset.dataset(files).count_rows(compute.field("id") == number)) == 1

    yield Target({"parquet": {"folder": str(folder)}}, has)


TARGETS = {"postgres": database, "iceberg": iceberg, "delta": delta, "parquet": parquet}


@contextmanager
def ikebana(topics: Topics, target: Target, folder: Path, mode: str) -> Iterator[int]:
    """Run `ikebana deliver`."""
    table = {"from": topics.updates.name, "mode": mode, "columns": _COLUMNS}
    if mode != "changes":
        table["key"] = "id"
    if target.server is not None and mode != "current":
        target.server.run("DROP TABLE orders;")
    document = {
        "kafka": {"bootstrap.servers": topics.servers},
        "deliver": {"measured": {**target.settings, "tables": {"orders": table}}},
    }
    path = folder / "sink.yaml"
    path.write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "ikebana", "deliver", str(path)]
    with child.running("ikebana", command, folder) as running:
        yield running.process.pid


@contextmanager
def kafka_connect(
    topics: Topics, lib: Path, settings: Mapping[str, str], *others: Path
) -> Iterator[int]:
    """Run one sink in a worker, with as many records a batch as ikebana has a statement."""
    sink = {
        **settings,
        "topics": topics.messages,
        "consumer.override.max.poll.records": _ROWS_A_STATEMENT,
    }
    with connect.of_jars(topics.servers, [lib, *others], {"sink": sink}, ["-Xmx1g"]) as worker:
        yield worker.server.process.pid


def connect_postgres(topics: Topics, target: Target, _: Path) -> AbstractContextManager[int]:
    """Run Debezium's JDBC sink."""
    assert target.server is not None
    settings = {
        **connect.jdbc_sink(target.server, topics.messages),
        "connection.url": target.place,
        "collection.name.format": "orders",
        "batch.size": _ROWS_A_STATEMENT,
        "use.reduction.buffer": "true",
    }
    return kafka_connect(topics, connect.installed("jdbc"), settings)


def connect_iceberg(topics: Topics, target: Target, _: Path) -> AbstractContextManager[int]:
    """Run Iceberg's sink over the rows in the messages."""
    kafka = ("org.apache.kafka",)
    transforms = Jar("org.apache.kafka", "connect-transforms", KAFKA_VERSION)
    parts = [
        Jar("org.apache.iceberg", name, _ICEBERG, kafka)
        for name in ("iceberg-kafka-connect", "iceberg-parquet")
    ]
    lib = fetched(f"iceberg-connect-{_ICEBERG}", [*WORKER, transforms, *parts, LOGGING])
    create(topics.servers, f"{topics.messages}_control", 1)
    settings = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": target.place,
        "iceberg.tables": "shop.orders",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.control.topic": f"{topics.messages}_control",
        "iceberg.control.commit.interval-ms": "1000",
        "iceberg.kafka.bootstrap.servers": topics.servers,
        "transforms": "row",
        "transforms.row.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
        "transforms.row.field": "after",
    }
    return kafka_connect(topics, lib, settings, _hadoop())


@contextmanager
def flink_postgres(topics: Topics, target: Target, folder: Path) -> Iterator[int]:
    """Run Flink's JDBC connector."""
    parts: list[Archive | Jar] = [
        Archive("org.apache.flink", f"flink-connector-jdbc-{name}", _JDBC, kind="jar")
        for name in ("core", "postgres")
    ]
    parts.append(Jar("org.postgresql", "postgresql", "42.7.8"))
    given = {"servers": topics.servers, "topic": topics.messages, "url": target.place}
    sql = flink.statements("deliver", given).split(";")
    lib = fetched(f"flink-jdbc-{_JDBC}", parts)
    with child.running("Flink", flink.command(folder, "deliver", sql, 1, lib), folder) as running:
        yield running.process.pid


def _hadoop() -> Path:
    """A folder of Hadoop's client, which Iceberg writes files with; Spark has its jars."""
    folder = jars_folder().with_name("hadoop-client")
    folder.mkdir(parents=True, exist_ok=True)
    for jar in (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"):
        if not (folder / jar.name).exists():
            (folder / jar.name).symlink_to(jar)
    return folder


SYSTEMS: Mapping[str, Callable[[Topics, Target, Path], AbstractContextManager[int]]] = {
    **{
        f"ikebana-{target}-{mode}": functools.partial(ikebana, mode=mode)
        for target in TARGETS
        for mode in (MODES if target != "parquet" else ["changes"])
    },
    "connect-postgres": connect_postgres,
    "flink-postgres": flink_postgres,
    "connect-iceberg": connect_iceberg,
}


class Measured(NamedTuple):
    """The cost of all changes."""

    system: str
    changes: int
    wall_s: float
    sink_s: float
    database_s: float

    def cells(self) -> list[str]:
        """The cells of a row."""
        return [
            self.system,
            markdown.cell(self.changes / self.wall_s),
            markdown.cell(self.sink_s / self.changes * 1e6),
            markdown.cell(self.database_s / self.changes * 1e6) if self.database_s else "",
        ]


def measured(servers: str, name: str, topic: str, rows: int, count: int, folder: Path) -> Measured:
    """Run one system over new topics into a new target."""
    topics = Topics(servers, topic.replace("-", "_"))
    write = topics.write_updates if name.startswith("ikebana") else topics.write_messages
    with ExitStack() as stack:
        target = stack.enter_context(TARGETS[name.split("-")[1]](folder / "target"))
        write(iter([Change(_FIRST, None, 0)]))
        pid = stack.enter_context(SYSTEMS[name](topics, target, folder))
        _wait_for(target, _FIRST, name)
        server = None if target.server is None else target.server.pid
        begun_s, sink_s = time.monotonic(), _tree_s(pid)
        database_s = _tree_s(server) if server else 0.0
        write(changes(rows, count))
        _wait_for(target, _LAST, name)
        return Measured(
            name,
            rows + count + 1,
            time.monotonic() - begun_s,
            _tree_s(pid) - sink_s,
            _tree_s(server) - database_s if server else 0.0,
        )


def _wait_for(target: Target, number: int, name: str) -> None:
    """Wait until a row is there, without asking all the time."""
    pause = threading.Event()
    wait_until(lambda: pause.wait(0.2) or target.has(number), _WAITS_S, f"row {number} by {name}")


def _tree_s(pid: int) -> float:
    """The CPU seconds of a process and of all that it has started."""
    first = psutil.Process(pid)
    total = 0.0
    for process in (first, *first.children(recursive=True)):
        try:
            spent = process.cpu_times()
        except psutil.Error:
            continue
        total += spent.user + spent.system + spent.children_user + spent.children_system
    return total


def main() -> None:
    """Measure each system in turn, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--only", default=",".join(SYSTEMS), help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--rounds", type=int, default=1)
    asked = parser.parse_args()
    found = []
    with broker.running() as running:
        for number in range(asked.rounds):
            for name in asked.only.split(","):
                with tempfile.TemporaryDirectory(prefix="ikebana-bench-") as folder:
                    (Path(folder) / "target").mkdir()
                    servers, topic = running.bootstrap_servers, f"{name}_{number}"
                    found.append(
                        measured(servers, name, topic, asked.rows, asked.changes, Path(folder))
                    )
                print(*found[-1].cells(), flush=True)
    head = ("sink", "changes a second", "us of CPU a change", "of PostgreSQL")
    print(*markdown.table(head, [each.cells() for each in found]), sep="\n")


if __name__ == "__main__":
    main()
