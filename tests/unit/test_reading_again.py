"""Inputs with times of their own are read again: each record counts as it has counted."""

from typing import Any

import msgspec
import pytest

from ikebana.errors import CheckpointError
from ikebana.processor.checkpoint.checkpoint import Logged
from ikebana.processor.checkpoint.describing_edits import describe
from ikebana.processor.checkpoint.next_step import Desired, Observed
from ikebana.processor.engine.testing.run import metadata_of
from ikebana.processor.topics import input_times
from ikebana.testing import Run
from support.edited_runs import collection, plan_of

SLIM = """
inputs:
  orders:
    topic: orders
    columns: {ms: BIGINT, n: BIGINT, note: VARCHAR}
    event_time: {of: ms, lateness: 5ms, ahead: 100ms}
operators:
  order: {upsert: orders}
  slim: {linear: order, select: {n: n}}
  sums: {reduce: slim, by: n, aggregates: {m: count(*)}}
outputs:
  slim: {from: slim, topic: slim}
  sums: {from: sums, topic: sums}
"""
WIDE = SLIM.replace("{n: n}", "{n: n, note: note}")
# One input has times of its own, and the other one gets those of the frontier.
BESIDE = """
inputs:
  orders: {topic: orders, columns: {n: BIGINT, note: VARCHAR}}
  clock: {topic: clock, event_time: {clock: kafka, ahead: never}}
operators:
  order: {upsert: orders}
  slim: {linear: order, select: {n: n}}
  tick: {upsert: clock}
outputs:
  slim: {from: slim, topic: slim}
  ticks: {from: tick, topic: ticks}
"""


class Twins:
    """A pipeline that is edited, and one that has always been what the other one becomes.

    Both read the same records in the same batches, so that the same ones are late.
    """

    def __init__(self, before: str, after: str, shards: int = 2) -> None:
        self.after = plan_of(after)
        self.run, self.always = Run(plan_of(before), shards=shards), Run(self.after)

    def send(self, key: Any, at: Any, n: Any, now: int) -> None:
        """A record, read by itself at that time of day."""
        for each in (self.run, self.always):
            each.topics.send("orders", key, {"ms": at, "n": n, "note": f"{at} {n}"})
            while each.batch(now_ms=now):
                pass

    def edit(self, limit: int) -> None:
        self.run.restart(self.after)
        while self.run.batch(now_ms=100_000, limit=limit):
            pass

    def check(self, outputs: tuple[str, ...]) -> None:
        upper = min(self.run.frontiers.values())
        assert upper == min(self.always.frontiers.values())
        for output in outputs:
            for time in range(self.since, upper):
                found = collection(self.run, output, time)
                assert found == collection(self.always, output, time), (output, time)
        assert collection(self.run, outputs[0], upper)

    @property
    def since(self) -> int:
        """When the outputs have become what they are."""
        return max(time for _, time, _ in self.run.updates("slim") if time <= self.at)

    at = 0


@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_record_is_late_again_that_was_late(limit: int, shards: int) -> None:
    """In the order of event times "a" would be 1, and "b" 3; what waits goes on waiting."""
    twins = Twins(SLIM, WIDE, shards)
    for key, at, n in [("a", 10, 1), ("b", 40, 2), ("a", 7, 4), ("b", 36, 3), ("c", 39, 5)]:
        twins.send(key, at, n, now=50)
    for key, at, n in [("c", 60, 6), ("a", 57, 7), ("a", 58, 8), ("d", 3, 9), ("e", 61, 1)]:
        twins.send(key, at, n, now=50)
    assert twins.run.counted["late"] == twins.always.counted["late"] == 2
    twins.at = twins.run.last.upper
    twins.edit(limit)
    assert twins.run.counted["late"] == 2
    for key, at, n in [("a", 58, 2), ("f", 50, 2), ("a", 70, 3), ("z", 90, 4), ("z", 99, 4)]:
        twins.send(key, at, n, now=50)

    twins.check(("slim", "sums", "errors"))
    assert twins.run.counted["late"] == twins.always.counted["late"]


