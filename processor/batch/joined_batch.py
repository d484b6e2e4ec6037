"""The joins of a plan in one micro-batch on one shard: their arrangements, and the stages' rows.

Arrangements take the updates of their intervals before anybody asks, and are settled when all
have asked: what they keep of the past is what is still on its way to who will ask
(`progress.since`).
"""

from collections.abc import Iterator, Mapping, Sequence

from ikebana.arrangements.frontier import Interval, Time
from ikebana.arrangements.store import Part, Store
from ikebana.processor.batch.extending import extending
from ikebana.processor.batch.joining import Portion, looking
from ikebana.processor.batch.rows import KeyedUpdate
from ikebana.processor.joins.stages import Stage
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.arrange_upsert import UpsertArrangement
from ikebana.processor.planning import progress
from ikebana.processor.planning.joined import joined
from ikebana.processor.planning.plan import Plan


class JoinedBatch:
    """What joins do in one micro-batch."""

    def __init__(self, plan: Plan, intervals: Mapping[str, Interval]) -> None:
        self._plan = plan
        self._joined = joined(plan)
        self._intervals = intervals
        self._graph = progress.edges(plan)
        self._arrangements: dict[str, Arrangement | UpsertArrangement] = {}

    def looks_up(self, upsert: str) -> bool:
        """Whether a join asks an upsert's own state."""
        return upsert in self._joined.kept

    def keep_upsert(self, name: str, part: Part, updates: Sequence[KeyedUpdate]) -> None:
        """Let an upsert's own state be asked, which has these updates already."""
        since = self._since(name)
        interval = self._intervals[name]
        self._arrangements[name] = UpsertArrangement(part, updates, interval, since)

    def arrange(self, name: str, part: Part, updates: Sequence[KeyedUpdate]) -> None:
        """Bring an arrangement up to date."""
        arrangement = Arrangement(part, self._intervals[name], self._since(name))
        arrangement.update(updates)
        self._arrangements[name] = arrangement

    def run(self, stage: Stage, store: Store, rows: Sequence[KeyedUpdate]) -> Iterator[Portion]:
        """What rows of a stage become; `store` is where it remembers what it has met."""
        if not rows:
            return
        arranged = self._arrangements[stage.looks_up]
        if stage.role != "lookup":
            yield from extending(self._plan, stage).apply(rows, arranged)
            return
        compiled = looking(self._plan, stage)
        if compiled.is_locked:
            yield from compiled.apply_locked(store, rows, self._intervals[stage.name], arranged)
        else:
            yield from compiled.apply(rows, arranged)

    def settle(self) -> None:
        """Write what arrangements keep, for the lookups of batches to come."""
        uppers = {name: interval.upper for name, interval in self._intervals.items()}
        for name, arrangement in self._arrangements.items():
            arrangement.settle(progress.since(self._graph, uppers, name))

    def _since(self, name: str) -> Time:
        lowers = {each: interval.lower for each, interval in self._intervals.items()}
        return progress.since(self._graph, lowers, name)
