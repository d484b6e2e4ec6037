"""The results of joins of the old plan in an edit, recomputed from its arrangements.

A join keeps no results.  At the frontier t of an edit all operators have reached t, and time
does not advance while the edit fills, so the arrangements of the old plan have the inputs of a
join as of t - 1.  The data of its first input go through the path of that input, as changes at t
that see all others strictly before it, as when a new join begins (`joined_batch.hydrate`).  The
result is the whole join as of t - 1; nothing is stored, and no topic is read.

Rows for another shard go through the exchange topic under other names, since the new plan may
have a stage of the same name.  They are processed as they come, in any order.

A join that began at t itself has written nothing yet: all of its results have the time t.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from ikebana.arrangements.frontier import Interval, Time
from ikebana.arrangements.store import Store
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.engine.joined_batch import applied, sent
from ikebana.processor.engine.replaying import ArrangementPast, PastPortion
from ikebana.processor.kernels import arrange, upsert
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.arrange_upsert import UpsertArrangement
from ikebana.processor.planning.edits import Edit
from ikebana.processor.planning.joined import joined
from ikebana.processor.planning.joins.stages import JoinStage

# Names of operators have no space.
_MARK = "before "

Arriving = Mapping[str, Collection[KeyedUpdate]]


def is_of_before(target: str) -> bool:
    """Whether rows go to a join of the old plan, or to a stage of one."""
    return target.startswith(_MARK)


class JoinsBefore:
    """The joins of the old plan, in one batch of an edit that fills, on one shard.

    `results` has the results by join, in the shards of the last lookups; `errors` the errors of
    combinations that cannot be evaluated, and `hops` the rows for other shards.
    """

    def __init__(self, edit: Edit, time: Time, store: Store) -> None:
        self.results: defaultdict[str, list[KeyedUpdate]] = defaultdict(list)
        self.errors: defaultdict[str, list[KeyedUpdate]] = defaultdict(list)
        self.hops: defaultdict[str, list[KeyedUpdate]] = defaultdict(list)
        self._edit, self._time, self._store = edit, time, store
        self._joined = joined(edit.before)
        self._arrangements: dict[str, Arrangement | UpsertArrangement] = {}

    def arrive(self, arriving: Arriving) -> None:
        """Take rows from other shards, and bring each on from its stage."""
        for join in self._edit.joins_before:
            self._run(join, {s.name: arriving.get(_MARK + s.name, ()) for s in self._path(join)})

    def past(self, join: str) -> "JoinPast":
        """The past of a join: the data of its first input, which go through their path."""
        origin = self._arrangement(self._joined.origins[join])
        return JoinPast(self, join, ArrangementPast(origin, self._time))

    def begin(self, join: str, rows: list[KeyedUpdate]) -> None:
        """Send data of a join's first input through their path."""
        first = next(self._path(join))
        near, far, errors = sent(self._edit.before, first, rows)
        self.errors[join] += errors
        self.hops[_MARK + first.name] += far
        self._run(join, {first.name: near})

    def _run(self, join: str, arriving: Arriving) -> None:
        plan = self._edit.before
        waiting = defaultdict(list, {name: [*rows] for name, rows in arriving.items() if rows})
        for stage in self._path(join):
            rows = waiting.pop(stage.name, [])
            if not rows:
                continue
            arranged = self._arrangement(stage.looks_up)
            for (to, hop), results, errors, _ in applied(plan, stage, rows, arranged):
                self.errors[join] += errors
                if to is None:
                    self.results[join] += results
                elif hop:
                    self.hops[_MARK + to] += results
                else:
                    waiting[to] += results

    def _path(self, join: str) -> Iterator[JoinStage]:
        """The stages of the path of a join's first input, in the order of their rows."""
        alias = self._joined.stages[self._joined.begins(join)].alias
        for stage in self._joined.stages.values():
            if (stage.join, stage.alias) == (join, alias):
                yield stage

    def _arrangement(self, name: str) -> Arrangement | UpsertArrangement:
        """An arrangement of the old plan, for reading: it does not change while the edit fills."""
        if name not in self._arrangements:
            at = Interval(self._time, self._time)
            if self._joined.arrangements[name].is_own:
                part = upsert.PART.of(self._store, name)
                self._arrangements[name] = UpsertArrangement(part, (), at, self._time)
            else:
                part = arrange.PART.of(self._store, name)
                self._arrangements[name] = Arrangement(part, at, self._time)
        return self._arrangements[name]


class JoinPast(NamedTuple):
    """A join's results as of an edit's time; `joins` has them when rows have passed all stages."""

    joins: JoinsBefore
    join: str
    first: ArrangementPast

    def portion(self, start: bytes, most: int) -> PastPortion:
        data = self.first.portion(start, most)
        self.joins.begin(self.join, [*data.rows])
        return data._replace(rows=())
