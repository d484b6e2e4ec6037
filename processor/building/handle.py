"""The handle of a pipeline that runs in this process."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from ikebana.errors import ConfigError
from ikebana.processor.authoring.pipeline import text_of_sinks
from ikebana.processor.authoring.pipeline_file import SETTINGS_VARIABLE
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.log_lines import note
from ikebana.processor.base.notices import Notice
from ikebana.processor.base.processes import Stopping, on_signals
from ikebana.processor.linear import functions
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import Plan
from ikebana.processor.spark.alone import alone
from ikebana.processor.watching.reports import BatchDisplay, RunStart, Watcher, Watchers
from ikebana.processor.watching.sinks import SinkFigures, Sinks, no_sinks

if TYPE_CHECKING:
    from ikebana.processor.watching.reports import BatchReport


HandleStatus = Literal["starting", "running", "restarting", "stopping", "ended", "failed"]


class Metrics(NamedTuple):
    """The figures of a run so far.

    `updates` has the number of published updates by output, `counted` the number of messages
    that made no update by reason, and `waiting` the number of records that wait until the
    frontier passes their times.
    """

    batches: int
    records: int
    updates: dict[str, int]
    counted: dict[str, int]
    waiting: int
    state_bytes: int
    restarts: int


class PipelineRun:
    """A pipeline that runs in a thread of this process, exactly once, until it is stopped.

    In a `with` block it is stopped at the end.  All attributes may be read at any time, from
    any thread.
    """

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        *,
        once: bool,
        spark: Any = None,
        wait: bool | None = None,
        watchers: Sequence[Watcher] = (),
        say: Callable[[str], None] = note,
    ) -> None:
        """Start a plan; with `once` it ends when it has caught up; `wait` as in `supervised.run`.

        Raises:
            ConfigError: a module that is imported for its functions starts it, or Spark runs or
                starts in this process already, and `spark` is not given.
            PlanError: the parts of the plan do not fit; it lists every problem.
        """
        _refuse_within_imports(plan.name)
        self.plan = checked(plan)
        self.frontier: int | None = None
        """All times before it are complete; None until a batch has been committed."""
        self.status: HandleStatus = "starting"
        self.step = "starting"
        """The present step of a start, in words."""
        self.notices: tuple[Notice, ...] = ()
        """Probable mistakes that still hold, such as a column that is always null."""
        self.error: BaseException | None = None
        """What ended the run, if it has failed."""
        self._watchers, self._say = watchers, say
        self._sinks: Callable[[], Mapping[str, SinkFigures]] = no_sinks
        self._stopping = Stopping()
        # A request to stop comes from another thread, in which nothing may be raised.
        self._stopping.finish_first()
        self._batches = self._records = self._waiting = self._state_bytes = self._restarts = 0
        self._updates: Counter[str] = Counter({o.name: 0 for o in plan.published})
        self._counted: Counter[str] = Counter()
        # Refused here, since an error in the thread may go unseen.
        self._claim = ExitStack()
        if spark is None:
            self._claim.enter_context(alone(plan.name))
        self._thread = threading.Thread(
            target=self._run,
            kwargs={"settings": settings, "spark": spark, "once": once, "wait": wait},
            name=f"ikebana {plan.name}",
            daemon=True,
        )
        self._thread.start()

    @property
    def metrics(self) -> Metrics:
        """The figures of the run so far."""
        return Metrics(
            self._batches,
            self._records,
            dict(self._updates),
            dict(self._counted),
            self._waiting,
            self._state_bytes,
            self._restarts,
        )

    @property
    def sinks(self) -> Mapping[str, SinkFigures]:
        """The progress of the sinks, by name."""
        return self._sinks()

    def wait(self, at_most_s: float | None = None) -> bool:
        """Wait for the end of the run; return whether it has ended.

        Raises:
            IkebanaError: the error that ended the run.
        """
        self._thread.join(at_most_s)
        if self._thread.is_alive():
            return False
        if self.error is not None:
            raise self.error
        return True

    def stop(self, at_most_s: float | None = None) -> bool:
        """End the run between two micro-batches, and wait; return whether it has ended.

        Raises:
            IkebanaError: the run has failed, before or while it was stopped.
        """
        self.ask_to_stop()
        return self.wait(at_most_s)

    def ask_to_stop(self) -> None:
        """End the run between two micro-batches, without waiting."""
        if self._thread.is_alive():
            self.status = "stopping"
        self._stopping.asked = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._facts())
        return f"<run of {self.plan.name}: {shown}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
            for name, value in self._facts()
        )
        return f"<table><caption>pipeline {escape(self.plan.name)}</caption>{rows}</table>"

    def _facts(self) -> list[tuple[str, object]]:
        status = f"{self.status}: {self.step}" if self.status == "starting" else self.status
        facts: list[tuple[str, object]] = [
            ("status", status),
            ("frontier", self.frontier),
            ("batches", self._batches),
            ("records", self._records),
            *(("notice", notice.line) for notice in self.notices),
            *((f"updates of {name}", count) for name, count in self._updates.items()),
        ]
        return [*facts, ("error", self.error)] if self.error is not None else facts

    def _run(self, settings: Settings, spark: Any, *, once: bool, wait: bool | None) -> None:
        try:
            with (
                self._claim,
                _sinks_of(self.plan, settings) as sinks,
                sinks.board() as board,
                sinks.beside(board, self._say, once=once) as sinks_start,
            ):
                self._sinks = board.figures
                # Importing Spark takes a second, for which the caller need not wait.
                from ikebana.processor.spark import supervised

                supervised.run(
                    self.plan,
                    settings,
                    once=once,
                    stopping=self._stopping,
                    watcher=Watchers([sinks_start, _Counting(self), *self._watchers]),
                    spark=spark,
                    wait=wait,
                )
                if once:
                    sinks.deliver_once(board, self._say, self._stopping)
        except BaseException as error:  # noqa: BLE001 -- passed to the thread that waits
            self.error, self.status = error, "failed"
        else:
            self.status = "ended"


@contextmanager
def _sinks_of(plan: Plan, settings: Settings) -> Iterator[Sinks]:
    """The sinks of a run, in a private file that is there within a `with` block."""
    with TemporaryDirectory(prefix="ikebana-sinks-") as folder:
        file = Path(folder, "sinks.yaml")
        if settings.deliver:
            file.write_text(text_of_sinks(plan, settings))
        # The settings have been read.
        yield Sinks(settings.deliver, file, environ={SETTINGS_VARIABLE: ""})


class _Counting(Watcher):
    """Updates the figures of a run."""

    def __init__(self, run: PipelineRun) -> None:
        self._run = run

    def step(self, what: str) -> None:
        self._run.step = what

    def started(self, start: RunStart) -> None:
        self._run._waiting = start.waiting
        if self._run.status != "stopping":
            self._run.status = "running"

    def batch(self, report: "BatchReport") -> None:
        run = self._run
        run.frontier = report.upper
        run._batches += 1
        run._records += report.records
        run._updates += Counter(report.counts)
        run._counted += Counter(report.counted)
        run._waiting, run._state_bytes = report.waiting, report.state_bytes

    def restart(self, cause: Exception, pause_s: float) -> None:
        self._run._restarts += 1
        self._run.status = "restarting"

    def notice(self, notices: Sequence[Notice]) -> None:
        self._run.notices = tuple(notices)


def _refuse_within_imports(pipeline: str) -> None:
    """Refuse to run a pipeline from a module that is being imported for its functions."""
    if (importing := functions.importing()) is not None:
        raise ConfigError(
            f'cannot run pipeline "{pipeline}" while module "{importing}" is imported',
            hint="Workers import the module for its functions. Run the pipeline below "
            '`if __name__ == "__main__":`.',
        )


_LOOK_EVERY_S = 0.1


def run_in_foreground(
    plan: Plan, settings: Settings, *, once: bool, spark: Any = None, wait: bool | None = None
) -> PipelineRun:
    """Run a plan until it ends by itself, or by SIGINT or SIGTERM.

    Outside of the main thread no signal handler is installed.  For `wait` see `supervised.run`.

    Raises:
        IkebanaError: the error that ended the run.
    """
    with BatchDisplay(plan, once=once) as display:
        run = PipelineRun(
            plan,
            settings,
            once=once,
            spark=spark,
            wait=wait,
            watchers=[display],
            say=display.say,
        )
        if threading.current_thread() is not threading.main_thread():
            run.wait()
            display.done(stopped=False)
            return run
        with on_signals() as stopping:
            # A signal ends the run between two batches; a second one ends the process.
            stopping.finish_first()
            while not run.wait(_LOOK_EVERY_S):
                if stopping.asked:
                    run.ask_to_stop()
        display.done(stopped=stopping.asked)
        return run
