"""Run a plan's query, and restart it after failures that may pass.

Each start takes over the pipeline like a new instance: it has an incarnation of its own,
fences the producers of the one before, and continues after the last committed batch.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from ikebana.errors import LateError, LostError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.notices import Board
from ikebana.processor.base.processes import AttemptFailed, Restarts, Stopping, with_restarts
from ikebana.processor.planning.plan import Plan
from ikebana.processor.spark.session import Spark
from ikebana.processor.watching.reports import Watcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ikebana.processor.kafka.records import FirstMessages
    from ikebana.processor.spark.caller_session import CallerSpark
    from ikebana.processor.spark.query import OnTrigger, Running


# Decision (Spark's processes come up first): They start once the file is read, while pyspark and
# pandas are imported and topics are looked at; a refusal ends them. So what starts them imports
# nothing of pyspark.


def run(
    plan: Plan,
    settings: Settings,
    *,
    once: bool,
    stopping: Stopping,
    watcher: Watcher,
    on_trigger: "OnTrigger | None" = None,
    spark: "SparkSession | None" = None,
    wait: bool | None = None,
) -> None:
    """Run a plan until it is asked to stop, or with `once` until it has caught up.

    With `wait`, by default unless `once`, it waits for missing input topics.  `on_trigger` gets
    Spark's report on each trigger, also on triggers without a batch.  When this returns, all
    started processes have ended.  A session of the user's, `spark`, is used in place of our
    own, and stays; without it the caller has to be `alone` in this process.

    Raises:
        IkebanaError: the error that ended it.
        Stopped: it was asked to stop when there was nothing to finish.
    """
    waits = not once if wait is None else wait
    board = Board(watcher.notice)
    with _spark(settings, plan.name, spark) as ours:
        # Spark's processes start while we import pyspark and pandas, and look at the topics.
        ours.begin()
        from ikebana.processor.spark import query

        if waits and not _topics_are_there(plan, settings, watcher, board, stopping):
            return
        messages = _first_messages(plan, settings, board)
        start_query = functools.partial(query.start, ours, plan, settings, watcher, once=once)

        def start(on_begin: Callable[[], None], former: int) -> "Running":
            ours.begin()
            running = start_query(incarnation=former, on_begin=on_begin, on_trigger=on_trigger)
            if not running.precedes:
                watcher.step("waiting for records")
                messages.begin()
            return running

        attempts = _Attempts(start, stopping, ours.survives)
        try:
            with_restarts(attempts.attempt, Restarts(settings.restarts), watcher.restart)
        finally:
            messages.end()


def _first_messages(plan: Plan, settings: Settings, board: Board) -> "FirstMessages":
    from ikebana.processor.kafka.records import FirstMessages

    kafka = settings.reading_kafka
    return FirstMessages(plan, kafka, settings.registry, functools.partial(board.put, "messages"))


def _topics_are_there(
    plan: Plan, settings: Settings, watcher: Watcher, board: Board, stopping: Stopping
) -> bool:
    """Wait for input topics that no checkpoint has begun to read; False if stopped before."""
    from ikebana.processor.engine.opening import read_before
    from ikebana.processor.kafka.inputs import wait_for_topics

    return wait_for_topics(
        plan,
        settings.reading_kafka,
        lambda: read_before(settings),
        functools.partial(board.put, "topics"),
        watcher.step,
        lambda: stopping.asked,
    )


def _spark(settings: Settings, name: str, session: "SparkSession | None") -> "Spark | CallerSpark":
    if session is None:
        return Spark(settings, name)
    from ikebana.processor.spark.caller_session import CallerSpark

    return CallerSpark(session, settings, name)


class _Attempts:
    """Attempts to run a plan to its end.

    `start` starts a query; it gets a function to call right before that, and the incarnation of
    the attempt before, 0 at first.  `survives` says whether Spark still runs after an error.
    """

    def __init__(
        self,
        start: "Callable[[Callable[[], None], int], Running]",
        stopping: Stopping,
        survives: Callable[[Exception], bool],
    ) -> None:
        self._start = start
        self._stopping = stopping
        self._survives = survives
        self._has_begun = False
        self._incarnation = 0

    def attempt(self) -> None:
        """Run the plan's query.

        Raises:
            AttemptFailed: it has failed from a cause that may pass.
            Exception: any other error that has ended it.
        """
        try:
            # Unfinished work of an old plan goes first, in a query of its own.
            while self._run():
                if self._stopping.asked:
                    return
                self._stopping.at_once()
        except Exception as error:
            from ikebana.processor.spark.failures import is_transient, own_error

            cause = own_error(error, alive=self._survives(error))
            # Before the first query has begun, a mistake is likelier than bad luck, except for
            # lost processes of Spark and for transactions that brokers have ended: a busy machine
            # may cause these.
            worthwhile = self._has_begun or isinstance(cause, LostError | LateError)
            if worthwhile and is_transient(cause):
                if self._stopping.asked:
                    return
                self._stopping.at_once()
                raise AttemptFailed from cause
            if cause is error:
                raise
            raise cause from error

    def _run(self) -> bool:
        """Run one query until its end; return whether the query of the plan has to follow."""
        running = self._start(self._begin, self._incarnation)
        self._incarnation = running.incarnation
        running.wait(lambda: self._stopping.asked)
        return running.precedes

    def _begin(self) -> None:
        self._has_begun = True
        self._stopping.finish_first()
