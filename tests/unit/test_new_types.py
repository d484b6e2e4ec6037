"""`ikebana new`: types, keys and modes by the schemas that messages have, and what is tried."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import ikebana as ik
from ikebana.codecs.avro_schema import Schemas
from ikebana.errors import ConfigError
from ikebana.processor.authoring.proposing.formats import Sample
from ikebana.processor.authoring.proposing.proposal import propose
from ikebana.processor.cli.main import cli
from support import recorded_mariadb
from support.avro_messages import KnownSchemas, message
from support.doc_blocks import ROOT
from support.proposed import Run, run_of
from support.recorded_mariadb import FOLDER, Recorded

CAPTURED = ROOT / "tests" / "golden" / "debezium_captured"
POSTGRES = [path.stem for path in sorted(CAPTURED.glob("*.json"))]


def of_postgres(kind: str, server: str) -> list[Sample]:
    """What a connector, with schemas (`typed`) or without (`plain`), said of a real PostgreSQL."""
    told = json.loads((CAPTURED / f"{kind}.json").read_text())[server]
    return [Sample(written(each["key"]), written(each["value"])) for each in told]


def of_mariadb(producer: str, table: str = "samples") -> tuple[list[Sample], Schemas | None]:
    """What a producer said of a table of a real MariaDB, and the registry's schemas."""
    avro = producer in recorded_mariadb.AVRO
    lines = (FOLDER / f"{producer}.jsonl").read_bytes().splitlines()
    records = [msgspec.json.decode(line, type=Recorded) for line in lines]
    samples = [
        Sample(*each.parts(avro=avro))
        for each in records
        if each.topic.endswith(table) or producer not in recorded_mariadb.CONNECTORS
    ]
    return samples, recorded_mariadb.schemas() if avro else None


def written(data: Any) -> bytes | None:
    """JSON, as a message has it."""
    return None if data is None else json.dumps(data).encode()


def types_of(run: Run) -> dict[str, str]:
    """The columns that the written file declares."""
    return {column.name: column.type for column in run.source.columns}


def connect(schema: dict[str, Any], value: Any, key: Any = 1) -> Sample:
    """A row of one column `x`, in a message of Kafka Connect with its schema."""
    struct = {"type": "struct", "optional": False, "fields": [{**schema, "field": "x"}]}
    return Sample(written(key), written({"schema": struct, "payload": {"x": value}}))


def bare(row: Any, op: str = "c", before: Any = None, key: Any = 1) -> Sample:
    """An event of Debezium without its schema."""
    event = {"op": op, "before": before, "after": row, "source": {"db": "d", "table": "t"}}
    return Sample(written(key), written(event))


def test_types_are_those_of_the_schema_beside_the_payload() -> None:
    """A count of microseconds is a timestamp, and base64 a decimal, if the schema says so."""
    run = run_of(of_postgres("snapshot", "typed"))

    assert run.errors == []
    assert types_of(run) == {
        **{"id": "INTEGER", "name": "VARCHAR", "email": "VARCHAR", "points": "BIGINT"},
        **{"balance": "DECIMAL(12,3)", "score": "VARCHAR", "ratio": "DOUBLE"},
        **{"active": "BOOLEAN", "born": "DATE", "wakes": "TIME", "seen": "TIMESTAMP"},
        **{"changed": "TIMESTAMP", "created": "TIMESTAMPTZ", "settings": "JSON"},
        **{"photo": "BLOB", "tags": "VARCHAR[]", "sizes": "INTEGER[]", "reference": "UUID"},
        "note": "VARCHAR",
    }
    full = next(row for row in run.rows if row["id"] == 1)
    assert full["changed"] == "1901-02-03T04:05:06.000007"


@pytest.mark.parametrize("server", ["typed", "plain"])
@pytest.mark.parametrize("kind", POSTGRES)
def test_what_is_proposed_reads_all_of_a_postgres(kind: str, server: str) -> None:
    """Whatever it has recorded, with schemas and without."""
    run = run_of(of_postgres(kind, server))

    assert run.source.value_format == "debezium-json"
    # A sample begins anywhere: only what came before it has the row that a message completes.
    completing = "the message leaves columns as they are, of a row that is not there"
    assert set(run.errors) <= {completing}


