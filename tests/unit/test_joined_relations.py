"""Relations of every kind in joins: what their keys and data are, and what becomes of them."""

from typing import Any

import pytest

from ikebana import Column, Input, Linear, Output, Plan, Reduce, StateMachine, Upsert, steps
from ikebana.codecs import canonical, cdcv2
from ikebana.codecs.formats import OutputFormat
from ikebana.processor.base.diff_reader import Cdcv2Reader
from ikebana.processor.planning.joins.query import AsOfJoin, DeltaJoin, JoinInput
from ikebana.processor.planning.plan import Operator
from support.dated_upserts import Play, Row, dated

NAMES = dated("names", "name VARCHAR", "town VARCHAR")
TOWNS = dated("towns", "country VARCHAR")
UPSERTS = (Upsert("names", "names"), Upsert("towns", "towns"))


def plan_of(*operators: Operator, inputs: tuple[Input, ...] = (NAMES, TOWNS)) -> Plan:
    """What the last operator shows."""
    last = operators[-1].name
    return Plan("p", inputs, operators, (Output("o", last, "o"),))


def delta(*on: str, **aliases: str) -> DeltaJoin:
    """The keys of two inputs that meet."""
    inputs = tuple(JoinInput(alias, relation) for alias, relation in aliases.items())
    one, *_, other = aliases
    select = (("one", f"{one}.key"), ("other", f"{other}.key"))
    return DeltaJoin("joined", inputs, on, select)


def keys_at(play: Play, time: int) -> dict[Row, int]:
    return {made[1:]: count for made, count in play.shown("o", time).items()}


@pytest.mark.parametrize("key_format", ["json", "bytes"])
def test_an_upsert_is_looked_up_by_its_own_key(key_format: Any) -> None:
    """In JSON it is its state; keys in bytes are arranged, for lookups ask for JSON."""
    inputs = tuple(dated(name, "x BIGINT", key_format=key_format) for name in ("a", "b"))
    join = DeltaJoin(
        "joined",
        (JoinInput("a", "a"), JoinInput("b", "b")),
        ("a.key = b.key",),
        (("one", "a.x"), ("other", "b.x")),
    )
    play = Play(plan_of(Upsert("a", "a"), Upsert("b", "b"), join, inputs=inputs))
    key = b'"k"' if key_format == "json" else b"\xff\x00k"
    play.say("a", key, {"x": 1}, 1)
    play.say("b", key, {"x": 2}, 2)
    play.say("b", key, {"x": 3}, 3)
    play.say("a", key, None, 4)
    play.close(9)

    shown = [update[1:] for update in play.updates("o")]
    assert shown == [(1, 2, 2, 1), (1, 2, 3, -1), (1, 3, 3, 1), (1, 3, 4, -1)]
    arranged = [name for name in play.kept() if name.startswith("arrange ")]
    assert bool(arranged) == (key_format == "bytes")


def test_data_in_bytes_meet_as_they_are() -> None:
    """Whatever the bytes are, equal ones are equal, and keys and values come out whole."""
    inputs = tuple(dated(name, value_format="bytes", key_format="bytes") for name in ("a", "b"))
    join = delta("a.value = b.value", a="a", b="b")
    play = Play(plan_of(Upsert("a", "a"), Upsert("b", "b"), join, inputs=inputs))
    play.say("a", b"\xff1", b"v\xfe", 1)
    play.say("b", b"\xff2", b"v\xfe", 1)
    play.say("b", b"\xff3", b"v\xff", 1)
    play.close(9)

    # In base64.
    assert keys_at(play, 1) == {("/zE=", "/zI="): 1}


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        pytest.param(1, 1.0, True, id="equal numbers"),
        pytest.param(1, True, False, id="a number is no truth"),
        pytest.param(1, "1", False, id="a number is no text"),
        pytest.param(
            {"a": 1, "b": [None]}, {"b": [None], "a": 1.0}, True, id="fields in any order"
        ),
        pytest.param(None, None, False, id="null is equal to nothing"),
        pytest.param({"a": None}, {"a": None}, True, id="null inside is data"),
        pytest.param({"a": None}, {}, False, id="null is not absent"),
    ],
)
def test_keys_meet_if_they_are_equal_data(one: Any, other: Any, meet: bool) -> None:  # noqa: FBT001
    """Of upserts by their own keys, and by what they are arranged by."""
    inputs = (dated("a", "x JSON"), dated("b", "x JSON"))
    upserts = (Upsert("a", "a"), Upsert("b", "b"))
    for on in ("a.key = b.key", "a.x = b.x"):
        play = Play(plan_of(*upserts, delta(on, a="a", b="b"), inputs=inputs))
        for name, data in (("a", one), ("b", other)):
            raw = b"null" if data is None else data
            play.say(name, raw if on == "a.key = b.key" else 0, {"x": data}, 1)
        play.close(9)

        assert bool(play.updates("o")) == meet, on


