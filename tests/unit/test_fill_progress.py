"""How far an edit is that fills: parts of the state one after the other, then new joins."""

from collections import Counter
from typing import Any

import pytest

from ikebana.processor.base.transition import Phase, Replayed, Transition
from ikebana.processor.checkpoint.commits import FillProgress
from ikebana.processor.engine import replaying
from ikebana.processor.engine.dataflow import Emitted
from ikebana.processor.engine.editing import Editing, portion
from ikebana.processor.engine.task import fill_progress
from ikebana.processor.planning.edits import Edit, edit_between
from ikebana.testing import Run
from support.edited_shops import FIRST, JOINED, plan_of


def emitted(**changed: Any) -> Emitted:
    nothing: dict[str, Any] = {
        "updates": {},
        "messages": {},
        "exchanges": {},
        "counted": Counter(),
    }
    nothing |= {"seen": [], "facts": {}, "intervals": {}}
    return Emitted(**{**nothing, **changed})


@pytest.fixture
def edit() -> Edit:
    """A filter is another one, and a second input is joined."""
    return edit_between(plan_of(FIRST), plan_of(JOINED.replace("quantity > 3", "quantity > 5")))


def test_a_shard_says_in_which_part_it_is_and_how_many_keys_it_took(
    edit: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two keys of three, then the last one of them."""
    run = Run(edit.before)
    for number in range(3):
        run.send("orders", number, {"product": "tea", "customer": 1, "quantity": 9})
    run.read()
    monkeypatch.setattr(replaying, "PORTION", 2)
    at = Editing(edit, Transition(1, run.last.upper, Phase.FILL, takes=True))

    first, second = (portion(at, run.stores[0]) for _ in range(2))

    assert edit.scanned == ("order", "totals")[: len(edit.scanned)]
    assert (first.parts, first.keys, first.done) == (0, 2, False)
    assert second.keys <= 2
    assert second.parts >= 1


def test_parts_come_first_and_then_joins(edit: Edit) -> None:
    """A join that all shards are done with is not among those that get what was there."""
    scanned = len(edit.scanned)
    fills, joins = (Transition(1, 9, at, joins=["named"]) for at in (Phase.FILL, Phase.JOIN))

    assert fill_progress(edit, emitted(filled=(0, 7)), fills) == (
        FillProgress(0, scanned + 1, "order", 7)
    )
    assert fill_progress(edit, emitted(), joins) == (FillProgress(scanned, scanned + 1, "named"))
    done = emitted(replayed=Replayed(["named"]))
    assert fill_progress(edit, done, joins) == (FillProgress(scanned + 1, scanned + 1, "named"))
    assert fill_progress(edit, emitted(), Transition(1, 9, Phase.CLOSE)) is None


def test_an_edit_without_anything_to_fill_says_nothing() -> None:
    """Its one batch has no part; and a join that began before any time is one by itself."""
    same = edit_between(plan_of(FIRST), plan_of(FIRST))

    assert fill_progress(same, emitted(filled=(0, 0)), Transition(1, 9, Phase.FILL)) is None
    assert fill_progress(None, emitted(), Transition(1, 0, Phase.JOIN, joins=["named"])) == (
        FillProgress(0, 1, "named")
    )
