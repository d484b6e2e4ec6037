"""Decoding and kernels do no more work a record than they did: a guard against slow code.

Work is counted, not timed, so it is the same on every machine.  What is counted is Python's own:
instructions of bytecode, and calls of functions in C, but not what those do.  The stored counts
are `tests/golden/work.json`; IKEBANA_GOLDEN=write stores them anew.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ikebana import Input, Output, Plan, Upsert
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.processor.base.fast_paths import absent
from ikebana.processor.base.rows import KeyedUpdate, Upserts
from ikebana.processor.base.sharding import PartitionRange
from ikebana.processor.kernels import reduce, upsert, window_functions
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.half_join import LookupRow, half_join
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.kernels.window_functions import Window
from ikebana.processor.kernels.window_values import FrameAggregate, Ranking
from ikebana.processor.planning import planner
from ikebana.processor.topics.input_codec import codec_of
from ikebana.processor.topics.intake import Intake
from ikebana.processor.topics.messages import Message
from ikebana.processor.topics.slices import Decoding
from support.avro_messages import message
from support.measured_rows import EVENT, KEY, KNOWN, event, row
from support.work import Work, work_of

STORED = Path(__file__).parents[1] / "golden" / "work.json"
RECORDS = 200
SLACK = 1.1
"""How much more than the stored count is accepted."""
SHRUNK = 0.75
"""If less than this is left, the count is stored anew, so that the guard stays close."""
PYTHON = "{}.{}".format(*sys.version_info) + (", without compiled code" if absent() else "")


def in_json(data: Any) -> bytes:
    return json.dumps(data).encode()


def with_schema(data: Any) -> bytes:
    """As the JSON converter of Kafka Connect writes it."""
    whole = {"schema": {"type": "struct"}, "payload": data}
    return json.dumps(whole, separators=(",", ":")).encode()


def decoding(source: Input, key: Callable[[int], bytes], value: Callable[[int], bytes]) -> Any:
    """What decodes messages into packed rows for four shards."""
    plan = Plan("p", (source,), (Upsert("now", "in"),), (Output("out", "now", "out"),))
    physical = planner.physical(plan, optimized=False)
    intake = Intake(source, codec_of(source, physical.readings["in"], KNOWN), physical)
    messages = [Message(at, key(at), value(at)) for at in range(RECORDS)]

    def run() -> None:
        made = Decoding(source, intake, PartitionRange("t", 0, 0, 0, 0, each=False), 4)
        assert list(made.add(messages)) + list(made.finish())

    return run


def upserting(times: int | list[int], upper: int) -> Callable[[], None]:
    """What moves a quarter as many keys to new values, and deletes some of them."""
    keys = [b"%d" % (at % (RECORDS // 4)) for at in range(RECORDS)]
    values = [None if at % 11 == 0 else b"value %d" % at for at in range(RECORDS)]
    chunk = Upserts("in", 0, 0, times, keys, values, list(range(RECORDS)))

    def run() -> None:
        assert upsert.step(MemoryStore(), [chunk], Interval(0, upper)).updates

    return run


def joining() -> None:
    """Lookups of orders in an arrangement of prices that change."""
    prices = Arrangement(MemoryStore(), Interval(0, RECORDS), 0)
    prices.update([KeyedUpdate(b"%d" % (at % 20), b"%d" % at, at, 1) for at in range(RECORDS)])
    prices.settle(0)
    lookups = [LookupRow(b"%d" % (at % 40), at, at, 1, sees_equal=False) for at in range(RECORDS)]
    assert list(half_join(prices, lookups))


def reducing() -> None:
    """Counts, sums and extremes of rows by key."""
    aggregates = (Aggregate("n", "count"), Aggregate("s", "sum", "a"), Aggregate("m", "max", "a"))
    updates = [
        KeyedUpdate(b"%d" % (at % 20), b'{"a":%d}' % at, at // 50, 1) for at in range(RECORDS)
    ]
    assert reduce.step(MemoryStore(), updates, Interval(0, RECORDS), aggregates)


def windowing() -> None:
    """A number and a running sum of each row of a partition that is new."""
    functions = Ranking("row_number"), FrameAggregate(Aggregate("s", "sum", "x"))
    updates = [
        KeyedUpdate(
            b"1", b'{"o":{"o0":%d},"r":{"at":%d},"a0":%d}' % (at * 7 % RECORDS, at, at), 0, 1
        )
        for at in range(RECORDS)
    ]
    window = Window(functions, ("row", (("o0", ""),)), "")
    assert window_functions.step(MemoryStore(), updates, Interval(0, 1), window)


WORK: dict[str, Callable[[], object]] = {
    "decoding json": decoding(
        Input("in", ("t",)), lambda at: b'{"id": %d}' % at, lambda at: in_json(row(at))
    ),
    "decoding debezium-json": decoding(
        Input("in", ("t",), "debezium-json"),
        lambda at: b'{"id":%d}' % at,
        lambda at: in_json(event(at)),
    ),
    "decoding debezium-json with schemas": decoding(
        Input("in", ("t",), "debezium-json"),
        lambda at: with_schema({"id": at}),
        lambda at: with_schema(event(at)),
    ),
    "decoding debezium-flat-json": decoding(
        Input("in", ("t",), "debezium-flat-json"),
        lambda at: b'{"id":%d}' % at,
        lambda at: in_json({**row(at), "__deleted": "false", "__op": "c", "__lsn": at}),
    ),
    "decoding debezium-avro": decoding(
        Input("in", ("t",), "debezium-avro", "avro"),
        lambda at: message(1, KEY, {"id": at}),
        lambda at: message(2, EVENT, event(at)),
    ),
    "upsert, one time": upserting(0, 1),
    "upsert, a time for each": upserting(list(range(RECORDS)), RECORDS),
    "join": joining,
    "reduce": reducing,
    "window functions": windowing,
}


def stored() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, dict[str, int]]] = json.loads(STORED.read_text())
    return found.get(PYTHON, {})


def problems(name: str, found: Work, before: dict[str, int]) -> list[str]:
    """What has changed too much since it was stored."""
    told = []
    for what, count in found._asdict().items():
        if not before[what] * SHRUNK <= count <= before[what] * SLACK:
            told.append(
                f"{name}: {count / RECORDS:.1f} {what} a record instead of "
                f"{before[what] / RECORDS:.1f} ({count / before[what] - 1:+.0%})"
            )
    return told


@pytest.mark.parametrize("name", WORK)
def test_no_record_takes_more_work_than_it_did(name: str) -> None:
    """By at most a tenth: more is stored knowingly, and so is much less."""
    run = WORK[name]
    run()
    found = work_of(run)
    if os.environ.get("IKEBANA_GOLDEN") == "write":
        known = json.loads(STORED.read_text()) if STORED.exists() else {}
        known.setdefault(PYTHON, {})[name] = found._asdict()
        STORED.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
    if not stored():
        pytest.skip(f"nothing is stored for Python {PYTHON}")

    told = problems(name, found, stored()[name])

    assert not told, (
        "; ".join(told) + ". If it has to be so, store it: IKEBANA_GOLDEN=write "
        "pytest tests/unit/test_work.py, and look at the change of tests/golden/work.json"
    )


def test_the_same_work_is_always_the_same_count() -> None:
    """So a count that has changed is a change of the code."""
    run = WORK["join"]
    run()

    assert work_of(run) == work_of(run)


def test_more_work_is_named_with_what_it_grew_by() -> None:
    """And work that has hardly changed is not named."""
    before = {"instructions": 100 * RECORDS, "calls": 10 * RECORDS}

    assert problems("x", Work(109 * RECORDS, 10 * RECORDS), before) == []
    assert problems("x", Work(112 * RECORDS, 7 * RECORDS), before) == [
        "x: 112.0 instructions a record instead of 100.0 (+12%)",
        "x: 7.0 calls a record instead of 10.0 (-30%)",
    ]
