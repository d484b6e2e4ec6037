"""`ikebana new`: what is proposed for a topic, by the messages that real producers wrote."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ikebana.codecs.avro_schema import SchemaUnknown
from ikebana.errors import ConfigError
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.authoring.proposing.formats import Sample
from ikebana.processor.authoring.proposing.proposal import Proposal, propose
from ikebana.processor.authoring.proposing.writing import WRITERS
from ikebana.processor.cli.main import cli
from ikebana.processor.explain.explanation import explained
from support.doc_blocks import ROOT
from support.proposed import in_python, in_sql, run_of
from support.recorded_mariadb import FOLDER, Recorded

YAML = WRITERS["yaml"]
GOLDEN = ROOT / "tests" / "golden"


def stored(folder: str, *names: str) -> list[Sample]:
    """Messages as they stand in the folder of a producer, without their keys."""
    return [Sample(None, (GOLDEN / folder / f"{name}.json").read_bytes()) for name in names]


def captured(name: str) -> list[Sample]:
    """What a producer said of a real MariaDB."""
    import msgspec

    lines = (FOLDER / f"{name}.jsonl").read_bytes().splitlines()
    records = [msgspec.json.decode(line, type=Recorded) for line in lines]
    parts = [each.parts(avro=name in ("confluent", "headers")) for each in records]
    return [Sample(key, value, headers) for key, value, headers in parts]


def said(*values: Any, key: Any = 1) -> list[Sample]:
    """Values as JSON."""
    return [Sample(json.dumps(key).encode(), json.dumps(value).encode()) for value in values]


def types_of(proposal: Proposal) -> dict[str, str]:
    """The columns that are proposed, in order."""
    return {column.name: column.type for column in proposal.columns}


def plan_of(proposal: Proposal) -> Any:
    """What the written file comes to: it is read, planned and explained."""
    plan, settings = parse(YAML.written("new", [proposal], "b:1", None), "new.yaml", environ={})
    assert explained(plan, settings).fingerprint
    (source,) = plan.inputs
    return source


@pytest.mark.parametrize(
    ("samples", "form"),
    [
        pytest.param(
            stored("maxwell", "insert", "update", "table_alter"), "maxwell", id="maxwell"
        ),
        pytest.param(stored("canal", "insert", "delete", "alter"), "canal", id="canal"),
        pytest.param(stored("goldengate", "insert", "update"), "goldengate", id="goldengate"),
        pytest.param(stored("dms", "insert", "load", "create_table"), "dms", id="dms"),
        pytest.param(captured("maxwell"), "maxwell", id="Maxwell of a real MariaDB"),
        pytest.param(captured("canal"), "canal", id="Canal of a real MariaDB"),
        pytest.param(
            said({"data": [{"id": 1}], "type": "INSERT"}), "canal", id="Flink in Canal's form"
        ),
        pytest.param(captured("json"), "debezium-json", id="Debezium of a real MariaDB"),
        pytest.param(captured("confluent"), "avro", id="Confluent's Avro"),
        pytest.param(said({"n": 1}, {"n": 2}), "json", id="JSON"),
        pytest.param([Sample(b"1", b"\xff\xfe")], "bytes", id="no JSON"),
        pytest.param(
            [Sample(b"1", b'"x"', (("time", b"1"), ("diff", b"1")))], "diff", id="updates"
        ),
        pytest.param(said({"updates": [[{"value": 1}, 0, 1]]}), "cdcv2-json", id="CDCv2"),
        pytest.param(said({"id": 1, "__deleted": "false"}), "debezium-flat-json", id="flat"),
        pytest.param(
            said({"payload": {"op": "c", "source": {}, "after": {"id": 1}}}),
            "debezium-json",
            id="Debezium's payload alone",
        ),
        pytest.param(
            said({"after": {"id": 1}, "updated": "1.0"}, {"resolved": "1.0"}),
            "debezium-json",
            id="CockroachDB",
        ),
        pytest.param(
            said({"specversion": "1.0", "iodebeziumop": "c", "data": {"after": {"id": 1}}}),
            "changes",
            id="Debezium in CloudEvents",
        ),
        pytest.param(
            said(
                {"commitTs": 1, "type": "BOOTSTRAP", "database": "d", "table": "t", "data": None},
                {
                    "commitTs": 1,
                    "type": "INSERT",
                    "database": "d",
                    "table": "t",
                    "data": {"id": 1},
                },
            ),
            "changes",
            id="TiCDC's simple protocol",
        ),
    ],
)
def test_formats_are_known_by_their_messages(samples: list[Sample], form: str) -> None:
    """And the file that is written is a pipeline."""
    proposal = propose("t", samples)

    assert proposal.value == form
    assert plan_of(proposal).value_format == form


def test_columns_have_the_types_that_fit_all_messages() -> None:
    """In the order in which they appear; what is mixed is JSON, and so is what is unknown."""
    proposal = propose(
        "orders",
        said(
            {"id": 1, "price": 5, "note": None, "ok": True, "who": "ann", "on": [1], "tax": 2.0},
            {"id": 2, "price": 2.5, "who": 7, "big": 1 << 70, "note": None},
        ),
    )

    assert types_of(proposal) == {
        "id": "BIGINT",
        "price": "DOUBLE",
        "note": "JSON",
        "ok": "BOOLEAN",
        "who": "JSON",
        "on": "JSON",
        "tax": "DOUBLE",
        "big": "HUGEINT",
    }
    assert any("Of note only nulls were seen" in note for note in proposal.notes)
    # `on` is true in YAML, unless it is quoted.
    assert [column.name for column in plan_of(proposal).columns] == [*types_of(proposal)]


def test_rows_are_those_within_changes() -> None:
    """Not the envelope around them."""
    canal = propose("t", stored("canal", "insert", "alter"))
    debezium = propose("t", captured("json"))

    assert types_of(canal)["balance"] == "DECIMAL(20,4)"
    assert "isDdl" not in types_of(canal)
    assert {"id", "name"} <= types_of(debezium).keys()
    assert "op" not in types_of(debezium)


def test_old_columns_in_rows_of_dms_are_named_by_their_prefix() -> None:
    """Only an update has them; otherwise a changed key would leave the old row."""
    of = {"record-type": "data", "schema-name": "s", "table-name": "t"}
    proposal = propose(
        "t",
        said(
            {"data": {"id": 1}, "metadata": {**of, "operation": "insert"}},
            {"data": {"id": 2, "BI_id": 1}, "metadata": {**of, "operation": "update"}},
        ),
    )

    assert (proposal.options, types_of(proposal)) == ({"before_prefix": "BI_"}, {"id": "BIGINT"})
    assert dict(plan_of(proposal).options) == {"before_prefix": "BI_"}


def test_values_in_the_form_of_canal_may_have_types_of_their_own() -> None:
    """Canal itself writes texts, with the types of MySQL beside them."""
    proposal = propose(
        "t", said({"data": [{"id": 1, "x": 0.5}], "type": "INSERT", "pkNames": ["id"]})
    )

    assert types_of(proposal) == {"id": "BIGINT", "x": "DOUBLE"}


def test_one_of_several_tables_is_read() -> None:
    """That with the most messages; the others are named."""
    row = {"database": "shop", "type": "insert", "primary_key_columns": ["id"]}
    proposal = propose(
        "maxwell",
        said(
            {**row, "table": "orders", "data": {"id": 1, "n": 2}},
            {**row, "table": "orders", "data": {"id": 2, "n": 2}},
            {**row, "table": "people", "data": {"id": 2, "name": "ann"}},
        ),
    )

    assert plan_of(proposal).tables == r"shop\.orders"
    assert [*types_of(proposal)] == ["id", "n"]
    assert any("others are shop.people" in note for note in proposal.notes)


@pytest.mark.parametrize(
    ("keys", "form", "mode"),
    [
        pytest.param([b"1", b'"a"'], "json", "upsert", id="JSON"),
        pytest.param([b"N1", b"N2"], "bytes", "upsert", id="bytes"),
        pytest.param([b"1.1", b"1.10"], "bytes", "upsert", id="texts that are equal as numbers"),
        pytest.param([None, None], "json", "append", id="none"),
    ],
)
def test_keys(keys: list[bytes | None], form: str, mode: str) -> None:
    """How they are read, and what messages without any are."""
    proposal = propose("t", [Sample(key, b'{"n":1}') for key in keys])
    source = plan_of(proposal)

    assert (source.key_format, source.mode) == (form, mode)


@pytest.mark.parametrize(
    ("sample", "form", "key", "options"),
    [
        pytest.param(
            Sample((5).to_bytes(8), b'{"n":1}'), "json", "bytes", {}, id="a key of Java's Long"
        ),
        pytest.param(
            Sample(b"\0\0\0\0\7\2", b'{"n":1}'), "json", "bytes", {}, id="a key alone in Avro"
        ),
        pytest.param(Sample(b"\0\0\0\0\7\2", None), "json", "bytes", {}, id="a tombstone"),
        pytest.param(Sample(b"1", (5).to_bytes(8)), "bytes", "json", {}, id="Java's Long"),
        pytest.param(
            Sample(b"1", b'\0\0\0\0\7{"n":1}'),
            "json",
            "json",
            {"framing": "confluent"},
            id="JSON Schema",
        ),
        pytest.param(
            Sample(bytes(8) + b'\7{"id":1}', bytes(8) + b'\7{"__deleted":"false","id":1}'),
            "debezium-flat-json",
            "json",
            {"framing": "apicurio"},
            id="JSON Schema of Apicurio",
        ),
        pytest.param(
            Sample(b"1", b'{"n":1}', (("__value_schema_id", b"\1" + bytes(16)),)),
            "json",
            "json",
            {},
            id="JSON Schema in a header",
        ),
    ],
)
def test_serializers_are_known_by_what_they_write(
    sample: Sample, form: str, key: str, options: dict[str, str]
) -> None:
    """An id alone makes no Avro: JSON may follow it, and numbers begin with zeros, too."""
    run = run_of([sample])

    source = run.source
    assert (source.value_format, source.key_format, dict(source.options)) == (form, key, options)
    assert len(run.rows) == (sample.value is not None)
    assert not run.errors


def test_a_key_that_cannot_be_read_is_taken_from_rows() -> None:
    """A connector whose keys are texts writes the fields of a struct as no JSON."""
    event = {"before": None, "after": {"id": 1, "n": 2}, "op": "c", "source": {"db": "d"}}
    run = run_of([Sample(b"Struct{id=1}", json.dumps(event).encode())])

    assert (run.source.key, run.source.mode) == (("id",), "upsert")
    assert (run.rows, run.errors) == ([{"id": 1, "n": 2}], [])


def test_what_dms_does_not_tell_is_a_guess_that_is_named() -> None:
    """An input of it needs a key."""
    proposal = propose("t", stored("dms", "insert"))

    assert plan_of(proposal).key == ("id",)
    assert any("check that key" in note for note in proposal.notes)


@pytest.mark.parametrize(
    ("value", "note"),
    [
        (b"1,tea", "no JSON, such as '1,tea'"),
        (b'{"a": NaN}', "no JSON, such as '{\"a\": NaN}'"),
        (b"\x1f\x8b\x08", "neither JSON nor text"),
    ],
)
def test_what_is_no_json_is_shown(value: bytes, note: str) -> None:
    """With a value from which its reader sees why."""
    [*_, last] = propose("orders", [Sample(b"1", b'{"a": 1}'), *[Sample(b"2", value)] * 2]).notes

    assert last.startswith(f"Values are {note}: expressions have them as `value`, of type BLOB")


@pytest.mark.parametrize(
    ("value", "note"), [("7", "no objects"), (r'"{\"id\": 7}"', "texts of JSON: (value->>'$')")]
)
def test_values_without_columns_are_named(value: str, note: str) -> None:
    """An expression has the whole value."""
    [*_, last] = propose("orders", [Sample(b"1", value.encode())]).notes

    assert last.startswith(f"Values are {note}")


def test_a_long_topic_has_an_output_with_a_shorter_name() -> None:
    """A file with a name that Kafka refuses is not written."""
    proposal = propose("t" * 249, [Sample(b"1", b'{"a": 1}')])

    text = WRITERS["yaml"].written("long", [proposal], "localhost:9092", None)

    [output] = parse(text, "long", environ={}).plan.outputs
    assert output.topic == "t" * 232 + ".changes"
    assert len(output.progress_topic) == 249


def test_nothing_seen_is_said() -> None:
    """An empty topic, and one of tombstones."""
    empty, deleted = propose("t", []), propose("t", [Sample(b"1", None)])

    assert "no messages" in empty.notes[0]
    assert "none with a value: the format is a guess" in deleted.notes[0]
    assert plan_of(empty).value_format == plan_of(deleted).value_format == "json"


@pytest.mark.parametrize(
    "topic", ["a.b-c_d", "2024", "current", "_", "on", "-", "shop.public.orders"]
)
def test_names_of_topics_become_names_of_the_plan(topic: str) -> None:
    """Whatever a topic may be called."""
    assert plan_of(propose(topic, said({"n": 1}))).topics == (topic,)


def test_several_topics_become_inputs_of_one_file() -> None:
    """With names of their own; the same in YAML, SQL and Python."""
    proposals = [
        propose("a.b", said({"id": 1})),
        propose("a-b", [Sample(None, b'{"n":1}')]),
        propose("a-b-current", captured("confluent")),
    ]
    plan, settings = parse(
        YAML.written("new", proposals, "b:1", "http://r:1"), "new.yaml", environ={}
    )

    assert explained(plan, settings).fingerprint
    assert [(each.name, *each.topics, each.mode) for each in plan.inputs] == [
        ("a_b", "a.b", "upsert"),
        ("a_b_2", "a-b", "append"),
        ("a_b_current", "a-b-current", "upsert"),
    ]
    assert [(each.source, each.topic) for each in plan.outputs] == [
        ("a_b_current_2", "a.b.changes"),
        ("a_b_2", "a-b.changes"),
        ("a_b_current_current", "a-b-current.changes"),
    ]
    assert settings.registry == {"url": "http://r:1"}
    assert in_sql(proposals).plan == plan
    assert in_python(proposals).inputs == plan.inputs


class Described:
    """A registry with one schema of Avro, 1, and two of Protobuf: 2, and 4 of events."""

    def parsed(self, id: int | str) -> object:  # noqa: A002 -- as in `Schemas`
        if id == 1:
            return {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}]}
        raise SchemaUnknown("its schema is no Avro schema, but PROTOBUF")

    def described(self, id: int | str) -> Any:  # noqa: A002 -- as in `Descriptions`
        if id not in (2, 4):
            raise SchemaUnknown("its schema is no Protobuf schema")
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        file = FileDescriptorProto(name="row.proto", syntax="proto3")
        field = file.message_type.add(name="Row").field
        field.add(name="op" if id == 4 else "id", number=1, label=1, type=9 if id == 4 else 3)
        field.add(name="after" if id == 4 else "at", number=2, label=1, type=9)
        field.add(name="source", number=3, label=1, type=9)
        return [(file.name, file.SerializeToString())]


def in_registry(number: int, body: bytes) -> bytes:
    """A message behind the id of its schema."""
    return b"\0" + number.to_bytes(4) + body


ROW_IN_PROTOBUF = in_registry(2, b"\0\x08\x07\x12\x01x")


@pytest.mark.parametrize(
    ("sample", "formats", "row"),
    [
        pytest.param(
            Sample((1 << 24).to_bytes(8), in_registry(1, b"\x0e")),
            ("avro", "bytes"),
            {"id": 7},
            id="a Long of Java has the form of an id",
        ),
        pytest.param(
            Sample(in_registry(1, b"\x0e"), in_registry(1, b"\x0e")),
            ("avro", "avro"),
            {"id": 7},
            id="Avro",
        ),
        pytest.param(
            Sample(b"7", ROW_IN_PROTOBUF),
            ("protobuf", "json"),
            {"id": 7, "at": "x", "source": ""},
            id="Protobuf",
        ),
        pytest.param(
            Sample(ROW_IN_PROTOBUF, ROW_IN_PROTOBUF),
            ("protobuf", "protobuf"),
            {"id": 7, "at": "x", "source": ""},
            id="Protobuf in keys, too",
        ),
        pytest.param(
            Sample(b"7", in_registry(3, b'{"id": 7}')), ("json", "json"), {"id": 7}, id="JSON"
        ),
    ],
)
def test_a_registry_tells_what_keys_and_values_are_in(
    sample: Sample, formats: tuple[str, str], row: Any
) -> None:
    """The file reads the messages."""
    if "protobuf" in formats:
        pytest.importorskip("google.protobuf", reason="Protobuf is an extra")
    run = run_of([sample], schemas=Described())

    assert (run.proposal.value, run.proposal.key) == formats
    assert (run.rows, run.errors) == ([row], [])


def test_events_of_debezium_in_protobuf_are_rows() -> None:
    """A note says that no format reads them as changes."""
    pytest.importorskip("google.protobuf", reason="Protobuf is an extra")
    run = run_of([Sample(b"7", in_registry(4, b"\0\x0a\x01c\x12\x01x"))], schemas=Described())

    assert any("only in JSON and Avro" in note for note in run.proposal.notes)
    assert (run.rows, run.errors) == ([{"op": "c", "after": "x", "source": ""}], [])


def test_rows_of_goldengate_may_stand_among_its_own_fields() -> None:
    """Its messages of one row are read as changes; updates may lack what has not changed."""
    of = {"table": "SHOP.ORDERS", "op_ts": "2024-01-01 00:00:00", "pos": "1"}
    rows = [
        {**of, "op_type": "I", "ID": 1, "NAME": "ann"},
        {**of, "op_type": "I", "ID": 2, "NAME": "bob"},
        {**of, "op_type": "U", "ID": 1, "AGE": 7},
        {**of, "op_type": "D", "ID": 2},
    ]
    samples = [said(row, key=row["ID"])[0] for row in rows]
    run = run_of(samples)

    assert types_of(run.proposal) == {"ID": "BIGINT", "NAME": "VARCHAR", "AGE": "BIGINT"}
    assert (run.rows, run.errors) == ([{"ID": 1, "NAME": "ann", "AGE": 7}], [])


def test_avro_has_a_registry() -> None:
    """That which is given, else one to be named."""
    proposal = propose("t", captured("confluent"))

    _, settings = parse(
        YAML.written("new", [proposal], "b:1", "http://r:1"), "new.yaml", environ={}
    )
    assert settings.registry == {"url": "http://r:1"}
    assert "A guess" in YAML.written("new", [proposal], "b:1", None)


def test_without_a_topic_it_is_a_sample(tmp_path: Path) -> None:
    """Which runs as it is, and is not written over another file."""
    path = tmp_path / "a first.yaml"
    told = CliRunner().invoke(cli, ["new", str(path), "--brokers", "there:1"])

    assert told.exit_code == 0, told.output
    assert f"`ikebana explain '{path}'`" in told.stderr
    assert path.read_text() == YAML.sample("there:1")
    plan, settings = parse(path.read_text(), "first.yaml", environ={})
    assert explained(plan, settings).fingerprint
    assert settings.kafka["bootstrap.servers"] == "there:1"

    refused = CliRunner().invoke(cli, ["new", str(path)])
    assert isinstance(refused.exception, ConfigError)
    assert "exists already" in str(refused.exception)
    forced = CliRunner().invoke(cli, ["new", str(path), "--force"])
    assert forced.exit_code == 0
    assert "localhost:9092" in path.read_text()


ROW, OLD = {"id": 2, "n": 1}, {"id": 1}
OF_MAXWELL = {"database": "shop", "table": "t", "primary_key_columns": ["id"], "data": ROW}
OF_GOLDENGATE = {"table": "T", "op_ts": "2024-01-31 12:34:56", "primary_keys": ["id"]}
OF_DMS = {"record-type": "data", "schema-name": "s", "table-name": "t"}
AT = {"stream-position": "00000002/7C007328.2.00000002/7C007328", "transaction-record-id": 1}


@pytest.mark.parametrize(
    ("messages", "sequence"),
    [
        pytest.param(
            [
                {**OF_MAXWELL, "type": "insert", "position": "bin.09:4", "xoffset": 0},
                {**OF_MAXWELL, "type": "update", "position": "bin.09:9", "old": OLD},
            ],
            None,
            id="not in all messages",
        ),
        pytest.param(
            [
                {**OF_MAXWELL, "type": "bootstrap-insert", "position": "bin.09:4"},
                {**OF_MAXWELL, "type": "update", "position": "b.9:9", "xoffset": 0, "old": OLD},
            ],
            "position log, xoffset",
            id="maxwell",
        ),
        pytest.param([{**OF_MAXWELL, "type": "insert"}] * 2, None, id="none"),
        pytest.param(
            [
                {**OF_GOLDENGATE, "op_type": "I", "after": OLD | ROW, "pos": "0143"},
                {**OF_GOLDENGATE, "op_type": "U", "before": OLD, "after": ROW, "pos": "0144"},
            ],
            "pos log",
            id="goldengate",
        ),
        pytest.param(
            [
                {**OF_GOLDENGATE, "op_type": "I", "after": OLD | ROW, "pos": "0143"},
                {
                    **OF_GOLDENGATE,
                    "op_type": "U",
                    "before": OLD | ROW,
                    "after": {"id": 2},
                    "pos": "0144",
                },
            ],
            None,
            id="rows in part",
        ),
        pytest.param(
            [
                {"data": ROW, "metadata": {**OF_DMS, "operation": "load"}},
                {"data": ROW, "metadata": {**OF_DMS, **AT, "operation": "update"}},
            ],
            "metadata.stream-position log, metadata.transaction-record-id",
            id="dms",
        ),
        pytest.param(
            [{"op": "u", "after": ROW, "before": None, "source": {"lsn": 3}}] * 2,
            "source.lsn",
            id="debezium without keys",
        ),
    ],
)
def test_changed_keys_are_put_in_order_across_partitions(
    messages: list[Any], sequence: str | None
) -> None:
    """By what all messages say of their place in the source, or there is a note."""
    samples = [s._replace(key=None) for s in said(*messages)]
    (alone,) = {run_of(samples).proposal.options.get("sequence")}
    found = run_of([s._replace(partition=at) for at, s in enumerate(samples)])

    assert (alone, found.proposal.options.get("sequence")) == (None, sequence)
    assert found.errors == []
    assert [row for row in found.rows if row == {"id": 2, "n": 1}]
    assert any("a changed key" in note for note in found.proposal.notes)
    assert any("fill partitions" in note for note in found.proposal.notes) == (sequence is None)


def oracle(op: str, key: int, name: str) -> Sample:
    """A message of Confluent's connector of Oracle."""
    its = {"table": "ORCL.ADMIN.CUSTOMERS", "scn": "589654", "op_type": op, "op_ts": None}
    row = {"ID": key, "NAME": name, **its, "row_id": None, "username": None}
    return said(row, key=key)[0]


def test_snapshots_of_oracle_by_confluent_are_rows() -> None:
    """Also where nothing has changed since: its deletes would stay, or its rows be errors."""
    snapshot = [oracle("R", 1, "ann"), oracle("R", 2, "bob")]
    alone = run_of(snapshot)
    changed = run_of([*snapshot, oracle("U", 1, "anna"), oracle("D", 2, "bob")])

    assert alone.proposal.options == changed.proposal.options
    assert (alone.proposal.value, alone.proposal.options["op_insert"]) == ("changes", "R, I")
    assert alone.rows == [{"ID": 1, "NAME": "ann"}, {"ID": 2, "NAME": "bob"}]
    assert (changed.rows, changed.errors) == ([{"ID": 1, "NAME": "anna"}], [])
    assert not any("error records" in note for note in changed.proposal.notes[:-1])


def test_cells_of_cassandra_are_refused() -> None:
    """A null there is a column that did not change: as rows they would lose its value."""
    after = {"id": {"value": 1, "deletion_ts": None, "set": True}, "name": None}
    event = {"op": "u", "after": after, "source": {"connector": "cassandra", "table": "t"}}
    with pytest.raises(ConfigError, match="Cassandra cannot be read as rows"):
        run_of(said(event))
