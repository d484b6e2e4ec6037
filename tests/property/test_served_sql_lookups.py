"""SQL over keys that are looked up gives what SQL over the whole collection gives."""

import json
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import event, example, given
from hypothesis import strategies as st

from ikebana.processor.base.rows import KeyedUpdate
from ikebana.serving import sql
from ikebana.serving.layout import ShapeLearner, SideShape
from ikebana.serving.sql import SqlError
from support.served_collections import Batch, arrangement, closed
from support.strategies import few

# Spellings of what SQL may take for equal, and of keys beside them.
PARTS = st.sampled_from(
    [
        "1",
        "2",
        '"1"',
        '"a"',
        "1.0",
        "1.5",
        "true",
        "null",
        "[1]",
        "100000000000000000000",
        '"\\u0061"',
    ]
)
OBJECTS = st.one_of(
    st.builds('{{"id":{}}}'.format, PARTS),
    st.builds('{{"id":{},"n":{}}}'.format, PARTS, PARTS),
    st.builds('{{"n":{},"id":{}}}'.format, PARTS, PARTS),
    st.builds('{{"ID":{}}}'.format, PARTS),
)
# Mostly one kind, or nothing would be looked up.
ALIKE = st.sampled_from(
    [
        st.builds('{{"id":{}}}'.format, st.sampled_from(["1", "2", "3"])),
        st.builds('{{"id":{},"n":"{}"}}'.format, st.integers(1, 2), st.sampled_from("ab")),
        st.sampled_from(["1", "2"]),
        st.sampled_from(['"1"', '"a"']),
    ]
)
VALUES = st.sampled_from(
    ['{"v":1}', '{"v":"x"}', '{"v":2.5}', '{"id":7,"v":1}', '{"w":null}', "3", "text", "{}"]
)
WHERE = st.sampled_from(
    [
        "id = 1",
        "id = '1'",
        "id IN (1, 2)",
        "1 = id AND n = 'a'",
        "id = 1 AND n = 1",
        "n = 'a' AND id IN (1, 2)",
        "key = 1",
        "key = 'a'",
        "key IN ('1', 'a')",
        "id = 1 AND v = 1",
    ]
)


@st.composite
def _keys(draw: st.DrawFn) -> list[str]:
    found = draw(st.lists(draw(ALIKE), min_size=1, max_size=5))
    return found + draw(st.lists(st.one_of(OBJECTS, PARTS, st.just("text")), max_size=1))


def _ran(text: str, view: Any) -> Any:
    """The rows of a query with the types of columns, or that it fails."""
    try:
        table: pa.Table = sql.run(text, lambda _: view).table
    except SqlError as error:
        return str(error).split("\n")[0]
    return table.schema.names, table.schema.types, table.to_pylist()


@given(st.lists(st.tuples(_keys(), VALUES), min_size=1, max_size=3), WHERE)
@example([(['{"id":1}'], '{"v":1}'), (['{"id":1,"n":2}'], '{"v":2}')], "id = 1")
@example([(['{"id":1}', '{"id":1.0}'], '{"v":1}')], "id = 1")
@example([(['{"id":1}', '{"id":"1"}'], '{"v":1}')], "id = 1")
@example([(['{"id":1}', '{"ID":2}'], '{"v":1}')], "id = 1")
@example([(['{"id":1}', "1"], '{"v":1}')], "id = 1")
@example([(['{"id":1,"n":"a"}', '{"n":"a","id":1}'], '{"v":1}')], "n = 'a' AND id IN (1, 2)")
@few
def test_a_lookup_gives_what_a_scan_gives(
    batches: list[tuple[list[str], str]], where: str
) -> None:
    """Rows, columns and types, whatever the keys are."""
    text = f"SELECT * FROM things WHERE {where} ORDER BY ALL"
    with tempfile.TemporaryDirectory() as folder:
        made = arrangement(Path(folder) / "things", 100)
        try:
            for number, (keys, value) in enumerate(batches):
                updates = [
                    KeyedUpdate(key.encode(), value.encode(), number, 1)
                    for key in dict.fromkeys(keys)
                ]
                made.apply(closed(Batch(number, number + 1, updates), number))
            view = made.view()
            with mock.patch.object(sql, "_keys", wraps=sql._keys) as asked:
                found = _ran(text, view)
            if asked.called:
                looked = sql._keys(view, asked.call_args.args[1]) is not None
                event("looked up" if looked else "could not be looked up")
            with mock.patch.object(sql, "_keys", return_value=None):
                assert found == _ran(text, view)
        finally:
            made.close()


def test_keys_of_one_shape_are_looked_up() -> None:
    """And those of others are not."""

    def side(*keys: str) -> SideShape:
        seen = ShapeLearner(SideShape(), exact=True)
        for key in keys:
            seen.add(key.encode())
        return seen.side

    assert side("1", "22").looked_up() == {"key": "BIGINT"}
    assert side('{"a":1,"b":"x"}', '{"a":2,"b":"ä"}').looked_up() == {
        "a": "BIGINT",
        "b": "VARCHAR",
    }
    for others in (
        ["1", '"a"'],
        ["1", "1.5"],
        ["1.0"],
        ["text"],
        ["true"],
        ["null"],
        ['{"a":1}', "1"],
        ['{"a":1}', '{"b":1}'],
        ['{"a":1}', '{"a":1,"b":1}'],
        ['{"a":1,"A":1}'],
        ['{"b":1,"a":1}'],
        ['{"a": 1}'],
        ['{"a":null}'],
        ['"\\u0061"'],
        ["{}"],
        ["1", "9223372036854775808"],
        [],
    ):
        assert side(*others).looked_up() is None, others


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**130), 2**130)
    | st.floats(allow_nan=False)
    | st.text(max_size=3),
    lambda inner: (
        st.dictionaries(st.text(max_size=2), inner, max_size=3) | st.lists(inner, max_size=2)
    ),
    max_leaves=5,
)


@given(st.lists(JSON.map(json.dumps) | st.text(max_size=3), max_size=6))
@example(['{"":1}'])
@example(['{"a\\u0000":1}'])
@few
def test_whatever_values_are_there_is_a_table_of_them(texts: list[str]) -> None:
    """With a row for each."""
    raw = [text.encode("utf-8", "surrogatepass") for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        made = arrangement(Path(folder) / "things", 100)
        try:
            updates = [KeyedUpdate(b"%d" % n, value, 0, 1) for n, value in enumerate(raw)]
            made.apply(closed(Batch(0, 1, updates), 0))
            view = made.view()
            found = sql.run("SELECT count(*) AS n FROM things", lambda _: view).table
            assert found.to_pylist() == [{"n": len(raw)}]
        finally:
            made.close()
