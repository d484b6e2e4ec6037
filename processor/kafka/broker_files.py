"""The files and the command line with which the embedded broker starts."""

from collections.abc import Mapping, Sequence
from pathlib import Path

NODE = 1
# The subfolder of the data folder with the broker's logs.
LOGS = "kafka"
PROPERTIES = "broker.properties"

# Another JVM beside the broker, such as a worker of Kafka Connect, may use it as well.
LOG4J_FILE = """\
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = stdout
"""

# One short-lived node: start fast, stay small.  The C1 compiler alone starts in 1.8 s
# instead of 2.5 s and halves the CPU time of a start.
_JVM_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dlog4j2.configurationFile=log4j2.properties",
)

_DEFAULT_SETTINGS = {
    "auto.create.topics.enable": "false",
    # A killed broker is let back in when its session has ended: 9 s by default.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "500",
    # Allocated at the start; the default of 128 MB is a quarter of our heap.
    "log.cleaner.dedupe.buffer.size": "16777216",
    "message.max.bytes": "67108864",
    "num.io.threads": "4",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
}

# The settings that the embedded broker controls; callers may set all others.
OWN_SETTINGS = frozenset(
    {
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.voters",
        "listeners",
        "log.dir",
        "log.dirs",
        "node.id",
        "process.roles",
    }
)


def write_files(
    data: Path, listeners: Mapping[str, str], controller_port: int, settings: Mapping[str, str]
) -> None:
    """Write the settings of a broker and of its logging into its data folder.

    `listeners` are addresses by security protocol; `settings` replace our defaults.
    """
    # Paths are relative to the data folder, so that no character in its name can
    # mean anything to a properties file or to a list of folders.
    addresses = ",".join(f"{name}://{at}" for name, at in listeners.items())
    all_settings = {
        **_DEFAULT_SETTINGS,
        **settings,
        "advertised.listeners": addresses,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{NODE}@127.0.0.1:{controller_port}",
        "listeners": f"{addresses},CONTROLLER://127.0.0.1:{controller_port}",
        "log.dirs": LOGS,
        "node.id": str(NODE),
        "process.roles": "broker,controller",
    }
    properties = data / PROPERTIES
    # The file of a secured broker has passwords and a private key.
    properties.touch(mode=0o600)
    properties.write_text(
        "".join(f"{key}={_escaped(value)}\n" for key, value in sorted(all_settings.items()))
    )
    (data / "log4j2.properties").write_text(LOG4J_FILE)


def java_command(
    java: Path, lib: Path, main: str, *arguments: str, options: Sequence[str] = ()
) -> list[str]:
    """The command that runs a class of the jars in `lib`, in a data folder."""
    return [str(java), *_JVM_OPTIONS, *options, "-cp", f"{lib}/*", main, *arguments]


def _escaped(value: str) -> str:
    """Escape a value for a properties file."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")
