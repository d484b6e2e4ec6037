"""The graph of a plan: which operator reads which, and the paths from roots to collections.

A *root* is a collection that is not a linear function of another one: an upsert, a state
machine, an input in `mode: diffs`, a reduction or a join.  Each other collection is the
sum of *ways*: paths of linear steps from roots.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from ikebana.processor.linear.chain import Named
from ikebana.processor.linear.picking import composed
from ikebana.processor.planning.kind import OperatorKind, Way
from ikebana.processor.planning.kinds import KINDS, kind_of
from ikebana.processor.planning.plan import Input, Operator, Plan

# Inputs of updates are roots without state.
_OF_INPUTS = OperatorKind[Any]()


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A collection, with the operator that makes it and the collections that this reads."""

    name: str
    operator: Operator | None
    """None if it is an input of updates."""
    kind: OperatorKind[Any]
    sources: tuple[str, ...] = ()
    """The collections that its operator reads."""
    input: str | None = None
    """The input of rows that its operator reads, if any."""
    single_valued: bool = False
    """Whether its operator makes at most one value a key."""

    @property
    def is_root(self) -> bool:
        """Whether it is not a linear function of other collections."""
        return not self.kind.is_linear

    @property
    def before(self) -> tuple[Named, ...]:
        """The step that makes the key of each row that its operator reads, if it makes one."""
        return ((self.name, self.kind.before(self.operator)),) if self.kind.makes_key else ()

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
        nodes: dict[str, GraphNode] = {}
        for operator in plan.operators:
            nodes.setdefault(operator.name, node_of(operator))
        for source in plan.inputs:
            if source.is_collection:
                node = GraphNode(source.name, None, _OF_INPUTS, input=source.name)
                nodes.setdefault(source.name, node)
        self.nodes: Mapping[str, GraphNode] = nodes
        self._ways: dict[str, tuple[Way, ...]] = {}

    @functools.cached_property
    def roots(self) -> tuple[str, ...]:
        """All roots: those that read inputs, then the keyed ones, each after its sources."""
        of_rows = [node.name for node in self._by_kind() if node.kind.reads_rows]
        collections = [source.name for source in self.plan.inputs if source.is_collection]
        return (*of_rows, *collections, *(node.name for node in self._in_order()))

    @functools.cached_property
    def passed_on(self) -> frozenset[str]:
        """The collections that other operators read: by linear steps or by a key."""
        readers = (n for n in self.nodes.values() if not n.is_root or n.kind.makes_key)
        return frozenset(source for node in readers for source in node.sources)

    @functools.cached_property
    def makers_of_keys(self) -> tuple[GraphNode, ...]:
        """The operators that make the key of each row that they read, in the order of the plan."""
        return tuple(n for n in self.nodes.values() if n.kind.makes_key)

    def _by_kind(self) -> list[GraphNode]:
        """The nodes of operators, kind by kind; within a kind in the order of the plan."""
        # Both joins belong to one kind.
        kinds = dict.fromkeys(type(kind) for kind in KINDS.values())
        return [n for kind in kinds for n in self.nodes.values() if type(n.kind) is kind]

    def _in_order(self) -> list[GraphNode]:
        keyed = {node.name: node for node in self._by_kind() if node.kind.is_keyed}
        reads = {
            name: [
                way.root
                for source in node.sources
                for way in self.ways(source)
                if way.root in keyed
            ]
            for name, node in keyed.items()
        }
        return [keyed[name] for name in TopologicalSorter(reads).static_order()]

    def ways(self, name: str) -> tuple[Way, ...]:
        """All ways from roots to a collection; a root has one way, without steps."""
        if name not in self._ways:
            node = self.nodes.get(name)
            if node is None or node.is_root:
                self._ways[name] = (Way(name, ()),)
            else:
                steps = node.kind.steps(node.operator)
                self._ways[name] = tuple(
                    Way(way.root, self._together(way, steps))
                    for source in node.sources
                    for way in self.ways(source)
                )
        return self._ways[name]

    def _together(self, way: Way, steps: Sequence[Named]) -> tuple[Named, ...]:
        """The steps of a way and further ones; what only picks what others have picked is one.

        An outer join of outer joins would have a step for each of them otherwise.  The rows of an
        input may be of other types than declared: an error names the step that reads them first.
        """
        first = 1 if self.is_of_input(way.root) else 0
        if not steps or not way.steps[first:]:
            return (*way.steps, *steps)
        (name, step), *others = steps
        if (one := composed(way.steps[-1][1], step)) is None:
            return (*way.steps, *steps)
        return (*way.steps[:-1], (name, one), *others)

    def behind(self, *names: str) -> Collection[str]:
        """These collections and all that they read, directly and indirectly, in a fixed order."""
        seen: dict[str, None] = {}
        waiting = list(names)
        while waiting:
            at = waiting.pop()
            if at not in seen:
                seen[at] = None
                if at in self.nodes:
                    waiting += self.nodes[at].sources
        return seen.keys()

    def input_of(self, root: str) -> Input:
        """The input that a root reads; of several, the first."""
        node = self.nodes.get(root)
        if node is None or node.input is not None:
            return self.plan.input(root if node is None or node.input is None else node.input)
        return self.input_of(self.ways(node.sources[0])[0].root)

    def is_of_input(self, root: str) -> bool:
        """Whether a root is an upsert or an input: work may be pushed into its decoding."""
        node = self.nodes.get(root)
        return node is None or node.is_of_decoding


@functools.lru_cache(maxsize=64)
def graph_of(plan: Plan) -> Graph:
    """The graph of a plan; it is made once for each plan."""
    return Graph(plan)


def node_of(operator: Operator) -> GraphNode:
    """The node of an operator."""
    kind = kind_of(operator)
    sources = kind.sources(operator)
    single = kind.single_valued(operator)
    if kind.reads_rows:
        return GraphNode(operator.name, operator, kind, (), sources[0], single)
    return GraphNode(operator.name, operator, kind, sources, None, single)
