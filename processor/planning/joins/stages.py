"""The joins of a plan as they run: arrangements, the feeds to them, and the stages that read them.

An *arrangement* is identified by its relation, the filters that are pushed to it, and its key; all
joins share it.  The number of distinct arrangements is the cost of joins.  If the relation's
operator keeps its state by that key anyway, and there are no filters, that state is used at no
cost.

A *feed* sends a relation's updates to the shards of a key.  An arrangement has one, and the
first stage of a path uses the same feed if its input is arranged by the key that it looks up:
mostly a change is arranged by the key that it is joined by, and then it travels once.

A *stage* executes a step of a path.  It gets its rows from the stage before it, by an exchange
unless they stay in their shards, and waits for the arrangement that it looks up.  Results come
from the last stages, so an output of a join lags by the longest of its paths (`progress.depths`),
and no arrangement is compacted past rows in flight to a stage (`progress.since`).

An extension is several stages.  A row is counted at one candidate after the other; the one
with the fewest data proposes values, and all others validate in turn which of these they have.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Literal, NamedTuple

from ikebana.processor.linear.json_text import JSON, quoted
from ikebana.processor.linear.scope import KEY, VALUE
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.joins.binding import flat_name
from ikebana.processor.planning.joins.paths import ArrangedBy, Extend, Lookup, Path, Planned
from ikebana.processor.planning.joins.query import AsOfJoin
from ikebana.processor.planning.plan import Plan
from ikebana.processor.planning.relations import Relation


class ArrangementReader(NamedTuple):
    """A reader of an arrangement: the path of input `path` of a join, which looks up `alias`."""

    join: str
    path: str
    alias: str


@dataclass(frozen=True, slots=True)
class Shared:
    """An arrangement and its readers; `is_own` if it is the state of the relation's operator."""

    arrangement: ArrangedBy
    readers: tuple[ArrangementReader, ...]
    is_own: bool

    @property
    def joins(self) -> tuple[str, ...]:
        """The joins that read it."""
        return tuple(dict.fromkeys(reader.join for reader in self.readers))


class NearMiss(NamedTuple):
    """Two arrangements of a relation by one key that differ in their filters only."""

    one: ArrangedBy
    other: ArrangedBy

    def __str__(self) -> str:
        return (
            f"{self.one} and {self.other} differ by their filters alone; "
            "a relation behind the conditions that they share would be kept once"
        )


def shared(joins: Iterable[Planned], relations: Mapping[str, Relation]) -> tuple[Shared, ...]:
    """The distinct arrangements of joins, in the order in which they are first read."""
    readers: dict[ArrangedBy, list[ArrangementReader]] = {}
    for join in joins:
        for path in join.paths:
            for alias, arrangement in path.reads():
                reader = ArrangementReader(join.join.name, path.alias, alias)
                readers.setdefault(arrangement, []).append(reader)
    return tuple(
        Shared(each, tuple(of), _is_own(each, relations[each.relation]))
        for each, of in readers.items()
    )


def near_misses(arrangements: Sequence[Shared]) -> Iterator[NearMiss]:
    """The pairs of arrangements that differ in their filters only."""
    for one, other in combinations((each.arrangement for each in arrangements), 2):
        if (one.relation, one.keys) == (other.relation, other.keys):
            yield NearMiss(one, other)


def cost(arrangements: Iterable[Shared]) -> int:
    """The number of arrangements that joins need in addition to existing state."""
    return sum(not each.is_own for each in arrangements)


def _is_own(arrangement: ArrangedBy, relation: Relation) -> bool:
    if arrangement.filters or arrangement.keys not in ((KEY,), (quoted(KEY),)):
        return False
    # Lookups ask for keys in JSON, and a state may have keys in bytes.
    return relation.keeps_state and relation.scope.types[KEY] == JSON


Role = Literal["lookup", "count", "propose", "validate"]


class Feed(NamedTuple):
    """A feed: sends the updates of `by.relation` to the shards of a key.

    `name` is the arrangement or the stage that gets them.  With `nulls` it also gets rows
    without a key, which match nothing.
    """

    name: str
    by: ArrangedBy
    nulls: bool


