"""The report of a committed batch, the watchers that get it, and what a terminal shows of it.

A terminal has a progress bar; where there is none, a line is written now and then.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from ikebana.errors import IkebanaError
from ikebana.processor.base import log_lines
from ikebana.processor.base.fast_paths import FastPath, in_words, missed_owners
from ikebana.processor.base.notices import Notice
from ikebana.processor.base.rows import Noted, notes_added_up
from ikebana.processor.base.sharding import Hot, added_up
from ikebana.processor.base.texts import counted, moment, shown
from ikebana.processor.checkpoint.commits import CommitRecord
from ikebana.processor.checkpoint.parts import MOST_COUNTED
from ikebana.processor.planning.plan import ERRORS, Plan
from ikebana.processor.topics.batch_selection import InputsState

if TYPE_CHECKING:
    from ikebana.processor.checkpoint.edit_description import EditDescription


def nothing() -> None:
    """Return None: there is none, or it is not known yet."""


class RunStart(NamedTuple):
    """The facts about a started query, which has taken over the pipeline.

    `inputs` returns the latest frontiers of those with times of their own, `waiting` is the
    number of records that already waited before this start.  A query that `precedes` runs the old
    plan, and another start then goes on with the plan.
    """

    checkpoint: str
    incarnation: int
    spark_ui: str | None = None
    inputs: Callable[[], InputsState | None] = nothing
    waiting: int = 0
    precedes: bool = False
    fast_paths: tuple[FastPath, ...] = ()


class Watcher:
    """Gets reports on the events of a run, and ignores them; each watcher handles some."""

    def step(self, what: str) -> None:
        """Handle a step of the start."""

    def edit(self, description: "EditDescription") -> None:
        """Handle a change of the plan, with which the run is about to continue."""

    def started(self, start: RunStart) -> None:
        """Handle the start of a query."""

    def batch(self, report: "BatchReport") -> None:
        """Handle a committed batch."""

    def restart(self, cause: Exception, pause_s: float) -> None:
        """Handle a failure of the query, which is restarted after a pause."""

    def notice(self, notices: Sequence[Notice]) -> None:
        """Handle another list of the notices that hold now; it may come from any thread."""


class Watchers(Watcher):
    """Passes each report on to several watchers, in their order."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self._watchers = watchers

    def step(self, what: str) -> None:
        for each in self._watchers:
            each.step(what)

    def edit(self, description: "EditDescription") -> None:
        for each in self._watchers:
            each.edit(description)

    def started(self, start: RunStart) -> None:
        for each in self._watchers:
            each.started(start)

    def batch(self, report: "BatchReport") -> None:
        for each in self._watchers:
            each.batch(report)

    def restart(self, cause: Exception, pause_s: float) -> None:
        for each in self._watchers:
            each.restart(cause, pause_s)

    def notice(self, notices: Sequence[Notice]) -> None:
        for each in self._watchers:
            each.notice(notices)


class Filling(NamedTuple):
    """The progress of an edit that fills new parts of the state.

    Every shard has finished at least `done` of `parts`; the slowest one is at the part `name`.
    `share` is the finished share of all shards together.  The batch processed `keys` keys.
    """

    done: int
    parts: int
    name: str
    share: float
    keys: int

    def words(self) -> str:
        """Describe the progress in words.

        >>> Filling(1, 3, "totals", 0.4, 20_000).words()
        'filling after an edit: part 2 of 3 (totals)'
        """
        return (
            f"filling after an edit: part {min(self.done + 1, self.parts)} of {self.parts} "
            f"({self.name})"
        )


class BatchReport(NamedTuple):
    """The facts about a committed batch.

    `noted` are the last records that were late, drifted or made errors.  `hot` are the most
    frequent keys of records and of joins, by their hashes.  `owned` says whether owners have run
    the batch.
    """

    batch: int
    lower: int
    upper: int
    records: int
    behind: int
    counts: dict[str, int]
    counted: dict[str, int]
    state_bytes: int
    seconds: float
    commits: list[CommitRecord]
    waiting: int = 0
    filling: Filling | None = None
    noted: Sequence[Noted] = ()
    hot: Sequence[Hot] = ()
    owned: bool = True


