"""Topics and collections of a pipeline written in Python.

The methods of a topic interpret its messages, and those of a collection derive another one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar

import msgspec

from ikebana.codecs.formats import OutputFormat
from ikebana.errors import ConfigError
from ikebana.processor.building.parts import CodePlace, Parts, calling_place
from ikebana.processor.linear import steps
from ikebana.processor.linear.settled import TextOrTexts, pair_of_texts, pairs, texts
from ikebana.processor.linear.steps import Sql, Step
from ikebana.processor.planning.joins.query import AsOfJoin, At, DeltaJoin, JoinInput, Retract
from ikebana.processor.planning.plan import (
    Concat,
    EventClock,
    EventTime,
    Input,
    InputMode,
    Linear,
    OnChange,
    Operator,
    Output,
    Reduce,
    StateMachine,
    Subjects,
    Upsert,
    reduction,
)


def identifier(expression: str) -> str:
    """Make an identifier from the letters and digits of an expression.

    >>> identifier("orders.country || '!'")
    'orders_country'
    """
    return "_".join("".join(c if c.isalnum() else " " for c in expression).split()) or "key"


Key = TypeVar("Key")
Value = TypeVar("Value")
OtherKey = TypeVar("OtherKey")
OtherValue = TypeVar("OtherValue")


@dataclass(frozen=True, eq=False)
class Collection(Generic[Key, Value]):
    """A collection of (key, value) pairs: each has a count at every time.

    A method returns a new collection and leaves this one as it is.  Nothing is computed
    before the pipeline is evaluated or run.  Consecutive linear steps (`where`, `select`,
    `map` and so on) become one linear operator, which keeps no state and needs no exchange
    between shards.  Expressions are DuckDB's SQL over the columns of the value, and over
    `key` and `value` as a whole; what they may contain: docs/linear.md.

    Each linear step and operator is one method, so that an editor completes all of them, and all
    methods are here, because they return this class: elsewhere they would import it in a circle,
    or lose the types of keys and values.

    >>> import ikebana as ik
    >>> shop = ik.Pipeline("shop")
    >>> orders = shop.topic("orders", columns=[ik.Column("quantity", "BIGINT")]).upsert()
    >>> large = orders.where("quantity > 9").select("quantity", double="quantity * 2")
    >>> _ = large.to("large")
    >>> found = shop.evaluate(orders=[(1, {"quantity": 12}, 0), (2, {"quantity": 3}, 0)])
    >>> for update in found["large"]:
    ...     print(*update)
    (1, {'double': 24, 'quantity': 12}) 0 1
    """

    parts: Parts
    source: str
    """The name of the operator or input whose collection the steps are applied to."""
    steps: tuple[Step, ...] = ()
    name: str | None = None
    """The name of the linear operator that the steps become; None: one is chosen."""
    places: tuple[CodePlace, ...] = ()

    def where(self, *conditions: str) -> "Collection[Key, Value]":
        """Keep the pairs for which every SQL condition is true; null counts as false.

        `(key, value)` to `(key, value)`: `orders.where("quantity > 9", "product = 'tea'")`.
        """
        return self._then(steps.where(*conditions))

    def select(
        self,
        *columns: str,
        key: str | None = None,
        columns_by: Mapping[str, str] | None = None,
        **expressions: str,
    ) -> "Collection[Any, dict[str, Any]]":
        """Replace the value by an object with these fields.

        `(key, value)` to `(key, {field: ...})`.  Positional names are columns to keep;
        keyword arguments are fields with their SQL expressions:
        `orders.select("product", amount="quantity * price")`.  Fields whose names are not
        Python identifiers go into `columns_by`.  `key` is the SQL of a new key, over the
        columns before the step.
        """
        named = {**dict(pairs(columns_by or {}, "columns_by")), **expressions}
        as_they_are = steps.project(*columns).select or ()
        return self._then(Sql(select=(*as_they_are, *named.items()), key=key))

    def rekey(self, expression: str) -> "Collection[Any, Value]":
        """Replace the key by the result of a SQL expression.

        `(key, value)` to `(expression, value)`.  Write a key of several columns as an
        object: `orders.rekey("{'product': product, 'day': day}")`.
        """
        return self._then(steps.rekey(expression))

    def during(self, begin: str | None, end: str | None = None) -> "Collection[Key, Value]":
        """Keep each pair only from its `begin` (included) until its `end` (excluded).

        Both are SQL for a date, a timestamp or milliseconds; None is no bound.  A pair enters
        and leaves at these times although no record comes then.  Give the result a name with
        `named`: it keeps the updates that are due later in its state.

        >>> import ikebana as ik
        >>> shop = ik.Pipeline("shop")
        >>> offers = shop.topic("offers", columns=[ik.Column("until", "BIGINT")]).upsert()
        >>> _ = offers.during(None, "until").named("open").to("open")
        >>> for update in shop.evaluate(offers=[("tea", {"until": 100}, 7)])["open"]:
        ...     print(*update)
        ('tea', {'until': 100}) 7 1
        ('tea', {'until': 100}) 100 -1
        """
        return self._then(steps.valid_between(begin, end))

    def unnest(self, name: str, expression: str) -> "Collection[Key, Any]":
        """Replace each pair by one for each element of a list, as the column `name`.

        The other columns stay: `orders.unnest("line", "lines")` has one pair a line.
        """
        return self._then(steps.unnest(name, expression))

    def sql(
        self,
        *,
        where: TextOrTexts = (),
        select: Mapping[str, str] | None = None,
        key: str | None = None,
        flat_map: tuple[str, str] | None = None,
        diff: str | None = None,
        valid_from: str | None = None,
        valid_until: str | None = None,
    ) -> "Collection[Any, Any]":
        """Apply several parts of SQL in one step, all over the columns before the step.

        They apply in the order of `steps.Sql`: `flat_map`, `where`, `valid_from` and
        `valid_until`, `diff`, then `select` and `key`.  `diff` is SQL for a whole number by
        which the count of each pair is multiplied.
        """
        columns = None if select is None else pairs(select, "select")
        return self._then(
            Sql(texts(where, "where"), columns, key, flat_map, diff, valid_from, valid_until)
        )

    def map(
        self, function: Callable[[tuple[Key, Value]], tuple[OtherKey, OtherValue]]
    ) -> "Collection[OtherKey, OtherValue]":
        """Replace each pair by the pair that a Python function returns.

        `(key, value)` to `function((key, value))`.  The function must be importable by name
        when the pipeline runs on Spark, and return the same for the same pair.
        """
        return self._then(steps.map_(function))

    def filter(self, function: Callable[[tuple[Key, Value]], object]) -> "Collection[Key, Value]":
        """Keep the pairs for which a Python function of `(key, value)` returns something true."""
        return self._then(steps.filter_(function))

    def flat_map(
        self, function: Callable[[tuple[Key, Value]], Iterable[tuple[OtherKey, OtherValue]]]
    ) -> "Collection[OtherKey, OtherValue]":
        """Replace each pair by all pairs that a Python function of `(key, value)` yields."""
        return self._then(steps.flat_map(function))

    def explode(
        self,
        function: Callable[[tuple[Key, Value]], Iterable[tuple[tuple[OtherKey, OtherValue], int]]],
    ) -> "Collection[OtherKey, OtherValue]":
        """Replace each pair by pairs with counts, which multiply its own.

        `function((key, value))` yields `((key, value), diff)`.
        """
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
        """Replace each update by updates; `map`, `filter` and the others are cases of this.

        `function((key, value))` yields `((key, value), time, diff)`.  The result has the later
        of this time and the update's own, None standing for the latter, and the product of
        both diffs.  Say `moves_time=False` if all times are None: then no update has to wait.
        """
        return self._then(steps.join_function(function, moves_time=moves_time))

    def then(self, *behind: Step) -> "Collection[Any, Any]":
        """Append steps that are values of `ikebana.steps`, such as `steps.negate()`."""
        place = calling_place()
        places = (*self.places, *[place] * len(behind))
        return replace(self, steps=(*self.steps, *behind), name=None, places=places)

    def named(self, name: str) -> "Collection[Key, Value]":
        """Name the linear operator that the preceding steps become.

        An operator with state needs a name, as after `during`: a later run of the pipeline
        finds the state by it.  Without one, the name is made from the source's.

        Raises:
            ConfigError: no step precedes this, so there is no linear operator to name.
        """
        if not self.steps:
            raise ConfigError(
                f'cannot name "{self.source}" "{name}": it has a name already',
                hint="Give the name where it is made: `upsert(name=...)`, `reduce(name=...)`.",
            )
        return replace(self, name=name)

    def __neg__(self) -> "Collection[Key, Value]":
        """Negate the count of every pair."""
        return self._then(steps.negate())

    def __add__(self, other: "Collection[Key, Value]") -> "Collection[Key, Value]":
        """Add two collections: the count of each pair is the sum of its counts."""
        return concat(self.parts, (self, other))

    def __sub__(self, other: "Collection[Key, Value]") -> "Collection[Key, Value]":
        """Subtract a collection: the count of each pair is the difference of its counts."""
        return self + -other

    def reduce(
        self,
        function: Callable[[Any, list[tuple[Any, int]]], Iterable[Any]] | str | None = None,
        *,
        by: str | None = None,
        total: bool = False,
        name: str | None = None,
        aggregates: Mapping[str, str] | None = None,
        **named: str,
    ) -> "Collection[Any, Any]":
        """Reduce the pairs of each key, by aggregates or by a Python function.

        `(key, value)` to `(by, {name: aggregate, ...})`: keyword arguments are fields with
        their aggregates, `by` is the SQL of another key, and with `total` there is one result for
        all rows, also if there are none.  With a function, `(key, value)` to
        `(key, result)` for each result of `function(key, [(value, count), ...])`.  When a
        result changes, the old one is retracted at that time.  Aggregates: docs/keyed.md.

        >>> import ikebana as ik
        >>> shop = ik.Pipeline("shop")
        >>> orders = shop.topic("orders", columns=[ik.Column("product", "VARCHAR")]).upsert()
        >>> _ = orders.reduce(by="product", name="sold", n="count(*)").to("sold")
        >>> records = [(1, {"product": "tea"}, 0), (2, {"product": "tea"}, 5)]
        >>> for update in shop.evaluate(orders=records)["sold"]:
        ...     print(*update)
        ('tea', {'n': 1}) 0 1
        ('tea', {'n': 1}) 5 -1
        ('tea', {'n': 2}) 5 1
        """
        source = self.built()
        of = identifier(by) if by else "key"
        operator = name or (f"{source}_total" if total else f"{source}_by_{of}")
        all_named = {**dict(pairs(aggregates or {}, "aggregates")), **named}
        written = Reduce(operator, source, tuple(all_named.items()), by, total)
        return _add_operator(self.parts, reduction(written, function))

    def as_of(
        self,
        right: "Collection[Any, Any]",
        *,
        on: TextOrTexts,
        select: Mapping[str, str],
        key: str | None = None,
        at: At = "alt",
        outer: bool = False,
        retract: Retract = "current",
        locked_by: TextOrTexts = (),
        aliases: tuple[str, str] = ("left", "right"),
        name: str | None = None,
    ) -> "Collection[Any, dict[str, Any]]":
        """Join each update with the version of `right` at the update's own time.

        `(key, left), (key, right)` to `(key of left, {field: ...})`.  `on` are SQL conditions
        and `select` the fields, over columns with an alias in front: `left` or `right`, unless
        `aliases` names others.  A later change of `right` revises no result; `retract` says
        what the retraction of a left row retracts, and an update of columns that are not in
        `locked_by` keeps what was met.  See `AsOfJoin` for `at` and `outer`.  The
        keywords are the keys of an `as_of_join` in a pipeline file.

        >>> import ikebana as ik
        >>> shop = ik.Pipeline("shop")
        >>> orders = shop.topic("orders", columns=[ik.Column("product", "JSON")]).upsert()
        >>> prices = shop.topic("prices", columns=[ik.Column("price", "BIGINT")]).upsert()
        >>> priced = orders.as_of(
        ...     prices, on="left.product = right.key", select={"price": "right.price"}
        ... )
        >>> _ = priced.to("priced")
        >>> found = shop.evaluate(
        ...     prices=[("tea", {"price": 5}, 0), ("tea", {"price": 6}, 9)],
        ...     orders=[(1, {"product": "tea"}, 3)],
        ... )
        >>> found["priced"]
        [Update(data=(1, {'price': 5}), time=3, diff=1)]

        Raises:
            ConfigError: `right` belongs to another pipeline.
        """
        left, met = self.built(), right.built_in(self.parts)
        operator = name or f"{left}_as_of_{met}"
        first, second = pair_of_texts(aliases, "aliases")
        inputs = JoinInput(first, left), JoinInput(second, met)
        columns = pairs(select, "select")
        lock = texts(locked_by, "locked_by")
        join = AsOfJoin(
            operator, *inputs, texts(on, "on"), columns, key, at, outer, retract, locked_by=lock
        )
        return _add_operator(self.parts, join)

    def distinct(self, *columns: str, name: str | None = None) -> "Collection[Any, Any]":
        """Keep each row once, as these columns or all that are declared; the row is the key.

        >>> import ikebana as ik
        >>> shop = ik.Pipeline("shop")
        >>> columns = [ik.Column("product", "VARCHAR"), ik.Column("quantity", "BIGINT")]
        >>> orders = shop.topic("orders", columns=columns).upsert()
        >>> _ = orders.distinct("product").to("products")
        >>> tea, more = {"product": "tea", "quantity": 1}, {"product": "tea", "quantity": 9}
        >>> shop.evaluate(orders=[(1, tea, 0), (2, more, 5)])["products"]
        [Update(data=('tea', {'product': 'tea'}), time=0, diff=1)]
        """
        source = self.built()
        select = steps.project(*columns).select if columns else None
        return self._derived("distinct", name or f"{source}_distinct", source, select)

    def union(
        self, *others: "Collection[Any, Any]", every: bool = False, name: str | None = None
    ) -> "Collection[Any, Any]":
        """Return the rows of all collections: each once, or with `every` as often as there."""
        return self._of_sets("union", others, name, every=every)

    def minus(
        self, *others: "Collection[Any, Any]", every: bool = False, name: str | None = None
    ) -> "Collection[Any, Any]":
        """Return the rows that are in none of the others: what SQL calls EXCEPT, or EXCEPT ALL."""
        return self._of_sets("minus", others, name, every=every)

    def intersect(
        self, *others: "Collection[Any, Any]", every: bool = False, name: str | None = None
    ) -> "Collection[Any, Any]":
        """Return the rows that are in all collections: INTERSECT of SQL, or INTERSECT ALL."""
        return self._of_sets("intersect", others, name, every=every)

    def semi_join(
        self,
        right: "Collection[Any, Any]",
        *,
        on: TextOrTexts,
        aliases: tuple[str, str] = ("l", "r"),
        name: str | None = None,
    ) -> "Collection[Key, Value]":
        """Keep the rows for which there is a row of `right` that makes the conditions true."""
        return self._matching("semi_join", right, on, aliases, name)

    def anti_join(
        self,
        right: "Collection[Any, Any]",
        *,
        on: TextOrTexts,
        aliases: tuple[str, str] = ("l", "r"),
        name: str | None = None,
    ) -> "Collection[Key, Value]":
        """Keep the rows for which there is no row of `right` that makes the conditions true."""
        return self._matching("anti_join", right, on, aliases, name)

    def outer_join(
        self,
        right: "Collection[Any, Any]",
        *,
        on: TextOrTexts,
        select: Mapping[str, str],
        kind: Literal["left", "right", "full"] = "left",
        aliases: tuple[str, str] = ("l", "r"),
        name: str | None = None,
    ) -> "Collection[Any, dict[str, Any]]":
        """Join, and keep the rows without a match of one side or both, with nulls for the other.

        `on` and `select` are SQL over columns with an alias in front: `l.product`, `r.price`.
        """
        left, met = self.built(), right.built_in(self.parts)
        operator, columns = name or f"{left}_{kind}_{met}", pairs(select, "select")
        inputs = tuple(zip(pair_of_texts(aliases, "aliases"), (left, met), strict=True))
        return self._derived("outer", operator, kind, inputs, texts(on, "on"), columns)

    def first(
        self,
        count: int = 1,
        *,
        order: TextOrTexts,
        partition: TextOrTexts = (),
        name: str | None = None,
    ) -> "Collection[Any, Any]":
        """Keep the first rows in an order, such as `amount DESC`, of each partition."""
        source, by = self.built(), texts(partition, "partition")
        operator = name or f"{source}_first"
        return self._derived("first", operator, source, by, texts(order, "order"), count)

    def window(
        self,
        *,
        order: TextOrTexts = (),
        partition: TextOrTexts = (),
        frame: str = "",
        having: TextOrTexts = (),
        name: str | None = None,
        functions: Mapping[str, str] | None = None,
        **named: str,
    ) -> "Collection[Any, Any]":
        """Add window functions as columns, all over one window: `place="rank()"`.

        Rows are in an order, such as `amount DESC`, in each partition.  `having` are conditions
        that may read the functions, such as `place <= 3`.  Functions whose names are not Python
        identifiers, or are parameters of this method, go into `functions`.

        >>> import ikebana as ik
        >>> shop = ik.Pipeline("shop")
        >>> orders = shop.topic("orders", columns=[ik.Column("n", "BIGINT")]).upsert()
        >>> _ = orders.window(order="n", so_far="sum(n)", name="sums").to("sums")
        >>> for update in shop.evaluate(orders=[(1, {"n": 2}, 0), (2, {"n": 5}, 0)])["sums"]:
        ...     print(*update)
        (0, {'n': 2, 'so_far': 2}) 0 1
        (0, {'n': 5, 'so_far': 7}) 0 1
        """
        source, by = self.built(), texts(partition, "partition")
        operator = name or f"{source}_window"
        listed = pairs({**(functions or {}), **named}, "functions")
        over = by, texts(order, "order"), frame, texts(having, "having")
        return self._derived("windowed", operator, source, listed, *over)

    def to(
        self,
        topic: str,
        *,
        name: str | None = None,
        format: OutputFormat = "diff",  # noqa: A002 -- as the pipeline file calls it
        partitions: int | None = None,
        tombstones: bool = True,
        on_change: OnChange = "difference",
        subjects: Subjects = "topic",
        record: str | None = None,
    ) -> "Collection[Key, Value]":
        """Write the updates of this collection to a topic, and return the collection.

        `name` is that of the output, by default the name of the topic; `format` is one of
        docs/formats-out.md.  `partitions` is how many a topic gets that does not exist yet; see
        `Output`.  `on_change` says what becomes of the topic when the collection is another one
        in a later version of the pipeline: it gets the `difference`, the output needs a
        `new-topic`, or they `refuse` that.  `subjects` and `record` name the schemas of a format
        that has them in a registry.

        Raises:
            ConfigError: another output has this name.
        """
        output = name or topic
        self.parts.publish(
            Output(
                output,
                self.built(),
                topic,
                format,
                partitions,
                tombstones,
                on_change,
                subjects,
                record,
            )
        )
        return self

    def built(self) -> str:
        """Return the operator's name; the steps become a linear operator now."""
        if not self.steps:
            return self.source
        name = self.name or self.parts.free_name(self.source, self.steps)
        return self.parts.add(Linear(name, self.source, self.steps), self.places)

    def built_in(self, parts: Parts) -> str:
        """As `built`, but refuse a collection of another pipeline than these parts'.

        Raises:
            ConfigError: the collection belongs to another pipeline.
        """
        if self.parts is not parts:
            raise ConfigError(
                f'"{self.source}" of pipeline "{self.parts.pipeline}" cannot be used in '
                f'pipeline "{parts.pipeline}"',
                hint="Publish it there, and read its topic here.",
            )
        return self.built()

    def _of_sets(
        self,
        kind: str,
        others: "tuple[Collection[Any, Any], ...]",
        name: str | None,
        *,
        every: bool,
    ) -> "Collection[Any, Any]":
        sources = (self.built(), *(each.built_in(self.parts) for each in others))
        operator = name or f"_{kind}_".join(sources)
        return self._derived("set_operation", operator, kind, sources, every=every)

    def _matching(
        self,
        kind: str,
        right: "Collection[Any, Any]",
        on: TextOrTexts,
        aliases: tuple[str, str],
        name: str | None,
    ) -> "Collection[Any, Any]":
        left, met = self.built(), right.built_in(self.parts)
        inputs = tuple(zip(pair_of_texts(aliases, "aliases"), (left, met), strict=True))
        operator = name or f"{left}_{kind}_{met}"
        return self._derived("matching", operator, kind, inputs, texts(on, "on"))

    def _derived(self, *section: Any, **options: Any) -> "Collection[Any, Any]":
        return Collection(self.parts, self.parts.derive(*section, **options))

    def _then(self, step: Step) -> "Collection[Any, Any]":
        """Append a step; conditions merge into the step that follows them, as in a file."""
        if self.steps and isinstance(step, Sql) and step.flat_map is None:
            last = self.steps[-1]
            if isinstance(last, Sql) and _only_chooses(last):
                merged = _with_conditions(last, step)
                places = (*self.places[:-1], calling_place())
                return replace(self, steps=(*self.steps[:-1], merged), name=None, places=places)
        return self.then(step)


