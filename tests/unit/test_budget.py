"""A batch that cannot end in its time is refused early; the key at fault is told by its hash."""

import pytest

from ikebana import Column, DeltaJoin, Input, JoinInput, Linear, Output, Plan, Upsert, steps
from ikebana.arrangements.store import MemoryStore, PrefixStore
from ikebana.arrangements.update import Interval
from ikebana.errors import TooMuchError
from ikebana.processor.base.rows import KeyedUpdate, Upserts
from ikebana.processor.base.sharding import LEAST, Hot, hash_of
from ikebana.processor.engine import dataflow
from ikebana.processor.engine.budget import Budget
from ikebana.processor.engine.dataflow import NOTHING_BESIDE, Beside
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.half_join import LookupRow, half_join
from ikebana.processor.planning import progress
from ikebana.processor.spark.failures import is_transient, own_error_in
from support.clocks import Clock


def arranged(rows: int) -> Arrangement:
    """A key with so many rows, and one with a single row."""
    found = Arrangement(PrefixStore(MemoryStore(), b"a"), Interval(0, 10), 0)
    found.update([KeyedUpdate(b'"hot"', b"%d" % at, 1, 1) for at in range(rows)])
    found.update([KeyedUpdate(b'"cold"', b"0", 1, 1)])
    return found


def lookups(key: bytes, count: int) -> list[LookupRow]:
    return [LookupRow(key, at, 5, 1, sees_equal=False) for at in range(count)]


def test_a_product_that_no_batch_can_write_is_refused_before_it_is_made() -> None:
    """100,000 rows on both sides would be 10,000,000,000 results: nothing of them is made."""
    budget = Budget(300.0)
    matches = half_join(arranged(20_000), lookups(b'"hot"', 5_000), watcher=budget.of("priced"))

    with pytest.raises(TooMuchError) as raised:
        next(matches)

    told = str(raised.value)
    assert 'operator "priced" has more results in this batch than it can write' in told
    assert hash_of(b'"hot"') in told
    assert '"hot"' not in told
    assert "100,000,000 results" in told
    assert "Raise run.max_batch" in told


def test_portions_of_lookups_add_up() -> None:
    """Half joins take 5,000 lookups at a time; the bound is that of the batch."""
    matches = half_join(
        arranged(200), lookups(b'"hot"', 20_000), watcher=Budget(10.0).of("priced")
    )

    with pytest.raises(TooMuchError):
        for _ in matches:
            pass


def test_a_batch_whose_time_is_over_ends() -> None:
    """Whatever was expected of it; the error has the key with the most matches."""
    clock = Clock()
    budget = Budget(300.0, clock)
    of = budget.of("priced")
    of.met(b'"hot"', 5_000)
    clock.now += 301

    with pytest.raises(TooMuchError, match=hash_of(b'"hot"')):
        of.spend()


def test_usual_lookups_are_not_noted() -> None:
    """Only keys that meet 1,000 rows and more are; the one with the most is told."""
    budget = Budget(300.0)
    of = budget.of("priced")
    rows = arranged(1_500)

    assert len(list(half_join(rows, lookups(b'"cold"', 900), watcher=of))) == 900
    assert budget.hot() == []
    assert len(list(half_join(rows, lookups(b'"hot"', 2), watcher=of))) == 3_000
    assert budget.hot() == [Hot("matches", "priced", 3_000, 3_000, hash_of(b'"hot"'))]
    assert len(list(half_join(rows, lookups(b'"hot"', 1), watcher=of))) == 1_500
    assert budget.hot() == [Hot("matches", "priced", 4_500, 4_500, hash_of(b'"hot"'))]


def test_without_a_limit_nothing_is_refused() -> None:
    """In process there are no transactions that end."""
    matches = half_join(arranged(2_000), lookups(b'"hot"', 200), watcher=Budget().of("priced"))

    assert sum(1 for _ in matches) == 400_000


BY_KEY = DeltaJoin(
    "both",
    (JoinInput("a", "left"), JoinInput("b", "right")),
    ("a.key = b.key",),
    (("one", "a.value"), ("other", "b.value")),
)
PLAN = Plan(
    "p",
    (Input("lefts", ("l",)), Input("rights", ("r",))),
    (Upsert("left", "lefts"), Upsert("right", "rights"), BY_KEY),
    (Output("out", "both", "out"),),
)


def batch(budget: Budget | None, count: int) -> dataflow.Emitted:
    """A batch in which so many rows of two inputs meet by their keys."""
    keys = [b"%d" % at for at in range(count)]
    rows = [
        Upserts(name, order, 0, 5, keys, [b"1"] * count, list(range(count)))
        for order, name in enumerate(["lefts", "rights"])
    ]
    intervals = {name: Interval(0, 10) for name in progress.edges(PLAN)}
    beside = Beside(budget=budget)
    return dataflow.advance(PLAN, MemoryStore(), rows, intervals, beside=beside)


def test_a_batch_has_its_budget_and_tells_what_it_has_taken() -> None:
    """Both come through the operators of a plan."""
    told = batch(Budget(300.0), LEAST).hot

    assert {(hot.kind, hot.of, hot.count) for hot in told} == {
        ("records", "lefts", LEAST),
        ("records", "rights", LEAST),
    }
    hurried = Clock()
    budget = Budget(300.0, hurried)
    hurried.now += 301
    with pytest.raises(TooMuchError, match='operator "both"'):
        batch(budget, 5)


def test_steps_that_expand_end_with_their_time() -> None:
    """A record comes to any number of rows: only between portions it shows that it is too much."""
    expands = Linear("many", "left", (steps.unnest("e", "range(n)"), steps.project("e")))
    plan = Plan(
        "p",
        (Input("lefts", ("l",), columns=(Column("n", "BIGINT"),)),),
        (Upsert("left", "lefts"), expands),
        (Output("out", "many", "out"),),
    )
    rows = [Upserts("lefts", 0, 0, 5, [b"1", b"2"], [b'{"n":60}'] * 2, [0, 1])]
    intervals = {name: Interval(0, 10) for name in progress.edges(plan)}

    def batch(budget: Budget) -> dataflow.Emitted:
        return dataflow.advance(plan, MemoryStore(), rows, intervals, beside=Beside(budget=budget))

    assert len(batch(Budget(300.0)).updates["out"]) == 120
    clock = Clock()
    budget = Budget(300.0, clock)
    clock.now += 301
    with pytest.raises(TooMuchError, match='make of "left" in this batch') as raised:
        batch(budget)
    assert "Raise run.max_batch" in str(raised.value)


def test_batches_without_a_budget_do_not_share_one() -> None:
    """What one has met is not told of the next, nor kept for ever: each batch makes its own."""
    assert NOTHING_BESIDE.budget is None
    assert batch(None, 5).hot == []


def test_a_start_does_not_repeat_what_cannot_end() -> None:
    """The error comes by its name through Spark, with its remedy, and ends the run."""
    with pytest.raises(TooMuchError) as raised:
        Budget(1.0).expect("priced", b'"hot"', 10**10)
    told = f"Traceback\nikebana.errors.TooMuchError: {raised.value}\n\n\tat org.apache.spark"

    found = own_error_in(told)

    assert isinstance(found, TooMuchError)
    assert found.hint is not None
    assert found.hint.startswith("Raise run.max_batch")
    assert not is_transient(found)
