"""JSON with the id of a schema before it, as serializers of JSON Schema write it."""

import json
from typing import Any

import pytest

from ikebana import Input, Output, Plan, Upsert, evaluate
from ikebana.codecs.change import Change, Needs
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import FORMATS, Format

ROW = b'{"id":7}'
CONFLUENT, APICURIO = bytes(4) + b"\x2a", bytes(8) + b"\x2a"
MESSAGES: dict[Format, Any] = {
    "json": {"id": 7},
    "debezium-json": {"op": "c", "before": None, "after": {"id": 7}},
    "debezium-flat-json": {"id": 7},
    "changes": {"op": "I", "id": 7},
}


@pytest.mark.parametrize("form", MESSAGES)
@pytest.mark.parametrize(("framing", "head"), [("confluent", CONFLUENT), ("apicurio", APICURIO)])
def test_framed_messages_are_read_as_bare_ones(form: Format, framing: str, head: bytes) -> None:
    """Keys that are framed, and keys that are not; a null value stays one."""
    make = FORMATS[form].codec
    assert make is not None
    codec = make(Needs(options={"framing": framing}), "json", None)
    value = head + json.dumps(MESSAGES[form]).encode()

    for key in (head + b"7", b"7"):
        assert codec.key(key) == b"7"
        assert codec.changes(key, value, None) == [Change("upsert", b"7", ROW)]
    assert codec.changes(b"7", None, None) == make(Needs(), "json", None).changes(b"7", None, None)


def test_every_format_in_json_that_registries_serve_takes_it() -> None:
    """Those of the table."""
    assert {name for name, its in FORMATS.items() if "framing" in its.options} - {
        name for name, its in FORMATS.items() if its.encoding == "avro"
    } == set(MESSAGES)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (ROW, "it does not begin with the byte of a schema id"),
        (b"", "it does not begin with the byte of a schema id"),
        (b"\0\0", "it is too short for a schema id"),
        (CONFLUENT, ""),
    ],
)
def test_a_value_that_is_not_framed_is_an_error(value: bytes, reason: str) -> None:
    """With its key."""
    make = FORMATS["json"].codec
    assert make is not None
    codec = make(Needs(options={"framing": "confluent"}), "json", None)

    with pytest.raises(DecodeError) as caught:
        codec.changes(CONFLUENT + b"7", value, None)

    assert reason in caught.value.reason
    assert caught.value.key == b"7"


@pytest.mark.parametrize("mode", ["upsert", "append"])
def test_a_plan_reads_them(mode: Any) -> None:
    """By key, or as rows that stay."""
    source = Input("rows", ("rows",), mode=mode, options=(("framing", "confluent"),))
    upserts = (Upsert("now", "rows"),) if mode == "upsert" else ()
    shown = "now" if upserts else "rows"
    plan = Plan("p", (source,), upserts, (Output("out", shown, "out"),))

    found = evaluate(plan, {"rows": [(CONFLUENT + b"7", CONFLUENT + ROW, 1)]})

    assert [(each.data[1], each.diff) for each in found["out"]] == [({"id": 7}, 1)]
