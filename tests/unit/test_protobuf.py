"""Protobuf by the schemas of a registry: rows of messages, and messages of rows."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ikebana import Column, Input, Output, Plan, PlanError, Upsert
from ikebana.codecs import canonical
from ikebana.codecs.avro_schema import SchemaUnknown
from ikebana.codecs.change import Needs
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.output_messages import Ids, OutputMessage, OutputShape, encoded, framed
from ikebana.codecs.protobuf import (
    File,
    ProtobufDecoder,
    ProtobufUpserts,
    indexes_of,
    library,
    message_at,
    parsed_text,
    pool_of,
)
from ikebana.codecs.protobuf_out import (
    back,
    carries,
    files_of,
    name_problem,
    names,
    number_of,
    schemas,
    writers,
)
from ikebana.codecs.sql_type import parsed
from ikebana.errors import ConfigError
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.engine.testing.run import Run
from ikebana.processor.kafka.diff_topic import OutputReader
from ikebana.processor.planning.checking import checked
from ikebana.processor.planning.outputs import shape_of

pytest.importorskip("google.protobuf", reason="Protobuf is an extra")
TIME = [("time", b"7")]


class Described:
    """Schemas by their ids, as a registry describes them."""

    def __init__(self, given: Mapping[int, Sequence[File]]) -> None:
        self._given = given

    def described(self, id: int | str) -> Sequence[File]:  # noqa: A002 -- as in `Descriptions`
        if id not in self._given:
            raise SchemaUnknown
        return self._given[id]  # type: ignore[index]

    def parsed(self, id: int | str) -> object:  # noqa: A002 -- as in `Schemas`
        raise SchemaUnknown("its schema is no Avro schema")


def of_shapes(*shapes: OutputShape) -> Described:
    """Those of shapes: 1 of the first one's keys, 2 of its values, and so on."""
    files = [file for shape in shapes for file in files_of(shape)]
    return Described({at: [serialized(file)] for at, file in enumerate(files, 1)})


def serialized(file: Any) -> File:
    return file.name, file.SerializeToString()


def described(text: str, path: str = "rows.proto") -> Any:
    """A file, of its description as text."""
    from google.protobuf import text_format

    file = library().descriptor_pb2.FileDescriptorProto(name=path, syntax="proto3")
    return text_format.Parse(text, file)


def field(name: str, number: int, kind: str, *more: str) -> str:
    """A field in a description; `kind` is a scalar, or the full name of a type."""
    of = f"type: TYPE_{kind}" if kind.isupper() else f'type_name: "{kind}"'
    label = "" if any("label" in each for each in more) else "label: LABEL_OPTIONAL"
    return f'field {{ name: "{name}" number: {number} {of} {label} {" ".join(more)} }}'


