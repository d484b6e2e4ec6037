"""Frontiers of operators: the interval of each in each micro-batch.

`upper(op)` is the least of: the source's upper over its source edges; the *previous*
upper of each producer over its exchanges (each takes one micro-batch); the upper of
each operator whose updates it gets in the same pass; and the upper of each arrangement
that it looks up.  `lower(op)` is its upper of the batch before.  An operator behind k exchanges
therefore works k batches behind, as long as every frontier advances; an arrangement that is
deeper than its reader holds the reader back.

Outputs and operators that may get updates before their frontier reaches them are *held*.
"""

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

from ikebana.arrangements.update import Interval, Time
from ikebana.processor.planning import backfill, planner
from ikebana.processor.planning.graph import graph_of
from ikebana.processor.planning.joins.stages import joined
from ikebana.processor.planning.plan import ERRORS, Plan
from ikebana.processor.planning.planner import Branch, Physical


@dataclass(frozen=True, slots=True)
class Edges:
    """The operators that an operator waits for, by name.

    It gets the updates of `after` in the same pass, and those of `exchanges` through the exchange
    topic.
    """

    from_source: bool = False
    after: tuple[str, ...] = ()
    exchanges: tuple[str, ...] = ()
    looks_up: tuple[str, ...] = ()


@functools.lru_cache(maxsize=32)
def edges(plan: Plan) -> Mapping[str, Edges]:
    """The edges of each operator that has its own frontier.

    These are the roots, the arrangements and stages of joins, and the inlets of gathered outputs.
    Linear operators are passes over the updates of these.
    """
    graph = {root: Edges(from_source=True) for root in graph_of(plan).roots}
    for inlet in planner.inlets(plan):
        paths = list(planner.inlet_paths(plan, inlet))
        graph[inlet.name] = Edges(
            after=_unique(path.root for path, exchange in paths if not exchange),
            exchanges=_unique(path.root for path, exchange in paths if exchange),
        )
    stages = joined(plan)
    for name, stage in stages.stages.items():
        # A stage without `rows_from` has its own feed.
        way = _way(stage.rows_from, exchange=stage.exchange) if stage.rows_from else graph[name]
        graph[name] = replace(way, looks_up=(stage.looks_up,))
    for join, last in stages.last.items():
        graph[join] = Edges(after=last)
    return graph


def has_exchanges(plan: Plan) -> bool:
    """Whether any updates go through the exchange topic."""
    return any(edge.exchanges for edge in edges(plan).values())


@functools.lru_cache(maxsize=32)
def order(plan: Plan) -> tuple[str, ...]:
    """The operators in the order of a pass."""
    before = {name: [*edge.after, *edge.looks_up] for name, edge in edges(plan).items()}
    for join, origin in joined(plan).origins.items():
        # A new join begins from its origin.
        before[joined(plan).first_stage(join)].append(origin)
    return tuple(TopologicalSorter(before).static_order())


def _way(names: tuple[str, ...], *, exchange: bool) -> Edges:
    return Edges(exchanges=names) if exchange else Edges(after=names)


def advance_frontiers(
    graph: Mapping[str, Edges],
    frontiers: Mapping[str, Time],
    source_upper: Time,
    *,
    all_exchanges: bool = True,
    frozen: Collection[str] = (),
) -> dict[str, Time]:
    """The upper of every operator in a batch; `source_upper` is the upper of its source.

    `frontiers` has the uppers of the batch before.  An operator that it lacks is new, and begins
    at the frontier of the others.  Operators behind an exchange do not advance unless the batch
    takes `all_exchanges`, because more updates of their times will come.  For the same reason
    `frozen` operators do not advance while their first time is being filled.
    """
    uppers: dict[str, Time] = {}
    begin = beginning(frontiers)

    def upper(name: str) -> Time:
        if name not in uppers:
            edge, before = graph[name], frontiers.get(name, begin)
            bounds = [source_upper] if edge.from_source else []
            bounds += [frontiers.get(producer, begin) for producer in edge.exchanges]
            if name in frozen or (edge.exchanges and not all_exchanges):
                bounds.append(before)
            bounds += [upper(other) for other in (*edge.after, *edge.looks_up)]
            uppers[name] = max(min(bounds), before)
        return uppers[name]

    return {name: upper(name) for name in graph}


def beginning(frontiers: Mapping[str, Time]) -> Time:
    """The frontier at which a new operator begins: the common one of the others."""
    return max(frontiers.values(), default=0)


def is_level(frontiers: Mapping[str, Time]) -> bool:
    """Whether all operators have the same frontier, so that no updates are in flight."""
    return len(set(frontiers.values())) <= 1


def is_behind(
    graph: Mapping[str, Edges], frontiers: Mapping[str, Time], source_upper: Time
) -> bool:
    """Whether a batch without records would advance an operator."""
    after = advance_frontiers(graph, frontiers, source_upper)
    begin = beginning(frontiers)
    return any(upper != frontiers.get(name, begin) for name, upper in after.items())