@pytest.mark.parametrize("producer", recorded_mariadb.PRODUCERS)
def test_what_is_proposed_reads_all_of_a_mariadb(producer: str) -> None:
    """By the schemas of messages or of the registry, MySQL's types, or the values."""
    run = run_of(*of_mariadb(producer))

    assert run.errors == []
    assert len(run.rows) == 6
    types = types_of(run)
    assert types["amount"] == ("DOUBLE" if producer == "maxwell" else "DECIMAL(12,2)")
    assert run.source.options == ((("framing", "headers"),) if producer == "headers" else ())


def test_in_avro_a_registry_says_what_is_debezium() -> None:
    """Without one neither format nor columns are known, and a note says so."""
    samples, schemas = of_mariadb("confluent")

    assert run_of(samples, schemas).source.value_format == "debezium-avro"
    told = run_of(samples)
    assert (told.source.value_format, told.source.columns) == ("avro", ())
    assert any("--registry" in note for note in told.proposal.notes)


@pytest.mark.parametrize("key", [b'{"id": 1}', b"Struct{id=1}"])
def test_keys_that_are_not_in_avro_name_the_columns_of_rows_that_are(key: bytes) -> None:
    """Of events in Avro they cannot be read: each was an error record."""
    samples, schemas = of_mariadb("confluent")
    run = run_of(
        [Sample(None if each.key is None else key, each.value) for each in samples], schemas
    )

    assert (run.source.mode, run.source.key) == ("upsert", ("id",))
    assert (len(run.rows), run.errors) == (len(run_of(samples, schemas).rows), [])


def test_changed_keys_in_avro_are_put_in_order_across_partitions() -> None:
    """By the same fields as in JSON; nothing was said of them."""
    samples, schemas = of_mariadb("confluent")
    moved = [
        Sample(None if each.key is None else b'{"id": 1}', each.value, partition=at % 2)
        for at, each in enumerate(samples)
    ]
    run = run_of(moved, schemas)

    assert run.proposal.options["sequence"] == "source.file log, source.pos, source.row"
    assert (len(run.rows), run.errors) == (len(run_of(samples, schemas).rows), [])


def test_flattened_rows_in_avro_that_are_marked_as_deleted_are_gone() -> None:
    """They were rows; what the schema names as JSON is read as such."""
    named = {"type": "string", "connect.name": "io.debezium.data.Json"}
    kinds = {"id": "int", "doc": named, "__op": "string", "__deleted": "string"}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = {"type": "record", "name": "Row", "fields": fields}
    rows = [
        {"id": number, "doc": '{"a": 1}', "__op": op, "__deleted": deleted}
        for number, op, deleted in ((1, "c", "false"), (2, "r", "false"), (2, "d", "true"))
    ]
    samples = [Sample(str(row["id"]).encode(), message(1, schema, row)) for row in rows]

    run = run_of(samples, KnownSchemas({1: schema}))

    assert (run.source.value_format, run.source.key) == ("changes-avro", ("id",))
    assert (run.rows, run.errors) == ([{"id": 1, "doc": {"a": 1}}], [])


def _sent(key: object, value: object) -> Sample:
    sent, of = (None if each is None else json.dumps(each).encode() for each in (key, value))
    return Sample(sent, of)


def _of_mongodb(number: int, operation: str, row: dict[str, Any] | None) -> Sample:
    token = {"_data": f"82{number}"}
    named = {"operationType": operation, "ns": {"db": "shop", "coll": "orders"}}
    document = {} if row is None else {"fullDocument": row}
    of_key = {"documentKey": {"_id": "b" if row is None else row["_id"]}}
    return _sent({"_id": token}, {"_id": token, **named, **document, **of_key})


def _of_dynamodb(at: int, operation: str, key: str, row: dict[str, Any] | None) -> Sample:
    image = {} if row is None else {"NewImage": row}
    of_row = {"ApproximateCreationDateTime": at, "Keys": {"id": {"S": key}}, **image}
    return _sent(None, {"eventName": operation, "tableName": "orders", "dynamodb": of_row})


def _of_qlik(operation: str, row: dict[str, Any], *, within: bool) -> Sample:
    message = {"data": row, "beforeData": None, "headers": {"operation": operation}}
    return _sent(row["id"], {"magic": "atMSG", "message": message} if within else message)


def _of_striim(operation: str, row: dict[str, Any]) -> Sample:
    named = {"OperationName": operation, "TableName": "SHOP.ORDERS"}
    return _sent(None, {"metadata": named, "data": row, "before": None})


