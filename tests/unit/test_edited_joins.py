"""Edits of what joins show, one by one: outputs get the difference, and no topic is read."""

import pytest

from ikebana.errors import CheckpointError
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.engine import replaying
from ikebana.testing import Run, Topics
from support.edited_runs import collection, edited, plan_of

INPUTS = """
inputs:
  orders:
    topic: orders
    format: json
    columns: {product: VARCHAR, customer: BIGINT, quantity: BIGINT}
  customers: {topic: customers, format: json, columns: {name: VARCHAR}}
operators:
  order: {upsert: orders}
  customer: {upsert: customers}
  totals: {reduce: order, by: customer, aggregates: {n: count(*)}}
"""
JOIN = """
  named:
    delta_join: {o: order, c: customer}
    where: ["o.customer::VARCHAR = c.key::VARCHAR", o.quantity > 3]
    select: {product: o.product, name: c.name}
"""
OUTPUTS = """
outputs:
  all: {from: order, topic: all}
"""
NAMED = "  named: {from: named, topic: named}\n"
WITHOUT = INPUTS + OUTPUTS
FIRST = INPUTS + JOIN + OUTPUTS + NAMED
FEW = "  few: {linear: named, where: name > 'n1'}\n"
BEHIND = INPUTS + JOIN + FEW + OUTPUTS + NAMED.replace("from: named", "from: few")
FAILING = FIRST.replace("o.quantity > 3", "(o.product || c.name)::BIGINT > 0")
# By either customer or product, whose pairs each path looks up otherwise.
CYCLE = FIRST.replace("c: customer}", "c: customer, p: order}").replace(
    "o.quantity > 3", '"p.product = o.product", "p.customer::VARCHAR = c.key::VARCHAR"'
)
NESTED = """
  again:
    delta_join: {a: named, b: customer}
    where: [a.name = b.name]
    select: {product: a.product, who: b.key}
"""


def send(topics: Topics, numbers: range) -> None:
    """An order at each number, and a customer for each fourth of them."""
    for number in numbers:
        product = "tea" if number % 3 else "milk"
        order = {"product": product, "customer": number % 4, "quantity": number}
        topics.send("orders", b"%d" % number, order, timestamp=number)
        if number % 4 == 0:
            key, name = number // 4, f"n{number // 4}"
            topics.send("customers", b"%d" % key, {"name": name}, timestamp=number)


def started(text: str, shards: int = 2) -> Run:
    topics = Topics()
    send(topics, range(13))
    run = Run(plan_of(text), topics, shards=shards)
    run.read()
    return run


def updates(run: Run, output: str) -> list[KeyedUpdate]:
    return run.written.updates[run._output(output).name]


def judge(run: Run, text: str) -> None:
    """All outputs are those of the plan of now, when the edit's time is closed, and later."""
    closes = [] if "event_time" in text else [range(0)]
    for numbers in (*closes, range(13, 18)):
        send(run.topics, numbers)
        run.read()
        fresh = Run(plan_of(text), run.topics)
        fresh.read()
        for output in fresh._written.published:
            assert collection(run, output.name) == collection(fresh, output.name), output.name


CASES = [
    pytest.param(FIRST, FIRST.replace("> 3", "> 6"), id="a condition over one input"),
    pytest.param(FIRST, FIRST.replace("o.quantity > 3", "o.product < c.name"), id="over both"),
    pytest.param(FIRST, FIRST.replace("name: c.name", "name: c.key"), id="a select"),
    pytest.param(FIRST, FIRST.replace("o: order,", "o: order, p: order,").replace(
        "o.quantity > 3", "p.key = o.key"), id="another input"),
    pytest.param(FIRST, FIRST.replace("{o: order, c: customer}", "{c: customer, o: order}"),
                 id="inputs in another order"),
    pytest.param(FIRST, BEHIND, id="a filter behind"),
    pytest.param(BEHIND, FIRST, id="no filter behind"),
    pytest.param(FIRST, FIRST.replace("from: named", "from: totals"), id="another source"),
    pytest.param(FIRST, WITHOUT + NAMED.replace("from: named", "from: totals"), id="no join"),
    pytest.param(FIRST, FIRST + "  more: {from: named, topic: more}\n", id="another output"),
    pytest.param(
        FIRST,
        INPUTS + JOIN + "  by_name: {reduce: named, by: name, aggregates: {n: count(*)}}\n"
        + OUTPUTS + NAMED.replace("from: named", "from: by_name"),
        id="a reduction over it",
    ),
    pytest.param(FIRST, INPUTS + JOIN + NESTED + OUTPUTS + NAMED.replace("named,", "again,"),
                 id="a join over it"),
    pytest.param(INPUTS + JOIN + NESTED + OUTPUTS + NAMED.replace("named,", "again,"),
                 (INPUTS + JOIN + NESTED + OUTPUTS + NAMED.replace("named,", "again,")).replace(
                     "> 3", "> 6"), id="what a join reads"),
    pytest.param(CYCLE, FIRST, id="a cycle that goes"),
    pytest.param(FIRST, CYCLE, id="a cycle that comes"),
    pytest.param(CYCLE.replace("select:", "strategy: lookup\n    select:"), FIRST, id="lookups"),
    pytest.param(FAILING, FIRST, id="what has failed"),
    pytest.param(FAILING, WITHOUT, id="what has failed, and nobody shows"),
    pytest.param(FIRST, FAILING, id="what fails"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), CASES)
