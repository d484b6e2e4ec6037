"""Edits of a running plan, one by one: what stays, what outputs get, and what is refused."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from msgspec import structs

from ikebana.codecs import cdcv2
from ikebana.errors import CheckpointError
from ikebana.processor.base.texts import shown
from ikebana.processor.engine import replaying
from ikebana.processor.planning import edits_resolved
from ikebana.processor.topics.source_offset import is_settled
from ikebana.testing import Run, Topics
from support.edited_runs import Collection, collection, edited, plan_of

FIRST = """
inputs:
  orders:
    topic: orders
    format: json
    columns: {product: VARCHAR, customer: BIGINT, quantity: BIGINT, note: VARCHAR}
operators:
  order: {upsert: orders}
  large: {linear: order, where: quantity > 3}
  totals: {reduce: order, by: product, aggregates: {n: count(*), q: sum(quantity)}}
outputs:
  all: {from: order, topic: all}
  large: {from: large, topic: large}
  totals: {from: totals, topic: totals}
"""


def started(text: str = FIRST, shards: int = 2) -> Run:
    topics = Topics()
    for number in range(12):
        order(topics, number, "tea" if number % 3 else "milk", number)
    run = Run(plan_of(text), topics, shards=shards)
    run.read()
    return run


def order(topics: Topics, number: int, product: str, quantity: int | None) -> None:
    value = {"product": product, "customer": number % 2, "quantity": quantity, "note": "n"}
    body = None if quantity is None else json.dumps(value).encode()
    topics.send("orders", b"%d" % number, body)


def expected(run: Run, text: str, output: str) -> Collection:
    fresh = Run(plan_of(text), run.topics)
    fresh.read()
    return collection(fresh, output)


def test_an_added_output_gets_what_is_there() -> None:
    run = started()
    text = FIRST + "  again: {from: large, topic: again}\n"
    edit = edited(run, text)
    assert edit.added == {"again"}
    assert not edit.replaced | edit.fresh
    run.read()
    assert collection(run, "again") == expected(run, text, "again")
    assert len(run.written.updates["again"]) == 8


def test_a_concatenation_of_a_collection_with_itself_counts_twice() -> None:
    twice = FIRST.replace("outputs:", "  twice: {concat: [order, order]}\noutputs:")
    run = started(twice)
    added = twice + "  doubled: {from: twice, topic: doubled}\n"
    edited(run, added)
    order(run.topics, 3, "tea", None)
    run.read()
    assert collection(run, "doubled") == expected(run, added, "doubled")
    assert set(collection(run, "doubled").values()) == {2}
    # What goes again is taken back twice, too.
    replaced = added.replace("{from: twice, topic", "{from: order, topic")
    edited(run, replaced)
    run.read()
    assert collection(run, "doubled") == expected(run, replaced, "doubled")


def test_a_changed_filter_gives_the_difference_alone() -> None:
    run = started()
    before = len(run.written.updates["large"])
    text = FIRST.replace("quantity > 3", "quantity > 5")
    edit = edited(run, text)
    assert edit.replaced == {"large"}
    at = run.last.upper
    run.read()
    new = run.written.updates["large"][before:]
    assert sorted((json.loads(u.value)["quantity"], u.time, u.diff) for u in new) == [
        (4, at, -1),
        (5, at, -1),
    ]
    order(run.topics, 5, "tea", 9)
    run.read()
    assert collection(run, "large") == expected(run, text, "large")


def test_a_changed_reduction_begins_with_what_its_source_has() -> None:
    run = started()
    text = FIRST.replace("n: count(*)", "n: count(*), most: max(quantity)")
    edit = edited(run, text)
    assert edit.fresh == {"totals@2"}
    assert edit.gone == edit.replaced == {"totals"}
    run.read()
    assert collection(run, "totals") == expected(run, text, "totals")
    order(run.topics, 0, "coffee", 7)
    order(run.topics, 1, "tea", None)
    run.read()
    assert collection(run, "totals") == expected(run, text, "totals")
    # And once more, back to what it was: a third generation.
    assert edited(run, FIRST).fresh == {"totals@3"}
    run.read()
    assert collection(run, "totals") == expected(run, FIRST, "totals")
    kept = {place.partition(b"\0")[0] for store in run.stores for place, _ in store.scan(b"")}
    assert kept >= {b"reduce totals@3"}
    assert not kept & {b"reduce totals", b"reduce totals@2"}


def test_a_new_input_is_read_from_its_beginning() -> None:
    run = started()
    for number in range(2):
        run.topics.send("customers", b"%d" % number, json.dumps({"name": f"c{number}"}).encode())
    text = (
        FIRST.replace(
            "operators:\n",
            "  customers: {topic: customers, format: json, columns: {name: VARCHAR}}\noperators:\n"
            "  customer: {upsert: customers}\n"
            "  named:\n"
            "    delta_join: {o: order, c: customer}\n"
            "    where: [o.customer::VARCHAR = c.key::VARCHAR]\n"
            "    select: {product: o.product, name: c.name}\n",
        )
        + "  named: {from: named, topic: named}\n"
    )
    edited(run, text)
    run.read()
    assert collection(run, "named") == expected(run, text, "named")
    assert sum(collection(run, "named").values()) == 12


def test_an_upsert_may_have_the_name_of_its_input() -> None:
    """It keeps what it has had, which an input of updates does not."""
    text = FIRST.replace("order: {upsert", "orders: {upsert").replace(
        "linear: order,", "linear: orders,"
    )
    text = text.replace("reduce: order,", "reduce: orders,").replace(
        "from: order,", "from: orders,"
    )
    run = started(text)
    edited(run, text.replace("quantity > 3", "quantity > 5"))
    run.read()
    assert len(collection(run, "large")) == 6


def test_what_is_renamed_without_state_stays() -> None:
    run = started()
    text = FIRST.replace("large: {linear", "big: {linear").replace("from: large", "from: big")
    edit = edited(run, text)
    before = {name: len(found) for name, found in run.written.updates.items()}
    run.read()
    assert edit.fresh == edit.gone == frozenset()
    assert {name: len(found) for name, found in run.written.updates.items()} == before


MACHINE = "status: {state_machine: events, step: 'machines:one_more'}"
RENAMED = (
    FIRST.replace("order: {upsert", "ordered: {upsert")
    .replace("order, by", "ordered, by")
    .replace("order, where", "ordered, where")
    .replace("from: order,", "from: ordered,")
    .replace("totals: {reduce", "sums: {reduce")
    .replace("totals: {from: totals,", "sums: {from: sums,")
)


def test_what_is_renamed_keeps_its_state_and_its_topic() -> None:
    run = started()
    edit = edited(run, RENAMED)
    assert not edit.fresh | edit.gone | edit.added | edit.removed
    # An operator's name is in the error records of its steps alone.
    before = {name: len(found) for name, found in run.written.updates.items()}
    run.read()
    assert {name: len(found) for name, found in run.written.updates.items()} == before
    order(run.topics, 0, "coffee", 7)
    run.read()
    assert collection(run, "totals") == expected(run, FIRST, "totals")
    assert Counter(map(repr, run.collection("sums"))).total() == 3
    edited(run, plan_of(RENAMED.replace("q: sum(quantity)", "q: max(quantity)")))
    run.read()
    # And back to the first names, with the first definition.
    edited(run, FIRST)
    run.read()
    assert collection(run, "totals") == expected(run, FIRST, "totals")


@pytest.mark.parametrize(
    "now",
    [
        "status: {state_machine: events, step: 'machines:ten_more'}",
        "other: {state_machine: events, step: 'machines:ten_more'}",
        "other: {upsert: events}",
    ],
)
@pytest.mark.parametrize("dated", [False, True])
def test_what_needs_an_input_from_its_beginning_reads_it_again(now: str, *, dated: bool) -> None:
    """Beside what goes on, whether we make times or records have theirs."""
    events = "{topic: events, format: json" + (", event_time: {clock: kafka}}" if dated else "}")
    text = FIRST.replace(
        "outputs:\n", f"  {MACHINE}\noutputs:\n  shown: {{from: status, topic: shown}}\n"
    ).replace("inputs:\n", f"inputs:\n  events: {events}\n")
    run = started(text)
    for number in range(6):
        run.topics.send("events", number % 2, "e", timestamp=number)
    run.read()
    name, _, _ = now.partition(":")
    new = plan_of(text.replace(MACHINE, now).replace("from: status", f"from: {name}"))
    edited(run, new)
    for time in (6, 9):
        # The last one closes the time of the edit, and waits itself.
        run.topics.send("events", 1, "f", timestamp=time)
        run.read(limit=2)

    fresh = Run(new, run.topics)
    fresh.read()
    assert sorted(run.collection("shown")) == sorted(fresh.collection("shown")) != []


def test_a_machine_of_a_greater_version_goes_on_with_its_states() -> None:
    text = FIRST.replace(
        "outputs:\n", f"  {MACHINE}\noutputs:\n  status: {{from: status, topic: status}}\n"
    ).replace("inputs:\n", "inputs:\n  events: {topic: events, format: json}\n")
    run = started(text)
    for _ in range(3):
        run.topics.send("events", 1, "e")
    run.read()
    tens = "step: 'machines:ten_more', version: 2, migrate: 'machines:ten_times'"
    edit = edited(run, text.replace("step: 'machines:one_more'", tens))
    assert not edit.fresh | edit.gone | edit.affected
    assert run.collection("status") == [(1, 3)]
    run.topics.send("events", 1, "e")
    run.read()
    assert run.collection("status") == [(1, 40)]


def test_a_machine_of_a_greater_version_has_to_convert_its_states() -> None:
    """The batch with the first of them would fail, and so would each later try of it."""
    text = FIRST.replace(
        "outputs:\n", f"  {MACHINE}\noutputs:\n  status: {{from: status, topic: status}}\n"
    ).replace("inputs:\n", "inputs:\n  events: {topic: events, format: json}\n")
    run = started(text)
    run.topics.send("events", 1, "e")
    run.read()
    tens = "step: 'machines:ten_more', version: 2"
    with pytest.raises(CheckpointError) as refused:
        edited(run, text.replace("step: 'machines:one_more'", tens))

    assert "operators.status" in str(refused.value)
    assert "its states are of version 1 or before" in str(refused.value)


def test_errors_follow_the_plan() -> None:
    text = FIRST.replace("quantity > 3", "(10 / quantity)::BIGINT > 1 and note::BIGINT > 0")
    run = started(text)
    assert sum(collection(run, "errors").values()) > 0
    edited(run, FIRST)
    run.read()
    assert not collection(run, "errors")
    edited(run, text)
    run.read()
    assert collection(run, "errors") == expected(run, text, "errors")


@pytest.mark.parametrize(
    ("was", "now", "path"),
    [
        ("topic: orders\n", "topic: others\n", "inputs.orders"),
        ("topic: large}", "topic: all}", "outputs.large"),
    ],
)
def test_what_cannot_be_is_refused_by_name(was: str, now: str, path: str) -> None:
    run = started()
    plan = plan_of(FIRST.replace(was, now)) if "all" not in now else None
    if plan is None:
        first = plan_of(FIRST)
        outputs = tuple(
            replace(o, format="upsert") if o.name == "all" else o for o in first.outputs
        )
        plan, path = replace(first, outputs=outputs), "outputs.all"
    with pytest.raises(CheckpointError, match=path):
        edited(run, plan)


def test_a_refusal_has_the_name_that_the_file_has_now() -> None:
    """An output that was renamed and gets another format is refused by its new name."""
    run = started()
    text = FIRST.replace("large: {from: large, topic: large}", "big: {from: large, topic: large}")
    with pytest.raises(CheckpointError, match=r"outputs\.big ") as refused:
        edited(run, text.replace("topic: large}", "topic: large, format: upsert}"))
    assert "outputs.large" not in str(refused.value)
    # What was renamed by an edit before has its name of then, too.
    edited(run, text)
    with pytest.raises(CheckpointError, match=r"outputs\.big "):
        edited(run, text.replace("topic: large}", "topic: large, format: upsert}"))


DATED = FIRST.replace(
    "quantity: BIGINT, note: VARCHAR}",
    "quantity: BIGINT, note: VARCHAR}\n    event_time: {clock: kafka, ahead: never}",
)
LARGER = DATED.replace("quantity > 3", "quantity > 5")
COUNTED = LARGER.replace("n: count(*)", "n: count(*), most: max(quantity)")


def dated(numbers: range, run: Run) -> Run:
    """Send an order at each time, of which the last waits for what comes later."""
    for number in numbers:
        value = {"product": "tea", "customer": 0, "quantity": number, "note": "n"}
        run.topics.send("orders", b"%d" % number, json.dumps(value).encode(), timestamp=number)
    run.read()
    return run


@pytest.mark.parametrize("then", [LARGER, COUNTED, DATED])
def test_a_second_edit_at_the_same_time_adds_to_what_the_first_gave(then: str) -> None:
    """Where times are those of records, none is closed while nothing comes."""
    run = dated(range(10), Run(plan_of(DATED), Topics(), shards=2))
    at = run.last.upper
    edited(run, LARGER)
    run.read()
    edited(run, COUNTED)
    run.read()
    edited(run, then)
    run.read()
    assert run.last.upper == at
    dated(range(10, 12), run)
    for output in ("all", "large", "totals", "errors"):
        fresh = dated(range(0), Run(plan_of(then), run.topics))
        assert collection(run, output) == collection(fresh, output)


def test_functions_of_the_plan_of_before_may_go_when_all_portions_are_done() -> None:
    """Also while the time of the edit is open, and its updates wait in the outputs."""
    by_function = DATED.replace("where: quantity > 3", "filter: 'machines:is_large'")
    run = dated(range(10), Run(plan_of(by_function), Topics(), shards=2))
    edited(run, LARGER)
    run.read()
    assert run.last.transition.at
    metadata = run._metadata
    assert metadata is not None
    gone = json.loads(json.dumps(metadata.before).replace("machines:", "machines:no_"))
    run._metadata = structs.replace(metadata, before=gone)
    run.restart(plan_of(LARGER))
    dated(range(10, 12), run)
    for output in ("all", "large", "totals", "errors"):
        fresh = dated(range(0), Run(plan_of(LARGER), run.topics))
        assert collection(run, output) == collection(fresh, output)


def test_functions_of_a_plan_that_no_batch_has_run_may_go() -> None:
    """The program is rolled back with the file, and has none of the functions of that plan."""
    run = started()
    edited(run, FIRST.replace("where: quantity > 3", "filter: 'machines:is_large'"))
    metadata = run._metadata
    assert metadata is not None
    gone = json.loads(json.dumps(metadata.plan).replace("machines:", "machines:no_"))
    run._metadata = structs.replace(metadata, plan=gone)
    order(run.topics, 12, "tea", 12)
    edited(run, FIRST)
    run.read()
    assert (run.last.transition.edits, run.released) == (0, ())
    assert collection(run, "large") == expected(run, FIRST, "large")


@pytest.mark.parametrize("then", [LARGER, COUNTED, DATED])
def test_a_plan_that_no_batch_has_run_leaves_nothing(then: str) -> None:
    """Neither its names nor its topics are taken, and the next is an edit of what has run."""
    run = dated(range(10), Run(plan_of(DATED), Topics(), shards=2))
    tried = COUNTED + "  more: {from: totals, topic: more}\n"
    edited(run, tried)
    edited(run, then)
    dated(range(10, 12), run)
    edited(run, tried)
    dated(range(12, 14), run)
    assert {shown(operator.name) for operator in run.plan.operators} == {
        "order",
        "large",
        "totals",
    }
    assert "totals@2" in {operator.name for operator in run.plan.operators}
    for output in ("all", "large", "totals", "more", "errors"):
        fresh = dated(range(0), Run(plan_of(tried), run.topics))
        assert collection(run, output) == collection(fresh, output)


@pytest.mark.parametrize("then", [LARGER, COUNTED, DATED])
def test_while_portions_are_on_their_way_another_edit_waits_until_they_have_gone(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that takes the first back, and one that is the same."""
    monkeypatch.setattr(replaying, "PORTION", 2)
    run = dated(range(10), Run(plan_of(DATED), Topics(), shards=2))
    edited(run, LARGER.replace("q: sum", "q: max"))
    run.batch()
    run.crash(committed=[1])
    edited(run, then)
    dated(range(10, 12), run)
    for output in ("all", "large", "totals", "errors"):
        fresh = dated(range(0), Run(plan_of(then), run.topics))
        assert collection(run, output) == collection(fresh, output)


