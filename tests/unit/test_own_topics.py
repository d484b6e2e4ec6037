"""What an output has had, and nothing else keeps, comes out of its own topic when it changes."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from ikebana import Plan
from ikebana.codecs.diff import topic_of
from ikebana.errors import CheckpointError, SourceError
from ikebana.processor.base.transition import Phase, ReadBackSpan
from ikebana.processor.checkpoint.describing_edits import part_changes
from ikebana.processor.checkpoint.edit_description import EditDescription, FillSource
from ikebana.processor.checkpoint.recorded_plan import edit_to
from ikebana.processor.explain.text import edit_lines
from ikebana.processor.topics import replays
from ikebana.testing import Run
from support import edited_runs
from support.edited_runs import collection, sums

PARTS = """
inputs:
  orders: {topic: orders, columns: {product: VARCHAR, customer: BIGINT}}
  customers: {topic: customers, columns: {name: VARCHAR}}
  clicks: {topic: clicks, mode: append, columns: {n: BIGINT}}
operators:
  order: {upsert: orders}
  customer: {upsert: customers}
"""
# Or inputs would be read again for columns that the state does not have.
WHOLE = "pushdown: false\n"
INPUTS = ("orders", "customers", "clicks")
ALL = "outputs:\n  all: {from: order, topic: all}\n"
AS_OF = """  found:
    as_of_join: {o: order, c: customer}
    on: [o.customer = c.key::BIGINT]
    select: {product: o.product, name: c.name}
    retract: locked
"""
BEHIND = AS_OF.replace("found", "joined") + """  found: {linear: joined, where: "name > 'n'"}\n"""
OTHER_AS_OF = AS_OF.replace("product: o.product, ", "")
DELTA = """  found:
    delta_join: {o: order, c: customer}
    where: [o.customer = c.key::BIGINT]
    select: {product: o.product, name: c.name}