def depths(graph: Mapping[str, Edges]) -> dict[str, int]:
    """The number of exchanges between the source and each operator."""
    cache: dict[str, int] = {}

    def depth(name: str) -> int:
        if name not in cache:
            edge = graph[name]
            beside = [depth(other) for other in (*edge.after, *edge.looks_up)]
            cache[name] = max([0, *beside, *(depth(other) + 1 for other in edge.exchanges)])
        return cache[name]

    return {name: depth(name) for name in graph}


def since(graph: Mapping[str, Edges], lowers: Mapping[str, Time]) -> dict[str, Time]:
    """The `since` of each operator as an arrangement: the least lower of it and of its readers."""
    least = dict(lowers)
    for name, edge in graph.items():
        for arrangement in edge.looks_up:
            least[arrangement] = min(least[arrangement], lowers[name])
    return least


def intervals(before: Mapping[str, Time], after: Mapping[str, Time]) -> dict[str, Interval]:
    """The interval of each operator between two batches' frontiers."""
    begin = beginning(before)
    return {name: Interval(before.get(name, begin), upper) for name, upper in after.items()}


@functools.lru_cache(maxsize=32)
def producers(plan: Plan) -> Mapping[str, tuple[str, ...]]:
    """The operators that send updates to each output; errors may come from any.

    Operators that read inputs again have separate frontiers, which hold back nothing.
    """
    gathered = planner.gathered(plan)
    by_output = {
        output.name: (gathered[output.name],)
        if output.name in gathered
        else _unique(path.root for path in graph_of(plan).ways(output.source))
        for output in plan.outputs
    }
    again = backfill.reads_again(plan)
    return {**by_output, ERRORS: tuple(name for name in edges(plan) if name not in again)}


def output_intervals(plan: Plan, of: Mapping[str, Interval]) -> dict[str, Interval]:
    """The interval of each output; its upper is the least of its producers' uppers."""
    by_output = {name: [of[root] for root in roots] for name, roots in producers(plan).items()}
    return {
        name: Interval(min(each.lower for each in those), min(each.upper for each in those))
        for name, those in by_output.items()
    }


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


# The name of an output, or of an operator that reads by key, before which updates are held.
Target = tuple[str, str]
OUT, IN = "out", "in"


def held_targets(plan: Plan, physical: Physical, *, early: bool = False) -> frozenset[Target]:
    """The outputs and operators that get updates of times that their frontiers have not passed.

    These are the readers of a step that moves time, the readers of an exchange, since the
    exchange topic may be read in portions, and an output of several collections with different
    frontiers.  With `early`, readers of an input in `mode: diffs` are among them.
    """
    graph = edges(plan)
    depth = depths(graph)
    timed = {
        source.name
        for source in plan.inputs
        if source.is_collection and (early or source.event_time is not None)
    }
    held = {
        target
        for root, branches in physical.branches.items()
        for branch in branches
        if branch.moves_time or root in timed
        for target in _targets(branch)
    }
    held |= {(IN, name) for name, edge in graph.items() if edge.exchanges}
    held |= {
        (IN, name)
        for name, edge in graph.items()
        # A stage may have to wait for the arrangement that it looks up.
        if edge.after and {depth[other] for other in edge.after} != {depth[name]}
    }
    stages = joined(plan)
    # As long as a join is new, its first path is not as far as the others.
    held |= {(IN, name) for name, last in stages.last.items() if len(last) > 1}
    held |= {(IN, stages.first_stage(join)) for join in stages.origins}
    held |= {
        (OUT, name)
        for name, roots in producers(plan).items()
        if len({depth[root] for root in roots}) > 1
    }
    # A failure after a step that moves time is an error of that time.
    if held or early or plan.is_dated:
        # Errors without a time count at the frontier, which this output may not pass at once.
        held.add((OUT, ERRORS))
    return frozenset(held)


def _targets(branch: Branch) -> Iterator[Target]:
    yield from ((OUT, name) for name in branch.outputs)
    yield from ((IN, name) for name in (*branch.inlets, *branch.exchanges))


def far_inlets(physical: Physical) -> frozenset[str]:
    """The operators that get updates from a step that moves time far into the future."""
    return frozenset(name for kind, name in far_targets(physical) if kind == IN)


def far_targets(physical: Physical) -> frozenset[Target]:
    """The outputs and operators that get updates from a step that moves time far ahead."""
    moving = [b for branches in physical.branches.values() for b in branches if b.moves_time]
    targets = {target for branch in moving for target in _targets(branch)}
    # A failure after such a step is an error of that time.
    return frozenset(targets | {(OUT, ERRORS)} if moving else targets)


def held_outputs(plan: Plan, physical: Physical) -> frozenset[str]:
    """The outputs of the plan that get updates of times that their frontiers have not passed."""
    held = held_targets(plan, physical)
    return frozenset(output.name for output in plan.outputs if (OUT, output.name) in held)
