"""The Spark session, and every setting of Spark's that ikebana relies on, in one place.

Some of these are frozen into a checkpoint by its first batch (the state store provider
and the number of state partitions); the others can change from restart to restart.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from importlib import resources

from pyspark.sql import SparkSession

from ikebana.arrangements.errors import SparkStartError
from ikebana.processor import log_lines
from ikebana.processor.configuring.settings import Settings
from ikebana.processor.java import find_java

# What a user may not change: the user's own settings come before these.
_STATE_STORE = "spark.sql.streaming.stateStore."
OWNED = {
    # One row a shard: what matters is that a batch uploads little and memory is bounded.
    _STATE_STORE + "providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    _STATE_STORE + "rocksdb.changelogCheckpointing.enabled": "true",
    # A rival attempt of a task is fenced, and fencing costs the one that works.
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
    # How fresh what an idle pipeline says of itself is.
    "spark.sql.streaming.noDataProgressEventInterval": "1s",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.worker.reuse": "true",
    # The JVM moves packed rows and little else: the second compiler never pays back.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
# A task whose worker died is tried again; only then does the query fail.
_LOCAL_FAILURES = 4


def build(settings: Settings, name: str) -> SparkSession:
    """The session that a pipeline runs in."""
    find_java(os.environ)
    master = settings.master
    options = {
        **DEFAULTS,
        **settings.spark,
        **OWNED,
        "spark.driver.memory": settings.driver_memory,
        "spark.sql.shuffle.partitions": str(settings.shards),
        "spark.sql.streaming.minBatchesToRetain": str(max(2, settings.retained_batches)),
    }
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if master.startswith("local[") and "," not in master:
            master = f"{master[:-1]},{_LOCAL_FAILURES}]"
        elif master == "local":
            master = f"local[1,{_LOCAL_FAILURES}]"
        options.setdefault("spark.driver.host", "127.0.0.1")
    else:
        del options["spark.driver.bindAddress"]
    own_log = "log4j2.configurationFile" in options["spark.driver.extraJavaOptions"]
    if not own_log:
        told = "log4j2-json.properties" if log_lines.wanted() else "log4j2.properties"
        path = resources.files("ikebana.processor.spark") / told
        options["spark.driver.extraJavaOptions"] += f" -Dlog4j2.configurationFile={path}"
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in options.items():
        builder = builder.config(key, value)
    session: SparkSession
    # Who says how the JVM is to log wants to read it.
    shown = own_log or log_lines.wanted()
    with _jvm_words(aside=master.startswith("local") and not shown):
        session = builder.getOrCreate()
    return session


@contextlib.contextmanager
def _jvm_words(*, aside: bool) -> Iterator[None]:
    """Let the JVM that is started here write to a log file instead of to our stderr.

    It inherits the descriptor, so the exchange need only last until it runs.
    """
    if not aside:
        yield
        return
    descriptor, path = tempfile.mkstemp(prefix="ikebana-spark-", suffix=".log")
    sys.stderr.flush()
    ours = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    except Exception as error:
        raise SparkStartError(
            f"could not start Spark: {str(error).splitlines()[0]}",
            hint=f"Its words are in {path}.",
        ) from error
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        os.close(descriptor)


def labels(spark: SparkSession, shards: int) -> tuple[int, ...]:
    """Group labels of which Spark's hash puts the i-th into state partition i.

    Spark places a group by `pmod(murmur3(label, 42), partitions)`; without the choice
    two shards could share a partition, and so a task, and another would stand empty.
    """
    # The class has a static hashInt as well: asked of the class itself, Py4J takes the first
    # of that name, and Java gives methods in no order, so at times there is none.
    murmur = spark._jvm.org.apache.spark.unsafe.hash.Murmur3_x86_32(42)
    found: dict[int, int] = {}
    label = 0
    while len(found) < shards:
        found.setdefault(murmur.hashInt(label) % shards, label)
        label += 1
    return tuple(found[partition] for partition in range(shards))
