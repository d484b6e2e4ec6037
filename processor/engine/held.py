"""Where updates wait for their times: at outputs and operators that are behind what they read."""

from ikebana.processor.planning import progress
from ikebana.processor.planning.joined import joined
from ikebana.processor.planning.plan import ERRORS, Plan
from ikebana.processor.planning.planner import Physical

# The name of an output, or of an operator that reads by key, before which updates are held.
Target = tuple[str, str]
OUT, IN = "out", "in"


def held_targets(plan: Plan, physical: Physical, *, early: bool = False) -> frozenset[Target]:
    """What gets updates of times that its frontier has not passed.

    That is what is behind a step that moves time, or behind an exchange, since the loopback
    topic may be read in portions, and an output of collections of which one is further
    than another.  With `early`, so is what shows an input in `mode: diffs`.
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
        # A stage may have to wait for what it asks.
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
    # What fails behind a step that moves time is an error of that time.
    if held or early or plan.is_dated:
        # So is what has no time, and counts at the frontier, which it need not pass at once.
        held.add((OUT, ERRORS))
    return frozenset(held)


def far_inlets(physical: Physical) -> frozenset[str]:
    """The operators that get updates of times far in the future, since a step moves them there."""
    return frozenset(name for kind, name in far_targets(physical) if kind == IN)


def far_targets(physical: Physical) -> frozenset[Target]:
    """What gets updates of times far in the future, since a step moves them there."""
    moving = [b for branches in physical.branches.values() for b in branches if b.moves_time]
    found = {
        target
        for branch in moving
        for target in (
            *((OUT, name) for name in branch.outputs),
            *((IN, name) for name in (*branch.inlets, *branch.hops)),
        )
    }
    # What fails behind such a step is an error of that time.
    return frozenset(found | {(OUT, ERRORS)} if moving else found)


def held_outputs(plan: Plan, physical: Physical) -> frozenset[str]:
    """The outputs of the plan that get updates of times that their frontiers have not passed."""
    held = held_targets(plan, physical)
    return frozenset(output.name for output in plan.outputs if (OUT, output.name) in held)