A, B, NEWER = {"id": 1, "n": "a"}, {"id": 2, "n": "b"}, {"id": 1, "n": "c"}


@pytest.mark.parametrize(
    ("samples", "row"),
    [
        pytest.param(
            [
                _of_mongodb(1, "insert", {"_id": "a", "n": 1}),
                _of_mongodb(2, "insert", {"_id": "b", "n": 1}),
                _of_mongodb(3, "replace", {"_id": "a", "n": 2}),
                _of_mongodb(4, "delete", None),
            ],
            {"_id": "a", "n": 2},
            id="MongoDB",
        ),
        pytest.param(
            [
                _of_dynamodb(1, "INSERT", "a", {"id": {"S": "a"}, "n": {"N": "1"}}),
                _of_dynamodb(2, "INSERT", "b", {"id": {"S": "b"}, "n": {"N": "1"}}),
                _of_dynamodb(4, "REMOVE", "b", None),
                _of_dynamodb(3, "MODIFY", "b", {"id": {"S": "b"}, "n": {"N": "2"}}),
            ],
            {"id": {"S": "a"}, "n": {"N": "1"}},
            id="DynamoDB, out of order",
        ),
        *(
            pytest.param(
                [
                    _of_qlik("REFRESH", A, within=within),
                    _of_qlik("INSERT", B, within=within),
                    _of_qlik("UPDATE", NEWER, within=within),
                    _of_qlik("DELETE", B, within=within),
                ],
                NEWER,
                id="Qlik Replicate" + (" with its envelope" if within else ""),
            )
            for within in (True, False)
        ),
        pytest.param(
            [
                _of_striim("INSERT", A),
                _of_striim("INSERT", B),
                _of_striim("UPDATE", NEWER),
                _of_striim("DELETE", B),
            ],
            NEWER,
            id="Striim",
        ),
        pytest.param(
            [
                _sent([1], {**A, "__crdb__": {"updated": "1.0"}}),
                _sent([2], {**B, "__crdb__": {"updated": "1.0"}}),
                _sent(None, {"__crdb__": {"resolved": "1.0"}}),
                _sent([1], {**NEWER, "__crdb__": {"updated": "2.0"}}),
                _sent([2], None),
            ],
            NEWER,
            id="bare rows of CockroachDB",
        ),
        pytest.param(
            [
                _sent({"id": 1}, {"op": "c", "ts_ns": 1, "after": NEWER}),
                _sent({"id": 2}, {"op": "c", "ts_ns": 1, "after": B}),
                _sent(None, {"resolved": "1.0"}),
                _sent({"id": 2}, {"op": "d", "ts_ns": 2, "after": None}),
            ],
            NEWER,
            id="enriched events of CockroachDB",
        ),
    ],
)
def test_what_a_producer_deletes_is_no_row(samples: list[Sample], row: dict[str, Any]) -> None:
    """Its messages were proposed as rows themselves, so all of them stayed."""
    run = run_of(samples)

    assert (run.rows, run.errors) == ([row], [])


def _created(*rows: dict[str, Any]) -> list[bytes]:
    return [json.dumps({"op": "c", "source": {}, "after": row}).encode() for row in rows]


PARTS: list[dict[str, Any]] = [{"id": 1, "part": "a"}, {"id": 1, "part": None}]


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([b"Struct{id=1,part=a}", b"Struct{id=1}"], id="texts without nulls"),
        pytest.param(
            [
                b"Struct{id=1,part=a,__dbz__physicalTableIdentifier=t}",
                b"Struct{id=1,__dbz__physicalTableIdentifier=t}",
            ],
            id="a field that Debezium's router of tables adds",
        ),
    ],
)
def test_a_key_has_all_columns_that_any_message_names(keys: list[bytes]) -> None:
    """Without one of them a row replaced another."""
    run = run_of([*map(Sample, keys, _created(*PARTS))])

    assert run.source.key == ("id", "part")
    assert (len(run.rows), run.errors) == (2, [])


def test_tables_that_are_parts_of_one_are_read_together() -> None:
    """Debezium's router names them in keys, and one of them alone was read."""
    samples = [
        _sent(
            {"id": 1, "__dbz__physicalTableIdentifier": table},
            {"op": "c", "source": {"db": "d", "table": table}, "after": {"id": 1, "n": n}},
        )
        for n, table in enumerate(("t1", "t2"))
    ]

    run = run_of(samples)

    assert (run.source.tables, run.source.key) == (None, ())
    assert (run.rows, run.errors) == ([{"id": 1, "n": 0}, {"id": 1, "n": 1}], [])