REPEATED = "label: LABEL_REPEATED"
WIDE = f"""
package: "shop" dependency: "google/protobuf/timestamp.proto"
dependency: "google/protobuf/wrappers.proto" dependency: "google/protobuf/struct.proto"
dependency: "google/protobuf/duration.proto" dependency: "google/type/date.proto"
dependency: "google/type/timeofday.proto" dependency: "confluent/type/decimal.proto"
enum_type {{ name: "Kind" value {{ name: "NONE" number: 0 }} value {{ name: "SOME" number: 1 }} }}
message_type {{
  name: "Row"
  {field("id", 1, "INT64")}
  {field("flag", 2, "BOOL")}
  {field("text", 3, "STRING")}
  {field("raw", 4, "BYTES")}
  {field("single", 5, "FLOAT")}
  {field("double", 6, "DOUBLE")}
  {field("kind", 7, ".shop.Kind", "type: TYPE_ENUM")}
  {field("maybe", 8, "INT32", "proto3_optional: true oneof_index: 1")}
  {field("one", 9, "STRING", "oneof_index: 0")}
  {field("other", 10, "INT32", "oneof_index: 0")}
  {field("list", 11, "INT32", REPEATED)}
  {field("map", 12, ".shop.Row.MapEntry", REPEATED)}
  {field("inner", 13, ".shop.Row")}
  {field("at", 14, ".google.protobuf.Timestamp")}
  {field("day", 15, ".google.type.Date")}
  {field("clock", 16, ".google.type.TimeOfDay")}
  {field("price", 17, ".confluent.type.Decimal")}
  {field("wrapped", 18, ".google.protobuf.Int64Value")}
  {field("any", 19, ".google.protobuf.Struct")}
  {field("length", 20, ".google.protobuf.Duration")}
  oneof_decl {{ name: "choice" }} oneof_decl {{ name: "_maybe" }}
  nested_type {{
    name: "MapEntry" options {{ map_entry: true }}
    {field("key", 1, "BOOL")} {field("value", 2, "STRING")}
  }}
  nested_type {{ name: "Part" {field("n", 1, "INT32")} }}
}}
"""
EMPTY = {
    **{"id": 0, "flag": False, "text": "", "raw": "", "single": 0, "double": 0, "kind": "NONE"},
    **{"maybe": None, "one": None, "other": None, "list": [], "map": {}, "inner": None},
    **dict.fromkeys(("at", "day", "clock", "price", "wrapped", "any", "length")),
}


def wide() -> tuple[Described, Any]:
    """The registry of the wide message with the id 7, and the message's class."""
    file = described(WIDE)
    return Described({7: [serialized(file)]}), message_at(
        pool_of([serialized(file)]), file.name, (0,)
    )


def prefixed(body: bytes, place: bytes = b"\0", number: int = 7) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + place + body


def test_a_message_that_says_nothing_has_the_defaults_of_its_fields() -> None:
    """Fields with presence are null."""
    schemas, _ = wide()

    assert ProtobufDecoder(schemas).decode(prefixed(b"")) == EMPTY


def test_each_type_has_a_form_in_json() -> None:
    """Scalars, containers and the types that everybody knows."""
    schemas, kind = wide()
    row = kind(id=2**62, flag=True, text="é", raw=b"\xff", single=0.1, double=1.5, kind=1)
    row.maybe, row.other, row.inner.id = 0, 0, 3
    row.list.extend([1, 2])
    row.map[True] = "yes"
    row.at.seconds, row.at.nanos = 1, 500_000_000
    row.day.year, row.day.month, row.day.day = 2024, 1, 31
    row.clock.hours, row.clock.nanos = 23, 1_000_000
    row.price.value, row.price.scale = (-1250).to_bytes(2, "big", signed=True), 2
    row.wrapped.value = 7
    row.any.update({"a": [1, None, True, "x"], "b": {"c": 0.5}})
    row.length.seconds, row.length.nanos = 1, 500_000_000

    found = ProtobufDecoder(schemas).decode(prefixed(row.SerializeToString()))

    assert found == {
        **{"id": 2**62, "flag": True, "text": "é", "raw": "/w==", "single": 0.1, "double": 1.5},
        **{"kind": "SOME", "maybe": 0, "one": None, "other": 0, "list": [1, 2]},
        **{"map": {"true": "yes"}, "inner": {**EMPTY, "id": 3}, "at": "1970-01-01T00:00:01.5Z"},
        **{"day": "2024-01-31", "clock": "23:00:00.001", "price": -12.5, "wrapped": 7},
        **{"any": {"a": [1, None, True, "x"], "b": {"c": 0.5}}, "length": "PT1.5S"},
    }


@pytest.mark.parametrize(
    ("seconds", "nanos", "shown"),
    [
        (253_402_300_799, 999_999_999, "9999-12-31T23:59:59.999999999Z"),
        (-62_135_596_800, 0, "0001-01-01T00:00:00Z"),
        (9_223_372_036, 854_775_807, "2262-04-11T23:47:16.854775807Z"),
        (-1, 500_000_000, "1969-12-31T23:59:59.5Z"),
    ],
)
def test_a_timestamp_may_be_of_any_year_of_protobuf(seconds: int, nanos: int, shown: str) -> None:
    """Its nanoseconds since 1970 may need more than 64 bits."""
    schemas, kind = wide()
    row = kind()
    row.at.seconds, row.at.nanos = seconds, nanos

    found = ProtobufDecoder(schemas).decode(prefixed(row.SerializeToString()))

    assert found["at"] == shown


