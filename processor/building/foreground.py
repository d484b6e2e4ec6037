"""Run a pipeline in the foreground: show its progress, and end it by signals."""

import threading
from typing import TYPE_CHECKING, Any

from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.stopping import on_signals
from ikebana.processor.building.handle import PipelineRun
from ikebana.processor.planning.plan import Plan
from ikebana.processor.watching.display import BatchDisplay

if TYPE_CHECKING:
    from ikebana.processor.spark.query import Running

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

        def started(running: "Running") -> None:
            display.watch(running.standing, running.waiting, running.fast_paths)

        run = PipelineRun(
            plan,
            settings,
            once=once,
            spark=spark,
            wait=wait,
            watchers=[display],
            on_start=started,
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
