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