DEFAULTS = r"""
syntax = "proto2";
message Row {
  enum Kind { option allow_alias = true; NONE = 0; FIRST = 1; SECOND = 1; }
  optional int32 number = 1 [deprecated = true, default = -5];
  optional string text = 2 [default = 'a\303\251, "b]"', (x.y) = { default: 1 }];
  optional bytes raw = 3 [default = "\377x"];
  optional Kind kind = 4 [default = SECOND];
  optional double least = 5 [default = -inf];
  optional int32 none = 6 [(z).default = 3];
  optional string cleared = 7 [default = ""];
}
"""


def test_defaults_and_aliases_of_the_text_of_a_schema_count() -> None:
    """A number of an enumeration is its first name, as in Java."""
    schemas = Described({7: [serialized(parsed_text("rows.proto", DEFAULTS))]})

    assert ProtobufDecoder(schemas).decode(prefixed(b"")) == {
        **{"number": -5, "text": 'aé, "b]"', "raw": "/3g=", "kind": "FIRST"},
        **{"least": "-Infinity", "none": None, "cleared": ""},
    }


def test_a_text_that_is_not_utf_8_is_refused() -> None:
    """In proto2 the library gives its bytes."""
    text = 'syntax = "proto2"; message Row { optional string name = 1; }'
    schemas = Described({7: [serialized(parsed_text("rows.proto", text))]})

    assert ProtobufDecoder(schemas).decode(prefixed(b"\n\2\xc3\xa9")) == {"name": "é"}
    with pytest.raises(DecodeError, match="a text is not UTF-8"):
        ProtobufDecoder(schemas).decode(prefixed(b"\n\1\xff"))


def test_a_message_is_found_by_its_place() -> None:
    """Here the second one within the first."""
    schemas, _ = wide()

    assert ProtobufDecoder(schemas).decode(prefixed(b"\x08\x05", bytes([4, 0, 2]))) == {"n": 5}
    assert indexes_of(bytes([0]), 0) == ((0,), 1)


@pytest.mark.parametrize(
    ("message", "headers", "reason"),
    [
        (b"", None, "it is empty"),
        (b"\1", None, "it is too short for a schema id"),
        (prefixed(b"", number=8), None, "schema id is unknown"),
        (prefixed(b"", b""), None, "it is too short for the place of its type"),
        (prefixed(b"", bytes([2, 18])), None, "no message at the place"),
        (prefixed(b"", bytes([1])), None, "it does not say of which message"),
        (prefixed(b"\xff"), None, "its body does not fit its schema"),
        (prefixed(b"\x1a\x01\xff"), None, "its body does not fit its schema"),
        (b"", [("__value_schema_id", bytes(5))], "a header names its schema"),
    ],
)
def test_what_is_no_message_is_refused(message: bytes, headers: Any, reason: str) -> None:
    """With a reason that has none of it."""
    schemas, _ = wide()
    with pytest.raises(DecodeError) as refused:
        ProtobufDecoder(schemas).decode(message, headers)
    assert (refused.value.codec, reason in refused.value.reason) == ("Protobuf value", True)


def test_a_schema_may_refer_to_another_one() -> None:
    """Which the registry gives before it; what nobody gives is named."""
    other = described(f'message_type {{ name: "Other" {field("n", 1, "INT32")} }}', "other.proto")
    main = described(
        f'dependency: "other.proto" message_type {{ name: "Row" {field("o", 1, ".Other")} }}'
    )
    files = [serialized(other), serialized(main)]

    found = ProtobufDecoder(Described({7: files})).decode(prefixed(b"\x0a\x02\x08\x05"))
    assert found == {"o": {"n": 5}}
    with pytest.raises(DecodeError, match=r'imports "other\.proto", which the registry does not'):
        ProtobufDecoder(Described({7: files[1:]})).decode(prefixed(b""))


