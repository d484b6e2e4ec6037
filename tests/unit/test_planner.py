"""From a plan to what runs: branches, and what is pushed into decoding."""

from typing import Any

import pytest

import user_functions
from ikebana import (
    AsOfJoin,
    Concat,
    DeltaJoin,
    Input,
    JoinInput,
    Linear,
    Output,
    Plan,
    Upsert,
)
from ikebana.arrangements.update import Update
from ikebana.codecs.change import Column
from ikebana.codecs.diff import Promise
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.engine.evaluate import Evaluation, evaluate
from ikebana.processor.linear.chain import chain, consolidated
from ikebana.processor.linear.scope import KEY, VALUE, frozen
from ikebana.processor.linear.steps import (
    Sql,
    Step,
    explode,
    filter_,
    flat_map,
    join_function,
    map_,
    negate,
    project,
    rekey,
    select,
    unnest,
    valid_between,
    where,
)
from ikebana.processor.planning import outputs
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.input_rows import scope_of_input
from ikebana.processor.planning.joins.query import Join, Retract
from ikebana.processor.planning.plan import InputMode, Reading
from ikebana.processor.planning.planner import Branch, physical, remaining_steps
from support.sql_oracle import plan_of as plan_of_views

ROWS = Input("rows", ("rows",))
CHANGES = Input("rows", ("rows",), value_format="debezium-json", key=("id",))
CURRENT = Upsert("current", "rows")


def plan_of(*linears: Linear | Concat, source: Input = ROWS, shown: tuple[str, ...] = ()) -> Plan:
    """A plan whose outputs show the operators of these names, or all."""
    names = shown or tuple(operator.name for operator in linears)
    own = () if source.mode == "diffs" else (CURRENT,)
    outputs = tuple(Output(f"out{at}", name, f"out{at}") for at, name in enumerate(names))
    return Plan("p", (source,), (*own, *linears), outputs)


def diffs(source: Input = CHANGES) -> Input:
    mode: InputMode = "diffs"
    return Input(source.name, source.topics, value_format=source.value_format, mode=mode)


POSITIVE = where("n::BIGINT > 0")
BIG = where("n::BIGINT > 9")


def test_linear_operators_in_a_row_are_one_branch() -> None:
    """One pass from the root to the output; operators that no output shows cost nothing."""
    plan = plan_of(
        Linear("positive", "current", (POSITIVE,)),
        Linear("big", "positive", (BIG, negate())),
        Linear("unused", "big", (negate(),)),
        shown=("big",),
    )

    assert physical(plan, optimized=False).branches == {
        "current": (
            Branch(
                "current", (("positive", POSITIVE), ("big", BIG), ("big", negate())), ("out0",)
            ),
        )
    }


def test_outputs_that_show_the_same_share_a_branch() -> None:
    """And one that shows it twice is named twice."""
    plan = plan_of(
        Linear("positive", "current", (POSITIVE,)),
        Concat("twice", ("positive", "positive")),
        shown=("positive", "current", "positive", "twice"),
    )

    assert [(b.steps, b.outputs) for b in physical(plan).branches["current"]] == [
        ((("positive", POSITIVE),), ("out0", "out2", "out3", "out3")),
        ((), ("out1",)),
    ]


def test_each_error_is_told_by_one_branch() -> None:
    """The first with the operator; another way to the same operator tells its own."""
    plan = plan_of(
        Linear("one", "current", (POSITIVE,)),
        Linear("two", "one", (BIG,)),
        Linear("three", "one", (map_(user_functions.inverse),)),
        Concat("both", ("current", "two")),
        Linear("four", "both", (POSITIVE,)),
        shown=("two", "three", "one", "four"),
    )

    found = physical(plan, optimized=False).branches["current"]

    assert [([name for name, _ in b.steps], b.silent) for b in found] == [
        (["one", "two"], frozenset()),
        (["one", "three"], frozenset({"one"})),
        (["one"], frozenset({"one"})),
        (["four"], frozenset()),
        (["one", "two", "four"], frozenset({"one", "two"})),
    ]


def test_a_bad_datum_is_one_error_however_many_branches_see_it() -> None:
    """Applied to the branches, what is silent leaves one record for each operator's failure."""
    plan = plan_of(
        Linear("one", "current", (where("1 // n::BIGINT >= 0"),)),
        Linear("two", "one", (BIG,)),
        Linear("three", "one", (negate(),)),
    )
    scope = frozen(catalog_of(plan).relation("current").scope)
    update = KeyedUpdate(b"1", b'{"n":0}', 5, 1)

    errors = [
        error
        for branch in physical(plan, optimized=False).branches["current"]
        for error in chain(branch.steps, scope).apply([update], branch.silent).errors
    ]

    assert [error.diff for error in consolidated(errors)] == [1]


