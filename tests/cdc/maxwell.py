"""The real Maxwell, which reads a MariaDB and writes to Kafka.

Its last version that Maven Central has is made for MySQL 5.7, Java 8 and Kafka 1.0.  It
runs with the broker's Kafka client and a class that Java has no longer; MariaDB's settings
do the rest.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL

from cdc import child
from cdc.compiled import compiled, compiler
from cdc.fetched import Archive, fetched, java
from cdc.mariadb import MariaDb
from ikebana.processor.kafka.broker_jars import KAFKA_VERSION, end_of_log, jars

VERSION = "1.22.6"
_JVM_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dfile.encoding=UTF-8",
    "-Duser.timezone=UTC",
)
# It keeps its own state in the database `maxwell`.
_ACCOUNT = """
CREATE USER maxwell@'%' IDENTIFIED BY 'maxwell';
GRANT ALL ON *.* TO maxwell@'%';
"""


def installed() -> tuple[Path, Path]:
    """Java, and the folder of Maxwell, which is fetched the first time (53 MB).

    Raises:
        Unavailable: there is no JDK, or it could not be fetched.
    """
    compiler()
    folder = fetched(f"maxwell-{VERSION}", [Archive("com.zendesk", "maxwell", VERSION)])
    return java(), folder / f"maxwell-{VERSION}"


@contextmanager
def running(servers: str, database: MariaDb, topic: str) -> Iterator[Callable[[], None]]:
    """Run Maxwell, which begins where the binary log is now; yields what checks on it."""
    machine, home = installed()
    folder = Path(tempfile.mkdtemp(prefix="ikebana-maxwell-"))
    try:
        database.run(_ACCOUNT)
        client = jars(machine) / f"kafka-clients-{KAFKA_VERSION}.jar"
        places = [compiled("ScriptObjectMirror", folder), home / "lib" / "*", client]
        options = {
            "user": "maxwell",
            "password": "maxwell",
            "host": "127.0.0.1",
            "port": database.port,
            "jdbc_options": "useSSL=false&serverTimezone=UTC",
            "producer": "kafka",
            "kafka.bootstrap.servers": servers,
            "kafka_version": "1.0.0",
            "kafka_topic": topic,
            "output_primary_keys": "true",
            "output_primary_key_columns": "true",
            "output_xoffset": "true",
            "output_ddl": "true",
        }
        command = [str(machine), *_JVM_OPTIONS, "-cp", ":".join(map(str, places))]
        command += ["com.zendesk.maxwell.Maxwell"]
        command += [f"--{name}={value}" for name, value in options.items()]
        log = folder / "maxwell.log"
        with child.running(command, folder, log, end_by=SIGKILL) as process:

            def check() -> None:
                assert process.poll() is None, f"Maxwell has ended:\n{end_of_log(log)}"
                # It goes on after that, without these rows.
                failed = b"Event deserialization failure" in log.read_bytes()
                assert not failed, f"Maxwell cannot read the binary log:\n{end_of_log(log)}"

            yield check
    finally:
        shutil.rmtree(folder, ignore_errors=True)
