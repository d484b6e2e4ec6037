"""The connection to Spark in a JVM, and requests to it."""

# Decision (Spark's files on a local disk): They have no checksum files and no renames that check:
# the lease (R20), commit records (R4, R19) and hashes in names find what these would. Not
# `RawLocalFileSystem`: Spark casts to `LocalFileSystem` and its snapshots failed.

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql import SparkSession

from ikebana.processor.spark.child_processes import environment

Result = TypeVar("Result")


class JvmConnection:
    """The connection of pyspark to a JVM, which writes its port and secret to `address`."""

    def __init__(self, address: Path) -> None:
        with address.open("rb") as file:
            port, secret = read_int(file), UTF8Deserializer().loads(file)
        with environment(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
            self._gateway = launch_gateway()
        self._context: SparkContext | None = None

    def context(self, options: Mapping[str, str]) -> SparkContext:
        """Start Spark in the JVM."""
        # In the main thread, pyspark would replace our handler of SIGINT by its own.
        conf = SparkConf().setAll(list(options.items()))
        self._context = _in_a_thread(lambda: SparkContext(conf=conf, gateway=self._gateway))
        # Its connection breaks whenever the JVM ends, so the error is not reported.
        self._context._accumulatorServer.handle_error = _ignored
        return self._context

    def forget(self) -> None:
        """Reset pyspark after the end of the JVM, so that it can start again in this process."""
        if self._context is not None:
            # The JVM in which pyspark would stop it is gone.
            self._context._jsc = None
            self._context.stop()
        with contextlib.suppress(Exception):
            self._gateway.shutdown()
        SparkContext._active_spark_context = None
        SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None


def _ignored(request: object, client: object) -> None:
    """Ignore an error in a connection."""


def _in_a_thread(make: Callable[[], Result]) -> Result:
    """Run a function in another thread, and wait for its result; a signal ends the wait."""
    result: Future[Result] = Future()

    def run() -> None:
        try:
            result.set_result(make())
        except Exception as error:  # noqa: BLE001 -- passed to the waiting thread
            result.set_exception(error)

    Thread(target=run, name="starting Spark", daemon=True).start()
    return result.result()


def is_stopped(session: SparkSession) -> bool:
    """Whether a session's Spark has ended: a cluster removes applications that fail too often."""
    try:
        return bool(session._jsc.sc().isStopped())
    except (Py4JError, OSError):
        # The end of the JVM itself is noticed elsewhere.
        return False


def write_no_checksums(session: SparkSession) -> None:
    """Let the driver's JVM write files on this machine without checksum files beside them.

    Hadoop has one object for local files in a JVM.  Its class has to stay: Spark's state store
    copies files by it, and fails with another one.
    """
    files = session._jvm.org.apache.hadoop.fs.FileSystem.getLocal(
        session._jsc.hadoopConfiguration()
    )
    files.setWriteChecksum(False)
    files.setVerifyChecksum(False)


def groups(spark: SparkSession, shards: int, tasks: int) -> tuple[int, ...]:
    """Find the groups of shards, such that Spark's hash puts each group into its own partition.

    Shard i is in the group of task i modulo their number.  Spark computes a group's partition as
    `pmod(murmur3(group, 42), partitions)`.  With other numbers two groups could share a partition,
    and so a task, and another could be empty.
    """
    # The class also has a static hashInt.  On the class itself Py4J takes the first method of
    # that name, and Java lists methods in no fixed order, so the call would sometimes fail.
    murmur = spark._jvm.org.apache.spark.unsafe.hash.Murmur3_x86_32(42)
    by_task: dict[int, int] = {}
    group = 0
    while len(by_task) < tasks:
        by_task.setdefault(murmur.hashInt(group) % tasks, group)
        group += 1
    return tuple(by_task[shard % tasks] for shard in range(shards))
