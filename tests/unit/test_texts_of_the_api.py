"""One text in the Python API is one name, wherever names are taken: never its letters."""

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Union

import pytest

import ikebana as ik
from ikebana import testing
from ikebana.errors import ConfigError
from ikebana.processor.building.handle import PipelineRun
from ikebana.processor.building.pipeline import Explained
from ikebana.processor.linear.settled import keys, texts
from ikebana.serving import aligned
from ikebana.serving.reads import Reads

# What is public beside the names of the packages: what they return.
RETURNED = (Explained, PipelineRun, Reads, aligned.Follower)
UNIONS = (Union, types.UnionType)
SEVERAL = (
    *(collections.abc.Iterable, collections.abc.Sequence, collections.abc.Collection),
    *(collections.abc.Set, tuple, list, set, frozenset),
)


def is_several(kind: Any) -> bool:
    """Whether a type is of any number of texts, or has such a type within."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is collections.abc.Callable:
        return False
    if origin in SEVERAL and arguments[:1] == (str,):
        return origin is not tuple or arguments[1:] == (...,)
    return any(map(is_several, arguments))


def takes_one(kind: Any) -> bool:
    """Whether a type takes a text wherever it takes several."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in UNIONS and str in arguments:
        arguments = tuple(a for a in arguments if typing.get_args(a)[:1] != (str,))
    elif origin in SEVERAL and arguments[:1] == (str,):
        return False
    return all(map(takes_one, arguments))


