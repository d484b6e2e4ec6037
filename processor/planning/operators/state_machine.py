"""State machine, as a kind of operator, and its functions."""

import functools
from collections.abc import Iterator

from ikebana.codecs.formats import FORMATS
from ikebana.processor.joins.relation import Relation
from ikebana.processor.kernels.state_machine import Machine
from ikebana.processor.linear.functions import FunctionError, found
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.scope import KEY, VALUE, Scope
from ikebana.processor.planning.operators.kind import Around, OperatorKind, Problem, Relations
from ikebana.processor.planning.plan import StateMachine


class StateMachineKind(OperatorKind[StateMachine]):
    """A root by the key of an input; its results have no declared types."""

    label = "state machine"
    reads_rows = True
    keeps_contents = True

    def sources(self, operator: StateMachine) -> tuple[str, ...]:
        return (operator.input,)

    def problems(self, operator: StateMachine, around: Around) -> Iterator[Problem]:
        path, name, readers = f"operators.{operator.name}", operator.input, around.readers
        place = f"{path}.state_machine"
        source = around.inputs.get(name)
        if source is None:
            yield from around.missing_input(place, name)
        elif around.unread.hides_rows(name):
            pass
        elif not source.traits.is_events:
            events = " or ".join(form for form, its in FORMATS.items() if its.is_events)
            yield place, f"reads events in {events}; {name!r} is in {source.value_format}"
        elif source.is_collection:
            yield place, f"reads events; {name!r} is a collection, by its mode"
        if name in readers:
            yield place, f"operator {readers[name]!r} already reads {name!r}"
        for part in ("step", "view", "migrate"):
            function = getattr(operator, part)
            if function is not None:
                try:
                    found(function)
                except FunctionError as error:
                    yield f"{path}.{part}", str(error)
        if operator.version < 1:
            yield f"{path}.version", "must be at least 1"
        readers[name] = operator.name

    def relation(self, operator: StateMachine, catalog: Relations) -> Relation:
        rows = catalog.rows(operator.input)
        return Relation(Scope({KEY: rows.types[KEY], VALUE: JSON}, open=True))


@functools.lru_cache(maxsize=64)
def machine(operator: StateMachine, topics: tuple[str, ...]) -> Machine:
    """The machine of an operator whose input has these topics, with its functions imported.

    Raises: FunctionError.
    """
    return Machine(
        name=operator.name,
        topics=topics,
        step=found(operator.step),
        view=None if operator.view is None else found(operator.view),
        version=operator.version,
        migrate=None if operator.migrate is None else found(operator.migrate),
    )