# Its large orders by customer, which lie in other shards, and so are exchanged.
BY_CUSTOMER = FIRST.replace("by: product", "by: customer")


def busy() -> Run:
    """A run between whose operators updates are on their way, with a batch that is unfinished."""
    run = started(BY_CUSTOMER)
    for number in range(12, 16):
        order(run.topics, number, "tea", number)
    run.batch()
    assert not is_settled(run.last)
    return run


@pytest.mark.parametrize("dies", [False, True])
def test_what_is_on_its_way_is_finished_under_the_plan_of_before(*, dies: bool) -> None:
    """What the log has of it and no more: it reads nothing, and then the new plan goes on."""
    run = busy()
    if dies:
        run.crash(committed=[1])
    read, was = run.last.positions, run.plan.fingerprint()
    order(run.topics, 99, "tea", 99)
    text = BY_CUSTOMER.replace("q: sum(quantity)", "most: max(quantity)")
    edited(run, text)
    frontier = run.last.upper
    while not is_settled(run.last):
        run.batch()
        assert (run.last.positions, run.last.plan, run.last.transition.edits) == (read, was, 0)
    # What was exchanged is in, and time has not gone on.
    assert (run.last.upper, run.frontier("totals")) == (frontier, frontier)
    assert "99" not in str(run.collection("all"))
    run.read()
    assert run.last.transition.edits == 1
    for output in ("all", "large", "totals"):
        assert collection(run, output) == expected(run, text, output)


