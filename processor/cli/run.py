"""`ikebana run`: a pipeline over Kafka topics, until it is stopped or has caught up."""

import os
import signal
import threading
from pathlib import Path

import click

from ikebana.processor import pipeline
from ikebana.processor.cli.batches import BatchDisplay


@click.command("run")
@click.argument("file", metavar="PIPELINE", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="End when everything that is there now is done.")
@click.option("--bootstrap-servers", metavar="H:P", help="Brokers; wins over the file.")
@click.option("--checkpoint", metavar="DIR", help="Path or URI; wins over the file.")
def run_command(
    file: Path, *, once: bool, bootstrap_servers: str | None, checkpoint: str | None
) -> None:
    """Run PIPELINE, a YAML file, exactly once.

    It goes on where its checkpoint left off.  SIGTERM or Ctrl-C ends it between two
    micro-batches; a second one at once.  Exit status 3 says that a newer instance has
    taken over.
    """
    plan, settings = pipeline.read(
        file, bootstrap_servers=bootstrap_servers, checkpoint=checkpoint, environ=os.environ
    )
    stopping = _stop_on_signals()
    with BatchDisplay(plan, once=once) as display:
        # Importing Spark takes a second: a mistake in the file is told before that.
        from ikebana.processor.spark import query

        running = query.start(
            plan, settings, once=once, on_batch=display.batch, on_step=display.step
        )
        display.step("waiting for records")
        running.wait(stopping.is_set)
        display.done(stopped=stopping.is_set())


def _stop_on_signals() -> threading.Event:
    stopping = threading.Event()

    def stop(number: int, _: object) -> None:
        if stopping.is_set():
            raise SystemExit(128 + number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return stopping
