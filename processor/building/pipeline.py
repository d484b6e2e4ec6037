"""A pipeline written in Python, and those that a YAML file or a Python module has."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, overload

from ikebana.arrangements.update import Update
from ikebana.codecs.change import Column
from ikebana.codecs.formats import Format, KeyFormat
from ikebana.codecs.sql_type import parsed
from ikebana.errors import ConfigError, PlanError
from ikebana.processor.base.texts import suggestion
from ikebana.processor.building.collection import Collection, Topic, add_join, concat
from ikebana.processor.building.parts import Parts, calling_place, with_places
from ikebana.processor.building.rows import columns_of
from ikebana.processor.linear import sql_functions
from ikebana.processor.linear.functions import (
    ModuleError,
    look_beside_program,
    look_in,
    module_named,
    name_of,
    why_not_portable,
)
from ikebana.processor.linear.json_text import quoted
from ikebana.processor.linear.settled import TextOrTexts, keys, pairs, texts
from ikebana.processor.linear.sql_functions import SqlFunction
from ikebana.processor.planning import starts
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.joins.query import DeltaJoin, JoinInput, Strategy
from ikebana.processor.planning.plan import (
    EventTime,
    History,
    Input,
    Metadata,
    OnError,
    Plan,
    TimeDomain,
)

if TYPE_CHECKING:
    from ikebana.codecs.avro_schema import Schemas
    from ikebana.processor.authoring.settings import Settings
    from ikebana.processor.building.handle import PipelineRun
    from ikebana.processor.engine.evaluate import LiteralRecord


class Explained:
    """The explanation of a plan: its inputs, state, outputs and costs."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __str__(self) -> str:
        from ikebana.processor.explain.explanation import explained
        from ikebana.processor.explain.text import text

        return text(explained(self._plan))

    __repr__ = __str__

    def _repr_svg_(self) -> str:
        from ikebana.processor.explain.explanation import explained
        from ikebana.processor.explain.pictures import svg

        return svg(explained(self._plan))


Row = TypeVar("Row")


class TopicOptions(TypedDict, total=False):
    """The optional arguments of `Pipeline.topic`; see `Input`."""

    name: str
    format: Format
    key_format: KeyFormat
    key: TextOrTexts
    columns: Iterable[Column]
    start: str | datetime | Mapping[int, int]
    tables: str
    drift: bool
    schema: str
    options: Mapping[str, str]
    event_time: EventTime
    unique: TextOrTexts | Sequence[TextOrTexts]
    size: int
    metadata: Mapping[str, Metadata]
    history: History


