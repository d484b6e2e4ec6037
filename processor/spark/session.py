"""The Spark session of a run, the processes that it needs, and the temporary folder of the run.

All settings of Spark that ikebana relies on are here.  The first batch of a checkpoint fixes some
of them for ever: the state store provider and the number of state partitions.  The others can
change at each restart.

This module does not import pyspark, so that these processes can start while it is imported.
"""

import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ikebana.arrangements.files import is_local
from ikebana.errors import IkebanaError, LostError, SparkStartError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base import calls, log_lines
from ikebana.processor.base.fast_paths import OWNERS, FastPath, compiled_code
from ikebana.processor.base.machine import find_java
from ikebana.processor.base.processes import Stopped
from ikebana.processor.linear.functions import FOLDER_VARIABLE
from ikebana.processor.spark import class_archive, jvm
from ikebana.processor.spark.child_processes import environment, is_this_python
from ikebana.processor.spark.jvm import END_WITHIN_S, Jvm
from ikebana.processor.spark.workers import daemon, left_rows, network
from ikebana.processor.spark.workers.starting import PROGRAM, PYTHON_VARIABLE, Workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Decision (no classes for plans): Rows are packed, so a task has a dozen: making the text of the
# class that would copy them costs more than copying (`spark.sql.codegen.*`).

# Decision (socket files): Over TCP Nagle's algorithm and delayed acknowledgements hold the last
# part of each message. Spark has socket files since 4.1, off by default and without a check of
# the path's length: where that is too long it stays TCP.

# How long the end of a JVM's process may take after the end of its connections.
_DYING_S = 10.0
_SOCKETS = "spark.python.unix.domain.socket"
# Systems accept addresses of 103 bytes; Spark's names are a UUID with 6 more bytes.
_LONGEST_SOCKET_FOLDER = 103 - 1 - 36 - 6
# Py4J logs this text and a traceback when the end of the JVM interrupts a call.  The same error
# is raised to the caller, who reports it, or is ending the JVM.
_CUT_OFF = "Exception while sending command."


