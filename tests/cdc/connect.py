"""A real Kafka Connect worker, standalone, with Debezium's connectors.

Its Kafka is of the broker's version.  Each connector has jars, and so a worker, of its own:
they are not all there in one version.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdc import child, registry
from cdc.child import Child
from cdc.fetched import LOGGING, WORKER, Jar, fetched, java
from cdc.mariadb import MariaDb
from cdc.postgres import Postgres
from ikebana.processor.kafka.broker import KAFKA_VERSION, LOG4J_FILE, free_port

JSON = "org.apache.kafka.connect.json.JsonConverter"
AVRO = "io.apicurio.registry.utils.converter.AvroConverter"
# Settings of a converter count only where the converter is named.
WITHOUT_SCHEMAS = {
    "key.converter": JSON,
    "key.converter.schemas.enable": "false",
    "value.converter": JSON,
    "value.converter.schemas.enable": "false",
    "decimal.handling.mode": "string",
}
# The sink of Debezium writes to databases by JDBC.
VERSIONS = {"postgres": "3.6.3.Final", "mariadb": "3.5.0.Final", "jdbc": "3.5.0.Final"}

_JVM_OPTIONS = child.java_options(384)
_PROPERTIES = (
    "-Dlog4j2.configurationFile=log4j2.properties",
    # Debezium reads infinite dates in the local time zone.
    "-Duser.timezone=UTC",
)


@dataclass(frozen=True)
class Worker:
    """A Connect worker with its connectors."""

    server: Child
    url: str
    connectors: tuple[str, ...]

    def check(self) -> None:
        """Fail, with the reason, if the worker has ended or a task of its has failed."""
        self.server.check()
        for name in self.connectors:
            try:
                with urllib.request.urlopen(f"{self.url}/{name}/status", timeout=10) as answer:
                    status = json.load(answer)
            except (urllib.error.URLError, OSError):
                continue  # not started yet
            for part in (status["connector"], *status["tasks"]):
                assert part["state"] != "FAILED", (
                    f"{name}: {part.get('trace')}\n{self.server.end_of_log()}"
                )


@contextmanager
def running(
    servers: str, kind: str, connectors: Mapping[str, Mapping[str, str]]
) -> Iterator[Worker]:
    """Run a worker with connectors of a kind of database.

    Raises:
        Unavailable: Java is missing, or the jars could not be fetched.
    """
    with of_jars(servers, [installed(kind)], connectors, _JVM_OPTIONS) as worker:
        yield worker


@contextmanager
def of_jars(
    servers: str,
    folders: Iterable[Path],
    connectors: Mapping[str, Mapping[str, str]],
    options: Sequence[str],
) -> Iterator[Worker]:
    """Run a worker with the jars of some folders, and options of its JVM.

    Raises: Unavailable, if Java is missing.
    """
    with child.temporary_folder("connect") as folder:
        port = free_port()
        _write(folder / "log4j2.properties", LOG4J_FILE)
        _write(folder / "worker.properties", _worker(servers, port))
        files = []
        for name, settings in connectors.items():
            files.append(f"{name}.properties")
            _write(folder / files[-1], {"name": name, **settings})
        command = [
            *(str(java()), *options, *_PROPERTIES),
            *("-cp", ":".join(f"{jars}/*" for jars in folders)),
            *("org.apache.kafka.connect.cli.ConnectStandalone", "worker.properties", *files),
        ]
        with child.running("Connect", command, folder) as server:
            url = f"http://127.0.0.1:{port}/connectors"
            yield Worker(server, url, tuple(connectors))


def installed(kind: str) -> Path:
    """The folder of the jars, which are fetched the first time (48 MB for each database).

    Raises:
        Unavailable: Java is missing, or the jars could not be fetched.
    """
    name, kafka = f"debezium-connector-{kind}", ("org.apache.kafka",)
    connector = Jar("io.debezium", name, VERSIONS[kind], kafka)
    converter = "apicurio-registry-utils-converter"
    parts = [*WORKER, connector, Jar("io.apicurio", converter, registry.VERSION, kafka), LOGGING]
    versions = f"{VERSIONS[kind]}-apicurio-{registry.VERSION}-kafka-{KAFKA_VERSION}"
    return fetched(f"{name}-{versions}", parts)


def _write(path: Path, text: str | Mapping[str, str]) -> None:
    if not isinstance(text, str):
        text = "".join(f"{key}={value}\n" for key, value in text.items())
    path.write_text(text)


def _worker(servers: str, port: int) -> dict[str, str]:
    return {
        "bootstrap.servers": servers,
        "listeners": f"http://127.0.0.1:{port}",
        "offset.storage.file.filename": "offsets",
        "offset.flush.interval.ms": "1000",
        "plugin.discovery": "service_load",
        "key.converter": JSON,
        "value.converter": JSON,
    }


def postgres_connector(name: str, database: Postgres) -> dict[str, str]:
    """A connector whose topics begin with its name."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": str(database.port),
        "database.user": "postgres",
        "database.password": "",
        "database.dbname": "postgres",
        "topic.prefix": name,
        "slot.name": name,
        "publication.autocreate.mode": "disabled",
        # Truncates are left out by default.
        "skipped.operations": "none",
        "poll.interval.ms": "50",
    }


def mariadb_connector(name: str, database: MariaDb, schema: str, number: int) -> dict[str, str]:
    """A connector whose topics begin with its name; its number is another one for each."""
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(database.port),
        "database.user": "debezium",
        "database.password": "debezium",
        "database.ssl.mode": "disable",
        "database.server.id": str(number),
        "database.include.list": schema,
        "topic.prefix": name,
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": f"{name}.history",
        "skipped.operations": "none",
        "poll.interval.ms": "50",
    }


def avro(url: str, *, headers: bool) -> dict[str, str]:
    """Keys and values in Avro, ids in headers or as Confluent's serializer frames them."""
    settings = {
        "": AVRO,
        ".apicurio.registry.url": url,
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.find-latest": "true",
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.use-id": "contentId",
        ".apicurio.registry.headers.enabled": str(headers).lower(),
    }
    return {
        f"{part}.converter{name}": value
        for part in ("key", "value")
        for name, value in settings.items()
    }


def jdbc_sink(database: Postgres, topics: str) -> dict[str, str]:
    """A sink that makes a table of each topic, and keeps its rows by the key's columns."""
    return {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "connection.url": f"jdbc:postgresql://127.0.0.1:{database.port}/postgres",
        "connection.username": "postgres",
        "connection.password": "none",
        "topics": topics,
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
    }
