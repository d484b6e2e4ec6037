"""Parts that were renamed, whose former names others have now: each goes on with its own state."""

import json
from collections import Counter

import pytest

from ikebana.processor.planning.edits import Edit
from ikebana.processor.planning.edits_resolved import as_written
from ikebana.testing import Run
from support import edited_runs
from support.edited_runs import plan_of

# What an as-of join shows depends on when its rows came: begun anew it would show something else.
JOINED = """
inputs:
  orders: {topic: orders, format: json, columns: {customer: BIGINT}}
  customers: {topic: customers, format: json, columns: {name: VARCHAR}}
operators:
  order: {upsert: orders}
  customer: {upsert: customers}
  priced:
    as_of_join: {o: order, c: customer}
    on: ["o.customer::VARCHAR = c.key::VARCHAR"]
    select: {n: c.name}
    retract: locked
outputs:
  out: {from: priced, topic: out}
"""
RENAMED = JOINED.replace("priced", "costs")
LINEAR = "  priced: {linear: order, where: customer > 0}\n"
COUNTED = "  priced: {reduce: order, by: customer, aggregates: {n: count(*)}}\n"


def begun(text: str = JOINED) -> Run:
    run = Run(plan_of(text), shards=2)
    send(run, "customers", 1, {"name": "old"})
    send(run, "orders", 1, {"customer": 1})
    send(run, "customers", 1, {"name": "new"})
    return run


def send(run: Run, topic: str, key: int, row: object) -> None:
    run.topics.send(topic, b"%d" % key, json.dumps(row).encode())
    run.read()


def edited(run: Run, text: str) -> Edit:
    edit = edited_runs.edited(run, text)
    run.read()
    return edit


def shown(run: Run, output: str = "out") -> Counter[str]:
    return Counter(map(repr, run.collection(output)))


OLD = Counter({repr((1, {"n": "old"})): 1})


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("other", [LINEAR, COUNTED])
def test_an_operator_goes_on_whatever_has_its_former_name(other: str, *, at_once: bool) -> None:
    run = begun()
    if not at_once:
        edited(run, RENAMED)
    found = RENAMED.replace(
        "outputs:\n", f"{other}outputs:\n  other: {{from: priced, topic: o}}\n"
    )

    edit = edited(run, found)

    assert not edit.gone
    assert shown(run) == OLD
    assert len(run.collection("other")) == 1
    # And with the first names once more.
    edited(run, JOINED)
    assert shown(run) == OLD


def test_what_has_the_former_name_may_be_made_of_what_had_it() -> None:
    text = JOINED.replace("outputs:\n", f"{COUNTED.replace('priced', 'counts')}outputs:\n")
    text += "  n: {from: counts, topic: n}\n"
    run = begun(text)
    over = "  counts: {reduce: sums, by: n, aggregates: {n: count(*)}}\noutputs:\n"
    found = text.replace("counts", "sums").replace("outputs:\n", over)

    edit = edited(run, found + "  over: {from: counts, topic: over}\n")

    assert edit.fresh == {"counts@2"}
    assert not edit.gone | edit.replaced
    assert len(run.collection("n")) == len(run.collection("over")) == 1


def test_two_operators_may_change_their_names() -> None:
    two = JOINED.replace(
        "outputs:\n",
        COUNTED.replace("priced", "counted") + "outputs:\n  n: {from: counted, topic: n}\n",
    )
    run = begun(two)
    swapped = two.replace("priced", "x").replace("counted", "priced").replace("x", "counted")

    edit = edited(run, swapped)

    assert not edit.fresh | edit.gone | edit.replaced
    assert shown(run) == OLD


def test_one_of_two_alike_goes_on_under_its_name() -> None:
    """The other one begins with what there is now, though it comes first in the file."""
    run = begun()
    copy = JOINED[JOINED.index("  priced:\n") : JOINED.index("outputs:")]
    text = JOINED.replace("  priced:\n", copy.replace("priced", "costs") + "  priced:\n")

    edit = edited(run, text + "  more: {from: costs, topic: more}\n")

    assert not edit.gone
    assert shown(run) == OLD
    assert shown(run, "more") == Counter({repr((1, {"n": "new"})): 1})


