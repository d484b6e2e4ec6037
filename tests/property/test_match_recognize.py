"""MATCH_RECOGNIZE of a view against its definition, over the table as it is at every time."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, note, reject
from hypothesis import strategies as st

from ikebana import evaluate
from ikebana.processor.kernels.row_patterns import PatternError, parsed
from ikebana.processor.linear.bound_query import SqlQueryError
from ikebana.processor.relational.sql_shape import notes
from support.pattern_oracle import Pattern, matches, patterns
from support.sql_oracle import Change, Row, plain, plan_of, records_of, shown_at, tables_at
from support.strategies import few

TIMES = 3
TABLES = {"t": {"p": "BIGINT", "o": "BIGINT", "x": "BIGINT"}}
VALUES = {"p": (1, 1, 2, None), "o": (None, 1, 2, 3, 4, 5), "x": (None, 0, 1, 2)}
Rows = Sequence[Mapping[str, Any]]


def beside(rows: Rows, at: int, away: int) -> Any:
    """x of the row so many rows behind one."""
    return rows[at + away]["x"] if 0 <= at + away < len(rows) else None


def less(one: Any, other: Any) -> bool:
    return one is not None and other is not None and one < other


CONDITIONS: dict[str, Callable[[Rows, int], bool]] = {
    "x < PREV(x)": lambda rows, at: less(rows[at]["x"], beside(rows, at, -1)),
    "{}.x > PREV({}.x)": lambda rows, at: less(beside(rows, at, -1), rows[at]["x"]),
    "x < NEXT(x, 1)": lambda rows, at: less(rows[at]["x"], beside(rows, at, 1)),
    "PREV({}.x, 2) IS NULL": lambda rows, at: beside(rows, at, -2) is None,
    "x > 0": lambda rows, at: less(0, rows[at]["x"]),
    "x IS NULL OR o = 2": lambda rows, at: rows[at]["x"] is None or rows[at]["o"] == 2,
}


class Measured(NamedTuple):
    """A match: the rows of its partition, its first position, and the variables of its rows."""

    rows: Rows
    first: int
    variables: tuple[str, ...]

    def of(self, variable: str | None = None) -> list[int]:
        """The positions of the rows of a variable."""
        every = enumerate(self.variables, self.first)
        return [at for at, name in every if variable in (None, name)]

    def values(self, variable: str | None = None) -> list[Any]:
        return [self.rows[at]["x"] for at in self.of(variable)]


def nth(values: Sequence[Any], at: int) -> Any:
    return values[at] if -len(values) <= at < len(values) else None


def total(values: Sequence[Any]) -> Any:
    there = [value for value in values if value is not None]
    return sum(there) if there else None


MEASURES: dict[str, Callable[[Measured], Any]] = {
    "FIRST(A.x)": lambda match: nth(match.values("A"), 0),
    "LAST(B.x)": lambda match: nth(match.values("B"), -1),
    "FINAL LAST(x, 1)": lambda match: nth(match.values(), -2),
    "FIRST(A.x, 1)": lambda match: nth(match.values("A"), 1),
    "B.x": lambda match: nth(match.values("B"), -1),
    "x": lambda match: nth(match.values(), -1),
    "PREV(FIRST(x))": lambda match: beside(match.rows, match.first, -1),
    "NEXT(x)": lambda match: beside(match.rows, match.of()[-1], 1),
    "count(*)": lambda match: len(match.variables),
    "count(B.*)": lambda match: len(match.of("B")),
    "sum(A.x + 1)": lambda match: total([None if x is None else x + 1 for x in match.values("A")]),
    "sum(x) - sum(B.x)": lambda match: (
        None
        if None in (total(match.values()), total(match.values("B")))
        else total(match.values()) - total(match.values("B"))
    ),
    "RUNNING array_agg(x)": lambda match: match.values(),
    "CLASSIFIER()": lambda match: match.variables[-1],
}


class Drawn(NamedTuple):
    """A MATCH_RECOGNIZE, as a query and by its parts."""

    query: str
    pattern: Pattern
    define: Mapping[str, str]
    measures: Sequence[str]
    is_partitioned: bool
    is_descending: bool


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    """Any of them; variables without a condition are true."""
    pattern = draw(patterns)
    try:
        variables = parsed(str(pattern)).variables
    except PatternError:
        reject()
    conditions = st.sampled_from([None, *CONDITIONS])
    chosen = [(name, draw(conditions)) for name in variables]
    define = {name: each for name, each in chosen if each is not None}
    if not define:
        define = {variables[0]: "x > 0"}
    measures = draw(st.lists(st.sampled_from([*MEASURES]), min_size=1, max_size=3, unique=True))
    measures = [
        each for each in measures if all(f"{n}." not in each for n in "AB" if n not in variables)
    ]
    measures = measures or ["count(*)"]
    partitioned, descending = draw(st.booleans()), draw(st.booleans())
    listed = ", ".join(f"{each} AS m{at}" for at, each in enumerate(measures))
    of = ", ".join(f"{name} AS {each.format(name, name)}" for name, each in define.items())
    query = (
        f"SELECT * FROM t MATCH_RECOGNIZE ({'PARTITION BY p ' * partitioned}"
        f"ORDER BY o{' DESC' * descending} MEASURES {listed} ONE ROW PER MATCH "
        f"AFTER MATCH SKIP PAST LAST ROW PATTERN ({pattern}) DEFINE {of}) AS m"
    )
    return Drawn(query, pattern, define, measures, partitioned, descending)


def history(choice: Random) -> list[Change]:
    """Inserts, updates and deletes; several rows may be equal."""
    found: list[Change] = []
    for time in range(TIMES):
        for key in choice.sample(range(9), choice.randint(1, 6) if time else 7):
            row = {name: choice.choice(values) for name, values in VALUES.items()}
            found.append((key, None if choice.random() < 0.3 else row, time))
    return found


def expected(of: Drawn, rows: Rows) -> Counter[Row]:
    """The rows of all matches, by definition."""
    found: Counter[Row] = Counter()
    partitions = {row["p"] for row in rows} if of.is_partitioned else {...}
    for each in partitions:
        own = [row for row in rows if each is ... or row["p"] == each]
        own.sort(key=lambda row: order(row, descending=of.is_descending))
        first = 0
        for variables in matches(of.pattern, [*stands_for(of, own)]):
            match = Measured(own, first, variables)
            first += max(len(variables), 1)
            if variables:
                values = [MEASURES[name](match) for name in of.measures]
                found[tuple(map(plain, [each, *values] if each is not ... else values))] += 1
    return found


def order(row: Mapping[str, Any], *, descending: bool) -> tuple[tuple[bool, int], ...]:
    """Rows of equal order are sorted by their columns, in the same direction; nulls are last."""
    sign = -1 if descending else 1
    return tuple((row[name] is None, sign * (row[name] or 0)) for name in ("o", "p", "o", "x"))


def stands_for(of: Drawn, rows: Rows) -> Iterator[frozenset[str]]:
    """The variables that each row may stand for."""
    for at in range(len(rows)):
        yield frozenset(
            name
            for name in "ABC"
            if name not in of.define or CONDITIONS[of.define[name]](rows, at)
        )


@few
@given(drawn(), st.randoms(use_true_random=False))
def test_a_view_has_the_matches_of_its_table_at_every_time(of: Drawn, choice: Random) -> None:
    note(of.query)
    changes = {"t": history(choice)}

    found = evaluate(plan_of(TABLES, {"view": of.query}), records_of(changes), TIMES, shards=2)

    assert found["errors"] == []
    names = [*["p"] * of.is_partitioned, *(f"m{at}" for at, _ in enumerate(of.measures))]
    for time in range(TIMES):
        rows = tables_at(changes, time)["t"]
        assert shown_at(found["view"], names, time) == expected(of, rows), (time, rows)


TRADES = {"trades": {"symbol": "VARCHAR", "placed": "BIGINT", "price": "BIGINT"}}
FALLS = """
    SELECT v.symbol, high, low, "until", high - low AS fall
    FROM trades MATCH_RECOGNIZE (
        PARTITION BY symbol ORDER BY placed
        MEASURES begin.price AS high, LAST(down.price) AS low, LAST(up.placed) AS "until"
        ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
        PATTERN (begin down+ up+)
        DEFINE down AS price < PREV(price), up AS price > PREV(price)) AS v
    WHERE high > 10
