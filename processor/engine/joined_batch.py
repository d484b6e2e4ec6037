"""The joins of a plan in one micro-batch on one shard: their arrangements, and the stages' rows.

Arrangements take the updates of their intervals before the first lookup, and are settled after
the last one.  They keep the history that rows which are still between operators will look up
(`progress.since`).
"""

import functools
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ikebana.arrangements.store import PrefixStore, Store
from ikebana.arrangements.update import LARGEST, TOO_LARGE, Interval, Time
from ikebana.processor.base.rows import KeyedUpdate, parts_of
from ikebana.processor.base.texts import shown
from ikebana.processor.engine.budget import Budget, JoinBudget
from ikebana.processor.engine.joining import (
    Maker,
    Onward,
    Sources,
    StageOutput,
    error_update,
    key_sql_of,
    lookup_stage,
    lookups,
    path_of,
    portions,
    results,
    select_of,
    where_onward,
)
from ikebana.processor.engine.replaying import ArrangementPast, Replay
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.half_join import Arranged, Match, half_join
from ikebana.processor.kernels.upsert import UpsertArrangement
from ikebana.processor.linear.chain import chain, is_null
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.scope import frozen
from ikebana.processor.linear.steps import Arrange
from ikebana.processor.planning import progress
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.joins.binding import Flat, alias_of
from ikebana.processor.planning.joins.paths import Candidate, Extend, Path, Planned, binds
from ikebana.processor.planning.joins.query import AsOfJoin
from ikebana.processor.planning.joins.stages import (
    JoinStage,
    Role,
    candidate_name,
    joined,
    step_name,
)
from ikebana.processor.planning.plan import Plan

_HYDRATE = "join"


class BatchJoins:
    """The joins of a plan, in one micro-batch."""

    def __init__(
        self,
        plan: Plan,
        intervals: Mapping[str, Interval],
        join_times: Mapping[str, Time],
        *,
        hydrates: bool,
        filling: Collection[str] = (),
        looked_up_as_of: Mapping[str, Time | None] | None = None,
        budget: Budget,
    ) -> None:
        """Bring joins through a batch.

        Arrangements in `filling` will get more updates of the batch's times.  An edit reads those
        in `looked_up_as_of` as of the times there, None if it has read them to the end.
        """
        self._budget = budget
        self._filling = filling
        self._looked_up_as_of = looked_up_as_of or {}
        self._plan = plan
        self._joined = joined(plan)
        self._intervals = intervals
        # The history for their beginning is kept, also in batches that take no portion of it.
        self._hydrating, self._hydrates = join_times, hydrates
        self._graph = progress.edges(plan)
        lowers = {name: interval.lower for name, interval in intervals.items()}
        self._since = progress.since(self._graph, lowers)
        self._arrangements: dict[str, Arrangement | UpsertArrangement] = {}

    def looks_up(self, upsert: str) -> bool:
        """Whether a join looks up an upsert's own state."""
        return upsert in self._joined.arrangements or upsert in self._looked_up_as_of

    def keep_upsert(self, name: str, part: PrefixStore, updates: Collection[KeyedUpdate]) -> None:
        """Make an upsert's own state available for lookups; it includes these updates already."""
        since = self._retained_from(name, self._since)
        interval = self._intervals[name]
        self._arrangements[name] = UpsertArrangement(part, updates, interval, since)

    def arrange(self, name: str, part: PrefixStore, updates: Collection[KeyedUpdate]) -> None:
        """Bring an arrangement up to date."""
        since = self._retained_from(name, self._since)
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
        if stage.role == "lookup" and (compiled := lookup_stage(self._plan, stage)).is_locked:
            interval = self._intervals[stage.name]
            yield from compiled.apply_locked(store, [*rows], interval, arranged, budget)
        else:
            yield from apply_stage(self._plan, stage, rows, arranged, budget)

    def hydrates(self, stage: JoinStage) -> bool:
        """Whether a stage gets a portion of the data from before its join began."""
        return self._hydrates and self._is_first(stage)

    def is_hydrated(self, stage: JoinStage, store: Store) -> bool:
        """Whether a stage got all of these data in earlier batches."""
        return self._is_first(stage) and Replay(store, _HYDRATE, stage.join).is_done

    def hydrate(self, stage: JoinStage, store: Store) -> "Begun":
        """The next portion of the contents of a join's first input, as of its first time.

        They are changes at that time which see the other inputs strictly before it.  Their results
        are the whole join as of that time, because the first input counts before all others
        (`planning.joins.paths`).  Later changes go through all paths.
        """
        origin = self._arrangements[self._joined.origins[stage.join]]
        replay = Replay(store, _HYDRATE, stage.join)
        data = replay.take(ArrangementPast(origin, self._hydrating[stage.join]))
        return Begun(*rows_for_first_stage(self._plan, stage, [*data.rows]), replay.is_done)

    def reach(self, stage: JoinStage) -> Time:
        """The time before which a stage takes rows.

        The first rows of a new join see all others strictly before their time, so they need not
        wait until that time is closed.
        """
        upper = self._intervals[stage.name].upper
        join = catalog_of(self._plan).join(stage.join)
        is_first = stage.join in self._hydrating and stage.alias == join.paths[0].alias
        if is_first and not isinstance(join.join, AsOfJoin):
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
            arrangement.settle(self._retained_from(name, since))

    def _is_first(self, stage: JoinStage) -> bool:
        is_new = stage.join in self._hydrating
        return is_new and stage.name == self._joined.first_stage(stage.join)

    def _retained_from(self, name: str, since: Mapping[str, Time]) -> Time:
        origins = self._joined.origins
        times = (time for join, time in self._hydrating.items() if origins[join] == name)
        as_of = self._looked_up_as_of.get(name)
        asked: list[Time] = [] if as_of is None else [as_of]
        return min([since[name], *times, *asked])


