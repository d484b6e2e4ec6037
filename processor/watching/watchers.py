"""The Protocol of watchers, which get reports on a run, and a group of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ikebana.processor.base.notices import Notice

if TYPE_CHECKING:
    from ikebana.processor.checkpoint.edit_plan import EditPlan

    # The module imports Kafka's library, for which a caller of `start` need not wait.
    from ikebana.processor.watching.reports import BatchReport


class Watcher(Protocol):
    """Gets reports on the events of a run."""

    def step(self, what: str) -> None:
        """Handle a step of the start."""

    def edit(self, plan: "EditPlan") -> None:
        """Handle a change of the plan, with which the run is about to continue."""

    def batch(self, report: "BatchReport") -> None:
        """Handle a committed batch."""

    def restart(self, cause: Exception, pause_s: float) -> None:
        """Handle a failure of the query, which is restarted after a pause."""

    def notice(self, notices: Sequence[Notice]) -> None:
        """Handle another list of the notices that hold now; it may come from any thread."""


class Watchers:
    """Passes each report on to several watchers, in their order."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self._watchers = watchers

    def step(self, what: str) -> None:
        for each in self._watchers:
            each.step(what)

    def edit(self, plan: "EditPlan") -> None:
        for each in self._watchers:
            each.edit(plan)

    def batch(self, report: "BatchReport") -> None:
        for each in self._watchers:
            each.batch(report)

    def restart(self, cause: Exception, pause_s: float) -> None:
        for each in self._watchers:
            each.restart(cause, pause_s)

    def notice(self, notices: Sequence[Notice]) -> None:
        for each in self._watchers:
            each.notice(notices)
