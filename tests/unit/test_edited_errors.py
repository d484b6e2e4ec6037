"""Errors over edits: the error topic has those of what there is, by the policy of now."""

import json
from collections import Counter
from typing import Any

import pytest

from ikebana import Plan
from ikebana.errors import CheckpointError, RecordError
from ikebana.processor.planning.edits import edit_between
from ikebana.processor.planning.plan import ERRORS
from ikebana.testing import Run, Topics
from support import edited_runs
from support.sums import summed

INPUTS = {
    "orders": "{topic: orders, format: json, columns: {n: BIGINT}}",
    "again": "{topic: orders, format: json, columns: {n: SMALLINT}}",
    "clicks": "{topic: clicks, format: json, mode: append, columns: {n: BIGINT}}",
    "given": "{topic: given, format: diff, mode: diffs, columns: {n: BIGINT}}",
    "kept": "{topic: kept, format: diff, mode: diffs, columns: {n: BIGINT}}",
    "events": "{topic: events, format: json}",
    "customers": "{topic: customers, format: json, columns: {name: VARCHAR}}",
}
ORDER = {"order": "{upsert: orders}"}
FAILING = "(10 / n)::BIGINT > 1"


def plan_of(
    inputs: list[str],
    operators: dict[str, str],
    outputs: dict[str, str],
    *,
    policy: str = "record",
    dated: bool = False,
) -> Plan:
    parts = {"inputs": {name: INPUTS[name] for name in inputs}, "operators": operators}
    if dated:
        parts["inputs"] = {
            name: text[:-1] + ", event_time: {clock: kafka}}"
            for name, text in parts["inputs"].items()
        }
    lines = [
        f"{section}:\n" + "\n".join(f"  {name}: {text}" for name, text in named.items())
        for section, named in (*parts.items(), ("outputs", outputs))
    ]
    is_dated = dated or not {"given", "kept"}.isdisjoint(inputs)
    text = "\n".join([f"errors: {{policy: {policy}}}", *lines])
    return edited_runs.plan_of(text, "ingest" if is_dated else "offset")


def simple(policy: str = "record", *, dated: bool = False) -> Plan:
    operators = {**ORDER, "some": f"{{linear: order, where: {FAILING}}}"}
    outputs = {"all": "{from: order, topic: all}", "some": "{from: some, topic: some}"}
    return plan_of(["orders"], operators, outputs, policy=policy, dated=dated)


def send(run: Run, topic: str, key: int | bytes, row: Any, time: int | None = None) -> None:
    key = key if isinstance(key, bytes) else b"%d" % key
    run.topics.send(topic, key, json.dumps(row).encode(), timestamp=time)


def errors(run: Run) -> Counter[str]:
    """What the error topic comes to, by the reason; nothing is negative."""
    found = summed((update.value, update.diff) for update in run.written.updates[ERRORS])
    assert all(count >= 0 for count in found.values()), found
    return Counter(json.loads(value)["reason"] for value in found.elements())


def judge(run: Run) -> None:
    """The error topic has what that of a new pipeline would have."""
    topics = Topics()
    for topic in run.plan.topics:
        topics.messages[topic] = run.topics.messages[topic]
        topics.closed[topic] = run.topics.closed[topic]
    fresh = Run(run._written, topics)
    fresh.read()
    assert errors(run) == errors(fresh)


def fed(plan: Plan, shards: int = 2) -> Run:
    run = Run(plan, shards=shards)
    send(run, "orders", 1, {"n": "many"})
    send(run, "orders", 2, {"n": 0})
    send(run, "orders", 3, {"n": 1})
    run.topics.send("orders", b"{", b"{}")
    run.topics.send("orders", b"4", b"{")
    run.read()
    return run


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("compacted", [False, True])
def test_where_errors_are_dropped_now_those_that_were_written_are_taken_back(
    shards: int, *, compacted: bool
) -> None:
    run = fed(simple(), shards)
    assert errors(run).total() == 4
    if compacted:
        run.topics.compact("shop.errors")
        send(run, "orders", 4, {"n": 4})
        run.read()
        run.topics.messages["shop.errors"][0][:4] = [None] * 4

    run.restart(simple("drop"))
    run.read(limit=1)

    assert not errors(run)
    had = len(run.written.updates[ERRORS])
    for row in ({"n": 1}, {"n": "many"}):
        send(run, "orders", 1, row)
        send(run, "orders", 2, row)
        run.read()
    assert len(run.written.updates[ERRORS]) == had
    assert run.counted["error dropped"] == 2
    # The edit may be followed by others, and by other shards.
    run.restart(simple("drop"), shards=2)
    run.read()
    assert len(run.written.updates[ERRORS]) == had


