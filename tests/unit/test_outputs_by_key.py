"""Outputs of one row a key: which collections are so by their plan, which key they have."""

from pathlib import Path
from typing import Any

import pytest

import ikebana as ik
from ikebana import Plan
from ikebana.errors import CheckpointError
from ikebana.processor.explain.explanation import explained
from ikebana.processor.explain.text import text
from ikebana.processor.planning import outputs, planner
from ikebana.processor.planning.relations import NOTHING, Derivation, Keys, joined, left_joined
from ikebana.testing import Run

L = [ik.Column("v", "VARCHAR"), ik.Column("fk", "VARCHAR"), ik.Column("id", "BIGINT")]
R = [ik.Column("v", "VARCHAR"), ik.Column("n", "BIGINT")]


def pipeline(query: str, key: str | None = None, output: Any = "upsert", **left: Any) -> Plan:
    """A plan with a view over two tables, as an output."""
    shop = ik.Pipeline("shop")
    shop.topic("l", columns=L, **left).upsert()
    shop.topic("r", columns=R).upsert()
    shop.sql(query, name="view", key=key).to("out", format=output)
    return shop.plan()


BY_KEY = {
    "a filter": ("SELECT v, fk FROM l WHERE v > 'a'", None),
    "a group": ("SELECT fk, count(*) AS n FROM l GROUP BY fk", None),
    "a group, by its column": ("SELECT fk, count(*) AS n FROM l GROUP BY fk", "fk"),
    "a group, by more than its columns": (
        "SELECT fk, count(*) AS n FROM l GROUP BY fk",
        "{'fk': fk, 'n': n}",
    ),
    "a total": ("SELECT count(*) AS n FROM l", None),
    "the first row of a partition": (
        "SELECT fk, v FROM l QUALIFY row_number() OVER (PARTITION BY fk ORDER BY v) = 1",
        "fk",
    ),
    "semi-join": ("SELECT v FROM l WHERE fk IN (SELECT v FROM r)", None),
    "anti-join": ("SELECT v FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.v = l.fk)", None),
    "anti-join by other conditions": (
        "SELECT v FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.v = l.fk AND r.n > l.id)",
        None,
    ),
    "inner join by the other's key": ("SELECT l.v, r.n FROM l JOIN r ON l.key = r.key", None),
    "left join by the other's key": ("SELECT l.v, r.n FROM l LEFT JOIN r ON l.key = r.key", None),
    "right join of groups": (
        "SELECT d.fk, g.n FROM (SELECT v, sum(n) AS n FROM r GROUP BY v) g "
        "RIGHT JOIN (SELECT DISTINCT fk FROM l) d ON g.v = d.fk",
        "fk",
    ),
    "left join of groups": (
        "SELECT l.v, g.n FROM l LEFT JOIN (SELECT v, sum(n) AS n FROM r GROUP BY v) g ON g.v = fk",
        None,
    ),
    "left join of a left join": (
        "SELECT l.v, g.n, h.m FROM l LEFT JOIN (SELECT v, sum(n) AS n FROM r GROUP BY v) g "
        "ON g.v = l.fk LEFT JOIN (SELECT v, max(n) AS m FROM r GROUP BY v) h ON h.v = g.v",
        None,
    ),
    "groups joined, by the column of both": (
        "SELECT g.v, g.n, h.m FROM (SELECT v, count(*) AS n FROM r GROUP BY v) g "
        "JOIN (SELECT fk, count(*) AS m FROM l GROUP BY fk) h ON h.fk = g.v",
        "v",
    ),
    "UNION": ("SELECT v FROM l UNION SELECT v FROM r", "v"),
    "EXCEPT": ("SELECT v FROM l EXCEPT SELECT v FROM r", "v"),
    "INTERSECT": ("SELECT v FROM l INTERSECT SELECT v FROM r", "v"),
    "DISTINCT": ("SELECT DISTINCT v, fk FROM l", "{'v': v, 'f': fk}"),
    "what has become a group by more than its key": (
        "SELECT g.v, g.n, count(*) AS m FROM (SELECT v, sum(n) AS n FROM r GROUP BY v) g "
        "LEFT JOIN l ON l.fk = g.v GROUP BY g.v, g.n",
        None,
    ),
}


@pytest.mark.parametrize(("query", "key"), BY_KEY.values(), ids=BY_KEY)
def test_what_has_one_row_a_key_by_its_plan_is_not_watched(query: str, key: str | None) -> None:
    """It promises upserts, whatever the format; nothing is kept to find a second row."""
    for output in ("upsert", "debezium-json", "diff"):
        plan = pipeline(query, key, output)

        assert outputs.promise(plan, plan.outputs[0]) == "upserts"
        assert not outputs.watches_values(plan, plan.outputs[0])


