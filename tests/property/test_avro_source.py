"""The readers that are made for a schema give what fastavro gives, of whatever bytes."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import canonical
from ikebana.codecs.avro import AvroDecoder
from ikebana.codecs.avro_compiler import ALL, Compiler, Fields
from ikebana.codecs.avro_schema import self_contained
from ikebana.codecs.avro_source import reader_of
from ikebana.codecs.encodings import encoding
from ikebana.codecs.errors import DecodeError
from support.avro_messages import body
from support.strategies import unhurried

PREFIX = bytes(5)
SIMPLE: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 20_000)),
    ("float", st.floats(width=32)),
    ("double", st.floats() | st.floats(-10, 10) | st.integers(-5, 10**17).map(float)),
    ("string", st.text(max_size=80)),
    ("bytes", st.binary(max_size=80)),
    ({"type": "int", "logicalType": "date"}, st.integers(-(10**6), 10**6)),
    ({"type": "long", "logicalType": "timestamp-micros"}, st.integers(-(10**16), 10**16)),
    ({"type": "long", "connect.name": "io.debezium.time.Timestamp"}, st.integers(0, 10**13)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
     st.binary(max_size=9)),
    ({"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"},
     st.just("2024-01-31T12:34:56Z") | st.text(max_size=3)),
]  # fmt: skip


class Types:
    """Random schemas, each with data that fit it."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._made = 0

    def any(self, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        """A type and its data."""
        kind = self._draw(st.sampled_from(["simple"] * 3 + ["optional"] * 3 + ["record", "named"]))
        if kind == "optional":
            schema, data = self.any(depth)
            if isinstance(schema, list) or schema == "null":
                return schema, data
            first = self._draw(st.booleans())
            return (["null", schema] if first else [schema, "null"]), st.none() | data
        if kind == "record" and depth:
            return self.record(depth - 1)
        if kind == "named":
            self._made += 1
            if self._draw(st.booleans()):
                fixed = {"type": "fixed", "name": f"F{self._made}", "size": 3}
                return fixed, st.binary(min_size=3, max_size=3)
            symbols = ["A", "B", "C"]
            name = f"E{self._made}"
            return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
        found: tuple[Any, st.SearchStrategy[Any]] = self._draw(st.sampled_from(SIMPLE))
        return found

    def record(self, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        """A record of up to five fields, and its data."""
        self._made += 1
        name = f"R{self._made}"
        found = {f"f{at}": self.any(depth) for at in range(self._draw(st.integers(0, 5)))}
        fields = [{"name": field, "type": schema} for field, (schema, _) in found.items()]
        data = st.fixed_dictionaries({field: data for field, (_, data) in found.items()})
        return {"type": "record", "name": name, "fields": fields}, data


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Fields, list[bytes]]:
    """A schema, what is wanted of it, and messages that fit it, or are damaged."""
    schema, data = Types(draw).record(2)
    names = [field["name"] for field in schema["fields"]]
    wanted = ALL
    narrowed: bool = draw(st.booleans())
    if names and narrowed:
        only = dict.fromkeys(draw(st.lists(st.sampled_from(names))), ALL)
        wanted = Fields(only, {names[0]: encoding("date")} if draw(st.booleans()) else {})
    messages: list[bytes] = []
    for value in draw(st.lists(data, min_size=1, max_size=3)):
        whole = body(schema, value)
        messages.append(whole)
        end = draw(st.integers(0, len(whole)))
        messages.append(whole[:end])
        messages.append(whole[:end] + draw(st.binary(max_size=3)) + whole[end + 1 :])
    return schema, wanted, messages


class Known:
    """One schema of a registry."""

    def __init__(self, schema: Any) -> None:
        self._schema = self_contained(schema)

    def parsed(self, id: int | str) -> object:  # noqa: A002
        return self._schema


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