def _add_operator(parts: Parts, operator: Operator) -> Collection[Any, Any]:
    """Add an operator to the parts, and return its collection."""
    return Collection(parts, parts.add(operator))


def add_join(
    parts: Parts,
    join: DeltaJoin,
    left: Mapping[str, TextOrTexts],
    full: Mapping[str, TextOrTexts],
) -> Collection[Any, Any]:
    """Add a delta join, of which some inputs may be outer, and return its collection."""
    if not left and not full:
        return _add_operator(parts, join)
    conditions = [
        tuple((k, texts(on, f"the conditions of {k!r}")) for k, on in each.items())
        for each in (left, full)
    ]
    return Collection(parts, parts.derive("delta", join, *conditions))


def concat(
    parts: Parts, collections: Iterable[Collection[Any, Any]], name: str | None = None
) -> Collection[Any, Any]:
    """Add collections: the count of each pair is the sum of its counts."""
    sources = tuple(each.built_in(parts) for each in collections)
    return _add_operator(parts, Concat(name or "_and_".join(sources), sources))


def _only_chooses(step: Sql) -> bool:
    """Return whether a step has only conditions."""
    return Sql(where=step.where) == step


def _with_conditions(first: Sql, then: Sql) -> Sql:
    return msgspec.structs.replace(then, where=(*first.where, *then.where))


Row = TypeVar("Row")
MachineStep = Callable[[list[Any], Any, int], Iterable[Any]]
View = Callable[[list[Any]], Iterable[Any]]
Migrate = Callable[[Any, int], Any]


def event_time(
    of: str | None = None,
    *,
    clock: EventClock | None = None,
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
        return _add_operator(self.parts, Upsert(name or self.input.name, self.input.name))

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
        return _add_operator(
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

    def _as_it_is(self, mode: InputMode) -> Collection[Any, Row]:
        self.parts.read(replace(self.input, mode=mode))
        return Collection(self.parts, self.input.name)


def _called(function: object) -> str:
    name = function if isinstance(function, str) else getattr(function, "__name__", "machine")
    return name.rpartition(":")[2].strip("<>")
