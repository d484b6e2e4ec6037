"""A pipeline in Python and a pipeline file of the same parts make one plan."""

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st

import ikebana as ik
from ikebana.processor.authoring import pipeline

COLUMNS = {"a": "BIGINT", "b": "VARCHAR"}
WHOLE = {"a": '"a"', "b": '"b"'}
MODES = ("upsert", "diffs", "append")


@dataclass
class Drawn:
    """A pipeline twice: as it is built, and as a file has it; `names` are its collections."""

    built: ik.Pipeline
    file: dict[str, Any]
    collections: dict[str, ik.Collection[Any, Any]] = field(default_factory=dict)


# A step as a file has it: after each, the columns are a and b again.
_wheres = st.lists(st.sampled_from(["a > 1", "b IS NOT NULL"]), min_size=1, max_size=2)
_functions: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"map": "user_functions:as_it_is"},
        {"filter": "user_functions:is_even"},
        {"flat_map": "user_functions:twice"},
        {"explode": "user_functions:by_its_number"},
        {"join_function": "user_functions:from_its_number"},
        {"negate": True},
    ]
)
_sql: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"select": st.just(WHOLE)},
    optional={
        "where": _wheres,
        "key": st.sampled_from(["a", "{'x': b}"]),
        "diff": st.just("a"),
        "valid_from": st.just("a"),
        "valid_until": st.just("a + 1"),
    },
)


@st.composite
def pipelines(draw: st.DrawFn) -> Drawn:
    """One or two inputs, a few operators over anything before them, and some outputs."""
    drawn = Drawn(
        ik.Pipeline("p"),
        {"pipeline": "p", "inputs": {}, "operators": {}, "outputs": {}},
    )
    for number in range(draw(st.integers(1, 2))):
        _read(drawn, f"i{number}", draw(st.sampled_from(MODES)))
    for number in range(draw(st.integers(0, 4))):
        _operator(draw, drawn, f"o{number}")
    for number, name in enumerate(draw(st.permutations(sorted(drawn.collections)))[:2]):
        drawn.collections[name].to(f"t{number}", partitions=number + 1)
        drawn.file["outputs"][f"t{number}"] = {
            "from": name,
            "topic": f"t{number}",
            "partitions": number + 1,
        }
    return drawn


def _read(drawn: Drawn, name: str, mode: str) -> None:
    part: dict[str, Any] = {"topic": f"{name}.topic", "columns": COLUMNS}
    columns = [ik.Column(column, kind) for column, kind in COLUMNS.items()]
    form: Any = "debezium-json" if mode == "diffs" else "json"
    part["format"] = form
    topic = drawn.built.topic(
        f"{name}.topic", name=name, columns=columns, format=form, key=["a"] * (mode == "diffs")
    )
    if mode == "upsert":
        drawn.collections[f"u_{name}"] = topic.upsert(f"u_{name}")
        drawn.file["operators"][f"u_{name}"] = {"upsert": name}
    else:
        part["mode"] = mode
        if mode == "diffs":
            part["key"] = ["a"]
        drawn.collections[name] = topic.changes() if mode == "diffs" else topic.rows()
    drawn.file["inputs"][name] = part


def _operator(draw: st.DrawFn, drawn: Drawn, name: str) -> None:
    source = draw(st.sampled_from(sorted(drawn.collections)))
    other = draw(st.sampled_from(sorted(drawn.collections)))
    left, right = drawn.collections[source], drawn.collections[other]
    match draw(st.sampled_from(["linear", "linear", "concat", "reduce", "as_of", "join"])):
        case "linear":
            steps = draw(st.lists(_sql | _functions, min_size=1, max_size=3))
            drawn.file["operators"][name] = {"linear": source, "steps": steps}
            made = left
            for step in steps:
                made = _stepped(made, step)
            made = made.named(name)
        case "concat":
            drawn.file["operators"][name] = {"concat": [source, other]}
            made = drawn.built.concat(left, right, name=name)
        case "reduce":
            by = draw(st.none() | st.just("key::VARCHAR"))
            said = {"reduce": source, "aggregates": {"n": "count(*)"}}
            drawn.file["operators"][name] = said | ({} if by is None else {"by": by})
            made = left.reduce(by=by, name=name, n="count(*)")
        case "as_of":
            on, select = "x.key = y.key", {"k": "x.key"}
            drawn.file["operators"][name] = {
                "as_of_join": {"x": source, "y": other},
                "on": on,
                "select": select,
                "outer": True,
            }
            made = left.as_of(
                right, on=on, select=select, outer=True, aliases=("x", "y"), name=name
            )
        case _:
            where, select = ["x.key = y.key"], {"k": "x.key"}
            drawn.file["operators"][name] = {
                "delta_join": {"x": source, "y": other},
                "where": where,
                "select": select,
                "key": "y.key",
            }
            made = drawn.built.join(
                {"x": left, "y": right}, where=where, select=select, key="y.key", name=name
            )
    # So that all of it is made, whether an output shows it or not.
    drawn.collections[name] = ik.Collection(made.parts, made.built())


def _stepped(made: ik.Collection[Any, Any], step: dict[str, Any]) -> ik.Collection[Any, Any]:
    """The step by the method for it."""
    if "negate" in step:
        return -made
    if "select" not in step:
        ((kind, function),) = step.items()
        return getattr(made, kind)(function)  # type: ignore[no-any-return]
    rest = {name: part for name, part in step.items() if name not in ("where", "select")}
    if set(rest) <= {"key"}:
        chosen = made.where(*step["where"]) if "where" in step else made
        return chosen.select(**step["select"], **rest)
    return made.sql(**step)


def _outcome(make: Any) -> object:
    """The plan, or the problems that it has, without where they are."""
    try:
        return make()
    except ik.PlanError as error:
        return sorted(path for path, _ in error.problems)
    except ik.ConfigError as error:
        listed = str(error).splitlines()[1:]
        return sorted(line.partition(":")[0].strip() for line in listed)


@given(pipelines())
def test_file_and_builder_make_equal_plans(drawn: Drawn) -> None:
    """Or find fault with the same parts."""
    text = json.dumps(drawn.file)
    note(text)

    def read() -> ik.Plan:
        return pipeline.parse(
            text, "p.yaml", bootstrap_servers="b:1", checkpoint="c", environ={}
        ).plan

    built, found = _outcome(drawn.built.plan), _outcome(read)

    assert built == found
    if isinstance(built, ik.Plan) and isinstance(found, ik.Plan):
        assert built.fingerprint() == found.fingerprint()