def test_what_is_read_again_is_late_also_while_that_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is no end to the log as long as it is asked; nor does all wait until all is read."""
    twins = Twins(SLIM, WIDE)
    run, always = twins.run, twins.always
    for number in range(12):
        n = "no number" if number in (9, 10) else number
        twins.send(number % 5 + 10 * (n != number), 3 * number, n, now=1_000)
    monkeypatch.setattr(input_times, "MOST_JUDGED", 1)
    twins.at = run.last.upper
    run.restart(twins.after)
    reached = set()
    for number in range(30):
        at = 40 + 3 * number - (20 if number % 3 else 0)
        for each in (run, always):
            row = {"ms": at, "n": number, "note": "new"}
            each.topics.send("orders", number % 5, row)
            assert each.batch(now_ms=1_000, limit=1)
        reached |= {
            run.last.upper - (t.again or 0) for t in run.last.input_times.values() if t.again
        }
    assert len(reached) > 3
    assert run._next is not None
    assert run.waiting == always.waiting
    while run.batch(now_ms=1_000):
        pass
    assert run._next is None
    twins.at = run.last.upper
    for at in (300, 301):
        twins.send("z", at, 1, now=1_000)

    assert run.counted["late"] == always.counted["late"] > 15
    assert len(run.errors()) == 2
    twins.check(("slim", "sums", "errors"))


def test_a_batch_may_read_what_was_and_what_comes() -> None:
    """Each of both is late or not by the frontier at which it was read first."""
    twins = Twins(SLIM, WIDE)
    for key, at, n in [("a", 10, 1), ("a", 40, 2), ("b", 44, 2), ("c", 45, 3)]:
        twins.send(key, at, n, now=50)
    twins.at = twins.run.last.upper
    twins.run.restart(twins.after)
    for key, at, n in [("a", 20, 5), ("c", 49, 6), ("z", 90, 1), ("z", 91, 1)]:
        twins.send(key, at, n, now=50)

    assert (twins.run.counted["late"], twins.always.counted["late"]) == (1, 1)
    twins.check(("slim", "sums"))
    assert ("a", {"n": 5, "note": "20 5"}) in twins.run.collection("slim")


@pytest.mark.parametrize("limit", [1, 100])
def test_what_was_too_far_ahead_or_had_no_time_still_has_none(limit: int) -> None:
    """By now the clock has come further; records of the same batches were as far ahead of it."""
    twins = Twins(SLIM, WIDE)
    for key, at, n in [("a", 10, 1), ("p", 300, 2), ("b", 40, 2), ("q", None, 3), ("c", "x", 1)]:
        twins.send(key, at, n, now=50)
    twins.send("f", 120, 3, now=90)
    twins.at = twins.run.last.upper
    twins.edit(limit)
    for key, at, n in [("d", 200, 2), ("z", 300, 4), ("z", 301, 4)]:
        twins.send(key, at, n, now=5_000)

    twins.check(("slim", "sums", "errors"))
    assert len(twins.run.errors()) == len(twins.always.errors()) == 3


@pytest.mark.parametrize("limit", [1, 100])
def test_rows_that_get_the_times_of_others_are_read_again_while_time_stands(limit: int) -> None:
    run = Run(plan_of(BESIDE), shards=2)
    wide = plan_of(BESIDE.replace("{n: n}", "{n: n, note: note}"))

    def tick(time: int) -> None:
        run.topics.send("clock", "tick", {}, timestamp=time)
        run.read(limit=limit)

    for number in range(7):
        run.topics.send("orders", number % 3, {"n": number, "note": f"note {number}"})
        run.topics.send("orders", 7, {"n": "none"})
        tick(10 * number)
    before = run.collection("slim")
    run.restart(wide)
    run.read(limit=limit)
    # The difference is of a time that is not closed yet.
    assert run.collection("slim") == before
    tick(90)
    tick(100)

    assert sorted(run.collection("slim")) == [
        (key, {"n": n, "note": f"note {n}"}) for key, n in ((0, 6), (1, 4), (2, 5))
    ]
    assert len(run.errors()) == 1


@pytest.mark.parametrize("time", ["ingest", "offset"])
def test_an_input_that_began_at_its_end_is_read_again_from_there(time: str) -> None:
    """What the topic had before has never been in the pipeline."""
    text = "\n".join(line for line in BESIDE.splitlines() if "clock" not in line)
    text = text.replace("  ticks: {from: tick, topic: ticks}", "")
    text = text.replace("topic: orders,", "topic: orders, start: latest,")
    earlier = Run(plan_of(text, time))
    earlier.topics.send("orders", "old", {"n": 1, "note": "old"})
    run = Run(plan_of(text, time), earlier.topics)
    run.topics.send("orders", "new", {"n": 2, "note": "new"})
    run.read()
    # What the file says of the start counts for new checkpoints only.
    wide = text.replace("{n: n}", "{n: n, note: note}").replace(" start: latest,", "")
    run.restart(plan_of(wide, time))
    run.read()

    assert run.collection("slim") == [("new", {"n": 2, "note": "new"})]


@pytest.mark.parametrize("time", ["ingest", "offset"])
def test_an_input_that_an_edit_adds_begins_at_its_end_and_is_read_again_from_there(
    time: str,
) -> None:
    """Where that was is logged with the first batch of the edit, whatever is read by then."""
    text = """
inputs:
  first: {topic: first}
  orders: {topic: orders, start: latest, columns: {n: BIGINT, note: VARCHAR}}
operators:
  rows: {upsert: first}
  order: {upsert: orders}
  slim: {linear: order, select: {n: n}}
outputs:
  rows: {from: rows, topic: rows}
  slim: {from: slim, topic: slim}
