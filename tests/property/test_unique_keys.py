"""Unique keys that the planner derives hold at every time; outputs of one row a key are exact."""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st

from ikebana import Output, Plan, evaluate
from ikebana.codecs import canonical
from ikebana.codecs.formats import OUTPUT_FORMATS, OutputFormat
from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.linear.scope import KEY, VALUE
from ikebana.processor.planning import outputs
from ikebana.processor.planning.catalog import catalog_of
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.relations import ColumnSet
from ikebana.testing import Run
from support.keyed_queries import TABLES, KeyedDrawing, keyed_history
from support.sql_oracle import plan_of, records_of

TIMES = 4
randoms = st.randoms(use_true_random=False)


def drawn(choice: Random, *, picks: bool = False) -> Plan:
    """A plan with a view; if it `picks` its key, that is one of its columns."""
    while True:
        query, columns = KeyedDrawing(choice).query()
        key = choice.choice([*columns]) if picks else None
        try:
            plan = plan_of(TABLES, {"view": query}, key)
        except SqlQueryError:
            # Such as a comparison of JSON without a cast.
            continue
        note(f"{query}, key: {key}")
        return plan


def shown(plan: Plan, names: list[str]) -> Plan:
    """The plan with outputs of these operators alone."""
    outputs = (Output(f"o{at}", name, f"o{at}") for at, name in enumerate(names))
    return checked(replace(plan, outputs=tuple(outputs)))


def contents(updates: Any, time: int) -> list[tuple[dict[str, bytes], int]]:
    """The rows at a time, by columns with the key among them, with their counts."""
    found: Counter[bytes] = Counter()
    for (key, value), at, diff in updates:
        if at <= time:
            row = {KEY: key, VALUE: value, **(value if isinstance(value, dict) else {})}
            found[canonical.encode({n: canonical.encode(v).decode() for n, v in row.items()})] += (
                diff
            )
    return [(canonical.decode(row), count) for row, count in found.items() if count]


def agree(
    rows: list[tuple[dict[str, bytes], int]], columns: ColumnSet
) -> Counter[tuple[Any, ...]]:
    """How often each value of columns is there."""
    return Counter(tuple(row.get(name) for name in sorted(columns)) for row, _ in rows)


@given(randoms)
def test_what_is_unique_by_the_plan_is_unique_at_every_time(choice: Random) -> None:
    """No two rows agree in a unique key, and each counts once; dependencies hold.

    Every operator of the plan is looked at, those that others are made of as well.
    """
    plan = drawn(choice)
    known = {o.name: catalog_of(plan).keyed(o.name) for o in plan.operators}
    told = [name for name, of in known.items() if of.keys.unique or of.keys.determines]
    changes = keyed_history(choice, TIMES)

    found = evaluate(shown(plan, told), records_of(changes), TIMES, shards=2)

    for at, name in enumerate(told):
        keys, columns = known[name].keys, {*known[name].types}
        for time in range(TIMES):
            rows = contents(found[f"o{at}"], time)
            for unique in keys.unique:
                assert all(count == 1 for _, count in rows), (name, rows)
                assert set(agree(rows, unique).values()) <= {1}, (name, unique, rows)
            for given_, others in keys.determines:
                if given_ <= columns:
                    both = agree(rows, given_ | (others & columns))
                    several = {tuple(each) for each in both}
                    assert len(several) == len(agree(rows, given_)), (name, given_, others, rows)


def read_back(messages: Any, output_format: OutputFormat) -> Counter[tuple[Any, Any]]:
    """The collection that the messages of a topic come to."""
    codec = OUTPUT_FORMATS[output_format].codec
    assert codec is not None
    read = codec().reader()
    found: Counter[tuple[Any, Any]] = Counter()
    for message in messages:
        for value, count in read(message.key, message.value):
            found[message.key, value] += count
    return +found


@given(
    choice=randoms, output_format=st.sampled_from(["upsert", "debezium-json"]), picks=st.booleans()
)
def test_an_output_of_one_row_a_key_is_its_collection(
    choice: Random, output_format: OutputFormat, *, picks: bool
) -> None:
    """Read back after every batch, restarts and deaths among them, wherever keys have one row.

    That holds for a key that is derived, for one that is picked, and for one that is watched.
    """
    made = drawn(choice, picks=picks)
    output = replace(made.outputs[0], format=output_format)
    plan = checked(replace(made, outputs=(output, Output("all", "view", "all"))))
    run = Run(plan, shards=2)
    history = keyed_history(choice, TIMES)
    for time in range(TIMES):
        for name, changes in history.items():
            for own, row, at in changes:
                if at == time:
                    run.send(name, own, row)
        if choice.random() < 0.3:
            run.crash(committed=choice.sample(range(2), choice.randint(0, 2)))
        if choice.random() < 0.3:
            run.restart()
        run.read(limit=choice.choice([None, 2]))

        rows = Counter(
            (canonical.encode(k), canonical.encode(v)) for k, v in run.collection("all")
        )
        several = {k for k, n in Counter(k for k, _ in rows.elements()).items() if n > 1}
        told = {error["reason"] for error in run.errors()}
        if output_format == "upsert":
            rows = Counter({row: n for row, n in rows.items() if row[0] not in several})
            held = read_back(run.messages("view"), output_format)
            held = Counter({row: n for row, n in held.items() if row[0] not in several})
            assert held == rows
        else:
            assert read_back(run.messages("view"), output_format) == rows
        assert bool(told) == bool(several)
        assert not several or outputs.promise(plan, output) != "upserts"