def test_deaths_while_that_is_finished_change_nothing() -> None:
    """Nor does another plan that comes meanwhile, or the one of before."""
    run = busy()
    text = BY_CUSTOMER.replace("q: sum(quantity)", "most: max(quantity)")
    for then in (text, BY_CUSTOMER.replace("quantity > 3", "quantity > 5"), text):
        edited(run, then)
        run.crash(committed=[0])
        run.crash()
    edited(run, BY_CUSTOMER)
    run.crash(committed=[1])
    edited(run, text)
    run.read()
    assert run.last.transition.edits == 1
    for output in ("all", "large", "totals"):
        assert collection(run, output) == expected(run, text, output)


def with_change(on_change: str, text: str = FIRST) -> str:
    """The pipeline whose output of large orders says what becomes of its topic."""
    return text.replace("topic: large}", f"topic: large, on_change: {on_change}}}")


LARGER_STILL = FIRST.replace("quantity > 3", "quantity > 5")


def test_an_output_may_refuse_to_become_another_collection() -> None:
    """By its name, with what makes it another one; all that leaves it alone may be."""
    run = started(with_change("refuse"))
    with pytest.raises(CheckpointError) as refused:
        edited(run, with_change("refuse", LARGER_STILL))
    told = "outputs.large shows other data, since operators.large changed, which its on_change"
    assert f"{told} refuses" in str(refused.value)
    assert refused.value.paths == ("outputs.large",)
    assert "Set its on_change to difference" in (refused.value.hint or "")
    # A step of another name makes the same collection.
    renamed = with_change("refuse").replace("large: {linear", "big: {linear")
    edited(run, renamed.replace("from: large", "from: big"))
    run.read()
    other = with_change("refuse", FIRST.replace("q: sum", "q: max"))
    edited(run, other)
    run.read()
    assert collection(run, "totals") == expected(run, other, "totals")
    # What the file says now counts.
    edited(run, LARGER_STILL)
    run.read()
    assert collection(run, "large") == expected(run, LARGER_STILL, "large")


