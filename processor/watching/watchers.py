"""Those who follow a run: what they are told, and several of them as one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ikebana.processor.checkpoint.edit_plan import EditPlan

    # Its module loads Kafka's library, which a caller of `start` need not wait for.
    from ikebana.processor.watching.batch_report import BatchReport


class Watcher(Protocol):
    """Follows what happens in a run."""

    def step(self, what: str) -> None:
        """Start-up has come to this."""

    def edit(self, plan: "EditPlan") -> None:
        """The plan has changed, and the run is about to go on with it."""

    def batch(self, report: "BatchReport") -> None:
        """A batch is committed."""

    def restart(self, cause: Exception, pause_s: float) -> None:
        """The query has ended, and is started again after a pause."""


class Watchers:
    """Passes everything on to each of several watchers, in their order."""

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