def test_a_key_of_several_columns_has_no_null_in_it() -> None:
    """Each column must be equal to the other's."""
    inputs = (dated("a", "x BIGINT", "y VARCHAR"), dated("b", "x BIGINT", "y VARCHAR"))
    join = delta("a.x = b.x AND a.y = b.y", a="a", b="b")
    play = Play(plan_of(Upsert("a", "a"), Upsert("b", "b"), join, inputs=inputs))
    rows = [(1, "u"), (1, None), (None, "u"), (None, None), (1, "v")]
    for number, (x, y) in enumerate(rows):
        play.say("a", number, {"x": x, "y": y}, 1)
        play.say("b", number, {"x": x, "y": y}, 2)
    play.say("a", 0, {"x": 1, "y": None}, 3)
    play.close(9)

    assert keys_at(play, 2) == {(0, 0): 1, (4, 4): 1}
    assert keys_at(play, 3) == {(4, 4): 1}


def test_an_upsert_meets_itself_by_its_key_and_by_a_column() -> None:
    """Who manages whom, and whom that one manages: one relation, three inputs."""
    people = dated("people", "boss JSON")
    inputs = (JoinInput("a", "people"), JoinInput("b", "people"), JoinInput("c", "people"))
    on = ("a.boss = b.key AND b.boss = c.key",)
    join = DeltaJoin("joined", inputs, on, (("b", "b.key"), ("c", "c.key")))
    play = Play(plan_of(Upsert("people", "people"), join, inputs=(people,)))
    for person, boss in ((1, 1), (2, 1), (3, 2)):
        play.say("people", person, {"boss": boss}, 1)
    play.say("people", 2, {"boss": 3}, 2)
    play.say("people", 1, None, 3)
    play.close(9)

    assert play.shown("o", 1) == {(1, 1, 1): 1, (2, 1, 1): 1, (3, 2, 1): 1}
    assert play.shown("o", 2) == {(1, 1, 1): 1, (2, 3, 2): 1, (3, 2, 3): 1}
    assert play.shown("o", 3) == {(2, 3, 2): 1, (3, 2, 3): 1}


def test_what_a_machine_shows_is_joined() -> None:
    """How often each name was said, with the town of that name."""
    machine = StateMachine("counts", "names", "machines:one_more")
    join = DeltaJoin(
        "joined",
        (JoinInput("c", "counts"), JoinInput("t", "towns")),
        ("c.key = t.key",),
        (("count", "c.value"), ("country", "t.country")),
    )
    play = Play(plan_of(machine, Upsert("towns", "towns"), join))
    play.say("towns", "a", {"country": "NL"}, 1)
    play.say("names", "a", {}, 2)
    play.say("names", "a", {}, 3)
    play.close(9)

    assert play.updates("o") == [
        ("a", 1, "NL", 2, 1),
        ("a", 1, "NL", 3, -1),
        ("a", 2, "NL", 3, 1),
    ]