"""


def test_a_fall_and_a_rise_follow_late_and_corrected_rows() -> None:
    """As the examples of others have it: prices that fall and rise again."""
    prices = [("a", at, price) for at, price in enumerate((12, 11, 9, 10, 13, 12, 14))]
    names = ("symbol", "placed", "price")
    changes: list[Change] = [
        (row[1], dict(zip(names, row, strict=True)), 0) for row in prices if row[1] != 2
    ]
    changes.append((2, {"symbol": "a", "placed": 2, "price": 9}, 1))
    changes.append((4, None, 2))

    plan = plan_of(TRADES, {"view": FALLS})
    found = evaluate(plan, records_of({"trades": changes}), 3)

    shown = [shown_at(found["view"], ("high", "low", "until"), time) for time in range(3)]
    assert shown == [Counter([row]) for row in [(12, 10, 4), (12, 9, 4), (12, 9, 6)]]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("down+ up+", "down+ (up"), "a parenthesis is not closed"),
        (("begin down+ up+", "(down up)*"), "also matches no row"),
        (("SKIP PAST LAST ROW", "SKIP TO NEXT ROW"), "write AFTER MATCH SKIP PAST LAST ROW"),
        (("ONE ROW", "ALL ROWS"), "there is one row for each match"),
        (("up AS price > PREV(price)", "up AS price > down.price"), 'reads rows of "down"'),
        (("up AS price > PREV(price)", "up AS price > LAST(down.price)"), "last.. in DEFINE"),
        (("LAST(up.placed)", "MATCH_NUMBER()"), "row_number.. in the query around"),
        (("LAST(up.placed)", "sum(up.placed + down.placed)"), "the rows of one variable"),
        (("trades MATCH", "(SELECT * FROM trades) MATCH"), "make a view of the query"),
        (("ORDER BY placed", ""), "there is no ORDER"),
        (("price < PREV(price)", "prise < PREV(price)"), "prise"),
    ],
)
def test_what_is_not_supported_is_refused(change: tuple[str, str], problem: str) -> None:
    with pytest.raises(SqlQueryError, match=problem):
        plan_of(TRADES, {"view": FALLS.replace(*change)})


def test_notes_of_a_query_with_a_pattern_are_those_of_the_query() -> None:
    assert notes(FALLS) == []