WATCHED = {
    "a column": ("SELECT v, fk FROM l", "v"),
    "the first two rows of a partition": (
        "SELECT fk, v FROM l QUALIFY row_number() OVER (PARTITION BY fk ORDER BY v) <= 2",
        "fk",
    ),
    "inner join by no key": ("SELECT l.v, r.n FROM l JOIN r ON l.fk = r.v", None),
    "left join by no key": ("SELECT l.v, r.n FROM l LEFT JOIN r ON l.fk = r.v", None),
    # 1 and '1' are two keys, and one text.
    "left join by a key as a text": (
        "SELECT l.v, r.n FROM l LEFT JOIN r ON l.fk = r.key::VARCHAR",
        None,
    ),
    "full join": (
        "SELECT coalesce(l.fk, g.v) AS k, g.n FROM l FULL JOIN "
        "(SELECT v, sum(n) AS n FROM r GROUP BY v) g ON g.v = fk",
        "k",
    ),
    "UNION ALL": (
        "SELECT 'l' || v AS k FROM l UNION ALL SELECT 'r' || v AS k FROM r",
        "k",
    ),
    "EXCEPT ALL": ("SELECT v FROM l EXCEPT ALL SELECT v FROM r", None),
    "a part of a group": ("SELECT v, fk, count(*) AS n FROM l GROUP BY v, fk", "v"),
    "something made of a group": ("SELECT id, count(*) AS n FROM l GROUP BY id", "id % 2"),
}


@pytest.mark.parametrize(("query", "key"), WATCHED.values(), ids=WATCHED)
def test_what_may_have_several_rows_a_key_is_watched(query: str, key: str | None) -> None:
    """It is not refused: whether a key has several rows is seen."""
    for output in ("upsert", "debezium-json"):
        plan = pipeline(query, key, output)

        assert outputs.watches_values(plan, plan.outputs[0])


def test_a_group_by_what_a_column_determines_has_the_key_of_that_column() -> None:
    """As the input declares it; whether it holds is watched."""
    query = (
        "SELECT l.id, l.v, l.fk, count(r.v) AS n FROM l LEFT JOIN r ON r.v = l.fk "
        "GROUP BY l.id, l.v, l.fk"
    )
    plan = pipeline(query, unique=[["id"]])
    run = Run(plan, shards=2)
    run.send("l", "k", {"id": 7, "v": "a", "fk": "x"})
    run.send("r", 1, {"v": "x", "n": 1})
    run.read()
    run.send("l", "k", {"id": 7, "v": "b", "fk": "x"})
    run.read()

    assert run.collection("out") == [(7, {"id": 7, "v": "b", "fk": "x", "n": 1})]
    assert [message.key for message in run.messages("out")] == [b"7", b"7"]
    assert outputs.watches_values(plan, plan.outputs[0])
    run.send("l", "other", {"id": 7, "v": "c", "fk": "y"})
    run.read()
    assert [error["reason"] for error in run.errors()] == [
        "output out: the key has more than one value"
    ]
    run.send("l", "other", None)
    run.read()
    assert run.errors() == []


