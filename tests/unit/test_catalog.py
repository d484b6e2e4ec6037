"""The catalog of a plan: the relation of each collection is found once, in order."""

from collections import Counter
from typing import Any

import pytest

from ikebana import Column, Input, Linear, Output, Plan, Reduce, Upsert
from ikebana.errors import PlanError
from ikebana.processor.explain.explanation import explained
from ikebana.processor.linear import steps, syntax
from ikebana.processor.linear.database import rows_of
from ikebana.processor.linear.scope import KEY, UNKNOWN, VALUE
from ikebana.processor.planning import planner
from ikebana.processor.planning.catalog import Catalog, catalog_of
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.joins.stages import joined
from ikebana.processor.planning.kinds import KINDS
from ikebana.processor.planning.plan import Operator
from ikebana.processor.relational.making import KnownRelations
from ikebana.processor.relational.sql import sql_operators

ORDERS = Input(
    "orders",
    ("orders",),
    columns=(Column("customer", "BIGINT"), Column("amount", "DOUBLE"), Column("day", "DATE")),
    unique=(("customer", "day"),),
    size=7,
)
CUSTOMERS = Input(
    "customers",
    ("customers",),
    columns=(Column("id", "BIGINT"), Column("name", "VARCHAR"), Column("since", "DATE")),
)
OWN = (Upsert("order", "orders"), Upsert("customer", "customers"))
LARGE = Linear("large", "order", (steps.where("amount > 9"),))
NAMED = Linear("named", "large", (steps.select(who="customer", twice="amount * 2"),))


def known(*operators: Any) -> Catalog:
    return Catalog((ORDERS, CUSTOMERS), operators)


def test_a_relation_has_columns_unique_keys_and_a_size() -> None:
    """Conditions leave all of them; a select has columns of its own, and each row's key."""
    catalog = known(*OWN, LARGE, NAMED)
    large, named = catalog.relation("large"), catalog.relation("named")

    assert large.scope == catalog.relation("order").scope == catalog.rows("orders")
    assert (large.unique, large.size) == (((KEY,), ("customer", "day")), 7)
    assert named.scope.types == {"who": "BIGINT", "twice": "DOUBLE", KEY: "JSON", VALUE: "JSON"}
    assert (named.unique, named.size) == (((KEY,),), 7)
    assert catalog.problems() == []


def test_only_an_upsert_keeps_what_lookups_by_its_key_ask() -> None:
    """What is behind it needs an arrangement."""
    catalog = known(*OWN, LARGE)

    assert catalog.relation("order").keeps_state
    assert not catalog.relation("large").keeps_state


def test_a_relation_is_found_whatever_is_asked_for_first() -> None:
    """Operators may stand before what they read."""
    there, back = known(*OWN, LARGE, NAMED), known(NAMED, LARGE, *OWN[::-1])

    assert back.relation("named") == there.relation("named")


def test_what_a_mistake_leaves_open_is_unknown_and_not_told_again() -> None:
    """The reader of a column with a mistake has no problem of its own."""
    wrong = Linear("wrong", "order", (steps.select(a="amount + nothing", b="customer"),))
    reader = Linear("reader", "wrong", (steps.select(c="a + 1", d="b + 1"),))
    catalog = known(*OWN, wrong, reader)

    ((path, problem),) = catalog.problems()

    assert path == "operators.wrong.select.a"
    assert 'no column "nothing"' in problem
    assert catalog.relation("wrong").scope.types["a"] == UNKNOWN
    assert catalog.relation("reader").scope.types["d"] == "BIGINT"
    assert catalog.is_sound("order")
    assert not catalog.is_sound("wrong")
    assert not catalog.is_sound("reader")


def test_nothing_is_known_of_what_is_not_there_or_reads_itself() -> None:
    """Neither is a problem of SQL, and both are said elsewhere."""
    loop = (Linear("a", "b", ()), Linear("b", "a", (steps.where("x > 1"),)))
    catalog = known(*loop, Linear("c", "missing", ()))

    assert catalog.problems() == []
    for name in ("a", "b", "c", "missing"):
        assert catalog.relation(name).scope.types[VALUE] == UNKNOWN
    assert not catalog.is_sound("a")
    assert not catalog.is_sound("c")


def test_what_was_missing_is_known_when_it_is_added() -> None:
    """What has waited for it is found anew."""
    catalog = known(*OWN, NAMED)
    assert not catalog.is_sound("named")

    catalog.add((LARGE,))

    assert catalog.is_sound("named")
    assert catalog.relation("named").scope.types["twice"] == "DOUBLE"