def test_with_event_time_nothing_of_what_waits_comes_later() -> None:
    run = Run(simple(dated=True))
    for time in (1, 5, 9):
        send(run, "orders", time, {"n": "many"}, time)
    run.read()
    assert run.waiting

    run.restart(simple("drop", dated=True))
    run.read()
    for time in (20, 30):
        send(run, "orders", time, {"n": "many"}, time)
        run.read()

    assert not errors(run)
    assert run.frontier(ERRORS) > 9


def test_with_dropped_errors_a_failing_batch_goes_on() -> None:
    """It is finished under the plan of before, whose errors are taken back then."""
    run = Run(simple("fail"))
    send(run, "orders", 1, {"n": "many"})
    with pytest.raises(RecordError):
        run.read()

    run.restart(simple("drop"))
    run.read()

    assert not errors(run)
    send(run, "orders", 1, {"n": 1})
    run.read()
    assert not errors(run)


@pytest.mark.parametrize("policy", ["record", "fail"])
def test_errors_that_were_dropped_come_with_a_recovery(policy: str) -> None:
    run = fed(simple("drop"))
    with pytest.raises(CheckpointError, match=r"errors\.policy was drop, is ") as refused:
        run.restart(simple(policy))
    assert "ikebana recover" in str(refused.value.hint)
    # The run goes on.
    send(run, "orders", 1, {"n": 1})
    run.read()
    assert not errors(run)

    run.recover(simple())
    run.read()

    judge(run)
    assert errors(run).total() == 3


def test_a_recovery_takes_back_what_is_dropped_now() -> None:
    run = fed(simple())
    run.recover(simple("drop"))
    run.read(limit=1)

    assert not errors(run)
    assert run.collection("all") == fed(simple("drop")).collection("all")


def test_a_policy_that_only_ends_the_run_is_no_edit() -> None:
    """What was written stands, and is taken back with its rows."""
    run = fed(simple())
    run.restart(simple("fail"))
    assert run._metadata is None or not run._metadata.edits
    send(run, "orders", 1, {"n": 1})
    run.read()
    judge_plan = run._written
    run.restart(simple())
    run.read()

    assert judge_plan != run._written
    judge(run)


@pytest.mark.parametrize("gone", ["clicks", "given", "orders", "events"])
@pytest.mark.parametrize("shards", [1, 2])
def test_with_an_input_all_of_its_errors_go(gone: str, shards: int) -> None:
    """Those of keys, and those of which nothing but the error topic knows."""
    # Whether any input has times of its own may not change.
    dated = {"given", "kept"} if gone != "given" else set()
    names = [name for name in INPUTS if name not in {"again", *dated}]
    operators = {
        "orders": ORDER,
        "customers": {"customer": "{upsert: customers}"},
        "clicks": {"clicked": f"{{linear: clicks, where: {FAILING}}}"},
        "given": {"gave": f"{{linear: given, where: {FAILING}}}"},
        "kept": {"kept_ones": "{linear: kept, where: n > 0}"},
        "events": {"status": "{state_machine: events, step: 'machines:strict'}"},
    }
    outputs = {
        "orders": {"all": "{from: order, topic: all}"},
        "customers": {"names": "{from: customer, topic: names}"},
        "clicks": {"clicked": "{from: clicked, topic: clicked}"},
        "given": {"gave": "{from: gave, topic: gave}"},
        "kept": {"kept": "{from: kept_ones, topic: shown}"},
        "events": {"status": "{from: status, topic: status}"},
    }

    def plan(names: list[str]) -> Plan:
        found = [
            {k: v for name in names for k, v in each[name].items()}
            for each in (operators, outputs)
        ]
        return plan_of(names, *found)

    run = Run(plan(names), shards=shards)
    for topic in ("orders", "clicks", "customers"):
        for key, row in ((1, {"n": "x", "name": []}), (2, {"n": 0}), (b"{", {}), (3, {"n": 1})):
            send(run, topic, key, row)
    for event in ("good", "bad", "good", "bad"):
        send(run, "events", 1, event)
    send(run, "events", b"{", "good")
    if gone == "given":
        for time, n in enumerate(("x", 0, 1), start=1):
            for topic in ("given", "kept"):
                run.topics.update(topic, "1", json.dumps({"n": n}).encode(), time, 1)
                run.topics.close(topic, time + 1)
    run.read()
    had = errors(run)

    run.restart(plan([name for name in names if name != gone]))
    # With times of records, the time of the edit has to go by.
    run.topics.close("kept", 6)
    run.read(limit=2)

    assert errors(run) != had
    judge(run)


def test_of_inputs_of_one_topic_the_errors_of_one_go() -> None:
    outputs = {"all": "{from: order, topic: all}"}
    both = {**outputs, "more": "{from: other, topic: more}"}
    two = plan_of(["orders", "again"], {**ORDER, "other": "{upsert: again}"}, both)
    one = plan_of(["orders"], ORDER, outputs)
    run = fed(two)
    run.restart(one)
    run.read()

    # The ones that are left say which input has told them, as there were two.
    assert all(reason.startswith("input orders: ") for reason in errors(run))
    assert errors(run).total() == 3