def without_inferred(file: Any) -> Any:
    """A file without what follows from the names of types."""
    for message in file.message_type:
        for each in (message, *message.nested_type):
            for of in each.field:
                if of.type_name:
                    of.ClearField("type")
                    of.type_name = of.type_name.removeprefix(f".{file.package}.{message.name}.")
    return file


def shaped(columns: dict[str, str], key: str = "BIGINT") -> OutputShape:
    """A shape with these types."""
    return OutputShape("shop.rows", parsed(key), tuple((n, parsed(t)) for n, t in columns.items()))


def written(shape: OutputShape, value: Any, key: Any = 1) -> OutputMessage:
    """The message of a row, framed."""
    message = OutputMessage(canonical.encode(key), canonical.encode(value), TIME)
    done, violations = encoded(writers(shape), [message])
    assert violations == []
    return framed(done, Ids(1, 2))[0]


def refused(shape: OutputShape, value: Any, key: Any = 1) -> str:
    """Why a row is not written."""
    message = OutputMessage(canonical.encode(key), canonical.encode(value), TIME)
    done, [violation] = encoded(writers(shape), [message])
    assert done == []
    return violation.reason


TYPES = {
    "BOOLEAN": ("bool", True),
    "INTEGER": ("int32", -7),
    "BIGINT": ("int64", -(2**63)),
    "UBIGINT": ("uint64", 2**64 - 1),
    "HUGEINT": (".confluent.type.Decimal", 10**37),
    "DECIMAL(9,2)": (".confluent.type.Decimal", -12.5),
    "FLOAT": ("float", 0.1),
    "DOUBLE": ("double", 0.1),
    "VARCHAR": ("string", "é"),
    "BLOB": ("bytes", "/w=="),
    "DATE": (".google.type.Date", "1969-12-31"),
    "TIME": (".google.type.TimeOfDay", "23:59:59.000001"),
    "TIMESTAMPTZ": (".google.protobuf.Timestamp", "1969-12-31T23:59:59.5Z"),
    "TIMESTAMP_NS": (".google.protobuf.Timestamp", "1970-01-01T00:00:00.000000001"),
    "UUID": ("string", "123e4567-e89b-12d3-a456-426614174000"),
}


@pytest.mark.parametrize(
    ("kind", "shown", "value"),
    [
        *((kind, f"optional {of}", value) for kind, (of, value) in TYPES.items()),
        *((f"{kind}[]", f"repeated {of}", [value]) for kind, (of, value) in TYPES.items()),
        *(
            (f"MAP(VARCHAR, {kind})", f"map<string, {of}>", {"a": value})
            for kind, (of, value) in TYPES.items()
        ),
        ("STRUCT(a INTEGER)", "optional .shop.rows.Value_a_b", {"a": None}),
        ("STRUCT(a INTEGER, b DATE[])[]", "repeated .shop.rows.Value_a_b", [{"a": 1, "b": []}]),
        (
            "MAP(VARCHAR, STRUCT(a INTEGER))",
            "map<string, .shop.rows.Value_a_b>",
            {"x": {"a": 1}},
        ),
    ],
)
def test_each_type_of_sql_has_one(kind: str, shown: str, value: Any) -> None:
    """The schema is that of the table in the docs, and the value comes back."""
    shape = shaped({"a_b": kind})
    for text, file in zip(schemas(shape), files_of(shape), strict=True):
        assert parsed_text(file.name, text) == without_inferred(file)

    assert f"  {shown} a_b = {number_of('a_b')};" in schemas(shape)[1]
    message = written(shape, {"a_b": value})
    assert message.value is not None
    found = back(of_shapes(shape), "value")(message.value)
    # An instant has no type without a zone.
    meant = canonical.encode({"a_b": value})
    assert found in (meant, meant.replace(b'000001"', b'000001Z"'))


