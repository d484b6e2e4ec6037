"""Estimate the work for one change of each input: rows at each kind of work, and CPU time.

A change replaces the row of a key, so an upsert makes two updates of it: one retracts the old
row, and one inserts the new.  The estimate follows them along the operators' edges, as in
`planning.progress`.  The data are unknown, so every condition holds for half of the rows, a
function returns one row for one, and a lookup by a key that is not unique finds as many rows as
the ratio of the declared sizes of its two sides.

The weights were fitted to whole pipelines (docs/performance.md has both, side by side).  They
show which part costs most, and the CPU time on another machine within a factor of two or three.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from typing import NamedTuple

from ikebana.processor.engine.joining import path_of
from ikebana.processor.explain import operators
from ikebana.processor.linear.chain import Named
from ikebana.processor.linear.steps import Call, Sql
from ikebana.processor.planning import planner, progress
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.graph import graph_of
from ikebana.processor.planning.joins.paths import Lookup
from ikebana.processor.planning.joins.query import AsOfJoin
from ikebana.processor.planning.joins.stages import JoinStage, joined
from ikebana.processor.planning.plan import Input, Loop, Plan, Reduce, WindowFunctions
from ikebana.processor.planning.planner import Physical

TITLE = "what a change comes to, about: each condition holds for half of the rows"
MEANINGS = {
    "kept": "rows read from and written to state, and updates that wait for their time",
    "sent": "updates that go to the shard of another key, through Kafka",
    "met": "rows that are looked up in arrangements",
    "written": "updates in output topics",
    "CPU us": (
        "of all processes, for a change that its batch does not cancel; a micro-batch takes "
        "0.15 CPU s beside, whatever it reads"
    ),
}

# The share of rows for which a condition holds.
_HOLDS = 0.5
# CPU microseconds of all processes per message from Kafka, and per column of it.
_MESSAGE_US = {"bytes": 2.0, "json": 2.5, "avro": 2.5, "protobuf": 10.0}
_COLUMN_US = {"bytes": 0.0, "json": 0.1, "avro": 0.2, "protobuf": 1.0}
# CPU microseconds of a message that describes a change, beside those of its row.
_CHANGE_US = 2.0
# The assumed number of columns of an input without declared columns.
_COLUMNS = 8
# CPU microseconds per row.
_WORK_US = {
    "passed": 1.0,
    "kept": 3.0,
    "aggregated": 1.5,
    "waited": 2.5,
    "sent": 5.0,
    "met": 3.5,
    "written": 4.0,
}


class Work(NamedTuple):
    """The work for one change of an input: rows of each kind, and CPU microseconds."""

    input: str
    state: float
    sent: float
    met: float
    written: float
    cpu_us: float

    @classmethod
    def heads(cls) -> tuple[str, ...]:
        """The heads of the columns of numbers."""
        return tuple(MEANINGS)


def estimates(plan: Plan, physical: Physical) -> Iterator[Work]:
    """Estimate the work of a change of each input."""
    edges = progress.edges(plan)
    before = {name: (*edge.after, *edge.exchanges) for name, edge in edges.items()}
    order = tuple(TopologicalSorter(before).static_order())
    return (_Following(plan, physical, source).work(order) for source in plan.inputs)


class _Following:
    """Follows the rows of one change from its input to the outputs, and counts the work."""

    def __init__(self, plan: Plan, physical: Physical, source: Input) -> None:
        self._plan, self._physical, self._source = plan, physical, source
        self._stages = joined(plan)
        self._roots = frozenset(graph_of(plan).roots)
        self._joins = {join.name for join in plan.joins}
        self._gathered = frozenset(planner.gathered(plan).values())
        self._waiting = {join.name for join in plan.joins if isinstance(join, AsOfJoin)}
        self._arrived: defaultdict[str, float] = defaultdict(float)
        self._done: defaultdict[str, float] = defaultdict(float)

    def work(self, order: Iterable[str]) -> Work:
        """Follow the rows through all operators, in an order of theirs; returns the sums."""
        nodes = graph_of(self._plan).nodes
        for root in self._roots:
            if nodes[root].input == self._source.name:
                self._arrived[root] = 1
        for name in order:
            if rows := self._arrived[name]:
                self._reach(name, rows)
        done = self._done
        cpu_us = self._decoding_us() + sum(done[kind] * us for kind, us in _WORK_US.items())
        name = self._source.name
        return Work(name, done["kept"], done["sent"], done["met"], done["written"], cpu_us)

    def _decoding_us(self) -> float:
        traits = self._source.traits
        reading = self._physical.readings[self._source.name]
        columns = len(self._source.columns) or _COLUMNS
        if reading.columns is not None:
            columns = min(columns, len(reading.columns))
        cost_us = _MESSAGE_US[traits.encoding] + columns * _COLUMN_US[traits.encoding]
        cost_us += _CHANGE_US * (traits.kind == "changes")
        return cost_us + _WORK_US["passed"] * bool(reading.pushed)

    def _reach(self, name: str, rows: float) -> None:
        """Let rows reach an operator."""
        if name in self._roots:
            self._through(name, rows)
        elif name in self._gathered:
            # Already counted as updates of the output.
            return
        elif (stage := self._stages.stages.get(name)) is not None:
            self._look_up(stage, rows)
        else:
            self._done["kept"] += rows
            self._to_stages(name, rows)

    def _through(self, root: str, rows: float) -> None:
        """Count the work of a root on rows, and pass the results to its branches."""
        node = graph_of(self._plan).nodes[root]
        if node.operator is not None and root not in self._joins:
            self._done["kept"] += rows
            if isinstance(node.operator, Reduce):
                self._done["aggregated"] += rows * len(node.operator.aggregates)
            if isinstance(node.operator, Loop):
                # One round is assumed.
                self._done["kept"] += rows * len(node.operator.body)
            if isinstance(node.operator, WindowFunctions):
                # Each touched row is retracted and inserted again.
                more = rows * operators.rows_touched(node.operator)
                self._done["kept"] += more / 2
                self._done["aggregated"] += more * len(node.operator.functions)
                rows = rows * operators.rows_shown(node.operator) + more
            if node.single_valued and node.input is not None:
                rows *= 2
        if node.input is not None:
            rows *= _passing(self._physical.readings[node.input].pushed)
        for branch in self._physical.branches[root]:
            self._done["passed"] += rows * bool(branch.steps)
            some = rows * _passing(branch.steps)
            self._wait(some * branch.moves_time)
            self._done["written"] += some * len(branch.outputs)
            self._done["sent"] += some * len(branch.exchanges)
            for inlet in (*branch.inlets, *branch.exchanges):
                self._arrived[inlet] += some

    def _look_up(self, stage: JoinStage, rows: float) -> None:
        """Count a stage's lookups for rows, and pass the matches on."""
        if stage.join in self._waiting and stage.is_first:
            self._wait(rows)
        matches = rows * self._matches(stage)
        self._done["met"] += max(rows, matches)
        matches *= self._holding(stage)
        self._to_stages(stage.name, matches)
        if stage.name in self._stages.last[stage.join]:
            self._arrived[stage.join] += matches

    def _wait(self, rows: float) -> None:
        """Count rows that wait in the state until their times are closed."""
        self._done["kept"] += rows
        self._done["waited"] += rows

    def _to_stages(self, name: str, rows: float) -> None:
        for stage in self._stages.readers.get(name, ()):
            self._done["sent"] += rows * stage.exchange
            self._arrived[stage.name] += rows

    def _holding(self, stage: JoinStage) -> float:
        """The share of a lookup's matches for which all further conditions hold."""
        asked = self._stages.arrangements[stage.looks_up].arrangement
        step = path_of(catalog_of(self._plan).join(stage.join), stage).steps[stage.number]
        tested = len(step.predicates) if isinstance(step, Lookup) else 0
        return _HOLDS ** (len(asked.filters) * (stage.role == "lookup") + tested)

    def _matches(self, stage: JoinStage) -> float:
        """The number of rows that a lookup finds."""
        if stage.role != "lookup":
            return 1.0
        asked = self._stages.arrangements[stage.looks_up].arrangement
        catalog = catalog_of(self._plan)
        there = catalog.relation(asked.relation)
        if there.one_at_most(asked.keys):
            return 1.0
        here = catalog.relation(path_of(catalog.join(stage.join), stage).relation)
        return max(1.0, there.size / here.size) if there.size and here.size else 1.0


def _passing(steps: Iterable[Named]) -> float:
    """The share of rows for which all conditions of some steps hold."""
    count = 0
    for _, step in steps:
        if isinstance(step, Sql):
            count += len(step.where)
        elif isinstance(step, Call):
            count += step.kind == "filter"
    return _HOLDS**count
