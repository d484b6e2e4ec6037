"""Topics of a pipeline written in Python: messages, before a method interprets them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, TypeVar

from ikebana.processor.building.collection import Collection, add_operator
from ikebana.processor.building.parts import Parts
from ikebana.processor.planning.plan import Clock, EventTime, Input, Mode, StateMachine, Upsert

Row = TypeVar("Row")
MachineStep = Callable[[list[Any], Any, int], Iterable[Any]]
View = Callable[[list[Any]], Iterable[Any]]
Migrate = Callable[[Any, int], Any]


def event_time(
    of: str | None = None,
    *,
    clock: Clock | None = None,
    lateness: timedelta = timedelta(0),
    idle: timedelta | None = timedelta(minutes=1),
    ahead: timedelta | None = timedelta(days=1),
    transactions: str | None = None,
) -> EventTime:
    """Event time of an input, for `Pipeline.topic(event_time=...)`.

    `of` is SQL over the row for its time; without it `clock` names the source of times, such
    as `"kafka"` for the timestamps of records.  The frontier is `lateness` behind the greatest
    time seen.  A partition without records for `idle` does not hold it back (None: always
    does), and a time more than `ahead` in the future is an error (None: never).

    >>> event_time("ordered", lateness=timedelta(minutes=10)).lateness_ms
    600000
    """
    idle_ms, ahead_ms = (None if each is None else _ms(each) for each in (idle, ahead))
    return EventTime(of, clock, _ms(lateness), idle_ms, ahead_ms, transactions)


def _ms(length: timedelta) -> int:
    return round(length.total_seconds() * 1000)


@dataclass(frozen=True)
class Topic(Generic[Row]):
    """Messages of Kafka topics; each method interprets them and returns a collection.

    >>> import ikebana as ik
    >>> shop = ik.Pipeline("shop")
    >>> topic = shop.topic("stock")
    >>> _ = topic.upsert().to("current")
    >>> for update in shop.evaluate(stock=[("tea", 5, 0), ("tea", 4, 1)])["current"]:
    ...     print(*update)
    ('tea', 5) 0 1
    ('tea', 5) 1 -1
    ('tea', 4) 1 1
    """

    parts: Parts
    input: Input

    def upsert(self, name: str | None = None) -> Collection[Any, Row]:
        """Keep the last value of each key: a message replaces it, a tombstone removes it.

        Messages `(key, value)` to pairs `(key, value)`, at most one a key.  The old value is
        kept in the state and retracted when it is replaced.  The operator is called as its
        input unless `name` is given.
        """
        self.parts.read(self.input)
        return add_operator(self.parts, Upsert(name or self.input.name, self.input.name))

    def machine(
        self,
        step: MachineStep | str,
        *,
        view: View | str | None = None,
        migrate: Migrate | str | None = None,
        version: int = 1,
        name: str | None = None,
    ) -> Collection[Any, Any]:
        """Apply a state machine to the events of each key, in order of time.

        Messages `(key, event)` to pairs `(key, value)`: `step(states, event, time)` returns
        the list of a key's next states, and `view(states)` the values to show, by default the
        states themselves.  An exception of `step` is an error record, until an event of the
        key succeeds, and leaves the states as they were.  `version` and `migrate` change
        states that a checkpoint has; see docs/keyed.md.

        >>> import ikebana as ik
        >>> def total(states: list[int], event: int, time: int) -> list[int]:
        ...     return [sum(states) + event]
        >>> shop = ik.Pipeline("shop")
        >>> _ = shop.topic("events").machine(total, name="totals").to("totals")
        >>> for update in shop.evaluate(events=[("a", 2, 0), ("a", 3, 1)])["totals"]:
        ...     print(*update)
        ('a', 2) 0 1
        ('a', 2) 1 -1
        ('a', 5) 1 1
        """
        self.parts.read(self.input)
        operator = name or f"{self.input.name}_{_called(step)}"
        return add_operator(
            self.parts, StateMachine(operator, self.input.name, step, view, version, migrate)
        )

    def changes(self) -> Collection[Any, Row]:
        """Read messages that are updates already: no state is needed to find old values.

        These are change data with both images (`mode: diffs` of a pipeline file), and topics
        in the format `diff` or CDCv2.

        >>> import ikebana as ik
        >>> shop = ik.Pipeline("shop")
        >>> _ = shop.topic("stock", format="diff").changes().to("same")
        >>> shop.evaluate(stock=[("tea", 5, 0, 1), ("tea", 5, 1, -1)])["same"]
        [Update(data=('tea', 5), time=0, diff=1), Update(data=('tea', 5), time=1, diff=-1)]
        """
        return self._as_it_is("diffs")

    def rows(self) -> Collection[Any, Row]:
        """Read every message as a row of its own that is never retracted (`mode: append`).

        >>> import ikebana as ik
        >>> shop = ik.Pipeline("shop")
        >>> _ = shop.topic("clicks").rows().to("clicked")
        >>> shop.evaluate(clicks=[("page", 1, 0), ("page", 1, 0)])["clicked"]
        [Update(data=('page', 1), time=0, diff=2)]
        """
        return self._as_it_is("append")

    def _as_it_is(self, mode: Mode) -> Collection[Any, Row]:
        self.parts.read(replace(self.input, mode=mode))
        return Collection(self.parts, self.input.name)


def _called(function: object) -> str:
    name = function if isinstance(function, str) else getattr(function, "__name__", "machine")
    return name.rpartition(":")[2].strip("<>")