class Pipeline:
    """A pipeline under construction: its inputs, operators and outputs.

    `topic` begins a collection, the collection's methods derive others, and `to` writes one.
    `plan` returns all of it as an immutable value, which `evaluate`, `run` and `start` use.
    `time`, `on_error`, `error_topic` and `pushdown` are the settings `time`, `errors.policy`,
    `errors.topic` and `pushdown` of a pipeline file.

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
        self._sinks: dict[str, Mapping[str, Any]] = {}
        self._file: Path | None = None

    @classmethod
    def of(cls, plan: Plan, *, file: Path | None = None) -> "Pipeline":
        """Make a pipeline of a plan; `run` and `start` take the settings of `file`."""
        pipeline = cls(
            plan.name,
            time=plan.time,
            on_error=plan.on_error,
            error_topic=plan.error_topic,
            pushdown=plan.pushdown,
        )
        for source in plan.inputs:
            pipeline._parts.read(source)
        for operator in plan.operators:
            pipeline._parts.add(operator)
        for output in plan.outputs:
            pipeline._parts.publish(output)
        pipeline._file = file
        return pipeline

    @overload
    def topic(
        self, *topics: str, row: type[Row], **options: Unpack[TopicOptions]
    ) -> Topic[Row]: ...
    @overload
    def topic(self, *topics: str, **options: Unpack[TopicOptions]) -> Topic[Any]: ...
    def topic(
        self, *topics: str, row: type | None = None, **options: Unpack[TopicOptions]
    ) -> Topic[Any]:
        """Read Kafka topics; several topics are read as one input.

        Declare the columns by `row`, a TypedDict, or by `columns`.  The input is called
        `name`, by default as the first topic.  All other options are those of `Input`.

        >>> shop = Pipeline("shop")
        >>> changes = shop.topic("shop.public.orders", format="debezium-json", name="orders")
        >>> changes.input.name, changes.input.value_format
        ('orders', 'debezium-json')

        Raises:
            ConfigError: no topic is given, an option is none of `Input`, or a field of `row` has
                no SQL type.
        """
        if not topics:
            raise ConfigError(
                f'cannot read an input of pipeline "{self.name}": no topic is given',
                hint='Name at least one: topic("orders").',
            )
        for option in options:
            if option not in (names := TopicOptions.__annotations__):
                raise ConfigError(
                    f'cannot read an input of pipeline "{self.name}": topic() takes no '
                    f'"{option}"{suggestion(option, names)}'
                )
        source = _input_of(topics, row, options)
        self._parts.places.setdefault(f"inputs.{source.name}", calling_place())
        return Topic(self._parts, source)

    def join(
        self,
        inputs: Mapping[str, Collection[Any, Any]],
        *,
        where: TextOrTexts = (),
        select: Mapping[str, str],
        left: Mapping[str, TextOrTexts] | None = None,
        full: Mapping[str, TextOrTexts] | None = None,
        key: str | None = None,
        orders: Mapping[str, TextOrTexts] | None = None,
        cartesian: bool = False,
        strategy: Strategy = "auto",
        name: str | None = None,
    ) -> Collection[Any, dict[str, Any]]:
        """Join any number of collections, and keep the result current (a delta join).

        `inputs` are collections by alias; `where` are SQL conditions, and `select` the fields
        of the result, over columns with an alias in front.  `key` is the SQL of the result's
        key, by default the key of the first input.  `left` and `full` have the conditions of
        inputs that may be without a match, by alias: outer joins behind the others.  `orders`,
        `cartesian` and `strategy` lay the join out; see `DeltaJoin` and docs/joins.md.  The
        keywords are the keys of a `delta_join` in a pipeline file.

        >>> import ikebana as ik
        >>> shop = ik.Pipeline("shop")
        >>> orders = shop.topic("orders", columns=[ik.Column("customer", "JSON")]).upsert()
        >>> customers = shop.topic("customers", columns=[ik.Column("name", "VARCHAR")]).upsert()
        >>> joined = shop.join(
        ...     {"o": orders, "c": customers},
        ...     where="o.customer = c.key",
        ...     select={"name": "c.name"},
        ... )
        >>> _ = joined.to("named")
        >>> shop.evaluate(
        ...     orders=[(1, {"customer": "c1"}, 0)], customers=[("c1", {"name": "Ann"}, 5)]
        ... )["named"]
        [Update(data=(1, {'name': 'Ann'}), time=5, diff=1)]

        Raises:
            ConfigError: a collection belongs to another pipeline.
        """
        aliases = tuple(
            JoinInput(alias, each.built_in(self._parts)) for alias, each in inputs.items()
        )
        paths = tuple((alias, texts(path, "orders")) for alias, path in (orders or {}).items())
        operator = name or "_".join(each.relation for each in aliases)
        columns = pairs(select, "select")
        join = DeltaJoin(
            operator, aliases, texts(where, "where"), columns, key, paths, cartesian, strategy
        )
        return add_join(self._parts, join, left or {}, full or {})

    def sql(self, query: str, *, name: str, key: str | None = None) -> Collection[Any, Any]:
        """Make a view of a SQL query, and keep its result current.

        The names in FROM are those of inputs, operators and views of this pipeline; names of
        collections are given by `name` and `named`.  `key` is SQL over the columns of the result:
        its key.  What is supported: docs/sql.md.

        >>> import ikebana as ik
        >>> shop = ik.Pipeline("shop")
        >>> columns = [ik.Column("product", "VARCHAR"), ik.Column("quantity", "BIGINT")]
        >>> _ = shop.topic("orders", columns=columns).upsert()
        >>> sold = shop.sql(
        ...     "SELECT product, sum(quantity) AS sold FROM orders GROUP BY product", name="sold"
        ... )
        >>> _ = sold.to("sold")
        >>> shop.evaluate(orders=[(1, {"product": "tea", "quantity": 2}, 0)])["sold"]
        [Update(data=('tea', {'product': 'tea', 'sold': 2}), time=0, diff=1)]

        Raises:
            ConfigError: the query is refused, with its place and what to write instead.
        """
        return Collection(self._parts, self._parts.derive("from_sql", name, query, key))

    def iterate(
        self, name: str, query: str, *, columns: Mapping[str, str], rounds: int = 0
    ) -> Collection[Any, Any]:
        """A query that reads itself by its `name`, in columns of these types.

        It begins empty and is computed again from what it was, until nothing changes; after so
        many `rounds`, by default 1,000, the run ends with an error.  See docs/relations.md.

        >>> import ikebana as ik
        >>> roads = ik.Pipeline("roads")
        >>> ends = [ik.Column("a", "BIGINT"), ik.Column("b", "BIGINT")]
        >>> _ = roads.topic("edges", columns=ends).upsert()
        >>> reach = roads.iterate(
        ...     "reach",
        ...     "SELECT a, b FROM edges "
        ...     "UNION SELECT r.a, e.b FROM reach r JOIN edges e ON r.b = e.a",
        ...     columns={"a": "BIGINT", "b": "BIGINT"},
        ... )

        Raises:
            ConfigError: the query is refused.
        """
        section = "iterated", name, query, pairs(columns, "columns"), rounds
        return Collection(self._parts, self._parts.derive(*section))

    def function(
        self,
        name: str,
        function: Callable[..., Any] | str,
        *,
        parameters: Mapping[str, str],
        returns: str,
        on_null: Literal["null", "call"] = "null",
    ) -> str:
        """Declare a Python function that SQL expressions of this pipeline may call.

        `parameters` are the SQL types of its parameters by name, and `returns` that of its
        result.  Where an argument is null, the result is null, unless `on_null` is "call".
        Returns the name that stands for it in all expressions; in those that are written after
        this, `name` does too.  See docs/linear.md.

        >>> import math
        >>> import ikebana as ik
        >>> shop = ik.Pipeline("shop")
        >>> _ = shop.function("area", math.dist, parameters={"a": "BIGINT[]", "b": "BIGINT[]"},
        ...     returns="DOUBLE")
        >>> shapes = shop.topic("shapes", columns=[ik.Column("corner", "BIGINT[]")]).upsert()
        >>> _ = shapes.select(away="area(corner, [0, 0])").to("away")
        >>> shop.evaluate(shapes=[(1, {"corner": [3, 4]}, 0)])["away"]
        [Update(data=(1, {'away': 5}), time=0, diff=1)]

        Raises:
            ConfigError: the name or a type is none, or another process could not import the
                function.
        """
        return declared(self._parts, name, function, parameters, returns, on_null)

    def aggregate(
        self,
        name: str,
        aggregate: type | str,
        *,
        parameters: Mapping[str, str],
        returns: str,
    ) -> str:
        """Declare a class of Python that reductions and views of this pipeline may call.

        An instance takes rows by `accumulate`, gives them back by `retract`, and has the value of
        a group as its `result`.  Returns the name that stands for it, as `function` does.  See
        docs/linear.md.

        >>> import ikebana as ik
        >>> class Spread:
        ...     def __init__(self): self.least = self.most = None
        ...     def accumulate(self, x):
        ...         self.least = x if self.least is None else min(self.least, x)
        ...         self.most = x if self.most is None else max(self.most, x)
        ...     def result(self): return self.most - self.least

        Raises:
            ConfigError: the name or a type is none, or the class is no aggregate, or another
                process could not import it.
        """
        return add_aggregate(self._parts, name, aggregate, parameters, returns)

    def concat(
        self, *collections: Collection[Any, Any], name: str | None = None
    ) -> Collection[Any, Any]:
        """Add collections: the count of each pair is the sum of its counts."""
        return concat(self._parts, collections, name)

    def deliver(
        self, name: str, tables: Mapping[str, Mapping[str, Any]], **target: Mapping[str, Any]
    ) -> None:
        """Keep tables equal to outputs; the sink `name` runs in a process beside each run.

        `tables` and `target` are those of `deliver.<name>` in a pipeline file: each table says
        `from` which output it is, and the target is one of `postgres`, `iceberg`, `delta` and
        `parquet` with its settings.  Mistakes are told by `run` and `start`.  See docs/deliver.md.

        >>> shop = Pipeline("shop")
        >>> _ = shop.topic("orders", columns=[Column("n", "BIGINT")]).upsert().to("whole")
        >>> shop.deliver("lake", {"orders": {"from": "whole"}}, delta={"folder": "/data/lake"})

        Raises:
            ConfigError: another sink has this name.
        """
        if name in self._sinks:
            raise ConfigError(
                f'pipeline "{self.name}" has the sink "{name}" twice',
                hint="One sink may have several tables: give it all of them.",
            )
        self._sinks[name] = {"tables": tables, **target}

    def sections(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Sections of settings with the sinks of the pipeline; sinks in `settings` win."""
        return {**settings, "deliver": {**self._sinks, **(settings.get("deliver") or {})}}

    def plan(self) -> Plan:
        """Return the immutable plan; a pipeline file with the same parts gives an equal one.

        Raises:
            PlanError: parts do not fit; it lists every problem with the line of your code.
        """
        try:
            plan = Plan(
                self.name,
                tuple(self._parts.inputs.values()),
                tuple(self._parts.operators.values()),
                tuple(self._parts.outputs.values()),
                self._error_topic,
                self._time,
                self._on_error,
                self._pushdown,
            )
            return checked(plan)
        except PlanError as error:
            raise with_places(error, self.name, self._parts.places) from None

    def evaluate(
        self,
        records: "Mapping[str, Iterable[LiteralRecord]] | None" = None,
        upper: int | None = None,
        *,
        shards: int = 1,
        schemas: "Schemas | Mapping[int, Any] | None" = None,
        **named: "Iterable[LiteralRecord]",
    ) -> dict[str, list[Update[Any]]]:
        """Run in this process on literal records, without Kafka and Spark.

        `records`, or keyword arguments, are iterables of `(key, value, time)` by the name of
        the input.  Returns the consolidated updates `((key, value), time, diff)` of each
        output by its name, and error records under `errors`.  See `ikebana.evaluate`.

        Raises:
            ConfigError: an input does not exist, or a record has the wrong form.
            PlanError: parts do not fit.
        """
        from ikebana.processor.engine.evaluate import evaluate

        all_records = {**(records or {}), **named}
        return evaluate(self.plan(), all_records, upper, shards=shards, schemas=schemas)

    def explain(self) -> Explained:
        """Explain the plan: what it reads, keeps and writes, and what that costs.

        The result prints as text, and a notebook shows it as a picture.

        Raises:
            PlanError: parts do not fit; it lists every problem.
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
        wait: bool | None = None,
    ) -> "PipelineRun":
        """Run over Kafka until a signal ends the run, or with `once` until it has caught up.

        The run continues from its checkpoint.  `settings` are the sections of a pipeline file
        that configure a run, such as `{"run": {"shards": 2}}`.  `spark` is a session to use;
        without one Spark is started for the run, and stopped after it.  Workers import your
        functions by name, so call this below `if __name__ == "__main__":`.

        Input topics that are not there yet are waited for, unless `wait` is False, or `once` is
        True and `wait` is not; then they are an error.

        Raises:
            ConfigError: the plan or a setting is refused; it lists every problem.
            IkebanaError: the run has failed; the message says why and what to do.
        """
        from ikebana.processor.building.handle import run_in_foreground

        plan, run_settings = self._ready(bootstrap_servers, checkpoint, settings)
        return run_in_foreground(plan, run_settings, once=once, spark=spark, wait=wait)

    def start(
        self,
        bootstrap_servers: str | None = None,
        *,
        checkpoint: str | None = None,
        once: bool = False,
        settings: Mapping[str, Any] | None = None,
        spark: Any = None,
        wait: bool | None = None,
    ) -> "PipelineRun":
        """Start a run in the background, and return its handle at once; see `run`.

        Raises:
            ConfigError: the plan or a setting is refused; it lists every problem.
        """
        from ikebana.processor.building.handle import PipelineRun

        plan, run_settings = self._ready(bootstrap_servers, checkpoint, settings)
        return PipelineRun(plan, run_settings, once=once, spark=spark, wait=wait)

    def _ready(
        self,
        bootstrap_servers: str | None,
        checkpoint: str | None,
        settings: Mapping[str, Any] | None,
    ) -> "tuple[Plan, Settings]":
        from ikebana.processor.authoring.pipeline import read, settings_for

        plan = self.plan()
        look_beside_program()
        try:
            # A function that workers cannot import is refused before Spark starts.
            plan.portable()
        except PlanError as error:
            raise with_places(error, self.name, self._parts.places) from None
        if self._file is not None:
            if settings or self._sinks:
                raise ConfigError(
                    f'pipeline "{self.name}" has the settings of {self._file}',
                    hint="Change them there, or in the file that IKEBANA_SETTINGS names.",
                )
            of_file = read(
                self._file,
                bootstrap_servers=bootstrap_servers,
                checkpoint=checkpoint,
                environ=os.environ,
            )
            return plan, of_file.settings
        run_settings = settings_for(
            self.sections(settings or {}),
            plan,
            bootstrap_servers=bootstrap_servers,
            checkpoint=checkpoint,
        )
        return plan, run_settings


def _input_of(topics: tuple[str, ...], row: type | None, options: TopicOptions) -> Input:
    """Return the input that the arguments of `Pipeline.topic` describe."""
    columns: Any = options.get("columns", ())
    # A text stays one, so that `Input` refuses it as such, and not each of its letters.
    columns = columns if isinstance(columns, str) else tuple(columns)
    if row is not None:
        columns = (*columns_of(row), *columns)
    name = options.get("name", topics[0])
    try:
        start = starts.text_of(options.get("start", starts.EARLIEST))
    except ValueError:
        raise ConfigError(
            f'input "{name}" starts at {options["start"]!r}; set it to {starts.FORMS}'
        ) from None
    return Input(
        name,
        topics,
        options.get("format", "json"),
        options.get("key_format", "json"),
        starts.text_of(start),
        columns=columns,
        key=texts(options.get("key", ()), "key"),
        tables=options.get("tables"),
        drift=options.get("drift", True),
        schema=options.get("schema"),
        options=tuple(options.get("options", {}).items()),
        event_time=options.get("event_time"),
        unique=keys(options.get("unique", ()), "unique"),
        size=options.get("size"),
        metadata=tuple(options.get("metadata", {}).items()),
        history=options.get("history"),
    )


def declared(
    parts: Parts,
    name: str,
    function: Any,
    parameters: Mapping[str, str],
    returns: str,
    on_null: Literal["null", "call"],
) -> str:
    """Add a function; return its name in SQL.  Raises: ConfigError."""
    kinds = (*parameters.values(), returns)
    problems = [sql_functions.problem_of_name(name)]
    problems += map(sql_functions.problem_of_type, kinds)
    problems.append(
        sql_functions.problem_of_function(function)
        if isinstance(function, str)
        else why_not_portable(function) or ""
    )
    for problem in filter(None, problems):
        raise ConfigError(f'cannot declare the function "{name}": {problem}')
    *of, result = (str(parsed(kind)) for kind in kinds)
    sql_function = SqlFunction(name, name_of(function), tuple(of), result, on_null == "call")
    return _added(parts, sql_function)


def add_aggregate(
    parts: Parts, name: str, class_: type | str, parameters: Mapping[str, str], returns: str
) -> str:
    """Add a user-defined aggregate; return its name in SQL.  Raises: ConfigError."""
    kinds = (*parameters.values(), returns)
    problems = [sql_functions.problem_of_name(name)]
    problems += map(sql_functions.problem_of_type, kinds)
    problems.append("" if isinstance(class_, str) else why_not_portable(class_) or "")
    for problem in filter(None, problems):
        raise ConfigError(f'cannot declare the aggregate "{name}": {problem}')
    *of, result = (str(parsed(kind)) for kind in kinds)
    function = SqlFunction(name, name_of(class_), tuple(of), result, is_aggregate=True)
    if problem := sql_functions.problem_of_aggregate(function):
        raise ConfigError(f'cannot declare the aggregate "{name}": {problem}')
    return _added(parts, function)


def _added(parts: Parts, function: SqlFunction) -> str:
    """Add a function to those of the pipeline; return its long name, quoted."""
    name = function.name
    if parts.functions.setdefault(name.lower(), function) != function:
        raise ConfigError(f'pipeline "{parts.pipeline}" declares "{name}" twice, and they differ')
    return quoted(function.long_name)


def load(source: Path | str, *, environ: Mapping[str, str] | None = None) -> Pipeline:
    """Load the pipeline of a YAML file, or of a Python module as `module:name`.

    `load("orders.yaml").evaluate(...)` tests a file in milliseconds, and `ikebana.testing.Run`
    takes it too.  `run` and `start` use the settings of the file; a file that is only tested need
    not name brokers or a checkpoint.  Its variables are read from `environ`, by default the
    environment of the process.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import ikebana as ik
    >>> text = '''
    ... pipeline: shop
    ... inputs: {stock: {topic: stock}}
    ... operators: {current: {upsert: stock}}
    ... outputs: {changes: {from: current, topic: stock.changes}}
    ... '''
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "shop.yaml").write_text(text)
    ...     shop = ik.load(Path(folder, "shop.yaml"))
    >>> for update in shop.evaluate(stock=[("tea", 5, 0), ("tea", 4, 1)])["changes"]:
    ...     print(*update)
    ('tea', 5) 0 1
    ('tea', 5) 1 -1
    ('tea', 4) 1 1

    Raises:
        ConfigError: the file or module cannot be used; it lists every problem.
    """
    if not Path(source).exists() and is_reference(str(source)):
        return pipeline_named(str(source))
    from ikebana.processor.authoring.pipeline import read

    path = Path(source)
    plan, _ = read(
        path,
        bootstrap_servers="localhost:9092",
        checkpoint="./checkpoint",
        environ=os.environ if environ is None else environ,
    )
    return Pipeline.of(plan, file=path)


def is_reference(text: str) -> bool:
    """Return whether a text has the form `module:name`."""
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), name))


def pipeline_named(reference: str) -> Pipeline:
    """Import the pipeline that a module has under a name, given as `module:name`.

    The module may be in the current directory.

    Raises:
        ConfigError: the module cannot be imported, or has no such pipeline.
    """
    module, _, name = reference.partition(":")
    look_in(os.getcwd())
    try:
        there = module_named(module)
    except ModuleError as error:
        raise ConfigError(f'module "{module}" cannot be imported: {error}') from None
    pipeline = getattr(there, name, None)
    if isinstance(pipeline, Pipeline):
        return pipeline
    if isinstance(pipeline, Plan):
        return Pipeline.of(pipeline)
    there_are = [n for n, each in vars(there).items() if isinstance(each, Pipeline | Plan)]
    problem = (
        f'module "{module}" has no "{name}"'
        if pipeline is None
        else f'"{name}" of module "{module}" is of type {type(pipeline).__name__}'
    )
    raise ConfigError(
        f'cannot read pipeline "{reference}": {problem}',
        hint=f"Its pipelines are {', '.join(there_are)}."
        if there_are
        else "Make a pipeline in it: shop = ikebana.Pipeline(...).",
    )
