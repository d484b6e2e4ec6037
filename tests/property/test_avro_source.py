"""The readers that are made for a schema give what fastavro gives, of whatever bytes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import canonical
from ikebana.codecs.avro import AvroDecoder
from ikebana.codecs.avro_compiler import ALL, Compiler, Fields
from ikebana.codecs.avro_source import reader_of
from ikebana.codecs.errors import DecodeError
from support.avro_messages import body
from support.avro_schemas import PREFIX, Known, cases
from support.strategies import unhurried


def outcome(decoder: AvroDecoder, message: bytes) -> bytes | str:
    """The canonical bytes of a message, or the reason why there are none."""
    try:
        return canonical.write(decoder.decode(PREFIX + message))
    except DecodeError as error:
        return str(error)


@unhurried
@given(cases())
def test_a_made_reader_and_fastavro_agree(case: tuple[Any, Fields, list[bytes]]) -> None:
    """On the bytes of the data, and on the reason if the message is damaged."""
    schema, wanted, messages = case
    quick, slow = (AvroDecoder(Known(schema), wanted=wanted) for _ in range(2))
    for message in messages:
        found = outcome(quick, message)
        slow._by_prefix.clear()
        slow._plans = {at: plan._replace(quick=None) for at, plan in quick._plans.items()}

        assert found == outcome(slow, message)


def test_there_is_a_reader_for_the_events_of_debezium() -> None:
    """Of records of simple types, optional and nested, whichever fields are wanted."""
    row = {"type": "record", "name": "Row", "fields": [
        {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]},
    ]}  # fmt: skip
    event = {"type": "record", "name": "Event", "fields": [
        {"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Row"]},
        {"name": "op", "type": "string"},
    ]}  # fmt: skip
    message = body(event, {"before": None, "after": {"id": 7, "name": "a"}, "op": "c"})
    for only in (None, {"after": ALL, "op": ALL}):
        decoder = AvroDecoder(Known(event), wanted=Fields(only))
        data = decoder.decode(PREFIX + message)

        assert data["after"] == {"id": 7, "name": "a"}
        (plan,) = decoder._plans.values()
        assert plan.quick is not None
        assert plan.quick(PREFIX + message, 5) == data


@given(st.text(min_size=1))
def test_names_of_fields_are_data_in_the_source_of_a_reader(name: str) -> None:
    """Whoever writes a schema can name a field as he likes, and no name is executed."""
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": "long"}, {"name": f'{name}": 1/0, "', "type": "long"}],
    }
    compiler = Compiler(pinned=False)
    compiler.node(schema)

    read = reader_of(schema, compiler, ALL)

    assert read is not None
    assert read(b"\x02\x04", 0) == {name: 1, f'{name}": 1/0, "': 2}