WATCHED = {"status": "{state_machine: events, step: 'machines:two'}"}


@pytest.mark.parametrize("form", ["upsert", "debezium-json"])
@pytest.mark.parametrize("again", [False, True])
def test_with_an_output_go_the_errors_of_its_format(form: str, *, again: bool) -> None:
    """Also if another one has its name from then on."""
    own = {"out": f"{{from: status, topic: out, format: {form}}}"}
    every = {"all": "{from: order, topic: all}"}
    operators = {**ORDER, **WATCHED}
    run = Run(plan_of(["orders", "events"], operators, {**every, **own}), shards=2)
    for key in (1, 2):
        send(run, "events", key, "two")
    send(run, "orders", 1, {"n": "many"})
    run.read()
    had = 3 if form == "upsert" else 5
    assert errors(run).total() == had

    other = {"out": "{from: status, topic: other, format: upsert}"} if again else {}
    run.restart(plan_of(["orders", "events"], operators, {**every, **other}))
    run.read()

    assert errors(run).total() == (3 if again else 1)
    send(run, "events", 1, "one")
    send(run, "orders", 1, {"n": 1})
    run.read()
    assert errors(run).total() == (1 if again else 0)


def test_steps_behind_what_nothing_keeps_take_their_errors_with_them() -> None:
    """What the steps that stay have told stays."""
    operators = {
        **ORDER,
        "clicked": f"{{linear: clicks, where: {FAILING}}}",
        "other": "{linear: clicks, where: (20 / n)::BIGINT > 1}",
        "rates": "{reduce: clicked, by: (30 / (n - 1))::BIGINT, aggregates: {n: count(*)}}",
    }
    outputs = {
        "all": "{from: order, topic: all}",
        "clicked": "{from: rates, topic: clicked}",
        "other": "{from: other, topic: other}",
    }
    run = Run(plan_of(["orders", "clicks"], operators, outputs), shards=2)
    for n in (0, 1, 2):
        send(run, "clicks", n, {"n": n})
    run.read()
    assert {reason.partition(": ")[0] for reason in errors(run)} == {
        "operator clicked",
        "operator other",
        "operator rates",
    }

    del operators["rates"], operators["clicked"], outputs["clicked"]
    run.restart(plan_of(["orders", "clicks"], operators, outputs))
    run.read()

    judge(run)
    assert errors(run).total() == 1


def test_an_as_of_join_takes_its_errors_with_it() -> None:
    customers = {**ORDER, "customer": "{upsert: customers}"}
    priced = {
        "priced": "{as_of_join: {o: order, c: customer}, on: ['o.key = c.key'], "
        "select: {n: c.name::BIGINT}, retract: current}"
    }
    outputs = {"all": "{from: order, topic: all}"}
    shown = {**outputs, "priced": "{from: priced, topic: priced}"}
    run = Run(plan_of(["orders", "customers"], {**customers, **priced}, shown), shards=2)
    for key in (1, 2):
        send(run, "customers", key, {"name": "tea" if key == 1 else "7"})
        run.read()
        send(run, "orders", key, {"n": key})
        run.read()
    assert errors(run).total() == 1

    run.restart(plan_of(["orders", "customers"], customers, outputs))
    run.read()

    judge(run)
    assert not errors(run)


def test_an_error_that_waits_for_its_time_goes_with_its_input() -> None:
    """It is in no topic yet."""
    operators = {**ORDER, "clicked": "{linear: clicks, where: n > 1}"}
    outputs = {"all": "{from: order, topic: all}", "clicked": "{from: clicked, topic: clicked}"}
    run = Run(plan_of(["orders", "clicks"], operators, outputs, dated=True), shards=2)
    for time in (1, 5):
        send(run, "clicks", time, {"n": "x"}, time)
        send(run, "orders", time, {"n": 1}, time)
    run.read()
    one = {"all": outputs["all"]}
    run.restart(plan_of(["orders"], ORDER, one, dated=True))
    run.read()
    for time in (20, 30):
        send(run, "orders", time, {"n": 1}, time)
        run.read()

    assert run.frontier(ERRORS) > 9
    assert not errors(run)


def test_only_an_edit_with_which_such_errors_end_reads_the_error_topic() -> None:
    """Else what the state has is enough."""
    outputs = {"all": "{from: order, topic: all}"}
    before = plan_of(["orders"], {**ORDER, "some": "{linear: order, where: n > 1}"}, outputs)
    some = {**outputs, "some": "{from: some, topic: some}"}
    shown = plan_of(["orders"], {**ORDER, "some": f"{{linear: order, where: {FAILING}}}"}, some)
    for one, other in ((before, shown), (shown, before)):
        assert not edit_between(one, other).read_back
