"""What a column's encoded value becomes, by declaration, by schema and by name."""

import base64
import json
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import canonical
from ikebana.codecs.column_encodings import encoding, of_connect, of_name
from ikebana.codecs.encodings import from_base64
from ikebana.codecs.errors import DecodeError

LARGEST = 2**63 - 1


def decimal(unscaled: int) -> str:
    size = unscaled.bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


@pytest.mark.parametrize(
    ("name", "value", "normal"),
    [
        pytest.param("date", 0, "1970-01-01", id="the first day"),
        pytest.param("date", 19753, "2024-01-31", id="a date"),
        pytest.param("date", -719162, "0001-01-01", id="year 1"),
        pytest.param("date", -719163, "0000-12-31", id="year 0"),
        pytest.param("date", -719529, "-0001-12-31", id="before year 0"),
        pytest.param("date", 2932896, "9999-12-31", id="year 9999"),
        pytest.param("date", 2932897, "+10000-01-01", id="year 10000"),
        pytest.param("date", 2**31 - 1, "infinity", id="Postgres's infinity"),
        pytest.param("date", -(2**31), "-infinity", id="Postgres's least date"),
        pytest.param("date", 2**31 - 2, "+5881580-07-10", id="the day before infinity"),
        pytest.param("time-millis", 45296789, "12:34:56.789", id="milliseconds"),
        pytest.param("time-millis", 45296000, "12:34:56", id="no fraction"),
        pytest.param("time-micros", 45296789100, "12:34:56.7891", id="microseconds"),
        pytest.param("time-nanos", 1, "00:00:00.000000001", id="a nanosecond"),
        pytest.param("time-micros", 86_400_000_000, "24:00:00", id="the end of the day"),
        pytest.param("time-micros", -3020399000000, "-838:59:59", id="MySQL's least time"),
        pytest.param("timestamp-millis", 1706704496789, "2024-01-31T12:34:56.789", id="millis"),
        pytest.param("timestamp-micros", 1706704496500000, "2024-01-31T12:34:56.5", id="micros"),
        pytest.param(
            "timestamp-nanos", 1706704496123456789, "2024-01-31T12:34:56.123456789", id="nanos"
        ),
        pytest.param("timestamp-millis", -1, "1969-12-31T23:59:59.999", id="before 1970"),
        pytest.param("timestamp-millis", -62135596800000, "0001-01-01T00:00:00", id="year 1"),
        pytest.param("timestamp-millis", -62135596800001, "0000-12-31T23:59:59.999", id="year 0"),
        pytest.param("timestamp-millis", 253402300799999, "9999-12-31T23:59:59.999", id="9999"),
        pytest.param("timestamp-millis", 253402300800000, "+10000-01-01T00:00:00", id="10000"),
        pytest.param(
            "timestamp-millis", LARGEST, "+292278994-08-17T07:12:55.807", id="the largest"
        ),
        *(
            pytest.param(f"timestamp-{unit}", number // parts, normal, id=f"{normal} in {unit}")
            for unit, parts in {"micros": 1, "millis": 1_000}.items()
            for number, normal in {
                9_223_372_036_825_200_000: "infinity",
                -9_223_372_036_832_400_000: "-infinity",
            }.items()
        ),
        pytest.param(
            "timestamp-micros",
            9_223_372_036_825_199_999,
            "+294247-01-10T04:00:25.199999",
            id="the microsecond before infinity",
        ),
        pytest.param("decimal:2", decimal(12345), 123.45, id="a decimal"),
        pytest.param("decimal:2", decimal(-1), -0.01, id="a negative decimal"),
        pytest.param("decimal:2", decimal(-100), -1, id="a whole decimal"),
        pytest.param("decimal:0", decimal(7), 7, id="scale 0"),
        pytest.param("decimal:-2", decimal(7), 700, id="a negative scale"),
        pytest.param("decimal:3", "", 0, id="no digits"),
        pytest.param("decimal:2", 7.9, 7.9, id="a number, as Connect may write it"),
        pytest.param(
            "decimal:2",
            Decimal("0.1234567890123456789"),
            Decimal("0.1234567890123456789"),
            id="a long number",
        ),
        pytest.param("decimal:2", {"scale": 3, "value": decimal(5)}, 0.005, id="its own scale"),
        pytest.param("timestamp-nanos", LARGEST, "infinity", id="Debezium's infinity"),
        pytest.param("timestamp-nanos", -LARGEST - 1, "-infinity", id="and its negative"),
        pytest.param("json", '{"b": [1, 2.50], "a": null}', {"b": [1, 2.5], "a": None}, id="JSON"),
        pytest.param("json", '"text"', "text", id="a JSON string"),
        pytest.param("json", "null", None, id="JSON's null"),
        pytest.param("json", " 1e0 ", 1, id="a JSON number"),
        pytest.param("json", [1], [1], id="an array, as of text[]"),
        pytest.param("json", {"a": "1"}, {"a": "1"}, id="an object, as of a map"),
        pytest.param("json", True, True, id="a boolean"),
        pytest.param("json[]", ['{"a": 1}', None], [{"a": 1}, None], id="an array of JSON"),
        pytest.param("date[]", [0, None], ["1970-01-01", None], id="an array of dates"),
        pytest.param("date[][]", [[0], []], [["1970-01-01"], []], id="of arrays"),
        pytest.param("interval-micros", 37_091_106_780_000, "PT37091106.78S", id="an interval"),
        pytest.param("interval-micros", -1, "PT-0.000001S", id="a negative interval"),
        pytest.param("interval-micros", 0, "PT0S", id="no time"),
        pytest.param("interval-micros", 1.5, "PT0.000002S", id="parts of a microsecond"),
        pytest.param("interval-micros", "P1Y2M3DT4H5M6.78S", "P1Y2M3DT4H5M6.78S", id="a text"),
        pytest.param("hex", "00fF10", "AP8Q", id="hexadecimal digits"),
        pytest.param("base64", "AP8Q", "AP8Q", id="base64"),
        pytest.param("base64-url-safe", "_-8", "/+8=", id="URL-safe base64"),
        pytest.param("base64-url-safe", "_-8=", "/+8=", id="URL-safe base64, filled up"),
        pytest.param(
            "decimal:20",
            decimal(10**30 + 1),
            Decimal("10000000000.00000000000000000001"),
            id="long",
        ),
    ],
)
def test_declared_encodings(name: str, value: object, normal: object) -> None:
    """Null stays null in all of them."""
    convert = encoding(name).convert

    assert convert(value) == normal
    assert type(convert(value)) is type(normal)
    assert convert(None) is None


@pytest.mark.parametrize(
    "name",
    ["", "dates", "date-millis", "time", "time-seconds", "timestamp", "decimal", "decimal:",
     "decimal:x", "decimal:99999", "decimal:1.5", "base32", "hex:assumed", "json:hex"],
)  # fmt: skip
def test_an_encoding_that_does_not_exist_is_refused(name: str) -> None:
    """The choices are named."""
    with pytest.raises(ValueError, match="time-millis"):
        encoding(name)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        pytest.param("date", "hunter2", "found text", id="text for a date"),
        pytest.param("date", True, "found a boolean", id="a boolean for a date"),
        pytest.param("date", 1.5, "found a fraction", id="a fraction for a date"),
        pytest.param("date", 2**63, "expected a number of days, found", id="beyond 64 bits"),
        pytest.param("date", 10**5_000, "expected a number of days, found", id="far beyond"),
        pytest.param("time-millis", [1], "found an array", id="an array for a time"),
        pytest.param("timestamp-nanos", {"hunter2": 1}, "found an object", id="an object"),
        pytest.param("decimal:2", [1], "expected base64 text, found an array", id="no number"),
        pytest.param(
            "decimal:2", {"scale": 1}, "expected base64 text, found null", id="no digits"
        ),
        pytest.param("json", "hunter2", "expected JSON, found another text", id="no JSON"),
        pytest.param("json", "", "expected JSON, found another text", id="no text"),
        pytest.param("json", "NaN", "expected JSON, found another text", id="no JSON number"),
        pytest.param("json", "\ud800", "expected JSON, found another text", id="no UTF-8"),
        pytest.param("json", "[" * 201 + "]" * 201, "expected JSON, found another", id="too deep"),
        pytest.param("json[]", "[]", "expected an array, found text", id="no array"),
        pytest.param("interval-micros", [1], "found an array", id="an array"),
        pytest.param("structured", 5, "expected an object of the parts", id="no parts"),
        pytest.param("structured", {"year": "x"}, "expected an object of", id="a word for a year"),
        pytest.param("hex", "0g", "expected hexadecimal digits, found text", id="no digit"),
        pytest.param("hex", "abc", "expected hexadecimal digits, found text", id="half a byte"),
        pytest.param("hex", "ab cd", "expected hexadecimal digits, found text", id="a space"),
        pytest.param("base64", "YQ", "expected base64 text, found text", id="not filled up"),
        pytest.param("base64-url-safe", "a+", "expected URL-safe base64 text", id="a plus"),
        pytest.param("base64-url-safe", 5, "URL-safe base64 text, found an integer", id="a five"),
        pytest.param("decimal:2", "hunter2!", "expected base64 text", id="no base64"),
        pytest.param("decimal:2", "MD\u0661=", "expected base64 text", id="no ASCII"),
        pytest.param("decimal:2", decimal(10**400), "too many digits", id="beyond a double"),
        pytest.param("decimal:2", "A" * 1_000_000, "too many digits", id="a million"),
    ],
)
def test_a_value_of_another_type_is_named_by_its_type(
    name: str, value: object, reason: str
) -> None:
    """The value itself is not in the reason."""
    with pytest.raises(DecodeError) as caught:
        encoding(name).convert(value)

    assert reason in caught.value.reason
    assert "hunter2" not in str(caught.value)


