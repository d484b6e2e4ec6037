"""The laws of linear operators, on random updates and random chains of SQL and Python.

Outputs and errors both obey them, as sums of diffs by (data, time).
"""

import functools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import user_functions
from ikebana import Input, Linear, Output, Plan, Upsert
from ikebana.arrangements.update import Update, consolidate
from ikebana.codecs import canonical
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.linear.chain import Chain, Named, chain, consolidated
from ikebana.processor.linear.scope import KEY, VALUE, Scope, frozen
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
    valid_between,
    where,
)
from support.strategies import cuts, unhurried

OPEN = Scope({KEY: "JSON", VALUE: "JSON"}, open=True)
N = "n::BIGINT"

# Each fails on some data; none needs a column that only the step before it has.
SQL: list[Step] = [
    where(f"{N} > 0"),
    where(f"{N} <> 0 AND 10 // {N} > 2"),
    where(f"10 // {N} > 2"),
    select(n=f"{N} - 1", l="l"),
    select(n=f"6 // {N}", l="l"),
    select(n=f"{N} / 2", l="l"),
    project("n", "l"),
    rekey("n"),
    rekey(f"[key, {N}]"),
    Sql(flat_map=("e", "l::BIGINT[]"), select=(("n", "e"), ("l", "l"))),
    Sql(flat_map=("n", "l"), where=(f"12 // {N} < 12",)),
    Sql(flat_map=("e", f"repeat_row({N})")),
    Sql(diff=f"{N} - 1"),
    Sql(key=f"4 // {N}", diff="2", select=(("n", f"{N} + 1"), ("l", "[key, n]"))),
    valid_between(N, f"{N} + 3"),
    valid_between(None, f"{N} * 2"),
    negate(),
]
PYTHON: list[Step] = [
    map_(user_functions.as_it_is),
    map_(user_functions.doubled),
    map_(user_functions.inverse),
    map_("user_functions:swapped"),
    map_(user_functions.spoils_what_it_gets),
    filter_(user_functions.is_even),
    flat_map(user_functions.down_to_one),
    flat_map("user_functions:twice"),
    explode(user_functions.by_its_number),
    join_function(user_functions.from_its_number),
]


def named(steps: Sequence[Step]) -> tuple[Named, ...]:
    return tuple((f"step{at}", step) for at, step in enumerate(steps))


chains = st.one_of(
    st.lists(st.sampled_from(SQL), min_size=1, max_size=4),
    st.lists(st.sampled_from(PYTHON), min_size=1, max_size=4),
    st.lists(st.sampled_from(SQL + PYTHON), min_size=1, max_size=5),
).map(named)

numbers = st.one_of(st.integers(-2, 6), st.sampled_from([None, "z", 2.5, 3.0]))
values: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries({"n": numbers, "l": st.lists(numbers, max_size=3)}),
    st.fixed_dictionaries({"n": numbers}),
    st.sampled_from([None, [], {"l": "z"}]),
)
updates = st.lists(
    st.builds(
        lambda key, value, time, diff: KeyedUpdate(_json(key), _json(value), time, diff),
        st.sampled_from([1, "k"]),
        values,
        st.integers(0, 8),
        st.sampled_from([-2, -1, 1, 1, 3]),
    ),
    max_size=12,
)


def _json(data: Any) -> bytes:
    return canonical.encode(data)


Outcome = tuple[list[KeyedUpdate], list[KeyedUpdate]]


def as_sum(found: Iterable[KeyedUpdate]) -> list[KeyedUpdate]:
    return sorted(consolidated(found), key=repr)


def applied(steps: tuple[Named, ...], given: Iterable[KeyedUpdate]) -> Outcome:
    passed = chain(steps, frozen(OPEN)).apply(list(given))
    return as_sum(passed.updates), as_sum(passed.errors)


def negated(found: Iterable[KeyedUpdate]) -> list[KeyedUpdate]:
    return [update._replace(diff=-update.diff) for update in found]


@unhurried
@given(chains, updates, updates)
def test_chains_are_linear(
    steps: tuple[Named, ...], one: list[KeyedUpdate], other: list[KeyedUpdate]
) -> None:
    """OP(x + y) = OP(x) + OP(y), and OP(-x) = -OP(x); so are the errors."""
    alone, beside = applied(steps, one), applied(steps, other)

    assert applied(steps, one + other) == tuple(
        as_sum(a + b) for a, b in zip(alone, beside, strict=True)
    )
    assert applied(steps, negated(one)) == tuple(as_sum(negated(found)) for found in alone)


@unhurried
@given(chains, updates)
def test_a_chain_is_its_steps_one_after_the_other(
    steps: tuple[Named, ...], given: list[KeyedUpdate]
) -> None:
    """Each on what the one before it has made, consolidated; the errors are those of all.

    A column that a flat_map makes is left out: SQL behind it in the operator may name it.
    """
    scope, between, errors = OPEN, list(given), list[KeyedUpdate]()
    for step in steps:
        alone = Chain((step,), scope)
        passed = alone.apply(between)
        scope, between = alone.scope, consolidated(passed.updates)
        errors += passed.errors

    assert applied(steps, given) == (as_sum(between), as_sum(errors))


