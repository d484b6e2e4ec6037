"""The interface of a kind of operator: everything that the planner asks of its operators.

Operators as values are in `planning/plan.py` and `planning/joins/query.py`, kernels in
`kernels/`.  A new operator is a value, a kernel, and a kind in `kinds.py` with a row in its table.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from ikebana.arrangements.store import PrefixStore
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import KeyedUpdate, NotedKind, Truncate, Upserts
from ikebana.processor.base.texts import suggestion
from ikebana.processor.kernels.layout import PartKind
from ikebana.processor.kernels.loop import Program
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.kernels.window_functions import Window
from ikebana.processor.linear.chain import Named, StepProblem
from ikebana.processor.linear.scope import KEY, VALUE, Scope
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.joins.binding import Examined
from ikebana.processor.planning.joins.query import Join
from ikebana.processor.planning.plan import (
    Input,
    Loop,
    Operator,
    PlanProblem,
    Reduce,
    Unread,
    WindowFunctions,
)
from ikebana.processor.planning.relations import NOTHING, Keyed, Keys, Relation

O_contra = TypeVar("O_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Way:
    """One way from a root to a collection."""

    root: str
    steps: tuple[Named, ...]


class OperatorCatalog(Protocol):
    """The catalog, as kinds of operators see it; it asks them, so they do not import it."""

    @property
    def inputs(self) -> Mapping[str, Input]:
        """The inputs by name."""
        ...

    def rows(self, name: str) -> Scope:
        """The scope of an input's rows."""
        ...

    def relation(self, name: str) -> Relation:
        """The relation of a collection; unknown if the collection is missing, or reads itself."""
        ...

    def sources(self, name: str) -> tuple[str, ...]:
        """The collections that an operator reads, if there is one of that name."""
        ...

    def examined(self, join: Join) -> Examined:
        """An analysed join, perhaps with problems."""
        ...

    def aggregates(self, reduction: Reduce) -> tuple[Aggregate, ...]:
        """The aggregates of a reduction.  Raises: AggregateError, if one has a problem."""
        ...

    def program(self, loop: Loop) -> Program:
        """The program of a loop."""
        ...

    def within(self, loop: Loop) -> "OperatorCatalog":
        """The catalog of the collections within a loop."""
        ...

    def problems(self) -> list[PlanProblem]:
        """All problems of the operators."""
        ...

    def window(self, operator: WindowFunctions) -> Window:
        """The window functions of an operator.  Raises: AggregateError, if one has a problem."""
        ...

    def tell(self, path: str, problem: str) -> None:
        """Note a problem."""
        ...

    def taking(
        self, result: tuple[list[StepProblem], Scope], place: Callable[[StepProblem], str]
    ) -> Scope:
        """The scope of the results of steps; their problems are noted."""
        ...


class OperatorBatch(Protocol):
    """A batch of a shard, as one of its operators sees it."""

    @property
    def interval(self) -> Interval:
        """The times that the operator goes through."""
        ...

    def part(self, kind: PartKind) -> PrefixStore:
        """The part of this kind that the operator has in the store."""
        ...

    def rows(self) -> list[Upserts | Truncate]:
        """The rows of the input that the operator reads."""
        ...

    def arrived(self) -> Collection[KeyedUpdate]:
        """The updates, by key, of the collections that the operator reads."""
        ...

    def portions(self) -> Iterator[list[KeyedUpdate]]:
        """The arrived updates in lists that fit in memory."""
        ...

    def owns(self, key: bytes) -> bool:
        """Whether the shard has this key."""
        ...

    def emit(self, updates: Collection[KeyedUpdate], errors: Sequence[KeyedUpdate] = ()) -> None:
        """Emit updates of the operator's collection, and of error records."""
        ...

    def count(self, kind: NotedKind, count: int, places: Iterable[tuple[int, int, int]]) -> None:
        """Count records of a kind, such as those with old images that differ from the state.

        The last of them lie at `places`: the rank of the topic among those of the input, partition
        and offset.
        """
        ...


