"""Parts of a plan as users give them: lists and mappings, and what is refused by name."""

import pickle
from typing import Any

import pytest

from ikebana import (
    Concat,
    ConfigError,
    DeltaJoin,
    Input,
    JoinInput,
    Linear,
    Output,
    Plan,
    PlanError,
    Reduce,
    Upsert,
    evaluate,
    steps,
)

LIST: Any = list
AB: Any = "ab"
INPUTS = JoinInput("x", "a"), JoinInput("y", "b")


def test_lists_and_mappings_are_tuples() -> None:
    """Plans of them are the same plans, and run."""
    fields: Any = {"n": "count(*)"}
    some: Any = {"v": "x.value"}
    one = Plan(
        "p",
        LIST([Input("i", LIST(["t"]), key=LIST([]))]),
        LIST([Upsert("u", "i"), Linear("l", "u", LIST([steps.Sql(where=LIST(["true"]))])),
              Concat("c", LIST(["l"])), Reduce("r", "c", fields, by="1")]),
        LIST([Output("o", "r", "o")]),
    )  # fmt: skip
    other = Plan(
        "p",
        (Input("i", ("t",)),),
        (
            Upsert("u", "i"),
            Linear("l", "u", (steps.where("true"),)),
            Concat("c", ("l",)),
            Reduce("r", "c", (("n", "count(*)"),), by="1"),
        ),
        (Output("o", "r", "o"),),
    )

    assert one == other
    assert hash(one) == hash(other)
    assert evaluate(one, {"i": [("k", 1, 0)]})["o"] == [((1, {"n": 1}), 0, 1)]
    assert DeltaJoin("j", INPUTS, LIST(["x.key = y.key"]), some) == DeltaJoin(
        "j", INPUTS, ("x.key = y.key",), (("v", "x.value"),)
    )


TEXTS = [
    pytest.param(lambda: Input("a", ("ab",), columns=AB), 'input "a": columns', id="columns"),
    pytest.param(lambda: Linear("l", "u", AB), 'Linear "l": steps', id="steps"),
    pytest.param(lambda: steps.Sql(select=AB), "Sql: select", id="select"),
    pytest.param(lambda: steps.Sql(flat_map=AB), "Sql: flat_map", id="pair"),
    pytest.param(lambda: DeltaJoin("j", AB, (), ()), 'DeltaJoin "j": inputs', id="inputs"),
]


@pytest.mark.parametrize(("made", "named"), TEXTS)
def test_a_text_in_place_of_something_else_is_refused(made: Any, named: str) -> None:
    """It would be taken apart into letters."""
    with pytest.raises(ConfigError, match=f"{named} must be a tuple, not the text .*\nHint: Give"):
        made()


def test_what_is_no_text_among_texts_is_refused() -> None:
    """A list in a list, or a number, is no name."""
    for strange in (["a", ["b"]], [1], (None,)):
        several: Any = strange
        with pytest.raises(ConfigError, match='input "a": key must be a text, or a list of texts'):
            Input("a", ("t",), key=several)


def test_what_is_no_value_is_refused_by_its_part() -> None:
    """When the plan is made, and not when it runs."""
    strange: Any = {"a", "b"}
    with pytest.raises(PlanError, match=r"inputs\.i: is no value: .*set"):
        Plan("p", (Input("i", ("t",), tables=strange),), (), (Output("o", "i", "o"),))


@pytest.mark.parametrize(("form", "mode"), [("diff", "diffs"), ("json", "upsert")])
def test_updates_need_no_mode(form: Any, mode: str) -> None:
    """They have only one."""
    assert Input("i", ("t",), form).mode == mode


def test_operators_that_do_nothing_show_what_they_read() -> None:
    """A linear operator without steps, and a concat of one."""
    operators = (Upsert("u", "i"), Linear("l", "u", ()), Concat("c", ("l",)))
    plan = Plan("p", (Input("i", ("t",)),), operators, (Output("o", "c", "o"),))

    assert evaluate(plan, {"i": [("k", 1, 0)]})["o"] == [(("k", 1), 0, 1)]


def test_a_join_may_select_nothing() -> None:
    """Its results are their keys."""
    sides = Input("a", ("a",), "diff"), Input("b", ("b",), "diff")
    join = DeltaJoin("j", INPUTS, ("x.key = y.key",), ())
    plan = Plan("p", sides, (join,), (Output("o", "j", "o"),))

    found = evaluate(plan, {"a": [(1, 2, 0, 1)], "b": [(1, 3, 1, 2)]})

    assert found["o"] == [((1, {}), 1, 2)]


class _Counted(str):
    """A name that counts how often it is hashed."""

    __slots__ = ("hashed",)
    hashed: int

    def __hash__(self) -> int:
        self.hashed = getattr(self, "hashed", 0) + 1
        return super().__hash__()


def test_a_plan_is_hashed_once_in_a_process() -> None:
    """What is computed of a plan is looked up by it in every batch; other processes hash anew."""
    name = _Counted("p")
    plan = Plan(name, (Input("i", ("t",)),), (Upsert("u", "i"),), (Output("o", "u", "o"),))
    equal = Plan("p", plan.inputs, plan.operators, plan.outputs)
    name.hashed = 0

    assert {plan: 1}[equal] == {plan: 1}[plan] == 1
    assert name.hashed == 1
    assert pickle.loads(pickle.dumps(equal)) == plan
    assert "_hash" not in equal.__getstate__()
