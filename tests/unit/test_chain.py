"""Steps in a row: what each update becomes, and what a step that fails leaves behind."""

import base64
import json
from typing import Any

import pytest

import user_functions
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.linear.chain import Chain, ChainError, Named, consolidated
from ikebana.processor.linear.scope import KEY, VALUE, Scope
from ikebana.processor.linear.steps import (
    Sql,
    Step,
    explode,
    filter_,
    flat_map,
    join_function,
    map_,
    negate,
    rekey,
    select,
    unnest,
    valid_between,
    where,
)

OPEN = Scope({KEY: "JSON", VALUE: "JSON"}, open=True)
BYTES = Scope({KEY: "BLOB", VALUE: "BLOB"})

Told = tuple[Any, ...]


def steps_of(*steps: Step) -> tuple[Named, ...]:
    return tuple((f"step{at}", step) for at, step in enumerate(steps))


def updates_of(*updates: Told) -> list[KeyedUpdate]:
    """Updates of literal (key, value, time, diff)."""
    return [
        KeyedUpdate(json.dumps(key).encode(), json.dumps(value).encode(), time, diff)
        for key, value, time, diff in updates
    ]


def run(steps: tuple[Named, ...], *updates: Told) -> tuple[list[Told], list[Told]]:
    """The updates and the errors (operator, reason, key, time, diff), consolidated."""
    passed = Chain(steps, OPEN).apply(updates_of(*updates))
    made = [
        (json.loads(key or b""), json.loads(value), time, diff)
        for key, value, time, diff in consolidated(passed.updates)
    ]
    return made, [error_of(error) for error in consolidated(passed.errors)]


def error_of(error: KeyedUpdate) -> Told:
    record = json.loads(error.value)
    assert error.key is None
    assert {name: record[name] for name in ("topic", "partition", "offset", "value")} == {
        "topic": None,
        "partition": None,
        "offset": None,
        "value": None,
    }
    operator, _, reason = record["reason"].removeprefix("operator ").partition(": ")
    key = None if record["key"] is None else json.loads(base64.b64decode(record["key"]))
    return operator, reason, key, error.time, error.diff


N = "n::BIGINT"


@pytest.mark.parametrize(
    ("steps", "update", "expected"),
    [
        pytest.param(
            [map_(user_functions.doubled)],
            ("k", {"n": 2}, 5, 3),
            [("k", {"n": 4}, 5, 3)],
            id="map",
        ),
        pytest.param([filter_(user_functions.is_even)], ("k", {"n": 3}, 5, 3), [], id="filter"),
        pytest.param(
            [flat_map("user_functions:down_to_one")],
            ("k", {"n": 2}, 5, -1),
            [("k", {"n": 2}, 5, -1), ("k", {"n": 1}, 5, -1)],
            id="flat_map",
        ),
        pytest.param(
            [explode(user_functions.by_its_number)],
            ("k", {"n": -2}, 5, 3),
            [("k", {"n": -2}, 5, -6)],
            id="explode",
        ),
        pytest.param(
            [explode(user_functions.by_its_number)],
            ("k", {"n": 0}, 5, 3),
            [],
            id="explode to none",
        ),
        pytest.param(
            [join_function(user_functions.from_its_number)],
            ("k", {"n": 3}, 5, 2),
            [("k", {"n": 3}, 9, 6), ("k", {"n": 3}, 12, -6)],
            id="x copies of x from time 3x until 4x",
        ),
        pytest.param(
            [join_function(user_functions.from_its_number)],
            ("k", {"n": 3}, 10, 2),
            [("k", {"n": 3}, 10, 6), ("k", {"n": 3}, 12, -6)],
            id="which has begun",
        ),
        pytest.param(
            [join_function(user_functions.from_its_number)],
            ("k", {"n": 3}, 12, 2),
            [],
            id="and is over",
        ),
        pytest.param([negate()], ("k", {"n": 3}, 5, 2), [("k", {"n": 3}, 5, -2)], id="negate"),
        pytest.param(
            [rekey(N), map_(user_functions.swapped)],
            ("k", {"n": 3}, 5, 2),
            [(3, {"n": 3, "was": 3}, 5, 2)],
            id="SQL, then Python",
        ),
        pytest.param(
            [map_(user_functions.doubled), select(m=N), negate(), rekey("m")],
            ("k", {"n": 3}, 5, 2),
            [(6, {"m": 6}, 5, -2)],
            id="Python, then SQL",
        ),
        pytest.param([Sql(diff=N)], ("k", {"n": 0}, 5, 2), [], id="zero copies are no update"),
        pytest.param(
            [valid_between(N, "20"), map_(user_functions.doubled), valid_between(N, None)],
            ("k", {"n": 6}, 5, 1),
            [("k", {"n": 12}, 12, 1), ("k", {"n": 12}, 20, -1)],
            id="bounds before and behind",
        ),
        pytest.param(
            [valid_between(N, "9"), map_(user_functions.doubled), valid_between(N, None)],
            ("k", {"n": 6}, 5, 1),
            [],
            id="bounds that do not meet",
        ),
    ],
)
def test_a_chain(steps: list[Step], update: Told, expected: list[Told]) -> None:
    """Each update by itself: data as the steps say, the latest time, the product of diffs."""
    assert run(steps_of(*steps), update) == (expected, [])