def test_a_key_condition_behind_another_hides_none_of_its_errors() -> None:
    """A row that it drops may have failed before."""
    steps = (where(f"10 // {N} > 2"), where("key->>'id' <> '2'"))
    records = [({"id": 2}, {"n": 0}, 0)]

    found = [outcome(plan_of(PLAIN, steps), [(records, 9)], optimized=on) for on in (True, False)]

    assert found[0] == found[1]
    assert len(found[0]["errors"]) == 1


# Columns without declarations, so that a plan may stand whatever its steps name.
PLAIN = Input("rows", ("rows",))
CDC = Input("rows", ("rows",), value_format="debezium-json")
DIFFS = Input("rows", ("rows",), value_format="debezium-json", mode="diffs")


@functools.lru_cache(maxsize=64)
def plan_of(source: Input, *branches: tuple[Step, ...]) -> Plan:
    """A plan of linear operators in a row, each with an output, over one input."""
    root = "rows" if source.mode == "diffs" else "current"
    linears = tuple(Linear(f"step{at}", root, steps) for at, steps in enumerate(branches))
    return Plan(
        "laws",
        (source,),
        (*(() if source.mode == "diffs" else (Upsert("current", "rows"),)), *linears),
        tuple(Output(f"out{at}", f"step{at}", f"out{at}") for at in range(len(branches))),
    )


KEY_CONDITIONS = [where("key->>'id' <> '2'"), where("10 // (key->>'id')::BIGINT > 4")]
few_steps = st.lists(st.sampled_from(KEY_CONDITIONS + SQL + PYTHON), min_size=1, max_size=4)
Records = list[tuple[Any, Any, int]]


def envelope(key: Any, before: Any, after: Any, time: int) -> tuple[Any, Any, int]:
    kind = "u" if before and after else "c" if after else "d"
    source = {"db": "d", "table": "t"}
    return key, {"before": before, "after": after, "op": kind, "source": source}, time


@st.composite
def histories(draw: st.DrawFn, *, cdc: bool) -> Records:
    """Records of few keys in order of time: as they are, or with envelopes around them."""
    current: dict[int, Any] = {}
    records: Records = []
    time = 0
    for _ in range(draw(st.integers(0, 10))):
        time += draw(st.integers(0, 2))
        number = draw(st.integers(0, 3))
        key = {"id": number}
        row = draw(st.one_of(st.none(), values.filter(lambda v: isinstance(v, dict))))
        if not cdc:
            records.append((key, draw(st.sampled_from([row, row, b"{"])), time))
            continue
        after = None if row is None else {"id": number, "n": None, "l": None, **row}
        before = current.get(number)
        if before is not None or after is not None:
            records.append(envelope(key, before, after, time))
        current[number] = after
    return records


def outcome(
    plan: Plan, batches: Iterable[tuple[Records, int]], *, optimized: bool = True
) -> dict[str, list[Update[Any]]]:
    """All that the outputs have in the end, consolidated."""
    evaluation = Evaluation(plan, optimized=optimized)
    found: dict[str, list[Update[Any]]] = {output.name: [] for output in plan.published}
    for records, upper in [*batches, ([], 1_000)]:
        for name, some in evaluation.advance({"rows": records}, upper).items():
            found[name] += some
    assert evaluation.pending() == []
    return {
        name: sorted(
            consolidate(
                Update(json.dumps(data, sort_keys=True), time, diff) for data, time, diff in all_
            )
        )
        for name, all_ in found.items()
    }


@unhurried
@given(st.data(), few_steps)
def test_the_cut_into_batches_changes_nothing(data: st.DataObject, steps: list[Step]) -> None:
    """Any batches with any frontiers between them give what one batch of all gives."""
    source = data.draw(st.sampled_from([PLAIN, CDC, DIFFS]))
    records = data.draw(histories(cdc=source is not PLAIN))
    plan = plan_of(source, tuple(steps))
    batches: list[tuple[Records, int]] = []
    upper = 0
    for piece in data.draw(cuts(records)):
        last = max([upper, *(time for _, _, time in piece)])
        later = [time for _, _, time in records[sum(len(b) for b, _ in batches) + len(piece) :]]
        upper = data.draw(st.integers(upper, min([last + 1, *later])))
        batches.append((list(piece), upper))

    assert outcome(plan, batches) == outcome(plan, [(records, 100)])


@unhurried
@given(st.data(), st.lists(few_steps.map(tuple), min_size=1, max_size=2))
def test_pushing_down_changes_no_output(
    data: st.DataObject, branches: list[tuple[Step, ...]]
) -> None:
    """Outputs are the same with everything pushed into decoding, and with nothing.

    So are the errors, if all messages can be decoded.
    """
    source = data.draw(st.sampled_from([PLAIN, CDC, DIFFS]))
    records = data.draw(histories(cdc=source is not PLAIN))
    plan = plan_of(source, *branches)

    pushed = outcome(plan, [(records, 100)])
    plain = outcome(plan, [(records, 100)], optimized=False)

    for output in plan.outputs:
        assert pushed[output.name] == plain[output.name]
    if not any(isinstance(value, bytes) for _, value, _ in records):
        assert pushed["errors"] == plain["errors"]
