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
from shell import Shell, Topics
from strategies import unhurried

GOLDEN = Path(__file__).parents[1] / "golden" / "debezium_transactions"
TABLES = ("accounts", "entries")


def bank(server: str) -> Plan:
    """Both tables, as upserts."""
    told = f"{server}.transaction"
    return Plan(
        "bank",
        inputs=tuple(
            Input(
                table,
                (f"{server}.public.{table}",),
                "debezium-json",
                columns=(Column("number", "INTEGER"),),
                event_time=EventTime(clock="transaction", transactions=told),
            )
            for table in TABLES
        ),
        operators=tuple(Upsert(f"{table}_now", table) for table in TABLES),
        outputs=tuple(Output(table, f"{table}_now", f"out.{table}") for table in TABLES),
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


@pytest.mark.parametrize("server", ["plain", "typed"])
@unhurried
@given(choice=st.randoms(use_true_random=False), shards=st.integers(1, 2))
def test_at_every_time_transactions_are_whole(server: str, choice: Random, shards: int) -> None:
    """And all that has been read is there in the end."""
    topics = captured(server)
    shell = Shell(bank(server), topics, shards)
    for _ in range(choice.randrange(6)):
        read = {
            name: {
                p: choice.randint(at, topics.ends(name)[p])
                for p, at in shell.last.positions[name].items()
            }
            for name in shell.last.positions
        }
        shell.batch(ends=read)
    shell.read()

    wanted, end = expected(server)
    assert set(shell.uppers.values()) == {end}
    assert shell.counted["late"] == 0
    reasons = [canonical.decode(update.value)["reason"] for update in shell.found["errors"]]
    assert all(reason.startswith("a truncate has no place") for reason in reasons)
    assert len(reasons) == len(TABLES)
    times = [time for time in wanted if time < end]
    assert times
    for time in times:
        for table in TABLES:
            counts: Counter[bytes] = Counter()
            for _, value, at, diff in shell.found[table]:
                if at <= time:
                    counts[value] += diff
            assert +counts == Counter(map(canonical.encode, wanted[time][table].values()))