class Spark:
    """Spark for one run: started on demand, and again after its JVM has died.

    `folder` is a temporary folder of the run, which is removed at the end.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._jvm: Jvm | None = None
        self._workers: Workers | None = None
        self._session: SparkSession | None = None
        self._log: Path | None = None
        # The Java that starts from an archive of classes, if it can.
        self._archived_for: Path | None = None
        self.fast_paths: list[FastPath] = []
        """The fast paths, and which of them are on; empty before `begin`."""
        self._no_owners = ""
        self._rows: left_rows.RowsFolder | None = None
        self._folder = RunFolder()
        self._secret = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        # A BaseException that is no Exception comes from a second signal.
        hurried = error is not None and not isinstance(error, Exception | Stopped)
        begun = self._session is not None
        try:
            self._end(within_s=0.0 if hurried else END_WITHIN_S)
        finally:
            self._folder.remove()
        if begun and not hurried and self._archived_for is not None:
            # For the next run: this one should not share its processors.
            class_archive.start_making_if_missing(self._archived_for, os.environ)

    @property
    def folder(self) -> Path:
        """The temporary folder of this run."""
        return self._folder.path

    @property
    def tasks(self) -> int:
        """The number of tasks for all shards of a new checkpoint; 0 for one a shard.

        Only owners run the shards of one task side by side.
        """
        return 0 if self._no_owners else 1

    @property
    def places(self) -> bool:
        """Whether shards have to be placed on the hosts of executors."""
        return self.tasks == 1 and not self._settings.is_local

    @property
    def rows(self) -> str:
        """The folder for large rows that owners read; empty if owners may be on other machines."""
        return "" if self._rows is None else str(self._rows.path)

    @property
    def alive(self) -> bool:
        """Whether the JVM runs."""
        return self._jvm is not None and self._jvm.alive

    def has_ended(self) -> bool:
        """Whether Spark has ended in a JVM that runs."""
        if self._session is None:
            return False
        from ikebana.processor.spark.connection import is_stopped

        return is_stopped(self._session)

    def survives(self, error: Exception) -> bool:
        """Return whether Spark still runs in spite of an error."""
        from ikebana.processor.spark.failures import is_cut_off

        if self._jvm is None or self._jvm.ends(_DYING_S if is_cut_off(error) else 0.0):
            return False
        return not self.has_ended()

    def give_up(self) -> None:
        """End Spark at once, and all that waits for it; `session` starts it again."""
        self._end(within_s=0.0)

    def begin(self) -> None:
        """Start Spark's processes if there are none; `session` waits for them.

        Raises:
            JavaError: there is no Java for it.
        """
        if self.alive and not self.has_ended():
            return
        self._end(within_s=0.0)
        logging.getLogger().addFilter(is_news)
        java = find_java(os.environ)
        settings = self._settings
        options = spark_settings(settings, self._name)
        why_indirect = jvm.why_indirect(options, os.environ)
        self._archived_for = java if why_indirect is None else None
        # A user who configures the JVM's log wants to see it.
        if not log_lines.is_json() and not logs_itself(settings):
            self._log = self.folder / "spark.log"
        if settings.is_local:
            if not os.environ.get("SPARK_LOCAL_DIRS"):
                options.setdefault("spark.local.dir", str(self.folder / "spark"))
            extra = sockets(self.folder)
        else:
            # The sockets of executors are in their temporary folders.
            extra = {f"{_SOCKETS}.enabled": "true"}
            # The configuration file of Spark may ask for encryption, too.
            every = {**jvm.defaults(os.environ), **options}
            self._secret = network.new_secret(encrypts=encrypts(every))
            # Spark hides the values of settings with such names.
            extra[f"spark.executorEnv.{network.VARIABLE}"] = self._secret
            # In the image, executors look for their archive themselves.
            if settings.master.startswith("spark:") and (flags := class_archive.flags(java)):
                extra["spark.executor.extraClassPath"] = class_archive.class_path()
                options[EXECUTORS_JAVA_OPTIONS] += "".join(f" {flag}" for flag in flags)
        for name, value in extra.items():
            options.setdefault(name, value)
        self._start_host()
        self._no_owners = self._why_no_owners(options)
        no_archive = why_indirect or class_archive.why_not(java)
        self.fast_paths = [
            FastPath(OWNERS, self._no_owners),
            FastPath("class archive", no_archive),
            compiled_code(),
            FastPath("forks", _why_no_forks()),
        ]
        with self._environment():
            self._jvm = Jvm(options, java, Path(tempfile.mkdtemp(dir=self.folder)), self._log)

    def _start_host(self) -> None:
        """Start the host, which forks Spark's Pythons, readers, and in a local run owners."""
        settings = self._settings
        if settings.is_local:
            self._rows = left_rows.RowsFolder(
                os.environ.get("SPARK_LOCAL_DIRS")
                or settings.spark.get("spark.local.dir", tempfile.gettempdir())
            )
        self._workers = Workers(
            Path(tempfile.mkdtemp(dir=self.folder)),
            self._log,
            # Another Python has packages of its own, and so its own host, by Spark's daemon.
            owners=owners(settings) if settings.is_local and is_this_python(_python()) else 0,
            readers=slots(settings),
            max_batch_s=settings.max_batch_s,
        )

    def _why_no_owners(self, options: Mapping[str, str]) -> str:
        """Return why shards have no owners; an empty text if they have."""
        assert self._workers is not None
        module = options["spark.python.daemon.module"]
        if self._workers.address.owners:
            return ""
        if module != daemon.MODULE:
            return f"spark.python.daemon.module is {module}"
        if options.get("spark.python.use.daemon", "true") != "true":
            return "spark.python.use.daemon is false"
        return ""

    def session(self) -> "SparkSession":
        """Return the session; start it if there is none.

        Raises:
            SparkStartError: Spark did not start.
            LostError: its JVM was killed while it started.
            JavaError: there is no Java for it.
        """
        if self._session is None or not self.alive:
            self.begin()
            self._session = self._started()
        return self._session

    def _started(self) -> "SparkSession":
        from pyspark.sql import SparkSession

        from ikebana.processor.spark.connection import write_no_checksums

        assert self._jvm is not None
        builder = SparkSession.builder
        try:
            with self._environment():
                self._jvm.context()
            for key, value in self._jvm.options.items():
                builder = builder.config(key, value)
            session: SparkSession = builder.getOrCreate()
            if is_local(self._settings.checkpoint):
                write_no_checksums(session)
        except Exception as error:
            raise _not_started(self._jvm, error) from error
        return session

    @contextmanager
    def _environment(self) -> Iterator[None]:
        """Set the environment of Spark in a `with` block: its Python, and how to find the host.

        The driver and executors share one setting for Python.  For this Python it is a program
        that asks the host of its machine; the `python3` that Spark would run may be another one.
        """
        python = _python() if _why_no_forks() else str(PROGRAM)
        variables = {} if self._workers is None else self._workers.environment
        if not self._settings.is_local:
            variables = {**variables, network.VARIABLE: self._secret}
        with environment(PYSPARK_PYTHON=python, **variables):
            yield

    def _end(self, within_s: float) -> None:
        jvm, self._jvm, self._session = self._jvm, None, None
        workers, self._workers = self._workers, None
        rows, self._rows = self._rows, None
        try:
            if jvm is not None:
                jvm.end(within_s)
        finally:
            if workers is not None:
                workers.end(within_s)
            if rows is not None:
                rows.remove()


