"""Which records a batch reads and what it learns: the corners of minting, each by itself."""

from typing import Any

import msgspec
import pytest

from ikebana import EventTime, Input, Output, Plan
from ikebana.codecs.diff import pack_times
from ikebana.processor.base.rows import TimesReport
from ikebana.processor.base.transition import Phase, Replayed, Transition
from ikebana.processor.topics import batch_selection, event_time
from ikebana.processor.topics.batch_selection import ClosedProgress, DiffSpan, MintingState
from ikebana.processor.topics.event_time import EventTimes, TimeBounds
from ikebana.processor.topics.input_times import ShardReports, after_reports
from ikebana.processor.topics.reclock import BatchTrigger, Edited, mint
from ikebana.processor.topics.source_offset import SourceOffset
from support.histories import WITH_PAIRS, offset, record


def closed(*batches: tuple[int, int]) -> list[ClosedProgress]:
    """Progress records by their upper, with the end of the topic's one partition."""
    return [
        ClosedProgress(record(at, upper=upper, ends={0: end}), at + 1)
        for at, (upper, end) in enumerate(batches)
    ]


THREE = closed((5, 10), (10, 20), (20, 40))


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        pytest.param(5, 10, DiffSpan({0: 20}, {0: 20}, 2), id="a batch of the topic"),
        pytest.param(5, 7, DiffSpan({0: 20}, {0: 10}, 1), id="a part: the next reads it again"),
        pytest.param(7, 10, DiffSpan({0: 20}, {0: 20}, 2), id="the rest of it"),
        pytest.param(5, 20, DiffSpan({0: 40}, {0: 40}, 3), id="two batches"),
        pytest.param(0, 3, DiffSpan({0: 10}, None, None), id="within the first"),
        pytest.param(10, 10, DiffSpan({}, {0: 20}, 2), id="time stands still"),
    ],
)
def test_what_a_batch_reads_of_a_diff_topic(lower: int, upper: int, expected: DiffSpan) -> None:
    """R10. Up to the first progress at or behind its upper, from the last at or before."""
    assert batch_selection.span(THREE, upper, lower) == expected


@pytest.mark.parametrize(
    ("lower", "limit", "expected"),
    [
        pytest.param(0, None, 20, id="no limit"),
        pytest.param(0, 20, 10, id="as much as fits"),
        pytest.param(0, 19, 5, id="one less"),
        pytest.param(0, 1, 5, id="one batch at least"),
        pytest.param(5, 35, 10, id="what is read counts"),
        pytest.param(20, None, 20, id="nothing closed since"),
    ],
)
def test_how_far_the_read_limit_lets_go(lower: int, limit: int | None, expected: int) -> None:
    """R10. The limit is met by an upper among those of the progress."""
    positions = {0: 0}

    assert batch_selection.reach_of_topic(THREE, positions, lower, limit) == expected


@pytest.mark.parametrize("lower", [0, 5], ids=["no row is late", "one is"])
def test_the_greatest_time_is_not_the_last(lower: int) -> None:
    """R9. Times come in no order; the frontier is made of the greatest."""
    bounds = [TimeBounds(lower, None)] * 3
    known = event_time.merged({"t": {0: 5, 1: 7}}, {"t": {0: 3, 1: 9}, "u": {0: 1}})
    dated = EventTimes(None).of_rows([None] * 3, [b"{}"] * 3, [4, 9, 6], bounds)

    assert known == {"t": {0: 5, 1: 9}, "u": {0: 1}}
    assert dated.greatest == 9


def test_the_greatest_time_of_a_tombstone_moves_nothing() -> None:
    """R9. Nor does one that is too far ahead."""
    rows = [b"{}", b"{}", None]
    found = EventTimes(None).of_rows([None] * 3, rows, [4, 90, 9], [TimeBounds(0, 50)] * 3)

    assert found.times == [4, "event time is too far ahead of the clock", 9]


FACTS = Plan(
    "p",
    (Input("facts", ("facts",), "cdcv2-json", mode="diffs"),),
    (),
    (Output("out", "facts", "out"),),
)


def test_what_a_batch_has_found_is_learned_after_it() -> None:
    """R9. New facts of all shards are added up; statements say how many there are."""
    facts = [{"facts": pack_times({3: 2})}, {"facts": pack_times({3: 1, 4: 1})}]

    found = after_reports(FACTS, {}, ShardReports(3, facts=facts), {}, {"facts": {0: 1}}, {})

    coverage = found["facts"].coverage
    assert coverage is not None
    assert coverage.counts == pack_times({3: 3, 4: 1})


