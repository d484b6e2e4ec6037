"""The graph of a plan: which operator reads which, and the paths from roots to collections.

A *root* is a collection that is not a linear function of another one: an upsert, a state
machine, an input in `mode: diffs`, a reduction or a join.  Each other collection is the
sum of *ways*: paths of linear steps from roots.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from ikebana.processor.joins.paths import Planned, planned
from ikebana.processor.joins.relation import Relation
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.linear.chain import chain
from ikebana.processor.linear.json_text import BLOB, JSON, quoted
from ikebana.processor.linear.scope import KEY, VALUE, Scope, frozen
from ikebana.processor.linear.steps import AnyStep, Arrange, Call, Negate, Sql
from ikebana.processor.planning.operators import reduce
from ikebana.processor.planning.operators.kind import OperatorKind, Way
from ikebana.processor.planning.operators.table import KINDS, kind_of
from ikebana.processor.planning.plan import Input, Operator, Plan, Reduce
from ikebana.processor.planning.row_keys import Keyed, keys_of
from ikebana.processor.planning.unique_keys import NOTHING


@dataclass(frozen=True, slots=True)
class Node:
    """A collection, with the operator that makes it and the collections that this reads."""

    name: str
    operator: Operator | None
    """None if it is an input whose messages are updates."""
    kind: OperatorKind[Any] | None
    sources: tuple[str, ...] = ()
    """The collections that its operator reads."""
    input: str | None = None
    """The input whose rows its operator reads, if any."""
    single_valued: bool = False
    """Whether its operator makes at most one value a key."""

    @property
    def is_root(self) -> bool:
        """Whether it is not a linear function of other collections."""
        return self.kind is None or not self.kind.is_linear

    @property
    def is_keyed(self) -> bool:
        """Whether its operator reads collections by a key, as reductions and joins do."""
        return self.kind is not None and self.kind.is_keyed

    @property
    def is_of_decoding(self) -> bool:
        """Whether it is an upsert or an input, so that steps may be pushed into decoding."""
        return self.operator is None or (self.input is not None and self.single_valued)


class Graph:
    """The nodes of a plan by name; derived facts are computed once, on demand.

    The plan may have faults, as long as nothing is asked about the faulty parts.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        nodes: dict[str, Node] = {}
        for operator in plan.operators:
            nodes.setdefault(operator.name, node_of(operator))
        for source in plan.inputs:
            if source.is_collection:
                own = Node(source.name, None, None, input=source.name)
                nodes.setdefault(source.name, own)
        self.nodes: Mapping[str, Node] = nodes
        self._ways: dict[str, tuple[Way, ...]] = {}
        self._joins: dict[str, Planned] = {}
        self._aggregates: dict[str, tuple[Aggregate, ...]] = {}
        self._keyed: dict[str, Keyed] = {}

    @functools.cached_property
    def roots(self) -> tuple[str, ...]:
        """All roots: those that read inputs, then the keyed ones, each after its sources."""
        of_rows = [node.name for node in self._by_kind() if node.kind and node.kind.reads_rows]
        collections = [source.name for source in self.plan.inputs if source.is_collection]
        return (*of_rows, *collections, *(node.name for node in self._in_order()))

    def _by_kind(self) -> list[Node]:
        """The nodes of operators, kind by kind; within a kind in the order of the plan."""
        # Both joins belong to one kind.
        kinds = dict.fromkeys(type(kind) for kind in KINDS.values())
        return [n for kind in kinds for n in self.nodes.values() if type(n.kind) is kind]

    def _in_order(self) -> list[Node]:
        known = {node.name: node for node in self._by_kind() if node.is_keyed}
        reads = {
            name: [
                way.root
                for source in node.sources
                for way in self.ways(source)
                if way.root in known
            ]
            for name, node in known.items()
        }
        return [known[name] for name in TopologicalSorter(reads).static_order()]

    def ways(self, name: str) -> tuple[Way, ...]:
        """All ways from roots to a collection; a root has one way, without steps."""
        if name not in self._ways:
            node = self.nodes.get(name)
            if node is None or node.is_root or node.kind is None:
                self._ways[name] = (Way(name, ()),)
            else:
                own = node.kind.steps(node.operator)
                self._ways[name] = tuple(
                    Way(way.root, way.steps + own)
                    for source in node.sources
                    for way in self.ways(source)
                )
        return self._ways[name]

    def behind(self, begin: Node) -> set[str]:
        """The collections that an operator reads, directly and indirectly."""
        found: set[str] = set()
        waiting = list(begin.sources)
        while waiting:
            at = waiting.pop()
            if at not in found:
                found.add(at)
                if at in self.nodes:
                    waiting += self.nodes[at].sources
        return found

    def input_of(self, root: str) -> Input:
        """The input that a root reads; of several, the first."""
        node = self.nodes.get(root)
        if node is None or node.input is not None:
            return self.plan.input(root if node is None or node.input is None else node.input)
        return self.input_of(self.ways(node.sources[0])[0].root)

    def rows(self, name: str) -> Scope:
        """What expressions over an input's rows may name."""
        return scope_of_input(self.plan.input(name))

    def scope_of_root(self, root: str) -> Scope:
        """What expressions over a root's data may name."""
        node = self.nodes.get(root)
        if node is None or node.kind is None:
            return self.rows(root)
        return node.kind.scope(node.operator, self)

    def scope_after(self, way: Way) -> Scope:
        """What expressions may name behind a way.  Raises: ChainError, if a step cannot be."""
        return chain(way.steps, frozen(self.scope_of_root(way.root))).scope

    def join(self, name: str) -> Planned:
        """Compile a join.  Raises: JoinError, if it is refused."""
        if name not in self._joins:
            join = next(join for join in self.plan.joins if join.name == name)
            self._joins[name] = planned(join, self.relations(name))
        return self._joins[name]

    def relations(self, join: str) -> Mapping[str, Relation]:
        """The relations that a join reads, by name, as the join's compiler needs them."""
        return {
            name: self.relation(name) for name in self.nodes[join].sources if name in self.nodes
        }

    def relation(self, name: str) -> Relation:
        """A collection as the compiler of joins needs it."""
        unique: list[tuple[str, ...]] = []
        size = None
        ways = self.ways(name)
        if len(ways) == 1:
            (way,) = ways
            root = self.nodes[way.root]
            if root.single_valued and keeps_key(way):
                unique.append((KEY,))
            if root.is_of_decoding:
                source = self.input_of(way.root)
                size = source.size
                if all(_only_chooses(step) for _, step in way.steps):
                    unique += source.unique
        node = self.nodes[name]
        keeps_state = node.operator is not None and node.is_of_decoding
        return Relation(self.scope_after(ways[0]), tuple(unique), size, keeps_state)

    def keyed(self, name: str) -> Keyed:
        """A collection with its unique keys.

        Raises: ChainError, JoinError, AggregateError, if something cannot be.
        """
        if name not in self._keyed:
            types = self.scope_after(self.ways(name)[0]).types
            operator = self.nodes[name].operator
            keys = NOTHING if operator is None else keys_of(operator, self.keyed, types)
            self._keyed[name] = Keyed(keys, types)
        return self._keyed[name]

    def aggregates(self, reduction: Reduce) -> tuple[Aggregate, ...]:
        """The aggregates of a reduction, with the orders of what they are of.

        Raises: AggregateError, if an argument cannot be ordered.
        """
        if reduction.name not in self._aggregates:
            self._aggregates[reduction.name] = reduce.aggregates_of(reduction, self)
        return self._aggregates[reduction.name]


