"""State that several outputs of a plan share, and which is therefore kept once."""

from collections.abc import Iterator

from ikebana.processor.base.printable import printable
from ikebana.processor.explain import joining
from ikebana.processor.planning.joined import arrangements
from ikebana.processor.planning.operators.table import kind_of
from ikebana.processor.planning.plan import (
    Output,
    Plan,
    Reduce,
    StateMachine,
    Upsert,
    WindowFunctions,
)

_STATES = {
    Upsert: "upsert",
    StateMachine: "state machine",
    Reduce: "reduce",
    WindowFunctions: "window functions",
}


def added(plan: Plan) -> Iterator[str]:
    """Describe the state that each output adds, and the state it shares with earlier outputs.

    Outputs that share nothing but upserts are left out.
    """
    first: dict[str, str] = {}
    for output in plan.outputs:
        parts = _state_behind(plan, output)
        new = [part for part in parts if part not in first]
        shared = [part for part in parts if part in first and not part.startswith("upsert ")]
        if shared:
            adds = ", ".join(new) or "no state"
            with_whom = ", ".join(dict.fromkeys(first[part] for part in shared))
            yield printable(
                f"output {output.name} adds {adds}; it shares {', '.join(shared)} with {with_whom}"
            )
        first |= dict.fromkeys(new, output.name)


def _state_behind(plan: Plan, output: Output) -> list[str]:
    """The parts of the state that an output depends on, by their names in explanations."""
    operators = {operator.name: operator for operator in plan.operators}
    joins = {join.name for join in plan.joins}
    separate = [each for each in arrangements(plan) if not each.is_own]
    parts: dict[str, None] = {}
    ahead, seen = [output.source], set[str]()
    while ahead:
        name = ahead.pop()
        if name in seen or name not in operators:
            continue
        seen.add(name)
        operator = operators[name]
        if (kind := _STATES.get(type(operator))) is not None:
            parts[f"{kind} {name}"] = None
        if name in joins:
            parts |= dict.fromkeys(
                joining.part_of(each) for each in separate if name in each.joins
            )
        ahead += kind_of(operator).sources(operator)
    return list(parts)
