"""`ikebana run`: a pipeline over Kafka topics, until it is stopped or has caught up."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import click

from ikebana.processor.cli.batches import BatchDisplay
from ikebana.processor.cli.watching import watchable, watched

Told = TypeVar("Told")


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
    micro-batches; a second one at once.  Exit status 3 says that a newer instance has
    taken over.
    """
    # Who asks for help does not wait for a database of expressions.
    from ikebana.processor.configuring import pipeline

    plan, settings = pipeline.read(
        file, bootstrap_servers=bootstrap_servers, checkpoint=checkpoint, environ=os.environ
    )
    with BatchDisplay(plan, once=once) as display, ExitStack() as opened:
        monitor = None
        if http is not None:
            limits = ready_within, stuck_after, start_within
            monitor = opened.enter_context(watched(plan, settings, http, *limits, display.say))
        stopping = _stop_on_signals()
        # Importing Spark takes a second: a mistake in the file is told before that.
        from ikebana.processor.spark import query

        running = query.start(
            plan,
            settings,
            once=once,
            on_batch=_both(display.batch, monitor.batch if monitor else None),
            on_step=_both(display.step, monitor.step if monitor else None),
            on_trigger=monitor.trigger if monitor else None,
        )
        if monitor is not None:
            monitor.started(
                running.checkpoint_id,
                running.incarnation,
                running.spark_ui,
                running.standing,
                running.waiting,
            )
        display.watch(running.standing, running.waiting)
        display.step("waiting for records")
        running.wait(stopping.is_set)
        display.done(stopped=stopping.is_set())


def _both(
    one: Callable[[Told], None], other: Callable[[Told], None] | None
) -> Callable[[Told], None]:
    def tell(value: Told) -> None:
        one(value)
        if other is not None:
            other(value)

    return tell


def _stop_on_signals() -> threading.Event:
    stopping = threading.Event()

    def stop(number: int, _: object) -> None:
        if stopping.is_set():
            raise SystemExit(128 + number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return stopping
