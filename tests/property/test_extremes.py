"""Values, diffs and times at the ends of what there is: rows or error records, and never a stop.

They go through every kind of operator and every format of outputs that an operator may have.
"""

import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ikebana import (
    AsOfJoin,
    Column,
    Concat,
    DeltaJoin,
    Input,
    JoinInput,
    Linear,
    Output,
    Plan,
    PlanError,
    Reduce,
    ReduceRows,
    StateMachine,
    Upsert,
    evaluate,
    steps,
)
from ikebana.arrangements.update import LARGEST
from ikebana.codecs import canonical
from ikebana.codecs.formats import OutputFormat
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import Operator
from support.strategies import unhurried

TYPES = {
    "i": "BIGINT",
    "d": "DOUBLE",
    "m": "DECIMAL(38,10)",
    "seen": "TIMESTAMP",
    "day": "DATE",
    "zoned": "TIMESTAMPTZ",
    "s": "VARCHAR",
    "l": "BIGINT[]",
    "j": "JSON",
}
COLUMNS = tuple(Column(name, kind) for name, kind in TYPES.items())
EDGES = [2**31, 2**53, 2**62, 2**63 - 1]
WHOLE = [0, 1, -1, *EDGES, *(-n for n in EDGES), -(2**63), 2**63]
LONG = "x" * 1_000_000
TEXTS: dict[str, list[str]] = {
    "i": [*map(str, WHOLE), "1.5", '"7"', '"x"'],
    "d": ["0", "-0.0", "1e308", "-1e308", "5e-324", "1e309", '"nan"', '"inf"', '"-Infinity"'],
    "m": ["9" * 28 + "." + "9" * 10, "-" + "9" * 28 + ".1", "1e-10", "1e-11", "9" * 38, "NaN"],
    "seen": [
        '"294247-01-10 04:00:54"',
        '"9999-12-31 23:59:59.999999"',
        '"infinity"',
        '"-infinity"',
    ],
    "day": ['"5881580-07-10"', '"0044-03-15 (BC)"', '"infinity"', '"2024-02-30"'],
    "zoned": ['"290308-12-21 (BC) 00:00:00+00"', '"2024-01-01T00:00:00-15:59"', '"infinity"'],
    "s": ['""', f'"{LONG}"', '"a\\u0000"', '"\\ud83d\\ude00"', '"\\ud800"', "[1e400]"],
    "l": ["[]", "[null]", f"[{2**63 - 1}]", f"[{2**63}]", "[[1]]", "5"],
    "j": ["[" * 90 + "]" * 90, "[" * 5_000 + "]" * 5_000, '{"":{"":0}}', "1e-999999999", "true"],
}
TIMES = [0, 1, 2**31, 2**53, 2**62, LARGEST - 1]
DIFFS = [1, -1, 2, 2**31, -(2**53), 2**62, LARGEST - 1, -LARGEST]
WRITTEN: list[OutputFormat] = ["diff", "cdcv2-json", "cdcv2-avro", "upsert", "debezium-json"]


@st.composite
def values(draw: st.DrawFn) -> bytes:
    """A row with a few columns, most of them at an end of its type."""
    names = draw(st.lists(st.sampled_from(list(TYPES)), max_size=3, unique=True))
    fields = [f'"{name}":{draw(st.sampled_from(["null", *TEXTS[name]]))}' for name in names]
    return f"{{{','.join(fields)}}}".encode()


def step(state: Any, key: Any, event: Any, time: int) -> Any:
    """The sum of what has come, as a float at times."""
    return (state or 0) + (event.get("i") or event.get("d") or 0) * 2


def rows(key: Any, found: list[tuple[Any, int]]) -> list[Any]:
    """All that there is, and how often."""
    return [{"rows": len(found), "times": sum(count for _, count in found)}]


def both(name: str, *, as_of: bool) -> Operator:
    left, right = JoinInput("l", "d"), JoinInput("r", "u")
    selected = (("i", "l.i"), ("s", "r.s"))
    if as_of:
        return AsOfJoin(name, left, right, ("l.i = r.i",), selected)
    return DeltaJoin(name, (left, right), ("l.i = r.i",), selected)


