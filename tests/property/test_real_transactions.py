"""A bank's transactions as Debezium tells them: whole at every time, however they are read."""

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import Column, EventTime, Input, Output, Plan, Upsert
from ikebana.codecs import canonical
from ikebana.codecs.debezium_position import Boundaries
from ikebana.testing import Run, Topics
from support.strategies import unhurried
from support.sums import summed

GOLDEN = Path(__file__).parents[1] / "golden" / "debezium_transactions"
TABLES = ("accounts", "entries")


def bank(server: str, readers: int = 1) -> Plan:
    """Both tables as upserts, each read by so many inputs."""
    told = f"{server}.transaction"
    inputs = [
        Input(
            f"{table}_{reader}" if reader else table,
            (f"{server}.public.{table}",),
            "debezium-json",
            columns=(Column("number", "INTEGER"),),
            event_time=EventTime(clock="transaction", transactions=told),
        )
        for table in TABLES
        for reader in range(readers)
    ]
    return Plan(
        "bank",
        inputs=tuple(inputs),
        operators=tuple(Upsert(f"{each.name}_now", each.name) for each in inputs),
        outputs=tuple(
            Output(each.name, f"{each.name}_now", f"out.{each.name}") for each in inputs
        ),
    )


def captured(server: str) -> Topics:
    """The messages as they were captured; what has no partition goes to the first."""
    topics = Topics()
    for name in (*(f"public.{table}" for table in TABLES), "transaction"):
        for told in json.loads((GOLDEN / f"{server}.{name}.json").read_text()):
            key, value = (
                None if told[p] is None else json.dumps(told[p]).encode() for p in ("key", "value")
            )
            topics.send(f"{server}.{name}", key, value, partition=told["partition"] or 0)
    return topics


def expected(server: str) -> tuple[dict[int, dict[str, dict[int, Any]]], int]:
    """The rows of both tables after each transaction, by its time, and where the last ended."""
    changes: dict[int, list[tuple[int, str, Any]]] = {}
    for table in TABLES:
        for told in json.loads((GOLDEN / f"{server}.public.{table}.json").read_text()):
            if told["value"] is None:
                continue
            value = told["value"].get("payload", told["value"])
            last = json.loads(value["source"]["sequence"])[0]
            order = (value["transaction"] or {"total_order": 0})["total_order"]
            changes.setdefault(int(last or 0), []).append((order, table, value))
    rows: dict[str, dict[int, Any]] = {table: {} for table in TABLES}
    found = {}
    for time in sorted(changes):
        for _, table, value in sorted(changes[time], key=lambda one: one[0]):
            # A truncate has no place in the order of several partitions: it is an error.
            if value["op"] == "d":
                del rows[table][value["before"]["number"]]
            elif value["op"] != "t":
                rows[table][value["after"]["number"]] = value["after"]
        found[time] = {table: dict(of) for table, of in rows.items()}
    boundaries = Boundaries()
    ends = [
        boundaries.of(json.dumps(told["value"]).encode())
        for told in json.loads((GOLDEN / f"{server}.transaction.json").read_text())
    ]
    return found, max(end.lsn for end in ends if end is not None and end.status == "END")


@pytest.mark.parametrize(("server", "readers"), [("plain", 1), ("typed", 1), ("plain", 2)])
@unhurried
@given(choice=st.randoms(use_true_random=False), shards=st.integers(1, 2))
def test_at_every_time_transactions_are_whole(
    server: str, readers: int, choice: Random, shards: int
) -> None:
    """And all that has been read is there in the end; a change counts once for all its readers."""
    topics = captured(server)
    run = Run(bank(server, readers), topics, shards)
    for _ in range(choice.randrange(6)):
        read = {
            name: {
                p: choice.randint(at, topics.ends(name)[p])
                for p, at in run.last.positions[name].items()
            }
            for name in run.last.positions
        }
        run.batch(ends=read)
    run.read()

    wanted, end = expected(server)
    assert set(run.frontiers.values()) == {end}
    assert run.counted["late"] == 0
    reasons = [
        canonical.decode(update.value)["reason"] for update in run.written.updates["errors"]
    ]
    assert all("a truncate has no place" in reason for reason in reasons)
    assert len(reasons) == len(run.plan.inputs)
    times = [time for time in wanted if time < end]
    assert times
    for time in times:
        for output in run.plan.outputs:
            table = output.name.partition("_")[0]
            updates = run.written.updates[output.name]
            counts = summed((each.value, each.diff) for each in updates if each.time <= time)
            assert counts == Counter(map(canonical.encode, wanted[time][table].values()))


@pytest.mark.parametrize("readers", [1, 2])
def test_a_transaction_waits_for_a_change_however_many_read_it(readers: int) -> None:
    """A change that two inputs have read stands for no other that neither has."""
    _, end = expected("plain")
    changes, ends = ("plain.public.accounts", 2), ("plain.transaction", 0)
    for cut in range(len(captured("plain").messages[changes[0]][changes[1]])):
        topics = captured("plain")
        rest = {}
        # Of the ENDs one is there, so that a snapshot is over before the others come.
        for (topic, partition), kept in ((changes, cut), (ends, 2)):
            held = topics.messages[topic][partition]
            rest[topic] = held[kept:]
            del held[kept:]
        run = Run(bank("plain", readers), topics)
        run.read()
        for topic, partition in (ends, changes):
            topics.messages[topic][partition] += rest[topic]
            run.read()

        assert run.counted["late"] == 0, cut
        assert set(run.frontiers.values()) == {end}