def truncated(op: str, row: dict[str, Any] | None) -> dict[str, Any]:
    source = {"connector": "postgresql", "schema": "public", "table": "towns"}
    return {"op": op, "before": None, "after": row, "source": source}


@pytest.mark.parametrize("by", ["key", "country"])
def test_a_truncate_takes_a_relation_out_of_its_joins(by: str) -> None:
    """As the upsert's own state, and as an arrangement by another key."""
    names = Input("names", ("names",), columns=NAMES.columns)
    columns = (Column("id", "BIGINT"), *TOWNS.columns)
    towns = Input("towns", ("towns",), "debezium-json", columns=columns)
    on = "n.key = t.key" if by == "key" else "n.town = t.country"
    play = Play(plan_of(*UPSERTS, delta(on, n="names", t="towns"), inputs=(names, towns)))
    key, there = {"id": 1}, truncated("c", {"id": 1, "country": "NL"})
    play.say("names", key, {"name": "n", "town": "NL"}, 0)
    found = []
    for of, record in ((key, there), (None, truncated("t", None)), (key, there)):
        play.say("towns", of, record, 0)
        play.run.read()
        found.append(len(play.shown("o", play.run.last.upper)))

    assert found == [1, 0, 1]
    assert play.errors() == []


def lives_in(out: OutputFormat) -> Plan:
    """Each name with the country of its town, and how many there are in a country."""
    join = DeltaJoin(
        "lives",
        (JoinInput("n", "names"), JoinInput("t", "towns")),
        ("n.town = t.key::VARCHAR",),
        (("country", "t.country"), ("name", "n.name")),
    )
    counts = Reduce("counts", "lives", (("n", "count(*)"),), by="country")
    outputs = (Output("o", "lives", "o", out), Output("counts", "counts", "counts", "upsert"))
    return Plan("p", (NAMES, TOWNS), (*UPSERTS, join, counts), outputs)


def moved(out: OutputFormat) -> Play:
    """Towns change their country, and names their town and their name."""
    play = Play(lives_in(out))
    for number in range(6):
        row = {"name": f"n{number}", "town": f"t{number % 3}"}
        play.say("names", number, row, 1)
        if number < 3:
            play.say("towns", f"t{number}", {"country": "NL"}, 2)
    play.say("towns", "t1", {"country": "BE"}, 3)
    play.say("names", 0, {"name": "n0", "town": "t1"}, 4)
    play.say("names", 1, {"name": "other", "town": "t1"}, 5)
    play.say("towns", "t2", None, 6)
    play.close(9)
    assert play.errors() == []
    return play


LIVING = {
    (0, "BE", "n0"): 1,
    (1, "BE", "other"): 1,
    (3, "NL", "n3"): 1,
    (4, "BE", "n4"): 1,
}


def test_upserts_of_a_join_are_its_collection() -> None:
    """Old and new values come out of other paths, and meet in the shard of the key."""
    current: dict[Any, Any] = {}
    for key, value, _ in moved("upsert").run.written.messages["o"]:
        current[canonical.decode(key or b"")] = value and canonical.decode(value)
    found = {
        (key, row["country"], row["name"]): 1 for key, row in current.items() if row is not None
    }

    assert found == LIVING


def test_envelopes_of_a_join_are_its_changes() -> None:
    """What goes and comes at one time is one update, though two paths make it."""
    found = [
        (envelope["op"], envelope["ts_ms"])
        for _, value, _ in moved("debezium-json").run.written.messages["o"]
        if value is not None
        for envelope in [canonical.decode(value)]
    ]

    created, changed, gone = [("c", 2)] * 6, [("u", 3)] * 2 + [("u", 4), ("u", 5)], [("d", 6)] * 2
    assert sorted(found) == sorted([*created, *changed, *gone])