@dataclass(frozen=True, slots=True)
class JoinStage:
    """A delta query stage: looks rows up in an arrangement, for a step of a path.

    `rows_from` has the stages, or the feed, that its rows come from; rows of a feed are data
    of the path's input.  `number` counts steps, and `candidate` the candidates of an extension.
    """

    name: str
    join: str
    alias: str
    number: int
    role: Role
    candidate: int
    rows_from: tuple[str, ...]
    is_first: bool
    exchange: bool
    looks_up: str


@dataclass(frozen=True)
class Stages:
    """The dataflow of all joins of a plan; `arrangements` has each one by its name."""

    feeds: tuple[Feed, ...] = ()
    arrangements: Mapping[str, Shared] = field(default_factory=dict)
    stages: Mapping[str, JoinStage] = field(default_factory=dict)
    last: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The stages that emit each join's results."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """By join, the arrangement that has its first input, from which it can begin."""

    @cached_property
    def readers(self) -> Mapping[str, Sequence[JoinStage]]:
        """The stages that get the rows of each stage, or the updates of each feed."""
        readers: dict[str, list[JoinStage]] = {}
        for stage in self.stages.values():
            for name in stage.rows_from:
                readers.setdefault(name, []).append(stage)
        return readers

    def first_stage(self, join: str) -> str:
        """The first stage of the path of a join's first input."""
        return next(
            name for name, stage in self.stages.items() if stage.join == join and stage.is_first
        )


def step_name(join: str, alias: str, number: int) -> str:
    """The name of a step of a path; a lookup's stage has the same name."""
    return f"{join}/{alias}/{number}"


def candidate_name(step: str, role: Role, candidate: int) -> str:
    """The name of a stage of a candidate of an extension."""
    return f"{step}/{role}/{candidate}"


def stages(joins: Sequence[Planned], arrangements: Sequence[Shared]) -> Stages:
    """The dataflow of joins over shared arrangements."""
    by_name = {operator_name(each): each for each in arrangements}
    names = {each.arrangement: name for name, each in by_name.items()}
    feeds = [Feed(name, each.arrangement, nulls=False) for name, each in by_name.items()]
    feeds = [feed for feed in feeds if not by_name[feed.name].is_own]
    fed = {feed.by: feed.name for feed in feeds}
    all_stages: dict[str, JoinStage] = {}
    last: dict[str, tuple[str, ...]] = {}
    for join in joins:
        nulls = join.join.outer
        last[join.join.name] = ()
        for path in join.paths:
            for stage in _stages(join.join.name, path, names):
                fed_stage = stage
                if stage.is_first:
                    feed = None if nulls else fed.get(path.arrangement)
                    if feed is None:
                        feeds.append(Feed(stage.name, path.arrangement, nulls))
                    fed_stage = replace(
                        stage, rows_from=() if feed is None else (feed,), exchange=False
                    )
                all_stages[fed_stage.name] = fed_stage
            last[join.join.name] += _ends(path, join.join.name)
    origins = {join.join.name: _origin(join, by_name) for join in joins}
    existing = {join: origin for join, origin in origins.items() if origin is not None}
    return Stages(tuple(feeds), by_name, all_stages, last, existing)


def _origin(join: Planned, arrangements: Mapping[str, Shared]) -> str | None:
    """An arrangement with all of a join's first input, preferably keyed by its first lookup.

    Data with a null key are in no arrangement, so the arrangement of another join may lack some.
    """
    path, name = join.paths[0], join.join.name
    ideal = path.arrangement
    nulls = join.join.outer
    fitting = []
    for of, each in arrangements.items():
        of_same = each.arrangement.of == ideal.of
        by_same = each.arrangement.keys == ideal.keys
        own_reader = any(r.join == name and r.alias == path.alias for r in each.readers)
        if of_same and (each.is_own or ((by_same or own_reader) and not nulls)):
            fitting.append((not by_same, of))
    return min(fitting)[1] if fitting else None


