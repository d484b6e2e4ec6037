"""The real Canal, its server and its producer for Kafka, which reads a MariaDB."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc import child
from cdc.compiled import compiled, compiler
from cdc.fetched import Jar, fetched, java
from cdc.mariadb import MariaDb

VERSION = "1.1.7"
_JVM_OPTIONS = child.java_options(
    256,
    "-Dfile.encoding=UTF-8",
    "-Duser.timezone=UTC",
    "-Dlogback.configurationFile=logback.xml",
)
# It logs every batch by default.
_LOGBACK_FILE = """\
<configuration>
  <appender name="stdout" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %p %logger{0}: %m%n</pattern></encoder>
  </appender>
  <root level="warn"><appender-ref ref="stdout"/></root>
</configuration>
"""
_ACCOUNT = """
CREATE USER canal@'%' IDENTIFIED BY 'canal';
GRANT ALL ON *.* TO canal@'%';
"""


def installed() -> tuple[Path, Path]:
    """Java, and the folder of Canal, which is fetched the first time (42 MB).

    Raises:
        Unavailable: there is no JDK, or it could not be fetched.
    """
    compiler()
    # It is older than the logging that Canal configures.
    without = ("org.slf4j:slf4j-log4j12",)
    names = ("canal.server", "connector.kafka")
    parts = [Jar("com.alibaba.otter", name, VERSION, without) for name in names]
    return java(), fetched(f"canal-{VERSION}", parts)


@contextmanager
def running(
    servers: str, database: MariaDb, schema: str, topic: str
) -> Iterator[Callable[[], None]]:
    """Run Canal on a database, from the first binary log on; yields what checks on it."""
    machine, lib = installed()
    with child.temporary_folder("canal") as folder:
        database.run(_ACCOUNT)
        (folder / "logback.xml").write_text(_LOGBACK_FILE)
        classes = compiled("CanalToKafka", folder, f"{lib}/*")
        binlog = database.run("SHOW BINARY LOGS").split()[0]
        command = [str(machine), *_JVM_OPTIONS, "-cp", f"{classes}:{lib}/*", "CanalToKafka"]
        command += [str(database.port), schema, binlog, servers, topic]
        with child.running("Canal", command, folder) as server:
            yield server.check
