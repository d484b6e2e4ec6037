"""A key that one message changes, in topics with a partition for each key, read in every order."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ikebana import Column, Input, Output, Plan, Upsert
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.codecs import canonical
from ikebana.processor.base.rows import KeyedUpdate, Upserts
from ikebana.processor.kernels import upsert as kernel
from ikebana.processor.planning import planner
from ikebana.processor.topics.input_codec import codec_of
from ikebana.processor.topics.intake import Intake
from ikebana.processor.topics.messages import Message
from support.sums import summed

KEYS, LENGTH = (1, 2), 4
Table = dict[int, int]
History = list[dict[str, Any]]
"""Messages of Maxwell with their places in the binlog."""


def histories(table: Table, history: History) -> Iterator[tuple[Table, History]]:
    """All histories of a table that change a key, each with the table at its end."""
    if len(history) == LENGTH:
        if any("id" in message.get("old", ()) for message in history):
            yield table, history
        return
    new = len(history)

    def then(rows: Table, kind: str, key: int, value: int, **old: int) -> Iterator[Any]:
        message: dict[str, Any] = {"type": kind, "data": {"id": key, "v": value}, "old": old}
        message |= {"position": f"bin.{9 + new}:{100 - new}", "xoffset": 0}
        return histories(rows, [*history, message])

    for key in KEYS:
        others = {name: of for name, of in table.items() if name != key}
        if key not in table:
            yield from then({**table, key: new}, "insert", key, new)
            continue
        yield from then({**table, key: new}, "update", key, new, v=table[key])
        yield from then(others, "delete", key, table[key])
        for to in KEYS:
            if to not in table:
                yield from then({**others, to: new}, "update", to, new, id=key, v=table[key])


def orders(partitions: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """All orders of numbers that keep the order of each partition."""
    if not any(partitions):
        yield []
    for at, (first, *rest) in ((at, each) for at, each in enumerate(partitions) if each):
        for order in orders([*partitions[:at], rest, *partitions[at + 1 :]]):
            yield [first, *order]


HISTORIES = list(histories({}, []))


def intake(options: dict[str, str]) -> Intake:
    columns = (Column("id", "BIGINT"), Column("v", "BIGINT"))
    source = Input(
        "in",
        ("t",),
        value_format="maxwell",
        key=("id",),
        columns=columns,
        drift=True,
        options=tuple(options.items()),
    )
    plan = Plan("p", (source,), (Upsert("now", "in"),), (Output("out", "now", "out"),))
    physical = planner.physical(plan, optimized=False)
    return Intake(source, codec_of(source, physical.readings["in"], None), physical)


def ends(options: dict[str, str]) -> Iterator[tuple[bool, int, int]]:
    """Of every order whether the table comes out right, and what is counted."""
    reading = intake(options)
    for table, history in HISTORIES:
        chunks = []
        for at, message in enumerate(history):
            value = json.dumps({"database": "shop", "table": "t", **message}).encode()
            d = reading.upserts([Message(at, b"", value)], ("t", 0), partitions=len(KEYS))
            assert not d.bad
            chunks.append((d.keys, d.values, d.offsets, d.before, d.sequences))
        of_keys = [
            [n for n, each in enumerate(history) if each["data"]["id"] == key] for key in KEYS
        ]
        for order in orders(of_keys):
            store, drift, outdated, updates = MemoryStore(), 0, 0, list[KeyedUpdate]()
            for time, n in enumerate(order):
                keys, values, offsets, before, sequences = chunks[n]
                chunk = Upserts("in", 0, history[n]["data"]["id"], time, keys, values, offsets)
                chunk.before, chunk.sequences = before, sequences
                found = kernel.step(store, [chunk], Interval(time, time + 1))
                drift, outdated = drift + found.drift, outdated + found.outdated
                updates += found.updates
            left = summed((u.value, u.diff) for u in updates)
            rows = {canonical.write({"id": key, "v": v}): 1 for key, v in table.items()}
            yield left == rows, drift, outdated


def test_no_wrong_table_is_silent() -> None:
    """Half of the orders come out wrong, and each of these counts drift."""
    found = list(ends({}))

    assert len(found) == 220
    assert sum(right for right, _, _ in found) == 122
    assert all(drift for right, drift, _ in found if not right)


@pytest.mark.parametrize("sequence", ["position log", "position log, xoffset"])
def test_by_the_order_of_the_source_every_table_is_right(sequence: str) -> None:
    """Also where a name or a number of the position gets longer."""
    found = list(ends({"sequence": sequence}))

    assert all(right for right, _, _ in found)
    assert not any(drift for _, drift, _ in found)
    assert any(outdated for _, _, outdated in found)