"""
    without = [line for line in text.splitlines() if not any(w in line for w in ("order", "slim"))]
    run = Run(plan_of("\n".join(without), time))
    for number in range(4):
        run.topics.send("first", number, number)
        run.topics.send("orders", "old", {"n": number, "note": "old"})
    assert run.batch(limit=1)
    run.restart(plan_of(text, time))
    run.crash(limit=1)
    run.send("orders", "new", {"n": 7, "note": "new"})
    run.read(limit=1)
    assert run.collection("slim") == [("new", {"n": 7})]
    assert len(run.collection("rows")) == 4
    run.restart(plan_of(text.replace("{n: n}", "{n: n, note: note}"), time))
    run.read(limit=1)

    assert run.collection("slim") == [("new", {"n": 7, "note": "new"})]


@pytest.mark.parametrize("text", [SLIM, BESIDE], ids=["event time", "stamped"])
def test_errors_without_a_key_are_told_once(text: str) -> None:
    """Nothing retracts them, so they are not made again."""
    run = Run(plan_of(text))
    topics = run.topics

    def tick(time: int) -> None:
        topics.send("orders", 1, {"ms": time, "n": 1, "note": "x"})
        topics.send("orders", b"{", {"ms": time, "n": 1, "note": "x"})
        topics.create("clock")
        topics.send("clock", "tick", {}, timestamp=time)
        while run.batch(now_ms=1_000):
            pass

    for time in (10, 20):
        tick(time)
    assert len(run.errors()) == 2
    run.restart(plan_of(text.replace("{n: n}", "{n: n, note: note}")))
    for time in (30, 40, 50):
        tick(time)

    assert run.collection("slim") == [(1, {"n": 1, "note": "x"})]
    assert len(run.errors()) == 5


def refused(run: Run, text: str) -> str:
    with pytest.raises(CheckpointError) as caught:
        run.restart(plan_of(text))
    return f"{caught.value} {caught.value.hint}"


def started() -> Run:
    run = Run(plan_of(SLIM))
    for at in (10, 90, 30, 95, 31, 99, 32):
        run.topics.send("orders", at, {"ms": at, "n": 1, "note": "x"})
        while run.batch(now_ms=100):
            pass
    return run


def test_what_is_not_known_of_the_first_time_is_said() -> None:
    """By the plan command, too, before anything is edited."""
    run = started()
    full = input_times.ReadingLog(is_full=True)
    known = {
        name: msgspec.structs.replace(t, log=full) for name, t in run.last.input_times.items()
    }
    last = run.last
    run.last = msgspec.structs.replace(last, input_times=known)
    told = refused(run, WIDE)
    assert "inputs.orders would have to be read again: more of its records were late" in told
    assert "Read a copy of its topic by a new input" in told
    metadata = metadata_of(run.plan, 1, run.last, {"orders": {0: 0}})
    logged = Logged(run.last, run.last.batch, run.last.batch)
    (refusal,) = describe("c", Observed(metadata, logged), Desired(plan_of(WIDE), 1)).refused
    assert refusal.path == "inputs.orders"
    assert "more of its records were late" in refusal.reason
    run.last = last
    logged = Logged(last, last.batch, last.batch)
    assert not describe("c", Observed(metadata, logged), Desired(plan_of(WIDE), 1)).refused
    run.restart(plan_of(WIDE))


def test_a_log_of_late_records_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_times, "MOST_JUDGED", 1)
    run = started()
    assert "more of its records were late than are logged" in refused(run, WIDE)
    # What needs none of it goes.
    run.restart(plan_of(SLIM.replace("m: count(*)", "m: count(*), s: sum(n)")))
    run.read()


@pytest.mark.parametrize(
    "changed",
    [
        SLIM.replace("of: ms", "of: ms + 1").replace("{n: n}", "{n: n, note: note}"),
        SLIM.replace("ms: BIGINT", "ms: INTEGER"),
        SLIM.replace("ahead: 100ms", "ahead: 200ms"),
    ],
    ids=["expression", "type", "ahead"],
)
def test_rows_that_would_get_other_times_are_not_read_again(changed: str) -> None:
    assert "get their event times otherwise" in refused(started(), changed)


def test_what_waits_keeps_its_place_when_inputs_before_it_go() -> None:
    """Of equal times the later record counts last; what cannot follow is told with its topic."""
    dated = "event_time: {clock: kafka, ahead: never}"
    text = f"""
inputs:
  first: {{topic: first, {dated}}}
  events: {{topic: events, {dated}}}
operators:
  rows: {{upsert: first}}
  status: {{state_machine: events, step: 'machines:next_status'}}
outputs:
  rows: {{from: rows, topic: rows}}
  status: {{from: status, topic: status}}
"""
    run = Run(plan_of(text))
    run.topics.send("first", 1, "x", timestamp=5)
    run.topics.send("events", 1, "place", timestamp=9)
    run.topics.send("events", 2, "ship", timestamp=9)
    run.read()
    assert run.waiting == 3
    without = [line for line in text.splitlines() if "first" not in line and "rows" not in line]
    run.restart(plan_of("\n".join(without)))
    run.topics.send("events", 1, "pay", timestamp=9)
    run.topics.send("events", 3, "place", timestamp=20)
    run.read()

    assert run.collection("status") == [(1, "paid")]
    assert [(error["topic"], error["offset"]) for error in run.errors()] == [("events", 1)]