TIME, DATA, CONNECT = "io.debezium.time.", "io.debezium.data.", "org.apache.kafka.connect.data."


@pytest.mark.parametrize(
    ("name", "value", "normal"),
    [
        pytest.param(TIME + "Date", 19753, "2024-01-31", id="Date"),
        pytest.param(TIME + "Time", 45296789, "12:34:56.789", id="Time"),
        pytest.param(TIME + "MicroTime", 45296789000, "12:34:56.789", id="MicroTime"),
        pytest.param(TIME + "NanoTime", 45296000000001, "12:34:56.000000001", id="NanoTime"),
        pytest.param(TIME + "Timestamp", 0, "1970-01-01T00:00:00", id="Timestamp"),
        pytest.param(TIME + "MicroTimestamp", 1, "1970-01-01T00:00:00.000001", id="Micro"),
        pytest.param(TIME + "NanoTimestamp", 1, "1970-01-01T00:00:00.000000001", id="Nano"),
        pytest.param(TIME + "ZonedTime", "12:34:56.7890Z", "12:34:56.789Z", id="ZonedTime"),
        pytest.param(TIME + "ZonedTime", "00:30:00+01:00", "23:30:00Z", id="the day before"),
        pytest.param(TIME + "ZonedTime", "23:30:00-01:00", "00:30:00Z", id="the day after"),
        *(
            pytest.param(TIME + "ZonedTimestamp", value, normal, id=value)
            for value, normal in {
                "2024-01-31T12:34:56Z": "2024-01-31T12:34:56Z",
                "2024-01-31T12:34:56.000000Z": "2024-01-31T12:34:56Z",
                "2024-01-31T12:34:56.123456789Z": "2024-01-31T12:34:56.123456789Z",
                "2024-01-31T12:34:56.100+05:30": "2024-01-31T07:04:56.1Z",
                "2024-02-29T23:34:56-05:00": "2024-03-01T04:34:56Z",
                "2024-01-31T12:34Z": "2024-01-31T12:34:00Z",
                "9999-12-31T23:00:00-02:00": "+10000-01-01T01:00:00Z",
                "-0043-03-15T12:00:00.000000Z": "-0043-03-15T12:00:00Z",
                "+294247-01-10T04:00:54.775Z": "+294247-01-10T04:00:54.775Z",
                "infinity": "infinity",
                "-infinity": "-infinity",
            }.items()
        ),
        pytest.param(TIME + "IsoDate", "2024-01-31Z", "2024-01-31", id="IsoDate"),
        pytest.param(TIME + "IsoTime", "12:34:56.50Z", "12:34:56.5", id="IsoTime"),
        pytest.param(
            TIME + "IsoTimestamp", "2024-01-31T12:34:56Z", "2024-01-31T12:34:56", id="IsoTimestamp"
        ),
        pytest.param(CONNECT + "Date", 19753, "2024-01-31", id="Connect's Date"),
        pytest.param(CONNECT + "Time", 1, "00:00:00.001", id="Connect's Time"),
        pytest.param(CONNECT + "Timestamp", 1, "1970-01-01T00:00:00.001", id="Connect's"),
        pytest.param(CONNECT + "Decimal", "MDk=", 123.45, id="Decimal"),
        pytest.param(
            DATA + "VariableScaleDecimal",
            {"scale": 2, "value": "MDk="},
            123.45,
            id="VariableScale",
        ),
    ],
)
def test_semantic_types_of_a_connect_schema(name: str, value: Any, normal: object) -> None:
    """Alone, and in a struct, an array, a map and a map with other keys."""
    node = {"type": "x", "name": name, "optional": True, "parameters": {"scale": "2"}}
    text = {"type": "string"}

    def converted(schema: dict[str, Any], value: object) -> object:
        convert = of_connect(schema)
        assert convert
        assert convert(None) is None
        return convert(value)

    fields = [{**text, "field": "name"}, {**node, "field": "at"}]
    assert converted(node, value) == normal
    assert converted({"type": "struct", "fields": fields}, {"at": value, "name": ""}) == {
        "at": normal,
        "name": "",
    }
    assert converted({"type": "array", "items": node}, [value, None]) == [normal, None]
    as_object = {"type": "map", "keys": text, "values": node}
    assert converted(as_object, {"a": value}) == {"a": normal}
    as_pairs = {"type": "map", "keys": node, "values": text}
    assert converted(as_pairs, [[value, "a"]]) == [[normal, "a"]]


