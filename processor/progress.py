"""Frontiers of operators: which interval each may work on in each micro-batch.

`upper(op)` is the least of the source's upper over its source edges, the *previous*
upper of each producer over its hop edges (a hop takes one micro-batch), and the upper
of each arrangement that it looks up; `lower(op)` is its upper before.  An operator
that is k hops deep therefore works k batches behind, but depth is only what this
comes to when nothing stands still: a looked-up arrangement that is deeper than its
reader holds the reader back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ikebana.arrangements.frontier import Interval, Time
from ikebana.processor import planner
from ikebana.processor.plan import Plan


@dataclass(frozen=True, slots=True)
class Edges:
    """What an operator waits for; names are those of operators."""

    from_source: bool = False
    hops: tuple[str, ...] = ()
    looks_up: tuple[str, ...] = ()


def edges(plan: Plan) -> dict[str, Edges]:
    """What each operator waits for that has a frontier of its own.

    These are the roots: linear operators are passes over what comes out of them.
    """
    return {root: Edges(from_source=True) for root in planner.roots(plan)}


def advance_frontiers(
    graph: Mapping[str, Edges], frontiers: Mapping[str, Time], source_upper: Time
) -> dict[str, Time]:
    """The upper of every operator in the batch in which the source's is `source_upper`.

    `frontiers` are those of the batch before; an operator that is not among them is
    new and has been nowhere: its frontier is 0.
    """
    uppers: dict[str, Time] = {}

    def upper(name: str) -> Time:
        if name not in uppers:
            edge = graph[name]
            bounds = [source_upper] if edge.from_source else []
            bounds += [frontiers.get(producer, 0) for producer in edge.hops]
            bounds += [upper(arrangement) for arrangement in edge.looks_up]
            uppers[name] = max(min(bounds), frontiers.get(name, 0))
        return uppers[name]

    return {name: upper(name) for name in graph}


def since(graph: Mapping[str, Edges], lowers: Mapping[str, Time], arrangement: str) -> Time:
    """Up to where an arrangement may be compacted: the least lower of its readers."""
    readers = [name for name, edge in graph.items() if arrangement in edge.looks_up]
    return min(lowers[name] for name in [*readers, arrangement])


def intervals(before: Mapping[str, Time], after: Mapping[str, Time]) -> dict[str, Interval]:
    """The interval of each operator between two batches' frontiers."""
    return {name: Interval(before.get(name, 0), upper) for name, upper in after.items()}


def output_upper(producers: Sequence[str], frontiers: Mapping[str, Time]) -> Time:
    """The one upper of an output: the least of its producers'."""
    return min(frontiers[name] for name in producers)
