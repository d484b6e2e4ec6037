"""Types of SQL as values: their texts are DuckDB's own."""

import re
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs.sql_type import (
    KEYWORDS,
    NAMES,
    Scalar,
    SqlType,
    TypeTextError,
    parsed,
    type_of,
)
from ikebana.processor.linear.database import rows_of
from support.sql_types import WORDS, types

ROOT = Path(__file__).resolve().parents[2]


def of_duckdb(text: str) -> str | None:
    """The full name of a type as DuckDB has it; None if it takes the text for none."""
    try:
        ((name,),) = rows_of(f"SELECT typeof(CAST(NULL AS {text}\n))")
    except duckdb.Error:
        return None
    return str(name)


def ours(text: str) -> str | None:
    """The full name as `parsed` has it."""
    try:
        return str(parsed(text))
    except TypeTextError:
        return None


@given(types)
def test_the_text_of_a_type_is_that_of_duckdb(kind: SqlType) -> None:
    """Printed and parsed it is the same value, and DuckDB writes it in the same way."""
    assert parsed(str(kind)) == type_of(str(kind)) == kind
    assert of_duckdb(str(kind)) == str(kind)


@given(types, st.data())
def test_a_type_may_be_spelt_in_many_ways(kind: SqlType, data: st.DataObject) -> None:
    """In any case, with any spaces and comments between its words."""
    tokens = re.findall(r'"(?:[^"]|"")*"|\'(?:[^\']|\'\')*\'|\w+|\W', str(kind))
    gaps = st.sampled_from(["", " ", "\n", "/* ' */", "-- )\n"])
    spelt = "".join(
        (token.lower() if token in WORDS and data.draw(st.booleans()) else token) + data.draw(gaps)
        for token in tokens
    )

    assert parsed(spelt) == kind


@pytest.mark.parametrize(
    "text",
    [
        *("double precision", "character varying(10)", "varchar(10)", "text(5)", "char(3)"),
        *("national character varying", "national char(3)", "nchar varying", "bit varying(3)"),
        *("int array", "int array[3]", "int array array", "int[3][]", "int[][3][]", "int [ 3 ]"),
        *("decimal", "decimal(5)", "DECIMAL(5,2)", "numeric(38,38)", "dec(1)"),
        *("decimal(0)", "decimal(39)", "decimal(3,4)", "decimal(5,2,1)", "decimal(5.5)"),
        *("timestamp(0)", "timestamp(3)", "timestamp(6)", "timestamp(9)", "datetime(3)"),
        *("timestamp with time zone", "timestamp without time zone", "timestamptz(3)", "time(3)"),
        *("timestamp(3) without time zone", "timestamp(3) with time zone", "time with time zone"),
        *("interval year", "interval day to second", "interval(3)", "interval weeks"),
        *("row(a int)", "row(int)", "tuple(int, text)", "struct", "struct()", "struct(a)"),
        *("struct(a int, A int)", 'struct(key int, "x y" text)', "map(varchar, int[])", "map"),
        *("enum('a', 'b''c')", "enum('a','a')", "enum", "union(a int, b text)", "list", "array"),
        *("float(3)", "float(24)", "float(25)", "float(54)", "float(0)", "real(3)", "double(3)"),
        *("int[0]", "int[100000]", "int[100001]", "blob(3)", "int(3)", '"integer"', '"NULL"'),
        *("null", "any", "int]", "int[", "'int'", "in t", "int -- x", "/* x */ int", "", "1"),
        *("INT); SELECT (1", "INT) --", "INT), (1", "int not null", "varchar collate nocase"),
        *("geometry", "geometry('OGC:CRS84')", "variant", "json[]", "time_ns"),
    ],
)
def test_a_text_is_the_type_that_it_is_in_duckdb(text: str) -> None:
    """By any of its names, with modifiers, nested; and no type where it is none there."""
    assert ours(text) == of_duckdb(text)


def test_all_names_of_types_are_known() -> None:
    """Those that DuckDB lists, and no others."""
    listed = {name for (name,) in rows_of("SELECT upper(type_name) FROM duckdb_types()")}

    assert {name: ours(name) for name in listed} == {name: of_duckdb(name) for name in listed}
    assert {name for name in NAMES if name not in listed} == {"CHARACTER", "NCHAR"}


def test_names_are_quoted_as_duckdb_quotes_them() -> None:
    """All of its keywords, whatever they may be names of without quotes."""
    words = {word for (word,) in rows_of("SELECT keyword_name FROM duckdb_keywords()")}

    assert words == KEYWORDS


def test_a_type_nested_without_end_is_no_type() -> None:
    """However deep it is, nothing else comes of it."""
    assert ours("STRUCT(a " * 20_000) is None


@pytest.mark.parametrize("name", ["?", "INTEGER_LITERAL"])
def test_what_only_a_database_names_stands_as_its_name(name: str) -> None:
    """So that what another mistake leaves unknown is a type too."""
    assert type_of(name) == Scalar(name)


# What takes the text of a type apart.
_APART = re.compile(
    r"""(startswith|endswith|removeprefix|removesuffix|partition)\(\(?
    ["'](DECIMAL|STRUCT|MAP|UNION|ENUM|TIMESTAMP|TIME|VARCHAR|\[\])
    |endswith\(.\]""",
    re.VERBOSE,
)


def test_nothing_else_takes_the_text_of_a_type_apart() -> None:
    """It would take `DECIMAL(9,2)[]` for a decimal."""
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("codecs", "processor", "serving", "delivering", "src/ikebana")
        for path in sorted((ROOT / folder).glob("**/*.py"))
        for line in path.read_text().splitlines()
        if _APART.search(line)
    ]

    assert wrong == []
