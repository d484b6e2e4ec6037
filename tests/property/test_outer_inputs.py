"""Delta joins with outer inputs, drawn at random, against what DuckDB answers at every time."""

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

import ikebana as ik
from ikebana import evaluate
from support.random_queries import NUMBERS, TABLES, history
from support.sql_oracle import answer, records_of, shown_at, tables_at
from support.strategies import few

TIMES = 3
_WORDS = {"": "JOIN", "left": "LEFT JOIN", "full": "FULL JOIN"}


class Drawn(NamedTuple):
    """A join of tables by alias: how each is joined, by which conditions, and what is selected."""

    tables: Mapping[str, str]
    kinds: Mapping[str, str]
    on: Mapping[str, tuple[str, ...]]
    where: tuple[str, ...]
    select: Mapping[str, str]
    key: str | None

    def sql(self) -> str:
        """The query: what must match within, and outer joins around it, in the order of inputs."""
        inner = [alias for alias, kind in self.kinds.items() if not kind]
        outer = [alias for alias, kind in self.kinds.items() if kind]
        whole = ", ".join(f"{alias} AS {alias}" for alias in inner)
        conditions = " AND ".join((*self.where, *(on for a in inner for on in self.on[a])))
        listed = ", ".join(f"{self.tables[alias]} {alias}" for alias in inner)
        text = f"(SELECT {whole} FROM {listed}{f' WHERE {conditions}' if conditions else ''}) m"
        for alias in outer:
            how = "LEFT JOIN" if self.kinds[alias] == "left" else "FULL JOIN"
            text += f" {how} {self.tables[alias]} {alias} ON {' AND '.join(self.on[alias])}"
        columns = ", ".join(f"{sql} AS {name}" for name, sql in self.select.items())
        return f"SELECT {columns} FROM {text}"


@st.composite
def joins(draw: st.DrawFn) -> Drawn:
    """Two to four inputs, of which each is connected with one before it that it may name."""
    aliases = "wxyz"[: draw(st.integers(2, 4))]
    tables = {alias: draw(st.sampled_from("tu")) for alias in aliases}
    kinds = {alias: draw(st.sampled_from(["", "left", "full"])) for alias in aliases}
    must = draw(st.sampled_from(aliases))
    kinds[must] = ""
    if not any(kinds.values()):
        kinds[draw(st.sampled_from([each for each in aliases if each != must]))] = "left"
    in_order = sorted(aliases, key=lambda alias: bool(kinds[alias]))

    def number(alias: str) -> str:
        return f"{alias}.{draw(st.sampled_from(NUMBERS[tables[alias]]))}"

    on: dict[str, tuple[str, ...]] = {in_order[0]: ()}
    for at, alias in enumerate(in_order[1:], start=1):
        before = draw(st.sampled_from(in_order[:at]))
        more = [
            f"{number(alias)} {draw(st.sampled_from(['<', '>=', '<>']))} {number(before)}",
            f"{number(alias)} > 0",
            f"{number(before)} < 2",
        ]
        some = draw(st.lists(st.sampled_from(more), max_size=1))
        on[alias] = (f"{alias}.a = {before}.a", *some)
    where = draw(st.sampled_from([(), (f"{number(must)} >= 0",)]))
    select = {f"f{at}": number(alias) for at, alias in enumerate(aliases)}
    key = draw(st.sampled_from([None, number(aliases[-1])]))
    return Drawn(tables, kinds, on, where, select, key)


@few
@given(joins(), st.randoms(use_true_random=False))
def test_outer_inputs_are_the_outer_joins_of_sql(drawn: Drawn, choice: Random) -> None:
    """Each beside what stands before it, with duplicates, nulls, updates and deletes."""
    changes = history(choice, TIMES)
    pipeline = ik.Pipeline("p")
    rows = {
        name: pipeline.topic(
            name, name=f"{name}_changes", columns=[ik.Column(*each) for each in columns.items()]
        ).upsert(name)
        for name, columns in TABLES.items()
    }
    inner = [on for alias, kind in drawn.kinds.items() if not kind for on in drawn.on[alias]]
    pipeline.join(
        {alias: rows[table] for alias, table in drawn.tables.items()},
        where=[*drawn.where, *inner],
        left={alias: drawn.on[alias] for alias, kind in drawn.kinds.items() if kind == "left"},
        full={alias: drawn.on[alias] for alias, kind in drawn.kinds.items() if kind == "full"},
        select=drawn.select,
        key=drawn.key,
        name="joined",
    ).to("out")

    found = evaluate(pipeline, records_of(changes))

    assert found["errors"] == []
    for time in range(TIMES):
        names, expected = answer(TABLES, tables_at(changes, time), drawn.sql())
        assert shown_at(found["out"], names, time) == expected, (time, drawn.sql(), changes)
