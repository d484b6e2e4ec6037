"""The Spark session, and all settings of Spark that ikebana relies on.

The first batch of a checkpoint fixes some of them for ever: the state store provider and the
number of state partitions.  The others can change at each restart.
"""

import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Self

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession

from ikebana.arrangements.files import is_local
from ikebana.errors import SparkStartError
from ikebana.processor.configuring.settings import Settings
from ikebana.processor.ground import calls, log_lines
from ikebana.processor.ground.java import find_java
from ikebana.processor.ground.stopping import Stopped
from ikebana.processor.linear.modules import FOLDER_VARIABLE
from ikebana.processor.spark import class_archive, launching, left_rows
from ikebana.processor.spark.failures import gist
from ikebana.processor.spark.jvm import END_WITHIN_S, Jvm, environment
from ikebana.processor.spark.owners import Owners
from ikebana.processor.spark.run_folder import RunFolder
from ikebana.processor.spark.workers import Workers

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
    # Of each batch that is over Spark keeps the plan, its metrics and its tasks for its pages, a
    # third of a megabyte.  By default it keeps a thousand of them.
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
    # The time for a Python worker, or a process that fetches a result, to authenticate itself.
    # On a busy machine Spark's 15 s are too short.
    "spark.python.authenticate.socketTimeout": "120s",
    # The JVM does little besides moving packed rows, so the second compiler is not worth its cost.
    # Some 90 MiB of its heap live.  It would begin with a 64th of the machine's memory, and fill
    # that for half an hour before it collects anything old.
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms128m -XX:NewSize=64m"
    ),
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
# they leave out is judged in docs/decisions.md, "Spark's files on a local disk".
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
# How long the end of a JVM's process may take after the end of its connections.
_DYING_S = 10.0
_SOCKETS = "spark.python.unix.domain.socket"
# Systems accept addresses of 103 bytes; Spark's names are a UUID with 6 more bytes.
_LONGEST_SOCKET_FOLDER = 103 - 1 - 36 - 6
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG_FILE = "log4j2.configurationFile"
# Py4J logs this text and a traceback when the end of the JVM interrupts a call.  The same error
# is raised to the caller, who reports it, or is ending the JVM.
_CUT_OFF = "Exception while sending command."


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
    # Workers on this machine have it from what starts them.
    options[f"spark.executorEnv.{calls.LIMIT_VARIABLE}"] = calls.limit(settings.max_batch_s)
    if folder := os.environ.get(FOLDER_VARIABLE):
        options[f"spark.executorEnv.{FOLDER_VARIABLE}"] = folder
    master = settings.master
    if not master.startswith("local"):
        del options["spark.driver.bindAddress"]
    else:
        options.setdefault("spark.driver.host", "127.0.0.1")
        for key, value in _LOCAL_PATIENCE.items():
            options.setdefault(key, value)
        if master.startswith("local[") and "," not in master:
            options["spark.master"] = f"{master[:-1]},{_LOCAL_FAILURES}]"
        elif master == "local":
            options["spark.master"] = f"local[1,{_LOCAL_FAILURES}]"
    if not _logs_itself(settings):
        told = "log4j2-json.properties" if log_lines.wanted() else "log4j2.properties"
        path = resources.files("ikebana.processor.spark") / told
        options[_JAVA_OPTIONS] += f" -D{_LOG_FILE}={path}"
    return options


