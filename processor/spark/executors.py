"""The executors of a run: where its shards are, and how many executors Spark is asked for.

Shards are placed on the hosts of executors, and again after a loss.  Executors become more while
batches take long, and fewer while they are short.
"""

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from ikebana.processor.authoring.settings import Settings
from ikebana.processor.spark.workers import daemon, network, owners
from ikebana.processor.spark.workers.owners import EXECUTOR_VARIABLE, HostAddress, Placement
from ikebana.processor.spark.workers.stand_in import VARIABLE
from ikebana.processor.watching.reports import BatchReport

# Decision (one task reaches all executors): Further tasks and the rows' way through a shuffle
# cost more than connections of our own. Both ends prove a secret of the run, and encrypt what
# they send where Spark does.

# Each task of the job that asks for hosts waits this long, so that others begin elsewhere.
_SPREAD_S = 0.2
_LOOKS = 5
# A batch that takes longer, or leaves records for later ones, shows that executors are too few.
BUSY_S = 5.0
# They are too many if a batch would take less than this with one of them fewer.
QUIET_S = 1.0
MORE_AFTER_S = 30.0
FEWER_AFTER_S = 600.0


class Placing:
    """Tracks the hosts of a run's executors, and tells the query's source where shards are.

    The source passes the placement on with each batch to the task that asks the owners.
    """

    def __init__(self, spark: SparkSession, shards: int, path: Path) -> None:
        self._spark = spark
        self._shards = shards
        self._path = path
        self._placed = Placement({}, [])
        self._looked_for: frozenset[str] = frozenset()
        self._left_out: set[str] = set()
        # How often hosts were left out, so that an answer to an earlier question is seen as one.
        self._losses = 0
        self._looking: threading.Thread | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Place the shards on the present executors."""
        self._place(executors_of(self._spark))

    def look(self) -> frozenset[str]:
        """Place shards again if the executors have changed; return the lost ones.

        New executors are asked in a thread, because the answer may have to wait for a batch.  A
        lost executor may still hold up a running batch.
        """
        now = executors_of(self._spark)
        lost = self._placed.hosts.keys() - now
        if now == self._looked_for or not now:
            return frozenset()
        if self._looking is None or not self._looking.is_alive():
            if lost:
                hosts = self._placed.hosts
                self._tell({each: hosts[each] for each in hosts if each in now})
            self._looking = threading.Thread(target=self._place, args=(now,), daemon=True)
            self._looking.start()
        return frozenset(lost)

    def leave_out(self, missed: set[str]) -> None:
        """Place shards again, without hosts that a task has not reached.

        An executor that has lost its daemon gets a new one, with another host.
        """
        self._left_out |= missed
        with self._lock:
            self._losses += 1
            self._looked_for = frozenset()

    def _place(self, executors: frozenset[str]) -> None:
        losses = self._losses
        try:
            hosts = hosts_by_executor(self._spark, executors)
        except Exception as error:  # noqa: BLE001 -- Spark may be losing executors, or end
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            print(f"could not ask executors where shards can be: {why}", file=sys.stderr)
            return
        self._tell({each: host for each, host in hosts.items() if host not in self._left_out})
        # If a host was missed meanwhile, the executors have to be asked again.
        with self._lock:
            if self._losses == losses:
                self._looked_for = executors

    def _tell(self, hosts: dict[str, str]) -> None:
        self._placed = owners.place_shards(self._shards, hosts, self._placed)
        owners.write_placement(self._path, self._placed)


def executors_of(spark: SparkSession) -> frozenset[str]:
    """Return the ids of the executors that Spark has now."""
    try:
        ids = spark.sparkContext._jsc.sc().getExecutorIds()
        return frozenset(ids.apply(at) for at in range(ids.size()))
    except (Py4JError, OSError):
        return frozenset()


def hosts_by_executor(spark: SparkSession, executors: frozenset[str]) -> dict[str, str]:
    """Ask executors for their hosts, by a small job; an executor without one is left out.

    At the start of Spark there may be no executor yet: the job waits for the first.
    """
    slots = max(spark.sparkContext.defaultParallelism, len(executors))
    hosts: dict[str, str] = {}
    for _ in range(_LOOKS):
        rows = spark.range(slots, numPartitions=slots).mapInArrow(_host, "id string, host string")
        hosts |= {row[0]: row[1] for row in rows.collect() if row[0]}
        if executors <= hosts.keys():
            break
    return hosts


def _host(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Report the host of the machine that a task runs on; a dead one is replaced."""
    for _ in batches:
        time.sleep(_SPREAD_S)
    here = HostAddress.here()
    if here is not None and here.ports and not network.is_heard(here.address(0)):
        daemon.end_worker()
    named = [os.environ.get(EXECUTOR_VARIABLE, "")], [os.environ.get(VARIABLE, "")]
    yield pa.RecordBatch.from_arrays([pa.array(each) for each in named], names=["id", "host"])