def test_what_is_known_is_of_the_batches_before() -> None:
    """R9. The least of the partitions, less the lateness; one that was not seen holds it."""
    event = EventTime(clock="kafka", lateness_ms=2, ahead_ms=None)
    plan = Plan(
        "p",
        (Input("a", ("a",), "diff", mode="diffs"), Input("b", ("b",), event_time=event)),
        (),
        (Output("out", "a", "out"),),
    )
    seen = [TimesReport("b", "b", 0, greatest=9), TimesReport("b", "b", 0, greatest=6)]

    both = [*seen, TimesReport("b", "b", 1, greatest=7)]
    frontiers = [
        after_reports(plan, {}, ShardReports(3, told), {}, {"b": {0: 9, 1: 9}}, {})["b"].frontier
        for told in (seen, both)
    ]

    assert frontiers == [0, 5]


def exchanging(**changed: Any) -> SourceOffset:
    """The last batch of a join; all its operators are at 4."""
    return msgspec.structs.replace(offset(3, WITH_PAIRS), exchanges={0: 0, 1: 0}, **changed)


JOINS = Transition(at=4, phase=Phase.JOIN, takes=True, joins=["pairs"])
TO_READ = MintingState({"orders": {0: 50}}, {"orders": {0: 0}}, exchanges={0: 1, 1: 9})


def test_a_batch_that_takes_a_portion_of_what_exchanges_reads_nothing_else() -> None:
    """R2, R13. The source waits, time stands still, and every shard takes some."""
    last = exchanging()

    found = mint(WITH_PAIRS, last, TO_READ, BatchTrigger(99, most_exchanges=2))

    assert found.batch == last.batch + 1
    assert found.positions == last.positions
    assert found.upper == last.upper
    assert found.exchanges == {0: 1, 1: 2}
    assert set(found.frontiers.values()) == {last.upper}


def test_what_is_finished_reads_nothing_and_ends() -> None:
    """What was exchanged is taken, and time stands still, until all operators are level."""
    last = exchanging(frontiers={**exchanging().frontiers, "pairs": 1})

    found = mint(WITH_PAIRS, last, TO_READ, BatchTrigger(99), Edited(finishes=True))

    assert found.batch == last.batch + 1
    assert found.positions == last.positions
    assert (found.upper, found.exchanges, found.behind) == (last.upper, {0: 1, 1: 9}, 46)
    assert (
        mint(WITH_PAIRS, exchanging(), TO_READ, BatchTrigger(99), Edited(finishes=True))
        == exchanging()
    )


def test_the_last_portion_lets_the_source_go_on() -> None:
    """R13. What is left fits into the batch."""
    found = mint(WITH_PAIRS, exchanging(), TO_READ, BatchTrigger(99, most_exchanges=10))

    assert found.exchanges == {0: 1, 1: 9}
    assert found.positions == {"orders": {0: 50}}


@pytest.mark.parametrize(
    ("most", "hydrates", "left"),
    [
        pytest.param(10, True, {"pairs": 4}, id="all exchanges are taken"),
        pytest.param(9, False, {"pairs": 4}, id="some are left"),
    ],
)
def test_a_new_join_gets_more_when_nothing_is_left_of_what_it_got(
    *, most: int, hydrates: bool, left: dict[str, int]
) -> None:
    """R16. In portions: what is found goes through the exchange topic."""
    last = exchanging(transition=JOINS)

    found = mint(WITH_PAIRS, last, TO_READ, BatchTrigger(99, most_exchanges=most))

    assert (found.transition.takes, found.transition.join_times) == (hydrates, left)


@pytest.mark.parametrize(("most", "left"), [(10, {}), (9, {"pairs": 4})])
def test_a_new_join_has_begun_when_what_it_got_is_taken(most: int, left: dict[str, int]) -> None:
    """R16. What is still in the exchange topic may be of its first time."""
    last = exchanging(transition=JOINS)
    look = TO_READ._replace(replayed=Replayed(["pairs"]))

    found = mint(WITH_PAIRS, last, look, BatchTrigger(99, most_exchanges=most))

    assert found.transition.join_times == left
