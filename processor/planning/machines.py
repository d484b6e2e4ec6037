"""Import the functions of a state machine by their names in the plan."""

import functools

from ikebana.processor.kernels.state_machine import Machine
from ikebana.processor.linear.functions import found
from ikebana.processor.planning.plan import StateMachine


@functools.lru_cache(maxsize=64)
def machine(
    operator: StateMachine, topics: tuple[str, ...], all_topics: tuple[str, ...] = ()
) -> Machine:
    """The machine of an operator whose input has these topics.

    `all_topics` are those of the plan, by which older versions have named places.

    Raises: FunctionError.
    """
    return Machine(
        name=operator.name,
        topics=topics,
        all_topics=all_topics,
        step=found(operator.step),
        view=None if operator.view is None else found(operator.view),
        version=operator.version,
        migrate=None if operator.migrate is None else found(operator.migrate),
    )