def test_events_of_an_outbox_are_noted() -> None:
    """They have the key of what they are about, so an upsert has the last of them."""
    samples = [
        Sample(b"7", json.dumps({"total": n}).encode(), (("id", b"%d" % n),)) for n in (1, 2)
    ]

    assert any("mode: append" in note for note in run_of(samples).proposal.notes)
    assert not any("mode: append" in note for note in run_of([_sent(7, A)]).proposal.notes)


def test_flattened_rows_with_texts_for_keys_are_changes() -> None:
    """The texts name the key's columns, of which no row has `id`."""
    rows = [{"code": code, "__deleted": gone} for code, gone in (("a", "false"), ("a", "true"))]
    run = run_of([Sample(b"Struct{code=a}", json.dumps(row).encode()) for row in rows])

    assert (run.source.value_format, run.source.key) == ("debezium-flat-json", ("code",))
    assert (run.rows, run.errors) == ([], [])


def test_rows_of_goldengate_without_old_ones_are_no_diffs() -> None:
    """An update of them retracts nothing."""
    named = {"table": "S.T", "op_ts": "2024-01-01 00:00:00"}
    samples = [_sent(None, {**named, "op_type": op, "id": 1, "n": n}) for op, n in ("I1", "U2")]

    run = run_of(samples)

    assert (run.source.mode, run.source.key) == ("upsert", ("id",))
    assert (run.rows, run.errors) == ([{"id": 1, "n": "2"}], [])


def test_a_tombstone_behind_a_row_that_is_marked_as_deleted_needs_no_readable_key() -> None:
    """Each was an error record, beside Avro's values."""
    kinds = {"id": "int", "__deleted": "string"}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = {"type": "record", "name": "Row", "fields": fields}
    rows = [{"id": 1, "__deleted": "false"}, {"id": 1, "__deleted": "true"}]
    samples = [Sample(b"Struct{id=1}", message(1, schema, row)) for row in rows]

    run = run_of([*samples, Sample(b"Struct{id=1}", None)], KnownSchemas({1: schema}))

    assert (run.rows, run.errors) == ([], [])


def test_changes_in_avro_are_known_by_their_operations() -> None:
    """They were rows that stayed, as the same messages in JSON are not."""
    row = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "int"}]}
    named = {"type": "map", "values": "string"}
    fields = [{"name": "metadata", "type": named}, {"name": "data", "type": row}]
    schema = {"type": "record", "name": "Event", "fields": fields}
    samples = [
        Sample(None, message(1, schema, {"metadata": {"OperationName": op}, "data": {"id": id_}}))
        for op, id_ in (("INSERT", 1), ("INSERT", 2), ("DELETE", 1))
    ]

    run = run_of(samples, KnownSchemas({1: schema}))

    assert run.source.value_format == "changes-avro"
    assert (run.rows, run.errors) == ([{"id": 2}], [])


def test_a_note_names_the_types_of_records_that_share_a_topic() -> None:
    """A record of one replaces a record of another with its key."""
    fields = [{"name": "id", "type": "int"}]
    schemas = {
        number: {"type": "record", "name": name, "fields": fields}
        for number, name in ((1, "shop.Order"), (2, "shop.Payment"))
    }
    samples = [Sample(b"1", message(number, of, {"id": 1})) for number, of in schemas.items()]

    notes = run_of(samples, KnownSchemas(schemas)).proposal.notes

    assert any("of several types, shop.Order, shop.Payment," in note for note in notes)


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        pytest.param(
            [Sample(b"1", b"\3\5" + bytes(16) + b"x")], "AWS Glue's registry", id="AWS Glue"
        ),
        pytest.param(
            [_sent([1], None), _sent(None, {"__crdb__": {"resolved": "1.0"}})],
            "cannot be read as a table",
            id="CockroachDB's key_only",
        ),
    ],
)
def test_a_note_says_why_messages_have_no_rows(samples: list[Sample], words: str) -> None:
    """Nothing else would say it."""
    assert any(words in note for note in run_of(samples).proposal.notes)


