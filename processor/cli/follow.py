"""`ikebana follow`: show the updates of an output's topic as its batches close."""

import time
from collections import deque
from contextlib import closing
from hashlib import blake2b
from typing import Literal, Self

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ikebana.codecs.diff import ProgressRecord
from ikebana.codecs.formats import OUTPUT_FORMATS, SINGLE_VALUE_FORMATS
from ikebana.errors import SourceError
from ikebana.processor.base.diff_reader import ClosedBatch, EarlierUpdates, PlacedUpdate, TopicPart
from ikebana.processor.base.processes import Stopping, on_signals
from ikebana.processor.base.texts import EPOCH_MS, counted, moment, span
from ikebana.processor.base.verify import batch_offence
from ikebana.processor.cli.connection import NOW, connected, time_or_now
from ikebana.processor.kafka.diff_topic import DiffTopic

# The interval of polls.
_ASK_EVERY_S = 0.2
_ROWS = 15


@click.command("follow")
@click.argument("topic")
@click.option(
    "--from",
    "start",
    type=click.Choice(["beginning", "snapshot", "now"]),
    default="snapshot",
    help="beginning: of the topic; snapshot: the newest one of `ikebana compact`, or the "
    "beginning if there is none; now: show only updates that are closed from now on, and count "
    "sizes from here.  [default: snapshot]",
)
@click.option(
    "--updates",
    type=click.IntRange(min=0),
    metavar="N",
    help="The number of updates to show: of each batch, or at once on a terminal.  "
    f"[default: all, {_ROWS} on a terminal]",
)
@click.option(
    "--until",
    type=time_or_now,
    metavar="T",
    help="End when the frontier is at or beyond T: a whole number, a date where times are "
    "milliseconds, or now: when all that is closed now has been shown.",
)
@connected("diff", *SINGLE_VALUE_FORMATS)
def follow_command(
    topic: str,
    *,
    form: str,
    start: Literal["beginning", "snapshot", "now"],
    updates: int | None,
    until: int | None,
    settings: dict[str, str],
) -> None:
    """Watch the output topic TOPIC: its updates, its frontier and its size.

    \b
    ikebana follow orders.totals
    ikebana follow orders.totals --from beginning --until now

    If standard output is not a terminal, each update is a line `time diff key value`, and
    each batch ends with a line `frontier T`: every update before T has been printed.  If
    times are milliseconds, T is followed by its date in brackets.  Ctrl-C or SIGTERM ends
    the command.
    """
    if OUTPUT_FORMATS[form].needs_earlier and start == "now":
        raise SourceError(
            f'cannot follow "{topic}" from now on: the old values of its keys are in earlier '
            "messages",
            hint=f"Leave --from out: {form} is read from the beginning.",
        )
    reading = DiffTopic(settings, topic, form)
    try:
        reading.require_output()
        if until == NOW:
            closed = reading.last_closed()
            until = 0 if closed is None else closed.upper
        tally = Tally()
        before = None
        if start == "now":
            before = reading.skip_closed()
            tally.frontier = reading.frontier
        elif start == "snapshot":
            reading.begin()
        else:
            reading.require_beginning()
        console = Console(highlight=False)
        with on_signals() as stopping:
            stopping.finish_first()
            with _view(console, topic, updates, tally) as view:
                counted = OUTPUT_FORMATS[form].as_updates
                _follow(reading, tally, view, stopping, until, before, counted=counted)
        click.echo(f"{topic}: {_summary(tally)}", err=True)
    finally:
        reading.close()


class Tally:
    """The updates read so far, and the size of the collection they add up to."""

    def __init__(self) -> None:
        self.frontier: int | None = None
        self.batches = self.updates = self.total = 0
        self._counts: dict[bytes, int] = {}

    @property
    def data(self) -> int:
        """The number of distinct data whose count is not zero."""
        return len(self._counts)

    def add(self, part: TopicPart) -> None:
        """Add the updates of a part."""
        if isinstance(part, ClosedBatch):
            self.batches += 1
            self.frontier = part.progress.upper
        self.updates += len(part.updates)
        for update in part.updates:
            self.total += update.diff
            key = b"-" if update.key is None else b"%d:" % len(update.key) + update.key
            datum = blake2b(key + update.value, digest_size=16).digest()
            if count := self._counts.get(datum, 0) + update.diff:
                self._counts[datum] = count
            else:
                self._counts.pop(datum, None)


def line(update: PlacedUpdate, width: int | None = None) -> str:
    """One update as a line: time, diff, key, value.

    >>> line(PlacedUpdate(b"frank", b"zappa", 1, -1, 0, 0))
    '1 -1 frank zappa'
    """
    key = "null" if update.key is None else text(update.key, width)
    return f"{update.time} {update.diff:+d} {key} {text(update.value, width)}"


def text(data: bytes, width: int | None = None) -> str:
    r"""Show bytes as text without control characters, cut to a width.

    >>> text(b"two\nlines \x1b[2J \xff"), text(b"a long value", 6)
    ('two\\nlines \\x1b[2J \\xff', 'a lon…')
    """
    whole = data if width is None else data[: 4 * width]
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode()
        for c in whole.decode(errors="backslashreplace")
    )
    return shown if width is None or len(shown) <= width else shown[: width - 1] + "…"