"""
TOTALS = "  found: {reduce: order, by: product, aggregates: {n: count(*)}}\n"
CLICKED = "  found: {linear: clicks, where: n > 1}\n"
TEA = "  found: {linear: order, where: product = 'tea'}\n"
BOTH = TEA.replace("found", "tea") + CLICKED.replace("found", "clicked")
BOTH += "  found: {concat: [tea, clicked]}\n"

EDITS = [
    pytest.param(AS_OF, DELTA, id="an as-of join and a delta join"),
    pytest.param(AS_OF, TOTALS, id="an as-of join and a reduction"),
    pytest.param(AS_OF, TEA, id="an as-of join and rows"),
    pytest.param(CLICKED, TEA, id="rows that stay and rows by key"),
    pytest.param(CLICKED, DELTA, id="rows that stay and a delta join"),
    pytest.param(BOTH, TEA, id="rows of both and those by key"),
]


def plan_of(found: str, output: str = "", time: str = "offset") -> Plan:
    shown = f"{ALL}  found: {{from: found, topic: found{output}}}\n"
    return edited_runs.plan_of(f"{WHOLE}{PARTS}{found}{shown}", time)


def sent(run: Run, numbers: range) -> None:
    for n in numbers:
        product = "tea" if n % 3 else "milk"
        run.topics.send("customers", n % 4, {"name": f"n{n}"})
        run.topics.send("orders", n % 11, {"product": product, "customer": n % 4})
        run.topics.send("clicks", n % 5, {"n": n % 4})
        if n % 7 == 0:
            run.topics.send("orders", (n + 3) % 11, None)


def started(found: str, shards: int = 2) -> Run:
    run = Run(plan_of(found), shards=shards)
    for begin in range(0, 24, 6):
        sent(run, range(begin, begin + 6))
        run.read()
    return run


def judged(run: Run, after: str) -> None:
    """The output is that of the new plan from the beginning, and no count was ever negative."""
    fresh = Run(plan_of(after))
    fresh.topics.messages |= {name: run.topics.messages[name] for name in INPUTS}
    fresh.read()
    assert collection(run, "found") == collection(fresh, "found")
    found: Counter[Any] = Counter()
    for key, value, time, diff in sorted(run.written.updates["found"], key=lambda each: each.time):
        found[key, value, time] += diff
    so_far: Counter[Any] = Counter()
    for (key, value, _), diff in found.items():
        so_far[key, value] += diff
    assert min(so_far.values()) >= 0


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(("before", "after"), EDITS)
def test_an_output_turns_into_another(before: str, after: str, shards: int) -> None:
    """What it has had is taken back at the time of the edit, in portions, and nothing else."""
    run = started(before, shards)
    count, time, had = len(run.written.updates["found"]), run.last.upper, collection(run, "found")
    run.restart(plan_of(after))
    portions = 0
    while run.batch(limit=5):
        portions += bool(run.last.transition.read_back)

    judged(run, after)
    assert portions > 2
    new = run.written.updates["found"][count:]
    assert {update.time for update in new} == {time}
    if shards == 1:
        # What is in both is not written.
        wanted = collection(run, "found")
        wanted.subtract(had)
        assert Counter({(u.key, u.value): u.diff for u in new}) == Counter(
            {datum: diff for datum, diff in wanted.items() if diff}
        )


@pytest.mark.parametrize(("before", "after"), EDITS)
def test_records_come_while_it_is_taken_back(before: str, after: str) -> None:
    """They count once, with deaths and another process in every portion."""
    run = started(before)
    run.restart(plan_of(after))
    for number in range(24, 36):
        sent(run, range(number, number + 1))
        if run.crash(committed=[number % 2], limit=3) and number % 3 == 0:
            run.restart(plan_of(after))
        run.batch(limit=3)
    run.read()
    judged(run, after)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("retract", ["current", "locked"])
def test_an_as_of_join_begins_anew_in_the_same_topic(retract: str, shards: int) -> None:
    """With the rows that its left has, as the right is at the time of the edit."""
    run = started(AS_OF.replace("locked", retract), shards)
    run.topics.send("customers", 1, {"name": "new"})
    run.read()
    run.restart(plan_of(OTHER_AS_OF.replace("locked", retract)))
    run.read()

    names = {n % 4: f"n{n}" for n in range(24)} | {1: "new"}
    expected = {key: {"name": names[row["customer"]]} for key, row in run.collection("all")}
    assert dict(run.collection("found")) == expected
    assert {"name": "new"} in expected.values()


DATED = ", event_time: {clock: kafka, ahead: never}}"
LEFTS = """  pairs:
    delta_join: {o: order, c: customer}
    where: [o.customer = c.key::BIGINT]
    select: {product: o.product, customer: o.customer}
  largest:
    reduce: order
    by: product
    aggregates: {customer: max(customer), product: max(product)}
