"""What compiled code reads of Debezium's messages in JSON, beside what Python reads of them."""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import canonical
from ikebana.codecs.change import Change, DeclaredColumns, Needs
from ikebana.codecs.debezium import Debezium, DebeziumFlat
from ikebana.codecs.debezium_rows import PLACEHOLDER
from ikebana.codecs.errors import DecodeError

KEY = b'{"id":1}'
ROW = {"id": 1, "name": "frank"}
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text(max_size=2)
UNAVAILABLE = (PLACEHOLDER, b64encode(PLACEHOLDER.encode()).decode(), [PLACEHOLDER])
VALUES: st.SearchStrategy[object] = SCALARS | st.sampled_from([*UNAVAILABLE, {}])
ROWS = st.none() | st.fixed_dictionaries({}, optional={"id": VALUES, "name": VALUES, "x": VALUES})
TYPED = st.fixed_dictionaries({"id": SCALARS, "name": VALUES, "x": VALUES, "y": st.floats(-2, 2)})
# What stands in the place of the last bracket of a message.
ENDS = st.sampled_from([b"}", b"}", b"}", b"", b"}}", b',"id":1}', b',"more":1}', b"} ", b"]"])


def schema_of(decimal: str) -> dict[str, object]:
    """The schema of an event or a flat row, in which a column may be a decimal."""
    types: dict[str, dict[str, object]] = {
        "id": {"type": "int32"},
        "name": {"type": "string"},
        "x": {"type": "int32"},
    }
    if decimal:
        name = "org.apache.kafka.connect.data.Decimal"
        types[decimal] = {"type": "bytes", "name": name, "parameters": {"scale": "2"}}
    row = [{"field": each, "optional": True, **of} for each, of in types.items()]
    images = [{"field": each, "type": "struct", "fields": row} for each in ("before", "after")]
    return {"type": "struct", "fields": [*images, *row], "optional": False}


SCHEMAS = st.sampled_from([None, None, schema_of(""), schema_of("x"), schema_of("name")])


def message_of(payload: object, schema: object, end: bytes) -> bytes:
    whole = payload if schema is None else {"schema": schema, "payload": payload}
    return json.dumps(whole, separators=(",", ":")).encode().removesuffix(b"}") + end


def decoded(codec: Debezium | DebeziumFlat, message: bytes, key: bytes | None = KEY) -> object:
    try:
        return codec.changes(key, message, None)
    except DecodeError as error:
        return str(error)


@given(
    st.sampled_from([None, ("id", "name")]),
    st.lists(st.tuples(st.sampled_from("curd"), TYPED | ROWS, TYPED | ROWS, SCHEMAS, ENDS)),
)
def test_an_event_with_its_schema_is_decoded_as_by_python(
    columns: tuple[str, ...] | None, messages: list[tuple[Any, ...]]
) -> None:
    """Whatever schemas came before, and whatever the end of a message."""
    quick, slow = (Debezium(Needs(columns=columns, before=True, key=("id",))) for _ in range(2))
    slow._compiled = None
    for op, before, after, schema, end in messages:
        message = message_of({"before": before, "after": after, "op": op}, schema, end)

        assert decoded(quick, message) == decoded(slow, message)


FLAT_ROWS = st.fixed_dictionaries(
    {"id": SCALARS},
    optional={
        "name": VALUES,
        "x": VALUES,
        "payload": st.just({"id": 1}),
        "__deleted": st.sampled_from([None, False, "false", "true", True, 0, 1, {}]),
        "__op": st.sampled_from(["c", "u", "r", "d", "t", "?", None, 1]),
        "__table": SCALARS,
    },
)


@given(
    st.sampled_from([None, ("id", "name"), ("id", "__op")]),
    st.sampled_from([(), ("id",), ("name",)]),
    st.sampled_from([{}, {"__op": "VARCHAR"}]),
    st.lists(
        st.tuples(
            st.permutations(["name", "id", "payload"]),
            FLAT_ROWS,
            SCHEMAS,
            ENDS,
            st.sampled_from([KEY, KEY, KEY, None, b"{", b"1"]),
        )
    ),
)
def test_a_flat_row_is_decoded_as_by_python(
    columns: tuple[str, ...] | None,
    key: tuple[str, ...],
    declared: dict[str, str],
    messages: list[tuple[Any, ...]],
) -> None:
    """With marks, placeholders and schemas, and whatever is the first field."""
    needs = Needs(columns=columns, key=key, declared=DeclaredColumns(declared))
    quick, slow = DebeziumFlat(needs), DebeziumFlat(needs)
    slow._compiled = None
    for names, row, schema, end, kafka_key in messages:
        ordered = {name: row[name] for name in (*names, *row) if name in row}
        message = message_of(ordered, schema, end)

        assert decoded(quick, message, kafka_key) == decoded(slow, message, kafka_key)


@pytest.mark.parametrize(
    "marks",
    [{}, {"__deleted": "false"}, {"__op": "r", "__deleted": "false"}, {"__op": "u"}],
)
def test_plain_flat_rows_are_left_to_compiled_code(marks: dict[str, str]) -> None:
    """Those of a new row, of a snapshot and of an update, bare or with the schema of before."""
    codec = DebeziumFlat(Needs())
    if codec._compiled is None:
        pytest.skip("the compiled code is not built, or switched off")
    expected = Change("upsert", KEY, canonical.encode(ROW), replaces=marks.get("__op") == "u")
    wrapped = message_of({**ROW, **marks, "__lsn": 5}, schema_of(""), b"}")
    assert codec.changes(KEY, wrapped, None) == [expected]
    for message in (wrapped, message_of({**ROW, **marks, "__lsn": 5}, None, b"}")):
        assert codec._usual(KEY, message) == [expected]
