"""Compile a plan as it runs, to check that all its SQL is valid.

DuckDB stops at the first problem on a path from a root to a collection; `judging` finds
all of them.
"""

from collections.abc import Iterator

from ikebana.processor.joins.binding import JoinError
from ikebana.processor.linear.chain import ChainError
from ikebana.processor.linear.scope import Scope
from ikebana.processor.planning.aggregates import AggregateError
from ikebana.processor.planning.graph import graph_of
from ikebana.processor.planning.operators.table import kind_of
from ikebana.processor.planning.plan import Plan

Problem = tuple[str, str]


def compiling_problems(plan: Plan) -> Iterator[Problem]:
    """The first problem of each operator; operators that read it have the same one."""
    graph = graph_of(plan)
    told: set[Problem] = set()
    for operator in plan.operators:
        try:
            kind_of(operator).compile(operator, graph)
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
    """The scopes of a collection, one for each path from a root."""
    graph = graph_of(plan)
    return tuple(graph.scope_after(way) for way in graph.ways(name))


def _place(plan: Plan, error: ChainError) -> str:
    owner = next(each for each in plan.operators if each.name == error.operator)
    kind = kind_of(owner)
    if not kind.is_linear:
        return f"operators.{owner.name}"
    within = "" if len(kind.steps(owner)) == 1 else f".steps.{error.index}"
    return f"operators.{owner.name}{within}.{error.part}"
