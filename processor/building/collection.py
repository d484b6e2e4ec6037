"""Collections as they are written down: data with their counts, at every time."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import msgspec

from ikebana.arrangements.errors import ConfigError
from ikebana.processor.building.parts import Parts
from ikebana.processor.building.places import Place, here
from ikebana.processor.joins.query import AsOfJoin, At, JoinInput, Retract
from ikebana.processor.linear import steps
from ikebana.processor.linear.steps import Sql, Step
from ikebana.processor.planning.plan import Concat, Linear, Operator, Output, OutputFormat, Reduce

Key = TypeVar("Key")
Value = TypeVar("Value")
OtherKey = TypeVar("OtherKey")
OtherValue = TypeVar("OtherValue")


@dataclass(frozen=True, eq=False)
class Collection(Generic[Key, Value]):
    """(key, value) data with their counts, at every time.

    Methods make other collections; none changes this one.  Linear steps in a row are one
    linear operator, which has no state and costs no hop.  Expressions are SQL over the
    columns of the value, `key` and `value`.
    """

    parts: Parts
    source: str
    """The operator, or the input, that the steps are behind."""
    steps: tuple[Step, ...] = ()
    name: str | None = None
    """What the linear operator of the steps is to be called."""
    places: tuple[Place, ...] = ()

    def where(self, *conditions: str) -> "Collection[Key, Value]":
        """Keep the data for which all SQL conditions are true."""
        return self._then(steps.where(*conditions))

    def select(
        self,
        *columns: str,
        key: str | None = None,
        columns_by: Mapping[str, str] | None = None,
        **expressions: str,
    ) -> "Collection[Any, dict[str, Any]]":
        """Make the value an object of columns as they are, and of SQL expressions by name.

        `key` makes another key, of the same columns.  Names that are no Python names stand
        in `columns_by`.
        """
        named = {**(columns_by or {}), **expressions}
        as_they_are = steps.project(*columns).select or ()
        return self._then(Sql(select=(*as_they_are, *named.items()), key=key))

    def rekey(self, expression: str) -> "Collection[Any, Value]":
        """Make the key what a SQL expression says; `{'a': a, 'b': b}` is one of two columns."""
        return self._then(steps.rekey(expression))

    def during(self, begin: str | None, end: str | None = None) -> "Collection[Key, Value]":
        """Count each datum from `begin` (included) until `end` (excluded), SQL for times."""
        return self._then(steps.valid_between(begin, end))

    def unnest(self, name: str, expression: str) -> "Collection[Key, Any]":
        """Make one datum for each element of a list, which becomes a column of that name."""
        return self._then(steps.unnest(name, expression))

    def sql(
        self,
        *,
        where: str | Iterable[str] = (),
        select: Mapping[str, str] | None = None,
        key: str | None = None,
        flat_map: tuple[str, str] | None = None,
        diff: str | None = None,
        valid_from: str | None = None,
        valid_until: str | None = None,
    ) -> "Collection[Any, Any]":
        """Do several of these in one step, all over the columns as they are before it.

        `diff` multiplies the count of each datum; see `steps.Sql` for the order.
        """
        columns = None if select is None else tuple(select.items())
        conditions = (where,) if isinstance(where, str) else tuple(where)
        return self._then(Sql(conditions, columns, key, flat_map, diff, valid_from, valid_until))

    def map(
        self, function: Callable[[tuple[Key, Value]], tuple[OtherKey, OtherValue]]
    ) -> "Collection[OtherKey, OtherValue]":
        """Make of each (key, value) another one."""
        return self._then(steps.map_(function))

    def filter(self, function: Callable[[tuple[Key, Value]], object]) -> "Collection[Key, Value]":
        """Keep the (key, value) for which a function is true."""
        return self._then(steps.filter_(function))

    def flat_map(
        self, function: Callable[[tuple[Key, Value]], Iterable[tuple[OtherKey, OtherValue]]]
    ) -> "Collection[OtherKey, OtherValue]":
        """Make of each (key, value) any number of others."""
        return self._then(steps.flat_map(function))

    def explode(
        self,
        function: Callable[[tuple[Key, Value]], Iterable[tuple[tuple[OtherKey, OtherValue], int]]],
    ) -> "Collection[OtherKey, OtherValue]":
        """Make of each (key, value) any number of others, each with a count: `((k, v), diff)`."""
        return self._then(steps.explode(function))

    def join_function(
        self,
        function: Callable[
            [tuple[Key, Value]],
            Iterable[tuple[tuple[OtherKey, OtherValue], int | None, int]],
        ],
        *,
        moves_time: bool = True,
    ) -> "Collection[OtherKey, OtherValue]":
        """Make `((k, v), time, diff)` of each (key, value), where a time of None is its own."""
        return self._then(steps.join_function(function, moves_time=moves_time))

    def then(self, *made: Step) -> "Collection[Any, Any]":
        """Put steps behind this as they are: values of `ikebana.steps`."""
        place = here()
        places = (*self.places, *[place] * len(made))
        return replace(self, steps=(*self.steps, *made), name=None, places=places)

    def named(self, name: str) -> "Collection[Key, Value]":
        """Name the linear operator that the steps before this make.

        A name is needed where the operator keeps state, as behind `during`: state is known
        by it when the pipeline is run again.

        Raises:
            ConfigError: there is no step to be named.
        """
        if not self.steps:
            raise ConfigError(
                f'cannot call "{self.source}" "{name}": it has its name',
                hint="Give the name where it is made: `upsert(name=...)`, `reduce(name=...)`.",
            )
        return replace(self, name=name)

    def __neg__(self) -> "Collection[Key, Value]":
        """Turn every diff around."""
        return self._then(steps.negate())

    def __add__(self, other: "Collection[Key, Value]") -> "Collection[Key, Value]":
        """The data of both, with the sums of their counts."""
        return concat(self.parts, (self, other))

    def __sub__(self, other: "Collection[Key, Value]") -> "Collection[Key, Value]":
        """The data of this one, less those of the other."""
        return self + -other

    def reduce(
        self,
        function: Callable[[Any, list[tuple[Any, int]]], Iterable[Any]] | str | None = None,
        *,
        by: str | None = None,
        name: str | None = None,
        aggregates: Mapping[str, str] | None = None,
        **named: str,
    ) -> "Collection[Any, Any]":
        """What the data of each key come to: aggregates by name, or what a function gives.

        `by` is SQL that makes another key.  `reduce(by="country", orders="count(*)")` counts.
        """
        source = self.built()
        own = name or f"{source}_by_{identifier(by) if by else 'key'}"
        all_named = {**(aggregates or {}), **named}
        return self._made(Reduce(own, source, tuple(all_named.items()), by, function))

    def as_of(
        self,
        right: "Collection[Any, Any]",
        *,
        on: str | Iterable[str],
        select: Mapping[str, str],
        key: str | None = None,
        at: At = "alt",
        outer: bool = False,
        retract: Retract = "current",
        aliases: tuple[str, str] = ("left", "right"),
        name: str | None = None,
    ) -> "Collection[Any, dict[str, Any]]":
        """Each update of this collection with what `right` is at the update's own time.

        SQL calls the two by their `aliases`.  Results are not revised when `right` changes
        later; see `AsOfJoin`.
        """
        left, met = self.built(), right.built_in(self.parts)
        own = name or f"{left}_as_of_{met}"
        conditions = (on,) if isinstance(on, str) else tuple(on)
        inputs = JoinInput(aliases[0], left), JoinInput(aliases[1], met)
        columns = tuple(select.items())
        return self._made(AsOfJoin(own, *inputs, conditions, columns, key, at, outer, retract))

    def to(
        self,
        topic: str,
        *,
        name: str | None = None,
        format: OutputFormat = "diff",  # noqa: A002 -- as the pipeline file calls it
        partitions: int | None = None,
        tombstones: bool = True,
    ) -> "Collection[Key, Value]":
        """Publish the updates of this collection in a topic; see `Output`."""
        own = name or topic
        self.parts.publish(Output(own, self.built(), topic, format, partitions, tombstones))
        return self

    def built(self) -> str:
        """The name of the operator that has this collection; of steps it is made now."""
        if not self.steps:
            return self.source
        name = self.name or self.parts.free_name(self.source, self.steps)
        made = Linear(name, self.source, self.steps)
        return self.parts.add(made, self.places)

    def built_in(self, parts: Parts) -> str:
        """The same, where it is to be put together with what is of these parts.

        Raises:
            ConfigError: it is of another pipeline.
        """
        if self.parts is not parts:
            raise ConfigError(
                f'"{self.source}" of pipeline "{self.parts.pipeline}" cannot be joined with what '
                f'is of pipeline "{parts.pipeline}"',
                hint="Publish it there, and read its topic here.",
            )
        return self.built()

    def _made(self, operator: Operator) -> "Collection[Any, Any]":
        return Collection(self.parts, self.parts.add(operator))

    def _then(self, step: Step) -> "Collection[Any, Any]":
        """One more step; conditions go into the step that follows them, as in a file."""
        if self.steps and isinstance(step, Sql) and step.flat_map is None:
            last = self.steps[-1]
            if isinstance(last, Sql) and _only_chooses(last):
                merged = _with_conditions(last, step)
                places = (*self.places[:-1], here())
                return replace(self, steps=(*self.steps[:-1], merged), name=None, places=places)
        return self.then(step)


def concat(
    parts: Parts, collections: Iterable[Collection[Any, Any]], name: str | None = None
) -> Collection[Any, Any]:
    """The data of several collections, with the sums of their counts."""
    sources = tuple(each.built_in(parts) for each in collections)
    return Collection(parts, parts.add(Concat(name or "_and_".join(sources), sources)))


def identifier(expression: str) -> str:
    """A name that an expression gives what is made by it.

    >>> identifier("orders.country || '!'")
    'orders_country'
    """
    return "_".join("".join(c if c.isalnum() else " " for c in expression).split()) or "key"


def _only_chooses(step: Sql) -> bool:
    """Whether a step leaves rows as they are."""
    return Sql(where=step.where) == step


def _with_conditions(first: Sql, then: Sql) -> Sql:
    return msgspec.structs.replace(then, where=(*first.where, *then.where))
