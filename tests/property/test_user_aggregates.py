"""Classes of users as aggregates against their definition: over all rows at every time."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

import user_aggregates
from ikebana import Update, accumulate
from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.codecs import canonical
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import reduce
from ikebana.processor.kernels.reduce import Aggregate
from ikebana.processor.linear.sql_functions import SqlFunction
from support.stores import reopened
from support.strategies import unhurried

KEYS = [b'"a"', b'"b"']
ROWS: list[dict[str, Any]] = [
    *({"n": number, "s": "x" * number, "p": {"p0": number, "p1": 2}} for number in (1, 2, 12)),
    {"n": 13, "s": "longer than that", "p": {"p0": 4, "p1": 0}},
    {"n": 500, "s": None, "p": None},
    {"n": None, "s": "y", "p": {"p0": 1, "p1": 1}},
]


class Case(NamedTuple):
    """An aggregate under test."""

    name: str
    field: str
    parameters: tuple[str, ...]
    returns: str
    is_distinct: bool = False

    @property
    def aggregate(self) -> Aggregate:
        """As the kernel has it."""
        of = SqlFunction(
            self.name,
            f"user_aggregates:{self.name}",
            self.parameters,
            self.returns,
            is_aggregate=True,
        )
        result = f"{self.name} {self.is_distinct}"
        return Aggregate(result, of.long_name, self.field, is_distinct=self.is_distinct)

    def expected(self, rows: Sequence[dict[str, Any]]) -> tuple[Any, str]:
        """The result of all rows, and why it has failed."""
        values = [canonical.encode(row[self.field]) for row in rows if row[self.field] is not None]
        if self.is_distinct:
            values = list(set(values))
        instance = getattr(user_aggregates, self.name)()
        failure = ""
        for value in map(canonical.decode, sorted(values)):
            try:
                instance.accumulate(*(value.values() if self.field == "p" else [value]))
            except ValueError as error:
                failure = f"aggregate user_aggregates:{self.name} raised ValueError: {error}"
        result = instance.result() if values else None
        if result == 13:
            wrong = f"aggregate user_aggregates:{self.name} gave a int in place of VARCHAR"
            return None, failure or wrong
        return result, failure


CASES = [
    Case("Total", "n", ("BIGINT",), "VARCHAR"),
    Case("Total", "n", ("BIGINT",), "VARCHAR", is_distinct=True),
    Case("Longest", "s", ("VARCHAR",), "VARCHAR"),
    Case("Weighed", "p", ("BIGINT", "BIGINT"), "DOUBLE"),
    Case("Fussy", "n", ("BIGINT",), "VARCHAR"),
]
there = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(range(len(ROWS)))), max_size=6)


@unhurried
@given(st.lists(there, min_size=1, max_size=5), st.sampled_from([1, 9]))
def test_results_are_those_of_all_rows_at_every_time(
    times: list[list[tuple[bytes, int]]], times_of_a_batch: int
) -> None:
    """Also after restarts, and of arguments that a class does not take."""
    aggregates = [case.aggregate for case in CASES]
    updates: list[list[KeyedUpdate]] = []
    before = Counter[tuple[bytes, int]]()
    for time, rows in enumerate(times):
        diffs = Counter(rows)
        diffs.subtract(before)
        before = Counter(rows)
        updates.append(
            [
                KeyedUpdate(key, canonical.encode(ROWS[at]), time, diff)
                for (key, at), diff in diffs.items()
                if diff
            ]
        )
    store = MemoryStore()
    found: list[Update[Any]] = []
    errors: list[Update[Any]] = []
    for lower in range(0, len(times), times_of_a_batch):
        upper = lower + times_of_a_batch
        batch = [each for some in updates[lower:upper] for each in some]
        step = reduce.step(store, batch, Interval(lower, upper), aggregates, "totals")
        found += [Update((u.key, u.value), u.time, u.diff) for u in step.updates]
        errors += [Update(u.value, u.time, u.diff) for u in step.errors]
        store = reopened(store)

    results: set[tuple[bytes, bytes]] = set()
    for time, rows in enumerate(times):
        results, failures = set(), set()
        for key in {key for key, _ in rows}:
            own = [ROWS[at] for each, at in rows if each == key]
            made = {}
            for case, aggregate in zip(CASES, aggregates, strict=True):
                made[aggregate.name], failure = case.expected(own)
                failures |= {(key, f"operator totals: {failure}")} if failure else set()
            results.add((key, canonical.encode(made)))
        assert set(accumulate(found, time)) == results
        assert set(accumulate(found, time).values()) <= {1}
        told = {canonical.decode(record)["reason"] for record in accumulate(errors, time)}
        assert told == {reason for _, reason in failures}
        assert len(accumulate(errors, time)) == len(failures)
    kept = {(key, *values) for key, values, _ in reduce.contents(store)}
    assert kept == results
    assert {each for *_, more in reduce.contents(store) for each in more} == set(
        accumulate(errors, len(times))
    )
