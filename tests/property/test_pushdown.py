"""What is read of messages says nothing of what they mean, whatever the format."""

import base64
import functools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ikebana import Input, Linear, Output, Plan, Upsert
from ikebana.arrangements.update import Update, consolidate
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.linear.steps import Step, project, rekey, select, where
from ikebana.processor.planning.plan import InputMode
from support.connector_histories import FORMS, KNOWN, Happening, happenings, in_avro, messages
from support.strategies import unhurried

OF_KEY = where("key->>'id' <> '1'")
# Of declared columns, and of others as they are in JSON.
BRANCHES: dict[str, tuple[Step, ...]] = {
    "rows": (),
    "id": (project("id"),),
    "a": (project("a"),),
    "younger": (select(b="b"),),
    "condition": (where("a::BIGINT > 1"), project("id")),
    "another-key": (rekey("a"), project("big")),
    "some-keys": (OF_KEY, project("a")),
}


@functools.cache
def plan_of(source: Input, *names: str) -> Plan:
    """A plan with an output for each branch."""
    root = "t" if source.mode == "diffs" else "current"
    return Plan(
        "p",
        (source,),
        (
            *(() if source.mode == "diffs" else (Upsert("current", "t"),)),
            *(Linear(name, root, BRANCHES[name]) for name in names if BRANCHES[name]),
        ),
        tuple(Output(f"o{at}", n if BRANCHES[n] else root, n) for at, n in enumerate(names)),
    )


def outcome(plan: Plan, records: list[tuple[Any, Any, int]], *, pushed: bool) -> dict[str, Any]:
    """All that the outputs have in the end, with data as text, so that 1 is not true."""
    evaluation = Evaluation(plan, optimized=pushed, schemas=KNOWN)
    found = evaluation.advance({"t": records}, 1_000)
    return {
        name: sorted(
            consolidate(Update(json.dumps(u.data, sort_keys=True), u.time, u.diff) for u in all_)
        )
        for name, all_ in found.items()
    }


# Those that no reader would have let through.
_LEFT_OUT = {base64.b64encode(key).decode() for key in (b'{"id":1}', in_avro(1, {"id": 1}))}


def told(errors: list[Update[str]]) -> list[Update[str]]:
    """The errors that are not of keys which no reader lets through."""
    return [u for u in errors if json.loads(u.data)["key"] not in _LEFT_OUT]


@pytest.mark.parametrize("form", FORMS)
@settings(unhurried, max_examples=settings().max_examples // 10)
@given(
    st.data(),
    happenings(),
    st.lists(st.sampled_from(sorted(BRANCHES)), min_size=1, max_size=2, unique=True),
)
def test_pushing_down_changes_neither_outputs_nor_errors(
    form: str, data: st.DataObject, history: list[Happening], names: list[str]
) -> None:
    """R17. Whatever columns messages lack, or have null, or leave as they are, in every mode.

    The errors of keys that no reader lets through are the exception: such messages are not
    even decoded.
    """
    written = FORMS[form]
    mode: InputMode = data.draw(st.sampled_from(written.modes))
    # Minimal images are refused without the columns of the rows.
    declared = form.endswith("minimal") or data.draw(st.booleans())
    keyed = data.draw(st.booleans())
    has_keys = data.draw(st.booleans())
    if "some-keys" in names:
        has_keys = True
        if form.startswith("debezium"):
            # Debezium's own events never have the key of another row than their own.
            history = [each for each in history if not _moves(each)]
    plan = plan_of(written.input(mode, declared=declared, keyed=keyed), *names)
    records = messages(written, history, keyed=has_keys)

    pushed, plain = (outcome(plan, records, pushed=on) for on in (True, False))

    assert told(pushed.pop("errors")) == told(plain.pop("errors"))
    assert pushed == plain


def _moves(happening: Happening) -> bool:
    before, after = happening.before, happening.after
    return before is not None and after is not None and before["id"] != after["id"]