def test_what_reads_what_has_changed_refuses_too() -> None:
    """The cause is where the file differs, and not on the way."""
    text = FIRST.replace("reduce: order", "reduce: large").replace(
        "topic: totals}", "topic: totals, on_change: refuse}"
    )
    run = started(text)
    with pytest.raises(CheckpointError, match=r"outputs.totals .* operators.large changed,"):
        edited(run, text.replace("quantity > 3", "quantity > 5"))
    with pytest.raises(CheckpointError, match=r"since outputs.totals.from changed,"):
        edited(run, text.replace("{from: totals", "{from: large"))


def test_an_output_may_ask_for_a_new_topic() -> None:
    """There it begins with all that there is; the old one stays as it is."""
    run = started(with_change("new-topic"))
    before = list(run.written.updates["large"])
    with pytest.raises(CheckpointError, match=r"outputs.large .* wants a new topic"):
        edited(run, with_change("new-topic", LARGER_STILL))
    anew = with_change("new-topic", LARGER_STILL).replace("topic: large,", "topic: large.2,")
    assert edited(run, anew).added == {"large@2"}
    run.read()
    assert run.written.updates["large"] == before
    assert collection(run, "large@2") == expected(run, LARGER_STILL, "large")
    with pytest.raises(CheckpointError, match='topic "large", which has what an output'):
        edited(run, with_change("new-topic", LARGER_STILL))