def test_results_are_consolidated_where_they_can_meet() -> None:
    """Equal in the fields that are left, an old and a new value cancel."""
    found, errors = run(
        steps_of(select(a="a")), ("k", {"a": 1, "b": 1}, 5, -1), ("k", {"a": 1, "b": 2}, 5, 1)
    )

    assert (found, errors) == ([], [])
    passed = Chain(steps_of(select(a="a")), OPEN).apply(
        updates_of(("k", {"a": 1, "b": 1}, 5, -1), ("k", {"a": 1, "b": 2}, 5, 1))
    )
    assert passed == ([], [])


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (
            "raises_the_value",
            "map user_functions:raises_the_value raised RuntimeError: secret {'n': 'payload'}",
        ),
        (
            "nothing_iterable",
            "map user_functions:nothing_iterable gave data that is not a pair (key, value)",
        ),
        ("not_a_pair", "map user_functions:not_a_pair gave data that is not a pair (key, value)"),
        ("an_object", "a result has no JSON form"),
    ],
)
def test_a_function_that_fails(function: str, reason: str) -> None:
    """Its datum becomes an error with the datum's diff, which says what failed and why."""
    for step in (map_(f"user_functions:{function}"), map_(getattr(user_functions, function))):
        found = run(steps_of(step), ("k", {"n": "payload"}, 5, -2))

        assert found == ([], [("step0", reason, "k", 5, -2)])


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (
            explode(user_functions.half_a_diff),
            "explode user_functions:half_a_diff gave a float as time or diff",
        ),
        (
            explode(user_functions.nothing_iterable),
            "explode user_functions:nothing_iterable raised TypeError: "
            "'NoneType' object is not iterable",
        ),
        (
            flat_map(user_functions.nothing_iterable),
            "flat_map user_functions:nothing_iterable raised TypeError: "
            "'NoneType' object is not iterable",
        ),
        (
            join_function(user_functions.twice),
            "join_function user_functions:twice raised ValueError: "
            "not enough values to unpack (expected 3, got 2)",
        ),
        (
            join_function(user_functions.from_its_number, moves_time=False),
            "join_function user_functions:from_its_number gave a time, "
            "but says that it moves none",
        ),
    ],
)
def test_results_of_the_wrong_form(step: Step, reason: str) -> None:
    """A function that gives what its kind of step cannot take fails on the datum."""
    assert run(steps_of(step), ("k", {"n": 3}, 5, 1)) == ([], [("step0", reason, "k", 5, 1)])


def test_the_error_is_of_the_step_that_failed_and_of_its_datum() -> None:
    """Behind a rekey it has the new key; what the failing datum's siblings become stays."""
    steps = steps_of(
        flat_map(user_functions.down_to_one),
        map_(user_functions.swapped),
        filter_("user_functions:is_even"),
        explode(user_functions.by_its_number),
        map_(user_functions.inverse),
    )

    found, errors = run(steps, ("k", {"n": 4}, 5, 1), ("k", {"n": 3}, 6, 1))

    assert found == [(4, {"n": 3, "was": "k"}, 5, 4), (2, {"n": 6, "was": "k"}, 5, 2)]
    reason = "flat_map user_functions:down_to_one raised LookupError: {'n': 3}"
    assert errors == [("step0", reason, "k", 6, 1)]


BY_ZERO = ": Invalid Input Error: Division by zero"
TOO_LARGE = ": Out of Range Error: Overflow in multiplication of INT64 (… * …)!"
NO_NUMBER = ": Conversion Error: Could not convert string '…' to INT64"