def lag(frontier: int | None, now_ms: int, not_closed: int) -> str:
    """How far the frontier is behind: a duration if times are milliseconds, else offsets.

    >>> lag(1_700_000_000_000, 1_700_000_001_500, 7), lag(42, 1_700_000_001_500, 7)
    ('1.5 s', '7 offsets not closed yet')
    """
    if frontier is not None and frontier in EPOCH_MS:
        return span(max(0, now_ms - frontier))
    return f"{not_closed:,} offsets not closed yet"


def _summary(tally: Tally) -> str:
    """What was read, in a line."""
    frontier = "" if tally.frontier is None else f", frontier {moment(tally.frontier)}"
    return (
        f"{counted(tally.batches, 'batch')}, {counted(tally.updates, 'update')}, "
        f"{tally.data:,} data, sum {tally.total:,}{frontier}"
    )


def _follow(
    reading: DiffTopic,
    tally: Tally,
    view: "_Lines | _Screen",
    stopping: Stopping,
    until: int | None,
    before: ProgressRecord | None,
    *,
    counted: bool,
) -> None:
    def ended() -> bool:
        reached = until is not None and tally.frontier is not None and tally.frontier >= until
        return reached or stopping.asked

    while not ended():
        with closing(reading.closed()) as parts:
            for part in parts:
                if isinstance(part, ClosedBatch):
                    if offence := batch_offence(reading.topic, before, part, counted=counted):
                        raise SourceError(
                            f"cannot go on: {offence.sentence}",
                            hint=f"ikebana check {reading.topic} verifies the topic.",
                        )
                    before = part.progress
                tally.add(part)
                view.show(part)
                if ended():
                    return
        view.wait(reading.behind())
        time.sleep(_ASK_EVERY_S)


def _view(console: Console, topic: str, updates: int | None, tally: Tally) -> "_Lines | _Screen":
    if console.is_terminal:
        return _Screen(console, topic, _ROWS if updates is None else updates, tally)
    return _Lines(updates)


class _Lines:
    """A line for each update, and one for each batch."""

    def __init__(self, most: int | None) -> None:
        self._most = most

    def show(self, part: TopicPart) -> None:
        """Show a part that the tally has."""
        shown = part.updates[: self._most]
        for update in shown:
            print(line(update))
        if more := len(part.updates) - len(shown):
            print(f"… and {more:,} more updates")
        if not isinstance(part, EarlierUpdates):
            print(f"frontier {moment(part.progress.upper)}", flush=True)

    def wait(self, not_closed: int) -> None:
        """Show that nothing more can be read now, and how many offsets are not closed yet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Screen:
    """The last updates, with totals, frontier and lag."""

    def __init__(self, console: Console, topic: str, rows: int, tally: Tally) -> None:
        self._console = console
        self._topic = topic
        self._tally = tally
        self._last: deque[PlacedUpdate] = deque(maxlen=rows)
        self._not_closed = 0
        self._rate = _Rate()
        self._live = Live(console=console, get_renderable=self._drawn, refresh_per_second=5)

    def show(self, part: TopicPart) -> None:
        self._last.extend(part.updates)
        self._rate.count(len(part.updates), time.monotonic())

    def wait(self, not_closed: int) -> None:
        self._not_closed = not_closed
        self._rate.count(0, time.monotonic())

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _drawn(self) -> Group:
        width = max(8, (self._console.width - 30) // 2)
        table = Table(box=None, pad_edge=False, title=Text(self._topic), title_justify="left")
        for name in ("time", "diff"):
            table.add_column(name, justify="right", no_wrap=True)
        for name in ("key", "value"):
            table.add_column(name, no_wrap=True, overflow="ellipsis")
        for update in list(self._last):
            table.add_row(
                str(update.time),
                Text(f"{update.diff:+d}", style="green" if update.diff > 0 else "red"),
                Text("null" if update.key is None else text(update.key, width)),
                Text(text(update.value, width)),
            )
        tally = self._tally
        frontier = "none yet" if tally.frontier is None else moment(tally.frontier)
        now_ms = time.time_ns() // 1_000_000
        status = (
            f"{tally.data:,} data, sum {tally.total:,}   frontier {frontier}   "
            f"lag {lag(tally.frontier, now_ms, self._not_closed)}   "
            f"{self._rate.per_second(time.monotonic()):,.0f} updates/s"
        )
        return Group(table, Text(status))


class _Rate:
    """The rate of updates over the last seconds."""

    _SECONDS = 5.0

    def __init__(self) -> None:
        self._counted: deque[tuple[float, int]] = deque()

    def count(self, updates: int, now: float) -> None:
        self._counted.append((now, updates))
        while self._counted[0][0] < now - self._SECONDS:
            self._counted.popleft()

    def per_second(self, now: float) -> float:
        recent = [n for at, n in list(self._counted) if at >= now - self._SECONDS]
        return sum(recent) / self._SECONDS