def test_what_an_output_says_of_changes_is_no_edit() -> None:
    run = started()
    edit = edited(run, with_change("refuse"))
    assert not edit.affected | edit.fresh
    assert not run.batch()
    assert run.plan.fingerprint() == plan_of(FIRST).fingerprint()


GIVEN = LARGER.replace(
    "inputs:\n",
    "inputs:\n  given: {topic: given, format: diff, mode: diffs, columns: {x: BIGINT}}\n",
).replace(
    "outputs:\n",
    "  giving: {reduce: given, by: x, aggregates: {n: count(*)}}\n"
    "outputs:\n  giving: {from: giving, topic: giving}\n",
)


@pytest.mark.parametrize("edits_more", [0, 1, 2])
def test_an_added_topic_of_updates_is_read_from_its_beginning(edits_more: int) -> None:
    """What it had before the edit counts at its time, also if time stands still at first."""
    run = dated(range(10), Run(plan_of(DATED), Topics(), shards=2))
    run.topics.create("given")
    for time in (0, 3, 9):
        run.topics.update("given", time, {"x": 1}, time, 1)
    run.topics.close("given", 5)
    edited(run, GIVEN)
    at = run.last.upper
    for aggregate in ("max", "min")[:edits_more]:
        run.read()
        edited(run, GIVEN.replace("q: sum", f"q: {aggregate}"))
    run.read()
    run.topics.update("given", 2, {"x": 2}, 10, 1)
    run.topics.close("given", 12)
    dated(range(10, 14), run)
    assert at == 9
    assert run.collection("giving", at) == [(1, {"n": 3})]
    assert run.collection("giving") == [(1, {"n": 3}), (2, {"n": 1})]