class _Anything(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class Unknown(metaclass=_Anything):
    """A type that only the type checker imports."""

    def __class_getitem__(cls, of: Any) -> Any:
        return cls


def hints_of(function: Any) -> dict[str, Any]:
    """The types of arguments; those that only the type checker knows are any."""
    unknown: dict[str, Any] = {}
    while True:
        try:
            return typing.get_type_hints(function, localns=unknown)
        except NameError as error:
            unknown[str(error.name)] = Unknown


def functions(name: str, what: Any) -> Iterator[tuple[str, Any, Any]]:
    """What can be called of a public name, and what has its types: itself, its methods."""
    if inspect.ismodule(what):
        for part, each in vars(what).items():
            if callable(each) and getattr(each, "__module__", "") == what.__name__:
                yield from functions(f"{name}.{part}", each)
    elif typing.get_origin(what) is not None or not inspect.isclass(what):
        if inspect.isroutine(what):
            yield name, what, what
    else:
        yield name, what, what.__init__ if inspect.isfunction(what.__init__) else what
        for part, each in inspect.getmembers(what, inspect.isroutine):
            if not part.startswith("_"):
                yield f"{name}.{part}", each, each


def arguments() -> dict[str, Any]:
    """The types of all public arguments that take several texts."""
    every = [
        *((name, getattr(package, name)) for package in (ik, testing) for name in package.__all__),
        *((each.__name__, each) for each in RETURNED),
    ]
    found: dict[str, Any] = {}
    for name, function, typed in (one for each in every for one in functions(*each)):
        try:
            parameters = inspect.signature(function).parameters
        except ValueError:
            continue  # it is the metaclass's, or in C: no arguments of ours
        hints = hints_of(inspect.unwrap(typed))
        for part, parameter in parameters.items():
            kind = hints.get(part)
            if parameter.kind is inspect.Parameter.VAR_KEYWORD and typing.get_args(kind):
                options = hints_of(typing.get_args(kind)[0])
                found |= {f"{name}.{option}": of for option, of in options.items()}
            else:
                found[f"{name}.{part}"] = kind
    return {name: kind for name, kind in found.items() if is_several(kind)}


def shop(make: Callable[[ik.Pipeline, Any, Any], Any]) -> Any:
    """What a call adds to a pipeline with two collections."""
    pipeline = ik.Pipeline("shop")
    columns = [ik.Column(name, "BIGINT") for name in ("a", "b", "ab")]
    left, right = (pipeline.topic(name, columns=columns).upsert() for name in ("l", "r"))
    made = make(pipeline, left, right)
    if isinstance(made, ik.Collection):
        made.to("out")
    plan = pipeline.plan()
    return plan.inputs, plan.operators


SELECT = {"n": "l.a"}
LEFT, RIGHT = ik.JoinInput("l", "l"), ik.JoinInput("r", "r")
PAIR = (LEFT, RIGHT)
# A text for the argument, and what a call with it makes.
CALLS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "AsOfJoin.on": ("l.a = r.a", lambda x: ik.AsOfJoin("j", *PAIR, x, ())),
    "AsOfJoin.locked_by": ("ab", lambda x: ik.AsOfJoin("j", *PAIR, (), (), locked_by=x)),
    "Collection.anti_join.on": (
        "l.a = r.a",
        lambda x: shop(lambda _, left, right: left.anti_join(right, on=x)),
    ),
    "Collection.as_of.on": (
        "left.a = right.a",
        lambda x: shop(lambda _, left, right: left.as_of(right, on=x, select={"n": "left.a"})),
    ),
    "Collection.as_of.locked_by": (
        "ab",
        lambda x: shop(
            lambda _, left, right: left.as_of(
                right,
                on="left.ab = right.ab",
                select={"ab": "left.ab"},
                retract="locked",
                locked_by=x,
            )
        ),
    ),
    "Collection.first.order": ("ab", lambda x: shop(lambda _, left, __: left.first(order=x))),
    "Collection.first.partition": (
        "ab",
        lambda x: shop(lambda _, left, __: left.first(order="a", partition=x)),
    ),
    "Collection.outer_join.on": (
        "l.a = r.a",
        lambda x: shop(lambda _, left, right: left.outer_join(right, on=x, select=SELECT)),
    ),
    "Collection.semi_join.on": (
        "l.a = r.a",
        lambda x: shop(lambda _, left, right: left.semi_join(right, on=x)),
    ),
    "Collection.sql.where": ("ab = 1", lambda x: shop(lambda _, left, __: left.sql(where=x))),
    "Collection.window.having": (
        "b > 1",
        lambda x: shop(lambda _, left, __: left.window(order="a", n="rank()", having=x)),
    ),
    "Collection.window.order": (
        "ab",
        lambda x: shop(lambda _, left, __: left.window(order=x, n="rank()")),
    ),
    "Collection.window.partition": (
        "ab",
        lambda x: shop(lambda _, left, __: left.window(order="a", n="rank()", partition=x)),
    ),
    "Concat.sources": ("ab", lambda x: ik.Concat("c", x)),
    "Concat.unique": ("ab", lambda x: ik.Concat("c", ("a", "b"), unique=x)),
    "Linear.unique": ("ab", lambda x: ik.Linear("l", "a", (), unique=x)),
    "DeltaJoin.where": ("l.a = r.a", lambda x: ik.DeltaJoin("j", PAIR, x, ())),
    "History.files": ("ab", lambda x: ik.History(x)),
    "History.key": ("ab", lambda x: ik.History(("f",), key=x)),
    "Input.topics": ("ab", lambda x: ik.Input("i", x)),
    "Input.key": ("ab", lambda x: ik.Input("i", ("t",), key=x)),
    "Input.unique": ("ab", lambda x: ik.Input("i", ("t",), unique=x)),
    "Pipeline.join.where": (
        "l.a = r.a",
        lambda x: shop(
            lambda p, left, right: p.join({"l": left, "r": right}, where=x, select=SELECT)
        ),
    ),
    "Pipeline.join.left": (
        "l.a = r.a",
        lambda x: shop(
            lambda p, left, right: p.join({"l": left, "r": right}, left={"r": x}, select=SELECT)
        ),
    ),
    "Pipeline.join.full": (
        "l.a = r.a",
        lambda x: shop(
            lambda p, left, right: p.join({"l": left, "r": right}, full={"r": x}, select=SELECT)
        ),
    ),
    "Pipeline.join.orders": (
        "rr",
        lambda x: shop(
            lambda p, left, right: p.join(
                {"l": left, "rr": right}, where="l.a = rr.a", orders={"l": x}, select=SELECT
            )
        ),
    ),
    "Pipeline.topic.key": (
        "ab",
        lambda x: shop(
            lambda p, _, __: p.topic(
                "t", format="maxwell", key=x, columns=[ik.Column("ab", "BIGINT")]
            ).upsert()
        ),
    ),
    "Pipeline.topic.unique": (
        "ab",
        lambda x: shop(
            lambda p, _, __: p.topic("t", unique=x, columns=[ik.Column("ab", "BIGINT")]).upsert()
        ),
    ),
    "Plan.backfills": ("ab", lambda x: ik.Plan("p", (), (), (), backfills=x)),
    "follow.topics": ("ab", lambda x: refused(lambda: ik.follow(x, format="nope"))),
    "steps.Sql.where": ("ab = 1", lambda x: ik.steps.Sql(where=x)),
    "steps.Arrange.keys": ("ab", lambda x: ik.steps.Arrange(x)),
}


