"""Steps that make many updates of one run in portions, and give what they give at once."""

import tracemalloc
from collections import Counter
from random import Random

import pytest

from ikebana import Column, Input, Linear, Output, Plan, Upsert
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import KeyedUpdate, Upserts
from ikebana.processor.engine import budget, dataflow
from ikebana.processor.engine.budget import GatheredUpdates
from ikebana.processor.linear.chain import AT_ONCE, Chain, ChainResult, Growing, in_portions
from ikebana.processor.linear.scope import KEY, VALUE, Scope
from ikebana.processor.linear.steps import Call, Sql
from ikebana.processor.planning import progress
from support.sums import summed

SCOPE = Scope({KEY: "JSON", VALUE: "JSON", "n": "BIGINT"})
UNNEST = Sql(flat_map=("each", "range(n)"), select=(("e", "each"),))


def update(at: int, n: int, diff: int = 1) -> KeyedUpdate:
    return KeyedUpdate(b"%d" % at, b'{"n":%d}' % n, 1, diff)


def repeat(data):  # type: ignore[no-untyped-def]
    key, value = data
    return [(key, at) for at in range(value["n"])]


def steps(*found: Sql | Call) -> Chain:
    return Chain([("many", each) for each in found], SCOPE)


def whole(passed: list[ChainResult]) -> Counter[tuple[bytes | None, bytes, int]]:
    updates = [update for part in passed for update in part.updates]
    return summed(((u.key, u.value, u.time), u.diff) for u in updates)


@pytest.mark.parametrize("step", [UNNEST, Call("flat_map", repeat)], ids=["sql", "python"])
def test_portions_give_what_one_pass_gives(step: Sql | Call) -> None:
    """Whatever each update comes to."""
    choice = Random(1)
    given = [update(at, choice.choice([0, 1, 2, 300])) for at in range(1_500)]
    chain = steps(step)

    passed = list(in_portions(chain, given))

    assert chain.expands
    assert len(passed) > 1
    assert whole(passed) == whole([chain.apply(given)])


def test_what_cancels_vanishes_over_the_passes_of_a_portion() -> None:
    """A change that shows nothing writes nothing, as in one pass."""
    given = [update(at, 3, diff) for diff in (1, -1) for at in range(100)]

    assert [each for passed in in_portions(steps(UNNEST), given) for each in passed.updates] == []


def test_errors_come_once() -> None:
    """From whichever portion an update is in."""
    given = [KeyedUpdate(b"%d" % at, b'{"n":"x"}', 1, 1) for at in range(100)]
    chain = steps(UNNEST)

    found = [error for passed in in_portions(chain, given) for error in passed.errors]

    assert sorted(found) == sorted(chain.apply(given).errors)
    assert len(found) == 100


def test_a_step_that_does_not_expand_is_one_pass() -> None:
    """Small batches cost what they did."""
    chain = steps(Sql(where=("n > 1",)))

    assert not chain.expands
    assert len(list(in_portions(chain, [update(at, 2) for at in range(AT_ONCE)]))) == 1


def test_a_few_that_come_to_millions_are_taken_one_at_a_time() -> None:
    """After the first ones nobody knows; what the others come to fits."""
    growing = Growing()
    growing.came(growing.most, growing.most * 1_000_000)
    assert growing.most == 1
    for _ in range(9):
        growing.came(growing.most, growing.most)
    assert growing.most == AT_ONCE


def test_what_all_come_to_is_never_there_at_once() -> None:
    """40 updates come to 10,000 each: at first one is taken, then five at a time."""
    given = [update(at, 10_000) for at in range(40)]

    sizes = [len(passed.updates) for passed in in_portions(steps(UNNEST), given)]

    assert sum(sizes) == 400_000
    assert max(sizes) <= 60_000


def peak_of(records: int, each: int) -> int:
    """The most memory that a batch takes in which so many records come to so many rows each."""
    plan = Plan(
        "p",
        (Input("rows", ("r",), columns=(Column("n", "BIGINT"),)),),
        (Upsert("row", "rows"), Linear("many", "row", (UNNEST,))),
        (Output("out", "many", "out"),),
    )
    values: list[bytes | None] = [b'{"n":%d}' % each] * records
    keys = [b"%d" % at for at in range(records)]
    rows = [Upserts("rows", 0, 0, 5, keys, values, list(range(records)))]
    intervals = {name: Interval(0, 10) for name in progress.edges(plan)}
    tracemalloc.start()
    found = dataflow.advance(plan, MemoryStore(), rows, intervals).updates["out"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(found) == records * each
    return peak


def test_a_batch_takes_the_memory_of_one_record_that_expands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What ten records come to lies in a file, but for that of the one that is at hand."""
    monkeypatch.setattr(budget, "_AT_ONCE", 500)
    monkeypatch.setattr(
        dataflow, "GatheredUpdates", lambda updates=(): GatheredUpdates(updates, most=1_000)
    )
    monkeypatch.setattr("ikebana.processor.linear.chain.AT_ONCE", 1_000)
    # What is compiled once is not counted.
    peak_of(1, 2_000)

    # The last portion is still there while the next one is made.
    assert peak_of(10, 2_000) < 2 * peak_of(1, 2_000)