_BYTES = b64encode((12345).to_bytes(2)).decode()
SEMANTIC = [
    ({"type": "int32", "name": "io.debezium.time.Date"}, 19753, "DATE", "2024-01-31"),
    ({"type": "int32", "name": "io.debezium.time.Time"}, 1500, "TIME", "00:00:01.5"),
    ({"type": "int64", "name": "io.debezium.time.MicroTime"}, 5, "TIME", "00:00:00.000005"),
    ({"type": "int64", "name": "io.debezium.time.NanoTime"}, 7, "VARCHAR", "00:00:00.000000007"),
    (
        {"type": "int64", "name": "io.debezium.time.Timestamp"},
        *(0, "TIMESTAMP", "1970-01-01T00:00:00"),
    ),
    (
        {"type": "int64", "name": "io.debezium.time.NanoTimestamp"},
        *(7, "TIMESTAMP_NS", "1970-01-01T00:00:00.000000007"),
    ),
    (
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        *("2024-01-31T10:00:00+02:00", "TIMESTAMPTZ", "2024-01-31T08:00:00Z"),
    ),
    ({"type": "int32", "name": "org.apache.kafka.connect.data.Date"}, 0, "DATE", "1970-01-01"),
    (
        {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "5"},
        },
        *(_BYTES, "DECIMAL(5,2)", 123.45),
    ),
    (
        {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "30", "connect.decimal.precision": "65"},
        },
        *("AQ==", "VARCHAR", 1e-30),
    ),
    (
        {"type": "struct", "fields": [], "name": "io.debezium.data.VariableScaleDecimal"},
        *({"scale": 2, "value": _BYTES}, "VARCHAR", 123.45),
    ),
    ({"type": "string", "name": "io.debezium.data.Uuid"}, "0" * 8 + "-0000-0000-0000-" + "0" * 12,
     "UUID", "0" * 8 + "-0000-0000-0000-" + "0" * 12),
    ({"type": "string", "name": "io.debezium.data.Enum"}, "sad", "VARCHAR", "sad"),
    ({"type": "string", "name": "io.debezium.data.Xml"}, "<a/>", "VARCHAR", "<a/>"),
    ({"type": "bytes", "name": "io.debezium.data.Bits"}, "Cg==", "BLOB", "Cg=="),
    ({"type": "int32", "name": "io.debezium.time.Year"}, 1999, "INTEGER", 1999),
    ({"type": "int16"}, -1, "SMALLINT", -1),
    ({"type": "double"}, 1e300, "DOUBLE", 10**300),
    ({"type": "array", "items": {"type": "int32", "name": "io.debezium.time.Date"}}, [0, None],
     "DATE[]", ["1970-01-01", None]),
    ({"type": "array", "items": {"type": "string", "name": "io.debezium.data.Json"}},
     ['{"a": 1}', None], "JSON[]", [{"a": 1}, None]),
    ({"type": "string", "name": "io.debezium.data.Json"}, '{"a": 1}', "JSON", {"a": 1}),
    ({"type": "int64", "name": "io.debezium.time.MicroDuration"}, 1, "INTERVAL", "PT0.000001S"),
    ({"type": "map", "keys": {"type": "string"}, "values": {"type": "int64"}}, {"a b": 1},
     "MAP(VARCHAR, BIGINT)", {"a b": 1}),
    ({"type": "map", "keys": {"type": "int32"}, "values": {"type": "int64"}}, [[1, 2]],
     "JSON", [[1, 2]]),
    (
        {"type": "struct", "fields": [
            {"type": "double", "field": "x"}, {"type": "bytes", "field": "the \"wkb\""},
        ]},
        *({"x": 1.5, 'the "wkb"': "AA=="}, 'STRUCT("x" DOUBLE, "the ""wkb""" BLOB)'),
        {"x": 1.5, 'the "wkb"': "AA=="},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "kind", "row"), SEMANTIC)
def test_semantic_types_become_types_of_sql(
    schema: dict[str, Any], value: Any, kind: str, row: Any
) -> None:
    """Each with the type that takes its values as they are decoded, without loss."""
    run = run_of([connect(schema, value), connect(schema, None, key=2)])

    assert run.errors == []
    assert types_of(run) == {"x": kind}
    assert {"x": row} in run.rows


def test_rows_of_connect_with_their_schema_are_read_by_it() -> None:
    """They are no plain JSON, where all of their columns would be null."""
    micros = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}
    run = run_of([connect(micros, 0, key={"id": 1})])

    assert run.source.value_format == "debezium-flat-json"
    assert run.rows == [{"x": "1970-01-01T00:00:00"}]


