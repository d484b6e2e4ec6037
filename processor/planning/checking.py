"""Check that the parts of a plan fit; both authoring and runs call this."""

import functools

from ikebana.errors import PlanError
from ikebana.processor.planning.plan import Plan


def checked(plan: Plan) -> Plan:
    """Return the plan if its parts fit.  The result is cached: a plan that fits is checked once.

    Raises:
        PlanError: with every problem.
    """
    _check(plan)
    return plan


@functools.lru_cache(maxsize=64)
def _check(plan: Plan) -> None:
    # Imported here, since it looks into the steps, for which it needs DuckDB.
    from ikebana.processor.planning.plan_problems import problems_of

    # Errors are not cached: a missing module of functions may exist the next time.
    if problems := list(problems_of(plan)):
        raise PlanError(plan.name, problems)
