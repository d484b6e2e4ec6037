"""Random Avro schemas, with data and messages that fit them, or are damaged."""

from typing import Any

from hypothesis import strategies as st

from ikebana.codecs.avro_compiler import ALL, Fields
from ikebana.codecs.avro_schema import self_contained
from ikebana.codecs.column_encodings import encoding
from support.avro_messages import body

PREFIX = bytes(5)
_LONGS = st.integers(-(2**63), 2**63 - 1)
_ZONED = st.datetimes().map(lambda at: f"{at.isoformat()}Z") | st.sampled_from(
    ["2024-01-31T12:34:56Z", "2023-02-29T00:00:00Z", "2024-01-31T12:34:56.100Z", "infinity",
     "2024-01-31T12:34:56.000Z", "2024-01-31T12:34:56.1234567Z", "2024-01-31T24:00:00Z",
     "2024-01-31T12:34:56+01:00", "0000-01-31T12:34:56Z", "2024-1-31T12:34:56.001Z"]
)  # fmt: skip


def _semantic(kind: Any, name: str, **given: Any) -> dict[str, Any]:
    return {"type": kind, "connect.name": name, **given}


def _decimal(name: str, scale: int) -> dict[str, Any]:
    return _semantic("bytes", name, **{"connect.parameters": {"scale": str(scale)}})


def _unscaled(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)


_SIMPLE: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", _LONGS | st.integers(-200, 20_000)),
    ("float", st.floats(width=32) | st.integers(-(10**7), 10**7).map(lambda at: at / 1000)),
    ("double", st.floats() | st.floats(-10, 10) | st.integers(-5, 10**17).map(float)),
    ("double", st.builds(lambda n, k: n / 10**k, st.integers(-(10**16), 10**16),
                         st.integers(0, 20))),
    ("string", st.text(max_size=80)),
    ("string", st.text(st.sampled_from('ab"\\\n\x00\x1f\x7fä€😀'), max_size=40)),
    ("bytes", st.binary(max_size=80)),
]  # fmt: skip
_MEANT: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ({"type": "int", "logicalType": "date"}, st.integers(-(10**6), 10**6)),
    ({"type": "int", "logicalType": "time-millis"}, st.integers(-5, 10**8)),
    ({"type": "long", "logicalType": "timestamp-micros"}, st.integers(-(10**16), 10**16)),
    ({"type": "long", "logicalType": "timestamp-millis"}, st.integers(0, 10**13)),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, _LONGS),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
     st.binary(max_size=9)),
    (_semantic("int", "io.debezium.time.Date"), st.integers(-(2**31), 2**31 - 1)),
    (_semantic("long", "io.debezium.time.Timestamp"), st.integers(0, 10**13)),
    (_semantic("long", "io.debezium.time.MicroTimestamp"), st.integers(-(10**17), 10**18)),
    (_semantic("long", "io.debezium.time.NanoTimestamp"), _LONGS),
    (_semantic("long", "io.debezium.time.MicroTime"), st.integers(-1, 86_400_000_001)),
    (_semantic("long", "io.debezium.time.NanoTime"), st.integers(0, 10**14)),
    (_semantic("string", "io.debezium.time.ZonedTimestamp"), _ZONED | st.text(max_size=3)),
    (_semantic("string", "io.debezium.time.IsoTimestamp"), _ZONED),
    (_semantic("int", "io.debezium.time.ZonedTimestamp"), st.just(1)),
    *((_decimal("org.apache.kafka.connect.data.Decimal", scale),
       st.integers(-(10**20), 10**20).map(_unscaled) | st.integers(-(10**6), 10**6).map(_unscaled))
      for scale in (0, 2, 18, 30, -3)),
]  # fmt: skip
_SIMPLE += [pair for pair in _MEANT for _ in range(2)]
_NAMES = st.text(st.sampled_from('abAB_"\\é€😀'), min_size=1, max_size=3)


class Types:
    """Random schemas, each with data that fit it."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._made = 0

    def any(self, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        """A type and its data."""
        kinds = ["simple"] * 6 + ["optional"] * 6 + ["record"] * 2 + ["named"] * 2 + ["array"]
        kind = self._draw(st.sampled_from(kinds))
        if kind == "optional":
            schema, data = self.any(depth)
            if isinstance(schema, list) or schema == "null":
                return schema, data
            first = self._draw(st.booleans())
            return (["null", schema] if first else [schema, "null"]), st.none() | data
        if kind == "record" and depth:
            return self.record(depth - 1)
        if kind == "array":
            schema, data = self.any(depth)
            if schema != "null" and not isinstance(schema, dict):
                return {"type": "array", "items": schema}, st.lists(data, max_size=5)
            return schema, data
        if kind == "named":
            return self._named()
        found: tuple[Any, st.SearchStrategy[Any]] = self._draw(st.sampled_from(_SIMPLE))
        return found

    def _named(self) -> tuple[Any, st.SearchStrategy[Any]]:
        self._made += 1
        kind = self._draw(st.sampled_from(["fixed", "decimal", "enum", "variable"]))
        if kind == "fixed":
            fixed = {"type": "fixed", "name": f"F{self._made}", "size": 3}
            return fixed, st.binary(min_size=3, max_size=3)
        if kind == "decimal":
            name, size = f"D{self._made}", {"size": 4, "precision": 9, "scale": 3}
            schema = {"type": "fixed", "name": name, "logicalType": "decimal", **size}
            return schema, st.binary(min_size=4, max_size=4)
        if kind == "variable":
            fields = [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]
            schema = _semantic("record", "io.debezium.data.VariableScaleDecimal", fields=fields)
            number = {"scale": st.integers(-3, 30), "value": st.binary(max_size=9)}
            return {**schema, "name": f"V{self._made}"}, st.fixed_dictionaries(number)
        symbols = ["A", "B", "C"]
        name = f"E{self._made}"
        return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)

    def record(self, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        """A record of up to five fields, and its data."""
        self._made += 1
        name = f"R{self._made}"
        names = self._draw(st.lists(_NAMES, max_size=5, unique=True))
        found = {field: self.any(depth) for field in names}
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
        messages += damaged(draw, body(schema, value))
    return schema, wanted, messages


def damaged(draw: st.DrawFn, whole: bytes) -> list[bytes]:
    """A message, its beginning, and one with other bytes at a place."""
    end = draw(st.integers(0, len(whole)))
    return [whole, whole[:end], whole[:end] + draw(st.binary(max_size=3)) + whole[end + 1 :]]


class Known:
    """One schema of a registry."""

    def __init__(self, schema: Any) -> None:
        self._schema = self_contained(schema)

    def parsed(self, id: int | str) -> object:  # noqa: A002 -- as registries call it
        """The schema, whatever the id."""
        return self._schema