"""
BESIDE = DELTA.replace("found", "beside")


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("retract", ["current", "locked"])
@pytest.mark.parametrize("left", ["order", "tea", "pairs", "largest"])
def test_a_new_as_of_join_needs_no_arrangement_of_its_left(
    left: str, retract: str, shards: int
) -> None:
    """From the state it begins as from an arrangement, whatever comes meanwhile."""
    tea = TEA.replace("found", "tea") + LEFTS
    after = tea + OTHER_AS_OF.replace("locked", retract).replace("o: order", f"o: {left}")
    found = []
    for more in ("", BESIDE.replace("o: order", f"o: {left}")):
        run = Run(dated(tea + more + TOTALS), shards=shards)
        for n in range(20):
            sent_at(run, n, n)
        run.read()
        edit = run.last.upper
        run.restart(dated(more + after))
        for n in range(20, 30):
            sent_at(run, n, n)
            if n % 3 == 0 and run.crash(committed=[0], limit=2):
                run.restart(dated(more + after))
            run.batch(limit=2)
        sent_at(run, 30, 99)
        run.read()
        assert run.frontiers["found"] > 30
        found.append([sums(run, "found", time) for time in range(edit, 30)])
    assert found[0] == found[1]
    assert found[0][0] != found[0][-1]


def dated(found: str, more: str = "") -> Plan:
    """The plan, with the times of messages as those of rows, and perhaps with more outputs."""
    shown = f"{ALL}  found: {{from: found, topic: found}}\n{more}"
    parts = PARTS.replace("}}\n", "}" + DATED + "\n")
    return edited_runs.plan_of(f"{WHOLE}{parts}{found}{shown}")


def sent_at(run: Run, n: int, time: int) -> None:
    customer, product = {"name": f"n{n}"}, "tea" if n % 3 else "milk"
    run.topics.send("customers", n % 4, customer, timestamp=time)
    order = None if n % 9 == 0 else {"product": product, "customer": n % 4}
    run.topics.send("orders", n % 7, order, timestamp=time)
    run.topics.send("clicks", n % 5, {"n": n % 4}, timestamp=time)


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("after", [DELTA, TOTALS])
def test_a_topic_is_taken_back_from_a_snapshot_on(after: str, *, cut: bool) -> None:
    """Nothing else may be left of its beginning."""
    run = started(AS_OF)
    run.topics.compact("found")
    for partition, end in run.topics.snapshots["found"].last.ends.items():
        if cut:
            run.topics.messages["found"][partition][:end] = [None] * end
    sent(run, range(24, 30))
    run.read()
    run.restart(plan_of(after))
    read = set()
    while run.batch(limit=3):
        read |= {
            topic
            for topic, by in run.last.transition.read_back.items()
            if any(at.to > at.start for at in by.values())
        }

    assert read == {"found", topic_of("found")}
    judged(run, after)


def test_what_waits_of_the_definition_of_before_never_shows() -> None:
    """Its rows are valid until times that have not come; with it, they are gone for good."""
    before = "  found: {linear: clicks, valid_until: 100 + n}\n"
    run = Run(plan_of(before, time="ingest"))
    for n in range(4):
        run.topics.send("clicks", n, {"n": n})
    run.read(now_ms=10)
    assert len(run.collection("found")) == 4
    after = "  found: {linear: order, valid_until: 500 + customer}\n"
    run.restart(plan_of(after, time="ingest"))
    run.read(now_ms=20)
    run.topics.send("orders", 1, {"product": "tea", "customer": 1})
    run.read(now_ms=200)
    run.batch(now_ms=300, heartbeat=True)

    assert run.collection("found") == [(1, {"customer": 1, "product": "tea"})]


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(
    "then",
    [
        pytest.param(TEA, id="rows by key"),
        pytest.param("  found: {linear: order, valid_until: 500 + customer}\n", id="for a time"),
        pytest.param(TOTALS, id="a reduction"),
        pytest.param(DELTA, id="a delta join"),
        pytest.param(AS_OF, id="an as-of join"),
    ],
)
def test_what_waits_never_shows_though_no_time_has_been_closed(then: str, shards: int) -> None:
    """Records wait before the first time is closed, too, and an output may change then."""
    run = Run(dated(CLICKED), shards=shards)
    run.topics.send("clicks", 1, {"n": 2}, timestamp=1)
    run.read()
    assert (run.last.batch, run.last.upper, run.waiting) == (0, 0, 1)
    run.restart(dated(then))
    run.read()
    sent_at(run, 1, 2)
    sent_at(run, 0, 5)
    run.read()
    # The first batch of another edit lets go of all that waits before outputs.
    run.restart(dated(then, "  more: {from: order, topic: more}\n"))
    sent_at(run, 0, 9)
    run.read()

    fresh = Run(dated(then))
    fresh.topics.messages |= {name: run.topics.messages[name] for name in INPUTS}
    fresh.read()
    assert run.frontier("found") == 9
    assert collection(run, "found") == collection(fresh, "found") != Counter()


def test_what_is_the_same_in_both_is_not_read() -> None:
    """It stays in the topic as it is, though nothing keeps it."""
    run = started(BOTH)
    after = BOTH.replace("'tea'", "'milk'")
    run.restart(plan_of(after))
    while run.batch():
        assert not run.last.transition.read_back
    judged(run, after)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (CLICKED, CLICKED.replace("> 1", "> 2"), "nothing keeps what it has had"),
        (AS_OF, BOTH, "nothing keeps what it has had"),
        (BEHIND, BEHIND.replace("'n'", "'o'"), "as-of join depend"),
    ],
)
def test_what_the_new_plan_shows_has_to_come_from_elsewhere(
    before: str, after: str, why: str
) -> None:
    run = started(before)
    with pytest.raises(CheckpointError, match=why):
        run.restart(plan_of(after))


@pytest.mark.parametrize("form", ["cdcv2-json", "cdcv2-avro"])
@pytest.mark.parametrize("after", [DELTA, TOTALS, TEA])
def test_a_topic_of_facts_is_read_back(after: str, form: str) -> None:
    """A fact has one diff for a datum and a time, here too."""
    run = Run(plan_of(AS_OF, f", format: {form}"), shards=2)
    for begin in range(0, 24, 6):
        sent(run, range(begin, begin + 6))
        run.read()
    run.restart(plan_of(after, f", format: {form}"))
    while run.batch(limit=2):
        pass
    facts = Counter((u.key, u.value, u.time) for u in run.written.updates["found"])
    assert set(facts.values()) == {1}
    judged(run, after)


@pytest.mark.parametrize("form", ["upsert", "debezium-json"])
def test_a_topic_of_another_format_is_not_read_back(form: str) -> None:
    run = Run(plan_of(AS_OF, f", format: {form}"))
    sent(run, range(6))
    run.read()
    with pytest.raises(CheckpointError, match="and only topics of the formats diff") as refused:
        run.restart(plan_of(TOTALS, f", format: {form}"))
    assert "in a new topic by another output" in (refused.value.hint or "")


def test_what_something_else_has_written_is_refused() -> None:
    """A time that is not closed yet is none of the pipeline's."""
    run = started(AS_OF)
    run.topics.update("found", 1, {}, run.last.upper, 1)
    run.restart(plan_of(TOTALS))
    with pytest.raises(SourceError, match=r"cannot take back found\[0\]: its time \d+"):
        run.read()


