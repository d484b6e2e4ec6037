"""All joins of a plan together: their shared arrangements, and their stages."""

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
    """Whether a join's results are exchanged to the shards of their keys before output.

    A diff output may write them in the shards of the last lookups.  A format that combines
    the rows of a key needs them in one shard.
    """
    return any(
        not output.traits.as_updates
        and any(way.root == join for way in ways.paths(plan, output.source))
        for output in plan.outputs
    )
