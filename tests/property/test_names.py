"""Columns of any names, in YAML, in Python and in SQL: they work as in DuckDB, or are refused with
a way that works.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import ikebana as ik
from ikebana.errors import ConfigError, PlanError
from ikebana.processor.linear.json_text import field_of, quoted
from ikebana.processor.linear.scope import OURS, is_ours

WORDS = ("key", "value", "order", "full", "select", "null", "true", "rowid", "ikebana_key")
LETTERS = "abAB_0 .,:;\"'\\$/%?*#@{}[]()<>|&!~-+=üßé☃\t\n\x01\x85\u202e\U0010ffff"
NAMES = st.one_of(
    st.sampled_from(WORDS),
    st.text(LETTERS, min_size=1, max_size=6),
    st.builds("{}{}".format, st.sampled_from(("__", OURS, "Ikebana_")), st.text(LETTERS)),
    # In a file, these are variables.
).filter(lambda name: "$$" not in name and "${" not in name)
SETTINGS = {"kafka": {"bootstrap.servers": "n"}, "run": {"checkpoint": "c"}}


def duck(row: dict[str, int], select: dict[str, str]) -> list[dict[str, Any]]:
    """What DuckDB answers for a row."""
    columns = ", ".join(f"{of}::BIGINT AS {quoted(name)}" for name, of in row.items())
    listed = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in select.items())
    with duckdb.connect() as database:
        answer = database.execute(f"SELECT {listed} FROM (SELECT {columns})").fetchall()
    return [dict(zip(select, row, strict=True)) for row in answer]


def in_yaml(names: list[str], select: dict[str, str], folder: Path, *, view: bool) -> ik.Pipeline:
    """A file in YAML, with a view or a linear operator."""
    listed = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in select.items())
    made: Any = {"sql": f"SELECT {listed} FROM c"} if view else {"linear": "c", "select": select}
    document = {
        "pipeline": "p",
        "inputs": {"t": {"topic": "t", "columns": dict.fromkeys(names, "BIGINT")}},
        "operators": {"c": {"upsert": "t"}, "x": made},
        "outputs": {"out": {"from": "x", "topic": "out"}},
        **SETTINGS,
    }
    file = folder / "p.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return ik.load(file, environ={})


def in_sql(names: list[str], select: dict[str, str], folder: Path) -> ik.Pipeline:
    """A file in SQL."""
    columns = ", ".join(f"{quoted(name)} BIGINT" for name in names)
    listed = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in select.items())
    file = folder / "p.sql"
    file.write_text(
        "CREATE PIPELINE p WITH (kafka = (bootstrap.servers = 'n'), run = (checkpoint = 'c'));\n"
        f"CREATE SOURCE t ({columns}) FROM KAFKA (topic = 't');\n"
        f"CREATE VIEW v AS SELECT {listed} FROM t;\n"
        "CREATE SINK out FROM v INTO KAFKA (topic = 'out');\n"
    )
    return ik.load(file, environ={})


def in_python(names: list[str], select: dict[str, str]) -> ik.Pipeline:
    """A pipeline in Python."""
    made = ik.Pipeline("p")
    columns = [ik.Column(name, "BIGINT") for name in names]
    made.topic("t", columns=columns).upsert().select(columns_by=select).to("out")
    return made


def answered(made: ik.Pipeline, row: dict[str, int]) -> list[Any]:
    """The values of the output; there are no errors."""
    found = made.evaluate(t=[(7, row, 0)])
    assert found["errors"] == []
    return [update.data[1] for update in found["out"]]


@settings(max_examples=max(10, settings().max_examples // 5))
@given(st.lists(NAMES, min_size=1, max_size=3, unique_by=str.lower))
def test_a_column_of_any_name_is_what_it_is_in_duckdb(names: list[str]) -> None:
    """In every form of a pipeline, to be read and to be made; ours are refused with a way."""
    row = {name: at for at, name in enumerate(names)}
    plain = [name for name in names if not is_ours(name)]
    select = {name: f"{quoted(name)} + {at}" for at, name in enumerate(plain)} or {"n": "1"}
    with tempfile.TemporaryDirectory() as given_folder:
        folder = Path(given_folder)
        ways: list[Callable[[list[str]], ik.Pipeline]] = [
            lambda columns: in_yaml(columns, select, folder, view=False),
            lambda columns: in_yaml(columns, select, folder, view=True),
            lambda columns: in_sql(columns, select, folder),
            lambda columns: in_python(columns, select),
        ]
        for way in ways:
            if plain != names:
                with pytest.raises((ConfigError, PlanError)) as refused:
                    way(names).plan()
                for name in set(names) - set(plain):
                    assert field_of("ikebana_value", name) in str(refused.value)
            if plain:
                assert answered(way(plain), row) == duck(row, select)
        for name in set(names) - set(plain):
            told = {"n": f"({field_of('ikebana_value', name)})::BIGINT"}
            made = in_yaml(plain, told, folder, view=False)
            assert answered(made, row) == [{"n": row[name]}]
