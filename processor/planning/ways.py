"""Ways from roots to collections, and what may be named of the data on them.

A *root* is a collection that is no linear function of another one: an upsert, a state
machine, an input in `mode: diffs`, a reduction, a join.  All others are reached from roots
by ways of linear steps.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from ikebana.processor.joins.paths import Planned, planned
from ikebana.processor.joins.query import Join
from ikebana.processor.joins.relation import Relation
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.linear.chain import Named, chain
from ikebana.processor.linear.json_text import BLOB, JSON, quoted
from ikebana.processor.linear.scope import KEY, VALUE, Scope, frozen
from ikebana.processor.linear.steps import AnyStep, Arrange, Call, Negate, Sql
from ikebana.processor.planning.aggregates import arranged, in_order_of_types, result_scope
from ikebana.processor.planning.plan import (
    PLAIN_FORMATS,
    Concat,
    Input,
    Linear,
    Output,
    Plan,
    Reduce,
)

if TYPE_CHECKING:
    from ikebana.processor.linear.query import Query


@dataclass(frozen=True, slots=True)
class Path:
    """One way from a root to a collection."""

    root: str
    steps: tuple[Named, ...]


def roots(plan: Plan) -> tuple[str, ...]:
    """The names of all collections that are no linear function of another one.

    Reductions and joins come after what they read.
    """
    diffs = (source.name for source in plan.inputs if source.is_collection)
    upserts = (upsert.name for upsert in plan.upserts)
    machines = (machine.name for machine in plan.machines)
    return (*upserts, *machines, *diffs, *(operator.name for operator in in_order(plan)))


def in_order(plan: Plan) -> list[Reduce | Join]:
    """The operators that are keyed by what they read, each after those that it reads."""
    known: dict[str, Reduce | Join] = {o.name: o for o in (*plan.reductions, *plan.joins)}
    reads = {
        name: [p.root for s in sources_of(operator) for p in paths(plan, s) if p.root in known]
        for name, operator in known.items()
    }
    return [known[name] for name in TopologicalSorter(reads).static_order()]


def sources_of(operator: Reduce | Join) -> tuple[str, ...]:
    """The collections that an operator reads."""
    if isinstance(operator, Reduce):
        return (operator.source,)
    return tuple(each.relation for each in operator.inputs)


def input_of(plan: Plan, root: str) -> Input:
    """The input that a root reads; of several, the first."""
    read = {upsert.name: upsert.input for upsert in plan.upserts}
    read |= {machine.name: machine.input for machine in plan.machines}
    if root in read:
        return plan.input(read[root])
    for operator in (*plan.reductions, *plan.joins):
        if operator.name == root:
            return input_of(plan, next(paths(plan, sources_of(operator)[0])).root)
    return plan.input(root)


def comes_out_of_decoding(source: Input) -> bool:
    """Whether an input's own updates are known where it is decoded, and its branches run there.

    The facts of CDCv2 are known only when the shards have told which are new.
    """
    return source.is_collection and "cdcv2" not in source.value_format


def is_of_input(plan: Plan, root: str) -> bool:
    """Whether a root is an upsert or an input itself, so that decoding can be told of it."""
    others = (*plan.machines, *plan.reductions, *plan.joins)
    return root not in {operator.name for operator in others}


def paths(plan: Plan, source: str) -> Iterator[Path]:
    """All ways from roots to the collection `source`."""
    operator = next((o for o in plan.operators if o.name == source), None)
    match operator:
        case Linear():
            own = tuple((operator.name, step) for step in operator.steps)
            for path in paths(plan, operator.source):
                yield Path(path.root, path.steps + own)
        case Concat():
            for name in operator.sources:
                yield from paths(plan, name)
        case _:
            yield Path(source, ())


def scope_of(plan: Plan, source: str) -> Scope:
    """What expressions over a collection's data may name; of several ways, the first tells."""
    return scope_after(plan, next(paths(plan, source)))


def scope_after(plan: Plan, path: Path) -> Scope:
    """What expressions may name behind a way.  Raises: ChainError, if a step cannot be."""
    return chain(path.steps, frozen(scope_of_root(plan, path.root))).scope


def scope_of_root(plan: Plan, root: str) -> Scope:
    """What expressions over a root's data may name."""
    for reduction in plan.reductions:
        if reduction.name == root:
            return result_scope(reduction, scope_after(plan, next(paths_before(plan, reduction))))
    for join in plan.joins:
        if join.name == root:
            kinds = {name: made.type for name, made in join_of(plan, root).select}
            types = {name: JSON if kind == '"NULL"' else kind for name, kind in kinds.items()}
            return Scope({**types, KEY: JSON, VALUE: JSON})
    scope = scope_of_input(input_of(plan, root))
    if any(machine.name == root for machine in plan.machines):
        # What a machine shows is what its functions give.
        return Scope({KEY: scope.types[KEY], VALUE: JSON}, open=True)
    return scope