def test_an_object_of_a_column_is_not_the_column() -> None:
    """What an edit reads of rows that were stored by other steps."""
    column, in_object = (("op", select(x="x")),), (("op", select(x="{'a': x}")),)

    assert remaining_steps(column, [in_object], ["x"]) == [
        (("op", select(x="struct_pack(a := x)")),)
    ]
    assert remaining_steps(in_object, [column], ["x"]) is None


@pytest.mark.parametrize(
    ("steps", "reading", "left"),
    [
        pytest.param(
            [project("a")], Reading(("a",), (), (("op", project("a")),)), [], id="select"
        ),
        pytest.param(
            [POSITIVE, select(b="a")],
            Reading(("a", "n"), (), (("op", POSITIVE), ("op", select(b="a")))),
            [],
            id="where and select",
        ),
        pytest.param(
            [select(b="a"), rekey("b"), negate()],
            Reading(("a",), (), (("op", select(b="a")),)),
            [rekey("b"), negate()],
            id="a select, and what moves keys stays",
        ),
        pytest.param(
            [POSITIVE], Reading(None, (), (("op", POSITIVE),)), [], id="the value goes on"
        ),
        pytest.param(
            [negate(), project("a")], Reading(("a",)), [negate(), project("a")], id="only columns"
        ),
        pytest.param(
            [unnest("e", "l"), select(e="e")],
            Reading(("l",)),
            [unnest("e", "l"), select(e="e")],
            id="a flat_map stays",
        ),
        pytest.param(
            [valid_between("n::BIGINT", None), project("a")],
            Reading(("a", "n")),
            [valid_between("n::BIGINT", None), project("a")],
            id="bounds stay",
        ),
        pytest.param(
            [map_(user_functions.as_it_is), project("a")],
            Reading(),
            [map_(user_functions.as_it_is), project("a")],
            id="Python reads all",
        ),
        pytest.param(
            [where("key IS NOT NULL", "key->>'a' = 'x'")],
            Reading(
                None,
                (("key IS NOT NULL", "key->>'a' = 'x'"),),
                (("op", where("key IS NOT NULL", "key->>'a' = 'x'")),),
            ),
            [],
            id="conditions over the key",
        ),
        pytest.param(
            [where("n::BIGINT > 0", "key->>'a' = 'x'")],
            Reading(None, (), (("op", where("n::BIGINT > 0", "key->>'a' = 'x'")),)),
            [],
            id="none behind one that may fail on the value",
        ),
        pytest.param(
            [where("key::BIGINT > 1 OR n::BIGINT > 0")],
            Reading(None, (), (("op", where("key::BIGINT > 1 OR n::BIGINT > 0")),)),
            [],
            id="none that reads the value as well",
        ),
        pytest.param(
            [unnest("e", "l"), where("key::BIGINT > 1")],
            Reading(),
            [unnest("e", "l"), where("key::BIGINT > 1")],
            id="none behind a flat_map",
        ),
        pytest.param(
            [rekey("n"), where("key::BIGINT > 1")],
            Reading(),
            [rekey("n"), where("key::BIGINT > 1")],
            id="none behind another key",
        ),
    ],
)
def test_what_is_pushed(steps: list[Step], reading: Reading, left: list[Step]) -> None:
    """Of one branch over plain messages: columns, conditions over the key, first steps."""
    plan = plan_of(Linear("op", "current", tuple(steps)))

    found = physical(plan)

    assert found.readings == {"rows": reading}
    assert [step for _, step in found.branches["current"][0].steps] == left
    assert physical(plan, optimized=False).readings == {"rows": Reading()}