def test_a_cdcv2_reader_has_the_whole_of_a_join() -> None:
    """No update is there twice, and every counted one is there."""
    play = moved("cdcv2-json")
    reader = Cdcv2Reader()
    for _, value, _ in play.run.written.messages["o"]:
        reader.feed(cdcv2.decode(value))
    for message in cdcv2.encode_progress(0, 9, play.run.written.times["o"], 1 << 20):
        reader.feed(cdcv2.decode(message))
    found = [update for step in reader.take() for update in step.updates]

    assert sorted(map(repr, found)) == sorted(map(repr, play.run.written.updates["o"]))
    assert play.shown("o", 8) == LIVING


def test_a_reduction_counts_what_a_join_makes() -> None:
    """It is in other shards than the results, and its old counts go as new ones come."""
    play = moved("diff")

    assert play.shown("o", 8) == LIVING
    assert [play.shown("counts", time) for time in (1, 2, 3, 6)] == [
        {},
        {("NL", 6): 1},
        {("NL", 4): 1, ("BE", 2): 1},
        {("NL", 1): 1, ("BE", 3): 1},
    ]


FAILING = {
    "filter": (("CAST(n.town AS BIGINT) > 0",), "n.name", "n.key"),
    "key": (("CAST(n.town AS BIGINT) = 1 OR t.country = 'x'",), "n.name", "n.key"),
    "select": ((), "CAST(n.town AS BIGINT)", "n.key"),
    "result key": ((), "n.name", "CAST(n.town AS BIGINT)"),
    "arranged": (("CAST(n.town AS BIGINT) = t.country::BIGINT",), "n.name", "n.key"),
}


@pytest.mark.parametrize("first", ["names", "towns"])
@pytest.mark.parametrize("left", ["names", "towns"])
@pytest.mark.parametrize("where", FAILING)
def test_what_a_join_fails_on_is_an_error_as_long_as_it_is_there(
    where: str, first: str, left: str
) -> None:
    """Whichever side comes or goes first."""
    conditions, shown, key = FAILING[where]
    join = DeltaJoin(
        "joined",
        (JoinInput("n", "names"), JoinInput("t", "towns")),
        ("n.key = t.key", *conditions),
        (("shown", shown),),
        key,
    )
    play = Play(plan_of(*UPSERTS, join))
    rows: dict[str, Any] = {"names": {"name": "n", "town": "bad"}, "towns": {"country": "1"}}
    others = {"names": "towns", "towns": "names"}
    play.say(first, 0, rows[first], 1)
    play.say(others[first], 0, rows[others[first]], 2)
    play.say(left, 0, None, 4)
    play.say(others[left], 0, None, 5)
    play.close(9)

    changes = [(time, diff) for _, time, diff in play.errors()]
    assert sum(diff for time, diff in changes if time <= 3) >= 1
    assert sum(diff for _, diff in changes) == 0
    assert play.updates("o") == []


@pytest.mark.parametrize("outer", [False, True])
def test_what_a_locked_join_failed_on_leaves_with_its_row(outer: bool) -> None:  # noqa: FBT001
    """Though the right is another by then, with which it would not have failed."""
    join = AsOfJoin(
        "joined",
        JoinInput("n", "names"),
        JoinInput("t", "towns"),
        ("n.key = t.key", "CAST(t.country AS BIGINT) < length(n.name)"),
        (("name", "n.name"),),
        outer=outer,
        retract="locked",
    )
    play = Play(plan_of(*UPSERTS, join))
    play.say("towns", 0, {"country": "bad"}, 1)
    play.say("names", 0, {"name": "n", "town": None}, 2)
    play.say("towns", 0, {"country": "0"}, 3)
    play.say("names", 0, None, 4)
    play.close(9)

    assert [(time, diff) for _, time, diff in play.errors()] == [(2, 1), (4, -1)]
    assert play.updates("o") == []


