"""The kinds of operators: one class for each type of a plan's operators, and their table."""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ikebana.codecs.formats import FORMATS
from ikebana.processor.base.rows import Truncate, Upserts, times_of
from ikebana.processor.kernels import (
    arrange,
    locked,
    loop,
    reduce,
    reduce_rows,
    state_machine,
    upsert,
    window_functions,
)
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.kernels.state_machine import Event, Machine
from ikebana.processor.kernels.window_functions import (
    ARGUMENT,
    ORDER,
    SHOWN,
    Window,
    argument_numbers,
)
from ikebana.processor.kernels.window_values import (
    End,
    FrameAggregate,
    InOwnOrder,
    Offset,
    Ranking,
    RowPattern,
    WindowFunction,
)
from ikebana.processor.linear.chain import Named, StepProblem, StepsResult, consolidated, result_of
from ikebana.processor.linear.functions import function_named
from ikebana.processor.linear.json_text import BLOB, JSON, quoted
from ikebana.processor.linear.scope import KEY, UNKNOWN, VALUE, ExpressionError, Scope
from ikebana.processor.linear.steps import AnyStep, Arrange, Call, Negate, Sql
from ikebana.processor.linear.syntax import conjuncts, tree
from ikebana.processor.planning.aggregates import (
    AggregateError,
    in_order_of_types,
    split_reduction,
)
from ikebana.processor.planning.joins.query import AsOfJoin, DeltaJoin, Join, section_of
from ikebana.processor.planning.kind import (
    Around,
    OperatorBatch,
    OperatorCatalog,
    OperatorKind,
)
from ikebana.processor.planning.loops import OF, ROW, loop_problems
from ikebana.processor.planning.plan import (
    TOTAL_KEY,
    Concat,
    Linear,
    Loop,
    Operator,
    PlanProblem,
    Reduce,
    ReduceRows,
    StateMachine,
    Upsert,
    WindowFunctions,
)
from ikebana.processor.planning.relations import (
    NOTHING,
    Keyed,
    Keys,
    Relation,
    derivation_of,
    equalities,
    joined,
    keys_after,
    of_scopes,
    unchanged,
)


class UpsertKind(OperatorKind[Upsert]):
    """A root by the key of an input."""

    label = "upsert"
    reads_rows = True
    parts = (upsert.PART,)

    def single_valued(self, operator: Upsert) -> bool:
        return True

    def problems(self, operator: Upsert, around: Around) -> Iterator[PlanProblem]:
        path, name = f"operators.{operator.name}.upsert", operator.input
        if name not in around.inputs:
            yield from around.missing_input(path, name)
        elif around.unread.hides_rows(name):
            pass
        elif around.inputs[name].is_collection:
            yield path, f"input {name!r} gives updates by itself"

    def relation(self, operator: Upsert, catalog: OperatorCatalog) -> Relation:
        rows, source = catalog.rows(operator.input), catalog.inputs.get(operator.input)
        if source is None:
            return Relation(rows)
        return Relation(rows, ((KEY,), *source.unique), source.size, keeps_state=True)

    def step(self, operator: Upsert, batch: OperatorBatch, catalog: OperatorCatalog) -> None:
        changes = upsert.step(batch.part(upsert.PART), batch.rows(), batch.interval)
        batch.count("drift", changes.drift, changes.drifted)
        batch.count("outdated", changes.outdated, changes.outdated_at)
        batch.emit(changes.updates, changes.errors)


class StateMachineKind(OperatorKind[StateMachine]):
    """A root by the key of an input; its results have no declared types."""

    label = "state machine"
    reads_rows = True
    parts = (state_machine.PART,)

    def problems(self, operator: StateMachine, around: Around) -> Iterator[PlanProblem]:
        path, name = f"operators.{operator.name}", operator.input
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
        if operator.version < 1:
            yield f"{path}.version", "must be at least 1"

    def relation(self, operator: StateMachine, catalog: OperatorCatalog) -> Relation:
        rows = catalog.rows(operator.input)
        return Relation(Scope({KEY: rows.types[KEY], VALUE: JSON}, open=True))

    def step(self, operator: StateMachine, batch: OperatorBatch, catalog: OperatorCatalog) -> None:
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