def test_a_plan_of_the_edit_says_so() -> None:
    run = started(AS_OF)
    run.restart(plan_of(DELTA))
    assert run._metadata is not None
    edit = edit_to(
        msgspec.structs.replace(run._metadata, plan=run._metadata.before), plan_of(DELTA)
    )
    assert edit is not None
    parts, _ = part_changes(edit, plan_of(DELTA))
    (found,) = (part for part in parts if part.kind == "output" and part.name == "found")
    assert found.filled_from == (FillSource("operator", "found"), FillSource("own", "found"))
    lines = edit_lines(EditDescription("shop", "./c", edited=True, parts=parts))
    told = " ".join(" ".join(line.text for line in lines).split())
    assert 'topic "found" gets the difference, made of the new operator found and what' in told
    assert "what its own topic has, read once more" in told


def test_only_state_that_is_made_anew_takes_back_all_outputs() -> None:
    """Up to the batch with which it is complete, which may be the last before an edit."""
    run = started(AS_OF)
    run.recover()
    run.read()
    assert run.last.transition.phase is Phase.REBUILT
    assert replays.read_in(run._running, {}, run.last.transition).keys() >= {"all", "found"}
    run.send("orders", 9, {"product": "tea", "customer": 1})
    run.read()

    assert not run.last.transition.rebuilds
    assert replays.read_in(run._running, {"found": "found"}, run.last.transition) == {
        "found": "found"
    }


def test_a_batch_takes_a_share_of_each_partition() -> None:
    """About as many offsets as it is limited to, and all in the end."""
    own = replays.nothing_read({"t": {0: (0, 10), 1: (4, 4)}, "u": {0: (5, 25)}})
    assert replays.offsets_left(own) == 30
    first = replays.positions_after(own, 6)
    assert first == {
        "t": {0: ReadBackSpan(0, 2, 10), 1: ReadBackSpan(4, 4, 4)},
        "u": {0: ReadBackSpan(5, 9, 25)},
    }
    stands = replays.positions_after(first, 0)
    assert stands == {
        "t": {0: ReadBackSpan(2, 2, 10), 1: ReadBackSpan(4, 4, 4)},
        "u": {0: ReadBackSpan(9, 9, 25)},
    }
    last = replays.positions_after(stands, None)
    assert replays.offsets_left(last) == 0
    assert last["u"][0] == ReadBackSpan(9, 25, 25)