def test_rows_of_connect_without_keys_stay() -> None:
    """Nothing says which row replaces another, unless there is a column `id`."""
    run = run_of([connect({"type": "int32"}, 1, key=None)])
    assert (run.source.value_format, run.source.mode) == ("json", "append")
    assert types_of(run) == {"payload": "JSON"}
    assert [row["payload"] for row in run.rows] == [{"x": 1}]

    struct = {"type": "struct", "fields": [{"type": "int32", "field": "id"}]}
    value = written({"schema": struct, "payload": {"id": 1}})
    named = run_of([Sample(None, value), Sample(None, value)])
    assert named.source.key == ("id",)
    assert any("check that key" in note for note in named.proposal.notes)
    assert (named.rows, named.errors) == ([{"id": 1}], [])


def test_a_schema_that_changes_gives_the_wider_type() -> None:
    """All messages are read, those from before the change too."""
    whole = [connect({"type": "int32"}, 1), connect({"type": "int64"}, 1 << 40)]
    assert types_of(run_of(whole)) == {"x": "BIGINT"}

    def decimal(precision: str, scale: str) -> Sample:
        told = {"scale": scale, "connect.decimal.precision": precision}
        name = "org.apache.kafka.connect.data.Decimal"
        return connect({"type": "bytes", "name": name, "parameters": told}, _BYTES)

    assert types_of(run_of([decimal("6", "4"), decimal("5", "2")])) == {"x": "DECIMAL(7,4)"}


def test_messages_without_the_schema_that_others_have_get_the_encoding() -> None:
    """The same column is read alike in both."""
    date = {"type": "int32", "name": "io.debezium.time.Date"}
    run = run_of([connect(date, 0), Sample(b"2", b'{"x": 1, "__deleted": "false"}')])

    (column,) = run.source.columns
    assert (column.type, column.encoding) == ("DATE", "date")
    assert sorted(row["x"] for row in run.rows) == ["1970-01-01", "1970-01-02"]


def test_what_values_without_a_schema_do_not_show_is_a_comment() -> None:
    """With the encoding to declare, if the column is what it looks like."""
    run = run_of([bare({"id": 1, "at": 1706704496789000, "price": "MDk=", "n": 5, "name": "tea"})])

    comments = {c.name: c.comment for c in run.proposal.columns if c.comment}
    assert comments.keys() == {"at", "price"}
    assert "encoding: timestamp-micros" in comments["at"]
    assert "encoding: decimal" in comments["price"]
    assert f"      # {comments['at']}\n      at: BIGINT\n" in run.text
    assert run.errors == []


def test_tables_without_a_key_are_read_by_their_old_images() -> None:
    """If messages have these; rows that are equal stay two."""
    row = {"a": 1}
    events = [bare(row, key=None), bare(row, key=None), bare(None, "d", row, key=None)]
    run = run_of(events)
    assert (run.source.mode, run.errors, run.rows) == ("diffs", [], [row])

    lacking = run_of([bare({"id": 1, "a": 1}, key=None), bare({"id": 1, "a": 2}, "u", key=None)])
    assert (lacking.source.mode, lacking.source.key) == ("upsert", ("id",))
    assert (lacking.errors, lacking.rows) == ([], [{"id": 1, "a": 2}])


def test_maxwells_kafka_key_names_the_key() -> None:
    """By default nothing else does, and it has the columns in lower case."""
    value = {"database": "d", "table": "t", "type": "insert", "data": {"Id": 7, "n": 1}}
    key = {"database": "d", "table": "t", "pk.id": 7}
    run = run_of([Sample(written(key), written(value))])

    assert run.source.key == ("Id",)
    assert (run.errors, run.rows) == ([], [{"Id": 7, "n": 1}])


def test_a_type_that_does_not_take_what_was_seen_is_widened() -> None:
    """The proposal is tried on the messages, and a note says what did not fit."""
    date = {"type": "int32", "name": "io.debezium.time.Date"}
    run = run_of([connect(date, 2**31 + 5), connect(date, 0, key=2)])

    assert types_of(run) == {"x": "VARCHAR"}
    assert run.errors == []
    assert any('"x" is VARCHAR: DATE does not take 1 of 2' in n for n in run.proposal.notes)


def test_what_no_proposal_can_read_is_counted() -> None:
    """A message that is damaged will be an error record, and a note says so."""
    date = {"type": "int32", "name": "io.debezium.time.Date"}
    run = run_of([connect(date, "x"), connect(date, 0, key=2)])

    assert len(run.errors) == 1
    assert any(note.startswith("1 message of those seen") for note in run.proposal.notes)