class LinearKind(OperatorKind[Linear]):
    """Steps, which run in the same pass as their source."""

    label = "linear"
    is_linear = True

    def steps(self, operator: Linear) -> tuple[Named, ...]:
        return tuple((operator.name, step) for step in operator.steps)

    def relation(self, operator: Linear, catalog: OperatorCatalog) -> Relation:
        path = f"operators.{operator.name}"

        def place(at: StepProblem) -> str:
            within = "" if len(operator.steps) == 1 else f".steps.{at.step}"
            return f"{path}{within}.{at.part}"

        source, steps = catalog.relation(operator.source), self.steps(operator)
        result = of_scopes(
            catalog.taking(result_of(operator.steps, scope), place) for scope in source.scopes
        )
        unique = source.unique
        if not all(_only_chooses(step) for step in operator.steps):
            unique = tuple(key for key in unique if key == (KEY,) and keeps_key(steps))
        return replace(result, unique=unique, size=source.size)

    def keys(
        self, operator: Linear, keyed: Callable[[str], Keyed], types: Mapping[str, str]
    ) -> Keys:
        return _vouched(keys_after(keyed(operator.source), operator.steps), operator, types)


class ConcatKind(OperatorKind[Concat]):
    """The sum of collections: it only unites their ways."""

    label = "concat"
    is_linear = True

    def sources(self, operator: Concat) -> tuple[str, ...]:
        return operator.sources

    def with_sources(self, operator: Concat, named: Callable[[str], str]) -> Concat:
        return msgspec.structs.replace(operator, sources=tuple(map(named, operator.sources)))

    def problems(self, operator: Concat, around: Around) -> Iterator[PlanProblem]:
        if not operator.sources:
            yield f"operators.{operator.name}.concat", "at least one operator is needed"
        yield from super().problems(operator, around)

    def relation(self, operator: Concat, catalog: OperatorCatalog) -> Relation:
        sources = [catalog.relation(name) for name in operator.sources]
        result = of_scopes(scope for source in sources for scope in source.scopes)
        if len(sources) != 1:
            return result
        return replace(result, unique=sources[0].unique, size=sources[0].size)

    def keys(
        self, operator: Concat, keyed: Callable[[str], Keyed], types: Mapping[str, str]
    ) -> Keys:
        if len(operator.sources) == 1:
            return keyed(operator.sources[0]).keys
        return _vouched(NOTHING, operator, types)


def _vouched(keys: Keys, operator: Linear | Concat, types: Mapping[str, str]) -> Keys:
    """The derived keys, and those that the operator claims in addition."""
    for key in operator.unique:
        keys = keys.with_unique(key, [KEY, VALUE, *types])
    return keys


def keeps_key(steps: Sequence[Named]) -> bool:
    """Whether steps make at most one pair from each pair, with the same key."""
    return all(
        isinstance(step, Negate)
        or (isinstance(step, Arrange) and step.keys in ((KEY,), (quoted(KEY),)))
        or (isinstance(step, Call) and step.kind == "filter")
        or (isinstance(step, Sql) and step.key is None and step.flat_map is None)
        for _, step in steps
    )


def _only_chooses(step: AnyStep) -> bool:
    if isinstance(step, Sql):
        return Sql(where=step.where) == step
    return isinstance(step, Call) and step.kind == "filter"


