"""The holds: outputs and operators that may get updates before their frontier reaches them."""

from ikebana.processor.planning import progress
from ikebana.processor.planning.joins.stages import joined
from ikebana.processor.planning.plan import ERRORS, Plan
from ikebana.processor.planning.planner import Physical

# The name of an output, or of an operator that reads by key, before which updates are held.
Target = tuple[str, str]
OUT, IN = "out", "in"


def held_targets(plan: Plan, physical: Physical, *, early: bool = False) -> frozenset[Target]:
    """The outputs and operators that get updates of times that their frontiers have not passed.

    These are the readers of a step that moves time, the readers of an exchange, since the
    loopback topic may be read in portions, and an output of several collections with different
    frontiers.  With `early`, readers of an input in `mode: diffs` are among them.
    """
    graph = progress.edges(plan)
    depths = progress.depths(graph)
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
        for target in (
            *((OUT, name) for name in branch.outputs),
            *((IN, name) for name in (*branch.inlets, *branch.hops)),
        )
    }
    held |= {(IN, name) for name, edge in graph.items() if edge.hops}
    held |= {
        (IN, name)
        for name, edge in graph.items()
        # A stage may have to wait for the arrangement that it looks up.
        if edge.after and {depths[other] for other in edge.after} != {depths[name]}
    }
    stages = joined(plan)
    # As long as a join is new, its first path is not as far as the others.
    held |= {(IN, name) for name, last in stages.last.items() if len(last) > 1}
    held |= {(IN, stages.begins(join)) for join in stages.origins}
    held |= {
        (OUT, name)
        for name, roots in progress.producers(plan).items()
        if len({depths[root] for root in roots}) > 1
    }
    # A failure after a step that moves time is an error of that time.
    if held or early or plan.is_dated:
        # Errors without a time count at the frontier, which this output may not pass at once.
        held.add((OUT, ERRORS))
    return frozenset(held)


def far_inlets(physical: Physical) -> frozenset[str]:
    """The operators that get updates from a step that moves time far into the future."""
    return frozenset(name for kind, name in far_targets(physical) if kind == IN)


def far_targets(physical: Physical) -> frozenset[Target]:
    """The outputs and operators that get updates from a step that moves time far ahead."""
    moving = [b for branches in physical.branches.values() for b in branches if b.moves_time]
    targets = {
        target
        for branch in moving
        for target in (
            *((OUT, name) for name in branch.outputs),
            *((IN, name) for name in (*branch.inlets, *branch.hops)),
        )
    }
    # A failure after such a step is an error of that time.
    return frozenset(targets | {(OUT, ERRORS)} if moving else targets)


def held_outputs(plan: Plan, physical: Physical) -> frozenset[str]:
    """The outputs of the plan that get updates of times that their frontiers have not passed."""
    held = held_targets(plan, physical)
    return frozenset(output.name for output in plan.outputs if (OUT, output.name) in held)
