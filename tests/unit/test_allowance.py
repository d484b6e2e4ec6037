"""A batch reads less than settings allow, where more would take too long or too much memory."""

import time
from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from ikebana import DeltaJoin, JoinInput
from ikebana.processor.planning.plan import Input, Output, Plan, Upsert
from ikebana.processor.topics.batch_selection import FIRST, FIRST_JOINED, MOST_BYTES, Allowance
from ikebana.processor.topics.source_offset import SourceOffset
from support.clocks import Clock

PLAIN = Plan(
    "shop",
    (Input("orders", ("orders",)),),
    (Upsert("order", "orders"),),
    (Output("o", "order", "d"),),
)
PAIRS = DeltaJoin(
    "pairs",
    (JoinInput("a", "order"), JoinInput("b", "order")),
    ("a.value = b.value",),
    (("one", "a.key"),),
)
JOINED = Plan("shop", PLAIN.inputs, (*PLAIN.operators, PAIRS), PLAIN.outputs)
BEGIN = SourceOffset(-1, 0, 0, {"orders": {0: 0}}, "")


class Batches:
    """Batches of a backlog without end, each of which reads what it may."""

    def __init__(
        self,
        plan: Plan,
        most: int = 250_000,
        most_exchanges: int = 400,
        max_batch_s: float = 300.0,
    ) -> None:
        self.clock = Clock()
        self.allowance = Allowance(plan, max_batch_s, most, most_exchanges, self.clock)
        self.last = BEGIN

    def run(
        self,
        took_s: Callable[[int], float],
        size: int = 100,
        records: int | None = None,
        exchanges: int = 0,
    ) -> int:
        """Run a batch; return how many records it has read."""
        count = self.allowance.records if records is None else records
        at, exchanged = self.last.positions["orders"][0], self.last.exchanges.get(0, 0)
        found = replace(
            self.last,
            batch=self.last.batch + 1,
            positions={"orders": {0: at + count}},
            exchanges={0: exchanged + exchanges},
        )
        self.allowance.minted(self.last, found)
        self.clock.now += took_s(count + exchanges)
        self.last = found
        self.allowance.done(found, size * count)
        return count


def quick(records: int) -> float:
    return 0.2 + records / 60_000


def test_usual_records_are_soon_read_as_the_settings_say() -> None:
    """The first batch is small, and each one four times the one before."""
    batches = Batches(PLAIN)

    assert [batches.run(quick) for _ in range(5)] == [FIRST, 100_000, 250_000, 250_000, 250_000]


def test_a_join_begins_with_fewer() -> None:
    """What each record meets is not known yet."""
    assert Batches(JOINED).run(quick) == FIRST_JOINED


def test_a_small_limit_is_kept() -> None:
    """What the settings allow is never exceeded, and may be a single record."""
    batches = Batches(JOINED, most=1)

    assert [batches.run(quick) for _ in range(3)] == [1, 1, 1]


def test_a_batch_takes_about_a_tenth_of_what_it_may() -> None:
    """Records that take 10 ms each are read 3,000 at a time, whatever the settings allow."""
    batches = Batches(PLAIN)

    def slow(records: int) -> float:
        return records * 0.01

    counts = [batches.run(slow) for _ in range(6)]

    assert counts[0] == FIRST
    assert all(2_900 <= count <= 3_100 for count in counts[1:])


def test_what_arrives_slowly_and_is_slow_does_not_grow_to_the_limit() -> None:
    """Ten records of a second each say what a thousand would take."""
    batches = Batches(JOINED)
    for _ in range(5):
        batches.run(quick)
    batches.run(lambda records: records * 1.0, records=10)

    assert batches.allowance.records <= 40


def test_one_record_that_takes_too_long_is_read_alone() -> None:
    """There is no batch without a record, and it grows again when records are quick."""
    batches = Batches(JOINED)
    batches.run(lambda records: records * 1000.0)

    assert batches.allowance.records == 1
    assert [batches.run(quick) for _ in range(3)][-1] > 1


