"""State machine, as a kind of operator, and its functions."""

import functools
from collections.abc import Iterable, Iterator

from ikebana.codecs.formats import FORMATS
from ikebana.processor.base.rows import Truncate, Upserts, times_of
from ikebana.processor.kernels import state_machine
from ikebana.processor.kernels.layout import PartKind
from ikebana.processor.kernels.state_machine import Event, Machine
from ikebana.processor.linear.functions import FunctionError, function_named
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.scope import KEY, VALUE, Scope
from ikebana.processor.planning.operators.kind import (
    Around,
    OperatorBatch,
    OperatorKind,
    Problem,
    Relations,
)
from ikebana.processor.planning.plan import StateMachine
from ikebana.processor.planning.relations import Relation


class StateMachineKind(OperatorKind[StateMachine]):
    """A root by the key of an input; its results have no declared types."""

    label = "state machine"
    reads_rows = True
    parts = (state_machine.PART,)

    def sources(self, operator: StateMachine) -> tuple[str, ...]:
        return (operator.input,)

    def part(self, operator: StateMachine) -> PartKind:
        return state_machine.PART

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
                    function_named(function)
                except FunctionError as error:
                    yield f"{path}.{part}", str(error)
        if operator.version < 1:
            yield f"{path}.version", "must be at least 1"
        readers[name] = operator.name

    def relation(self, operator: StateMachine, catalog: Relations) -> Relation:
        rows = catalog.rows(operator.input)
        return Relation(Scope({KEY: rows.types[KEY], VALUE: JSON}, open=True))

    def step(self, operator: StateMachine, batch: OperatorBatch, catalog: Relations) -> None:
        machine = _machine(operator, catalog.inputs[operator.input].topics)
        part = batch.part(state_machine.PART)
        changes = state_machine.step(part, _events(batch.rows()), batch.interval, machine)
        batch.emit(changes.updates, changes.errors)


@functools.lru_cache(maxsize=64)
def _machine(operator: StateMachine, topics: tuple[str, ...]) -> Machine:
    """The machine of an operator, with its functions imported; its input has these topics.

    Raises: FunctionError.
    """
    return Machine(
        name=operator.name,
        topics=topics,
        step=function_named(operator.step),
        view=None if operator.view is None else function_named(operator.view),
        version=operator.version,
        migrate=None if operator.migrate is None else function_named(operator.migrate),
    )


def _events(chunks: Iterable[Upserts | Truncate]) -> list[Event]:
    """Upserts as a machine's events."""
    events: list[Event] = []
    for chunk in chunks:
        # The planner sends only plain messages to a machine, and pushes nothing into their
        # decoding.
        assert isinstance(chunk, Upserts) and not chunk.failed and not chunk.partial, chunk.input  # noqa: PT018
        times = times_of(chunk.times, len(chunk.keys))
        order, bad = (chunk.input_order, chunk.partition), chunk.bad
        events += [
            Event(key, time, (*order, offset, index), value, bad.get(index))
            for index, (time, offset, key, value) in enumerate(
                zip(times, chunk.offsets, chunk.keys, chunk.values, strict=True)
            )
        ]
    return events
