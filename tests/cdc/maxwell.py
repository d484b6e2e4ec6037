"""The real Maxwell, which reads a MariaDB and writes to Kafka.

Its last version that Maven Central has is made for MySQL 5.7, Java 8 and Kafka 1.0.  It
runs with the broker's Kafka client and a class that Java has no longer; MariaDB's settings
do the rest.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc import child
from cdc.compiled import compiled, compiler
from cdc.fetched import Archive, fetched, java
from cdc.mariadb import MariaDb
from ikebana.processor.kafka.broker import KAFKA_VERSION, jars

VERSION = "1.22.6"
_JVM_OPTIONS = child.java_options(256, "-Dfile.encoding=UTF-8", "-Duser.timezone=UTC")
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
    with child.temporary_folder("maxwell") as folder:
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
        with child.running("Maxwell", command, folder) as server:

            def check() -> None:
                server.check()
                # It goes on after that, without these rows.
                failed = b"Event deserialization failure" in server.log_file.read_bytes()
                assert not failed, f"Maxwell cannot read the binary log:\n{server.end_of_log()}"

            yield check