def test_a_schema_is_a_text_that_people_read() -> None:
    """The first message is the row, or the key."""
    shape = shaped({"at": "DATE", "n": "STRUCT(b BOOLEAN)"}, "STRUCT(id BIGINT)")
    of_key, of_value = schemas(shape)

    assert of_key.splitlines() == [
        'syntax = "proto3";',
        "package shop.rows;",
        "",
        "message Key {",
        f"  optional int64 id = {number_of('id')};",
        "}",
    ]
    assert of_value.splitlines() == [
        'syntax = "proto3";',
        "package shop.rows;",
        'import "google/type/date.proto";',
        "",
        "message Value {",
        f"  optional .google.type.Date at = {number_of('at')};",
        f"  optional .shop.rows.Value_n n = {number_of('n')};",
        "}",
        "message Value_n {",
        f"  optional bool b = {number_of('b')};",
        "}",
    ]
    assert names(shape) == ("shop.rows.Key", "shop.rows.Value")


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("BIGINT", 7),
        ("VARCHAR", "a"),
        ("STRUCT(id BIGINT, day DATE)", {"id": 7, "day": "2024-01-31"}),
        ("STRUCT(key BIGINT)", {"key": 7}),
        ("JSON", {"a": [1]}),
        ("JSON", None),
        ("JSON", 7),
        ("JSON", "x"),
    ],
)
def test_a_key_comes_back(kind: str, key: Any) -> None:
    """Also one that is no record, which is the only field of one."""
    shape = shaped({"v": "INTEGER"}, kind)

    message = written(shape, {"v": 1}, key)
    assert message.key is not None
    found = back(of_shapes(shape), "key")(message.key)
    assert found == canonical.encode(key)


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        ("INTEGER", 2**31, "INTEGER"),
        ("UINTEGER", 2**32, "UINTEGER"),
        ("UBIGINT", 2**64, "UBIGINT"),
        ("UBIGINT", -1, "UBIGINT"),
        ("TIMESTAMP_NS", "infinity", "TIMESTAMP_NS"),
        ("DATE", "+10000-01-01", "DATE"),
        ("TIMESTAMP", "infinity", "TIMESTAMP"),
        ("INTEGER[]", 1, "INTEGER[]"),
        ("INTEGER[]", [None], "INTEGER[] without null"),
        ("MAP(VARCHAR, DATE)", [], "MAP(VARCHAR, DATE)"),
        ("MAP(VARCHAR, DATE)", {"a": None}, "MAP(VARCHAR, DATE) without null"),
        ("STRUCT(a INTEGER)", 7, "STRUCT(a INTEGER)"),
    ],
)
def test_a_value_of_another_type_is_a_violation(kind: str, value: Any, told: str) -> None:
    """It names the column and its type, and no data."""
    assert refused(shaped({"v": kind}), {"v": value}) == f'column "v" is not of type {told}'


def test_a_key_is_never_null_and_a_row_is_one() -> None:
    """Otherwise there is no message."""
    shape = shaped({"v": "INTEGER"}, "STRUCT(id BIGINT)")

    assert refused(shape, {}, {"id": None}).startswith('column "id" is not of type BIGINT')
    assert refused(shape, {}, 7).startswith('column "key" is not of type STRUCT')
    assert refused(shape, [1], {"id": 1}) == 'column "value" is not of type STRUCT'


def test_columns_that_come_and_go_leave_the_others_where_they_are() -> None:
    """Their numbers follow from their names: a reader reads messages of before and after."""
    before, after = shaped({"a": "INTEGER", "c": "INTEGER"}), shaped({"b": "DATE", "c": "INTEGER"})
    message = written(before, {"a": 1, "c": 2}).value
    assert message is not None

    [_, of_after] = files_of(after)
    kind = message_at(pool_of([serialized(of_after)]), of_after.name, (0,))
    assert kind.FromString(message[6:]).c == 2