class ReduceKind(OperatorKind[Reduce]):
    """A root by a key that a step before it makes, with the arguments of its aggregates."""

    label = "reduce"
    parts = (reduce.PART,)
    sql = ("aggregates", "by")

    def before(self, operator: Reduce) -> Sql:
        return split_reduction(operator).step

    def single_valued(self, operator: Reduce) -> bool:
        return True

    def problems(self, operator: Reduce, around: Around) -> Iterator[PlanProblem]:
        yield from super().problems(operator, around)
        path = f"operators.{operator.name}"
        of_aggregates = f"{path}.aggregates"
        if operator.total and operator.by is not None:
            yield f"{path}.by", "a total is of all rows, and has no other key"
        if not operator.aggregates:
            yield of_aggregates, "at least one is needed, or a function"
        for name, count in Counter(name for name, _ in operator.aggregates).items():
            if count > 1:
                yield f"{of_aggregates}.{name}", f"the name is used {count} times"
        for name, problem in split_reduction(operator).problems:
            yield f"{of_aggregates}.{name}", problem

    def relation(self, operator: Reduce, catalog: OperatorCatalog) -> Relation:
        path = f"operators.{operator.name}"
        _, aggregates, problems = split_reduction(operator)

        def place(at: StepProblem) -> str:
            if not at.part.startswith("select."):
                return f"{path}.by"
            field = at.part.removeprefix("select.")
            name = next(each.name for each in aggregates if each.field == field)
            return f"{path}.aggregates.{name}"

        befores = [catalog.taking(each, place) for each in _rows_read(operator, catalog)]
        unknown_of = {
            name for before in befores for name in before.types if before.types[name] == UNKNOWN
        }
        typed = [each for each in aggregates if each.field not in unknown_of]
        try:
            in_order_of_types(typed, befores)
        except AggregateError as error:
            for name, problem in error.problems:
                catalog.tell(f"{path}.aggregates.{name}", problem)
        read = befores[0].types
        types = {each.name: each.traits.type or read.get(each.field, JSON) for each in aggregates}
        types |= {name: UNKNOWN for name, _ in problems}
        return Relation(Scope({**types, KEY: read[KEY], VALUE: JSON}), ((KEY,),))

    def step(self, operator: Reduce, batch: OperatorBatch, catalog: OperatorCatalog) -> None:
        part, aggregates = batch.part(reduce.PART), catalog.aggregates(operator)
        total = TOTAL_KEY.encode() if operator.total else None
        always = total if total is not None and batch.owns(total) else None
        interval, arrived = batch.interval, batch.arrived()
        batch.emit(*reduce.step(part, arrived, interval, aggregates, operator.name, always))


def _rows_read(
    operator: Reduce | ReduceRows | Loop | WindowFunctions, catalog: OperatorCatalog
) -> list[StepsResult]:
    """The scopes of the rows that an operator reads, after the step before it."""
    step = kind_of(operator).before(operator)
    return [result_of((step,), scope) for scope in catalog.relation(operator.source).scopes]


class ReduceRowsKind(OperatorKind[ReduceRows]):
    """A root by a key; its results have no declared types, and a key may have several."""

    label = "reduce"
    parts = (reduce_rows.PART,)
    sql = ("by",)

    def before(self, operator: ReduceRows) -> Sql:
        return Sql(key=operator.by)

    def relation(self, operator: ReduceRows, catalog: OperatorCatalog) -> Relation:
        path = f"operators.{operator.name}"
        rows = _rows_read(operator, catalog)
        befores = [catalog.taking(each, lambda _: f"{path}.by") for each in rows]
        for part, word, setting, remedy in (
            (KEY, "key", "by", "make a key in JSON of it here"),
            (VALUE, "value", "reduce", "make values in JSON of them by a select before"),
        ):
            if any(before.types[part] == BLOB for before in befores):
                problem = f"a function is not given a {word} in bytes; {remedy}"
                catalog.tell(f"{path}.{setting}", problem)
        return Relation(Scope({KEY: befores[0].types[KEY], VALUE: JSON}, open=True))

    def step(self, operator: ReduceRows, batch: OperatorBatch, catalog: OperatorCatalog) -> None:
        part, function = batch.part(reduce_rows.PART), function_named(operator.function)
        arrived = batch.arrived()
        batch.emit(*reduce_rows.step(part, arrived, batch.interval, function, operator.name))


class LoopKind(OperatorKind[Loop]):
    """A root by a key; its results are rows of variables."""

    label = "loop"
    parts = (loop.PART,)

    def before(self, operator: Loop) -> Sql:
        return Sql(key=operator.by)

    def relation(self, operator: Loop, catalog: OperatorCatalog) -> Relation:
        for problem in loop_problems(operator, catalog):
            catalog.tell(f"operators.{operator.name}.loop", problem)
        key = _rows_read(operator, catalog)[0].scope.types[KEY]
        return Relation(Scope({OF: "INTEGER", ROW: JSON, KEY: key, VALUE: JSON}))

    def step(self, operator: Loop, batch: OperatorBatch, catalog: OperatorCatalog) -> None:
        part, program = batch.part(loop.PART), catalog.program(operator)
        batch.emit(*loop.step(part, batch.arrived(), batch.interval, program, operator.name))