@functools.lru_cache(maxsize=64)
def aggregates_of(plan: Plan, reduction: Reduce) -> tuple[Aggregate, ...]:
    """The aggregates of a reduction, with the orders of what they are of.

    Raises: AggregateError, if an argument cannot be ordered.
    """
    found = arranged(reduction).aggregates
    return in_order_of_types(found, [scope_after(plan, p) for p in paths_before(plan, reduction)])


def paths_before(plan: Plan, reduction: Reduce) -> Iterator[Path]:
    """The ways to what a reduction reads, with the step that makes its key and arguments."""
    before = (reduction.name, arranged(reduction).step)
    for path in paths(plan, reduction.source):
        yield Path(path.root, (*path.steps, before))


@functools.lru_cache(maxsize=64)
def join_of(plan: Plan, name: str) -> Planned:
    """A join as it runs.  Raises: JoinError, if it cannot be."""
    join = next(join for join in plan.joins if join.name == name)
    return planned(join, relations(plan, join))


def relations(plan: Plan, join: Join) -> Mapping[str, Relation]:
    """What a join has to know of the collections that it reads, by name."""
    known = {o.name for o in plan.operators} | {i.name for i in plan.inputs if i.is_collection}
    return {name: relation(plan, name) for name in sources_of(join) if name in known}


def relation(plan: Plan, name: str) -> Relation:
    """What a join has to know of a collection."""
    ways = list(paths(plan, name))
    unique: list[tuple[str, ...]] = []
    size = None
    if len(ways) == 1:
        (way,) = ways
        if way.root in single_valued(plan) and keeps_key(way):
            unique.append((KEY,))
        if is_of_input(plan, way.root):
            source = input_of(plan, way.root)
            size = source.size
            if all(_only_chooses(step) for _, step in way.steps):
                unique += source.unique
    keeps_state = any(upsert.name == name for upsert in plan.upserts)
    return Relation(scope_of(plan, name), tuple(unique), size, keeps_state)


def single_valued(plan: Plan) -> frozenset[str]:
    """The roots that have at most one value a key."""
    one = {upsert.name for upsert in plan.upserts}
    # A function may give several values.
    one |= {reduction.name for reduction in plan.reductions if reduction.function is None}
    return frozenset(one)


def _only_chooses(step: AnyStep) -> bool:
    if isinstance(step, Sql):
        return Sql(where=step.where) == step
    return isinstance(step, Call) and step.kind == "filter"


def dating_query(source: Input) -> "Query | None":
    """What makes the event times of an input's rows, as a bound in milliseconds.

    Raises:
        ExpressionError, StepError: the expression is none.
    """
    if source.event_time is None or source.event_time.of is None:
        return None
    from ikebana.processor.linear.query import compiled

    return compiled((Sql(valid_from=source.event_time.of),), frozen(scope_of_input(source)))


def scope_of_input(source: Input) -> Scope:
    """What expressions over an input's rows may name."""
    types: dict[str, str] = {}
    if source.columns:
        # DuckDB takes a while to import, and memory: only where there is SQL.
        from ikebana.processor.linear.expressions import type_named

        types = {column.name: type_named(column.type) for column in source.columns}
    raw = source.value_format == "bytes"
    types[KEY] = BLOB if source.key_format == "bytes" and is_plain(source) else JSON
    types[VALUE] = BLOB if raw else JSON
    # Whoever declares columns declares all that may be named: a misspelt one is told.
    return Scope(types, not raw and not source.columns, f"inputs.{source.name}.columns")


def scope_of_output(plan: Plan, output: Output) -> Scope:
    """The relation that an output shows."""
    return scope_of(plan, output.source)


def keeps_key(path: Path) -> bool:
    """Whether each datum of the root gives at most one, of the same key."""
    return all(
        isinstance(step, Negate)
        or (isinstance(step, Arrange) and step.keys in ((KEY,), (quoted(KEY),)))
        or (isinstance(step, Call) and step.kind == "filter")
        or (isinstance(step, Sql) and step.key is None and step.flat_map is None)
        for _, step in path.steps
    )


def signs(step: AnyStep) -> bool:
    """Whether a step may turn a diff around."""
    match step:
        case Negate():
            return True
        case Call():
            return step.kind in ("explode", "join_function")
        case Arrange():
            return False
        case Sql():
            if step.flat_map is None:
                return step.diff is not None
            from ikebana.processor.linear.syntax import called

            repeats = called(step.flat_map[1])
            return step.diff is not None or bool(repeats and repeats[0] == "repeat_row")


def is_plain(source: Input) -> bool:
    """Whether an input's messages are rows, and no changes."""
    return source.value_format in PLAIN_FORMATS