def _logs_itself(settings: Settings) -> bool:
    """Return whether the user configures the JVM's log."""
    return _LOG_FILE in settings.spark.get(_JAVA_OPTIONS, "")


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
        self._rows: left_rows.Folder | None = None
        self._folder = RunFolder()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A BaseException that is no Exception comes from a second signal.
        hurried = error is not None and not isinstance(error, Exception | Stopped)
        begun = self._session is not None
        try:
            self._end(within_s=0.0 if hurried else END_WITHIN_S)
        finally:
            self._folder.remove()
        if begun and not hurried and self._archived_for is not None:
            # For the next run: this one should not share its processors.
            class_archive.make_later(self._archived_for, os.environ)

    @property
    def folder(self) -> Path:
        """The temporary folder of this run."""
        return self._folder.path

    @property
    def owners(self) -> Owners | None:
        """The processes that own the shards; None if Spark's Python workers open them."""
        return None if self._workers is None else self._workers.owners

    @property
    def alive(self) -> bool:
        """Whether the JVM runs."""
        return self._jvm is not None and self._jvm.alive

    def has_ended(self) -> bool:
        """Whether Spark has ended in a JVM that runs."""
        return self._session is not None and is_stopped(self._session)

    def survives(self, error: Exception) -> bool:
        """Return whether Spark still runs in spite of an error."""
        # The connection to a dying JVM breaks before its process has ended.
        broken = isinstance(error, Py4JNetworkError | ConnectionError)
        if self._jvm is None or self._jvm.ends(_DYING_S if broken else 0.0):
            return False
        return not self.has_ended()

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
        self._archived_for = java if launching.is_direct(options, os.environ) else None
        # A user who configures the JVM's log wants to see it.
        if not log_lines.wanted() and not _logs_itself(settings):
            self._log = self.folder / "spark.log"
        if settings.master.startswith("local"):
            if not os.environ.get("SPARK_LOCAL_DIRS"):
                options.setdefault("spark.local.dir", str(self.folder / "spark"))
            for name, value in self.sockets().items():
                options.setdefault(name, value)
            if os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable:
                folder = Path(tempfile.mkdtemp(dir=self.folder))
                self._rows = left_rows.Folder(
                    os.environ.get("SPARK_LOCAL_DIRS")
                    or settings.spark.get("spark.local.dir", tempfile.gettempdir())
                )
                self._workers = Workers(
                    folder,
                    self._log,
                    owners=owners(settings),
                    readers=slots(settings),
                    rows=str(self._rows.path),
                    max_batch_s=settings.max_batch_s,
                )
                # The folder may be mounted noexec; then Spark runs Python itself.
                if not os.access(self._workers.python, os.X_OK):
                    self._end(within_s=0.0)
        with self._environment():
            self._jvm = Jvm(options, java, Path(tempfile.mkdtemp(dir=self.folder)), self._log)

    def sockets(self) -> dict[str, str]:
        """Settings by which the JVM and Python talk over socket files of this run.

        Over TCP each task waits for 40 ms: the last part of what one side has sent is held until
        the other has acknowledged the part before (Nagle's algorithm), which it does late.
        """
        folder = self.folder / "sockets"
        if len(os.fsencode(folder)) > _LONGEST_SOCKET_FOLDER:
            return {}
        folder.mkdir(mode=0o700, exist_ok=True)
        return {f"{_SOCKETS}.enabled": "true", f"{_SOCKETS}.dir": str(folder)}

    def session(self) -> SparkSession:
        """Return the session; start it if there is none.

        Raises:
            SparkStartError: Spark did not start.
            JavaError: there is no Java for it.
        """
        if self._session is None or not self.alive:
            self.begin()
            self._session = self._started()
        return self._session

    def _started(self) -> SparkSession:
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
            raise SparkStartError(
                f"could not start Spark: {gist(str(error))}", hint=self._kept_log()
            ) from error
        return session

    @contextmanager
    def _environment(self) -> Iterator[None]:
        """Set the Python of Spark in a `with` block, unless the user has chosen one.

        Without a fork server it is ours, on executors too: Spark's `python3` may be another one.
        """
        if self._workers is not None:
            python = str(self._workers.python)
        else:
            python = os.environ.get("PYSPARK_PYTHON", sys.executable)
        with environment(PYSPARK_PYTHON=python):
            yield

    def _kept_log(self) -> str | None:
        """Keep the JVM's log after the end of the run; return its path."""
        if self._log is None or not self._log.exists() or not self._log.stat().st_size:
            return None
        descriptor, path = tempfile.mkstemp(prefix="ikebana-spark-", suffix=".log")
        os.close(descriptor)
        shutil.copyfile(self._log, path)
        return f"Its words are in {path}."

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


def is_stopped(session: SparkSession) -> bool:
    """Whether its Spark has ended: a cluster removes applications that fail too often."""
    try:
        return bool(session._jsc.sc().isStopped())
    except (Py4JError, OSError):
        # A JVM that does not answer has its own end.
        return False


def write_no_checksums(session: SparkSession) -> None:
    """Let the driver's JVM write files on this machine without checksum files beside them.

    Hadoop has one object for local files, which all of the JVM share.  Its class has to stay:
    Spark's state store copies files by it, and fails with another one.
    """
    files = session._jvm.org.apache.hadoop.fs.FileSystem.getLocal(
        session._jsc.hadoopConfiguration()
    )
    files.setWriteChecksum(False)
    files.setVerifyChecksum(False)


def slots(settings: Settings) -> int:
    """The number of tasks that Spark runs at a time in a local run."""
    named = re.fullmatch(r"local\[(\d+|\*)(?:,.*)?\]", settings.master)
    found = "1" if named is None else named[1]
    return (os.cpu_count() or 1) if found == "*" else int(found)


def owners(settings: Settings) -> int:
    """Choose the number of processes that own shards, for a local run.

    With twice as many as there are slots, two tasks that run at a time seldom need the same one:
    shards follow one another in turn.
    """
    return max(1, min(settings.shards, 2 * slots(settings)))


def is_news(record: logging.LogRecord) -> bool:
    """Return whether a record of the root logger tells more than the exceptions do."""
    return record.msg != _CUT_OFF


def labels(spark: SparkSession, shards: int, tasks: int) -> tuple[int, ...]:
    """Find the groups of shards, such that Spark's hash puts each group into its own partition.

    Shard i is in the group of task i modulo their number.  Spark computes a group's partition as
    `pmod(murmur3(label, 42), partitions)`.  With other labels two groups could share a partition,
    and so a task, and another could be empty.
    """
    # The class also has a static hashInt.  On the class itself Py4J takes the first method of
    # that name, and Java lists methods in no fixed order, so the call would sometimes fail.
    murmur = spark._jvm.org.apache.spark.unsafe.hash.Murmur3_x86_32(42)
    found: dict[int, int] = {}
    label = 0
    while len(found) < tasks:
        found.setdefault(murmur.hashInt(label) % tasks, label)
        label += 1
    return tuple(found[shard % tasks] for shard in range(shards))