def test_names_and_types_that_protobuf_has_not_are_told() -> None:
    """With the plan, by their columns."""
    columns = (Column("id", "BIGINT"), Column("a b", "INTEGER"), Column("l", "INTEGER[][]"))
    source = Input("rows", ("rows",), "debezium-json", columns=columns, key=("id",))
    output = Output("out", "current", "out", "protobuf")
    plan = Plan("p", (source,), (Upsert("current", "rows"),), (output,))

    with pytest.raises(PlanError) as refusal:
        checked(plan)
    for name in ("a b", "l"):
        assert f"column '{name}' {name_problem}" in str(refusal.value)
    assert carries(parsed("STRUCT(a INTEGER, b DATE[])"))


def test_rows_in_protobuf_are_upserts_of_their_key() -> None:
    """By columns or by the Kafka key, in JSON, bytes or Protobuf; null deletes."""
    shape = shaped({"id": "BIGINT", "day": "DATE"}, "STRUCT(id BIGINT)")
    message = written(shape, {"id": 1, "day": "2024-01-31"}, {"id": 1})
    row, key = b'{"day":"2024-01-31","id":1}', b'{"id":1}'

    def read(given: bytes | None, value: bytes | None, form: str, **wanted: Any) -> Any:
        codec = ProtobufUpserts(of_shapes(shape), Needs(**wanted), form)
        [change] = codec.changes(given, value, None)
        return change.kind, change.key, change.after

    assert read(None, message.value, "json", key=("id",)) == ("upsert", key, row)
    assert read(message.key, message.value, "protobuf") == ("upsert", key, row)
    assert read(b"k", message.value, "bytes") == ("upsert", b"k", row)
    assert read(b'{"id":1.0}', None, "json") == ("delete", key, None)
    assert read(message.key, None, "protobuf", key=("id",)) == ("delete", key, None)
    assert read(b"1", message.value, "json", columns=("day",)) == (
        "upsert",
        b"1",
        b'{"day":"2024-01-31"}',
    )


def test_a_pipeline_reads_protobuf() -> None:
    """What it cannot decode is an error under its key, which a good message takes back."""
    shape = shaped({"id": "BIGINT", "day": "DATE"}, "STRUCT(id BIGINT)")
    message = written(shape, {"id": 1, "day": "2024-01-31"}, {"id": 1})
    columns = (Column("id", "BIGINT"), Column("day", "DATE"))
    source = Input("rows", ("rows",), "protobuf", "protobuf", columns=columns)
    plan = Plan("p", (source,), (Upsert("current", "rows"),), (Output("out", "current", "out"),))
    evaluation = Evaluation(plan, schemas=of_shapes(shape))

    wrong = evaluation.advance({"rows": [(message.key, b"\0\0\0\0\2\0\xff", 0)]}, 1)
    right = evaluation.advance({"rows": [(message.key, message.value, 1)]}, 2)

    assert [each.diff for each in wrong["errors"]] == [1]
    assert [each.diff for each in right["errors"]] == [-1]
    assert [each.data for each in right["out"]] == [({"id": 1}, {"id": 1, "day": "2024-01-31"})]


@pytest.mark.parametrize("form", ["protobuf", "json-schema"])
def test_a_run_writes_and_what_does_not_fit_is_an_error(form: Any) -> None:
    """Readers get the rows that are written."""
    columns = (Column("id", "BIGINT"), Column("day", "DATE"))
    source = Input("rows", ("rows",), "debezium-json", columns=columns, key=("id",))
    output = Output("out", "current", "out", form)
    plan = checked(Plan("p", (source,), (Upsert("current", "rows"),), (output,)))
    run = Run(plan)
    for key, day in ((1, "2024-01-31"), (2, "+10000-01-01" if form == "protobuf" else "x")):
        run.send("rows", None, {"op": "c", "before": None, "after": {"id": key, "day": day}})
    run.read()

    reader = OutputReader("out", form, of_shapes(shape_of(plan, plan.outputs[0])))
    [message] = framed(run.messages("out"), Ids(1, 2))
    [update] = reader.read((0, 0), message.key, message.value, message.headers)
    assert (update.key, update.value) == (b'{"id":1}', b'{"day":"2024-01-31","id":1}')
    [error] = run.errors()
    assert "DATE" in error["reason"]


