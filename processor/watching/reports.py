"""The report of a committed batch, the watchers that get it, and words for what waits then."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ikebana.processor.base.notices import Notice
from ikebana.processor.base.record_notes import Noted, merged
from ikebana.processor.base.sharding import Hot, added_up
from ikebana.processor.base.texts import moment, shown
from ikebana.processor.checkpoint.commits import Marker
from ikebana.processor.checkpoint.parts import MOST_COUNTED
from ikebana.processor.topics.batch_selection import InputsState

if TYPE_CHECKING:
    from ikebana.processor.checkpoint.edit_plan import EditPlan


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
    markers: list[Marker]
    waiting: int = 0
    filling: Filling | None = None
    noted: Sequence[Noted] = ()
    hot: Sequence[Hot] = ()
    owned: bool = True


def report(markers: list[Marker], seconds: float, *, owned: bool = True) -> BatchReport:
    """Make the report of a batch from the markers of its shards."""
    first = markers[0]
    counts = {shown(name): sum(m.counts.get(name, 0) for m in markers) for name in first.counts}
    return BatchReport(
        batch=first.batch,
        lower=first.lower,
        upper=first.upper,
        records=sum(marker.records for marker in markers),
        behind=first.behind,
        counts=counts,
        counted=dict(sum((Counter(m.counted) for m in markers), Counter[str]())),
        state_bytes=sum(marker.manifest.size for marker in markers),
        seconds=seconds,
        markers=markers,
        waiting=sum(marker.waiting for marker in markers),
        filling=_filling(markers),
        noted=merged(each for marker in markers for each in marker.noted),
        hot=added_up(each for marker in markers for each in marker.hot),
        owned=owned,
    )


def _filling(markers: list[Marker]) -> Filling | None:
    """Compute the progress of all shards; the slowest one determines the current part."""
    fillings = [marker.filling for marker in markers if marker.filling is not None]
    if not fillings:
        return None
    last = min(fillings, key=lambda each: each.done)
    share = sum(each.done for each in fillings) / (len(fillings) * last.parts)
    return Filling(last.done, last.parts, last.name, share, sum(each.keys for each in fillings))


def held_words(standing: InputsState | None, waiting: int) -> str | None:
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
    if standing is None:
        return f"{count} {verb} for the frontier to pass their times"
    if not standing.held_by:
        return f"{count} {verb} for a record of a later time than all that were seen"
    names = " and ".join(standing.held_by)
    return f"{count} {verb} for {names} to come past {moment(standing.upper)}"


def frontier_words(standing: InputsState) -> str:
    """Describe the frontier of each input.

    >>> state = InputsState(40, {"orders": 90, "names": 40}, ["names"], ["orders"], ahead=True)
    >>> frontier_words(state)
    'names is silent after 39, orders is at 90'
    """
    words = [
        f"{name} is silent after {moment(at - 1)}"
        if name in standing.silent
        else f"{name} is at {moment(at)}"
        for name, at in standing.frontiers.items()
    ]
    words += [f"{name} is silent" for name in standing.silent if name not in standing.frontiers]
    return ", ".join(sorted(words))


def nothing() -> None:
    """Return None: there is none, or it is not known yet."""
