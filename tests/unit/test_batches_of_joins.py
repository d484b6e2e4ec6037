"""Joins in one batch, by literal updates: what is counted once, told once, and kept apart."""

import itertools
from collections import Counter
from typing import NoReturn

import pytest

from ikebana import (
    AsOfJoin,
    DeltaJoin,
    Input,
    JoinInput,
    Linear,
    Output,
    Plan,
    Upsert,
    evaluate,
    steps,
)
from ikebana.arrangements.store import MemoryStore, Overlay
from ikebana.arrangements.update import Interval
from ikebana.errors import TooMuchError
from ikebana.processor.base import sharding
from ikebana.processor.base.rows import NO_KEY, KeyedUpdate, Upserts
from ikebana.processor.base.sharding import exchange_chunks, shard_of
from ikebana.processor.base.transition import Transition
from ikebana.processor.checkpoint import parts
from ikebana.processor.engine import budget, dataflow, joining, replaying
from ikebana.processor.engine.budget import Budget
from ikebana.processor.engine.joined_batch import BatchJoins
from ikebana.processor.engine.replaying import ArrangementPast, Replay
from ikebana.processor.kernels import upsert
from ikebana.processor.kernels.arrange import Arrangement
from ikebana.processor.kernels.layout import operator_part
from ikebana.processor.kernels.upsert import UpsertArrangement
from ikebana.processor.planning import planner, progress
from ikebana.processor.planning.joins.query import Strategy
from ikebana.processor.planning.joins.stages import joined
from support.dated_upserts import Play, dated
from support.histories import WITH_PAIRS
from support.sql_oracle import plan_of

# Edges that have several data for a value: t by a and c, whose d is bound after c.
NAMES = {"r": "ab", "s": "bc", "t": "acd", "w": "db"}
ROWS: dict[str, list[tuple[int, ...]]] = {
    "r": [(1, 2)],
    "s": [(2, 3), (2, 4), (2, 5), (2, 6)],
    "t": [(1, 3, 10), (1, 3, 11), (1, 4, 10), (9, 3, 10)],
    "w": [(10, 2), (11, 2), (12, 2), (13, 2), (14, 2)],
}
WHERE = "r.a = t.a", "r.b = s.b", "s.c = t.c", "t.d = w.d", "w.b = r.b"


def circle(strategy: Strategy) -> Plan:
    inputs = tuple(dated(n, *(f"{column} BIGINT" for column in of)) for n, of in NAMES.items())
    join = DeltaJoin(
        "all",
        tuple(JoinInput(name, name) for name in NAMES),
        WHERE,
        (("c", "t.c"), ("d", "t.d")),
        "r.a",
        strategy=strategy,
    )
    return Plan("p", inputs, (*(Upsert(n, n) for n in NAMES), join), (Output("o", "all", "o"),))


@pytest.mark.parametrize("most_of", ["s", "t"])
def test_a_value_is_proposed_and_validated_once_however_many_data_have_it(
    most_of: str,
) -> None:
    """R2. By whoever has the fewest; each combination comes out as often as it is there."""
    rows = {name: list(of) for name, of in ROWS.items()}
    # Who has more of them only says which are right.
    rows[most_of] += (
        [(2, at) for at in range(70, 80)]
        if most_of == "s"
        else [(1, at, 10) for at in range(70, 80)]
    )
    play = Play(circle("intersect"), shards=1, most=1_000)
    for name in sorted(NAMES, key=lambda name: name == "r"):
        for at, row in enumerate(rows[name]):
            value = dict(zip(NAMES[name], row, strict=True))
            play.say(name, at, value, 5 if name == "r" else 1)
    play.close(9)

    expected = Counter(
        (r[0], t[1], t[2])
        for r, s, t, w in itertools.product(*rows.values())
        if r == (t[0], s[0]) and s[1] == t[1] and t[2] == w[0] and w[1] == r[1]
    )
    assert expected
    assert play.shown("o", 5) == expected
    assert play.errors() == []


def budgeted(monkeypatch: pytest.MonkeyPatch, results: int) -> None:
    """Let batches have time for so many results of a join."""
    seconds = results / budget._MOST_RESULTS_A_SECOND
    monkeypatch.setattr(dataflow, "Budget", lambda: Budget(seconds, lambda: 0.0))


def hot_circle() -> Play:
    """Many rows of r and a single b: who proposes for it has one key with three data."""
    play = Play(circle("intersect"), shards=1, most=10_000)
    for at in range(3):
        play.say("s", at, {"b": 2, "c": at}, 1)
    for at in range(200):
        # Whoever is asked second has more.
        for c in range(4):
            play.say("t", 4 * at + c, {"a": at, "c": c, "d": c}, 1)
        play.say("r", at, {"a": at, "b": 2}, 5)
    return play