def _python() -> str:
    """Return the Python that Spark is to run."""
    return os.environ.get("PYSPARK_PYTHON", sys.executable)


def _why_no_forks() -> str:
    """Return why Spark runs a Python itself rather than a fork; an empty text if it forks."""
    if not is_this_python(_python()):
        return f"PYSPARK_PYTHON {_python()} is another Python than {sys.executable}"
    return "" if os.access(PROGRAM, os.X_OK) else f"{PROGRAM} may not be executed"


def sockets(folder: Path) -> dict[str, str]:
    """Return settings by which the JVM and Python talk over socket files in a run's folder.

    Over TCP each task waits for 40 ms: the last part of a message is held until the other side has
    acknowledged the part before (Nagle's algorithm), which it does late.
    """
    folder = folder / "sockets"
    if len(os.fsencode(folder)) > _LONGEST_SOCKET_FOLDER:
        return {}
    folder.mkdir(mode=0o700, exist_ok=True)
    return {f"{_SOCKETS}.enabled": "true", f"{_SOCKETS}.dir": str(folder)}


def _not_started(jvm: Jvm, error: Exception) -> IkebanaError:
    """Return the error for a failed start of Spark.

    A JVM that was killed is lost, and may be started again: that is no mistake of the user's.
    """
    from ikebana.processor.spark.failures import innermost_error, is_cut_off

    why = innermost_error(str(error).strip() or type(error).__name__)
    if jvm.ends(_DYING_S if is_cut_off(error) else 0.0) and jvm.status is not None:
        if jvm.status < 0:
            return LostError(f"Spark's JVM was killed by signal {-jvm.status} while it started")
        why = f"its JVM ended with status {jvm.status}{jvm.last_words()}"
    return SparkStartError(f"could not start Spark: {why}", hint=jvm.saved_log(error))


def is_news(record: logging.LogRecord) -> bool:
    """Return whether a record of the root logger says more than the exceptions do."""
    return record.msg != _CUT_OFF


