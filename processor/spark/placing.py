"""Place the shards of a run on the hosts of its executors, and again after a loss."""

# Decision (one task reaches all executors): Further tasks and the rows' way through a shuffle
# cost more than connections of our own. Both ends prove a secret of the run, and encrypt what
# they send where Spark does.

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from ikebana.processor.spark.workers import daemon, network, placement
from ikebana.processor.spark.workers.owners import EXECUTOR_VARIABLE, Owners
from ikebana.processor.spark.workers.placement import Placement
from ikebana.processor.spark.workers.stand_in import VARIABLE

# Each task of the job that asks for hosts waits this long, so that others begin elsewhere.
_SPREAD_S = 0.2
_LOOKS = 5


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
            hosts = hosts_of(self._spark, executors)
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
        self._placed = placement.placed(self._shards, hosts, self._placed)
        placement.tell(self._path, self._placed)


def executors_of(spark: SparkSession) -> frozenset[str]:
    """Return the ids of the executors that Spark has now."""
    try:
        ids = spark.sparkContext._jsc.sc().getExecutorIds()
        return frozenset(ids.apply(at) for at in range(ids.size()))
    except (Py4JError, OSError):
        return frozenset()


def hosts_of(spark: SparkSession, executors: frozenset[str]) -> dict[str, str]:
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
    here = Owners.here()
    if here is not None and here.ports and not network.is_heard(here.address(0)):
        daemon.leave()
    named = [os.environ.get(EXECUTOR_VARIABLE, "")], [os.environ.get(VARIABLE, "")]
    yield pa.RecordBatch.from_arrays([pa.array(each) for each in named], names=["id", "host"])
