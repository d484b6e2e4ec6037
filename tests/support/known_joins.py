"""Joins that several tests are about: TPC-H's third query, triangles, prices as of orders."""

from collections.abc import Mapping

from ikebana.codecs.change import Column
from ikebana.processor.linear.scope import KEY, VALUE, Scope
from ikebana.processor.planning.joins import paths
from ikebana.processor.planning.joins.binding import BoundJoin, examined
from ikebana.processor.planning.joins.query import (
    AsOfJoin,
    At,
    DeltaJoin,
    Join,
    JoinInput,
    Retract,
)
from ikebana.processor.planning.relations import Relation


def relation(*unique: tuple[str, ...], size: int | None = None, **columns: str) -> Relation:
    """What an upsert with these columns is to joins."""
    scope = Scope({**columns, KEY: "JSON", VALUE: "JSON"})
    return Relation(scope, unique, size, keeps_state=True)


def bound(join: Join, relations: Mapping[str, Relation]) -> BoundJoin:
    """A join over relations, taken apart.  Raises: JoinError."""
    return examined(join, relations).whole()


def planned(join: Join, relations: Mapping[str, Relation]) -> paths.Planned:
    """A join over relations as it runs.  Raises: JoinError."""
    return paths.planned(bound(join, relations), relations)


def columns_of(relation_: Relation) -> tuple[Column, ...]:
    """The columns that an input declares whose upserts are a relation."""
    types = relation_.scope.types.items()
    return tuple(Column(name, kind) for name, kind in types if name not in (KEY, VALUE))


SHOP = {
    "customer": relation(("custkey",), custkey="BIGINT", mktsegment="VARCHAR"),
    "orders": relation(
        ("orderkey",), orderkey="BIGINT", custkey="BIGINT", orderdate="DATE", priority="INTEGER"
    ),
    "lineitem": relation(
        orderkey="BIGINT", extendedprice="DECIMAL(12,2)", discount="DECIMAL(12,2)", shipdate="DATE"
    ),
}

Q3 = DeltaJoin(
    "q3",
    (JoinInput("c", "customer"), JoinInput("o", "orders"), JoinInput("l", "lineitem")),
    (
        "c.mktsegment = 'BUILDING' AND c.custkey = o.custkey AND l.orderkey = o.orderkey",
        "o.orderdate < DATE '1995-03-15'",
        "l.shipdate > DATE '1995-03-15'",
    ),
    (
        ("revenue", "l.extendedprice * (1 - l.discount)"),
        ("orderdate", "o.orderdate"),
        ("priority", "o.priority"),
    ),
    "l.orderkey",
)

GRAPH = {"edges": Relation(Scope({"src": "BIGINT", "dst": "BIGINT"}))}

TRIANGLES = DeltaJoin(
    "triangles",
    (JoinInput("ab", "edges"), JoinInput("bc", "edges"), JoinInput("ac", "edges")),
    ("ab.dst = bc.src AND bc.dst = ac.dst AND ab.src = ac.src",),
    (("b", "bc.src"), ("c", "ac.dst")),
    "ab.src",
)

MARKET = {
    "orders": Relation(Scope({"number": "BIGINT", "product": "VARCHAR", "limit": "BIGINT"})),
    "prices": Relation(Scope({"product": "VARCHAR", "price": "BIGINT"})),
}


def priced(
    *more: str, at: At = "alt", outer: bool = False, retract: Retract = "current"
) -> AsOfJoin:
    """Each order with the price of its product as of its time."""
    return AsOfJoin(
        "priced",
        JoinInput("o", "orders"),
        JoinInput("p", "prices"),
        ("o.product = p.product", *more),
        (("price", "p.price"),),
        "o.number",
        at=at,
        outer=outer,
        retract=retract,
    )