def test_a_copy_has_what_is_known_and_gives_nothing_back() -> None:
    """What is made beside a catalog is not in it."""
    catalog = known(*OWN)
    beside = catalog.copy()

    beside.add((LARGE,))

    assert beside.is_sound("large")
    assert not catalog.is_sound("large")


@pytest.mark.parametrize("behind", [(), ("third",), ("third", "fourth")])
def test_operators_that_cannot_run_as_one_pass_are_refused_once(behind: tuple[str, ...]) -> None:
    """Each of them may stand alone; SQL does not tell the names that they read apart."""
    operators: tuple[Operator, ...] = (
        Upsert("u", "i"),
        Linear("first", "u", (steps.where("x IS NULL"),)),
        Linear("second", "first", (steps.where("X IS NULL"),)),
        *(Linear(name, "second", (steps.where("y IS NULL"),)) for name in behind),
    )
    output = Output("o", operators[-1].name, "o")

    with pytest.raises(PlanError) as refused:
        checked(Plan("p", (Input("i", ("i",)),), operators, (output,)))

    ((path, problem),) = refused.value.problems
    assert path == "operators.second.where"
    assert "differ in case alone" in problem


def test_a_total_cannot_read_a_name_that_differs_in_case() -> None:
    """The arguments of aggregates run in the same pass as what they are of."""
    operators = (
        Upsert("u", "i"),
        Linear("first", "u", (steps.where("x IS NULL"),)),
        Reduce("n", "first", (("n", "count(X)"),), total=True),
    )

    with pytest.raises(PlanError) as refused:
        checked(Plan("p", (Input("i", ("i",)),), operators, (Output("o", "n", "o"),)))

    ((path, problem),) = refused.value.problems
    assert path == "operators.n"
    assert "differ in case alone" in problem


def test_a_long_chain_of_operators_is_found() -> None:
    """However many operators stand behind each other."""
    many = [
        Linear(f"l{at}", f"l{at - 1}" if at else "order", (steps.where("amount > 1"),))
        for at in range(3000)
    ]

    assert known(*OWN, *many).relation("l2999").scope == known(*OWN).relation("order").scope


def test_everything_takes_its_relations_from_one_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check, the physical plan, its joins and its explanation find each relation once."""
    made = sql_operators(
        "spent",
        'SELECT c.name, o.amount FROM "order" o JOIN customer c ON o.customer = c.id',
        KnownRelations((ORDERS, CUSTOMERS), OWN),
        None,
    )
    total = Reduce("total", "spent", (("sum", "sum(amount)"),), by="name")
    outputs = (Output("t", "total", "total"), Output("l", "large", "large"))
    plan = Plan("p", (ORDERS, CUSTOMERS), (*OWN, LARGE, *made, total), outputs)
    found: Counter[str] = Counter()
    for kind in {type(kind) for kind in KINDS.values()}:

        def counted(self: Any, operator: Any, of: Catalog, real: Any = kind.relation) -> Any:
            found[operator.name] += 1
            return real(self, operator, of)

        monkeypatch.setattr(kind, "relation", counted)

    checked(plan)
    planner.physical(plan)
    joined(plan)
    str(explained(plan))
    catalog_of(plan).keyed("total")

    assert found == Counter(operator.name for operator in plan.operators)


def test_a_condition_of_a_join_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a tree from then on: for what a view is made of, the join, its keys and its paths.

    What is computed of the rows that are joined, and what they are arranged by, is SQL of its own.
    """
    parsed: Counter[str] = Counter()

    def counted(statement: str, *values: Any) -> Any:
        if "json_serialize_sql" in statement:
            parsed[str(values[0]).removeprefix("SELECT ").strip()] += 1
        return rows_of(statement, *values)

    monkeypatch.setattr(syntax, "rows_of", counted)
    syntax.select_of.cache_clear()
    view = """
    SELECT c.name, o.amount FROM "order" o JOIN customer c
    ON o.customer + 12345 = c.id - 12345 AND o.day + 67890 > c.since
    """
    made = sql_operators("spent", view, KnownRelations((ORDERS, CUSTOMERS), OWN), None)
    plan = Plan("p", (ORDERS, CUSTOMERS), (*OWN, *made), (Output("t", "spent", "spent"),))
    checked(plan)
    planner.physical(plan)
    str(explained(plan))

    assert {text: n for text, n in parsed.items() if "12345" in text or "67890" in text} == {
        "((o.customer + 12345) = (c.id - 12345))": 1,
        '("o.customer" + 12345)': 1,
        '("c.id" - 12345)': 1,
        "(customer + 12345)": 1,
        "(id - 12345)": 1,
        '((o."day" + 67890) > c.since)': 1,
        '(("o.day" + 67890) > "c.since")': 1,
    }