def test_a_table_of_several_is_chosen_by_its_name() -> None:
    """By default it is that with the most rows; one of which nothing was read is refused."""
    samples, _ = of_mariadb("canal")

    assert propose("t", samples).tables == r"store\.samples"
    chosen = propose("t", samples, table="store.emptied")
    assert (chosen.tables, [c.name for c in chosen.columns]) == (r"store\.emptied", ["id", "name"])
    with pytest.raises(ConfigError, match=r'is of table "store\.none"') as refused:
        propose("t", samples, table="store.none")
    assert "There are store.emptied, store.samples." in str(refused.value)


def test_numbers_have_all_of_their_digits() -> None:
    """A double is proposed only if it is exactly what was seen."""
    wide = run_of([Sample(b"1", b'{"x": 0.12345678901234567890}'), Sample(b"2", b'{"x": 1}')])
    assert types_of(wide) == {"x": "DECIMAL(38,19)"}
    assert types_of(run_of([Sample(b"1", b'{"x": 0.1}')])) == {"x": "DOUBLE"}
    beside = run_of([Sample(b"1", b'{"x": 9007199254740993}'), Sample(b"2", b'{"x": 0.5}')])
    assert types_of(beside) == {"x": "DECIMAL(38,1)"}
    longest = b'{"x": %b.5}' % (b"9" * 40)
    assert types_of(run_of([Sample(b"1", longest)])) == {"x": "VARCHAR"}


NAMES = [
    *("a.b", 'a "quoted" name', "größe", "🌷", "select", "on", "${x}", "a: b # c", "'", " ", "1"),
    *("x\ty", "\u2028", "order", "full", "nul\0l", "__\u2028y: z", "__\x1b", "__\n- 1"),
]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_columns_are_written_so_that_they_load(name: str) -> None:
    """Whatever a name has in it, YAML reads the same one."""
    run = run_of([Sample(b"1", written({name: 1, "other": 2}))])

    if "is not declared" not in " ".join(run.proposal.notes):
        assert types_of(run) == {name: "BIGINT", "other": "BIGINT"}
    else:
        assert types_of(run) == {"other": "BIGINT"}
    assert (run.errors, run.rows) == ([], [{name: 1, "other": 2}])


def test_names_that_cannot_be_declared_are_noted_alone() -> None:
    """All other columns stay declared; names in two cases are one name to SQL."""
    run = run_of([Sample(b"1", written({"id": 1, "ID": 2, "__x": 3, "n": 4}))])

    assert {"id", "n"} <= types_of(run).keys()
    lost = {"id", "ID", "__x", "n"} - types_of(run).keys()
    assert all(any(f'"{name}" is not declared' in n for n in run.proposal.notes) for name in lost)
    assert run.errors == []


@pytest.mark.parametrize("name", ["shop.sql", "shop.py", "shop.yaml"])
def test_a_sample_is_written_in_each_language(tmp_path: Path, name: str) -> None:
    """All samples are the same pipeline, by what they make of the same records."""
    path = tmp_path / name
    told = CliRunner().invoke(cli, ["new", str(path), "--brokers", "there:1"])

    assert told.exit_code == 0, told.output
    if path.suffix == ".py":
        there: dict[str, Any] = {"__name__": "shop"}
        exec(compile(path.read_text(), name, "exec"), there)
        pipeline = there["pipeline"]
        assert "shop:pipeline" in told.output
    else:
        pipeline = ik.load(path, environ={})
    tea = [
        (key, {"product": "tea", "quantity": quantity}, 0) for key, quantity in ((1, 12), (2, 2))
    ]
    outputs = pipeline.evaluate(orders=tea)
    shown = {name: [each.data[1]["quantity"] for each in outputs[name]] for name in outputs}
    assert shown == {"large": [12], "ordered": [14], "errors": []}


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("shop.toml", "Name a .yaml, .sql or .py file."), ("my-shop.py", "such as shop_orders.py")],
)
def test_another_file_is_refused(tmp_path: Path, name: str, remedy: str) -> None:
    """By its name, and nothing is written."""
    told = CliRunner().invoke(cli, ["new", str(tmp_path / name)])

    assert isinstance(told.exception, ConfigError)
    assert remedy in str(told.exception)
    assert not (tmp_path / name).exists()
