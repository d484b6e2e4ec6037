"""The joins of a plan in one micro-batch on one shard: their arrangements, and the stages' rows.

Arrangements take the updates of their intervals before the first lookup, and are settled after
the last one.  They keep the history that rows which are still between operators will look up
(`progress.since`).
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from ikebana.arrangements.frontier import Interval, Time
from ikebana.arrangements.store import Part, Store
from ikebana.processor.base.datum import parts_of
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.engine.budget import Budget, JoinBudget
from ikebana.processor.engine.extending import extending
from ikebana.processor.engine.joining import StageOutput, looking
from ikebana.processor.engine.replaying import ArrangementPast, Replay
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.arrange_upsert import UpsertArrangement
from ikebana.processor.linear.chain import chain
from ikebana.processor.linear.scope import frozen
from ikebana.processor.linear.steps import Arrange
from ikebana.processor.planning import progress
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.joined import joined
from ikebana.processor.planning.joins.query import AsOfJoin
from ikebana.processor.planning.joins.stages import JoinStage
from ikebana.processor.planning.plan import Plan

_HYDRATE = "join"


class BatchJoins:
    """The joins of a plan, in one micro-batch."""

    def __init__(
        self,
        plan: Plan,
        intervals: Mapping[str, Interval],
        begins: Mapping[str, Time],
        *,
        hydrates: bool,
        filling: Collection[str] = (),
        kept_for: Mapping[str, Time | None] | None = None,
        budget: Budget,
    ) -> None:
        """Bring joins through a batch.

        Arrangements in `filling` will get more updates of the batch's times.  `kept_for` are
        those that an edit reads, with the time as of which it reads them, or None if it has read
        them to the end.
        """
        self._budget = budget
        self._filling = filling
        self._kept_for = kept_for or {}
        self._plan = plan
        self._joined = joined(plan)
        self._intervals = intervals
        # The history for their beginning is kept, also in batches that take no portion of it.
        self._hydrating, self._hydrates = begins, hydrates
        self._graph = progress.edges(plan)
        lowers = {name: interval.lower for name, interval in intervals.items()}
        self._since = progress.since(self._graph, lowers)
        self._arrangements: dict[str, Arrangement | UpsertArrangement] = {}

    def looks_up(self, upsert: str) -> bool:
        """Whether a join looks up an upsert's own state."""
        return upsert in self._joined.arrangements or upsert in self._kept_for

    def keep_upsert(self, name: str, part: Part, updates: Collection[KeyedUpdate]) -> None:
        """Make an upsert's own state available for lookups; it includes these updates already."""
        since = self._kept_from(name, self._since)
        interval = self._intervals[name]
        self._arrangements[name] = UpsertArrangement(part, updates, interval, since)

    def arrange(self, name: str, part: Part, updates: Collection[KeyedUpdate]) -> None:
        """Bring an arrangement up to date."""
        since = self._kept_from(name, self._since)
        arrangement = Arrangement(part, self._intervals[name], since)
        arrangement.update(updates)
        self._arrangements[name] = arrangement

    def run(
        self, stage: JoinStage, store: Store, rows: Collection[KeyedUpdate]
    ) -> Iterator[StageOutput]:
        """Apply a stage to rows; `store` has the matches of a stage that keeps them.

        Raises: TooMuchError, if a batch cannot end in its time.
        """
        if not rows:
            return
        arranged, budget = self._arrangements[stage.looks_up], self._budget.of(stage.join)
        if stage.role == "lookup" and (compiled := looking(self._plan, stage)).is_locked:
            interval = self._intervals[stage.name]
            yield from compiled.apply_locked(store, [*rows], interval, arranged, budget)
        else:
            yield from applied(self._plan, stage, rows, arranged, budget)

    def hydrates(self, stage: JoinStage) -> bool:
        """Whether a stage gets a portion of the data from before its join began."""
        return self._hydrates and self._begins(stage)

    def is_hydrated(self, stage: JoinStage, store: Store) -> bool:
        """Whether a stage got all of these data in earlier batches."""
        return self._begins(stage) and Replay(store, _HYDRATE, stage.join).is_done

    def hydrate(self, stage: JoinStage, store: Store) -> "Begun":
        """The next portion of the contents of a join's first input, as of its first time.

        They are changes at that time which see the other inputs strictly before it.  Their results
        are the whole join as of that time, because the first input counts before all others
        (`planning.joins.paths`).  Later changes go through all paths.
        """
        origin = self._arrangements[self._joined.origins[stage.join]]
        replay = Replay(store, _HYDRATE, stage.join)
        data = replay.take(ArrangementPast(origin, self._hydrating[stage.join]))
        return Begun(*sent(self._plan, stage, [*data.rows]), replay.is_done)

    def reach(self, stage: JoinStage) -> Time:
        """The time before which a stage takes rows.

        The first rows of a new join see all others strictly before their time, so they need not
        wait until that time is closed.
        """
        upper = self._intervals[stage.name].upper
        join = catalog_of(self._plan).join(stage.join)
        begins = stage.join in self._hydrating and stage.alias == join.paths[0].alias
        if begins and not isinstance(join.join, AsOfJoin):
            return max(upper, self._hydrating[stage.join] + 1)
        return upper

    def settle(self) -> None:
        """Write the arrangements for the lookups of later batches."""
        uppers = {
            name: interval.lower if name in self._filling else interval.upper
            for name, interval in self._intervals.items()
        }
        since = progress.since(self._graph, uppers)
        for name, arrangement in self._arrangements.items():
            arrangement.settle(self._kept_from(name, since))

    def _begins(self, stage: JoinStage) -> bool:
        is_new = stage.join in self._hydrating
        return is_new and stage.name == self._joined.begins(stage.join)

    def _kept_from(self, name: str, since: Mapping[str, Time]) -> Time:
        origins = self._joined.origins
        begins = (time for join, time in self._hydrating.items() if origins[join] == name)
        as_of = self._kept_for.get(name)
        asked: list[Time] = [] if as_of is None else [as_of]
        return min([since[name], *begins, *asked])