@pytest.mark.parametrize("turned", [False, True])
def test_an_input_goes_on_whatever_has_its_former_name(*, turned: bool) -> None:
    """In any order of the file."""
    run = begun()
    own = "  orders: {topic: orders, format: json, columns: {customer: BIGINT}}\n"
    other = "  orders: {topic: others, format: json, columns: {customer: BIGINT}}\n"
    bought = own.replace("  orders:", "  bought:")
    both = other + bought if turned else bought + other
    text = JOINED.replace(own, both).replace("upsert: orders", "upsert: bought")
    text = text.replace("  customer: {upsert", "  another: {upsert: orders}\n  customer: {upsert")

    edit = edited(run, text + "  others: {from: another, topic: shown}\n")
    send(run, "others", 2, {"customer": 2})

    assert not edit.gone
    assert shown(run) == OLD
    assert run.collection("others") == [(2, {"customer": 2})]
    # It goes on by that name.
    edit = edited(run, text)
    assert not edit.gone - {"another"}
    assert shown(run) == OLD


def test_an_output_that_was_renamed_leaves_its_name_to_another() -> None:
    run = begun()
    renamed = JOINED.replace("  out: {from", "  shown: {from")
    both = renamed + "  out: {from: order, topic: orders.out}\n"
    edited(run, both)
    # The plan that has run is read at each start.
    edited(run, both + "  more: {from: order, topic: more}\n")

    assert shown(run, "shown") == OLD
    assert run.collection("out") == run.collection("more") == [(1, {"customer": 1})]


def test_what_is_read_again_for_an_edit_that_is_withdrawn_is_dropped() -> None:
    """Also under an operator that was renamed before; nothing is read again for the old file."""
    text = "inputs:\n  orders: {topic: orders, format: json, columns: {quantity: BIGINT}}\n"
    text += "operators:\n  order: {upsert: orders}\noutputs:\n  all: {from: order, topic: all}\n"
    run = Run(plan_of(text))
    for number in range(8):
        send(run, "orders", number, {"quantity": number})
    renamed = text.replace("order:", "ordered:").replace("from: order", "from: ordered")
    edited(run, renamed)
    run.restart(plan_of(renamed.replace("BIGINT", "SMALLINT")))
    run.batch(limit=2)
    assert run._running.backfills

    run.restart(plan_of(renamed))

    assert [source.name for source in run.plan.inputs] == ["orders"]
    run.read(limit=2)
    assert not run._running.backfills
    assert len(run.collection("all")) == 8


def test_an_input_that_has_had_another_name_goes_on_beside_what_is_read_again() -> None:
    """What is read again has the name of now, and is of the edit that is withdrawn."""
    text = """
inputs:
  A: {topic: orders, format: json, columns: {n: BIGINT, m: BIGINT}}
  B: {topic: others, format: json, columns: {n: BIGINT, m: BIGINT}}
operators:
  order: {upsert: A}
  other: {upsert: B}
  some: {linear: order, select: {n: n}}
  more: {linear: other, select: {x: COLUMN}}
outputs:
  some: {from: some, topic: some}
  more: {from: more, topic: more}
"""
    first = text.replace("A", "orders").replace("B:", "others:").replace("B}", "others}")
    second = text.replace("A", "others").replace("B:", "orders:").replace("B}", "orders}")
    run = Run(plan_of(first.replace("COLUMN", "n")))
    for number in range(6):
        send(run, "orders", number, {"n": 1, "m": 2})
        send(run, "others", number, {"n": 1, "m": 2})
    edited(run, second.replace("COLUMN", "n"))
    run.restart(plan_of(second.replace("COLUMN", "m")))
    run.batch(limit=2)
    assert run._running.backfills == ("orders@2",)

    run.restart(plan_of(second.replace("COLUMN", "n")))

    assert [source.name for source in run.plan.inputs] == ["orders", "others"]
    edited(run, second.replace("COLUMN", "m"))
    assert sorted(run.collection("more")) == [(number, {"x": 2}) for number in range(6)]


def test_names_of_users_are_made_of_those_of_a_checkpoint() -> None:
    """The last generation has the name; those before have names that no part has."""
    run = begun(RENAMED)
    edited(run, RENAMED.replace("costs", "priced"))
    run = begun()
    edited(run, RENAMED)
    edited(
        run,
        RENAMED.replace(
            "outputs:\n", f"{LINEAR}{LINEAR.replace('priced:', 'priced.1:')}outputs:\n"
        ),
    )

    names = [operator.name for operator in run.plan.operators]

    assert names == ["order", "customer", "priced", "priced@2", "priced.1"]
    written = as_written(run.plan)
    assert [o.name for o in written.operators] == [*names[:2], "priced.2", "priced", "priced.1"]
    assert written.outputs[0].source == "priced.2"