def test_rows_of_a_key_that_a_step_makes_come_together_over_shards() -> None:
    """Through one exchange, which `explain` shows and counts; an output of diffs needs none."""
    query = "SELECT id, v FROM l"
    run = Run(pipeline(query, "id"), shards=3)
    for at in range(6):
        run.send("l", at, {"id": at // 2, "v": str(at), "fk": "x"})
    run.read()

    reasons = [error["reason"] for error in run.errors()]
    assert reasons == ["output out: the key has more than one value"] * 3
    for at in range(3):
        run.send("l", 2 * at, None)
    run.read()
    assert run.errors() == []
    assert {m.key: m.value for m in run.messages("out")} == {
        b"%d" % at: b'{"id":%d,"v":"%d"}' % (at, 2 * at + 1) for at in range(3)
    }
    told = text(explained(run.plan))
    assert "→ exchange out" in told
    assert "output out" in told.split("what it costs")[1]
    assert planner.gathered(pipeline(query, "id", "diff")) == {}


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("output", ["upsert", "debezium-json", "cdcv2-json"])
def test_an_edit_of_a_key_gives_an_output_the_difference(output: Any, shards: int) -> None:
    """Also where rows come to other shards than before; what was read is not read again."""
    # What is not watched cannot be from now on, and the other way round.
    picked = ("id", None if output == "cdcv2-json" else "id % 100", "v")
    plans = [pipeline("SELECT id, v FROM l", key, output) for key in picked]
    run = Run(plans[0], shards=shards)
    held = {at: {"id": at + 10, "v": f"v{at}", "fk": "x"} for at in range(8)}
    for at, row in held.items():
        run.send("l", at, row)
    run.read()
    for turn, plan in enumerate([*plans[1:], *plans]):
        run.restart(plan)
        run.send("l", turn, {"id": turn + 20, "v": f"w{turn}", "fk": "x"})
        run.read()

        held[turn] = {"id": turn + 20, "v": f"w{turn}", "fk": "x"}
        fresh = Run(plan)
        for key, row in held.items():
            fresh.send("l", key, row)
        fresh.read()
        found, expected = (sorted(each.collection("out"), key=repr) for each in (run, fresh))
        assert found == expected
        assert run.errors() == []


@pytest.mark.parametrize("output", ["upsert", "debezium-json"])
def test_an_edit_does_not_begin_or_end_to_watch_an_output(output: Any) -> None:
    """Nothing has kept what it would have to know of its keys."""
    by_key, by_column = (pipeline("SELECT id, v FROM l", key, output) for key in (None, "v"))
    joined = pipeline("SELECT l.v, r.n FROM l LEFT JOIN r ON l.fk = r.v", None, output)
    for before, after, when in [
        (by_key, by_column, "now"),
        (by_key, joined, "now"),
        (by_column, by_key, "until now"),
    ]:
        run = Run(before)
        run.send("l", 1, {"id": 1, "v": "a", "fk": "x"})
        run.read()

        with pytest.raises(CheckpointError) as refusal:
            run.restart(after)

        assert f"outputs.out shows what may have several values of a key {when}" in str(
            refusal.value
        )


def keys(unique: str, columns: str) -> Keys:
    """A collection with columns of one letter."""
    return NOTHING.with_unique(unique, columns)


def same(column: str) -> Derivation:
    """A column as it is."""
    return Derivation(frozenset(column), one_to_one=True)


def test_a_key_goes_with_the_names_of_its_columns() -> None:
    """And with what stands for them; what lacks one of them has no key."""
    whole = keys("a", "ab").with_unique("b", "ab")
    assert whole.selected({"x": same("a")}).unique == (frozenset("x"),)
    assert whole.selected({"x": Derivation(frozenset("a"))}).unique == ()
    assert keys("ab", "abc").selected({"x": same("a"), "y": same("c")}).unique == ()
    both = joined((keys("a", "ab"), keys("c", "cd")), [("b", "c")])
    assert both.selected({"y": same("c"), "x": same("a")}).unique == (frozenset("x"),)


def test_a_left_join_keeps_the_keys_of_its_left_if_it_meets_one_row_at_most() -> None:
    """Otherwise both sides' keys together tell rows apart; what the right says holds no more."""
    left, right = keys("a", "ab"), keys("c", "cd")
    one = left_joined(left, right, [("b", "c")], "abcd")
    assert one.unique == (frozenset("a"),)
    assert one.closure("c") == {"c"}
    assert one.closure("a") == set("abcd")
    several = left_joined(left, right, [("b", "d")], "abcd")
    assert several.unique == (frozenset("ac"),)
    assert several.closure("a") == {"a", "b"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "shop.yaml",
            """
            pipeline: shop
            kafka: {bootstrap.servers: "nowhere:1"}
            run: {checkpoint: nowhere}
            inputs: {l: {topic: l, columns: {v: VARCHAR, fk: VARCHAR}}}
            operators: {view: {sql: "SELECT DISTINCT v AS a, fk FROM l", key: [a, fk]}}
            outputs: {out: {from: view, topic: out, format: upsert}}
            """,
        ),
        (
            "shop.sql",
            """
            CREATE PIPELINE shop WITH (kafka = (bootstrap.servers = 'nowhere:1'),
                run = (checkpoint = 'nowhere'));
            CREATE SOURCE l (v VARCHAR, fk VARCHAR) FROM KAFKA (topic = 'l');
            CREATE VIEW view WITH (key = (a, fk)) AS SELECT DISTINCT v AS a, fk FROM l;
            CREATE SINK out FROM view INTO KAFKA (topic = 'out', format = 'upsert');
            """,
        ),
    ],
)
def test_a_key_of_several_columns_is_a_list_of_them(name: str, text: str, tmp_path: Path) -> None:
    """In both kinds of files; the Kafka key is the object of them."""
    file = tmp_path / name
    file.write_text(text)
    run = Run(ik.load(file))
    run.send("l", 1, {"v": "x", "fk": "y"})
    run.read()

    assert [message.key for message in run.messages("out")] == [b'{"a":"x","fk":"y"}']
    assert not outputs.watches_values(run.plan, run.plan.outputs[0])
