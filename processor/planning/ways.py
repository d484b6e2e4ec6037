"""Facts about a plan's collections, from its graph, and about the steps of ways."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ikebana.processor.joins.paths import Planned
from ikebana.processor.joins.query import Join
from ikebana.processor.joins.relation import Relation
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.linear.scope import Scope, frozen
from ikebana.processor.linear.steps import AnyStep, Arrange, Call, Negate, Sql
from ikebana.processor.planning.graph import graph_of, keeps_key, scope_of_input
from ikebana.processor.planning.operators.kind import Way
from ikebana.processor.planning.plan import Input, Output, Plan, Reduce

if TYPE_CHECKING:
    from ikebana.processor.linear.query import Query

__all__ = [
    "Way",
    "aggregates_of",
    "comes_out_of_decoding",
    "dating_query",
    "input_of",
    "is_of_input",
    "join_of",
    "keeps_key",
    "paths",
    "relation",
    "relations",
    "roots",
    "scope_after",
    "scope_of",
    "scope_of_input",
    "scope_of_output",
    "scope_of_root",
    "shares_topics",
    "signs",
    "sources_of",
]


def roots(plan: Plan) -> tuple[str, ...]:
    """The names of all roots: reductions and joins come after their sources.

    A root is a collection that is not a linear function of another one.
    """
    return graph_of(plan).roots


def shares_topics(plan: Plan, source: Input) -> bool:
    """Whether another input reads a topic of this one as well."""
    return any(len(plan.readers(topic)) > 1 for topic in source.topics)


def sources_of(plan: Plan, name: str) -> tuple[str, ...]:
    """The collections that the operator of that name reads."""
    return graph_of(plan).nodes[name].sources


def input_of(plan: Plan, root: str) -> Input:
    """The input that a root reads; of several, the first."""
    return graph_of(plan).input_of(root)


def comes_out_of_decoding(source: Input) -> bool:
    """Whether an input's own updates are known where it is decoded, and its branches run there.

    The facts of CDCv2 are known only when the shards have told which are new.
    """
    return source.is_collection and source.traits.kind != "facts"


def is_of_input(plan: Plan, root: str) -> bool:
    """Whether a root is an upsert or an input itself, so that decoding can be told of it."""
    node = graph_of(plan).nodes.get(root)
    return node is None or node.is_of_decoding


def paths(plan: Plan, source: str) -> tuple[Way, ...]:
    """All ways from roots to the collection `source`."""
    return graph_of(plan).ways(source)


def scope_of(plan: Plan, source: str) -> Scope:
    """What expressions over a collection's data may name; of several ways, the first tells."""
    return scope_after(plan, paths(plan, source)[0])


def scope_after(plan: Plan, way: Way) -> Scope:
    """What expressions may name behind a way.  Raises: ChainError, if a step cannot be."""
    return graph_of(plan).scope_after(way)


def scope_of_root(plan: Plan, root: str) -> Scope:
    """What expressions over a root's data may name."""
    return graph_of(plan).scope_of_root(root)


def aggregates_of(plan: Plan, reduction: Reduce) -> tuple[Aggregate, ...]:
    """The aggregates of a reduction, with the orders of what they are of.

    Raises: AggregateError, if an argument cannot be ordered.
    """
    return graph_of(plan).aggregates(reduction)


def join_of(plan: Plan, name: str) -> Planned:
    """A join as it runs.  Raises: JoinError, if it cannot be."""
    return graph_of(plan).join(name)


def relations(plan: Plan, join: Join) -> Mapping[str, Relation]:
    """What a join has to know of the collections that it reads, by name."""
    return graph_of(plan).relations(join.name)


def relation(plan: Plan, name: str) -> Relation:
    """What a join has to know of a collection."""
    return graph_of(plan).relation(name)


def dating_query(source: Input) -> "Query | None":
    """What makes the event times of an input's rows, as a bound in milliseconds.

    Raises:
        ExpressionError, StepError: the expression is none.
    """
    if source.event_time is None or source.event_time.of is None:
        return None
    from ikebana.processor.linear.query import compiled

    return compiled((Sql(valid_from=source.event_time.of),), frozen(scope_of_input(source)))


def scope_of_output(plan: Plan, output: Output) -> Scope:
    """The relation that an output shows."""
    return scope_of(plan, output.source)


def signs(step: AnyStep) -> bool:
    """Whether a step may change the sign of a diff."""
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