@pytest.mark.parametrize(
    ("steps", "update", "errors"),
    [
        pytest.param(
            [rekey(N), select(r=f"1 // {N}")],
            ("k", {"n": 0}, 5, 2),
            [("step1", f"could not evaluate select.r 1 // {N}{BY_ZERO}", 0, 5, 2)],
            id="behind a rekey: of the new key",
        ),
        pytest.param(
            [Sql(key=N, select=(("r", f"1 // {N}"),))],
            ("k", {"n": 0}, 5, 2),
            [("step0", f"could not evaluate select.r 1 // {N}{BY_ZERO}", "k", 5, 2)],
            id="in the step that makes the key: of the old one",
        ),
        pytest.param(
            [Sql(diff="3"), negate(), where(f"1 // {N} = 1")],
            ("k", {"n": 0}, 5, 2),
            [("step2", f"could not evaluate where 1 // {N} = 1{BY_ZERO}", "k", 5, -6)],
            id="as often as the datum is there",
        ),
        pytest.param(
            [valid_between("7", "9"), select(r=f"1 // {N}")],
            ("k", {"n": 0}, 5, 1),
            [
                ("step1", f"could not evaluate select.r 1 // {N}{BY_ZERO}", "k", 7, 1),
                ("step1", f"could not evaluate select.r 1 // {N}{BY_ZERO}", "k", 9, -1),
            ],
            id="and only as long",
        ),
        pytest.param(
            [valid_between("7", "7"), select(r=f"1 // {N}")], ("k", {"n": 0}, 5, 1), [], id="never"
        ),
        pytest.param(
            [Sql(diff="0"), select(r=f"1 // {N}")], ("k", {"n": 0}, 5, 1), [], id="zero times"
        ),
        pytest.param(
            [where(f"{N} > 0"), select(r=f"1 // {N}")], ("k", {"n": 0}, 5, 1), [], id="not there"
        ),
        pytest.param(
            [Sql(flat_map=("e", "[0, 1, 0]"), where=("1 // e = 1",)), negate()],
            ("k", {"n": 0}, 5, 1),
            [("step0", f"could not evaluate where 1 // e = 1{BY_ZERO}", "k", 5, 2)],
            id="each element by itself",
        ),
        pytest.param(
            [Sql(diff=N), where("false")],
            ("k", {"n": None}, 5, 1),
            [("step0", f"could not evaluate diff {N}", "k", 5, 1)],
            id="a diff of null, whatever is behind it",
        ),
        pytest.param(
            [Sql(diff=N), negate()],
            ("k", {"n": -(2**63)}, 5, 1),
            [("step1", f"could not evaluate negate -1{TOO_LARGE}", "k", 5, -1)],
            id="a diff beyond 64 bits, which no diff of an error can be",
        ),
        pytest.param(
            [where(f"{N} > 0")],
            ("k", {"n": "payload"}, 5, 1),
            [("step0", f"could not evaluate where {N} > 0{NO_NUMBER}", "k", 5, 1)],
            id="a value that is not of its type",
        ),
    ],
)
def test_where_a_sql_step_fails(steps: list[Step], update: Told, errors: list[Told]) -> None:
    """The error is of the step, of the datum as it was there, and holds no payload."""
    found = run(steps_of(*steps), update)

    assert found[1] == errors


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        pytest.param(select(r="x::DOUBLE / 0"), ("k", {"r": "Infinity"}, 5, 1), id="a value"),
        pytest.param(rekey("-x::DOUBLE / 0"), ("-Infinity", {"x": 1}, 5, 1), id="a key"),
        pytest.param(
            map_("user_functions:not_a_number"), ("k", {"n": "NaN"}, 5, 1), id="of a function"
        ),
    ],
)
def test_a_number_that_is_not_finite_is_a_result(step: Step, expected: Told) -> None:
    """JSON has no such numbers, so they stand by their names."""
    assert run(steps_of(step), ("k", {"x": 1}, 5, 1)) == ([expected], [])


def test_the_column_of_a_flat_map_is_for_the_sql_behind_it_in_its_operator() -> None:
    """Another operator, and Python, see the data that an output would show."""
    update = KeyedUpdate(b"1", b'{"l":[1,2],"e":0}', 5, 1)
    made, chosen = unnest("e", "l"), select(e="e")
    inside = Chain([("op", made), ("op", where("true")), ("op", chosen)], OPEN)
    outside = Chain([("op", made), ("other", chosen)], OPEN)
    behind = Chain([("op", made), ("op", map_(user_functions.as_it_is)), ("op", chosen)], OPEN)

    assert inside.apply([update]).updates == [
        KeyedUpdate(b"1", b'{"e":1}', 5, 1),
        KeyedUpdate(b"1", b'{"e":2}', 5, 1),
    ]
    assert outside.apply([update]).updates == [KeyedUpdate(b"1", b'{"e":0}', 5, 2)]
    assert behind.apply([update]).updates == [KeyedUpdate(b"1", b'{"e":0}', 5, 2)]


def test_functions_see_data_of_their_own() -> None:
    """What one does to its data, another does not see: each has what a topic would say."""
    steps = steps_of(flat_map(user_functions.twice), map_(user_functions.spoils_what_it_gets))
    tuples = steps_of(map_(user_functions.a_tuple), filter_(user_functions.is_a_list))

    assert run(steps, ("k", {"n": 1}, 5, 1)) == ([("k", {"n": 2}, 5, 2)], [])
    assert run(tuples, ("k", {}, 5, 1)) == ([("k", {"n": 0, "pair": [1, 2]}, 5, 1)], [])


