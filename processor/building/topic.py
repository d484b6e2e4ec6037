"""Topics as they are written down: messages that are no collection yet."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from ikebana.processor.building.collection import Collection
from ikebana.processor.building.parts import Parts
from ikebana.processor.planning.plan import Input, Mode, Operator, StateMachine, Upsert

Row = TypeVar("Row")
Step = Callable[[list[Any], Any, int], Iterable[Any]]
View = Callable[[list[Any]], Iterable[Any]]
Migrate = Callable[[Any, int], Any]


@dataclass(frozen=True)
class Topic(Generic[Row]):
    """Messages of Kafka topics; a method says what they mean, and makes a collection of them."""

    parts: Parts
    input: Input

    def upsert(self, name: str | None = None) -> Collection[Any, Row]:
        """The last value of each key; state tells what it replaces."""
        self.parts.read(self.input)
        return self._made(Upsert(name or self.input.name, self.input.name))

    def machine(
        self,
        step: Step | str,
        *,
        view: View | str | None = None,
        migrate: Migrate | str | None = None,
        version: int = 1,
        name: str | None = None,
    ) -> Collection[Any, Any]:
        """What a state machine shows of each key's events, in order.

        `step(states, event, time)` gives the next states of a key, `view(states)` what shows of
        them; see docs/keyed.md.
        """
        self.parts.read(self.input)
        own = name or f"{self.input.name}_{_called(step)}"
        return self._made(StateMachine(own, self.input.name, step, view, version, migrate))

    def changes(self) -> Collection[Any, Row]:
        """The updates that messages tell by themselves, by their old and new images."""
        return self._as_it_is("diffs")

    def rows(self) -> Collection[Any, Row]:
        """Every message as a row of its own, which stays."""
        return self._as_it_is("append")

    def _made(self, operator: Operator) -> Collection[Any, Any]:
        return Collection(self.parts, self.parts.add(operator))

    def _as_it_is(self, mode: Mode) -> Collection[Any, Row]:
        self.parts.read(replace(self.input, mode=mode))
        return Collection(self.parts, self.input.name)


def _called(function: object) -> str:
    name = function if isinstance(function, str) else getattr(function, "__name__", "machine")
    return name.rpartition(":")[2].strip("<>")
