"""The embedded broker: a real Apache Kafka, one node, as a child of this process.

It is for the demo, for tests and for experiments: controller and broker run in one JVM
that listens on 127.0.0.1 only, and every replication factor is 1.  Acknowledged records
survive `stop` and `kill`, because the data folder is reused.  They do not survive a power
failure, because nothing is synced to disk.  A broker ends when the process that started
it ends, even by SIGKILL.

Its jars are fetched once, into a cache folder, by Ivy, which pyspark bundles; pyspark itself is
not imported.

This is not a way to run Kafka in production.
"""

import base64
import contextlib
import fcntl
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ikebana.arrangements.storage import private_folder
from ikebana.errors import BrokerError, ConfigError
from ikebana.processor.base.machine import cache_folder, find_java, folder_of, write_whole

# Kafka takes a folder with this file for formatted, so it is written last.
META = "meta.properties"
_FEATURES = "bootstrap.checkpoint"


def is_formatted(folder: Path) -> bool:
    """Return whether a folder of logs has been formatted, so that a broker can start on it."""
    return (folder / META).exists()


def format_folder(folder: Path, lib: Path, node: int, tool: Callable[[str], None]) -> None:
    """Format a folder of logs for a cluster with a new id.

    `lib` is the folder of Kafka's jars, and the cached file lies beside it.  `tool(cluster_id)`
    runs Kafka's storage tool on the folder; it is called if there is no cached file yet.
    """
    cached = lib.with_name(f"{lib.name}-{_FEATURES}")
    try:
        features = cached.read_bytes()
    except FileNotFoundError:
        tool(random_id())
        # Without a cached file the tool runs again: a read-only cache costs only time.
        with contextlib.suppress(OSError):
            write_whole(cached, (folder / _FEATURES).read_bytes())
        return
    folder.mkdir(exist_ok=True)
    write_whole(folder / _FEATURES, features)
    properties = {
        "version": "1",
        "cluster.id": random_id(),
        "node.id": str(node),
        "directory.id": random_id(),
    }
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    write_whole(folder / META, text.encode())


def cluster_id_of(folder: Path) -> str:
    """Read the id of the cluster that a folder of logs was formatted for; "" if it has none."""
    match = re.search(
        r"^cluster\.id=(.*)$", (folder / META).read_text(errors="replace"), re.MULTILINE
    )
    return match[1].strip() if match else ""


def random_id() -> str:
    """Make an id in Kafka's form: 22 characters of URL-safe base64."""
    # The tool would take an id with a leading dash for an option.
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]).startswith("-"):
        pass
    return text


_LEASH = """
import os, select, signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: None)
ended, held = os.pipe()
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=2, pass_fds=[held])
os.close(held)
os.write(1, b"%d\\n" % child.pid)
os.close(1)
while True:
    readable, _, _ = select.select([0, ended], [], [])
    if ended in readable:
        break
    if os.read(0, 1) == b"t":
        child.terminate()
    else:
        child.kill()
        break
status = child.wait()
os._exit(status if status >= 0 else 128 - status)
"""


def start_guarded(
    command: Sequence[str],
    folder: Path,
    log: IO[bytes],
    environ: Mapping[str, str] | None = None,
) -> tuple["subprocess.Popen[bytes]", int | None]:
    """Start a command in a folder; return the guard process and the command's process id.

    Its environment is ours unless there is `environ`, and what it writes goes to `log`.

    The guard ends when the command does, with the same status.  `t` on its standard input asks
    the command to terminate; any other byte, or end of file, kills it.  The process id is None
    if the command could not be started.
    """
    between = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LEASH, *command],
        cwd=folder,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        bufsize=0,
        # Ctrl-C goes to us alone; we stop the command when we no longer need it.
        start_new_session=True,
    )
    assert between.stdout is not None
    with between.stdout as stdout:
        pid = stdout.readline()
    return between, int(pid) if pid else None


