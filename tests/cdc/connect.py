"""A real Kafka Connect worker, standalone, with Debezium's connector for PostgreSQL.

Its jars come from Maven Central into the cache folder, once, as those of the embedded
broker do, and its Kafka is of the broker's version.
"""

import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

from cdc import child
from cdc.fetched import Unavailable
from cdc.postgres import Postgres
from ikebana.arrangements.errors import BrokerError, IkebanaError
from ikebana.processor.java import find_java
from ikebana.processor.kafka.broker import free_port
from ikebana.processor.kafka.broker_jars import (
    KAFKA_VERSION,
    end_of_log,
    jars_folder,
    once,
    retrieve,
)

JSON = "org.apache.kafka.connect.json.JsonConverter"
DEBEZIUM_VERSION = "3.6.3.Final"
_FETCH_TIMEOUT_S = 600

# Debezium is built against a later Kafka; a worker always brings its own.
_IVY_FILE = f"""\
<ivy-module version="2.0">
  <info organisation="ikebana" module="connect"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="connect-runtime" rev="{KAFKA_VERSION}"
                conf="default"/>
    <dependency org="org.apache.kafka" name="connect-json" rev="{KAFKA_VERSION}"
                conf="default"/>
    <dependency org="io.debezium" name="debezium-connector-postgres" rev="{DEBEZIUM_VERSION}"
                conf="default">
      <exclude org="org.apache.kafka"/>
    </dependency>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.4"
                conf="default"/>
  </dependencies>
</ivy-module>
"""

_LOG4J_FILE = """\
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = stdout
"""

_JVM_OPTIONS = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dlog4j2.configurationFile=log4j2.properties",
    # Debezium reads infinite dates in the local time zone.
    "-Duser.timezone=UTC",
)


@dataclass(frozen=True)
class Worker:
    """A Connect worker with its connectors."""

    process: subprocess.Popen[bytes]
    url: str
    connectors: tuple[str, ...]
    log_file: Path

    def check(self) -> None:
        """Fail, with the reason, if the worker has ended or a task of its has failed."""
        log = end_of_log(self.log_file)
        assert self.process.poll() is None, f"Connect has ended:\n{log}"
        for name in self.connectors:
            try:
                with urllib.request.urlopen(f"{self.url}/{name}/status", timeout=10) as answer:
                    status = json.load(answer)
            except (urllib.error.URLError, OSError):
                continue  # not started yet
            for part in (status["connector"], *status["tasks"]):
                assert part["state"] != "FAILED", f"{name}: {part.get('trace')}\n{log}"


@contextmanager
def running(
    servers: str, database: Postgres, connectors: Mapping[str, Mapping[str, str]]
) -> Iterator[Worker]:
    """Run a worker with a connector for each name, which is its topics' prefix too.

    Raises:
        Unavailable: Java is missing, or the jars could not be fetched.
    """
    java, lib = installed()
    folder = Path(tempfile.mkdtemp(prefix="ikebana-connect-"))
    try:
        port = free_port()
        _write(folder / "log4j2.properties", _LOG4J_FILE)
        _write(folder / "worker.properties", _worker(servers, port))
        files = []
        for name, settings in connectors.items():
            files.append(f"{name}.properties")
            _write(folder / files[-1], {**_connector(name, database), **settings})
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        command = [str(java), *_JVM_OPTIONS, "-cp", f"{lib}/*", main, "worker.properties", *files]
        log = folder / "connect.log"
        # What it has not flushed nobody needs: offsets are as temporary as the rest.
        with child.running(command, folder, log, end_by=SIGKILL) as process:
            url = f"http://127.0.0.1:{port}/connectors"
            yield Worker(process, url, tuple(connectors), log)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def installed() -> tuple[Path, Path]:
    """Java, and the folder of the jars, which are fetched the first time (41 MB).

    Raises:
        Unavailable: Java is missing, or the jars could not be fetched.
    """
    try:
        java = find_java(os.environ)
        return java, _jars(java)
    except IkebanaError as err:
        # The first line is the reason, the others are the end of a log.
        raise Unavailable(f"no Debezium: {str(err).splitlines()[0]}") from err


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


def _connector(name: str, database: Postgres) -> dict[str, str]:
    return {
        "name": name,
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


def _jars(java: Path) -> Path:
    name = f"debezium-{DEBEZIUM_VERSION}-kafka-{KAFKA_VERSION}"
    return once(
        jars_folder().with_name(name), lambda private, log_file: _fetch(java, private, log_file)
    )


def _fetch(java: Path, folder: Path, log_file: Path) -> None:
    status = retrieve(java, _IVY_FILE, folder, log_file, _FETCH_TIMEOUT_S)
    wanted = folder / "lib" / f"debezium-connector-postgres-{DEBEZIUM_VERSION}.jar"
    if status != 0 or not wanted.exists():
        raise BrokerError(
            f"could not fetch the jars of Debezium {DEBEZIUM_VERSION}: Ivy's status is {status}; "
            f"the end of {log_file}:\n{end_of_log(log_file)}"
        )
