"""Show a running pipeline on a terminal: as a progress bar, or as a line now and then."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from ikebana.errors import IkebanaError
from ikebana.processor.base import log_lines
from ikebana.processor.base.fast_paths import FastPath, in_words, missed_owners
from ikebana.processor.base.notices import Notice
from ikebana.processor.base.texts import counted, moment
from ikebana.processor.planning.plan import ERRORS, Plan
from ikebana.processor.topics.batch_selection import InputsState
from ikebana.processor.watching.metrics import HotWarnings
from ikebana.processor.watching.reports import frontier_words, held_words, nothing

if TYPE_CHECKING:
    from ikebana.processor.checkpoint.edit_plan import EditPlan
    from ikebana.processor.watching.reports import BatchReport

# Without a terminal the first batches get a line each; later there is a line this often.
_LINE_EVERY_S = 10.0
_FIRST_LINES = 3


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


class BatchDisplay:
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
        self._standing: Callable[[], InputsState | None] = nothing

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

    def edit(self, plan: "EditPlan") -> None:
        """Summarise an edit of the plan in a few lines."""
        for line in plan.gist():
            self.say(f"{self._plan.name}: {line}")

    def watch(
        self,
        standing: "Callable[[], InputsState | None]",
        waiting: int,
        fast_paths: Sequence[FastPath] = (),
    ) -> None:
        """Show the frontiers of inputs from `standing`; `waiting` records waited before.

        Say which of the `fast_paths` are on, if that has changed since the last start.
        """
        self._standing = standing
        self._waiting = waiting
        if fast_paths and tuple(fast_paths) != self._fast_paths:
            self._fast_paths = tuple(fast_paths)
            self.say(f"{self._plan.name}: {in_words(fast_paths)}")

    def batch(self, report: "BatchReport") -> None:
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
            line += f"; {held_words(self._standing(), report.waiting)}"
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

    def _advance(self, task: TaskID, report: "BatchReport") -> None:
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
        standing = self._standing()
        if words := held_words(standing, self._waiting):
            where = f" ({frontier_words(standing)})" if standing is not None else ""
            self.say(f"{self._plan.name}: {words}{where}")

    def _due(self, report: "BatchReport") -> bool:
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
    "late": "late records that count at the frontier",
    "outdated": "outdated records by their sequence, not applied",
}


def _listed(counted: Counter[str]) -> str:
    """Describe the counters besides records and updates in words."""
    return ", ".join(
        f"{count:,} {_MEANING.get(what, what + ' messages ignored')}"
        for what, count in sorted(counted.items())
    )