@functools.lru_cache(maxsize=64)
def graph_of(plan: Plan) -> Graph:
    """The graph of a plan; it is made once for each plan."""
    return Graph(plan)


def node_of(operator: Operator) -> Node:
    """The node of an operator."""
    kind = kind_of(operator)
    sources = kind.sources(operator)
    single = kind.single_valued(operator)
    if kind.reads_rows:
        return Node(operator.name, operator, kind, (), sources[0], single)
    return Node(operator.name, operator, kind, sources, None, single)


def scope_of_input(source: Input) -> Scope:
    """What expressions over an input's rows may name."""
    types: dict[str, str] = {}
    if source.columns:
        # DuckDB takes a while to import, and memory: only where there is SQL.
        from ikebana.processor.linear.expressions import column_type

        types = {column.name: column_type(column.type) for column in source.columns}
    raw = not source.traits.has_columns
    types[KEY] = BLOB if source.key_format == "bytes" and source.traits.kind == "rows" else JSON
    types[VALUE] = BLOB if raw else JSON
    # If any column is declared, all must be, so that misspelt names are found.
    return Scope(types, not raw and not source.columns, f"inputs.{source.name}.columns")


def keeps_key(way: Way) -> bool:
    """Whether the steps make at most one pair of each pair, with the same key."""
    return all(
        isinstance(step, Negate)
        or (isinstance(step, Arrange) and step.keys in ((KEY,), (quoted(KEY),)))
        or (isinstance(step, Call) and step.kind == "filter")
        or (isinstance(step, Sql) and step.key is None and step.flat_map is None)
        for _, step in way.steps
    )


def _only_chooses(step: AnyStep) -> bool:
    if isinstance(step, Sql):
        return Sql(where=step.where) == step
    return isinstance(step, Call) and step.kind == "filter"