def aggregates_of(operator: Reduce, catalog: OperatorCatalog) -> tuple[Aggregate, ...]:
    """The aggregates of a reduction, with the orders of their arguments' types.

    Raises: AggregateError, if one has a problem.
    """
    _, aggregates, problems = split_reduction(operator)
    if problems:
        raise AggregateError(*problems)
    return in_order_of_types(aggregates, [each.scope for each in _rows_read(operator, catalog)])


class WindowFunctionsKind(OperatorKind[WindowFunctions]):
    """A root by the key of its partitions."""

    label = "window functions"
    parts = (window_functions.PART,)

    def before(self, operator: WindowFunctions) -> Sql:
        order = () if operator.order is None else ((ORDER, operator.order),)
        numbers = argument_numbers(operator.functions)
        arguments = ((f"{ARGUMENT}{at}", sql) for sql, at in numbers.items())
        return Sql(select=(*order, (SHOWN, operator.row), *arguments), key=operator.by)

    def relation(self, operator: WindowFunctions, catalog: OperatorCatalog) -> Relation:
        path = f"operators.{operator.name}"
        rows = _rows_read(operator, catalog)
        befores = [catalog.taking(each, lambda at: f"{path}.{at.part}") for each in rows]
        types = befores[0].types
        if UNKNOWN not in types.values():
            try:
                _window(operator, befores)
            except AggregateError as error:
                for name, problem in error.problems:
                    catalog.tell(f"{path}.{name}", problem)
        columns = {"row": types.get(SHOWN, JSON)}
        of_arguments = _argument_types(operator, befores[0])
        columns |= {
            f"w{at}": _type(each, of_arguments) for at, each in enumerate(operator.functions)
        }
        return Relation(replace(befores[0], types={**columns, KEY: types[KEY], VALUE: JSON}))

    def step(
        self, operator: WindowFunctions, batch: OperatorBatch, catalog: OperatorCatalog
    ) -> None:
        part, window = batch.part(window_functions.PART), catalog.window(operator)
        batch.emit(window_functions.step(part, batch.arrived(), batch.interval, window))


def window_of(operator: WindowFunctions, catalog: OperatorCatalog) -> Window:
    """The functions with the orders of their arguments' types.

    Raises: AggregateError, if rows or an argument cannot be ordered.
    """
    return _window(operator, [each.scope for each in _rows_read(operator, catalog)])


def _window(operator: WindowFunctions, befores: Sequence[Scope]) -> Window:
    of_rows = [Aggregate("row", "bottom", SHOWN)]
    if operator.order is not None:
        of_rows.append(Aggregate("order", "bottom", ORDER))
    ordered = in_order_of_types(of_rows, befores)
    scopes = [replace(each, types=_argument_types(operator, each)) for each in befores]
    functions = tuple(_in_order(each, scopes) for each in operator.functions)
    order = None if operator.order is None else ordered[1].order
    return Window(functions, order, ordered[0].order, operator.is_descending, operator.most)


def _argument_types(operator: WindowFunctions, before: Scope) -> dict[str, str]:
    """The types of arguments, by their SQL."""
    numbers = argument_numbers(operator.functions)
    return {sql: before.types.get(f"{ARGUMENT}{at}", JSON) for sql, at in numbers.items()}


def _in_order(function: WindowFunction, scopes: Sequence[Scope]) -> WindowFunction:
    match function:
        case InOwnOrder():
            of_call = Aggregate(function.name, "bottom", function.by)
            (typed,) = in_order_of_types((of_call,), scopes)
            return msgspec.structs.replace(function, order=typed.order)
        case FrameAggregate(aggregate) if aggregate.field:
            (typed,) = in_order_of_types((aggregate,), scopes)
            return msgspec.structs.replace(function, aggregate=typed)
    return function