@pytest.mark.parametrize(
    ("source", "branches", "reading"),
    [
        pytest.param(ROWS, [[project("a")], [project("b")]], Reading(("a", "b")), id="of all"),
        pytest.param(ROWS, [[project("a")], [POSITIVE]], Reading(), id="one reads all"),
        pytest.param(
            ROWS,
            [[where("key::BIGINT > 1")], [where("key::BIGINT < 5"), project("a")]],
            Reading(None, (("key::BIGINT > 1",), ("key::BIGINT < 5",))),
            id="conditions of all",
        ),
        pytest.param(ROWS, [[where("key::BIGINT > 1")], [POSITIVE]], Reading(), id="one has none"),
        pytest.param(CHANGES, [[project("a")]], Reading(("a",)), id="changes are not whole rows"),
        pytest.param(
            CHANGES,
            [[where("id::BIGINT > 1"), project("a")]],
            Reading(("a", "id"), (("id::BIGINT > 1",),)),
            id="a column of the key",
        ),
        pytest.param(
            diffs(),
            [[where("key::BIGINT > 1"), project("a")]],
            Reading(("a",), (("key::BIGINT > 1",),)),
            id="an input in mode diffs",
        ),
        pytest.param(
            Input("rows", ("rows",), value_format="bytes"),
            [[where("octet_length(value) > 1")]],
            Reading(None, (), (("op0", where("octet_length(value) > 1")),)),
            id="bytes have no columns",
        ),
    ],
)
def test_what_several_branches_let_be_pushed(
    source: Input, branches: list[list[Step]], reading: Reading
) -> None:
    """Only what none of them misses."""
    root = "rows" if source.mode == "diffs" else "current"
    linears = [Linear(f"op{at}", root, tuple(steps)) for at, steps in enumerate(branches)]

    assert physical(plan_of(*linears, source=source)).readings == {"rows": reading}


def test_an_output_of_the_root_itself_lets_nothing_be_pushed() -> None:
    """It shows every row whole."""
    plan = plan_of(Linear("op", "current", (project("a"),)), shown=("current", "op"))

    assert physical(plan).readings == {"rows": Reading()}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], "upserts"),
        ([POSITIVE, project("a")], "upserts"),
        ([filter_(user_functions.is_even), valid_between("1", "2")], "upserts"),
        ([rekey("n")], "collection"),
        ([unnest("e", "l")], "collection"),
        ([map_(user_functions.as_it_is)], "collection"),
        ([flat_map(user_functions.twice)], "collection"),
        ([negate()], "changes"),
        ([Sql(diff="2")], "changes"),
        ([unnest("e", "repeat_row(n::BIGINT)")], "changes"),
        ([explode(user_functions.by_its_number)], "changes"),
        ([join_function(user_functions.from_its_number)], "changes"),
    ],
)
def test_what_an_output_promises(steps: list[Step], expected: Promise) -> None:
    """One value a key, whole multiplicities, or changes alone; of several ways, less."""
    linear = (Linear("op", "current", tuple(steps)),) if steps else ()
    name = "op" if steps else "current"
    plan = plan_of(*linear, Concat("both", (name, "current")), shown=(name, "both"))

    told = [outputs.promise(plan, output) for output in plan.published]

    assert told[0] == expected
    assert told[1] == ("changes" if expected == "changes" else "collection")
    assert told[2] == ("changes" if expected == "changes" else "collection")


def test_what_an_input_of_changes_promises() -> None:
    """Nothing: an old image may be of a row that was never there."""
    plan = plan_of(Linear("op", "rows", (POSITIVE,)), source=diffs())

    assert outputs.promise(plan, plan.outputs[0]) == "changes"


@pytest.mark.parametrize(
    ("retract", "relation", "expected", "errors"),
    [
        ("locked", "current", "collection", "collection"),
        ("current", "current", "changes", "changes"),
        (None, "current", "upserts", "collection"),
        (None, "changed", "changes", "collection"),
    ],
)
def test_what_a_join_promises(
    retract: Retract | None, relation: str, expected: Promise, errors: Promise
) -> None:
    """As much as all that it joins; less if what is retracted meets what is there then."""
    inputs = JoinInput("a", relation), JoinInput("b", "current")
    on, made = ("a.key = b.key",), (("made", "a.key"),)
    join: Join = (
        DeltaJoin("joined", inputs, on, made)
        if retract is None
        else AsOfJoin("joined", *inputs, on, made, retract=retract)
    )
    changed = Input("changed", ("changed",), "debezium-json", mode="diffs")
    plan = Plan("p", (ROWS, changed), (CURRENT, join), (Output("out", "joined", "out"),))

    assert [outputs.promise(plan, output) for output in plan.published] == [expected, errors]


def test_what_expressions_may_name() -> None:
    """The declared columns and no others, or any; bytes have none."""
    declared = Input("rows", ("rows",), columns=(Column("a", "int"),))
    raw = Input("rows", ("rows",), value_format="bytes", key_format="bytes")

    assert scope_of_input(declared).types == {
        "a": "INTEGER",
        KEY: "JSON",
        VALUE: "JSON",
    }
    assert not scope_of_input(declared).open
    assert scope_of_input(ROWS).open
    assert scope_of_input(raw).types == {KEY: "BLOB", VALUE: "BLOB"}
    assert not scope_of_input(raw).open


def test_the_relation_of_an_output() -> None:
    """What the last step makes, whatever is pushed."""
    plan = plan_of(Linear("op", "current", (select(a="n::BIGINT"), rekey("a"))))

    assert catalog_of(plan).relation(plan.outputs[0].source).scope.types == {
        "a": "BIGINT",
        KEY: "JSON",
        VALUE: "JSON",
    }


