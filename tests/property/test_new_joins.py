"""Joins added to a running pipeline of upserts, and what was there is given them in portions.

New changes come all the time, and what exchanges is read in portions as well, so that batches that
give a new join more of its past take turns with batches that do not.
"""

from collections import Counter
from collections.abc import Iterable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ikebana import Column, Input, Output, Plan, Reduce, Upsert
from ikebana.codecs import canonical
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.engine import replaying
from ikebana.processor.planning.joins.query import DeltaJoin, JoinInput
from ikebana.processor.planning.plan import TimeDomain
from ikebana.testing import Run, Topics
from support.strategies import few
from support.sums import summed

COLUMNS = {"o": ("id", "c", "n"), "c": ("id", "n")}
PAIR = (JoinInput("o", "o"), JoinInput("c", "c"))
FIRST = DeltaJoin("first", PAIR, ("o.c = c.id",), (("a", "o.n"), ("b", "c.n")), "o.id")
TOTALS = Reduce("totals", "new0", (("sum", "sum(b)"), ("count", "count(*)")), "a")
Rows = dict[int, dict[str, int]]


def plan_of(joins: list[DeltaJoin], time: TimeDomain, *, totals: bool, upserts: bool) -> Plan:
    """The first join and new ones, all shown, with a reduction of the first of these."""
    inputs = tuple(
        Input(f"{of}_in", (of,), columns=tuple(Column(name, "BIGINT") for name in names))
        for of, names in COLUMNS.items()
    )
    behind: list[DeltaJoin | Reduce] = [*joins, *([TOTALS] if totals else [])]
    outputs = [
        Output(o.name, o.name, o.name, format="upsert" if upserts and o is not FIRST else "diff")
        for o in (FIRST, *behind)
    ]
    kept = (Upsert("o", "o_in"), Upsert("c", "c_in"))
    return Plan("p", inputs, (*kept, FIRST, *behind), tuple(outputs), time=time)


@few
@given(
    st.integers(0, 1 << 32),
    st.sampled_from(["ingest", "offset"]),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
def test_new_joins_are_their_definition_whatever_comes_meanwhile(
    seed: int,
    time: TimeDomain,
    shards: int,
    totals: bool,  # noqa: FBT001
    upserts: bool,  # noqa: FBT001
) -> None:
    """R16. By either input first, one after the other, with a reduction behind."""
    # Choices of equal weight: drawn ones are mostly few batches, which meet nothing.
    choice = Random(seed)
    topics = Topics()
    for topic in COLUMNS:
        assert topics.messages[topic][0] == []
    run = Run(
        plan_of([], time, totals=False, upserts=upserts),
        topics,
        shards,
        choice.choice([1, 2, 1_000]),
    )
    state: dict[str, Rows] = {of: {} for of in COLUMNS}

    def change() -> None:
        of, key = choice.choice(["o", "o", "c"]), choice.randrange(6)
        row = {name: choice.randrange(6) for name in COLUMNS[of]} | {"id": key}
        state[of].pop(key, None)
        if choice.random() < 0.7:
            state[of][key] = row
        value = canonical.encode(row) if key in state[of] else None
        topics.send(of, canonical.encode(key), value)

    def go_on() -> None:
        for _ in range(choice.randrange(12)):
            for _ in range(choice.randrange(4)):
                change()
            run.batch(run.last.upper)

    replaying.PORTION, before = choice.choice([1, 2, 1_000]), replaying.PORTION
    try:
        go_on()
        joins: list[DeltaJoin] = []
        for number in range(choice.randint(1, 2)):
            run.read()
            inputs = PAIR if choice.random() < 0.5 else PAIR[::-1]
            where = ("o.c = c.id", "o.n > c.n")
            joins.append(DeltaJoin(f"new{number}", inputs, where, FIRST.select, "o.id"))
            run.restart(plan_of(joins, time, totals=totals, upserts=upserts))
            go_on()
        run.read()
    finally:
        replaying.PORTION = before
    # All is there and shown, though nothing else may have come.
    assert run.last.transition.joins == []

    pairs = [
        (key, order["n"], state["c"][order["c"]]["n"])
        for key, order in state["o"].items()
        if order["c"] in state["c"]
    ]
    assert shown(run.written.updates["first"]) == Counter(
        (k, (("a", a), ("b", b))) for k, a, b in pairs
    )
    passing = [(key, a, b) for key, a, b in pairs if a > b]
    for join in joins:
        expected = Counter((key, (("a", a), ("b", b))) for key, a, b in passing)
        assert shown(run.written.updates[join.name]) == expected
    if totals:
        groups = {a: [b for _, of, b in passing if of == a] for _, a, _ in passing}
        assert shown(run.written.updates["totals"]) == Counter(
            (a, (("count", len(own)), ("sum", sum(own)))) for a, own in groups.items()
        )


def shown(updates: Iterable[KeyedUpdate]) -> Counter[tuple[object, ...]]:
    """The rows that updates come to."""
    return summed(
        ((canonical.decode(key or b""), tuple(sorted(canonical.decode(value).items()))), diff)
        for key, value, _, diff in updates
    )
