"""Edits that rename, drop, reorder and compute columns go on with the rows that there are."""

import json
from random import Random
from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st

import ikebana as ik
from ikebana import Column, Input, Linear, Output, Plan, Upsert
from ikebana.processor.linear.steps import Sql
from ikebana.processor.planning.checking import checked
from ikebana.testing import Run, Topics

COLUMNS = {"a": "BIGINT", "b": "VARCHAR", "s": "STRUCT(x BIGINT, y VARCHAR)", "n": "BIGINT"}
ROWS = Input("rows", ("rows",), columns=tuple(Column(*each) for each in COLUMNS.items()))
MADE = {
    "a": ("a * 2", "a IS NULL", "coalesce(a, 0)"),
    "b": ("upper(b)", "b || '!'"),
    "s": ("s.x", "s.y"),
    "n": ("n + 1",),
}
# It fails on some rows, which then have an error record and nothing else.
FAILS = "CAST(b AS BIGINT)"


def plan_of(select: dict[str, str], where: tuple[str, ...] = (), more: str = "") -> Plan:
    """A view of some columns; with `more`, another one of the same rows."""
    step = Sql(where=where, select=tuple(select.items()))
    operators: list[Any] = [Upsert("current", "rows"), Linear("view", "current", (step,))]
    outputs = [Output("out", "view", "out")]
    if more:
        last = tuple(reversed(select.items()))
        operators.append(Linear("other", "current", (Sql(select=last),)))
        outputs.append(Output(more, "other", more))
    return checked(Plan("p", (ROWS,), tuple(operators), tuple(outputs)))


def row(choice: Random) -> dict[str, Any]:
    """A row; some of its columns may be null, or missing."""
    of = {
        "a": choice.choice([None, 0, 1, 2]),
        "b": choice.choice([None, "x", "7"]),
        "s": choice.choice([None, {"x": 1, "y": "é"}, {"x": None, "y": "z"}]),
        "n": choice.choice([0, 5]),
    }
    return {name: value for name, value in of.items() if choice.random() < 0.9}


def edited(choice: Random, stored: dict[str, str]) -> dict[str, str]:
    """A select of columns that are kept as they are, under other names and in another order."""
    kept = {"key", *(text for text in stored.values() if text in COLUMNS)}
    texts = [text for text in stored.values() if text not in COLUMNS]
    texts += choice.sample(sorted(kept), choice.randint(1, len(kept)))
    texts += [
        choice.choice(MADE[name])
        for name in sorted(kept & COLUMNS.keys())
        if choice.random() < 0.4
    ]
    choice.shuffle(texts)
    return {
        choice.choice([f"c{at}", f"d{at}"]): text for at, text in enumerate(dict.fromkeys(texts))
    }


@given(st.randoms(use_true_random=False))
def test_what_is_made_of_columns_that_are_kept_reads_nothing_again(choice: Random) -> None:
    """Whatever came before the edit, and although the topic has lost its beginning.

    The outputs are those of a pipeline that has read everything with the new plan.
    """
    first = {name: name for name in choice.sample(list(COLUMNS), choice.randint(1, 4))}
    if choice.random() < 0.5:
        first["made"] = choice.choice([*(text for name in first for text in MADE[name]), FAILS])
    where = choice.choice([(), ("n > 1",), ("a IS NOT NULL", "n > 1")])
    run = Run(plan_of(first, where), shards=2)
    select, topics = first, Topics()
    for turn in range(4):
        for _ in range(choice.randint(0, 5)):
            key = choice.randint(0, 4)
            value = None if choice.random() < 0.2 else row(choice)
            run.send("rows", key, value)
            topics.send("rows", *encoded(key, value))
        run.read()
        fails = any(text not in COLUMNS for text in first.values())
        # A topic is of one output for ever.
        more = f"more{turn}" if not where and not fails and choice.random() < 0.3 else ""
        conditions = (
            where if fails or "b" not in first else (*where, *choice.choice([(), ("b <> 'x'",)]))
        )
        select = edited(choice, first)
        note(f"{turn}: {select} where {conditions}")
        plan = plan_of(select, conditions, more)
        run.restart(plan)
        assert not run._running.backfills
        run.read()

        fresh = Run(plan, topics)
        fresh.read()
        for output in plan.outputs:
            sides = (each.collection(output.name) for each in (run, fresh))
            found, expected = (sorted(side, key=repr) for side in sides)
            assert found == expected
        assert len(run.errors()) == len(fresh.errors())


def encoded(key: Any, value: Any) -> tuple[bytes, bytes | None]:
    """A message."""
    return json.dumps(key).encode(), None if value is None else json.dumps(value).encode()


def test_a_column_that_is_not_kept_is_read_again() -> None:
    """What a pushed step dropped is nowhere; nor is a row on which it failed."""
    stored = {"a": "a", "made": FAILS}
    run = Run(plan_of(stored))
    run.send("rows", 1, {"a": 1, "b": "x", "n": 3})
    run.read()
    assert len(run.errors()) == 1
    for select in ({"a": "a"}, {"a": "a", "made": FAILS, "n": "n"}):
        fresh = Run(plan_of(stored), Topics())
        fresh.send("rows", 1, {"a": 1, "b": "x", "n": 3})
        fresh.read()
        fresh.restart(plan_of(select))
        assert fresh._running.backfills
        fresh.read()
        assert len(fresh.errors()) == (0 if "made" not in select else 1)
        assert fresh.collection("out") == ([(1, {"a": 1})] if "made" not in select else [])


def test_an_alias_in_sql_is_an_edit_of_the_output_alone() -> None:
    """The upsert goes on, and the output gets each row under its new name."""

    def plan(select: str) -> Plan:
        shop = ik.Pipeline("shop")
        columns = [ik.Column("id", "BIGINT"), ik.Column("name", "VARCHAR")]
        shop.topic("customers", columns=columns).upsert(name="current")
        shop.sql(f"SELECT {select} FROM current", name="view").to("out", format="upsert")
        return shop.plan()

    run = Run(plan("id, name"))
    run.send("customers", 1, {"id": 1, "name": "ada"})
    run.read()
    run.restart(plan("id, name AS full_name"))
    assert not run._running.backfills
    run.read()
    assert run.collection("out") == [(1, {"id": 1, "full_name": "ada"})]
    assert run.messages("out")[-1].value == b'{"full_name":"ada","id":1}'
    run.send("customers", 1, {"id": 1, "name": "eva"})
    run.read()
    assert run.collection("out") == [(1, {"id": 1, "full_name": "eva"})]
