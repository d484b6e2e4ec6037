"""What an edit gives an output at its time is written in portions, and closed as a whole."""

from collections.abc import Iterator

import pytest

from ikebana.processor.base import diff_reader
from ikebana.processor.base.diff_reader import ClosedBatch
from ikebana.processor.base.verify import Verifier
from ikebana.processor.engine import replaying
from ikebana.testing import Run
from support.edited_runs import collection, plan_of
from unit.test_live_edits import JOINED, LARGE, LARGER, ORDERS, WITHOUT, changes, started

EDITS = [
    pytest.param(ORDERS, WITHOUT, "named", id="an output of all rows"),
    pytest.param(ORDERS, LARGE, "large", id="an output that is added"),
    pytest.param(LARGE, LARGER, "large", id="a filter that changes"),
    pytest.param(WITHOUT, JOINED, "named", id="a join in place of rows"),
]


@pytest.fixture(autouse=True)
def _portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "PORTION", 1)


@pytest.mark.parametrize(("before", "after", "output"), EDITS)
@pytest.mark.parametrize("time", ["offset", "ingest"])
@pytest.mark.parametrize("dies", [False, True])
def test_readers_get_portions_as_one_batch(
    before: str, after: str, output: str, time: str, *, dies: bool
) -> None:
    """Whatever dies: no progress says anything of a portion, and the last one counts them all."""
    run, always = started(before, time), started(after, time)
    at, portions = run.last.upper, 0
    run.restart(plan_of(after, time))
    for number, (topic, key, value) in enumerate(changes()):
        for each in (run, always):
            each.send(topic, key, value)
        if dies:
            run.crash(committed=[number % 2], limit=1)
            run.restart(plan_of(after, time))
        run.batch(limit=1)
        always.batch(limit=1)
        portions += output in run.last.transition.writing
        if output in run.last.transition.writing:
            last = run.topics.closed[output][-1].record
            assert (last.lower, last.upper, last.count) == (at, at, 0)
    for each in (run, always):
        each.read()

    assert portions > 1
    batches = list(closed(run, output))
    verifier = Verifier(output)
    assert not any(map(verifier.feed, batches)), verifier.offence
    assert len({update.time for batch in batches for update in batch.updates}) > 1
    # All of the edit's time is in one batch.
    assert sum(any(u.time == at for u in batch.updates) for batch in batches) == 1
    assert collection(run, output) == collection(always, output)


@pytest.mark.parametrize("time", ["offset", "ingest"])
def test_outputs_that_the_edit_leaves_alone_go_on_meanwhile(time: str) -> None:
    """In each batch that writes a portion of another one."""
    run, portions = started(ORDERS, time), 0
    run.restart(plan_of(WITHOUT, time))
    for topic, key, value in changes():
        run.send(topic, key, value)
        run.batch(limit=1)
        portions += bool(run.last.transition.writing)
        assert run.frontier("all") == run.frontier("customers") == run.last.upper

    assert portions > 5


def test_what_comes_meanwhile_waits_behind_the_portions() -> None:
    """It has later times, and the batch that closes the edit's time may close these, too."""
    run = started(ORDERS, "offset")
    at = run.last.upper
    run.restart(plan_of(WITHOUT, "offset"))
    while "named" not in run.last.transition.writing:
        run.batch()
    run.send("orders", 100, {"product": "tea", "customer": 1, "quantity": 1})
    run.batch()
    assert not any(time > at for _, time, _ in run.updates("named"))
    run.read()

    assert any(time > at for _, time, _ in run.updates("named"))
    assert collection(run, "named") == collection(run, "all")


def test_an_edit_that_comes_next_waits_for_the_last_portion() -> None:
    """Which then is in the topic, so that the difference to it can be written."""
    run = started(ORDERS, "offset")
    run.restart(plan_of(WITHOUT, "offset"))
    while not run.last.transition.writing:
        run.batch()
    run.restart(plan_of(JOINED, "offset"))
    run.read()

    always = started(JOINED, "offset")
    always.read()
    assert collection(run, "named") == collection(always, "named")
    verifier = Verifier("named")
    assert not any(map(verifier.feed, closed(run, "named"))), verifier.offence


def closed(run: Run, output: str) -> Iterator[ClosedBatch]:
    """The closed batches of an output's topic, as its readers get them."""
    records = (each.record for each in run.topics.closed[output])
    for portion in diff_reader.portions(records, {}, 1_000):
        runs = [
            [diff_reader.decode(output, (partition, offset), m.key, m.value, m.headers)]
            for partition, messages in run.topics.messages[output].items()
            for offset, m in enumerate(messages[: portion.ends().get(partition, 0)])
            if m is not None and offset >= portion.starts.get(partition, 0)
        ]
        yield from diff_reader.split(portion, runs)
