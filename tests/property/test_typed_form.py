"""The typed form of a statement has the results of the one that casts JSON texts."""

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import canonical
from ikebana.codecs.errors import DecodeError
from ikebana.processor.linear import query as query_module
from ikebana.processor.linear.query import Query
from ikebana.processor.linear.scope import KEY, VALUE, Scope, StepError
from ikebana.processor.linear.steps import Sql
from ikebana.processor.linear.typed_json import TEXT, JsonColumn, column_of
from support.strategies import few, numbers

KINDS = ["INTEGER", "BIGINT", "UBIGINT", "DOUBLE", "BOOLEAN", "VARCHAR", "JSON", "DECIMAL(12,2)"]
KINDS += ["DECIMAL(38,0)", "DECIMAL(38,38)", "FLOAT", "DECIMAL(20,2)[]"]
TEXTS = st.one_of(
    st.just("null"),
    numbers().map(lambda number: number.text),
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-99, 99).map(str),
    st.decimals(-1000, 1000, places=2).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    st.text().map(json.dumps),
    st.text().map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(["true", "false", "[]", "[1]", "{}", '""', '"5"', '"\\u0000"', '"\\ud800"']),
    st.sampled_from(["1e400", "-0", "-0.0", "1e2", "9" * 39, "0." + "1" * 39, '"true"', '"null"']),
)


def canonical_of(text: str) -> bytes | None:
    """The text in canonical form; None of what is none."""
    try:
        return canonical.canonical(text.encode())
    except (DecodeError, UnicodeEncodeError):
        return None


def of_texts(texts: JsonColumn, kind: pa.DataType) -> pa.Array | None:
    """No column of values, so the plain form is used."""
    return column_of(texts, kind) if kind in (TEXT, pa.binary()) else None


def both(query: Query, values: Sequence[bytes]) -> list[object]:
    """What the forms have made of rows."""
    found: list[object] = []
    for columns in (column_of, of_texts):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(query_module, "column_of", columns)
            found.append(query.outcome([b"1"] * len(values), values))
    return found


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
@few
def test_the_typed_form_has_the_results_of_the_plain_one(kind: str, texts: list[str]) -> None:
    """R17. Of each type and each text, in a batch with others, and as a whole value."""
    query = Query(
        [Sql(select=(("r", "x"), ("whole", "value")))],
        Scope({"x": kind, KEY: "JSON", VALUE: "JSON"}),
    )
    known = [text for text in map(canonical_of, texts) if text is not None]
    values = [b'{"x":' + text + b"}" for text in known] + [b"{}", b"[]"]

    typed, plain = both(query, values)

    assert typed == plain


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("BIGINT", b"-5", pa.int64()),
        ("DOUBLE", b"2.5", pa.float64()),
        ("DECIMAL(9,2)", b"2.50", pa.decimal128(9, 2)),
        ("BOOLEAN", b"true", pa.bool_()),
        ("VARCHAR", b'"a\\"b"', pa.large_string()),
    ],
)
def test_usual_texts_become_values(kind: str, text: bytes, expected: pa.DataType) -> None:
    """Beside null; the property would hold of a form that is never used, too."""
    query = Query([Sql(select=(("r", "x"),))], Scope({"x": kind, KEY: "JSON", VALUE: "JSON"}))
    assert query._typed.schema.field("ikebana_field0").type == expected

    made = column_of([text, None], expected)

    assert made is not None
    assert made.type == expected
    assert made.null_count == 1


KEYS = [None, '"a"', "{'k%0': \"a\", 'k\"1': b}", "{'k0': b, 'K1': (\"a\")}"]
SELECTS: list[tuple[tuple[str, str], ...] | None] = [
    None,
    (("z", '"a"'), ("%b", "b"), ("é", '("a")')),
    (("a0", "CAST(NULL AS DOUBLE)"), ("z", '"a"'), ("%n", "CAST(NULL AS VARCHAR)")),
]


@pytest.mark.parametrize("kind", ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "VARCHAR", "JSON"])
@given(
    texts=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4),
    key=st.sampled_from(KEYS),
    select=st.sampled_from(SELECTS),
)
def test_what_only_picks_columns_is_what_sql_makes(
    kind: str,
    texts: list[tuple[str, str]],
    key: str | None,
    select: tuple[tuple[str, str], ...] | None,
) -> None:
    """Keys and values are the same bytes, whether texts stay as they are or go through SQL."""
    rows = [(canonical_of(one), canonical_of(other)) for one, other in texts]
    values = [b'{"a":%b,"b":%b}' % (a, b) for a, b in rows if a is not None and b is not None]
    if (key is None and select is None) or not values:
        return
    scope = Scope({"a": kind, "b": "JSON", KEY: "JSON", VALUE: "JSON"})
    query = Query((Sql(select=select, key=key),), scope)
    assert query._picking is not None
    found = query.outcome([b"1"] * len(values), values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query, "_picking", None)
        assert query.outcome([b"1"] * len(values), values) == found


@pytest.mark.parametrize(
    "kind", ["SMALLINT", "HUGEINT", "DOUBLE", "DECIMAL(9,2)", "DATE", "TIMESTAMP", "UUID", "JSON"]
)
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("select", SELECTS)
def test_what_picks_columns_reads_and_makes_what_its_statement_does(
    kind: str, key: str | None, select: tuple[tuple[str, str], ...] | None
) -> None:
    """So that the types of its results are there without a statement."""
    if key is None and select is None:
        return
    scope = Scope({"a": kind, "b": "BOOLEAN", KEY: "JSON", VALUE: "JSON"})
    query = Query((Sql(select=select, key=key),), scope)

    assert "_typed" not in vars(query)
    for name in ("fields", "reads_key", "reads_value", "makes_value", "makes_key", "result"):
        assert getattr(query, name) == getattr(query._typed, name), name


@pytest.mark.parametrize(
    "step",
    [
        Sql(select=(("a", "a + 1"),)),
        Sql(select=(("a", "CAST(NULL AS BIGINT)"),)),
        Sql(select=(("a", "a"),), where=("a > 1",)),
        Sql(key="a", diff="2"),
        Sql(key="key"),
        Sql(select=(("a", "a::VARCHAR"),)),
        Sql(key="{'a': a, 'b': [a]}"),
    ],
    ids=str,
)
def test_what_does_more_than_pick_is_sql(step: Sql) -> None:
    """Expressions, conditions, casts, counts, and whole keys are SQL's."""
    assert Query((step,), Scope({"a": "BIGINT", KEY: "JSON", VALUE: "JSON"}))._picking is None


@pytest.mark.parametrize("name", ["current_date", '"current_date"', '"CURRENT_TIMESTAMP"'])
def test_what_is_no_column_is_refused_also_where_columns_are_picked(name: str) -> None:
    """Names that SQL takes for functions, in quotes or not; no statement is made to see it."""
    scope = Scope({"a": "BIGINT", KEY: "JSON", VALUE: "JSON"}, open=True)
    with pytest.raises(StepError, match="depends on more than the datum"):
        Query((Sql(select=(("x", name),)),), scope)
