"""`ikebana run`: a pipeline over Kafka topics, until it is stopped or has caught up."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ikebana.processor.cli.watching import watchable, watched
from ikebana.processor.ground.stopping import Stopped, on_signals

if TYPE_CHECKING:
    from ikebana.processor.spark.query import Running
    from ikebana.processor.watching.batch_report import BatchReport
    from ikebana.processor.watching.display import BatchDisplay
    from ikebana.processor.watching.monitor import Monitor


@click.command("run")
@click.argument("file", metavar="PIPELINE", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="End when everything that is there now is done.")
@click.option("--bootstrap-servers", metavar="H:P", help="Brokers; wins over the file.")
@click.option("--checkpoint", metavar="DIR", help="Path or URI; wins over the file.")
@watchable
def run_command(
    file: Path,
    *,
    once: bool,
    bootstrap_servers: str | None,
    checkpoint: str | None,
    http: tuple[str, int] | None,
    ready_within: float,
    stuck_after: float | None,
    start_within: float,
) -> None:
    """Run PIPELINE, a YAML file, exactly once.

    It goes on where its checkpoint left off.  SIGTERM or Ctrl-C ends it between two
    micro-batches; a second one at once.  What may go by itself, such as a lost worker,
    starts its query again, up to run.restarts times an hour.  Exit status 3 says that a
    newer instance has taken over.
    """
    # Who asks for help does not wait for a database of expressions.
    from ikebana.processor.cli import finding
    from ikebana.processor.watching.display import BatchDisplay

    plan, settings = finding.read(
        file, bootstrap_servers=bootstrap_servers, checkpoint=checkpoint, environ=os.environ
    )
    with on_signals() as stopping, BatchDisplay(plan, once=once) as display, ExitStack() as opened:
        monitor = None
        if http is not None:
            limits = ready_within, stuck_after, start_within
            monitor = opened.enter_context(watched(plan, settings, http, *limits, display.say))
        try:
            # Importing Spark takes a second: a mistake in the file is told before that.
            from ikebana.processor.spark import supervised

            supervised.run(
                plan,
                settings,
                once=once,
                stopping=stopping,
                watcher=display if monitor is None else _Watchers(display, monitor),
                on_start=_started(display, monitor),
                on_trigger=None if monitor is None else monitor.trigger,
            )
        except Stopped:
            display.stopped_early()
        else:
            display.done(stopped=stopping.asked)


class _Watchers:
    """Tells both, the person and the machines."""

    def __init__(self, display: "BatchDisplay", monitor: "Monitor") -> None:
        self._both = display, monitor

    def step(self, what: str) -> None:
        for each in self._both:
            each.step(what)

    def batch(self, report: "BatchReport") -> None:
        for each in self._both:
            each.batch(report)

    def restart(self, cause: Exception, pause_s: float) -> None:
        for each in self._both:
            each.restart(cause, pause_s)


def _started(display: "BatchDisplay", monitor: "Monitor | None") -> "Callable[[Running], None]":
    def tell(running: "Running") -> None:
        display.watch(running.standing, running.waiting)
        if monitor is not None:
            monitor.started(
                running.checkpoint_id,
                running.incarnation,
                running.spark_ui,
                running.standing,
                running.waiting,
            )

    return tell
