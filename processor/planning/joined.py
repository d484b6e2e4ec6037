"""The joins of a plan together: what they share, and the stages that they come to."""

import functools

from ikebana.processor.joins.arrangements import Shared, shared
from ikebana.processor.joins.stages import Stages, stages
from ikebana.processor.planning import ways
from ikebana.processor.planning.plan import Plan


@functools.lru_cache(maxsize=32)
def joined(plan: Plan) -> Stages:
    """The arrangements, feeds and stages of all joins.

    Raises: JoinError, if a join cannot be.
    """
    joins = [ways.join_of(plan, join.name) for join in plan.joins]
    known = {
        name: relation
        for join in plan.joins
        for name, relation in ways.relations(plan, join).items()
    }
    return stages(joins, shared(joins, known))


def arrangements(plan: Plan) -> tuple[Shared, ...]:
    """The arrangements of all joins, each there once."""
    return tuple(joined(plan).kept.values())


def looked_up(plan: Plan) -> frozenset[str]:
    """The upserts whose own state joins look up."""
    return frozenset(name for name, each in joined(plan).kept.items() if each.is_own)


def is_gathered(plan: Plan, join: str) -> bool:
    """Whether a join's results go to the shards of their keys before they are shown.

    They come out of the shards of the last lookups, which is where a diff output may
    write them.  Formats that put together what a key has must have it in one place.
    """
    return any(
        output.format != "diff"
        and any(way.root == join for way in ways.paths(plan, output.source))
        for output in plan.outputs
    )
