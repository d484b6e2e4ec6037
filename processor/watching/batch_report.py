"""The report of a committed batch, for the watchers of a run."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ikebana.processor.base.noted import Noted, merged
from ikebana.processor.base.sharding import Hot, added_up, shown
from ikebana.processor.checkpoint.commits import Marker


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