def report(commits: list[CommitRecord], seconds: float, *, owned: bool = True) -> BatchReport:
    """Make the report of a batch from the commit records of its shards."""
    first = commits[0]
    counts = {shown(name): sum(m.counts.get(name, 0) for m in commits) for name in first.counts}
    return BatchReport(
        batch=first.batch,
        lower=first.lower,
        upper=first.upper,
        records=sum(commit.records for commit in commits),
        behind=first.behind,
        counts=counts,
        counted=dict(sum((Counter(m.counted) for m in commits), Counter[str]())),
        state_bytes=sum(commit.manifest.size for commit in commits),
        seconds=seconds,
        commits=commits,
        waiting=sum(commit.waiting for commit in commits),
        filling=_filling(commits),
        noted=notes_added_up(each for commit in commits for each in commit.noted),
        hot=added_up(each for commit in commits for each in commit.hot),
        owned=owned,
    )


def _filling(commits: list[CommitRecord]) -> Filling | None:
    """Compute the progress of all shards; the slowest one determines the current part."""
    fillings = [commit.filling for commit in commits if commit.filling is not None]
    if not fillings:
        return None
    last = min(fillings, key=lambda each: each.done)
    share = sum(each.done for each in fillings) / (len(fillings) * last.parts)
    return Filling(last.done, last.parts, last.name, share, sum(each.keys for each in fillings))


def held_words(inputs: InputsState | None, waiting: int) -> str | None:
    """Describe how many records wait for which inputs; None if none waits.

    >>> late = InputsState(40, {"orders": 90, "customers": 40}, [], ["customers"], ahead=True)
    >>> held_words(late, 22)
    '22 records wait for customers to come past 40'
    """
    if not waiting:
        return None
    count = f"{'at least ' if waiting >= MOST_COUNTED else ''}{waiting:,} records"
    verb = "wait" if waiting > 1 else "waits"
    count = count if waiting > 1 else "1 record"
    if inputs is None:
        return f"{count} {verb} for the frontier to pass their times"
    if not inputs.held_by:
        return f"{count} {verb} for a record of a later time than all that were seen"
    names = " and ".join(inputs.held_by)
    return f"{count} {verb} for {names} to come past {moment(inputs.upper)}"


def frontier_words(inputs: InputsState) -> str:
    """Describe the frontier of each input.

    >>> state = InputsState(40, {"orders": 90, "names": 40}, ["names"], ["orders"], ahead=True)
    >>> frontier_words(state)
    'names is silent after 39, orders is at 90'
    """
    words = [
        f"{name} is silent after {moment(at - 1)}"
        if name in inputs.silent
        else f"{name} is at {moment(at)}"
        for name, at in inputs.frontiers.items()
    ]
    words += [f"{name} is silent" for name in inputs.silent if name not in inputs.frontiers]
    return ", ".join(sorted(words))


# Without a terminal the first batches get a line each; later there is a line this often.
_LINE_EVERY_S = 10.0
_FIRST_LINES = 3
HOT_SHARE = 0.2
"""A warning is given for a key with a greater share of a batch's records of an input."""
HOT_MATCHES = 10_000
"""A warning is given for a key that meets more data than this in the lookups of a batch."""
_WARN_EVERY_S = 600.0


class Warned(NamedTuple):
    """A warning: the words, and its fields for log lines as JSON."""

    words: str
    fields: dict[str, object]