def test_a_library_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra that has it."""
    monkeypatch.setitem(sys.modules, "google.protobuf", None)

    with pytest.raises(ConfigError, match=r"google\.protobuf is not installed") as refusal:
        ProtobufDecoder(of_shapes())
    assert 'pip install "ikebana[protobuf]"' in str(refusal.value)


TEXT = """
/* A file of proto2, with all that a message may have. */
syntax = "proto2";
package shop;
import public "google/protobuf/timestamp.proto";
option java_package = "a;b{";
option (some) = { of: 1 };
message Row {
  option deprecated = true;  // a comment
  reserved 2, 15 to 20;
  extensions 100 to max;
  required int64 id = 1 [(note) = "x;", deprecated = true];
  repeated .shop.Row.Part parts = 3;
  map<string, Part> by_name = 4;
  oneof choice { string one = 5; Kind other = 0x6; }
  message Part { optional int32 n = 1 [default = -7]; }
  enum Kind { option allow_alias = true; NONE = 0; SOME = -1; };
  optional google.protobuf.Timestamp at = 7;
  optional Kind kind = 8;
}
enum Size { SMALL = 0; }
service Rows { rpc Get (Row) returns (stream Row) { option (x) = 1; } }
extend Row { optional int32 more = 100; }
"""
DESCRIBED = f"""
package: "shop" dependency: "google/protobuf/timestamp.proto" public_dependency: 0
message_type {{
  name: "Row"
  {field("id", 1, "INT64", "label: LABEL_REQUIRED")}
  {field("parts", 3, ".shop.Row.Part", REPEATED)}
  {field("by_name", 4, "ByNameEntry", REPEATED)}
  {field("one", 5, "STRING", "oneof_index: 0")}
  {field("other", 6, "Kind", "oneof_index: 0")}
  {field("at", 7, "google.protobuf.Timestamp")}
  {field("kind", 8, "Kind")}
  oneof_decl {{ name: "choice" }}
  nested_type {{
    name: "ByNameEntry" options {{ map_entry: true }}
    {field("key", 1, "STRING")} {field("value", 2, "Part")}
  }}
  nested_type {{ name: "Part" {field("n", 1, "INT32", 'default_value: "-7"')} }}
  enum_type {{
    name: "Kind" value {{ name: "NONE" number: 0 }} value {{ name: "SOME" number: -1 }}
  }}
}}
enum_type {{ name: "Size" value {{ name: "SMALL" number: 0 }} }}
"""


def test_the_text_of_a_schema_is_read_as_its_description() -> None:
    """Some registries have no other; what describes no message is left out."""
    found = parsed_text("rows.proto", TEXT)

    expected = described(DESCRIBED)
    expected.syntax = "proto2"
    assert found == expected
    pool = pool_of([serialized(found)])
    row = message_at(pool, "rows.proto", (0,))(id=1, other=-1, by_name={"a": {"n": 3}})
    assert row.by_name["a"].n == 3


@pytest.mark.parametrize(
    "text",
    [
        "message",
        "message A {",
        "message A { int32 }",
        "mesage A {}",
        "message A { group B = 1 {} }",
    ],
)
def test_a_text_that_is_no_schema_is_refused(text: str) -> None:
    """And one with what is not read."""
    with pytest.raises(SchemaUnknown, match="cannot be read"):
        pool_of([serialized(parsed_text("a.proto", text + " import 'b';"))])