def apply_stage(
    plan: Plan,
    stage: JoinStage,
    rows: Collection[KeyedUpdate],
    arranged: Arrangement | UpsertArrangement,
    budget: JoinBudget | None = None,
) -> Iterator[StageOutput]:
    """Apply a stage that keeps no matches to rows; without a budget it may take any time."""
    budget = budget or Budget().of(stage.join)
    if stage.role == "lookup":
        return lookup_stage(plan, stage).apply(rows, arranged, budget)
    return extension_stage(plan, stage).apply(rows, arranged, budget)


class Sent(NamedTuple):
    """Rows for the first stage of a join: those for this shard, those to exchange, and errors."""

    near: list[KeyedUpdate]
    far: list[KeyedUpdate]
    errors: list[KeyedUpdate]


def rows_for_first_stage(plan: Plan, stage: JoinStage, rows: list[KeyedUpdate]) -> Sent:
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


# One batch of a stage that binds a variable by several inputs (`planning.joins.extension`).
#
# A row is *counted* at one candidate after the other, and carries the candidate with the fewest
# data.  That candidate *proposes* a row for each value; the others *validate* these in turn.
# Counts only choose the proposer, so they need not be exact: every choice gives the same rows.
# Only a count of zero has to be exact, because it ends the row.
#
# Between the stages of an extension a row begins with the smallest count and its candidate.

# Decision (candidates are counted as they are now): A count only chooses who proposes, and every
# choice gives the same rows. Arrangements are asked by the bound key and by key and variable, so
# kernels need no order within a key.

# The fewest data, and the candidate that has them.
_COUNTED = struct.Struct(">QB")


