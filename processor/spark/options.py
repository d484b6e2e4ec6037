"""All settings of Spark that ikebana relies on.

The first batch of a checkpoint fixes some of them for ever: the state store provider and the
number of state partitions.  The others can change at each restart.
"""

# Decision (no classes for plans): Rows are packed, so a task has a dozen: making the text of the
# class that would copy them costs more than copying (`spark.sql.codegen.*`).

import os
import re
import sys
from collections.abc import Mapping
from importlib import resources

from ikebana.arrangements.files import is_local
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base import calls, log_lines
from ikebana.processor.linear.functions import FOLDER_VARIABLE
from ikebana.processor.spark.workers import daemon
from ikebana.processor.spark.workers.starting import PYTHON_VARIABLE

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
