"""Values that SQL takes for equal and that differ as data: no keys, since keys are data."""

import pytest

from ikebana import Column, Concat, Input, Output, Plan, PlanError, Reduce, Upsert
from ikebana.processor.linear.chain import Chain, ChainError
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.scope import KEY, VALUE, Scope
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.joins.binding import JoinError
from ikebana.processor.planning.joins.query import DeltaJoin, JoinInput
from ikebana.processor.planning.plan import Operator
from ikebana.processor.planning.relations import Relation
from support.known_joins import bound

SCOPE = Scope(
    {"span": "INTERVAL", "spans": "INTERVAL[]", "name": "VARCHAR", KEY: JSON, VALUE: JSON}
)


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("a.span = b.span", r"epoch_us\(a.span\) = epoch_us\(b.span\)"),
        ("a.spans = b.spans", r"INTERVAL\[\], whose equal values may differ as data"),
        ("a.name COLLATE NOCASE = b.name", "a collation does not reach"),
    ],
)
def test_a_join_compares_data(condition: str, problem: str) -> None:
    """What would find less than SQL does is refused, with what can stand in its place."""
    relations = {"r": Relation(SCOPE, (), None, keeps_state=False)}
    join = DeltaJoin(
        "j", (JoinInput("a", "r"), JoinInput("b", "r")), (condition,), (("n", "a.name"),)
    )
    with pytest.raises(JoinError, match=problem):
        bound(join, relations)


@pytest.mark.parametrize("key", ["span", "{'s': span}"])
def test_an_interval_is_no_key(key: str) -> None:
    """Neither of a linear operator nor of a reduction, whose `by` is one."""
    with pytest.raises(ChainError, match="1 month and 30 days do; compare epoch_us"):
        Chain([("l", Sql(key=key))], SCOPE)


def test_seconds_of_an_interval_are_a_key() -> None:
    """As the refusal says."""
    assert Chain([("l", Sql(key="epoch_us(span)"))], SCOPE).scope.types[KEY] == JSON


def reduced(aggregate: str, *kinds: str) -> Plan:
    """A reduction of inputs with a column of these types."""
    inputs = [
        Input(f"i{at}", (f"i{at}",), columns=(Column("x", k),)) for at, k in enumerate(kinds)
    ]
    upserts = [Upsert(f"u{at}", source.name) for at, source in enumerate(inputs)]
    both = Concat("both", tuple(upsert.name for upsert in upserts))
    operators: tuple[Operator, ...] = (*upserts, both, Reduce("r", "both", (("a", aggregate),)))
    return checked(Plan("p", tuple(inputs), operators, (Output("o", "r", "o"),)))


@pytest.mark.parametrize("kind", ["INTERVAL", "INTERVAL[]", "STRUCT(s INTERVAL)"])
def test_an_interval_is_ordered_by_its_length_and_not_counted_as_it_is(kind: str) -> None:
    """As data 1 month and 30 days are two values, for SQL they are one: it has to be said."""
    for aggregate in ("min(x)", "max(x)", "top(2, x)"):
        assert reduced(aggregate, kind)
    with pytest.raises(
        PlanError, match=r"operators\.r\.aggregates\.a: .*take epoch_us\(…\) of it"
    ):
        reduced("distinct(x)", kind)


@pytest.mark.parametrize("aggregate", ["max(epoch_us(x))", "distinct(x::VARCHAR)", "count(x)"])
def test_what_is_said_of_an_interval_is_computed(aggregate: str) -> None:
    """As the refusal says."""
    assert reduced(aggregate, "INTERVAL")


def test_maps_have_no_order() -> None:
    """SQL's is that in which the entries stand, which JSON does not keep."""
    with pytest.raises(PlanError, match=r"operators\.r\.aggregates\.a: .*map_entries"):
        reduced("max(x)", "MAP(VARCHAR, BIGINT)")
    assert reduced("distinct(x)", "MAP(VARCHAR, BIGINT)")


def test_types_without_a_common_order_are_not_ordered_together() -> None:
    """Where data come from several collections, all have to have the type's order."""
    with pytest.raises(PlanError, match=r"DATE and VARCHAR, .*cast them to one type"):
        reduced("max(x)", "DATE", "VARCHAR")
    assert reduced("max(x)", "DATE", "TIMESTAMP")
    assert reduced("max(x)", "BIGINT", "DECIMAL(12,2)")
