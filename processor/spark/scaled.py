"""Ask Spark for more executors while batches take long, and for fewer while they are short."""

import math
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from ikebana.processor.authoring.settings import Settings
from ikebana.processor.spark.placing import executors_of
from ikebana.processor.watching.batch_report import BatchReport


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


def scaled(
    settings: Settings,
    session: Callable[[], SparkSession],
    on_batch: Callable[[BatchReport], None],
    tell: Callable[[str], None],
) -> Callable[[BatchReport], None]:
    """Return the callback for reports on batches; it scales if the settings have a maximum."""
    if not settings.max_executors:
        return on_batch
    return Scaled(settings, session, on_batch, tell)


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


# A batch that takes longer, or leaves records for later ones, shows that executors are too few.
BUSY_S = 5.0
# They are too many if a batch would take less than this with one of them fewer.
QUIET_S = 1.0
MORE_AFTER_S = 30.0
FEWER_AFTER_S = 600.0


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