def test_a_cycle_of_joins_that_no_batch_can_end_is_refused_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its proposals are counted like results: 200 rows with three each, of one key."""
    budgeted(monkeypatch, 599)
    with pytest.raises(TooMuchError, match=r'operator "all" has more .* 600 results'):
        hot_circle().close(9)

    budgeted(monkeypatch, 600)
    hot_circle().close(9)


def test_what_is_validated_is_counted_once_however_many_data_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """150 rows ask whether t has (1, 3): its 50 data of this key make neither work nor results."""
    budgeted(monkeypatch, 500)
    play = Play(circle("intersect"), shards=1, most=10_000)
    play.say("s", 0, {"b": 2, "c": 3}, 1)
    play.say("w", 0, {"d": 10, "b": 2}, 1)
    for at in range(50):
        play.say("t", at, {"a": 1, "c": 3, "d": 10 + at}, 1)
    for at in range(150):
        play.say("r", at, {"a": 1, "b": 2}, 5)
    play.close(9)

    assert play.shown("o", 5) == Counter({(1, 3, 10): 150})
    assert play.errors() == []


ORDERS, QUOTES = dated("orders", "product VARCHAR", "n BIGINT"), dated("quotes", "price BIGINT")
PAIR = JoinInput("o", "orders"), JoinInput("p", "quotes")
UPSERTS = Upsert("orders", "orders"), Upsert("quotes", "quotes")


def test_what_the_paths_of_a_join_give_cancels_before_it_is_shown() -> None:
    """R3. A change that the results do not show is none."""
    join = DeltaJoin("sold", PAIR, ("o.product = p.key::VARCHAR", "o.n > 0"), (("x", "p.price"),))
    play = Play(
        Plan("p", (ORDERS, QUOTES), (*UPSERTS, join), (Output("o", "sold", "o"),)), most=1_000
    )
    play.say("quotes", 1, {"price": 5}, 1)
    play.say("orders", "a", {"product": "1", "n": 1}, 2)
    play.say("orders", "a", {"product": "1", "n": 2}, 3)
    play.close(9)

    assert [(u.time, u.diff) for u in play.run.written.updates["o"]] == [(2, 1)]


def test_an_error_of_a_locked_join_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """R15. However many portions the matches of the batch go through in."""
    monkeypatch.setattr(joining, "_AT_ONCE", 1)
    lefts = Input("lefts", ("lefts",), "diff", mode="diffs", columns=ORDERS.columns)
    join = AsOfJoin(
        "priced",
        (JoinInput("o", "lefts")),
        PAIR[1],
        ("o.product = p.key::VARCHAR",),
        (("price", "p.price"),),
        retract="locked",
    )
    plan = Plan("p", (lefts, QUOTES), (UPSERTS[1], join), (Output("o", "priced", "o"),))
    play = Play(plan, most=1_000)
    play.say("quotes", 1, {"price": 5}, 1)
    for time in (2, 3, 4):
        play.change("lefts", 1, {"product": "1", "n": time}, time, 1)
    play.change("lefts", 1, {"product": "1", "n": 99}, 5, -1)
    play.close(9)

    assert [update[-2:] for update in play.updates("o")] == [(2, 1), (3, 1), (4, 1)]
    assert [(time, diff) for _, time, diff in play.errors()] == [(5, 1)]


def test_an_upsert_that_is_looked_up_keeps_all_rows() -> None:
    """R17. Though its one output wants some of them, with the columns that are read of any."""
    join = AsOfJoin("looked", *PAIR, ("o.key = p.key",), (("x", "p.price"),))
    few = Linear("few", "quotes", (steps.where("price > 5"), steps.project("price")))
    outputs = (Output("l", "looked", "l"), Output("f", "few", "f"))
    plan = Plan("p", (ORDERS, QUOTES), (*UPSERTS, few, join), outputs)

    found = planner.physical(plan)

    assert found.readings["quotes"].columns == ("price",)
    assert found.readings["quotes"].pushed == ()
    assert () in [branch.steps for branch in found.branches["quotes"]]


@pytest.mark.parametrize("in_python", [False, True])
def test_updates_without_a_key_go_to_one_shard(
    monkeypatch: pytest.MonkeyPatch, *, in_python: bool
) -> None:
    """What has no key is all of one, wherever it comes from."""
    if in_python:
        monkeypatch.setattr(sharding, "spread_columns", None)
    updates = [KeyedUpdate(None, b"%d" % at, at, 1) for at in range(3)]

    found = list(exchange_chunks({"totals": updates}, 7))

    assert [(shard, row.keys) for shard, row in found] == [(shard_of(NO_KEY, 7), [NO_KEY] * 3)]


BEGIN = 5


def test_contents_have_what_was_deleted_since() -> None:
    """R16. What a new join begins with is the relation of then, not of now."""
    store = MemoryStore()
    both = Upserts("in", 0, 0, [1, 1], [b"a", b"b"], [b"1", b"2"], [0, 1])
    made = upsert.step(store, [both], Interval(0, BEGIN)).updates
    UpsertArrangement(store, made, Interval(0, BEGIN), 0).settle(BEGIN)
    gone = Upserts("in", 0, 0, [7, 7], [b"a", b"b"], [None, b"3"], [2, 3])
    interval = Interval(BEGIN, 9)
    made = upsert.step(store, [gone], interval).updates
    current = UpsertArrangement(store, made, interval, BEGIN)

    now = [key for key, _, _ in current.contents(BEGIN)]
    current.settle(BEGIN)
    later = UpsertArrangement(store, [], Interval(9, 9), BEGIN)

    assert now == [b"a", b"b"]
    assert [key for key, _, _ in later.contents(BEGIN)] == [b"a", b"b"]


def arranged(*keys: bytes) -> Arrangement:
    """A value of each key, from 1 on, as asked by a batch that begins at `BEGIN`."""
    store = MemoryStore()
    before = Arrangement(store, Interval(0, BEGIN), 0)
    before.update([KeyedUpdate(key, b"v", 1, 1) for key in keys])
    before.settle(0)
    return Arrangement(store, Interval(BEGIN, BEGIN), 0)


def test_a_new_join_gets_each_key_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """R16. Portions go on where the last one ended, as the store says."""
    monkeypatch.setattr(replaying, "PORTION", 2)
    keys = [b"%d" % at for at in range(5)]
    past, store = ArrangementPast(arranged(*keys), BEGIN), MemoryStore()

    found = [Replay(store, "join", "j").take(past) for _ in range(4)]

    assert [[row.key for row in part.rows] for part in found] == [
        keys[:2],
        keys[2:4],
        keys[4:],
        [],
    ]
    assert [part.next is None for part in found] == [False, False, True, True]
    assert {row.time for part in found for row in part.rows} == {BEGIN}


def test_a_new_join_begins_anew_under_a_name_that_was_there_before() -> None:
    """R16. How far another was says nothing."""
    past, store = ArrangementPast(arranged(b"k"), BEGIN), MemoryStore()
    edits = [Transition(1, BEGIN - 1), Transition(1, BEGIN), Transition(2, BEGIN)]

    for edit in edits:
        assert replaying.is_first_portion(store, edit)
        assert not replaying.is_first_portion(store, edit)
        assert len(Replay(store, "join", "j").take(past).rows) == 1
        assert Replay(store, "join", "j").is_done


def test_the_first_stage_of_a_new_join_takes_rows_of_its_first_time() -> None:
    """R16. They see all others strictly before it, and so need not wait until it is over."""
    intervals = dict.fromkeys(progress.edges(WITH_PAIRS), Interval(BEGIN, BEGIN))
    stages = joined(WITH_PAIRS).stages.values()

    def reach(begins: dict[str, int]) -> dict[str, int]:
        batch = BatchJoins(WITH_PAIRS, intervals, begins, hydrates=True, budget=Budget())
        return {stage.alias: batch.reach(stage) for stage in stages}

    assert reach({"pairs": BEGIN}) == {"a": BEGIN + 1, "b": BEGIN}
    assert reach({}) == {"a": BEGIN, "b": BEGIN}


def test_what_is_released_goes_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch deletes as much as fits, over all parts together."""
    monkeypatch.setattr(parts, "_RELEASED", 3)
    store = MemoryStore()
    for name in ("one", "two", "kept"):
        for at in range(4):
            operator_part(store, name).put(b"%d" % at, b"v")

    left = []
    for _ in range(4):
        overlay = Overlay(store)
        parts.release(overlay, ["one", "two"])
        left.append(len(overlay.changes))
        for key in overlay.changes:
            store.delete(key)

    assert left == [3, 3, 2, 0]
    assert len(list(store.scan(b""))) == 4


def test_stages_that_only_pick_columns_compile_no_sql(monkeypatch: pytest.MonkeyPatch) -> None:
    """A join of many tables has a stage for each pair of them, which would all be compiled."""

    def compiled(*_: object) -> NoReturn:
        raise AssertionError("a step that picks columns needs no statement")

    monkeypatch.setattr(joining, "compiled", compiled)
    columns = {"a": "BIGINT", "b": "VARCHAR"}
    names = [f"picked{at}" for at in range(4)]
    selected = ", ".join(f"{name}.b AS b{at}" for at, name in enumerate(names))
    equal = " AND ".join(f"{one}.a = {other}.a" for one, other in itertools.pairwise(names))
    query = f"SELECT {selected} FROM {', '.join(names)} WHERE {equal}"
    plan = plan_of(dict.fromkeys(names, columns), {"v": query})

    records = {f"{name}_changes": [(0, {"a": 1, "b": name}, 0)] for name in names}
    found = evaluate(plan, records)

    assert [value for (_, value), _, _ in found["v"]] == [
        {f"b{at}": name for at, name in enumerate(names)}
    ]
