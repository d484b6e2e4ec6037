"""A plan compiled as it runs, which is how it is known that all its SQL can be.

The database ends at the first problem of a way from a root to a collection.  All problems,
each by itself, are for `judging`.
"""

from collections.abc import Iterator

from ikebana.processor.joins.binding import JoinError
from ikebana.processor.joins.query import AsOfJoin, DeltaJoin
from ikebana.processor.linear.chain import ChainError, chain
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.scope import KEY, VALUE, Scope, frozen
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning import ways
from ikebana.processor.planning.aggregates import AggregateError
from ikebana.processor.planning.plan import Linear, Operator, Plan, Reduce

Problem = tuple[str, str]


def compiling_problems(plan: Plan) -> Iterator[Problem]:
    """The first problem of each operator; those behind it have the same one."""
    told: set[Problem] = set()
    for operator in plan.operators:
        try:
            for way in _ways_of(plan, operator):
                ways.scope_after(plan, way)
            if isinstance(operator, DeltaJoin | AsOfJoin):
                _compile_results(plan, operator)
            if isinstance(operator, Reduce) and operator.function is None:
                ways.aggregates_of(plan, operator)
        except JoinError as error:
            problem = (f"operators.{operator.name}", str(error))
        except ChainError as error:
            problem = (_place(plan, error), error.problem)
        except AggregateError as error:
            name, reason = error.problems[0]
            problem = (f"operators.{operator.name}.aggregates.{name}", reason)
        else:
            continue
        if problem not in told:
            told.add(problem)
            yield problem


def compiled_scopes(plan: Plan, name: str) -> tuple[Scope, ...]:
    """What may be named of a collection, way by way."""
    return tuple(ways.scope_after(plan, way) for way in ways.paths(plan, name))


def _compile_results(plan: Plan, operator: DeltaJoin | AsOfJoin) -> None:
    made = ways.join_of(plan, operator.name)
    select = tuple((name, each.sql) for name, each in made.select)
    scope = Scope({**made.types(), KEY: JSON, VALUE: JSON})
    chain(((operator.name, Sql(select=select, key=made.key.sql)),), frozen(scope))


def _ways_of(plan: Plan, operator: Operator) -> Iterator[ways.Path]:
    """The ways up to an operator, with all its steps."""
    if isinstance(operator, Reduce):
        return ways.paths_before(plan, operator)
    return ways.paths(plan, operator.name)


def _place(plan: Plan, error: ChainError) -> str:
    owner = next(each for each in plan.operators if each.name == error.operator)
    if not isinstance(owner, Linear):
        return f"operators.{owner.name}"
    within = "" if len(owner.steps) == 1 else f".steps.{error.index}"
    return f"operators.{owner.name}{within}.{error.part}"
