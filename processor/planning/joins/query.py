"""Joins as values of a plan.

The result of a delta join at a time has all combinations of one datum of each input for which
every condition is true.  The multiplicity of a combination is the product of the multiplicities
of its data.  A relation may occur several times, each time as another input.  An as-of join
matches each update of its left with the data of its right as of the update's own time; later
changes of the right do not revise the results.

The conditions of a delta join are all of one kind.  In an as-of join, a condition over the left
alone selects updates, and all others define matches; the difference matters if it is `outer`.
`planning.joins.binding` analyses the conditions.
"""

from collections.abc import Callable
from typing import ClassVar, Literal

import msgspec

from ikebana.processor.linear.settled import settle

# alt: a right update of the same time is seen.  neu: it is not.
At = Literal["alt", "neu"]
# current: a retraction is matched with the right as of its own time.  locked: it retracts the
# results of its insertion.
Retract = Literal["current", "locked"]
# lookup: look up one input after another.  intersect: extend by one variable after another, in
# all inputs that have it.  auto: intersect if the conditions are cyclic, else lookup.
Strategy = Literal["auto", "lookup", "intersect"]


class JoinInput(msgspec.Struct, frozen=True):
    """An input of a join: a relation, under an alias."""

    alias: str
    relation: str

    def renamed(self, named: Callable[[str], str]) -> "JoinInput":
        """Replace the name of the relation."""
        return JoinInput(self.alias, named(self.relation))


class DeltaJoin(msgspec.Struct, frozen=True, tag="delta_join"):
    """A join of any number of inputs, kept current without intermediate results.

    Data `(key_i, value_i)` of each input become `(key, {field: ...})`, at the latest of their
    times, with the product of their diffs.  `select` has the fields as pairs or a mapping, and
    `key` the key; without it, results have the key of the first input.  All of them, and `where`,
    are SQL over `alias.column`.  `orders` gives, for the alias of an input, the order in which
    its path looks up the others; by default the planner chooses.  Inputs that no equality
    connects are refused unless `cartesian`.

    Source of the method: delta queries, as in differential dataflow's `dogsdogsdogs`.

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

    # Only an as-of join may be outer.
    outer: ClassVar[bool] = False
    locks: ClassVar[bool] = False
    revises: ClassVar[bool] = False

    def __post_init__(self) -> None:
        settle(self)

    def with_relations(self, named: Callable[[str], str]) -> "DeltaJoin":
        """The join of relations under other names."""
        inputs = tuple(each.renamed(named) for each in self.inputs)
        return msgspec.structs.replace(self, inputs=inputs)


class AsOfJoin(msgspec.Struct, frozen=True, tag="as_of_join"):
    """Join each update of `left` with the version of `right` at the update's own time.

    Updates `((key, left), time, diff)` become `((key, {field: ...}), time, diff)`, one for each
    match.  `on` has the conditions, and `select` the fields, as SQL over `alias.column`.  With
    `outer`, an update without a match gets null for every column of the right.  `key` is the
    key of the results, by default that of the left.  With `at="neu"`, changes of the right at
    the update's own time are not seen.  With `retract="locked"`, `locked_by` may name columns of
    the left: an update that changes neither them nor the key keeps what the row has met, and
    looks up nothing.

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
    locked_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        settle(self)

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
        """Whether a retraction retracts the matches of its insertion: `retract` is "locked"."""
        return self.retract == "locked"

    @property
    def revises(self) -> bool:
        """Whether a retraction may meet another right than its insertion."""
        return self.retract == "current"


Join = DeltaJoin | AsOfJoin


def section_of(join: Join) -> str:
    """The name of a join's kind in the pipeline file."""
    return str(join.__struct_config__.tag)
