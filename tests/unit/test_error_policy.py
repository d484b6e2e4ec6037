"""What an error does to a pipeline: a record, a count, or the end."""

import tracemalloc
from collections import Counter
from dataclasses import replace

import pytest

from ikebana import Input, Linear, Output, Plan, Update, Upsert, steps
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.codecs.errors import error_record
from ikebana.errors import RecordError
from ikebana.processor.base.rows import KeyedUpdate, NotedRecord, Upserts
from ikebana.processor.engine import dataflow
from ikebana.processor.engine.budget import GatheredUpdates
from ikebana.processor.engine.evaluate import Evaluation, LiteralRecord
from ikebana.processor.kernels import upsert
from ikebana.processor.planning.plan import ERRORS, OnError

PLAN = Plan(
    "p",
    inputs=(Input("names", ("names",)),),
    operators=(
        Upsert("current", "names"),
        Linear("numbers", "current", (steps.select(n="value::INTEGER"),)),
    ),
    outputs=(Output("all", "current", "all"), Output("numbers", "numbers", "numbers")),
)
BAD_VALUE: LiteralRecord = ("a", b"{", 1)
BAD_KEY: LiteralRecord = (b"{", 5, 1)
BAD_FOR_A_STEP: LiteralRecord = ("a", "five", 1)


def evaluation(policy: OnError) -> Evaluation:
    return Evaluation(replace(PLAN, on_error=policy))


@pytest.mark.parametrize("bad", [BAD_VALUE, BAD_KEY, BAD_FOR_A_STEP])
def test_recorded_it_is_one_record(bad: LiteralRecord) -> None:
    """The error topic has it, and everything else goes on."""
    found = evaluation("record").advance({"names": [bad, ("b", 7, 1)]}, 2)

    assert [(update.time, update.diff) for update in found["errors"]] == [(1, 1)]
    assert Update(("b", {"n": 7}), 1, 1) in found["numbers"]


@pytest.mark.parametrize("bad", [BAD_VALUE, BAD_KEY, BAD_FOR_A_STEP])
def test_dropped_it_is_counted(bad: LiteralRecord) -> None:
    """The error topic stays empty, and nothing is lost silently."""
    dropping = evaluation("drop")

    found = dropping.advance({"names": [bad, ("b", 7, 1)]}, 2)

    assert found["errors"] == []
    assert Update(("b", {"n": 7}), 1, 1) in found["numbers"]
    assert dropping.counted == {"error dropped": 1}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        pytest.param(BAD_VALUE, r"names\[0\]@1: could not decode value as JSON", id="a value"),
        pytest.param(BAD_KEY, r"names\[0\]@1: could not decode key as JSON", id="a key"),
        pytest.param(BAD_FOR_A_STEP, r"^operator numbers: could not evaluate", id="a step"),
    ],
)
def test_failing_it_is_named(bad: LiteralRecord, message: str) -> None:
    """Where it is and why is told, not what is in it, and what to do."""
    with pytest.raises(RecordError, match=message) as raised:
        evaluation("fail").advance({"names": [bad, ("b", 7, 1)]}, 2)

    assert "five" not in str(raised.value)
    assert "errors.policy is fail" in str(raised.value.hint)


def test_failing_a_retracted_error_is_none() -> None:
    """R14. Only an error that comes stops the pipeline, not one that goes."""
    going = evaluation("record")
    going.advance({"names": [BAD_VALUE]}, 2)
    going.plan = replace(PLAN, on_error="fail")

    found = going.advance({"names": [("a", 5, 2)]}, 3)

    assert [(update.time, update.diff) for update in found["errors"]] == [(2, -1)]


@pytest.mark.parametrize("policy", ["record", "drop"])
def test_errors_by_the_million_are_never_all_in_memory(policy: OnError) -> None:
    """They lie in a file and are gone through once; all are counted, and the last five told."""
    count = 60_000
    errors = GatheredUpdates(most=20_000)
    errors += (
        KeyedUpdate(None, error_record("no", ("t", 0, at), b"%d" % at, b"x" * 300), 1, 1)
        for at in range(count)
    )
    counted = Counter[str]()

    tracemalloc.start()
    (noted,) = dataflow._settle_errors(replace(PLAN, on_error=policy), {ERRORS: errors}, counted)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    # A portion of the file is 10,000 of them.
    assert peak < 20 << 20
    assert noted.count == count
    assert noted.records[0] == NotedRecord("t", 0, count - 5, reason="no")
    assert len(noted.records) == 5
    assert counted == ({"error dropped": count} if policy == "drop" else {})
    assert len(errors) == (0 if policy == "drop" else count)


def test_state_has_one_error_of_a_key_at_the_most() -> None:
    """R14. However often its value was bad; with a good value, or none, it has no error."""
    store, keys = MemoryStore(), [b"%d" % at for at in range(10)]

    def entries(time: int, value: bytes | None, *, bad: bool) -> int:
        records = [error_record("no", ("t", 0, time), key, b"x" * 300) for key in keys]
        offsets = list(range(10 * time, 10 * time + 10))
        chunk = Upserts("in", 0, 0, [time] * 10, keys, [value] * 10, offsets)
        chunk.bad = dict(enumerate(records)) if bad else {}
        made = upsert.step(store, [chunk], Interval(time, time + 1))
        assert len(made.errors) == (10 if time == 0 else 20 if bad else 10 if time == 50 else 0)
        return sum(len(entry) for _, entry in store.scan(b""))

    once = entries(0, None, bad=True)
    often = [entries(time, None, bad=True) for time in range(1, 50)]
    assert max(often) <= once + 10 * len("49")
    assert entries(50, b'"good"', bad=False) < once // 20
    assert entries(51, None, bad=False) == 0
