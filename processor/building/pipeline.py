"""A pipeline written in Python."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

from ikebana.arrangements.errors import ConfigError, PlanError
from ikebana.arrangements.update import Update
from ikebana.codecs.change import Column
from ikebana.processor.building.collection import Collection, concat
from ikebana.processor.building.explained import Explained
from ikebana.processor.building.parts import Parts
from ikebana.processor.building.places import here, placed
from ikebana.processor.building.rows import columns_of
from ikebana.processor.building.topic import Topic
from ikebana.processor.joins.query import DeltaJoin, JoinInput, Strategy
from ikebana.processor.linear.modules import look_beside_program
from ikebana.processor.planning.plan import (
    Clock,
    EventTime,
    Format,
    Input,
    KeyFormat,
    OnError,
    Plan,
    Start,
    TimeDomain,
)

if TYPE_CHECKING:
    from ikebana.codecs.avro import Schemas
    from ikebana.processor.configuring.settings import Settings
    from ikebana.processor.literals import Record
    from ikebana.processor.running.handle import PipelineRun

Row = TypeVar("Row")


class TopicOptions(TypedDict, total=False):
    """What `Pipeline.topic` takes beside the topics; see `Input`."""

    name: str
    format: Format
    key_format: KeyFormat
    key: Iterable[str]
    columns: Iterable[Column]
    start: Start
    tables: str
    drift: bool
    schema: str
    options: Mapping[str, str]
    event_time: EventTime
    unique: Iterable[Iterable[str]]
    size: int


class Pipeline:
    """What a pipeline reads, computes and writes; `plan` makes the value of it.

    >>> from typing import TypedDict
    >>> class Order(TypedDict):
    ...     product: str
    ...     quantity: int
    >>> shop = Pipeline("shop")
    >>> orders = shop.topic("orders", row=Order).upsert()
    >>> _ = orders.where("quantity > 9").select("product", "quantity").to("large")
    >>> for update in shop.evaluate(
    ...     orders=[(1, {"product": "tea", "quantity": 12}, 0), (1, None, 5)],
    ... )["large"]:
    ...     print(*update)
    (1, {'product': 'tea', 'quantity': 12}) 0 1
    (1, {'product': 'tea', 'quantity': 12}) 5 -1
    """

    def __init__(
        self,
        name: str,
        *,
        time: TimeDomain = "ingest",
        on_error: OnError = "record",
        error_topic: str = "",
        pushdown: bool = True,
    ) -> None:
        self.name = name
        self._time: TimeDomain = time
        self._on_error: OnError = on_error
        self._error_topic = error_topic
        self._pushdown = pushdown
        self._parts = Parts(name)

    @overload
    def topic(
        self, *topics: str, row: type[Row], **options: Unpack[TopicOptions]
    ) -> Topic[Row]: ...
    @overload
    def topic(self, *topics: str, **options: Unpack[TopicOptions]) -> Topic[Any]: ...
    def topic(
        self, *topics: str, row: type | None = None, **options: Unpack[TopicOptions]
    ) -> Topic[Any]:
        """Messages of Kafka topics: several topics are one relation.

        `row` is a TypedDict that declares the columns, or `columns` are these as they are; the
        others are those of `Input`.  The `name` is that of the first topic where none is given.

        Raises:
            ConfigError: there is no topic, or `row` declares what is no column.
        """
        if not topics:
            raise ConfigError(f'pipeline "{self.name}" is to read a topic without a name')
        columns = tuple(options.get("columns", ()))
        if row is not None:
            columns = (*columns_of(row), *columns)
        given = Input(
            options.get("name", topics[0]),
            topics,
            options.get("format", "json"),
            options.get("key_format", "json"),
            options.get("start", "earliest"),
            columns=columns,
            key=tuple(options.get("key", ())),
            tables=options.get("tables"),
            drift=options.get("drift", True),
            schema=options.get("schema"),
            options=tuple(options.get("options", {}).items()),
            event_time=options.get("event_time"),
            unique=tuple(map(tuple, options.get("unique", ()))),
            size=options.get("size"),
        )
        self._parts.places.setdefault(f"inputs.{given.name}", here())
        return Topic(self._parts, given)

    def join(
        self,
        inputs: Mapping[str, Collection[Any, Any]],
        *,
        where: str | Iterable[str],
        select: Mapping[str, str],
        key: str | None = None,
        orders: Mapping[str, Iterable[str]] | None = None,
        cartesian: bool = False,
        strategy: Strategy = "auto",
        name: str | None = None,
    ) -> Collection[Any, dict[str, Any]]:
        """What collections, by their aliases, come to together; see `DeltaJoin`.

        `join({"o": orders, "c": customers}, where="o.customer = c.key", select={...})`.
        """
        aliases = tuple(
            JoinInput(alias, each.built_in(self._parts)) for alias, each in inputs.items()
        )
        conditions = (where,) if isinstance(where, str) else tuple(where)
        paths = tuple((alias, tuple(path)) for alias, path in (orders or {}).items())
        own = name or "_".join(each.relation for each in aliases)
        columns = tuple(select.items())
        join = DeltaJoin(own, aliases, conditions, columns, key, paths, cartesian, strategy)
        return Collection(self._parts, self._parts.add(join))

    def concat(
        self, *collections: Collection[Any, Any], name: str | None = None
    ) -> Collection[Any, Any]:
        """The data of several collections, with the sums of their counts."""
        return concat(self._parts, collections, name)

    def plan(self) -> Plan:
        """The immutable plan, which is the one that a pipeline file of the same parts makes.

        Raises:
            PlanError: with every problem, each with the line of the code where it was made.
        """
        try:
            return Plan(
                self.name,
                tuple(self._parts.inputs.values()),
                tuple(self._parts.operators.values()),
                tuple(self._parts.outputs.values()),
                self._error_topic,
                self._time,
                self._on_error,
                self._pushdown,
            )
        except PlanError as error:
            raise placed(error, self.name, self._parts.places) from None

    def evaluate(
        self,
        records: "Mapping[str, Iterable[Record]] | None" = None,
        upper: int | None = None,
        *,
        schemas: "Schemas | Mapping[int, Any] | None" = None,
        **named: "Iterable[Record]",
    ) -> dict[str, list[Update[Any]]]:
        """Run in this process on literal records of inputs, by name; see `evaluate`."""
        from ikebana.processor.evaluate import evaluate

        return evaluate(self.plan(), {**(records or {}), **named}, upper, schemas=schemas)

    def explain(self) -> Explained:
        """What it will read, keep and write: as text, and as a picture in a notebook.

        Raises:
            PlanError: with every problem.
        """
        return Explained(self.plan())

    def run(
        self,
        bootstrap_servers: str | None = None,
        *,
        checkpoint: str | None = None,
        once: bool = False,
        settings: Mapping[str, Any] | None = None,
        spark: Any = None,
    ) -> "PipelineRun":
        """Run it over Kafka until a signal ends it, or with `once` until it has caught up.

        `settings` are sections of the pipeline file that say where and how, such as
        `{"run": {"shards": 2}}`.  It goes on where the checkpoint left off.  `spark` is a
        session to run on; without one Spark is started, and ended behind the run.  Workers
        import the functions: a program runs its pipeline below `if __name__ == "__main__":`.

        Raises:
            ConfigError: plan or settings cannot be; every problem at once.
            IkebanaError: what ended the run.
        """
        from ikebana.processor.running.foreground import run_in_foreground

        plan, found = self._ready(bootstrap_servers, checkpoint, settings)
        return run_in_foreground(plan, found, once=once, spark=spark)

    def start(
        self,
        bootstrap_servers: str | None = None,
        *,
        checkpoint: str | None = None,
        once: bool = False,
        settings: Mapping[str, Any] | None = None,
        spark: Any = None,
    ) -> "PipelineRun":
        """Run it in the background, as `run` does, and return at once.

        Raises:
            ConfigError: plan or settings cannot be; every problem at once.
        """
        from ikebana.processor.running.handle import PipelineRun

        plan, found = self._ready(bootstrap_servers, checkpoint, settings)
        return PipelineRun(plan, found, once=once, spark=spark)

    def _ready(
        self,
        bootstrap_servers: str | None,
        checkpoint: str | None,
        settings: Mapping[str, Any] | None,
    ) -> "tuple[Plan, Settings]":
        from ikebana.processor.configuring.given_settings import given_settings

        plan = self.plan()
        look_beside_program()
        try:
            # Before Spark starts: a function that no worker finds.
            plan.portable()
        except PlanError as error:
            raise placed(error, self.name, self._parts.places) from None
        found = given_settings(
            settings or {}, plan, bootstrap_servers=bootstrap_servers, checkpoint=checkpoint
        )
        return plan, found


def event_time(
    of: str | None = None,
    *,
    clock: Clock | None = None,
    lateness: timedelta = timedelta(0),
    idle: timedelta | None = timedelta(minutes=1),
    ahead: timedelta | None = timedelta(days=1),
    transactions: str | None = None,
) -> EventTime:
    """Times that records have by themselves, for `Pipeline.topic(event_time=...)`.

    `of` is SQL over the row; without it a `clock` tells.  A partition that has been silent
    for `idle` does not hold the frontier back, None: it always does; see `EventTime`.
    """
    idle_ms, ahead_ms = (None if each is None else _ms(each) for each in (idle, ahead))
    return EventTime(of, clock, _ms(lateness), idle_ms, ahead_ms, transactions)


def _ms(length: timedelta) -> int:
    return round(length.total_seconds() * 1000)
