"""`ikebana check`: whether a diff topic holds what its progress and its promise say."""

import sys
import time
from contextlib import closing
from typing import Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from ikebana.processor.cli.connection import connected
from ikebana.processor.cli.values import moment
from ikebana.processor.kafka.diff_topic import DiffTopic
from ikebana.processor.verifying.diff_reader import NoDiffError
from ikebana.processor.verifying.verify import Summary, Verifier

EXIT_OFFENCE = 1
EXIT_NOT_VERIFIABLE = 2
# Without a terminal: a line this often.
_LINE_EVERY_S = 10.0
_SHOW_EVERY_S = 0.2


@click.command("check")
@click.argument("topic")
@connected()
def check_command(topic: str, *, settings: dict[str, str]) -> None:
    """Verify the diff topic TOPIC from its beginning up to its frontier.

    Progress must be without gaps, each batch must hold as many updates as it counts, at
    times of its own, and after every time the collection must be what the topic
    promises.  Updates that no progress covers yet are counted, not judged.

    Exit status 0: ok.  1: not as promised; the first offence is printed.  2: not
    verifiable, since there is no progress, or no update yet, or the topic's beginning was
    deleted, or its messages are those of another format than diff.
    """
    reading = DiffTopic(settings, topic)
    try:
        if gone := reading.deleted():
            click.echo(f"not verifiable: {gone}")
            sys.exit(EXIT_NOT_VERIFIABLE)
        ends = reading.ends()
        verifier = Verifier(topic, complete=reading.complete)
        with (
            _Display(topic, sum(ends.values())) as display,
            closing(reading.closed()) as parts,
        ):
            for part in parts:
                if verifier.feed(part):
                    break
                display.show(reading)
        if verifier.offence is not None:
            click.echo(_told(topic, verifier.summary()))
            click.echo(f"not as promised: {verifier.offence.sentence}")
            sys.exit(EXIT_OFFENCE)
        not_closed = reading.not_closed(ends)
        if verifier.verdict() == "not verifiable":
            click.echo(f"{topic}: {not_closed:,} updates")
            click.echo(f'not verifiable: "{reading.progress_topic}" holds no progress')
            sys.exit(EXIT_NOT_VERIFIABLE)
        summary = verifier.summary()
        if summary.updates == summary.history == not_closed == 0:
            # Whatever format it will have, there is nothing that could be wrong.
            click.echo(_told(topic, summary))
            click.echo(f'not verifiable: nothing is published yet in "{topic}"')
            sys.exit(EXIT_NOT_VERIFIABLE)
        click.echo(_told(topic, summary))
        click.echo(f"accumulated: {_size(summary)}")
        click.echo(f"not closed yet: {not_closed:,} updates")
        if not reading.complete:
            click.echo(
                f"verified from time {summary.verified_from}: earlier progress was deleted, "
                f"{summary.history:,} updates before that time are taken as they are"
            )
        click.echo("ok")
    except NoDiffError:
        click.echo(
            f'not verifiable: messages of "{topic}" have no diffs, as those of outputs in upsert '
            "and debezium-json; their progress counts other updates than they tell. "
            "`ikebana snapshot` reads them with --format or --pipeline; what a diff output of the "
            "same operator holds can be verified"
        )
        sys.exit(EXIT_NOT_VERIFIABLE)
    finally:
        reading.close()


def _told(topic: str, summary: Summary) -> str:
    told = f"{topic}: {summary.batches:,} batches, {summary.updates:,} updates"
    return told if summary.frontier is None else f"{told}, frontier {moment(summary.frontier)}"


def _size(summary: Summary) -> str:
    return f"{summary.keys:,} keys, {summary.data:,} values, {summary.total:,} with their counts"


class _Display:
    """How far the check has come: a bar on a terminal, else a line now and then."""

    def __init__(self, topic: str, total: int) -> None:
        self._topic = topic
        self._total = total
        console = Console(stderr=True, highlight=False)
        self._console = console
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._shown = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
            self._task = self._bar.add_task(self._topic, total=self._total, told="")
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, reading: DiffTopic) -> None:
        """Show how far the reading is, if it is time to."""
        now = time.monotonic()
        if now - self._shown < (_LINE_EVERY_S if self._task is None else _SHOW_EVERY_S):
            return
        self._shown = now
        done = reading.read_so_far()
        told = f"{done:,} of {self._total:,} offsets, frontier {reading.frontier}"
        if self._task is None:
            self._console.print(f"{self._topic}: {told}", soft_wrap=True, markup=False)
        else:
            self._bar.update(self._task, completed=done, told=told)