@pytest.mark.parametrize(
    "schema",
    [
        *(
            pytest.param({"type": "x", "name": name}, id=name)
            for name in (
                TIME + "Year", TIME + "MicroDuration", TIME + "NanoDuration", TIME + "Interval",
                DATA + "Json", DATA + "Uuid", DATA + "Enum", DATA + "EnumSet", DATA + "Xml",
                DATA + "Bits", DATA + "Ltree", "somebody.else.Type",
            )
        ),
        *(pytest.param({"type": name}, id=name) for name in ("int64", "bytes", "double", "x")),
        pytest.param({"type": "array", "items": {"type": "bytes"}}, id="an array"),
        pytest.param({"type": "map", "values": {"type": "int8"}}, id="a map"),
        pytest.param({"type": "struct", "fields": [{"type": "bytes", "field": "wkb"}],
                      "name": DATA + "geometry.Point"}, id="a geometry"),
    ],
)  # fmt: skip
def test_what_is_normal_already_is_not_converted(schema: dict[str, Any]) -> None:
    """No call at all, so that it costs nothing."""
    assert of_connect(schema) is None


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({}, id="no type"),
        pytest.param({"type": 1}, id="another type"),
        pytest.param({"type": "struct", "fields": {}}, id="fields that are no list"),
        pytest.param({"type": "bytes", "name": CONNECT + "Decimal"}, id="no scale"),
        pytest.param(
            {"type": "bytes", "name": CONNECT + "Decimal", "parameters": {"scale": "9" * 9}},
            id="a scale beyond reason",
        ),
    ],
)
def test_what_is_no_schema_is_named(schema: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        of_connect(schema)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(TIME + "ZonedTimestamp", "hunter2", id="no timestamp"),
        pytest.param(TIME + "ZonedTimestamp", "2024-02-30T00:00:00Z", id="no such day"),
        pytest.param(TIME + "ZonedTimestamp", "2024-02-03T00:00:00", id="no zone"),
        pytest.param(TIME + "ZonedTimestamp", "\u0662024-01-31T12:34:56Z", id="no ASCII"),
        pytest.param(TIME + "ZonedTimestamp", "2024-02-03T25:00:00Z", id="no such hour"),
        pytest.param(TIME + "ZonedTimestamp", 1, id="no text"),
        pytest.param(TIME + "ZonedTime", "hunter2", id="no time"),
        pytest.param(TIME + "IsoDate", "hunter2", id="no date"),
        pytest.param(DATA + "VariableScaleDecimal", "hunter2", id="no object"),
        pytest.param(DATA + "VariableScaleDecimal", {}, id="neither scale nor value"),
        pytest.param(DATA + "VariableScaleDecimal", {"scale": 1}, id="no value"),
        pytest.param(
            DATA + "VariableScaleDecimal", {"scale": 10**9, "value": "MDk="}, id="a huge scale"
        ),
    ],
)
def test_semantic_types_refuse_what_they_are_not(name: str, value: object) -> None:
    convert = of_name(name, None, from_base64)
    assert convert

    with pytest.raises(DecodeError) as caught:
        convert(value)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param({"type": "array"}, {}, id="an object for an array"),
        pytest.param({"type": "struct"}, [], id="an array for a struct"),
        pytest.param({"type": "map"}, "x", id="text for a map"),
        pytest.param({"type": "map"}, ["x"], id="no pairs for a map"),
    ],
)
def test_containers_refuse_what_they_are_not(schema: dict[str, Any], value: object) -> None:
    day = {"type": "int32", "name": TIME + "Date", "field": "day"}
    convert = of_connect({**schema, "items": day, "fields": [day], "values": day})
    assert convert

    with pytest.raises(DecodeError, match="expected"):
        convert(value)


