"""Documents and intervals come through every form that connectors write them in."""

import json
from typing import Any

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from ikebana.codecs import canonical
from ikebana.codecs.avro_schema import self_contained
from ikebana.codecs.canal import Canal
from ikebana.codecs.change import Codec, Needs
from ikebana.codecs.debezium import Debezium, DebeziumFlat
from ikebana.codecs.debezium_avro import DebeziumAvro
from ikebana.codecs.encodings import duration, structured
from ikebana.processor.linear.typed_json import from_json
from support.avro_messages import message
from support.connect_avro import schema_of
from support.connector_values import node_of, struct
from support.strategies import unhurried

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e300, 1e300) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_ROW = struct("Row", id=node_of("int64"), doc=node_of("Json"))
_ENVELOPE = struct("Envelope", before=_ROW, after=_ROW, op=node_of("string"))
_AVRO = schema_of(_ENVELOPE)


class _Known:
    def parsed(self, id: int | str) -> object:  # noqa: A002 -- as registries call it
        return self_contained(_AVRO)


def _event(row: Any) -> Any:
    return {"before": None, "after": row, "op": "c"}


def _canal(row: Any) -> Any:
    return {"type": "INSERT", "data": [{**row, "id": "1"}], "mysqlType": {"id": "bigint"}}


def _decoded(codec: Codec, value: bytes) -> Any:
    (change,) = codec.changes(None, value, None)
    assert not isinstance(change, str)
    assert change.after is not None
    return json.loads(change.after)["doc"]


@settings(unhurried)
@given(DOCUMENTS, st.sampled_from([None, ("doc",), ("doc", "id")]))
def test_any_document_comes_through_every_form(document: Any, columns: Any) -> None:
    """As the JSON that its text is, with all of its digits."""
    text = json.dumps(document)
    expected = json.loads(canonical.canonical(text.encode()))
    wanted = Needs(key=("id",), columns=columns, encodings={"doc": "json:assumed"})
    row = {"id": 1, "doc": text}
    events = {
        "bare": _event(row),
        "with schema": {"schema": _ENVELOPE, "payload": _event(row)},
    }

    for event in events.values():
        assert _decoded(Debezium(wanted), json.dumps(event).encode()) == expected
    assert _decoded(DebeziumFlat(wanted), json.dumps(row).encode()) == expected
    assert _decoded(Canal(wanted), json.dumps(_canal(row)).encode()) == expected
    codec = DebeziumAvro(_Known(), wanted)
    for _ in range(2):
        # The second message of a schema is read by its program.
        assert _decoded(codec, message(1, _AVRO, _event(row))) == expected


PARTS = st.fixed_dictionaries(
    {
        **{name: st.integers(-50, 50) for name in ("years", "months", "days")},
        **{name: st.integers(-99, 99) for name in ("hours", "minutes")},
        "micros": st.integers(-(10**9), 10**9),
    }
)


@settings(unhurried)
@given(PARTS)
def test_an_interval_is_the_same_in_each_form(parts: dict[str, int]) -> None:
    """Parts of a structured duration, and the pattern of `interval.handling.mode=string`."""
    seconds, micros = divmod(abs(parts["micros"]), 10**6)
    sign = -1 if parts["micros"] < 0 else 1
    fraction = f".{micros:06d}".rstrip("0").rstrip(".")
    days = f"P{parts['years']}Y{parts['months']}M{parts['days']}D"
    clock = f"T{parts['hours']}H{parts['minutes']}M{'-' if sign < 0 else ''}{seconds}{fraction}S"
    whole = {**parts, "seconds": sign * seconds, "nanos": sign * micros * 1_000}
    del whole["micros"]
    micros_of_day = (parts["hours"] * 60 + parts["minutes"]) * 60_000_000 + parts["micros"]
    in_sql = (
        f"to_months({parts['years'] * 12 + parts['months']}) + to_days({parts['days']}) "
        f"+ to_microseconds({micros_of_day}::BIGINT)"
    )

    found = [_as_interval(days + clock), _as_interval(structured(whole))]

    (expected,) = duckdb.execute(f"SELECT ({in_sql})::VARCHAR").fetchall()
    assert found == [expected[0], expected[0]]


def _as_interval(text: str | None) -> Any:
    form = from_json("t", "INTERVAL")
    (found,) = duckdb.execute(
        f"SELECT ({form})::VARCHAR FROM (SELECT ? AS t)", [json.dumps(text)]
    ).fetchall()
    return found[0]


@settings(unhurried)
@given(st.integers(-(2**62), 2**62))
def test_microseconds_are_an_interval_of_them(micros: int) -> None:
    """Of no months and days."""
    (expected,) = duckdb.execute("SELECT to_microseconds(?)::VARCHAR", [micros]).fetchall()

    assert _as_interval(duration(micros)) == expected[0]
