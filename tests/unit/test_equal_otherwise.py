"""Values that SQL takes for equal and that differ as data: no keys, since keys are data."""

import pytest

from ikebana.processor.joins.binding import JoinError, bind
from ikebana.processor.joins.query import DeltaJoin, JoinInput
from ikebana.processor.joins.relation import Relation
from ikebana.processor.linear.chain import Chain, ChainError
from ikebana.processor.linear.json_text import JSON
from ikebana.processor.linear.scope import KEY, VALUE, Scope
from ikebana.processor.linear.steps import Sql

SCOPE = Scope(
    {"span": "INTERVAL", "spans": "INTERVAL[]", "name": "VARCHAR", KEY: JSON, VALUE: JSON}
)


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("a.span = b.span", r"epoch\(a.span\) = epoch\(b.span\)"),
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
        bind(join, relations)


@pytest.mark.parametrize("key", ["span", "{'s': span}"])
def test_an_interval_is_no_key(key: str) -> None:
    """Neither of a linear operator nor of a reduction, whose `by` is one."""
    with pytest.raises(ChainError, match="1 month and 30 days do; compare epoch"):
        Chain([("l", Sql(key=key))], SCOPE)


def test_seconds_of_an_interval_are_a_key() -> None:
    """As the refusal says."""
    assert Chain([("l", Sql(key="epoch(span)"))], SCOPE).scope.types[KEY] == JSON