# A busy machine can need minutes instead of seconds; the end of the process is noticed at once.
_FORMAT_TIMEOUT_S = 600
_START_TIMEOUT_S = 600
_STOP_TIMEOUT_S = 30


class Broker:
    """One node of Kafka over a data folder, which can be started and stopped repeatedly.

    The ports and the data stay the same over restarts.  `running` makes brokers and stops
    them.  A broker may not be used by several threads at once.  Most private methods are the
    steps of a start, in their order.
    """

    jvm_options: Sequence[str] = ()
    """Options of the broker's JVM beside the usual ones."""

    def __init__(
        self,
        data: Path,
        port: int,
        settings: Mapping[str, str],
        java: Path,
        lib: Path,
    ) -> None:
        self.data = data
        self.port = port
        self.bootstrap_servers = f"127.0.0.1:{port}"
        """Where clients connect."""
        self.listeners = {"PLAINTEXT": self.bootstrap_servers}
        """By security protocol, where clients connect."""
        self.admin_settings = {"bootstrap.servers": self.bootstrap_servers}
        """The settings of a client that may do everything."""
        self.log_file = data / "broker.log"
        self.pid: int | None = None
        self._settings = dict(settings)
        self._java = java
        self._lib = lib
        self._logs = data / LOGS
        self._leash: subprocess.Popen[bytes] | None = None
        self._lock: IO[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether the process runs, ready or not."""
        return self._leash is not None and self._leash.poll() is None

    def start(self) -> None:
        """Start, and return when the broker serves clients; a running broker is left alone.

        Raises:
            BrokerError: the broker ended, or was not ready within ten minutes; the message
                has the end of its log.
        """
        if self.alive:
            return
        try:
            self._hold_data()
            self._write_files()
            self._format()
            self._launch()
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut down cleanly; kill the process if that takes longer than half a minute."""
        self._end(b"t")

    def kill(self) -> None:
        """Kill the process with SIGKILL, like a crash, and return when it has ended."""
        self._end(b"k")

    def wait(self) -> NoReturn:
        """Wait until the process ends.

        Raises:
            BrokerError: always, because the wait ends only if the broker has ended by itself.
        """
        assert self._leash is not None, "waiting for a broker that was not started"
        status = self._leash.wait()
        raise BrokerError(
            f"the broker at {self.bootstrap_servers} ended by itself with status {status}; "
            f"the end of {self.log_file}:\n{end_of_log(self.log_file)}"
        )

    def restart(self) -> None:
        """Stop the broker if it runs, and start it on the same ports and data."""
        self.stop()
        self.start()

    def _hold_data(self) -> None:
        # Two brokers on one folder would share cluster id and log file.  Kafka's own lock
        # stops one of them, but we could not tell it from the one that is ready.
        try:
            private_folder(self.data)
            self._lock = (self.data / "lock").open("wb")
        except OSError as err:
            raise BrokerError(f'could not start a broker on "{self.data}": {err}') from err
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise BrokerError(
                f'could not start a broker on "{self.data}": another broker runs there, '
                f"its log is {self.log_file}",
                hint="Stop that broker or choose another data folder.",
            ) from err

    def _write_files(self) -> None:
        write_files(self.data, self.listeners, free_port(), self._settings)

    def _format(self) -> None:
        # Kafka writes the file of ids last, so an interrupted format is done again.
        if is_formatted(self._logs):
            return
        if any(name.startswith("unstable.") for name in self._settings):
            # These settings change the features, so the cached file does not apply.
            self._run_storage_tool(random_id())
        else:
            format_folder(self._logs, self._lib, NODE, self._run_storage_tool)

    def _run_storage_tool(self, cluster_id: str) -> None:
        arguments = "format", "-t", cluster_id, "-c", PROPERTIES
        command = java_command(self._java, self._lib, "kafka.tools.StorageTool", *arguments)
        with self.log_file.open("ab") as log:
            try:
                status = subprocess.run(
                    command,
                    cwd=self.data,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    timeout=_FORMAT_TIMEOUT_S,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired as err:
                raise self._not_started(f"no end within {_FORMAT_TIMEOUT_S} s") from err
        if status != 0:
            raise self._not_started(f"the data folder was not formatted, exit status {status}")

    def _launch(self) -> None:
        command = java_command(
            self._java, self._lib, "kafka.Kafka", PROPERTIES, options=self.jvm_options
        )
        with self.log_file.open("ab") as log:
            self._leash, self.pid = start_guarded(command, self.data, log)
        if self.pid is None:
            raise self._not_started(f'"{self._java}" could not be run')

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        cluster_id = cluster_id_of(self._logs)
        # Another broker may listen on the port: only the cluster id identifies ours.
        client = AdminClient(
            {
                **self.admin_settings,
                "log_level": 0,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
            }
        )
        while time.monotonic() < deadline:
            try:
                if client.list_topics(timeout=0.5).cluster_id == cluster_id:
                    return
            except KafkaException:
                pass  # not yet
            assert self._leash is not None
            try:
                status = self._leash.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                continue
            raise self._not_started(f"it ended with status {status}")
        raise self._not_started(f"not ready within {_START_TIMEOUT_S} s")

    def _not_started(self, fact: str) -> BrokerError:
        return BrokerError(
            f"could not start a broker at {self.bootstrap_servers}: {fact}; "
            f"the end of {self.log_file}:\n{end_of_log(self.log_file)}"
        )

    def _end(self, order: bytes) -> None:
        leash, self._leash = self._leash, None
        if leash is not None:
            assert leash.stdin is not None
            try:
                leash.stdin.write(order)
                leash.wait(_STOP_TIMEOUT_S)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                pass  # ended by itself, or too slow: the end of the pipe is the last order
            finally:
                leash.stdin.close()
            leash.wait()
        self.pid = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


@contextmanager
def running(
    data: Path | None = None,
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Broker]:
    """Run a broker for the length of a `with` block.

    Without `data` the folder is temporary: it is removed at the end, but kept for its log if
    the broker did not start.  Without `port` a free port is chosen.  `settings` are broker
    settings of Kafka that are added to those of an embedded broker.

    Raises:
        BrokerError: Java is missing or too old, the jars could not be fetched, or the
            broker did not start.
        ConfigError: `settings` has a setting that the embedded broker controls.
    """
    settings = {} if settings is None else settings
    if owned := sorted(OWN_SETTINGS & settings.keys()):
        raise ConfigError(f"cannot set {', '.join(owned)}: the embedded broker decides these")
    if port is not None and not _is_free(port):
        raise BrokerError(
            f"could not start a broker: port {port} at 127.0.0.1 is in use",
            hint="Stop what listens there, perhaps another broker, or choose another port.",
        )
    java = find_java(os.environ)
    lib = jars(java)
    keep = data is not None
    folder = Path(tempfile.mkdtemp(prefix="ikebana-broker-")) if data is None else data.absolute()
    at = free_port() if port is None else port
    broker = Broker(folder, at, settings, java, lib)
    try:
        try:
            broker.start()
        except BrokerError:
            keep = True
            raise
        yield broker
    finally:
        broker.stop()
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """Find a loopback port on which nobody listens."""
    # Below the range of ephemeral ports (32768 and up, 49152 and up on macOS): while the
    # broker is down, a client that keeps connecting to an ephemeral port of its own host
    # can be given that very port as its source, and then holds it.
    for _ in range(1000):
        port = 10_000 + secrets.randbelow(22_000)
        if _is_free(port):
            return port
    raise BrokerError("could not find a free port between 10000 and 32000")


def _is_free(port: int) -> bool:
    """Return whether nobody listens on a loopback port."""
    with socket.socket() as probe:
        # Kafka sets the same option: ports of closed connections are free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


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
    # Settings may have passwords.
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


KAFKA_VERSION = "4.2.1"
_FETCH_TIMEOUT_S = 900

# Kafka logs through slf4j, whose binding is part of Kafka's archive but not of its
# published dependencies.
_IVY_FILE = f"""\
<ivy-module version="2.0">
  <info organisation="ikebana" module="broker"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}" conf="default"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.4"
                conf="default"/>
  </dependencies>
</ivy-module>
"""


def jars_folder() -> Path:
    """Return the cache folder of the broker's jars."""
    return cache_folder() / f"kafka-{KAFKA_VERSION}"


def jars_fetched() -> bool:
    """Return whether the jars of the broker are in the cache already."""
    return jars_folder().is_dir()


def jars(java: Path) -> Path:
    """Return the folder of Kafka's jars; the first call fetches them.

    The fetch takes half a minute and 44 MB.

    Raises:
        BrokerError: the jars could not be fetched; the message names Ivy's log.
    """
    return fetched_once(jars_folder(), lambda private, log_file: _fetch(java, private, log_file))


def fetched_once(folder: Path, fetch: Callable[[Path, Path], None]) -> Path:
    """Return `folder`; if it does not exist yet, `fetch` makes its content.

    `fetch(private, log_file)` puts the content into `lib` in a private folder.  `folder` appears
    complete or not at all.  If two processes call this at once, one fetches and the other waits.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(
                dir=folder.parent, prefix=f"{folder.name}-", ignore_cleanup_errors=True
            ) as private:
                fetch(Path(private), folder.with_name(f"{folder.name}-ivy.log"))
                (Path(private) / "lib").rename(folder)
    return folder


def retrieve(
    java: Path,
    ivy_file: str,
    folder: Path,
    log_file: Path,
    timeout_s: float,
    *,
    # "bundle" is what Maven calls a jar with OSGi headers, such as scala-logging.
    types: Sequence[str] = ("jar", "bundle"),
) -> int | None:
    """Run Ivy on a file, into `lib`; return its exit status, or None after a timeout."""
    (folder / "ivy.xml").write_text(ivy_file)
    command = [
        *(str(java), "-cp", str(ivy()), "org.apache.ivy.Main"),
        *("-ivy", "ivy.xml", "-confs", "default"),
        *("-types", *types),
        *("-retrieve", "lib/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    with log_file.open("wb") as log:
        try:
            return subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=timeout_s,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return None


def _fetch(java: Path, folder: Path, log_file: Path) -> None:
    status = retrieve(java, _IVY_FILE, folder, log_file, _FETCH_TIMEOUT_S)
    if status != 0 or not (folder / "lib" / f"kafka_2.13-{KAFKA_VERSION}.jar").exists():
        fact = (
            f"Ivy did not end within {_FETCH_TIMEOUT_S} s"
            if status is None
            else f"Ivy ended with status {status}"
        )
        raise BrokerError(
            f"could not fetch the jars of Kafka {KAFKA_VERSION}: {fact}; "
            f"the end of {log_file}:\n{end_of_log(log_file)}",
            hint="Check that Maven Central can be reached, then try again; "
            "this is needed only once.",
        )


def ivy() -> Path:
    """Return the path of Ivy's jar, which is bundled with pyspark."""
    pyspark = folder_of("pyspark")
    if pyspark is None:
        raise BrokerError("cannot find Ivy: pyspark is not installed", hint="Install pyspark.")
    folder = pyspark / "jars"
    matching = sorted(folder.glob("ivy-*.jar"))
    if not matching:
        raise BrokerError(f'cannot find Ivy: no ivy-*.jar in "{folder}"', hint="Install pyspark.")
    return matching[-1]


def end_of_log(log_file: Path) -> str:
    """Return the last informative lines of a log, indented."""
    # Frames of Java stack traces would push out the informative lines.
    lines = [
        line
        for line in log_file.read_text(errors="replace").splitlines()
        if line.strip() and not re.match(r"\s+(at |\.\.\. )", line)
    ]
    return "\n".join(f"  {line}" for line in lines[-8:]) or "  (empty)"