def test_the_errors_of_silent_operators_are_left_out() -> None:
    """Another branch tells them; what they fail on is gone all the same."""
    steps = steps_of(where(f"1 // {N} = 1"), map_(user_functions.raises_the_value))
    chain = Chain(steps, OPEN)
    updates = updates_of(("k", {"n": 0}, 5, 1), ("k", {"n": 1}, 5, 1))

    told = [error_of(error)[0] for error in chain.apply(updates).errors]
    silent = [error_of(error)[0] for error in chain.apply(updates, frozenset({"step0"})).errors]

    assert told == ["step0", "step1"]
    assert silent == ["step1"]


def test_bytes_go_through_python_as_they_are() -> None:
    """A function of bytes gives bytes; anything else has no such form."""
    update = KeyedUpdate(b"\xff", b"\xfe", 5, 1)
    swap = Chain(steps_of(map_(lambda data: (data[1], data[0]))), BYTES)
    text = Chain(steps_of(map_(lambda data: (data[0], "text"))), BYTES)

    assert swap.apply([update]) == ([KeyedUpdate(b"\xfe", b"\xff", 5, 1)], [])
    assert json.loads(text.apply([update]).errors[0].value)["reason"] == (
        "operator step0: a result has no JSON form"
    )


@pytest.mark.parametrize(
    ("steps", "operator", "index", "part", "problem"),
    [
        (
            [("one", where("true")), ("one", map_("no.such:function"))],
            *(
                "one",
                1,
                "map",
                'module "no.such" cannot be imported: there is no "no" on PYTHONPATH '
                "(not set) or among what is installed",
            ),
        ),
        (
            [("one", where("true")), ("two", flat_map("user_functions:nothing"))],
            *("two", 0, "flat_map", 'module "user_functions" has no "nothing"'),
        ),
        (
            [("one", explode("user_functions:NOT_CALLABLE"))],
            *("one", 0, "explode", '"user_functions:NOT_CALLABLE" is not callable'),
        ),
        (
            [("one", filter_("user_functions"))],
            *("one", 0, "filter"),
            '"user_functions" is not of the form module:function; write the function in a module, '
            "and name both here",
        ),
        (
            [
                ("one", map_(user_functions.as_it_is)),
                ("two", negate()),
                ("two", select(a="now()")),
            ],
            *("two", 1, "select.a"),
            "now() depends on more than the datum; until when a row counts is its "
            "valid_until, and when it happened its input's event_time",
        ),
        (
            [("one", select(a="1")), ("one", map_(user_functions.as_it_is)), ("one", where("b"))],
            *("one", 2, "where", "b: is of type JSON; must be true or false"),
        ),
    ],
)
def test_a_chain_that_cannot_be(
    steps: list[Named],
    operator: str,
    index: int,
    part: str,
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The operator, the number of its step, the part, and why."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(ChainError) as caught:
        Chain(steps, OPEN)

    error = caught.value
    assert (error.operator, error.index, error.part, error.problem) == (
        operator,
        index,
        part,
        problem,
    )


@pytest.mark.parametrize(
    ("steps", "columns"),
    [
        ([select(a="x", b="y::BIGINT")], ("x", "y")),
        ([where("z::BIGINT = 1"), select(a="x")], ("z", "x")),
        ([select()], ()),
        ([select(a="key")], ()),
        ([select(a="x", v="value")], None),
        ([where("x::BIGINT = 1")], None),
        ([map_(user_functions.as_it_is), select(a="x")], None),
        ([select(a="x"), map_(user_functions.as_it_is)], ("x",)),
        ([], None),
    ],
)
def test_the_fields_that_a_chain_reads(steps: list[Step], columns: tuple[str, ...] | None) -> None:
    """Those of its first select and all before it; all, where the value goes on."""
    assert Chain(steps_of(*steps), OPEN).columns == columns


def test_the_relation_that_comes_out() -> None:
    """A select's columns have the types of their expressions; a flat_map's is no field."""
    declared = Scope({KEY: "JSON", VALUE: "JSON", "l": "BIGINT[]"})
    chosen = Chain(steps_of(select(a="l[1]", b="'x'", c="NULL")), declared).scope
    unnested = Chain([("op", unnest("l", "l")), ("op", where("l > 1"))], declared).scope
    called = Chain(steps_of(map_(user_functions.as_it_is)), declared).scope

    assert chosen == Scope(
        {"a": "BIGINT", "b": "VARCHAR", "c": '"NULL"', KEY: "JSON", VALUE: "JSON"}
    )
    assert unnested == declared
    assert called == OPEN
