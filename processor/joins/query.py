"""Joins as values of a plan.

A delta join is the multiset of all combinations of one datum of each input for which every
condition is true, each as many times as the product of its data's multiplicities; an
input whose relation occurs several times is each time another input.  An as-of join
gives each update of its left the data of its right as they stand at the update's own
time, and is not revised later.

Of a delta join all conditions say the same kind of thing.  Of an as-of join, a condition
over its left alone says which updates there are, and all others say what matches, which
matters if it is `outer`.  What conditions come to is for `joins.binding`.
"""

from collections.abc import Callable
from typing import ClassVar, Literal

import msgspec

from ikebana.processor.linear.settled import settle

# alt: a right update of the same time is seen.  neu: it is not.
At = Literal["alt", "neu"]
# current: a retraction meets the right as it stands then.  locked: it cancels what was emitted.
Retract = Literal["current", "locked"]
# lookup: one input after another.  intersect: one variable after another, by all inputs
# that have it.  auto: intersect where constraints go round in a circle.
Strategy = Literal["auto", "lookup", "intersect"]


class JoinInput(msgspec.Struct, frozen=True):
    """A relation under the name that it has in one join."""

    alias: str
    relation: str

    def renamed(self, named: Callable[[str], str]) -> "JoinInput":
        """The same of a relation under another name."""
        return JoinInput(self.alias, named(self.relation))


class DeltaJoin(msgspec.Struct, frozen=True, tag="delta_join"):
    """A join of any number of inputs, kept current without intermediate results.

    `select` are the fields of the results, pairs or a mapping, `key` is their key, all SQL over
    `alias.column`; without a `key`, that of the first input.
    `orders` tells for an input, by alias, in which order its path looks up the others;
    where nothing is told, the planner chooses.  Inputs that no equality connects are
    refused unless `cartesian`.

    >>> from ikebana import Column, DeltaJoin, Input, JoinInput, Output, Plan, evaluate
    >>> columns = Column("src", "BIGINT"), Column("dst", "BIGINT")
    >>> plan = Plan(
    ...     "twos",
    ...     inputs=(Input("edges", ("edges",), "diff", mode="diffs", columns=columns),),
    ...     operators=(
    ...         DeltaJoin(
    ...             "paths",
    ...             (JoinInput("ab", "edges"), JoinInput("bc", "edges")),
    ...             where=("ab.dst = bc.src",),
    ...             select=(("by", "ab.dst"), ("to", "bc.dst")),
    ...             key="ab.src",
    ...         ),
    ...     ),
    ...     outputs=(Output("diffs", "paths", "paths"),),
    ... )
    >>> edges = [({"src": 1, "dst": 2}, 0, 1), ({"src": 2, "dst": 3}, 0, 1)]
    >>> gone = ({"src": 1, "dst": 2}, 5, -1)
    >>> found = evaluate(plan, {"edges": [(None, *edge) for edge in (*edges, gone)]})
    >>> for update in found["diffs"]:
    ...     print(*update)
    (1, {'by': 2, 'to': 3}) 0 1
    (1, {'by': 2, 'to': 3}) 5 -1
    """

    name: str
    inputs: tuple[JoinInput, ...]
    where: tuple[str, ...]
    select: tuple[tuple[str, str], ...]
    key: str | None = None
    orders: tuple[tuple[str, tuple[str, ...]], ...] = ()
    cartesian: bool = False
    strategy: Strategy = "auto"

    # What only the other join may do.
    outer: ClassVar[bool] = False
    locks: ClassVar[bool] = False
    revises: ClassVar[bool] = False

    def __post_init__(self) -> None:
        settle(self, "where")

    def with_relations(self, named: Callable[[str], str]) -> "DeltaJoin":
        """The join of relations under other names."""
        inputs = tuple(each.renamed(named) for each in self.inputs)
        return msgspec.structs.replace(self, inputs=inputs)


class AsOfJoin(msgspec.Struct, frozen=True, tag="as_of_join"):
    """Join each update of `left` with the version of `right` at the update's own time.

    `on` are the conditions.  With `outer`, an update that matches nothing has null for
    every column of the right.  `key` is the results' key; None: that of the left.

    >>> from ikebana import AsOfJoin, Column, Input, JoinInput, Output, Plan, Upsert, evaluate
    >>> plan = Plan(
    ...     "priced",
    ...     inputs=(
    ...         Input("orders", ("orders",), columns=(Column("product", "VARCHAR"),)),
    ...         Input("prices", ("prices",), columns=(Column("price", "BIGINT"),)),
    ...     ),
    ...     operators=(
    ...         Upsert("order", "orders"),
    ...         Upsert("current", "prices"),
    ...         AsOfJoin(
    ...             "priced",
    ...             JoinInput("o", "order"),
    ...             JoinInput("p", "current"),
    ...             on=("o.product = p.key::VARCHAR",),
    ...             select=(("price", "p.price"),),
    ...         ),
    ...     ),
    ...     outputs=(Output("diffs", "priced", "priced"),),
    ... )
    >>> prices = [("tea", {"price": 5}, 1), ("tea", {"price": 7}, 3)]
    >>> orders = [(1, {"product": "tea"}, 2), (2, {"product": "tea"}, 4)]
    >>> for update in evaluate(plan, {"orders": orders, "prices": prices})["diffs"]:
    ...     print(*update)
    (1, {'price': 5}) 2 1
    (2, {'price': 7}) 4 1
    """

    name: str
    left: JoinInput
    right: JoinInput
    on: tuple[str, ...]
    select: tuple[tuple[str, str], ...]
    key: str | None = None
    at: At = "alt"
    outer: bool = False
    retract: Retract = "current"

    def __post_init__(self) -> None:
        settle(self, "on")

    def with_relations(self, named: Callable[[str], str]) -> "AsOfJoin":
        """The join of relations under other names."""
        left, right = self.left.renamed(named), self.right.renamed(named)
        return msgspec.structs.replace(self, left=left, right=right)

    @property
    def inputs(self) -> tuple[JoinInput, ...]:
        """The left, then the right."""
        return (self.left, self.right)

    @property
    def locks(self) -> bool:
        """Whether a retraction retracts the matches of its insertion (`retract: locked`)."""
        return self.retract == "locked"

    @property
    def revises(self) -> bool:
        """Whether a retraction may meet another right than its insertion."""
        return self.retract == "current"


Join = DeltaJoin | AsOfJoin


def section_of(join: Join) -> str:
    """A join's kind as the pipeline file has it."""
    return str(join.__struct_config__.tag)