class Extending:
    """A stage of an extension, compiled."""

    def __init__(self, join: Planned, path: Path, stage: JoinStage) -> None:
        step = path.steps[stage.number]
        assert isinstance(step, Extend), "a lookup is no extension"
        self._join, self._path, self._stage, self._step = join, path, stage, step
        self._candidate = step.candidates[stage.candidate]
        self._types = join.types
        self._name = step_name(join.join.name, path.alias, stage.number)
        self._bound = {
            path.alias,
            *(name for of in path.steps[: stage.number] for name in binds(of)),
        }
        self._needed = {*step.carries, *(name for of in step.predicates for name in of.columns)}
        for each in step.candidates:
            self._needed |= {name for of in (*each.key, *each.data_key) for name in of.columns}
        self._makers: dict[
            tuple[tuple[str, ...], tuple[tuple[str, str], ...], str, bool], Maker
        ] = {}

    def apply(
        self, rows: Iterable[KeyedUpdate], arranged: Arranged, budget: JoinBudget
    ) -> Iterator[StageOutput]:
        """Apply the stage to rows, and yield the output.

        Raises: TooMuchError, if a batch cannot end in its time.
        """
        steps = {"count": self._count, "propose": self._propose, "validate": self._validate}
        for some in portions(rows):
            yield from steps[self._stage.role](some, arranged, budget)

    def _count(
        self, rows: Sequence[KeyedUpdate], arranged: Arranged, budget: JoinBudget
    ) -> Iterator[StageOutput]:
        """Count the candidate's data, and send rows to the next candidate or to the proposer."""
        at, candidates = self._stage.candidate, self._step.candidates
        goes_on = at + 1 < len(candidates)
        sizes = arranged.sizes([_key(row) for row in rows])
        groups: dict[int, list[_Row]] = {}
        for row, size in zip(rows, sizes, strict=True):
            fewest, who, payload = (size, at, row.value) if at == 0 else _counted(row.value)
            if size < fewest:
                fewest, who = size, at
            # A candidate without data proposes no row.
            if fewest:
                counted = _Row(_COUNTED.pack(fewest, who), payload, None, row.time, row.diff)
                groups.setdefault(at + 1 if goes_on else who, []).append(counted)
        role: Role = "count" if goes_on else "propose"
        select = select_of(self._columns())
        for to, group in groups.items():
            yield self._stage_output(role, to, group, select, candidates[to].key)
        budget.spend()

    def _propose(
        self, rows: Sequence[KeyedUpdate], arranged: Arranged, budget: JoinBudget
    ) -> Iterator[StageOutput]:
        """A row for each value that the candidate has, or for each datum if it completes."""
        candidate, variable = self._candidate, self._step.variable
        # The other candidates look the value up under the variable's name.
        select = [
            *select_of(self._columns(*self._completed(candidate))),
            (variable, candidate.value.sql),
        ]
        to = 0 if self._stage.candidate else 1
        key = tuple(
            candidate.value if each.sql == quoted(variable) else each
            for each in self._step.candidates[to].data_key
        )
        seen: set[tuple[int, bytes]] = set()
        asked_by: bytes | None = None
        for matches in portions(self._matches(rows, arranged, budget)):
            budget.spend()
            met = [_met(rows[each.payload], each) for each in matches]
            if candidate.completes:
                yield self._stage_output("validate", to, met, select, key)
                continue
            # A value counts once, however many data have it.
            met = [
                each._replace(diff=rows[m.payload].diff)
                for each, m in zip(met, matches, strict=True)
            ]
            portion = self._stage_output("validate", to, met, select, key)
            distinct = []
            for at, row in zip(portion.of, portion.rows, strict=True):
                if rows[matches[at].payload].key != asked_by:
                    # Matches come key by key, so values of earlier keys are not needed any more.
                    asked_by = rows[matches[at].payload].key
                    seen.clear()
                value = matches[at].payload, row.value
                if value not in seen:
                    seen.add(value)
                    distinct.append(row)
            yield portion._replace(rows=distinct)

    def _validate(
        self, rows: Sequence[KeyedUpdate], arranged: Arranged, budget: JoinBudget
    ) -> Iterator[StageOutput]:
        """The rows with a value that the candidate also has, with its data if it completes."""
        completes = self._candidate.completes
        # If it does not complete, one match is enough.
        for matches in portions(self._matches(rows, arranged, budget, once=not completes)):
            budget.spend()
            groups: dict[int, list[_Row]] = {}
            for match in matches:
                row = rows[match.payload]
                met = _met(row, match)
                if not completes:
                    met = met._replace(diff=row.diff)
                groups.setdefault(_counted(row.value)[1], []).append(met)
            for who, group in groups.items():
                yield self._validated(who, group)

    def _validated(self, who: int, rows: Sequence["_Row"]) -> StageOutput:
        """Send validated rows, which candidate `who` proposed, to the next stage or out."""
        at, candidates = self._stage.candidate, self._step.candidates
        left = [other for other in range(at + 1, len(candidates)) if other != who]
        if left:
            done = {who, *range(at + 1)}
            bound = [name for each in done for name in self._completed(candidates[each])]
            select = select_of(self._columns(*bound, self._step.variable))
            to = left[0]
            return self._stage_output("validate", to, rows, select, candidates[to].data_key)
        join, path, number = self._join, self._path, self._stage.number
        select, key, parts = results(join, path, number, self._step.carries)
        onto = where_onward(join, path, number + 1)
        maker = self._maker(select, key, self._step.predicates, last=onto.stage is None)
        return self._portion(onto, maker, rows, parts, counted=False)

    def _matches(
        self,
        rows: Sequence[KeyedUpdate],
        arranged: Arranged,
        budget: JoinBudget,
        *,
        once: bool = False,
    ) -> Iterator[Match]:
        """The matches of rows, or `once`, one per row; the payload is the position of the row."""
        asking = lookups(rows, range(len(rows)), sees_equal=self._candidate.sees_equal)
        return half_join(arranged, asking, once=once, watcher=budget)

    def _columns(self, *bound: str) -> list[str]:
        """The columns of bound aliases, and of those in `bound`, that later steps read."""
        aliases = self._bound.union(bound)
        return sorted(name for name in self._needed if alias_of(name) in aliases)

    def _completed(self, candidate: Candidate) -> list[str]:
        return [candidate.alias] if candidate.completes else []

    def _stage_output(
        self,
        role: Role,
        to: int,
        rows: Sequence["_Row"],
        select: list[tuple[str, str]],
        key: Sequence[Flat],
    ) -> StageOutput:
        onto = Onward(candidate_name(self._name, role, to), exchange=True)
        maker = self._maker(select, key_sql_of(key), (), last=False)
        return self._portion(onto, maker, rows, len(key), counted=True)

    def _maker(
        self, select: list[tuple[str, str]], key: str, where: Sequence[Flat], *, last: bool
    ) -> Maker:
        cache_key = tuple(each.sql for each in where), tuple(select), key, last
        if cache_key not in self._makers:
            payload = self._path.alias if self._stage.is_first else None
            datum = None if self._stage.role == "count" else self._candidate.alias
            sources = Sources(payload, datum)
            self._makers[cache_key] = Maker(
                self._types,
                sources,
                where,
                select,
                key,
                last=last,
                whose=shown(self._join.join.name),
            )
        return self._makers[cache_key]

    def _portion(
        self, onto: Onward, maker: Maker, rows: Sequence["_Row"], parts: int, *, counted: bool
    ) -> StageOutput:
        result = maker.make([row.payload for row in rows], [row.datum for row in rows])
        updates, of, large = [], [], []
        for at, key, value in zip(result.rows, result.keys, result.values, strict=True):
            row = rows[at]
            if not -LARGEST <= row.diff <= LARGEST:
                large.append(error_update(self._join.join.name, TOO_LARGE, row.time, row.diff))
            elif not (parts and is_null(key, parts)):
                whole = row.counted + value if counted else value
                updates.append(KeyedUpdate(key, whole, row.time, row.diff))
                of.append(at)
        name = self._join.join.name
        errors = [
            error_update(name, why, rows[at].time, rows[at].diff) for at, why in result.failed
        ]
        return StageOutput(onto, updates, large + errors, of)


class _Row(NamedTuple):
    """A row of an extension: its counts so far, its columns, and its match."""

    counted: bytes
    payload: bytes
    datum: bytes | None
    time: int
    diff: int


@functools.lru_cache(maxsize=256)
def extension_stage(plan: Plan, stage: JoinStage) -> Extending:
    """A stage of an extension, compiled once in a process."""
    join = catalog_of(plan).join(stage.join)
    return Extending(join, path_of(join, stage), stage)


def _counted(payload: bytes) -> tuple[int, int, bytes]:
    """The smallest count, its candidate, and the columns that the row carries."""
    fewest, who = _COUNTED.unpack_from(payload)
    return fewest, who, payload[_COUNTED.size :]


def _met(row: KeyedUpdate, match: Match) -> _Row:
    size = _COUNTED.size
    return _Row(row.value[:size], row.value[size:], match.datum, match.time, match.diff)


def _key(row: KeyedUpdate) -> bytes:
    assert row.key is not None, "a row that asks has no key"
    return row.key