@pytest.mark.parametrize("each_s", [0.4, 1.1, 1.4])
def test_what_a_batch_takes_whatever_it_reads_is_no_reason_to_read_less(each_s: float) -> None:
    """A busy machine, or a short `run.max_batch`, leaves a backlog that is read all the same."""
    batches = Batches(PLAIN, most=4_000, max_batch_s=3.0)

    def busy(records: int) -> float:
        return each_s + records / 60_000

    batches.run(lambda _: 29.5)
    batches.run(lambda _: 31.0)
    batches.run(lambda _: 9.2)
    counts = [batches.run(busy) for _ in range(100)]

    assert counts[0] < 10
    assert counts[-1] > 1_000


def test_a_machine_that_is_now_and_then_busy_reads_a_backlog() -> None:
    """Batches that take 5 or 40 s whatever they read say little of their records."""
    read = 0
    for seed in range(6):
        batches, choice = Batches(PLAIN, most=4_000, max_batch_s=60.0), Random(seed)
        batches.run(lambda _: 58.0, records=19)
        for _ in range(40):
            took_s = choice.uniform(5, 40)
            read += batches.run(lambda records, took_s=took_s: took_s + records / 600)  # type: ignore[misc]

    assert read > 20_000


def test_records_that_take_too_long_do_not_pass_for_a_busy_machine() -> None:
    """Even if nothing but small batches of them has been seen, none comes near its end."""
    batches = Batches(JOINED)
    took: list[float] = []

    def dear(records: int) -> float:
        took.append(records * 20.0)
        return took[-1]

    batches.run(dear)
    for _ in range(50):
        batches.run(dear)

    assert max(took[1:]) <= 170.0


def test_batches_without_records_say_nothing_of_what_records_take() -> None:
    """While nothing comes, frontiers go on: ten records that were slow are still known to be."""
    batches = Batches(PLAIN)
    batches.run(quick)
    batches.run(lambda records: records * 10.0, records=10)
    known = batches.allowance.records
    for _ in range(10):
        batches.run(quick, records=0)

    assert batches.allowance.records == known == 16


def test_the_start_of_a_run_is_not_what_its_first_record_takes() -> None:
    """On a busy machine the first batch takes half a minute, of which a record takes nothing."""
    batches = Batches(PLAIN)
    batches.run(lambda _: 25.0, records=1)

    assert batches.allowance.records == FIRST
    batches.run(lambda records: records * 10.0, records=10)
    assert batches.allowance.records == 16


def test_what_batches_take_that_read_nothing_is_not_of_records() -> None:
    """On a busy machine every batch takes ten seconds; only what is more counts."""
    batches = Batches(PLAIN)
    batches.run(lambda _: 10.0)
    batches.run(lambda _: 10.0, records=0)
    at_first = batches.allowance.records
    counts = [batches.run(lambda records: 10.0 + records / 10_000) for _ in range(4)]

    assert counts[0] == at_first
    assert counts == sorted(counts)
    assert 200_000 <= counts[-1] <= 250_000


def test_exchanges_are_read_by_what_they_take() -> None:
    """Their share is one of its own: slow lookups do not make reading slow, nor the reverse."""
    batches = Batches(PLAIN)
    for _ in range(4):
        batches.run(quick)
    assert batches.allowance.exchanges == 400
    batches.run(lambda messages: messages * 1.0, records=0, exchanges=100)

    assert batches.allowance.exchanges == 30
    assert batches.allowance.records == 250_000


def test_large_records_are_read_fewer_at_a_time() -> None:
    """Their bytes bound a batch."""
    batches = Batches(PLAIN)
    counts = [batches.run(quick, size=10_000) for _ in range(20)]

    assert max(counts) * 10_000 <= MOST_BYTES
    assert counts[-1] > 20_000


def test_a_start_that_goes_on_measures_nothing_before_its_first_batch() -> None:
    """The batch that a start finds was not timed by it."""
    allowance = Allowance(PLAIN, 300.0, 250_000, 400, time.monotonic)
    allowance.done(BEGIN, 10**12)

    assert allowance.records == FIRST
