"""Live and ready, told by a clock that the test moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.processor.watching.health import BatchProgress, Health, HealthLimits
from support.clocks import Clock

LIMITS = HealthLimits(ready_within=60, stuck_after=900, start_within=3600)


def read(done: int, offered: int | None) -> BatchProgress:
    """A batch whose records need no exchange: what is read is closed."""
    return BatchProgress(done, offered, upper=done, closed=done)


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(LIMITS, clock)


def test_a_start_is_live_and_not_ready(health: Health, clock: Clock) -> None:
    """Fetching state may take long: the limit of start-up holds, not that of batches."""
    health.step("starting Spark")
    clock.passes(3600)

    assert health.live().good
    assert health.ready() == (False, "not ready: start-up has come to: starting Spark")
    assert health.lag_s is None


def test_a_start_that_hangs_is_not_live(health: Health, clock: Clock) -> None:
    """A start has its limit too, and says what it hangs at."""
    health.step("starting Spark")
    clock.passes(3601)

    live = health.live()

    assert not live.good
    assert live.reason == "stuck: 3601 s since start-up came to: starting Spark, limit 3600 s"


def test_each_step_of_a_start_is_a_sign_of_life(health: Health, clock: Clock) -> None:
    """The limit is one of each step."""
    for step in ("taking over the outputs", "starting Spark", "starting the query"):
        clock.passes(3000)
        health.step(step)
    clock.passes(3000)

    assert health.live().good


def test_an_idle_pipeline_is_live_and_ready(health: Health, clock: Clock) -> None:
    """No records for days is no reason for a restart, as long as it looks for some."""
    for _ in range(1000):
        health.idle()
        clock.passes(30)

    assert health.live().good
    assert health.ready() == (True, "ready: lag 30 s, limit 60 s")


def test_a_query_that_says_nothing_is_stuck(health: Health, clock: Clock) -> None:
    """Neither a batch nor a look for so long: a restart may help."""
    health.idle()
    clock.passes(900)
    assert health.live().good

    clock.passes(1)

    assert health.live() == (False, "stuck: 901 s since the last batch, limit 900 s")


def test_brokers_that_are_away_make_it_unready_before_it_is_restarted(
    health: Health, clock: Clock
) -> None:
    """An outage of minutes costs readiness, and no restart."""
    health.idle()
    clock.passes(300)

    assert not health.ready().good
    assert health.live().good


def test_a_batch_is_a_sign_of_life_while_there_is_a_backlog(health: Health, clock: Clock) -> None:
    """Batches go on for hours without it being ready, and without a restart."""
    for done in range(0, 10_000, 100):
        clock.passes(60)
        health.committed()
        health.batch(60, read(done, 20_000))

    assert health.live().good
    assert health.ready() == (False, "not ready: the backlog of the start is not done")


def test_what_there_was_when_a_batch_began_is_done_when_it_ends(
    health: Health, clock: Clock
) -> None:
    """The lag counts from the look at the topics, not from the commit."""
    clock.passes(100)
    health.batch(40, read(500, 500))

    assert health.lag_s == 40

    clock.passes(30)

    assert health.ready() == (False, "lag 70 s, limit 60 s")


def test_a_batch_of_before_a_restart_offers_no_moment(health: Health, clock: Clock) -> None:
    """It was minted by another run, hours ago perhaps: what came since is not known."""
    health.batch(1, read(500, None))

    assert health.lag_s is None
    assert not health.ready().good
    assert health.live().good


def test_an_ended_query_is_neither(health: Health) -> None:
    """A process that does not come to its end after its query is no use."""
    health.idle()
    health.end()

    assert health.live() == (False, "the query has ended")
    assert health.ready() == (False, "the query has ended")


_steps = st.tuples(
    st.integers(1, 9),  # seconds
    st.integers(0, 5),  # offsets read
    st.integers(0, 5),  # offsets that came in
    st.integers(0, 5),  # frontier
    st.booleans(),  # whether it looked
)


@given(st.lists(_steps, max_size=12))
def test_the_lag_is_that_of_the_newest_moment_all_of_which_is_published(
    steps: list[tuple[int, int, int, int, bool]],
) -> None:
    """As found by comparing every look with every batch since, for any course of events."""
    clock = Clock()
    health = Health(LIMITS, clock)
    done = there = closed = 0
    # When it began, offsets that there were, offsets read, its upper.
    batches: list[tuple[float, int | None, int, int]] = []
    for seconds, reads, comes, closes, looked in steps:
        begun = clock.now
        there += comes
        done = min(done + reads, there)
        closed = min(closed + closes, done)
        clock.passes(seconds)
        health.batch(seconds, BatchProgress(done, there if looked else None, done, closed))
        batches.append((begun, there if looked else None, done, done))

        published = [
            begun
            for at, (begun, offered, _, _) in enumerate(batches)
            if offered is not None
            for upper in [u for _, _, read, u in batches[at:] if read >= offered][:1]
            if upper <= closed
        ]
        expected = clock.now - max(published) if published else None
        assert health.lag_s == expected