class RunFolder:
    """A temporary folder that is created when its path is first read."""

    def __init__(self) -> None:
        self._path: Path | None = None

    @property
    def path(self) -> Path:
        """The path of the folder."""
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="ikebana-run-"))
        return self._path

    def remove(self) -> None:
        """Remove the folder and its content, if it has been created."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)


# These settings override the user's.
_STATE_STORE = "spark.sql.streaming.stateStore."
OWNED = {
    # The state is one row a shard: a batch has to upload little, in bounded memory.
    _STATE_STORE + "providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    _STATE_STORE + "rocksdb.changelogCheckpointing.enabled": "true",
    # A speculative attempt of a task would fence the attempt that works.
    "spark.speculation": "false",
    "spark.sql.adaptive.enabled": "false",
}
DEFAULTS = {
    _STATE_STORE + "rocksdb.boundedMemoryUsage": "true",
    _STATE_STORE + "rocksdb.maxMemoryUsageMB": "64",
    _STATE_STORE + "rocksdb.trackTotalNumberOfRows": "false",
    _STATE_STORE + "minDeltasForSnapshot": "50",
    # Rows are packed, up to a megabyte each.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.streaming.numRecentProgressUpdates": "4",
    # Spark keeps the plan, metrics and tasks of past batches for its pages, a third of a megabyte
    # for each batch.  By default it keeps a thousand of them.
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    # An idle pipeline reports its state this often.
    "spark.sql.streaming.noDataProgressEventInterval": "1s",
    "spark.sql.session.timeZone": "UTC",
    # Rows are packed, so there are few of them: to make a class for each task costs more than that
    # saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.worker.reuse": "true",
    # This daemon makes sure that each machine has a host, with owners of shards.
    "spark.python.daemon.module": daemon.MODULE,
    # The time for a Python worker, or a process that fetches a result, to authenticate itself.
    # On a busy machine Spark's 15 s are too short.
    "spark.python.authenticate.socketTimeout": "120s",
    # The JVM does little besides moving packed rows, so the second compiler is not worth its cost.
    # Some 90 MiB of its heap live.  It would begin with a 64th of the machine's memory, and fill
    # that for half an hour before it collects anything old.
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms128m -XX:NewSize=64m"
    ),
    # With these an executor starts with half the CPU time.
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
# In one process no executor can be lost: a silent one only lacks a processor.  Spark's requests
# to itself (spark.rpc.askTimeout) and its heartbeats use the network's timeout.
_LOCAL_PATIENCE = {
    "spark.network.timeout": "1200s",
    "spark.rpc.lookupTimeout": "1200s",
    "spark.executor.heartbeatInterval": "60s",
}
# Spark's logs and state are small files, a dozen a batch.  On a local file system Hadoop's usual
# classes run `chmod` and `readlink` for each, 35 to 40 processes a batch; these run six.  What
# they leave out is judged in `connection`.
_LOCAL_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Hadoop sets the rights of each file, by its own mask and not by the process's.
    "spark.hadoop.fs.permissions.umask-mode": "077",
}
# A task whose worker died is tried again; only then does the query fail.
_LOCAL_FAILURES = 4
_ENCRYPTS = (
    "spark.network.crypto.enabled",
    "spark.authenticate.enableSaslEncryption",
    "spark.ssl.enabled",
    "spark.ssl.rpc.enabled",
)
# Where each executor has an address of its own, a network policy can name the ports.
_FIRST_PORT = "7080"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
EXECUTORS_JAVA_OPTIONS = "spark.executor.extraJavaOptions"
_LOG_FILE = "log4j2.configurationFile"


def spark_settings(settings: Settings, name: str) -> dict[str, str]:
    """Return Spark's settings for a run."""
    options = {
        **DEFAULTS,
        **(_LOCAL_FILES if is_local(settings.checkpoint) else {}),
        **settings.spark,
        **OWNED,
        "spark.app.name": name,
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        "spark.sql.streaming.minBatchesToRetain": str(max(2, settings.retained_batches)),
    }
    # Workers on this machine inherit these variables.
    executors_have = {
        calls.LIMIT_VARIABLE: calls.limit(settings.max_batch_s),
        daemon.OWNERS_VARIABLE: str(owners(settings)),
        PYTHON_VARIABLE: sys.executable,
    }
    if folder := os.environ.get(FOLDER_VARIABLE):
        executors_have[FOLDER_VARIABLE] = folder
    options |= {f"spark.executorEnv.{name}": value for name, value in executors_have.items()}
    master = settings.master
    if master.startswith("k8s:"):
        options.setdefault(f"spark.executorEnv.{daemon.PORT_VARIABLE}", _FIRST_PORT)
    if not settings.is_local:
        del options["spark.driver.bindAddress"]
    else:
        options.setdefault("spark.driver.host", "127.0.0.1")
        for key, value in _LOCAL_PATIENCE.items():
            options.setdefault(key, value)
        if master.startswith("local[") and "," not in master:
            options["spark.master"] = f"{master[:-1]},{_LOCAL_FAILURES}]"
        elif master == "local":
            options["spark.master"] = f"local[1,{_LOCAL_FAILURES}]"
    file = "log4j2-json.properties" if log_lines.is_json() else "log4j2.properties"
    path = resources.files("ikebana.processor.spark") / file
    for key in (_JAVA_OPTIONS, EXECUTORS_JAVA_OPTIONS):
        if not logs_itself(settings, key):
            options[key] += f" -D{_LOG_FILE}={path}"
    return options


def logs_itself(settings: Settings, key: str = _JAVA_OPTIONS) -> bool:
    """Return whether the user configures the log of a JVM, by default of the driver's."""
    return _LOG_FILE in settings.spark.get(key, "")


def slots(settings: Settings) -> int:
    """The number of tasks that Spark runs at a time in a local run."""
    named = re.fullmatch(r"local\[(\d+|\*)(?:,.*)?\]", settings.master)
    cores = "1" if named is None else named[1]
    return (os.cpu_count() or 1) if cores == "*" else int(cores)


def encrypts(options: Mapping[str, str]) -> bool:
    """Whether Spark encrypts what it sends, by its settings."""
    return any(options.get(name) == "true" for name in _ENCRYPTS)


def owners(settings: Settings) -> int:
    """Choose the number of processes that own shards, on each machine that runs tasks.

    With twice as many owners as slots, two tasks that run at the same time seldom need the same
    owner, since shards are assigned to owners in turn.
    """
    if settings.is_local:
        cores = slots(settings)
    else:
        # Executors of a standalone cluster take all cores of a worker; assume as many as here.
        every = (os.cpu_count() or 1) if settings.master.startswith("spark:") else 1
        cores = int(settings.spark.get("spark.executor.cores", every))
    return max(1, min(settings.shards, 2 * cores))
