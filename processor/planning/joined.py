"""All joins of a plan together: their shared arrangements, and their stages."""

import functools

from ikebana.processor.linear.scope import KEY, VALUE
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.joins.arrangements import Shared, shared
from ikebana.processor.planning.joins.qualified import flat_name
from ikebana.processor.planning.joins.query import AsOfJoin
from ikebana.processor.planning.joins.stages import Stages, stages
from ikebana.processor.planning.plan import Plan


@functools.lru_cache(maxsize=32)
def joined(plan: Plan) -> Stages:
    """The arrangements, feeds and stages of all joins.

    Raises: JoinError, if a join cannot be.
    """
    catalog = catalog_of(plan)
    joins = [catalog.join(join.name) for join in plan.joins]
    names = {each.relation for join in plan.joins for each in join.inputs}
    known = {name: catalog.relation(name) for name in names}
    return stages(joins, shared(joins, known))


def arrangements(plan: Plan) -> tuple[Shared, ...]:
    """The arrangements of all joins, each there once."""
    return tuple(joined(plan).kept.values())


def looked_up(plan: Plan) -> frozenset[str]:
    """The upserts with state that joins look up."""
    return frozenset(name for name, each in joined(plan).kept.items() if each.is_own)


def columns_read(plan: Plan, relation: str) -> frozenset[str] | None:
    """The columns of a relation's values that joins read; None: they are to have all.

    Data that are equal in these join alike, and what they are arranged by is not counted here.
    Where matches are locked by the whole row, a change of any column looks up again.
    """
    found: set[str] = set()
    for join in plan.joins:
        for at, each in enumerate(join.inputs):
            if each.relation != relation:
                continue
            if isinstance(join, AsOfJoin) and at == 0 and join.locks:
                if not join.locked_by:
                    return None
                found.update(join.locked_by)
            types = catalog_of(plan).join(join.name).types()
            start = flat_name(each.alias, "")
            found |= {name.removeprefix(start) for name in types if name.startswith(start)}
    return None if VALUE in found else frozenset(found - {KEY})
