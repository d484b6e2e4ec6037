"""Ask Spark for more executors while batches take long, and for fewer while they are short."""

from collections.abc import Callable

from pyspark.sql import SparkSession

from ikebana.processor.authoring.settings import Settings
from ikebana.processor.spark.placing import executors_of
from ikebana.processor.topics.scaling import Scaling
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