def operator_name(of: Shared) -> str:
    """The operator that stores an arrangement: itself, or the operator of its relation."""
    return of.arrangement.relation if of.is_own else of.arrangement.id


def _stages(join: str, path: Path, names: Mapping[ArrangedBy, str]) -> Iterator[JoinStage]:
    """The stages of a path, in the order of their rows."""
    before: tuple[str, ...] = ()
    for number, step in enumerate(path.steps):
        name = step_name(join, path.alias, number)
        if isinstance(step, Lookup):
            asked = names[step.arrangement]
            yield JoinStage(
                name,
                join,
                path.alias,
                number,
                "lookup",
                0,
                before,
                is_first=not before,
                exchange=step.exchange,
                looks_up=asked,
            )
            before = (name,)
            continue
        parts = list(_extending(name, join, path.alias, number, step, before, names))
        yield from parts
        before = extended(name, step)


def _extending(
    name: str,
    join: str,
    alias: str,
    number: int,
    step: Extend,
    before: tuple[str, ...],
    names: Mapping[ArrangedBy, str],
) -> Iterator[JoinStage]:
    def stage(role: Role, at: int, rows_from: tuple[str, ...]) -> JoinStage:
        candidate = step.candidates[at]
        asked = names[candidate.data if role == "validate" else candidate.values]
        return JoinStage(
            candidate_name(name, role, at),
            join,
            alias,
            number,
            role,
            at,
            rows_from,
            is_first=not rows_from,
            exchange=True,
            looks_up=asked,
        )

    count = range(len(step.candidates))
    for at in count:
        yield stage("count", at, before)
        before = (candidate_name(name, "count", at),)
    for at in count:
        yield stage("propose", at, before)
    for at in count:
        proposed = tuple(candidate_name(name, "propose", other) for other in count if other != at)
        validated = tuple(candidate_name(name, "validate", other) for other in range(at))
        yield stage("validate", at, (*proposed, *validated))


def extended(name: str, step: Extend) -> tuple[str, ...]:
    """The stages that emit the rows of an extension.

    Candidates validate in index order, so the last stage emits, or the one before it for rows that
    the last candidate proposed.
    """
    last = len(step.candidates) - 1
    return candidate_name(name, "validate", last), candidate_name(name, "validate", last - 1)


def _ends(path: Path, join: str) -> tuple[str, ...]:
    number = len(path.steps) - 1
    name, step = step_name(join, path.alias, number), path.steps[number]
    return (name,) if isinstance(step, Lookup) else extended(name, step)


@functools.lru_cache(maxsize=32)
def joined(plan: Plan) -> Stages:
    """The arrangements, feeds and stages of all joins.

    Raises: JoinError, if a join has problems.
    """
    catalog = catalog_of(plan)
    joins = [catalog.join(join.name) for join in plan.joins]
    names = {each.relation for join in plan.joins for each in join.inputs}
    relations = {name: catalog.relation(name) for name in names}
    return stages(joins, shared(joins, relations))


def arrangements(plan: Plan) -> tuple[Shared, ...]:
    """The arrangements of all joins, each once."""
    return tuple(joined(plan).arrangements.values())


def looked_up(plan: Plan) -> frozenset[str]:
    """The upserts with state that joins look up."""
    return frozenset(name for name, each in joined(plan).arrangements.items() if each.is_own)


def columns_read(plan: Plan, relation: str) -> frozenset[str] | None:
    """The columns of a relation's values that joins read; None if they need all.

    Data that agree in these columns join alike; keys of arrangements are not counted here.
    Where matches are locked by the whole row, a change of any column looks up again.
    """
    columns: set[str] = set()
    for join in plan.joins:
        for at, each in enumerate(join.inputs):
            if each.relation != relation:
                continue
            if isinstance(join, AsOfJoin) and at == 0 and join.locks:
                if not join.locked_by:
                    return None
                columns.update(join.locked_by)
            types = catalog_of(plan).join(join.name).types
            start = flat_name(each.alias, "")
            columns |= {name.removeprefix(start) for name in types if name.startswith(start)}
    return None if VALUE in columns else frozenset(columns - {KEY})