def tell(run: Run, topic: str, upper: int, *times: int) -> None:
    """Send facts of these times, and that there are no others before a time."""
    facts = [(b"%d" % time, b'{"x":1}', time, 1) for time in times]
    for message in (
        *cdcv2.encode_updates(facts, 10_000),
        *cdcv2.encode_progress(0, upper, Counter(times), 10_000),
    ):
        run.topics.send(topic, None, message)


GIVEN_FACTS = GIVEN.replace("format: diff", "format: cdcv2-json")


@pytest.mark.parametrize("edits_more", [0, 1, 2])
@pytest.mark.parametrize("late", [False, True])
def test_an_added_topic_of_facts_is_read_from_its_beginning(
    edits_more: int, *, late: bool
) -> None:
    """Those of times that were closed before the edit count at its time."""
    run = dated(range(10), Run(plan_of(DATED), Topics(), shards=2))
    at = run.last.upper
    run.topics.create("given")
    if not late:
        tell(run, "given", 12, 0, 3, 9)
    edited(run, GIVEN_FACTS)
    for aggregate in ("max", "min")[:edits_more]:
        run.read()
        edited(run, GIVEN_FACTS.replace("q: sum", f"q: {aggregate}"))
    run.read()
    if late:
        tell(run, "given", 12, 0, 3, 9)
        run.read()
    assert (run.last.upper, run.collection("giving")) == (at, [])
    dated(range(10, 13), run)
    assert run.last.upper == 12
    # What is told once more is no more than that.
    tell(run, "given", 20, 0, 3, 9, 12, 15)
    dated(range(13, 20), run)
    assert run.collection("giving", at) == [(1, {"n": 3})]
    assert run.collection("giving") == [(1, {"n": 5})]
    assert run.counted["repeated"] == 3


