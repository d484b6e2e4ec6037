"""A pipeline that starts on nothing: Spark runs a first batch, and it is one like any other."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest

from ikebana import Column, EventTime, Input, Output, Plan, Reduce, Upsert
from ikebana.codecs import canonical, cdcv2, diff
from ikebana.codecs.diff import ProgressRecord
from ikebana.processor.planning.plan import TimeDomain
from ikebana.processor.topics.batch_selection import ClosedProgress, MintingState
from ikebana.processor.topics.reclock import BatchTrigger, mint
from ikebana.processor.topics.source_offset import SourceOffset
from ikebana.testing import Run, Topics
from support.sums import summed

NOW = 1_700_000_000_000
COLUMNS = (Column("t", "BIGINT"), Column("v", "BIGINT"))
ID = Column("id", "BIGINT")


def upserted(source: Input, time: TimeDomain = "ingest") -> Plan:
    """What is current, and how often each value is, which needs an exchange."""
    of = source.name
    operators: tuple[Upsert | Reduce, ...] = ()
    if not source.is_collection:
        operators, of = (Upsert("current", source.name),), "current"
    count = Reduce("by_value", of, (("n", "count(*)"),), by="v")
    outputs = (Output("current", of, "current"), Output("by_value", "by_value", "by-value"))
    return Plan("p", (source,), (*operators, count), outputs, time=time)


def plain(topics: Topics) -> None:
    topics.send("rows", b'"a"', b'{"t":3,"v":1}', timestamp=3)
    topics.send("rows", b'"b"', b'{"t":5,"v":1}', timestamp=5)
    topics.send("rows", b'"z"', b'{"t":900,"v":2}', timestamp=900)


def changes(topics: Topics) -> None:
    for number in (1, 2):
        row = {"id": number, "t": number, "v": 7}
        source = {"connector": "postgresql", "schema": "public", "table": "rows", "ts_ms": number}
        change = {"op": "c", "before": None, "after": row, "source": {**source, "lsn": number}}
        topics.send("rows", b'{"id":%d}' % number, json.dumps(change).encode())


def updates(topics: Topics) -> None:
    for time in (4, 8):
        topics.send("rows", b'"k"', b'{"t":1,"v":%d}' % time, headers=diff.headers(time, 1))
    record = ProgressRecord("c", "q", "rows", 1, 0, 9, 2, topics.ends("rows"), "changes")
    topics.closed["rows"].append(ClosedProgress(record, 1))


def facts(topics: Topics) -> None:
    given = [(b'"k"', b'{"t":1,"v":2}', 4, 1), (b'"k"', b'{"t":1,"v":3}', 8, 1)]
    told = [*cdcv2.encode_updates(given, 10_000)]
    told += cdcv2.encode_progress(0, 9, {4: 1, 8: 1}, 10_000)
    for message in told:
        topics.send("rows", None, message)


def transaction(topics: Topics) -> None:
    source = {"connector": "postgresql", "schema": "public", "table": "rows", "ts_ms": 1}
    position = {"lsn": 11, "sequence": '["10","11"]'}
    told = {"id": "1:11", "total_order": 1, "data_collection_order": 1}
    change = {
        "op": "c",
        "before": None,
        "after": {"id": 1, "t": 1, "v": 7},
        "source": {**source, **position},
        "transaction": told,
    }
    topics.send("bank.public.rows", b'{"id":1}', json.dumps(change).encode())
    counts = [{"data_collection": "public.rows", "event_count": 1}]
    end = {"status": "END", "id": "1:20", "event_count": 1, "data_collections": counts}
    topics.send("bank.transaction", b"{}", json.dumps({**end, "ts_ms": 1}).encode())


class Kind(NamedTuple):
    """A kind of input: its plan, what comes later, and whether it may have tombstones."""

    plan: Plan
    more: Callable[[Topics], None]
    tombstones: bool = True


def _undated(source: Input, more: Callable[[Topics], None]) -> dict[str, Kind]:
    domains: tuple[TimeDomain, ...] = ("ingest", "offset")
    kind = f"{source.mode} {source.value_format}"
    return {f"{kind} {time}": Kind(upserted(source, time), more) for time in domains}


ROWS = Input("rows", ("rows",), columns=COLUMNS)
CHANGES = Input("rows", ("rows",), "debezium-json", columns=COLUMNS)
IMAGES = Input(
    "rows", ("rows",), "debezium-json", mode="diffs", key=("id",), columns=(ID, *COLUMNS)
)
EVENT = EventTime(of="t", ahead_ms=None)
BANK = EventTime(clock="transaction", transactions="bank.transaction")
KINDS = {
    **_undated(ROWS, plain),
    **_undated(Input("rows", ("rows",), mode="append", columns=COLUMNS), plain),
    **_undated(CHANGES, changes),
    **_undated(IMAGES, changes),
    "event time": Kind(upserted(replace(ROWS, event_time=EVENT)), plain),
    "event time of append": Kind(upserted(replace(ROWS, event_time=EVENT, mode="append")), plain),
    "clock kafka": Kind(
        upserted(replace(ROWS, event_time=EventTime(clock="kafka", ahead_ms=None))), plain
    ),
    "clock lsn": Kind(upserted(replace(CHANGES, event_time=EventTime(clock="lsn"))), changes),
    "clock transaction": Kind(
        upserted(replace(CHANGES, topics=("bank.public.rows",), event_time=BANK)), transaction
    ),
    "diff": Kind(
        upserted(Input("rows", ("rows",), "diff", mode="diffs", columns=COLUMNS)),
        updates,
        tombstones=False,
    ),
    "cdcv2": Kind(
        upserted(Input("rows", ("rows",), "cdcv2-json", mode="diffs", columns=COLUMNS)),
        facts,
        tombstones=False,
    ),
}


def nothing(topics: Topics, names: list[str]) -> None:
    """Topics with a partition and no record."""


def ended(topics: Topics, names: list[str]) -> None:
    """Transactions that were aborted, or were empty: offsets without a record."""
    for name in names:
        topics.end_transaction(name)
        topics.end_transaction(name)


def tombstones(topics: Topics, names: list[str]) -> None:
    """Keys that are gone and never were."""
    for name in names:
        if name != "bank.transaction":
            topics.send(name, b'{"id":9}', None, timestamp=1)


def begun(kind: Kind, contents: Callable[[Topics, list[str]], None], shards: int) -> Run:
    """A pipeline before its first batch."""
    topics = Topics()
    source = kind.plan.inputs[0]
    names = [*source.topics, *kind.plan.transaction_topics]
    for name in names:
        assert topics.messages[name][0] == []
    run = Run(kind.plan, topics, shards)
    contents(topics, names)
    return run


def shown(run: Run, *, times: bool) -> dict[str, Counter[tuple[object, ...]]]:
    """The sums of all outputs, with their times if these do not come from the clock."""
    found: dict[str, Counter[tuple[object, ...]]] = {}
    for name, made in run.written.updates.items():
        sums: list[tuple[tuple[object, ...], int]] = []
        for key, value, time, change in made:
            if name == "errors":
                value = canonical.encode(canonical.decode(value)["reason"])
            sums.append(((key, value, time if times else 0), change))
        found[name] = summed(sums)
    return found


@pytest.mark.parametrize("heartbeat", [False, True])
@pytest.mark.parametrize("contents", [nothing, ended, tombstones], ids=lambda of: str(of.__name__))
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_a_start_on_nothing_goes_on_when_something_comes(
    kind: Kind, contents: Callable[[Topics, list[str]], None], *, heartbeat: bool
) -> None:
    """Whatever the input and the clock: as if all had been there from the beginning."""
    if contents is tombstones and not kind.tombstones:
        pytest.skip("its messages are all updates")
    run = begun(kind, contents, shards=2)

    assert run.batch(NOW, first=True, heartbeat=heartbeat)
    assert run.last.batch == 0
    assert run.frontiers.keys() == run.written.updates.keys()
    while run.batch(NOW):
        pass
    kind.more(run.topics)
    while run.batch(NOW + 5_000):
        pass

    at_once = begun(kind, contents, shards=2)
    kind.more(at_once.topics)
    at_once.batch(NOW, first=True)
    while at_once.batch(NOW):
        pass
    times = kind.plan.is_dated or kind.plan.time == "offset"
    assert shown(run, times=times) == shown(at_once, times=times)
    assert shown(run, times=times)["by_value"]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_a_first_batch_of_nothing_is_a_batch(kind: Kind) -> None:
    """It says nothing of times that are not the clock's, and is followed by none of itself."""
    start = begun(kind, nothing, shards=1).last
    look = MintingState({topic: {0: 0} for topic in start.positions}, {})

    def minted(after: SourceOffset, *, first: bool) -> SourceOffset:
        return mint(kind.plan, after, look, BatchTrigger(NOW, 5, first=first))

    assert minted(start, first=False) == start
    found = minted(start, first=True)
    clock = kind.plan.time == "ingest" and not kind.plan.is_dated
    assert (found.batch, found.lower, found.upper) == (0, 0, NOW + 1 if clock else 0)
    assert found.positions == start.positions
    # Exchanges are still behind where time has moved.
    while (after := minted(found, first=False)) != found:
        assert after.batch == found.batch + 1 < 4
        found = after