def test_a_state_with_arrangements_goes_on_in_other_shards() -> None:
    """Own states, arrangements, what is remembered and what is held all go with their keys."""
    locked = AsOfJoin(
        "locked",
        JoinInput("n", "names"),
        JoinInput("t", "towns"),
        ("n.town = t.country",),
        (("name", "n.name"),),
        retract="locked",
    )
    later = Linear("later", "names", (steps.valid_between("length(name)", "9"),))
    meets = DeltaJoin(
        "meets",
        (JoinInput("n", "later"), JoinInput("t", "towns")),
        ("n.key = t.key",),
        (("name", "n.name"), ("country", "t.country")),
    )
    plan = Plan(
        "p",
        (NAMES, TOWNS),
        (*UPSERTS, locked, later, meets),
        (Output("locked", "locked", "locked"), Output("meets", "meets", "meets")),
    )

    def begin(play: Play) -> None:
        for number in range(20):
            play.say("towns", number, {"country": f"c{number % 3}"}, 1)
            play.say("names", number, {"name": "n" * (number % 8), "town": f"c{number % 4}"}, 2)
        play.close(4)

    def go_on(play: Play) -> None:
        for number in range(0, 20, 3):
            play.say("names", number, None if number % 2 else {"name": "m", "town": "c1"}, 5)
            play.say("towns", number, {"country": "c1"} if number % 2 else None, 6)
        play.close(12)

    whole, cut = Play(plan, 2), Play(plan, 2)
    begin(whole)
    begin(cut)
    cut.run.restart(shards=3)
    go_on(whole)
    go_on(cut)

    for name in ("locked", "meets"):
        assert cut.updates(name) == whole.updates(name) != []
    assert cut.kept() == whole.kept()


TYPES = (
    "d DECIMAL(20,6)",
    "f DOUBLE",
    "t DATE",
    "s TIMESTAMP",
    "v VARCHAR",
    "j JSON",
    "h HUGEINT",
)
WIDE: list[Any] = [
    {
        "d": "1.5",
        "f": 1.5,
        "t": "2020-01-01",
        "s": "2020-01-01T00:00:00",
        "v": "x",
        "j": {"a": [1]},
    },
    {"d": 1000, "f": 1e300, "t": None, "s": None, "v": 'é"', "j": 1.0, "h": 10**30},
    {"f": 3, "v": "", "j": None, "h": "7"},
    b'{"y":1.0,"d":1.50,"f":1e2,"v":"null","j":1.50,"h":100000000000000000000}',
]


@pytest.mark.parametrize("last", ["a", "c"])
def test_columns_of_every_type_are_carried_as_a_select_would_have_them(last: str) -> None:
    """However many inputs are met on the way from where they come to where they are shown."""
    inputs = (dated("a", "y BIGINT", *TYPES), dated("b", "y BIGINT"), dated("c", "y BIGINT"))
    names = [of.split()[0] for of in TYPES]
    more = {"more": "{0}d + 1", "text": "{0}s::VARCHAR", "twice": "{0}f * 2", "all": "{0}value"}
    plain = Linear(
        "plain",
        "a",
        (steps.select({n: n for n in names} | {n: of.format("") for n, of in more.items()}),),
    )
    shown = [(n, f"a.{n}") for n in names] + [(n, of.format("a.")) for n, of in more.items()]
    join = DeltaJoin(
        "joined",
        tuple(JoinInput(name, name) for name in "abc"),
        ("a.y = b.y AND b.y = c.y",),
        tuple(shown),
    )
    upserts = tuple(Upsert(name, name) for name in "abc")
    outputs = (Output("o", "joined", "o"), Output("plain", "plain", "plain"))
    play = Play(Plan("p", inputs, (*upserts, plain, join), outputs))
    for name in "abc":
        for number, row in enumerate(WIDE if name == "a" else [{}]):
            whole = row if isinstance(row, bytes) else {"y": 1, **row}
            play.say(name, number, whole, 5 if name == last else 1)
    play.close(9)

    assert play.errors() == []
    found, expected = ([repr(row) for row in play.shown(name, 8)] for name in ("o", "plain"))
    assert len(found) == len(WIDE)
    assert sorted(found) == sorted(expected)