def applied(
    plan: Plan,
    stage: JoinStage,
    rows: Collection[KeyedUpdate],
    arranged: Arrangement | UpsertArrangement,
    budget: JoinBudget | None = None,
) -> Iterator[StageOutput]:
    """Apply a stage that keeps no matches to rows; without a budget it may take any time."""
    budget = budget or Budget().of(stage.join)
    if stage.role == "lookup":
        return looking(plan, stage).apply(rows, arranged, budget)
    return extending(plan, stage).apply(rows, arranged, budget)


class Sent(NamedTuple):
    """Rows for the first stage of a join: those for this shard, those to exchange, and errors."""

    near: list[KeyedUpdate]
    far: list[KeyedUpdate]
    errors: list[KeyedUpdate]


def sent(plan: Plan, stage: JoinStage, rows: list[KeyedUpdate]) -> Sent:
    """The rows for a join's first stage, from data of its first input's arrangement."""
    stages = joined(plan)
    arrangement = catalog_of(plan).join(stage.join).paths[0].arrangement
    if stages.arrangements[stages.origins[stage.join]].arrangement.keys == arrangement.keys:
        return Sent(rows, [], [])
    # The stage looks up by another key, so the rows belong to other shards.
    nulls = next((feed.nulls for feed in stages.feeds if feed.name == stage.name), False)
    steps = ((str(arrangement), Arrange(arrangement.keys, nulls)),)
    arranging = chain(steps, frozen(catalog_of(plan).relation(arrangement.relation).scope))
    whole = [KeyedUpdate(*parts_of(row.value), row.time, row.diff) for row in rows]
    far, errors = arranging.apply(whole)
    return Sent([], far, errors)


class Begun(NamedTuple):
    """A portion for a new join: rows here, rows to exchange, errors; whether it was the last."""

    near: list[KeyedUpdate]
    far: list[KeyedUpdate]
    errors: list[KeyedUpdate]
    done: bool
