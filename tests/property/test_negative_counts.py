"""Operators over collections whose counts may be below zero, as plain computations of every time.

Such collections are `diffs` whose retractions come first, and what `negate` and as-of joins give.
A row is there as often as its count says; where SQL asks whether there is one, a count below
zero is none.  When counts are right again, so is all that was made of them.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import Column, Concat, Input, Linear, Output, Plan, steps
from ikebana.codecs import canonical, diff
from ikebana.codecs.diff import ProgressRecord
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.plan import Operator
from ikebana.processor.relational.making import KnownRelations
from ikebana.processor.relational.sql import sql_operators
from ikebana.processor.topics.batch_selection import ClosedProgress
from ikebana.testing import Run, Topics
from support.strategies import few
from support.sums import summed

END = 5
COLUMNS = (Column("a", "BIGINT"), Column("b", "BIGINT"))
INPUTS = tuple(Input(name, (name,), "diff", mode="diffs", columns=COLUMNS) for name in ("d", "e"))
# `less` is what `negate` makes of a collection, and `both` what comes of taking one from another.
MADE: tuple[Operator, ...] = (
    Linear("less", "e", (steps.negate(),)),
    Concat("rest", ("d", "less")),
)

Row = tuple[Any, ...]
Rows = Counter[Row]


def there(count: int) -> int:
    """How often a row is there."""
    return max(count, 0)


def distinct(rows: Rows) -> Rows:
    return Counter({row: 1 for row, count in rows.items() if count > 0})


def groups(rows: Rows) -> dict[Any, Rows]:
    """Rows by their first column."""
    found: dict[Any, Rows] = {}
    for row, count in rows.items():
        found.setdefault(row[0], Counter())[row] = count
    return found


def counted(rows: Rows) -> Row:
    """What aggregates of b come to."""
    values = summed(((b,), n) for (_, b), n in rows.items() if b is not None)
    held = [b for (b,), n in values.items() if n > 0]
    total, added = sum(b * n for (b,), n in values.items()), sum(values.values())
    return (
        sum(rows.values()),
        added,
        total if added or total else None,
        min(held, default=None),
        max(held, default=None),
        len(held),
    )


def by_a(rows: Rows) -> Rows:
    """GROUP BY a: a group is there as long as its rows come to more than nothing does."""
    found: Rows = Counter()
    for a, own in groups(rows).items():
        if (results := counted(own)) != counted(Counter()):
            found[a, *results] = 1
    return found


def first(rows: Rows) -> Rows:
    """The two least of each group; nulls come last."""
    found: Rows = Counter()
    for own in groups(rows).values():
        in_order = sorted(own, key=lambda row: (row[1] is None, row[1] or 0))
        left = 2
        for row in in_order:
            if taken := min(left, there(own[row])):
                found[row] = taken
                left -= taken
    return found


def combined(
    left: Rows, right: Rows, met: Callable[[Row, Row], bool]
) -> list[tuple[Row, Row, int]]:
    """The nested loop."""
    return [
        (one, other, n * m)
        for one, n in left.items()
        for other, m in right.items()
        if met(one, other)
    ]


def equal(one: Row, other: Row) -> bool:
    return one[0] is not None and one[0] == other[0]


def less(one: Row, other: Row) -> bool:
    return None not in (one[1], other[1]) and bool(one[1] < other[1])


def both(one: Row, other: Row) -> bool:
    return equal(one, other) and less(one, other)


def meets(row: Row, right: Rows, met: Callable[[Row, Row], bool]) -> bool:
    """Whether there is a row of the right: counts of those that would do are added.

    By equalities alone, keys of the right are looked up, which are there if they count more than
    nothing; otherwise matches are, whose sign is that of both.
    """
    count = sum(count for other, count in right.items() if met(row, other))
    return count > 0 or (met is not equal and count != 0)


def semi(met: Callable[[Row, Row], bool], *, anti: bool = False) -> "Definition":
    """Rows with, or without, a row of the right: counts of those that would do are added."""

    def is_met(row: Row, right: Rows) -> bool:
        return sum(count for other, count in right.items() if met(row, other)) > 0

    def means(left: Rows, right: Rows) -> Rows:
        return summed((row, count) for row, count in left.items() if is_met(row, right) != anti)

    return means


def outer(met: Callable[[Row, Row], bool], *, full: bool = False) -> "Definition":
    def means(left: Rows, right: Rows) -> Rows:
        found = [((*one, other[1]), n) for one, other, n in combined(left, right, met)]
        found += [((*row, None), n) for row, n in left.items() if not meets(row, right, met)]
        if full:
            found += [
                ((None, None, row[1]), n) for row, n in right.items() if not meets(row, left, met)
            ]
        return summed(found)

    return means


def each(take: Callable[[int, int], int]) -> "Definition":
    """Of how often a row is there in both."""

    def means(left: Rows, right: Rows) -> Rows:
        rows = left.keys() | right.keys()
        return summed((row, take(there(left[row]), there(right[row]))) for row in rows)

    return means


def sessions(rows: Rows) -> Rows:
    """Rows with the sessions of their group; a pause is two seconds long."""
    found: list[tuple[Row, int]] = []
    for own in groups(rows).values():
        times = sorted(b for (_, b), n in own.items() if b is not None and n > 0)
        firsts = [b for b in times if b - 1 not in times]
        lasts = [b for b in times if b + 1 not in times]
        found += [
            ((*row, first, last + 2), n)
            for row, n in own.items()
            for first, last in zip(firsts, lasts, strict=True)
            if row[1] is not None and first <= row[1] <= last
        ]
    return summed(found)


Definition = Callable[[Rows, Rows], Rows]
ALL = (
    "count(*) AS c0, count(b) AS c1, sum(b) AS c2, min(b) AS c3, max(b) AS c4, "
    "count(DISTINCT b) AS c5"
)
QUERIES: dict[str, tuple[str, Definition]] = {
    "where": (
        "SELECT a, b FROM x WHERE a > 0",
        lambda x, _: Counter(
            {row: n for row, n in x.items() if row[0] is not None and row[0] > 0}
        ),
    ),
    "select": ("SELECT a FROM x", lambda x, _: summed(((a,), n) for (a, _), n in x.items())),
    "distinct": ("SELECT DISTINCT a, b FROM x", lambda x, _: distinct(x)),
    "union all": (
        "SELECT a, b FROM x UNION ALL SELECT a, b FROM y",
        lambda x, y: summed([*x.items(), *y.items()]),
    ),
    "union": (
        "SELECT a, b FROM x UNION SELECT a, b FROM y",
        lambda x, y: distinct(summed([*x.items(), *y.items()])),
    ),
    "except": (
        "SELECT a, b FROM x EXCEPT SELECT a, b FROM y",
        each(lambda n, m: n > 0 and m == 0),
    ),
    "except all": (
        "SELECT a, b FROM x EXCEPT ALL SELECT a, b FROM y",
        each(lambda n, m: max(n - m, 0)),
    ),
    "intersect": (
        "SELECT a, b FROM x INTERSECT SELECT a, b FROM y",
        each(lambda n, m: n > 0 and m > 0),
    ),
    "intersect all": ("SELECT a, b FROM x INTERSECT ALL SELECT a, b FROM y", each(min)),
    "group by": (
        f"SELECT a, {ALL} FROM x GROUP BY a",
        lambda x, _: by_a(x),
    ),
    "total": (
        f"SELECT {ALL} FROM x",
        lambda x, _: Counter({counted(x): 1}),
    ),
    "having": (
        "SELECT a, sum(b) AS s FROM x GROUP BY a HAVING count(*) > 1",
        lambda x, _: Counter({(row[0], row[3]): 1 for row in by_a(x) if row[1] > 1}),
    ),
    "first": (
        "SELECT a, b FROM x QUALIFY row_number() OVER (PARTITION BY a ORDER BY b) <= 2",
        lambda x, _: first(x),
    ),
    "session": (
        "SELECT a, b, epoch(window_start)::BIGINT AS s, epoch(window_end)::BIGINT AS t "
        "FROM session(x, t, INTERVAL '2 seconds', a)",
        lambda x, _: sessions(x),
    ),
    "join": (
        "SELECT x.a, x.b, y.b AS c FROM x JOIN y ON x.a = y.a",
        lambda x, y: summed(((*one, other[1]), n) for one, other, n in combined(x, y, equal)),
    ),
    "exists": (
        "SELECT a, b FROM x WHERE EXISTS (SELECT 1 FROM y WHERE y.a = x.a)",
        semi(equal),
    ),
    "not exists": (
        "SELECT a, b FROM x WHERE NOT EXISTS (SELECT 1 FROM y WHERE y.a = x.a)",
        semi(equal, anti=True),
    ),
    "exists less": (
        "SELECT a, b FROM x WHERE EXISTS (SELECT 1 FROM y WHERE y.a = x.a AND x.b < y.b)",
        semi(both),
    ),
    "not exists less": (
        "SELECT a, b FROM x WHERE NOT EXISTS (SELECT 1 FROM y WHERE y.a = x.a AND x.b < y.b)",
        semi(both, anti=True),
    ),
    "left join": (
        "SELECT x.a, x.b, y.b AS c FROM x LEFT JOIN y ON x.a = y.a",
        outer(equal),
    ),
    "left join less": (
        "SELECT x.a, x.b, y.b AS c FROM x LEFT JOIN y ON x.a = y.a AND x.b < y.b",
        outer(both),
    ),
    "full join": (
        "SELECT x.a, x.b, y.b AS c FROM x FULL JOIN y ON x.a = y.a",
        outer(equal, full=True),
    ),
}


class View(NamedTuple):
    """A query over two collections, and what it means."""

    query: str
    x: str
    y: str

    def plan(self) -> Plan:
        made = list(MADE)
        timed = "SELECT a, b, make_timestamp(b * 1000000) AS t FROM"
        texts = (("x", f"{timed} {self.x}"), ("y", f"{timed} {self.y}"))
        for name, text in (*texts, ("view", QUERIES[self.query][0])):
            made += sql_operators(name, text, KnownRelations(INPUTS, made))
        return checked(Plan("p", INPUTS, tuple(made), (Output("out", "view", "out"),)))


collections = st.sampled_from(["d", "e", "less", "rest"])
views = st.builds(View, st.sampled_from(list(QUERIES)), collections, collections)
number = st.sampled_from([0, 0, 1, 3, None])
Change = tuple[str, Row, int, int]
changed = st.lists(
    st.tuples(
        st.sampled_from(["d", "e"]),
        st.tuples(number, number),
        st.integers(0, END - 1),
        st.sampled_from([1, 1, -1, -1, 2, -2]),
    ),
    max_size=8,
)


def send(topics: Topics, name: str, changes: Sequence[Change], lower: int, upper: int) -> None:
    """A batch of the pipeline that writes a collection."""
    new = [change for change in changes if change[0] == name and lower <= change[2] < upper]
    for _, (a, b), time, count in new:
        topics.send(
            name, None, json.dumps({"a": a, "b": b}).encode(), headers=diff.headers(time, count)
        )
    closed, ends = topics.closed[name], topics.ends(name)
    at = len(closed)
    record = ProgressRecord("c", name, name, at, lower, upper, len(new), ends, "changes")
    closed.append(ClosedProgress(record, at + 1))


def played(plan: Plan, changes: Sequence[Change], choice: Random, shards: int) -> Run:
    """All changes, in batches of any size."""
    topics = Topics()
    reached = dict.fromkeys(("d", "e"), 0)
    for name in reached:
        assert topics.messages[name][0] == []
    run = Run(plan, topics, shards, exchange=choice.choice([1, 2, 1_000]))
    while min(reached.values()) < END:
        name = choice.choice([name for name, at in reached.items() if at < END])
        upper = choice.randrange(reached[name], END) + 1
        send(topics, name, changes, reached[name], upper)
        reached[name] = upper
        while choice.random() < 0.5 and run.batch():
            pass
    run.read()
    return run


def held(changes: Sequence[Change], time: int) -> dict[str, Rows]:
    """What the collections are at a time."""
    found = {
        name: summed((row, n) for of, row, at, n in changes if of == name and at <= time)
        for name in ("d", "e")
    }
    found["less"] = Counter({row: -n for row, n in found["e"].items()})
    found["rest"] = summed([*found["d"].items(), *found["less"].items()])
    return found


def shown(updates: Iterable[KeyedUpdate], time: int) -> Rows:
    return summed(
        (tuple(canonical.decode(u.value).values()), u.diff) for u in updates if u.time <= time
    )


def assert_defined(view: View, changes: Sequence[Change], choice: Random, shards: int) -> None:
    """At every time the view is what its query means."""
    run = played(view.plan(), changes, choice, shards)
    assert run.written.updates["errors"] == []
    for time in range(END):
        now = held(changes, time)
        means = QUERIES[view.query][1](now[view.x], now[view.y])
        assert shown(run.written.updates["out"], time) == means, (view, time)


@few
@given(views, changed, st.randoms(use_true_random=False), st.integers(1, 2))
def test_every_operator_is_its_definition_at_every_time(
    view: View, changes: list[Change], choice: Random, shards: int
) -> None:
    """Whatever the signs of counts are, and however batches are cut."""
    assert_defined(view, changes, choice, shards)


# A row of which as many were retracted, another one instead of it, what meets neither, and what
# comes in the end.
PASSING: list[Change] = [
    ("d", (0, 0), 0, -1),
    ("e", (0, 1), 0, 1),
    ("d", (0, 1), 1, 1),
    ("d", (1, 3), 1, -2),
    ("e", (1, None), 1, -1),
    ("e", (0, 0), 2, 1),
    ("d", (0, 0), 3, 1),
    ("e", (0, 1), 3, -2),
    ("d", (1, 3), 4, 2),
    ("e", (1, None), 4, 1),
]


@pytest.mark.parametrize("query", QUERIES)
def test_counts_pass_through_zero(query: str) -> None:
    """Of either side, from below and from above."""
    assert_defined(View(query, "d", "e"), PASSING, Random(1), 1)
    assert_defined(View(query, "rest", "less"), PASSING, Random(1), 1)