def _type(function: WindowFunction, types: Mapping[str, str]) -> str:
    """The SQL type of a function's values."""
    match function:
        case RowPattern():
            return JSON
        case Ranking():
            return function.kind.type
        case InOwnOrder():
            return _type(function.function, types)
        case FrameAggregate(aggregate):
            is_users = function.kind.user_class is not None
            return JSON if is_users else function.kind.type or types.get(aggregate.field, JSON)
        case Offset() | End():
            return types[function.argument]


class JoinKind(OperatorKind[Join]):
    """A root by the key of its results."""

    label = "join"
    is_keyed = True
    parts = (arrange.PART, locked.PART)

    def __init__(self, *sql: str) -> None:
        self.sql = sql

    def sources(self, operator: Join) -> tuple[str, ...]:
        return tuple(each.relation for each in operator.inputs)

    def with_sources(self, operator: Join, named: Callable[[str], str]) -> Join:
        return operator.with_relations(named)

    def problems(self, operator: Join, around: Around) -> Iterator[PlanProblem]:
        for each in operator.inputs:
            path = f"operators.{operator.name}.{section_of(operator)}.{each.alias}"
            yield from around.missing_collection(path, each.relation)

    def relation(self, operator: Join, catalog: OperatorCatalog) -> Relation:
        section = section_of(operator)
        path = f"operators.{operator.name}"
        parts = catalog.examined(operator)
        for part, problem in parts.problems:
            catalog.tell(f"{path}.{part.replace('inputs', section, 1)}", problem)
        flats = [each for _, each in parts.select] + ([] if parts.key is None else [parts.key])
        types = {name: type_ for each in flats for name, type_ in each.reads.items()}
        select = tuple((name, each.sql) for name, each in parts.select)
        step = Sql(select=select, key=None if parts.key is None else parts.key.sql)
        scope = Scope({**types, KEY: JSON, VALUE: JSON})
        results = catalog.taking(result_of((step,), scope), lambda at: f"{path}.{at.part}")
        columns = {name: UNKNOWN for name, _ in operator.select}
        for name, each in parts.select:
            if results.types.get(name) != UNKNOWN:
                columns[name] = each.type
        return Relation(Scope({**columns, KEY: JSON, VALUE: JSON}))

    def keys(
        self, operator: Join, keyed: Callable[[str], Keyed], types: Mapping[str, str]
    ) -> Keys:
        if isinstance(operator, AsOfJoin):
            return NOTHING
        sides = [(each.alias, keyed(each.relation)) for each in operator.inputs]
        read = {f"{alias}.{name}": of for alias, side in sides for name, of in side.types.items()}
        try:
            conditions = [each for text in operator.where for each in conjuncts(tree(text))]
        except ExpressionError:
            return NOTHING
        whole = joined(
            (side.keys.prefixed(alias) for alias, side in sides), equalities(conditions, read)
        )
        key = f"{operator.inputs[0].alias}.{KEY}"
        columns = {KEY: unchanged(key)}
        if operator.key is not None:
            columns[KEY] = derivation_of(operator.key, 2, names=read)
        columns |= {name: derivation_of(text, 2, names=read) for name, text in operator.select}
        return whole.selected(columns)

    def step(self, operator: Join, batch: OperatorBatch, catalog: OperatorCatalog) -> None:
        # Updates that cancel need not meet, so lookups may be made in portions.
        for some in batch.portions():
            # Without retractions nothing cancels.
            cancels = any(update.diff < 0 for update in some)
            batch.emit(consolidated(some) if cancels else some)


# A batch goes through the roots of a plan in the order of these kinds.
KINDS: Mapping[type, OperatorKind[Any]] = {
    Upsert: UpsertKind(),
    StateMachine: StateMachineKind(),
    Linear: LinearKind(),
    Concat: ConcatKind(),
    Reduce: ReduceKind(),
    ReduceRows: ReduceRowsKind(),
    Loop: LoopKind(),
    WindowFunctions: WindowFunctionsKind(),
    DeltaJoin: JoinKind("where", "select", "key"),
    AsOfJoin: JoinKind("on", "select", "key"),
}


def kind_of(operator: Operator) -> OperatorKind[Any]:
    """The kind of an operator."""
    return KINDS[type(operator)]