class HotWarnings:
    """The warnings of a run: one for each input, operator or join in a period."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._warned_at: dict[tuple[str, str], float] = {}

    def of(self, batch: int, keys: Iterable[Hot]) -> Iterator[Warned]:
        """Yield the warnings about a batch."""
        now_s = self._clock()
        for hot in keys:
            name = hot.kind, shown(hot.of)
            words = _warning(batch, hot)
            if words is None or now_s - self._warned_at.get(name, -_WARN_EVERY_S) < _WARN_EVERY_S:
                continue
            self._warned_at[name] = now_s
            yield words


def _warning(batch: int, hot: Hot) -> Warned | None:
    of = shown(hot.of)
    fields: dict[str, object] = {"batch": batch, "of": of, "hash": hot.hash}
    if hot.kind == "matches":
        if hot.most <= HOT_MATCHES:
            return None
        words = (
            f"the key with the hash {hot.hash} has met {hot.most:,} rows of join {of} in batch "
            f"{batch}: its results are as many, and all come from one shard"
        )
        return Warned(words, {**fields, "matches": hot.most})
    if not hot.hash or hot.share <= HOT_SHARE:
        return None
    words = (
        f"the key with the hash {hot.hash} has {hot.share:.0%} of the {hot.count:,} records of "
        f"{of} in batch {batch}: its shard does more than the others"
    )
    return Warned(words, {**fields, "share": round(hot.share, 3), "records": hot.count})


class _Bar(Progress):
    """A progress bar with a text below it, wrapped for narrow terminals."""

    def __init__(self, console: Console) -> None:
        self._note = ""
        super().__init__(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )

    def tell(self, what: str) -> None:
        self._note = what

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self._note:
            yield Text(self._note)


class BatchDisplay(Watcher):
    """Shows the batches of one run on standard error."""

    def __init__(self, plan: Plan, *, once: bool) -> None:
        self._plan = plan
        self._once = once
        self._console = Console(stderr=True, highlight=False)
        self._live = self._console.is_terminal and not log_lines.is_json()
        self._bar = _Bar(self._console)
        self._task: TaskID | None = None
        self._batches = self._records = self._updates = self._errors = 0
        self._counted: Counter[str] = Counter()
        self._last_line = 0.0
        self._upper = 0
        self._waiting = 0
        self._filled_keys = 0
        self._fast_paths: tuple[FastPath, ...] = ()
        self._hot = HotWarnings()
        self._said: set[tuple[str, str, str]] = set()
        self._inputs: Callable[[], InputsState | None] = nothing

    def __enter__(self) -> Self:
        if self._live:
            self._bar.start()
            self._task = self._bar.add_task(self._plan.name, total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._bar.stop()

    def step(self, what: str) -> None:
        """Show the present step of the start."""
        if self._task is not None:
            self._bar.tell(what)
        else:
            self.say(f"{what} …")

    def edit(self, description: "EditDescription") -> None:
        """Summarise an edit of the plan in a few lines."""
        for line in description.gist():
            self.say(f"{self._plan.name}: {line}")

    def started(self, start: RunStart) -> None:
        """Say which of the fast paths are on, if that has changed since the last start."""
        self._inputs, self._waiting = start.inputs, start.waiting
        if start.fast_paths and start.fast_paths != self._fast_paths:
            self._fast_paths = start.fast_paths
            self.say(f"{self._plan.name}: {in_words(start.fast_paths)}")

    def batch(self, report: BatchReport) -> None:
        """Show a committed batch."""
        self._batches += 1
        self._records += report.records
        self._errors += report.counts[ERRORS]
        self._updates += sum(n for name, n in report.counts.items() if name != ERRORS)
        self._counted += Counter(report.counted)
        self._upper = report.upper
        self._waiting = report.waiting
        line = (
            f"batch {report.batch}: {counted(report.records, 'record')} in "
            f"{report.seconds:.1f} s, "
            f"{counted(self._updates, 'update')} so far, frontier {moment(report.upper)}, "
            f"{report.behind:,} offsets behind"
        )
        if errors := report.counts[ERRORS]:
            line += f", {counted(errors, 'change')} of errors on {self._plan.error_topic}"
        if report.counted:
            line += f"; {_listed(self._counted)} so far"
        if report.filling is not None:
            self._filled_keys += report.filling.keys
            line += f"; {report.filling.words()}, {self._filled_keys:,} keys so far"
        if report.waiting:
            line += f"; {held_words(self._inputs(), report.waiting)}"
        if self._task is not None:
            self._bar.tell(line)
            self._advance(self._task, report)
        elif self._batches <= _FIRST_LINES or self._due(report):
            self.say(line)
        for words, fields in self._hot.of(report.batch, report.hot):
            self._warn(words, fields)
        if not report.owned and (paths := missed_owners(self._fast_paths)) != self._fast_paths:
            self._fast_paths = paths
            self._warn(in_words(paths), {})

    def notice(self, notices: Sequence[Notice]) -> None:
        """Say each notice once."""
        for each in notices:
            if each.name not in self._said:
                self._said.add(each.name)
                self._warn(each.line, {"kind": each.kind, "input": each.input, "of": each.of})

    def _warn(self, words: str, fields: Mapping[str, object]) -> None:
        if log_lines.is_json():
            log_lines.warning(words, pipeline=self._plan.name, **fields)
        else:
            self.say(f"{self._plan.name}: warning: {words}")

    def _advance(self, task: TaskID, report: BatchReport) -> None:
        """Move the bar by records, or by the progress of an edit while it fills."""
        if report.filling is not None:
            self._bar.update(task, completed=report.filling.share, total=1.0)
            return
        total = self._records + report.behind if self._once else None
        self._bar.update(task, completed=self._records, total=total)

    def restart(self, cause: Exception, pause_s: float) -> None:
        """Show the cause of a failure, and that the query is restarted."""
        reason = cause.message if isinstance(cause, IkebanaError) else str(cause)
        self.say(f"{self._plan.name}: {reason}; starting again in {pause_s:.0f} s")
        self.step("starting again")

    def stopped_early(self) -> None:
        """Show that the run was stopped before its query began, or between two starts of it."""
        if self._batches:
            self.done(stopped=True)
        else:
            self.say(f"{self._plan.name}: stopped before it began")

    def done(self, *, stopped: bool) -> None:
        """Summarise the run."""
        self.say(
            f"{self._plan.name}: {'stopped' if stopped else 'caught up'} after "
            f"{counted(self._batches, 'batch')}, {counted(self._records, 'record')}, "
            f"{counted(self._updates, 'update')}"
            + (f", {counted(self._errors, 'change')} of errors" if self._errors else "")
            + (f"; {_listed(self._counted)}" if self._counted else "")
            + (f", frontier {moment(self._upper)}" if self._batches else "")
        )
        inputs = self._inputs()
        if words := held_words(inputs, self._waiting):
            where = f" ({frontier_words(inputs)})" if inputs is not None else ""
            self.say(f"{self._plan.name}: {words}{where}")

    def _due(self, report: BatchReport) -> bool:
        does = bool(report.records) or report.filling is not None
        return does and time.monotonic() - self._last_line > _LINE_EVERY_S

    def say(self, text: str) -> None:
        """Print a text on a line of its own, above the bar."""
        self._last_line = time.monotonic()
        if log_lines.is_json():
            log_lines.info(text, pipeline=self._plan.name)
            return
        self._console.print(text, soft_wrap=True, markup=False)
        sys.stderr.flush()


# The counters of a batch in words; all others are kinds of messages.
_MEANING = {
    "drift": "old images unlike the state",
    "dropped table": "dropped tables, whose rows stay",
    "error dropped": "errors dropped",
    "message": "messages without a row ignored",
    "late": "late records that count at the frontier",
    "outdated": "outdated records by their sequence, not applied",
}


def _listed(counted: Counter[str]) -> str:
    """Describe the counters besides records and updates in words."""
    return ", ".join(
        f"{count:,} {_MEANING.get(what, what + ' messages ignored')}"
        for what, count in sorted(counted.items())
    )
