"""Whatever a pipeline file holds, it is a plan or a list of problems with their places."""

import json
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ikebana.errors import ConfigError
from ikebana.processor.authoring.pipeline import ConfiguredPlan, parse
from ikebana.processor.linear import syntax
from ikebana.processor.linear.expressions import parse as checked
from ikebana.processor.linear.expressions import type_named
from ikebana.processor.linear.scope import KEY, VALUE, ExpressionError, Scope
from ikebana.processor.linear.syntax import call_of, select_of, tree
from ikebana.processor.planning.aggregates import AggregateError, split_reduction
from ikebana.processor.planning.joins import binding
from ikebana.processor.planning.plan import Reduce
from support.sql_texts import sql_texts
from support.strategies import unhurried

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TYPES = {"id": "BIGINT", "s": "VARCHAR", KEY: "JSON", VALUE: "JSON"}
SCOPES = {"o": Scope(TYPES), "c": Scope({"x": "BIGINT", **TYPES}, open=True)}


def readers(text: str) -> list[Callable[[], Any]]:
    """Everything that reads SQL of a file."""
    return [
        lambda: checked(text, SCOPES["o"]),
        lambda: checked(text, SCOPES["c"], condition=True),
        lambda: [
            binding.flat(each, SCOPES, condition=True) for each in syntax.conjuncts(tree(text))
        ],
        lambda: call_of(text),
        lambda: syntax.conditions(text),
        lambda: binding.flat(tree(text), SCOPES),
        lambda: type_named(text),
        lambda: split_reduction(Reduce("r", "o", (("n", text),))),
    ]


@unhurried
@given(sql_texts)
def test_any_text_is_an_expression_or_is_refused(text: str) -> None:
    """Nothing that reads SQL ends in anything else."""
    for read in readers(text):
        with suppress(ExpressionError, AggregateError):
            read()


@unhurried
@given(sql_texts)
@example("o.id > 1 AND CAST(o.s AS DOUBLE) = TRY_CAST(id AS DATE)")
@example("list_filter(l, lambda x: x > CAST(id AS DOUBLE))")
def test_whatever_reads_a_tree_leaves_it_as_it_is(text: str) -> None:
    """A text is parsed once, so all that read it share its tree, and those of constant texts."""
    for read in readers(text):
        with suppress(ExpressionError, AggregateError):
            read()

    for each in (text, "1", "CAST(NULL AS BIGINT)"):
        with suppress(ExpressionError):
            assert select_of(each) == select_of.__wrapped__(each)


FILE: dict[str, Any] = {
    "pipeline": "p",
    "inputs": {
        "a": {
            "topic": "a",
            "columns": {"id": "BIGINT", "s": "VARCHAR", "l": "BIGINT[]"},
            "event_time": {"of": "id"},
        }
    },
    "operators": {"u": {"upsert": "a"}},
    "outputs": {"out": {"from": "u", "topic": "out"}},
    "kafka": {"bootstrap.servers": "b:1"},
    "run": {"checkpoint": "c"},
}
JOIN = {"select": {"q": "o.s"}, "key": "o.id"}
# Where SQL stands: in an operator of these kinds, which is shown, or in the input.
OPERATORS: dict[str, dict[str, Any]] = {
    "where": {"linear": "u", "where": ["id > 1"]},
    "select": {"linear": "u", "select": {"x": "id"}},
    "key": {"linear": "u", "key": "s"},
    "diff": {"linear": "u", "diff": "2"},
    "valid_from": {"linear": "u", "valid_from": "id"},
    "valid_until": {"linear": "u", "valid_until": "id"},
    "flat_map": {"linear": "u", "flat_map": {"e": "l"}},
    "by": {"reduce": "u", "by": "s", "aggregates": {"n": "count(*)"}},
    "aggregates": {"reduce": "u", "aggregates": {"n": "max(id)"}},
    "on": {"as_of_join": {"o": "u", "c": "u"}, "on": ["o.id = c.id"], **JOIN},
    "join where": {"delta_join": {"o": "u", "c": "u"}, "where": ["o.id = c.id"], **JOIN},
    "join select": {"delta_join": {"o": "u", "c": "u"}, "where": ["o.id = c.id"], **JOIN},
    "join key": {"delta_join": {"o": "u", "c": "u"}, "where": ["o.id = c.id"], **JOIN},
}


