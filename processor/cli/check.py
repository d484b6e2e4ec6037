"""`ikebana check`: verify a diff topic against its progress and its changelog mode."""

import sys
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Literal, Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from ikebana.codecs.diff import SnapshotRecord
from ikebana.codecs.formats import SINGLE_VALUE_FORMATS
from ikebana.processor.base.diff_reader import EarlierUpdates, NoDiffError, TopicPart
from ikebana.processor.base.texts import counted, moment
from ikebana.processor.base.verify import Offence, Summary, Verifier
from ikebana.processor.cli.connection import connected
from ikebana.processor.kafka.diff_topic import DiffTopic

EXIT_OFFENCE = 1
EXIT_NOT_VERIFIABLE = 2
# Without a terminal, one line of progress is printed at this interval.
_LINE_EVERY_S = 10.0
_SHOW_EVERY_S = 0.2


@click.command("check")
@click.argument("topic")
@click.option(
    "--from",
    "start",
    type=click.Choice(["beginning", "snapshot"]),
    default="snapshot",
    help="beginning: verify the whole topic, and the snapshots that it passes; snapshot: from the "
    "newest one of `ikebana compact`, or the beginning if there is none.  [default: snapshot]",
)
@connected()
def check_command(
    topic: str, *, start: Literal["beginning", "snapshot"], settings: dict[str, str]
) -> None:
    """Verify the diff topic TOPIC from a snapshot or its beginning up to its frontier.

    \b
    ikebana check orders.totals

    The progress records must leave no gap.  Each batch must have as many updates as its
    progress record counts, all at times within its interval.  After every time the
    collection must be as the topic promises: one value a key, for instance.  Updates that
    no progress record covers yet are counted but not checked.

    Exit status 0: the topic is correct.  1: it is not; the first error is printed.  2: it
    cannot be verified, because it has no progress or no updates yet, its beginning was
    deleted, or it has another format than diff.
    """
    reading = DiffTopic(settings, topic)
    try:
        snapshots = _begun(reading, start)
        ends = reading.ends()
        verifier = Verifier(topic, complete=reading.complete)
        offence = None
        with (
            _Display(topic, sum(ends.values())) as display,
            closing(reading.closed()) as parts,
        ):
            for part in parts:
                offence = verifier.feed(part) or _snapshot_offence(verifier, part, snapshots)
                if offence is not None:
                    break
                display.show(reading)
        if offence is not None:
            click.echo(_line_of(topic, verifier.summary()))
            click.echo(f"not as promised: {offence.sentence}")
            sys.exit(EXIT_OFFENCE)
        _report(reading, verifier, reading.not_closed(ends))
    except NoDiffError:
        click.echo(
            f'not verifiable: messages of "{topic}" have no diffs; outputs in the formats '
            f"{', '.join(SINGLE_VALUE_FORMATS)} have none. `ikebana snapshot` reads them "
            "with --format or --pipeline. To verify this collection, add a diff output of the "
            "same operator"
        )
        sys.exit(EXIT_NOT_VERIFIABLE)
    finally:
        reading.close()


def _begun(reading: DiffTopic, start: str) -> dict[int, SnapshotRecord]:
    """Choose where to begin; return the snapshots to verify, by their last batch."""
    assert reading.snapshots is not None, "a format without snapshots"
    gone = reading.deleted()
    if gone and (start == "beginning" or not reading.snapshots.usable()):
        click.echo(f"not verifiable: {gone}")
        sys.exit(EXIT_NOT_VERIFIABLE)
    if start == "snapshot":
        reading.begin()
        return {}
    return {record.last.batch: record for record in reading.snapshots.usable()}


def _snapshot_offence(
    verifier: Verifier, part: TopicPart, snapshots: Mapping[int, SnapshotRecord]
) -> Offence | None:
    """Compare the collection after a part with the snapshot of the same batch, if any."""
    if isinstance(part, EarlierUpdates) or (record := snapshots.get(part.progress.batch)) is None:
        return None
    if verifier.digest() == record.digest:
        return None
    at = part.progress.batch
    return Offence(f"the snapshot after batch {at} has another collection than the topic", at)


def _report(reading: DiffTopic, verifier: Verifier, not_closed: int) -> None:
    """Print the result, or exit if nothing could be verified."""
    topic = reading.topic
    if verifier.verdict() == "not verifiable":
        click.echo(f"{topic}: {counted(not_closed, 'update')}")
        lacks = "holds no progress" if reading.is_output else "does not exist: this is no output"
        click.echo(f'not verifiable: "{reading.progress_topic}" {lacks}')
        sys.exit(EXIT_NOT_VERIFIABLE)
    summary = verifier.summary()
    click.echo(_line_of(topic, summary))
    if summary.updates == summary.history == not_closed == 0:
        # An empty topic has no format yet, and nothing in it can be wrong.
        click.echo(f'not verifiable: nothing is published yet in "{topic}"')
        sys.exit(EXIT_NOT_VERIFIABLE)
    click.echo(f"accumulated: {_size(summary)}")
    for times in summary.given_up:
        click.echo(
            f"given up: times {moment(times[0])} to {moment(times[-1])}, at which it shows what "
            "it had when a checkpoint was lost"
        )
    click.echo(f"not closed yet: {counted(not_closed, 'update')}")
    if (snapshot := reading.snapshot) is not None:
        click.echo(
            f"verified from a snapshot as of {moment(snapshot.time)}, which has "
            f"{counted(snapshot.count, 'update')}: earlier updates were not checked"
        )
    elif not reading.complete:
        click.echo(
            f"verified from time {summary.verified_from}: earlier progress was deleted, so "
            f"{summary.history:,} updates before that time were not checked"
        )
    click.echo("ok")


def _line_of(topic: str, summary: Summary) -> str:
    batches, updates = counted(summary.batches, "batch"), counted(summary.updates, "update")
    line = f"{topic}: {batches}, {updates}"
    return line if summary.frontier is None else f"{line}, frontier {moment(summary.frontier)}"


def _size(summary: Summary) -> str:
    keys, values = counted(summary.keys, "key"), counted(summary.data, "value")
    return f"{keys}, {values}, {summary.total:,} with their counts"


class _Display:
    """Progress of the check: a bar on a terminal, otherwise a line now and then."""

    def __init__(self, topic: str, total: int) -> None:
        self._topic = topic
        self._total = total
        console = Console(stderr=True, highlight=False)
        self._console = console
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._shown = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
            self._task = self._bar.add_task(self._topic, total=self._total, detail="")
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, reading: DiffTopic) -> None:
        """Show the progress, if the interval has passed."""
        now = time.monotonic()
        if now - self._shown < (_LINE_EVERY_S if self._task is None else _SHOW_EVERY_S):
            return
        self._shown = now
        done = reading.read_so_far()
        frontier = "none yet" if reading.frontier is None else moment(reading.frontier)
        detail = f"{done:,} of {self._total:,} offsets, frontier {frontier}"
        if self._task is None:
            self._console.print(f"{self._topic}: {detail}", soft_wrap=True, markup=False)
        else:
            self._bar.update(self._task, completed=done, detail=detail)