def autoscaler(
    settings: Settings,
    session: Callable[[], SparkSession],
    on_batch: Callable[[BatchReport], None],
    tell: Callable[[str], None],
) -> Callable[[BatchReport], None]:
    """Return the callback for reports on batches; it scales if the settings have a maximum."""
    if not settings.max_executors:
        return on_batch
    return Scaled(settings, session, on_batch, tell)


class Scaled:
    """Passes reports on batches on, and asks for another number of executors if they show a need.

    It is called when a batch is committed and the next one has not begun, so that no task of ours
    runs on an executor that is ended.  `tell` gets a message about each request.
    """

    def __init__(
        self,
        settings: Settings,
        session: Callable[[], SparkSession],
        on_batch: Callable[[BatchReport], None],
        tell: Callable[[str], None],
    ) -> None:
        self._least, self._most = settings.least_executors, settings.max_executors
        self._session, self._on_batch, self._tell = session, on_batch, tell
        self._scaling: Scaling | None = None

    def __call__(self, report: BatchReport) -> None:
        self._on_batch(report)
        if self._scaling is None:
            # A request from before a restart of the query still holds.
            now = max(self._least, len(executors_of(self._session())))
            self._scaling = Scaling(self._least, self._most, min(now, self._most))
        if self._scaling.after(report.seconds, report.behind):
            count = self._scaling.executors
            self._tell(f"asking Spark for {count} executor{'s' if count > 1 else ''}")
            ask_for(self._session(), count)


class Scaling:
    """Chooses a number of executors between `least` and `most`, batch by batch.

    If all batches of half a minute were too long, the number doubles; if all batches of ten
    minutes were short, it is reduced by one.  So a short backlog changes nothing, and a load that
    varies within minutes moves no shard.
    """

    def __init__(
        self,
        least: int,
        most: int,
        executors: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.executors = executors
        """How many there should be."""
        self._least, self._most, self._clock = least, most, clock
        # Since when all batches have been busy, or quiet.
        self._busy_since = self._quiet_since = math.inf

    def after(self, seconds: float, behind: int) -> bool:
        """Take note of a batch that has ended; return whether the number of executors changes.

        The batch took `seconds`, and left `behind` records for later batches.
        """
        now, count = self._clock(), self.executors
        is_busy = behind > 0 or seconds > BUSY_S
        is_quiet = not is_busy and seconds * count < QUIET_S * (count - 1)
        self._busy_since = min(self._busy_since, now - seconds) if is_busy else math.inf
        self._quiet_since = min(self._quiet_since, now) if is_quiet else math.inf
        if now - self._busy_since >= MORE_AFTER_S:
            self.executors = min(2 * count, self._most)
        elif now - self._quiet_since >= FEWER_AFTER_S:
            self.executors = max(count - 1, self._least)
        if self.executors == count:
            return False
        self._busy_since = self._quiet_since = math.inf
        return True


def ask_for(spark: SparkSession, count: int) -> None:
    """Ask Spark for `count` executors; if there are more, the newest are ended.

    Executors come later, or never: the cluster may have no room for them.
    """
    context = spark.sparkContext
    ours = context._jsc.sc()
    by_age = sorted(executors_of(spark), key=lambda name: (len(name), name))
    for executor in by_age[count:]:
        ours.killExecutor(executor)
    ours.requestTotalExecutors(count, 0, context._jvm.PythonUtils.toScalaMap({}))