ALL = {name: name for name in TYPES}
LINEAR: dict[str, tuple[Any, ...]] = {
    "select": (steps.select(ALL),),
    "sums": (steps.select(i="i + 1", d="d * 1e300", m="m * 10", seen="seen + INTERVAL 1 YEAR"),),
    "casts": (steps.select(i="i::DOUBLE", d="d::BIGINT", m="m::DOUBLE", s="s::BIGINT"),),
    "texts": (steps.select(s="s || s", n="length(s)", day="day::VARCHAR", e="epoch_ms(seen)"),),
    "where": (steps.where("i > 0 AND 10 // i > 2"),),
    "key": (steps.rekey("s"),),
    "number as key": (steps.rekey("d"),),
    "flat_map": (steps.Sql(flat_map=("e", "l")),),
    "repeated": (steps.Sql(flat_map=("e", "repeat_row(i)")),),
    "diff": (steps.Sql(diff="i"),),
    "bounds": (steps.valid_between("i", "i + 1"),),
    "dates": (steps.valid_between("seen", "day"),),
    "negate": (steps.negate(),),
    "map": (steps.map_(lambda data: (data[0], {"x": [data[1]]})),),
    "float": (steps.map_(lambda data: (data[0], float(data[1].get("i") or 0) ** 40)),),
    "explode": (steps.explode(lambda data: [(data, data[1].get("i") or 1)]),),
    "join_function": (steps.join_function(lambda data: [(data, data[1].get("i"), 3)]),),
    "nested": (steps.map_(lambda data: (data[0], _deep(2_000))),),
}
AGGREGATES = (
    ("n", "count(*)"),
    ("i", "sum(i)"),
    ("m", "sum(m)"),
    ("d", "avg(d)"),
    ("seen", "min(seen)"),
    ("day", "max(day)"),
    ("zoned", "top(3, zoned)"),
    ("s", "top(3, s)"),
    ("l", "max(l)"),
    ("j", "distinct(j)"),
)
OPERATORS: dict[str, Operator] = {
    **{name: Linear("o", source, of) for name, of in LINEAR.items() for source in ("d",)},
    "select of an upsert": Linear("o", "u", LINEAR["select"]),
    "reduce": Reduce("o", "d", AGGREGATES, by="i"),
    "reduce of an upsert": Reduce("o", "u", AGGREGATES),
    "reduce by a text": Reduce("o", "d", AGGREGATES, by="s"),
    "function": ReduceRows("o", "d", function=rows, by="i"),
    "delta_join": both("o", as_of=False),
    "as_of_join": both("o", as_of=True),
    "concat": Concat("o", ("d", "u", "a", "c")),
    "state_machine": StateMachine("o", "e", step),
}


def _deep(depth: int) -> Any:
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


@functools.cache
def plans_of(name: str) -> tuple[Plan, ...]:
    """A plan of one operator in each format that it may have."""
    inputs = (
        Input("d", ("d",), "diff", columns=COLUMNS),
        Input("up", ("up",), columns=COLUMNS),
        Input("a", ("a",), mode="append", columns=COLUMNS),
        Input("c", ("c",), "debezium-json", mode="diffs", columns=COLUMNS),
        Input("e", ("e",), columns=COLUMNS),
    )
    found = []
    for format_ in WRITTEN:
        output = Output("out", "o", "out", format_)
        try:
            plan = checked(Plan("p", inputs, (Upsert("u", "up"), OPERATORS[name]), (output,)))
        except PlanError:
            if format_ == "diff":
                raise
            continue
        found.append(plan)
    return tuple(found)


times = st.sampled_from(TIMES)
keys = st.sampled_from([b"1", b'"x"', b"1e400", b"[" * 3_000, b'""', str(2**70).encode()])
plain = st.lists(
    st.tuples(keys, st.one_of(st.none(), values(), st.just(b"[1e999]")), times), max_size=3
)
signed = st.lists(st.tuples(keys, values(), times, st.sampled_from(DIFFS)), max_size=4)
changes = st.lists(
    st.builds(
        lambda value, time: (b"1", b'{"op":"c","before":null,"after":%b}' % value, time),
        values(),
        times,
    ),
    max_size=2,
)


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_is_written_in_some_format(name: str) -> None:
    """At least as the updates that come out; else nothing would be tried here."""
    assert plans_of(name)[0].outputs[0].format == "diff"


@pytest.mark.parametrize("name", OPERATORS)
@settings(unhurried, max_examples=max(3, settings().max_examples // 33))
@given(st.data(), signed, plain, plain, changes)
def test_whatever_comes_is_rows_or_error_records(
    name: str, data: st.DataObject, diffs: Any, upserts: Any, events: Any, changed: Any
) -> None:
    """Each of them with a time and a diff that can be stored, and data that can be read again."""
    plan = data.draw(st.sampled_from(plans_of(name)))
    evaluation = Evaluation(plan)
    given_ = {"d": diffs, "up": upserts, "a": upserts, "e": events, "c": changed}

    found = evaluation.advance(given_, LARGEST)
    rest = evaluation.finish()

    for updates in (*found.values(), *rest.values()):
        for update in updates:
            assert 0 <= update.time <= LARGEST
            assert update.diff
    for message in evaluation.messages["out"]:
        if message.value is not None and plan.outputs[0].format != "cdcv2-avro":
            canonical.decode(message.value)
    assert evaluate(plan, given_).keys() == found.keys()