def shown(plan: Plan, records: list[tuple[Any, Any, int]]) -> list[Update[Any]]:
    return evaluate(plan, {"rows": records})["out0"]


def test_a_condition_over_the_value_does_not_leave_the_old_value_standing() -> None:
    """A value that no longer passes retracts the one that did."""
    plan = plan_of(Linear("op", "current", (POSITIVE, select(n="n"))))

    assert shown(plan, [(1, {"n": 5}, 0), (1, {"n": -5}, 1), (1, {"n": 7}, 2)]) == [
        ((1, {"n": 5}), 0, 1),
        ((1, {"n": 5}), 1, -1),
        ((1, {"n": 7}), 2, 1),
    ]


def test_a_value_that_a_pushed_step_fails_on_is_an_error_until_the_next() -> None:
    """As behind the upsert: the old value goes, the error comes, and goes with the next value."""
    plan = plan_of(Linear("op", "current", (select(r="10 // n::BIGINT"),)))
    records = [(1, {"n": 5}, 0), (1, {"n": 0}, 1), (1, {"n": 2}, 2)]

    for optimized in (True, False):
        found = Evaluation(plan, optimized=optimized).advance({"rows": records}, 9)

        assert found["out0"] == [
            ((1, {"r": 2}), 0, 1),
            ((1, {"r": 2}), 1, -1),
            ((1, {"r": 5}), 2, 1),
        ]
        reason = (
            "could not evaluate select.r 10 // n::BIGINT: Invalid Input Error: Division by zero"
        )
        assert [(e.data["reason"], e.time, e.diff) for e in found["errors"]] == [
            (f"operator op: {reason}", 1, 1),
            (f"operator op: {reason}", 2, -1),
        ]


def test_a_key_that_a_condition_fails_on_is_an_error() -> None:
    """Pushed or not, it is let through to the step that tells it."""
    plan = plan_of(Linear("op", "current", (where("key::BIGINT > 1"), negate())))
    records = [("text", {"n": 5}, 0), (1, {"n": 5}, 0), (2, {"n": 5}, 0)]

    for optimized in (True, False):
        found = Evaluation(plan, optimized=optimized).advance({"rows": records}, 9)

        assert found["out0"] == [((2, {"n": 5}), 0, -1)]
        assert [(e.data["reason"], e.diff) for e in found["errors"]] == [
            ("operator op: could not evaluate where key::BIGINT > 1", 1)
        ]


def test_a_retraction_before_the_expiry_cancels_what_is_held() -> None:
    """Nothing waits for a time at which nothing is left to retract."""
    plan = plan_of(Linear("op", "current", (valid_between("f::BIGINT", "u::BIGINT"),)))
    evaluation = Evaluation(plan)
    row = {"f": 3, "u": 9}

    assert evaluation.advance({"rows": [(1, row, 0)]}, 1)["out0"] == []
    assert sorted(evaluation.pending()) == [3, 9]
    # With no input, since the frontier has passed its time.
    assert evaluation.advance({}, 4)["out0"] == [((1, row), 3, 1)]
    assert evaluation.advance({"rows": [(1, None, 5)]}, 6)["out0"] == [((1, row), 5, -1)]
    assert evaluation.pending() == []
    assert evaluation.advance({}, 20)["out0"] == []


def test_a_pushed_condition_does_not_hide_what_the_steps_behind_it_read() -> None:
    """A key that is made behind a pushed condition tells what is read all the same."""
    plan = plan_of(
        Linear("a", "current", (where("a::BIGINT > 1"),)),
        Linear("b", "a", (Sql(select=(("a", "a"),), key="b"),)),
        shown=("b",),
    )

    assert physical(plan).readings["rows"].columns == ("a", "b")


def test_an_outer_join_of_outer_joins_adds_no_steps_to_the_rows_before_it() -> None:
    """Each of them only picks columns and adds nulls: rows have two steps behind them at most."""
    tables = {f"t{at}": {"k": "BIGINT", "b": "BIGINT"} for at in range(6)}
    joins = " ".join(f"LEFT JOIN t{at} ON t0.k = t{at}.k" for at in range(1, 6))
    listed = ", ".join(f"t{at}.b AS b{at}" for at in range(6))
    plan = plan_of_views(tables, {"wide": f"SELECT {listed} FROM t0 {joins}"})

    branches = [each for of in physical(plan).branches.values() for each in of if each.outputs]

    assert len(branches) == 11
    assert max(len(branch.steps) for branch in branches) <= 3
