"""The check that the parts of a plan fit, for whoever makes plans and for whatever runs them."""

import functools

from ikebana.errors import PlanError
from ikebana.processor.planning.plan import Plan


def checked(plan: Plan) -> Plan:
    """The plan, if its parts fit.  A plan that fits is checked once, however often it is asked.

    Raises:
        PlanError: with every problem.
    """
    _check(plan)
    return plan


@functools.lru_cache(maxsize=64)
def _check(plan: Plan) -> None:
    # There, and not above, since it looks into the steps, for which it needs DuckDB.
    from ikebana.processor.planning.plan_problems import problems_of

    # What is raised is not remembered: a module of functions may be there the next time.
    if problems := list(problems_of(plan)):
        raise PlanError(plan.name, problems)
