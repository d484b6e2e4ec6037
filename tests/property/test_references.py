"""References to columns, which are parsed and printed without the parser."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ikebana.processor.linear.database import rows_of
from ikebana.processor.linear.scope import ExpressionError
from ikebana.processor.linear.syntax import select_of, sql_of, text_of, tree_of

_WORDS = [
    name
    for sql in (
        "SELECT keyword_name FROM duckdb_keywords()",
        "SELECT DISTINCT function_name FROM duckdb_functions()",
        "SELECT DISTINCT type_name FROM duckdb_types()",
    )
    for (name,) in rows_of(sql)
]
_names = st.sampled_from([*_WORDS, "rowid", "E", "x"]) | st.text("ab_9A \"'.$\\é", min_size=1)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@given(st.lists(_names | _names.map(str.upper) | _names.map(_quoted), min_size=1, max_size=4))
def test_a_reference_has_the_tree_that_duckdb_makes(parts: list[str]) -> None:
    text = ".".join(parts)
    answer = tree_of(text)
    if answer["error"]:
        with pytest.raises(ExpressionError):
            select_of(text)
    else:
        node = answer["statements"][0]["node"]
        assume(node["select_list"][0]["class"] == "COLUMN_REF")
        assert select_of(text) == node


@given(st.lists(_names, min_size=1, max_size=3))
def test_a_reference_is_printed_as_duckdb_prints_it(names: list[str]) -> None:
    node = {**select_of("a")["select_list"][0], "column_names": names}
    assert text_of(node) == sql_of({**select_of("1"), "select_list": [node]})