def file_with(place: str, text: str) -> dict[str, Any]:
    """A file that is right but for one place."""
    document = deepcopy(FILE)
    if place in ("type", "event time"):
        columns = document["inputs"]["a"]["columns"]
        part = columns if place == "type" else document["inputs"]["a"]["event_time"]
        part["s" if place == "type" else "of"] = text
        return document
    operator = deepcopy(OPERATORS[place])
    name = place.rpartition(" ")[2]
    held = operator[name]
    if isinstance(held, str):
        operator[name] = text
    else:
        held[0 if isinstance(held, list) else next(iter(held))] = text
    document["operators"]["made"] = operator
    document["outputs"]["out"]["from"] = "made"
    return document


def read(text: str) -> ConfiguredPlan | list[str]:
    """What a file comes to: a plan, or problems, each with its line."""
    try:
        return parse(text, "p.yaml", environ={})
    except ConfigError as error:
        return str(error).splitlines()


@unhurried
@given(st.sampled_from(["type", "event time", *OPERATORS]), sql_texts)
def test_any_text_in_the_place_of_sql_is_a_plan_or_has_its_place(place: str, text: str) -> None:
    """The problem names the place; nothing is a traceback, and nothing is read past."""
    found = read(json.dumps(file_with(place, text)))

    if isinstance(found, list):
        within = {"type": "inputs.a.columns.s", "event time": "inputs.a.event_time.of"}
        wanted = within.get(place, f"operators.made.{place.rpartition(' ')[2]}")
        assert len(found) > 1
        assert any(line.strip().startswith(wanted) for line in found[1:]), found
        assert all("(line 1)" in line for line in found[1:]), found


@pytest.mark.parametrize("place", ["type", "event time", *OPERATORS])
def test_the_file_that_is_changed_is_right(place: str) -> None:
    """Else what is found would be of another place."""
    texts = {"type": "VARCHAR", "diff": "2", "flat_map": "l", "aggregates": "max(id)"}
    texts |= {"on": "o.id = c.id", "join where": "o.id = c.id"}
    texts |= {"join select": "o.id", "join key": "o.id", "where": "id > 2"}

    assert isinstance(read(json.dumps(file_with(place, texts.get(place, "id")))), ConfiguredPlan)


_BITS = (
    *(":", "-", "[", "]", "{", "}", ",", "&a", "*a", "!!int", '!!float ""', "!!binary x", "|"),
    *("\n", "\n  ", "? ", '"', "'", "#", "${", "${file:\\0x}", "${X:-y}", "~", "%", "\t", "@"),
    *('"\\ud800"', '"\\0"', "\ud800", "1e999", "0x", "1_0", "2020-99-99", "<<", "---", "é"),
    *("topic", "format", "diff", "upsert", "where", "linear", "columns", "key", "0", "true"),
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """An example with some of it cut, repeated, or mixed with what means something in YAML."""
    text = draw(st.sampled_from(sorted(EXAMPLES.glob("*.yaml")))).read_text()
    # Comments are no part of what is read.
    text = "".join(
        line for line in text.splitlines(keepends=True) if not line.strip().startswith("#")
    )
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.integers(0, 12)))
        bit = draw(st.one_of(st.sampled_from(_BITS), st.just(text[begin:end] * 2)))
        text = text[:begin] + bit + text[end:]
    return text


@unhurried
@given(mutated())
def test_any_damage_to_a_file_is_a_plan_or_a_problem(text: str) -> None:
    """Whoever edits a file sees what is wrong, never a traceback."""
    assert read(text)