def test_bytes_may_be_bytes() -> None:
    """As in Avro, where they are no text of base64."""
    convert = of_name(CONNECT + "Decimal", {"scale": "2"})
    variable = of_name(DATA + "VariableScaleDecimal")

    assert convert
    assert variable
    assert convert(b"09") == 123.45
    assert variable({"scale": 2, "value": b"09"}) == 123.45
    with pytest.raises(DecodeError, match="expected bytes, found text"):
        convert("MDk=")


@given(st.integers(-(10**18), 10**18), st.integers(1, 30))
def test_a_decimal_is_that_of_its_digits(unscaled: int, scale: int) -> None:
    """Short ones are divided as doubles: the same bytes come out."""
    digits = f"{abs(unscaled):0{scale + 1}d}"
    written = f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"

    found = encoding(f"decimal:{scale}").convert(decimal(unscaled))

    assert canonical.write(found) == canonical.write(canonical.canonical_number(Decimal(written)))


@given(st.dates(), st.datetimes())
def test_dates_and_timestamps_are_python_s(day: date, moment: datetime) -> None:
    micros = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001

    assert encoding("date").convert((day - date(1970, 1, 1)).days) == day.isoformat()
    found = encoding("timestamp-micros").convert(micros)
    assert datetime.fromisoformat(found) == moment
    assert not found.endswith("0") or "." not in found


@given(st.from_type(object) | st.integers() | st.text() | st.floats() | st.binary())
def test_only_decode_errors_leave(value: object) -> None:
    named = [of_name(TIME + name) for name in ("ZonedTime", "ZonedTimestamp", "IsoDate")]
    for convert in [
        *named,
        *(
            encoding(name).convert
            for name in ("date", "time-nanos", "timestamp-millis", "decimal:9", "json", "hex")
        ),
    ]:
        assert convert
        with suppress(DecodeError):
            json.dumps(convert(value), default=str)