@pytest.mark.parametrize("portion", [2, 1_000])
def test_an_output_of_a_join_gets_the_difference(
    before: str, after: str, portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever changes: the join, what it reads, or what is behind it."""
    monkeypatch.setattr(replaying, "PORTION", portion)
    run = started(before)
    edited(run, after)
    judge(run, after)


def test_only_what_differs_is_written() -> None:
    """In both, a row comes out in the shard of the same customer, where it cancels."""
    run = started(FIRST)
    before = len(updates(run, "named"))
    at = run.last.upper

    edited(run, FIRST.replace("> 3", "> 6"))
    run.read()

    new = updates(run, "named")[before:]
    assert {(update.key, update.time, update.diff) for update in new} == {
        (b"4", at, -1),
        (b"5", at, -1),
        (b"6", at, -1),
    }


def test_an_output_by_key_gets_it_in_the_shard_of_the_key() -> None:
    """Whether that of before, or only that of now, puts together what a key has."""
    by_key = NAMED.replace("topic: named", "topic: latest, format: upsert").replace(
        "  named:", "  latest:"
    )
    run = started(FIRST, shards=3)
    edited(run, FIRST + by_key)
    judge(run, FIRST + by_key)
    edited(run, BEHIND + by_key.replace("from: named", "from: few"))
    judge(run, BEHIND + by_key.replace("from: named", "from: few"))


def test_what_an_output_by_key_got_by_an_edit_can_be_taken_back() -> None:
    """Later changes of a key come to its shard, which has to have shown what the key has."""
    after = FIRST + "  latest: {from: named, topic: latest, format: upsert}\n"
    run = started(FIRST, shards=3)
    edited(run, after)
    judge(run, after)
    for number in range(13):
        run.topics.send("orders", b"%d" % number, None, timestamp=20)

    run.read()

    shown = {message.key: message.value for message in run.messages("latest")}
    left = {key for key, value in shown.items() if value is not None}
    assert left == {key for key, _ in collection(run, "latest")}
    assert shown.keys() - left >= {b"5", b"6", b"8", b"9", b"12"}


@pytest.mark.parametrize("moment", range(8))
def test_a_death_anywhere_changes_nothing(moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while results are on their way between shards; one of two had committed."""
    monkeypatch.setattr(replaying, "PORTION", 3)
    after = FIRST.replace("> 3", "> 6")
    run = started(CYCLE)
    edited(run, after)
    for _ in range(moment):
        run.batch()
    run.crash(committed=[moment % 2])
    run.restart(plan_of(after))
    judge(run, after)


DATED = FIRST.replace("format: json\n", "format: json\n    event_time: {clock: kafka}\n").replace(
    "customers: {topic", "customers: {event_time: {clock: kafka}, topic"
)


@pytest.mark.parametrize("shards", [2, 3])
def test_a_join_that_has_begun_at_the_same_time_has_shown_nothing(shards: int) -> None:
    """Where times are those of records, none is closed while nothing comes."""
    second, third = DATED.replace("> 3", "> 6"), DATED.replace("> 3", "> 1")
    run = started(DATED)
    at = run.last.upper
    edited(run, second)
    run.read()
    assert run.last.upper == at
    assert (run.last.transition.began, run.last.transition.at) == (["named@2"], at)

    run.restart(plan_of(third), shards=shards)
    run.read()

    assert run.last.upper == at
    judge(run, third)
    assert set(run.last.transition.began) <= {"named@3"}


def test_what_a_join_begins_with_goes_to_the_shards_of_its_keys() -> None:
    """Where an edit at the same time adds an output that wants it there."""
    second = DATED.replace("> 3", "> 6")
    third = second + "  latest: {from: named, topic: latest, format: upsert}\n"
    run = started(DATED, shards=3)
    edited(run, second)
    run.read()
    edited(run, third)
    judge(run, third)
    latest = run.messages("latest")
    assert len({message.key for message in latest}) == len(collection(run, "latest"))


def test_a_new_stage_waits_while_what_it_begins_with_is_filled() -> None:
    """Of a reduction that begins with the same edit, by a key that nobody else asks."""
    join = """
  named:
    delta_join: {t: totals, c: customer, o: order}
    strategy: lookup
    orders: {o: [c, t], c: [o, t]}
    where:
      - t.key::VARCHAR = o.customer::VARCHAR
      - (t.n - 2)::VARCHAR = c.key::VARCHAR
      - (o.quantity % 2)::VARCHAR = c.key::VARCHAR
    select: {n: t.n, name: c.name, who: o.key}
"""
    before = INPUTS + join + OUTPUTS + NAMED
    after = before.replace("n: count(*)", "n: count(*), most: max(quantity)")
    run = started(before)
    assert collection(run, "named")
    edited(run, after)
    judge(run, after)


AS_OF = FIRST.replace("delta_join", "as_of_join").replace("where:", "on:")


@pytest.mark.parametrize(
    "after",
    [
        AS_OF.replace(
            "outputs:", "  tea: {linear: named, where: \"name = 'tea'\"}\noutputs:"
        ).replace("{from: named", "{from: tea"),
        AS_OF + "  more: {from: named, topic: more}\n",
    ],
)
def test_results_of_an_as_of_join_are_not_computed_once_more(after: str) -> None:
    """They depend on when the rows of its left came; the refusal says so, and what to do."""
    run = started(AS_OF)
    with pytest.raises(CheckpointError, match="an as-of join depend on when the rows") as refused:
        edited(run, after)
    assert "under another name" in (refused.value.hint or "")
