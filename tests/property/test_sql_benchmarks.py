"""Nexmark, TPC-H and CH-benCHmark as views, over tables whose rows change, against DuckDB."""

import re
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

import pytest

from ikebana import evaluate
from ikebana.processor.linear.sql_functions import SqlFunction
from ikebana.processor.linear.syntax import with_long_names
from ikebana.processor.relational.making import KnownRelations
from support import chbenchmark, nexmark, tpch
from support.sql_oracle import (
    Change,
    Tables,
    answer,
    plan_of,
    records_of,
    shown_at,
    tables_at,
)

TIMES = 3


class Benchmark(NamedTuple):
    """Tables, how they change, and queries over them."""

    tables: Tables
    history: Callable[[Random, int], dict[str, list[Change]]]
    queries: Mapping[str, str]
    functions: Mapping[str, SqlFunction] = {}
    for_duckdb: Callable[[str], str] = str


BENCHMARKS = {
    "nexmark": Benchmark(
        nexmark.TABLES, nexmark.history, nexmark.QUERIES, nexmark.FUNCTIONS, nexmark.for_duckdb
    ),
    "tpch": Benchmark(tpch.TABLES, tpch.history, tpch.QUERIES),
    "ch": Benchmark(chbenchmark.TABLES, chbenchmark.history, chbenchmark.QUERIES),
}
CHANGES = {name: each.history(Random(8), TIMES) for name, each in BENCHMARKS.items()}


@pytest.mark.parametrize(
    ("benchmark", "name"),
    [(benchmark, name) for benchmark, each in BENCHMARKS.items() for name in each.queries],
)
def test_a_query_is_what_duckdb_answers_at_every_time(benchmark: str, name: str) -> None:
    """All of them are accepted as views."""
    of, changes = BENCHMARKS[benchmark], CHANGES[benchmark]
    query = of.queries[name]
    read = {n: each for n, each in of.tables.items() if re.search(rf"\b{n}\b", query, re.I)}
    plan = plan_of(read, {"view": with_long_names(query, of.functions)})

    found = evaluate(plan, records_of({table: changes[table] for table in read}))

    assert found["errors"] == []
    # By the places of columns: DuckDB calls an aggregate without a name by its text.
    names = list(KnownRelations(plan.inputs, plan.operators).relation("view").types)
    expected = []
    for time in range(TIMES):
        _, rows = answer(of.tables, tables_at(changes, time), of.for_duckdb(query))
        assert shown_at(found["view"], names, time) == rows
        expected.append(rows)
    assert any(expected), "the query has rows at some time"