class Around:
    """The inputs and collections around an operator by name, except those that were not read."""

    def __init__(
        self, inputs: Iterable[Input], operators: Iterable[Operator], unread: Unread
    ) -> None:
        self.inputs: Mapping[str, Input] = {source.name: source for source in inputs}
        self.unread = unread
        self._collections = [operator.name for operator in operators]
        self._collections += [name for name, i in self.inputs.items() if i.is_collection]

    def missing_input(self, path: str, name: str) -> Iterator[PlanProblem]:
        """Report that an input is missing, unless it may be in a part that was not read."""
        if not self.unread.may_have("inputs", name):
            yield path, f"there is no input {name!r}{suggestion(name, self.inputs)}"

    def missing_collection(self, path: str, source: str) -> Iterator[PlanProblem]:
        """Report that a collection is missing, unless it may be in a part that was not read."""
        unread = self.unread
        if source in self._collections or unread.may_have("operators", source):
            return
        is_input = source in self.inputs
        if unread.hides_rows(source) or (not is_input and unread.may_have("inputs", source)):
            # An input that was not read may be a collection.
            return
        if is_input:
            yield (
                path,
                f"{source!r} is an input of upserts, which are no collection: make an operator "
                f"with upsert: {source}, and read that",
            )
        else:
            yield path, f"there is no operator {source!r}{suggestion(source, self._collections)}"


class OperatorKind(Generic[O_contra]):
    """The interface of a kind of operator."""

    label: str
    """The name of the kind in messages."""
    reads_rows = False
    """Whether it reads the rows of an input."""
    is_linear = False
    """Whether its collection is a linear function of others, so that it is not a root."""
    parts: tuple[PartKind, ...] = ()
    """The kinds of parts that it has in the state of a shard, with their layouts."""
    is_keyed = False
    """Whether it reads collections by a key, which may take an exchange; so if it has `before`."""
    makes_key = False
    """Whether it makes the key of each row that it reads, by the step `before`."""
    sql: tuple[str, ...] = ()
    """The names of its fields that are SQL."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not (cls.is_linear or cls.parts):
            raise TypeError(
                f"{cls.__name__} is not linear and has no parts: nobody would know to which "
                "shards its state belongs"
            )
        if cls.before is not OperatorKind.before:
            cls.is_keyed = cls.makes_key = True
        if not (cls.is_linear or cls.is_keyed or cls.reads_rows):
            raise TypeError(
                f"{cls.__name__} is not linear, has no `before` and reads no rows of an input: "
                "nothing would bring it what it reads"
            )

    @property
    def section(self) -> str:
        """The key in the pipeline file under which it names what it reads."""
        return self.label.replace(" ", "_")

    def part(self, operator: O_contra) -> PartKind | None:
        """The part that has the whole collection of the operator; None if there is none.

        This is the first part, if that has `contents`.
        """
        return next((part for part in self.parts[:1] if part.contents is not None), None)

    def sources(self, operator: Any) -> tuple[str, ...]:
        """The collections that it reads, or the one input of rows that it reads."""
        return (operator.input if self.reads_rows else operator.source,)

    def with_sources(self, operator: Any, named: Callable[[str], str]) -> Any:
        """The operator with its source collections renamed; inputs keep their names."""
        if self.reads_rows:
            return operator
        return msgspec.structs.replace(operator, source=named(operator.source))

    def steps(self, operator: O_contra) -> tuple[Named, ...]:
        """The steps of a linear operator."""
        return ()

    def before(self, operator: O_contra) -> Sql:
        """The step that makes the key by which it reads rows, if `makes_key`."""
        raise NotImplementedError

    def single_valued(self, operator: O_contra) -> bool:
        """Whether its collection has at most one value for each key."""
        return False

    def problems(self, operator: Any, around: Around) -> Iterator[PlanProblem]:
        """Its problems apart from SQL and functions: names, references."""
        for source in self.sources(operator):
            yield from around.missing_collection(
                f"operators.{operator.name}.{self.section}", source
            )

    def keys(
        self, operator: O_contra, keyed: Callable[[str], Keyed], types: Mapping[str, str]
    ) -> Keys:
        """The unique keys of its collection, which has columns of these `types`.

        `keyed` returns the keys of a collection that it reads.
        """
        if self.single_valued(operator):
            return NOTHING.with_unique([KEY], [KEY, VALUE, *types])
        return NOTHING

    def relation(self, operator: O_contra, catalog: OperatorCatalog) -> Relation:
        """The relation of its collection; problems of its SQL are noted in the catalog."""
        raise NotImplementedError

    def step(self, operator: O_contra, batch: OperatorBatch, catalog: OperatorCatalog) -> None:
        """Compute the interval of a batch, if it is a root.

        Raises: TooMuchError, if the results do not fit in memory.
        """
        raise NotImplementedError
