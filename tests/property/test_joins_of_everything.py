"""Plans that mix joins with all other operators, as plain computations of every time.

Relations are upserts, updates with times of their own, what linear steps, reductions and
concat make of them, and other joins.  The oracle knows collections only: what each is at a
time, computed anew from what the inputs hold then.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from random import Random
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from ikebana import Column, Concat, EventTime, Input, Linear, Output, Plan, Reduce, Upsert, steps
from ikebana.codecs import canonical, diff
from ikebana.codecs.diff import ProgressRecord
from ikebana.processor.planning.joins.query import AsOfJoin, DeltaJoin, JoinInput
from ikebana.processor.planning.plan import Operator
from ikebana.processor.topics.batch_selection import ClosedProgress
from ikebana.testing import Run, Topics
from support.strategies import few
from support.sums import summed

# (key, x, y)
Row = tuple[Any, Any, Any]
Rows = Counter[Row]
Held = dict[str, Rows]
# What all collections are at a time, of those of all times.
Definition = Callable[[list[Held], int], Rows]

END = 5
COLUMNS = (Column("x", "BIGINT"), Column("y", "BIGINT"))
DATED = EventTime(clock="kafka", ahead_ms=None)
INPUTS = (
    Input("p", ("p",), columns=COLUMNS, event_time=DATED),
    Input("q", ("q",), columns=COLUMNS, event_time=DATED),
    Input("d", ("d",), "diff", mode="diffs", columns=COLUMNS),
)


class Known(NamedTuple):
    """An operator, and the collection that it stands for."""

    operator: Operator
    means: Definition


def mapped(source: str, make: Callable[[Row, int], Row | None], sign: int = 1) -> Definition:
    def means(held: list[Held], time: int) -> Rows:
        found: Rows = Counter()
        for row, count in held[time][source].items():
            made = make(row, time)
            if made is not None:
                found[made] += sign * count
        return found

    return means


def united(*sources: str) -> Definition:
    def means(held: list[Held], time: int) -> Rows:
        found: Rows = Counter()
        for source in sources:
            found.update(held[time][source])
        return found

    return means


def counted(source: str) -> Definition:
    """How many data have each x, and the greatest y of them."""

    def means(held: list[Held], time: int) -> Rows:
        groups: dict[Any, list[tuple[Row, int]]] = {}
        for row, count in held[time][source].items():
            if count:
                groups.setdefault(row[1], []).append((row, count))
        found: Rows = Counter()
        for x, rows in groups.items():
            ys = [y for (_, _, y), _ in rows if y is not None]
            found[x, sum(count for _, count in rows), max(ys, default=None)] += 1
        return found

    return means


def is_valid(row: Row, time: int) -> bool:
    return None not in row[1:] and row[1] <= time < row[2]


LINEAR = [
    Known(
        Linear("high", "p", (steps.where("x > 0"),)),
        mapped("p", lambda row, _: row if row[1] is not None and row[1] > 0 else None),
    ),
    Known(
        Linear("turned", "q", (steps.select(x="y", y="x"),)),
        mapped("q", lambda row, _: (row[0], row[2], row[1])),
    ),
    Known(
        Linear("by_y", "d", (steps.rekey("y"),)),
        mapped("d", lambda row, _: (row[2], row[1], row[2])),
    ),
    Known(Linear("less", "q", (steps.negate(),)), mapped("q", lambda row, _: row, -1)),
    Known(
        Linear("while_valid", "p", (steps.valid_between("x", "y"),)),
        mapped("p", lambda row, time: row if is_valid(row, time) else None),
    ),
    Known(Concat("both", ("p", "q")), united("p", "q")),
    Known(Concat("twice", ("d", "turned", "d")), united("d", "turned", "d")),
    Known(
        Reduce("counts", "p", (("x", "count(*)"), ("y", "max(y)")), by="x"),
        counted("p"),
    ),
]


def side(row: Row, name: str) -> Any:
    return row[("key", "x", "y").index(name)]


def is_equal(one: Any, other: Any) -> bool:
    return one is not None and one == other


class Pair(NamedTuple):
    """An equality of columns of two inputs."""

    left: int
    left_column: str
    right: int
    right_column: str

    def __str__(self) -> str:
        return f"i{self.left}.{self.left_column} = i{self.right}.{self.right_column}"

    def holds(self, rows: tuple[Row, ...]) -> bool:
        one = side(rows[self.left], self.left_column)
        return is_equal(one, side(rows[self.right], self.right_column))


def combined(relations: list[str], pairs: list[Pair], *, less: bool, shown: int) -> Definition:
    """The nested loop: the first's key, the last's x, and y of the input `shown`."""

    def means(held: list[Held], time: int) -> Rows:
        found: Rows = Counter()
        for picked in product(*(held[time][name].items() for name in relations)):
            rows = tuple(row for row, _ in picked)
            first, last = rows[0][2], rows[-1][1]
            if less and not (first is not None and last is not None and first <= last):
                continue
            if all(pair.holds(rows) for pair in pairs):
                count = 1
                for _, times in picked:
                    count *= times
                found[rows[0][0], last, rows[shown][2]] += count
        return found

    return means


def as_of(left: str, right: str, column: str, seen: int) -> Definition:
    """The sum of what each change of the left meets at its own time."""

    def means(held: list[Held], time: int) -> Rows:
        found: Rows = Counter()
        for at in range(time + 1):
            changes = Counter(held[at][left])
            changes.subtract(held[at - 1][left] if at else {})
            met = held[at + seen - 1][right] if at + seen else Counter[Row]()
            for (key, x, y), change in changes.items():
                if change:
                    for row, count in met.items():
                        if is_equal(side((key, x, y), column), side(row, column)):
                            found[key, row[1], y] += change * count
        return found

    return means


@st.composite
def joined(draw: st.DrawFn, name: str, relations: list[str]) -> Known:
    """A delta join of two or three, or an as-of join."""
    column = st.sampled_from(["x", "y"])
    if draw(st.integers(0, 3)) == 0:
        left, right = draw(st.sampled_from(relations)), draw(st.sampled_from(relations))
        on = draw(st.sampled_from(["key", "x"]))
        at = draw(st.sampled_from(["alt", "neu"]))
        join = AsOfJoin(
            name,
            JoinInput("l", left),
            JoinInput("r", right),
            (f"l.{on} = r.{on}",),
            (("x", "r.x"), ("y", "l.y")),
            at=at,  # type: ignore[arg-type]
        )
        return Known(join, as_of(left, right, on, at == "alt"))
    inputs = draw(st.lists(st.sampled_from(relations), min_size=2, max_size=3))
    pairs = []
    for later in range(1, len(inputs)):
        key = draw(st.booleans())
        columns = ("key", "key") if key else (draw(column), draw(column))
        pairs.append(Pair(draw(st.integers(0, later - 1)), columns[0], later, columns[1]))
    less, shown = draw(st.booleans()), draw(st.integers(0, len(inputs) - 1))
    last = len(inputs) - 1
    delta = DeltaJoin(
        name,
        tuple(JoinInput(f"i{at}", of) for at, of in enumerate(inputs)),
        (*map(str, pairs), *([f"i0.y <= i{last}.x"] if less else [])),
        (("x", f"i{last}.x"), ("y", f"i{shown}.y")),
    )
    return Known(delta, combined(inputs, pairs, less=less, shown=shown))


@st.composite
def plans(draw: st.DrawFn) -> list[Known]:
    """Two joins, of which the second may read the first, and what is made of them."""
    known = ["p", "q", "d", *(each.operator.name for each in LINEAR)]
    # Upserts by their own key are read more often than others.
    first = draw(joined("j", [*known, "p", "q", "p"]))
    shaped = Known(Linear("shaped", "j", (steps.where("x >= 0"),)), mapped("j", _at_least_zero))
    second = draw(joined("k", [*known, "j", "shaped", "j"]))
    counts = Reduce("of_k", "k", (("x", "count(*)"), ("y", "max(y)")), by="x")
    return [*LINEAR, first, shaped, second, Known(counts, counted("k"))]


def _at_least_zero(row: Row, _: int) -> Row | None:
    return row if row[1] is not None and row[1] >= 0 else None


number = st.sampled_from([0, 1, 2, 1, 2, 3, None])
row_values = st.tuples(number, number)
upserted = st.lists(
    st.tuples(
        st.integers(0, END - 1),
        st.sampled_from(["p", "q"]),
        st.sampled_from([0, 1, 2, None]),
        st.one_of(row_values, row_values, st.none()),
    ),
    max_size=10,
)
changed = st.lists(
    st.tuples(
        st.integers(0, END - 1),
        st.tuples(st.sampled_from([0, 1, None]), number, number),
        st.sampled_from([1, 1, 2, -1]),
    ),
    max_size=5,
)
Upserted = list[tuple[int, str, Any, tuple[Any, Any] | None]]
Changed = list[tuple[int, Row, int]]


def meanings(known: list[Known], upserts: Upserted, changes: Changed) -> list[Held]:
    """Every collection at every time, by its definition."""
    held: list[Held] = []
    current: dict[str, dict[Any, tuple[Any, Any]]] = {"p": {}, "q": {}}
    changing: Rows = Counter()
    for time in range(2 * END):
        for _, name, key, value in (each for each in upserts if each[0] == time):
            current[name].pop(key, None)
            if value is not None:
                current[name][key] = value
        for _, row, change in (each for each in changes if each[0] == time):
            changing[row] += change
        here: Held = {
            name: Counter({(key, *value): 1 for key, value in of.items()})
            for name, of in current.items()
        }
        held.append({**here, "d": Counter(changing)})
        for each in known:
            held[time][each.operator.name] = each.means(held, time)
    return held


def plan_of(known: list[Known]) -> Plan:
    names = ["j", "k", "of_k"]
    return Plan(
        "everything",
        INPUTS,
        (Upsert("p", "p"), Upsert("q", "q"), *(each.operator for each in known)),
        tuple(Output(f"{name}_out", name, f"{name}_out") for name in names),
    )


def topics_of() -> Topics:
    topics = Topics()
    for source in INPUTS:
        assert topics.messages[source.name][0] == []
    return topics


def close(topics: Topics, changes: Changed, lower: int, upper: int) -> None:
    """A batch of the pipeline that writes `d`, and nothing more before `upper` from others."""
    new = [change for change in changes if lower <= change[0] < upper]
    for time, (key, x, y), change in new:
        headers = diff.headers(time, change)
        value = json.dumps({"x": x, "y": y}).encode()
        topics.send("d", canonical.encode(key), value, headers=headers)
    closed, ends = topics.closed["d"], topics.ends("d")
    at = len(closed)
    record = ProgressRecord("c", "d", "d", at, lower, upper, len(new), ends, "changes")
    closed.append(ClosedProgress(record, at + 1))


def play(run: Run, upserts: Upserted, changes: Changed, choice: Random) -> Iterator[int]:
    """Yield each time whose messages are all sent, with batches in between as it comes."""
    topics = run.topics
    for time in range(END):
        for _, name, key, value in (each for each in upserts if each[0] == time):
            row = None if value is None else dict(zip(("x", "y"), value, strict=True))
            raw = None if row is None else canonical.encode(row)
            topics.send(name, canonical.encode(key), raw, timestamp=time)
            while choice.random() < 0.3 and run.batch():
                pass
        close(topics, changes, time, time + 1)
        while choice.random() < 0.5 and run.batch():
            pass
        yield time
    for name in ("p", "q"):
        topics.send(name, b'"nobody"', None, timestamp=2 * END)
    close(topics, changes, END, 2 * END)
    run.read()


def shown(run: Run, name: str, time: int) -> dict[Row, int]:
    updates = [u for u in run.written.updates[f"{name}_out"] if u.time <= time]
    rows = (
        (canonical.decode(u.key or b"null"), canonical.decode(u.value), u.diff) for u in updates
    )
    return summed(((key, row["x"], row["y"]), diff) for key, row, diff in rows)


@few
@given(plans(), upserted, changed, st.randoms(use_true_random=False), st.integers(1, 3))
def test_joins_of_everything_are_their_definitions_at_every_time(
    known: list[Known], upserts: Upserted, changes: Changed, choice: Random, shards: int
) -> None:
    """Joins of joins, of reductions and of what counts for a while, in any batches."""
    upserts.sort(key=lambda each: each[0])
    run = Run(plan_of(known), topics_of(), shards, exchange=choice.choice([1, 2, 1_000]))
    for _ in play(run, upserts, changes, choice):
        pass

    held = meanings(known, upserts, changes)
    # What an as-of join or `less` makes negative, a reduction does not count.
    is_counted = all(count >= 0 for here in held for count in here["k"].values())
    if is_counted:
        assert run.written.updates["errors"] == []
    for time in range(2 * END):
        for name in ("j", "k", "of_k") if is_counted else ("j", "k"):
            assert shown(run, name, time) == summed(held[time][name].items()), (name, time)