@pytest.mark.parametrize("made", ["diff", "cdcv2-json"])
def test_an_input_may_have_the_name_of_one_that_is_gone(made: str) -> None:
    """What is known of the times of the other one says nothing about it."""
    first = GIVEN.replace("format: diff", f"format: {made}")
    then = first.replace("given, format", "given.2, format").replace(
        "topic: giving}", "topic: giving.2}"
    )
    run = dated(range(10), Run(plan_of(DATED), Topics(), shards=2))
    for topic in ("given", "given.2"):
        run.topics.create(topic)
        if made == "diff":
            for time in (0, 3, 9):
                run.topics.update(topic, time, {"x": 1}, time, 1)
            run.topics.close(topic, 20)
        else:
            tell(run, topic, 20, 0, 3, 9)
    for step, text in enumerate((first, LARGER, then)):
        edited(run, text)
        dated(range(10 + step, 11 + step), run)
    assert run.collection("giving") == [(1, {"n": 3})]


def test_names_tell_generations_apart() -> None:
    assert edits_resolved.generations(plan_of(FIRST), {"totals": 4})["totals"] == 4


def test_a_column_that_decoding_still_keeps_is_read_as_it_is_declared_now() -> None:
    """Nothing needs it any more, but rows have it since the plan before needed whole ones."""
    slim = """
operators:
  order: {upsert: orders}
  slim: {linear: order, select: {p: product}}
outputs:
  slim: {from: slim, topic: slim}
"""
    inputs, _, _ = FIRST.partition("operators:")
    run = started()
    run.restart(plan_of(inputs + slim))
    run.read()
    small = inputs.replace("quantity: BIGINT", "quantity: SMALLINT") + slim
    run.restart(plan_of(small))
    order(run.topics, 3, "tea", 40_000)
    run.read()

    assert collection(run, "slim") == expected(run, small, "slim")
    assert collection(run, "errors") == expected(run, small, "errors")


@pytest.mark.parametrize("new", ["key", "ikebana_key"])
def test_a_key_means_the_whole_key_once_no_column_is_called_so(new: str) -> None:
    """Also if the column that was declared before was not read."""

    def slim(columns: str, key: str) -> str:
        return f"""
inputs:
  orders: {{topic: orders, columns: {{product: VARCHAR{columns}}}}}
operators:
  order: {{upsert: orders}}
  slim: {{linear: order, select: {{k: "{key}::BIGINT", p: product}}}}
outputs:
  slim: {{from: slim, topic: slim}}
"""

    run = Run(plan_of(slim(", key: BIGINT", "ikebana_key")))
    run.send("orders", 1, {"product": "tea", "key": 5})
    run.read()
    run.restart(plan_of(slim("", new)))
    run.send("orders", 2, {"product": "mate", "key": 6})
    run.read()

    assert sorted(value["k"] for _, value in run.collection("slim")) == [1, 2]
    assert run.errors() == []