def refused(call: Callable[[], Any]) -> str:
    """What a call is refused for."""
    with pytest.raises(ConfigError) as error:
        call()
    return str(error.value)


def test_all_arguments_of_the_api_that_take_several_texts_are_tried() -> None:
    """An argument that is new has to be tried as well, so none can forget that one is a name."""
    assert sorted(arguments()) == sorted(CALLS)


def test_arguments_of_functions_take_one_text_by_their_types() -> None:
    """A type checker takes a text for any sequence of texts, so it has to be one of its own.

    The fields of plan values are what they are kept as: a type checker refuses a text for them.
    """
    values = (
        *(
            "AsOfJoin.",
            "Concat.",
            "DeltaJoin.",
            "History.",
            "Input.",
            "Linear.",
            "Plan.",
            "steps.",
        ),
    )
    wrong = [name for name, kind in arguments().items() if not takes_one(kind)]

    assert [name for name in wrong if not name.startswith(values)] == []


@pytest.mark.parametrize("name", CALLS)
def test_one_text_is_one_name(name: str) -> None:
    """It means the same as a list, or a tuple, that has it alone."""
    text, call = CALLS[name]

    assert call(text) == call([text]) == call((text,))


def test_unique_columns_are_read_as_in_a_pipeline_file() -> None:
    """A list of columns is one key of them; several keys are several lists."""
    assert keys(["a", "b"], "unique") == (("a", "b"),)
    assert keys([["a", "b"], "c"], "unique") == (("a", "b"), ("c",))
    assert keys((), "unique") == ()


@pytest.mark.parametrize("strange", [5, [1], {"a": 1}, [["a"]], None, b"ab"])
def test_what_is_no_text_is_refused(strange: Any) -> None:
    """By the name of the argument, with what may stand there."""
    with pytest.raises(ConfigError, match=r"key must be a text, or a list of texts, not .*\nHint"):
        texts(strange, "key")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda p, x, y: x.semi_join(y, on="l.a = r.a", aliases="lr"), "aliases must be two"),
        (lambda p, x, y: x.sql(flat_map="ab"), "flat_map must be a tuple, not the text"),
        (lambda p, x, y: x.sql(select="ab"), "select must be a mapping of fields"),
        (lambda p, x, y: x.reduce(aggregates="ab"), "aggregates must be a mapping of fields"),
        (lambda p, x, y: p.topic("t", columns="ab"), "columns must be a tuple, not the text"),
    ],
)
def test_a_text_for_something_else_is_refused(make: Any, problem: str) -> None:
    """Two letters are no two aliases, and no column with its expression."""
    assert problem in refused(lambda: shop(make))


def test_keys_of_letters_are_no_key_of_a_name() -> None:
    """`key="ab"` is the column "ab", also if there are columns "a" and "b"."""

    def found(key: str | Sequence[str]) -> Any:
        pipeline = ik.Pipeline("shop")
        columns = [ik.Column(name, "BIGINT") for name in ("a", "b", "ab")]
        rows = pipeline.topic("t", format="debezium-json", key=key, columns=columns).upsert()
        rows.to("out")
        row = {"a": 1, "b": 2, "ab": 3}
        return pipeline.evaluate(t=[(None, {"before": None, "after": row, "op": "c"}, 0)])["out"]

    assert [update.data[0] for update in found("ab")] == [{"ab": 3}]
    assert [update.data[0] for update in found(["a", "b"])] == [{"a": 1, "b": 2}]
