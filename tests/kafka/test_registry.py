"""Schemas come from a registry, once, and a registry that is away is no bad record.

What can be shown with a real one is shown with Apicurio (`make test-cdc`), whose answers go
through a small server that counts what was asked.  Where that server answers by itself, it
speaks as much of Confluent's REST API as a reader and `register_schema` use: so `make test`
needs no registry, refusals and broken connections come when they should, and there are
GUIDs, which Apicurio doesn't know.
"""

import contextlib
import importlib.util
import json
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import ikebana
from cdc.registry import ApicurioRegistry
from ikebana import Column, Input, Output, Plan, Upsert
from ikebana.codecs.avro import AvroDecoder, AvroUpserts
from ikebana.codecs.avro_out import key_schema, value_schema
from ikebana.codecs.avro_schema import SchemaUnknown
from ikebana.codecs.change import Change, Needs
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.formats import OUTPUT_FORMATS
from ikebana.codecs.output_messages import encoded, framed, to_upserts
from ikebana.errors import AwayError, ConfigError, SourceError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.cli.main import cli
from ikebana.processor.kafka.broker import Broker, free_port
from ikebana.processor.kafka.own_topics import registered, schema_checks, subjects_of
from ikebana.processor.kafka.registry import Registry
from ikebana.processor.planning.outputs import shape_of
from support.avro_messages import message
from support.schema_registries import RealRegistry, Served, SmallRegistry
from support.written_topics import Written

pytestmark = pytest.mark.full

needs_client = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("attr", "authlib", "cachetools", "certifi", "httpx2"))),
    reason='the client of registries needs "confluent-kafka[schemaregistry]"',
)


both = pytest.mark.parametrize(
    "served",
    [
        "small",
        pytest.param("apicurio", marks=[pytest.mark.cdc, pytest.mark.timeout(900)]),
    ],
    indirect=True,
)


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    """A registry of its own for each test, or the real one."""
    registry = SmallRegistry()
    if getattr(request, "param", "small") == "apicurio":
        apicurio: ApicurioRegistry = request.getfixturevalue("apicurio")
        registry = RealRegistry(apicurio.url)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            registry.requests.append((path, self.headers["Authorization"]))
            if registry.answers:
                if (given := registry.answers.pop(0)) is None:
                    self.connection.close()
                else:
                    self._give(*given)
                return
            status, data = registry.answer(path)
            self._give(status, json.dumps(data).encode())

        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, data = registry.post(self.path.partition("?")[0], given)
            self._give(status, json.dumps(data).encode())

        def _give(self, status: int, answer: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None: ...

        def handle(self) -> None:
            # We may have hung up.
            with contextlib.suppress(OSError, ValueError):
                super().handle()

        def finish(self) -> None:
            with contextlib.suppress(OSError, ValueError):
                super().finish()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Served(registry, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


def row(*fields: dict[str, Any]) -> dict[str, Any]:
    """A record named row."""
    return {"type": "record", "name": "row", "fields": list(fields)}


ID = {"name": "id", "type": "long"}
V1 = row(ID)
V2 = row(ID, {"name": "name", "type": "string", "default": "nobody"})


@needs_client
@both
def test_a_registry_is_known_by_what_it_answers(served: Served) -> None:
    """It is reached without asking for a schema; what refuses us, or is none, is told."""
    served.reading().reach()
    assert [path for path, _ in served.registry.requests] == ["/schemas/types"]

    served.registry.answers = [(403, b"{}")]
    with pytest.raises(SourceError, match="it refuses us"):
        served.reading().reach()
    served.registry.answers = [(404, b"{}")]
    with pytest.raises(SourceError, match="it knows no schema types"):
        served.reading().reach()


@needs_client
@both
def test_a_schema_is_asked_for_once(served: Served) -> None:
    """A schema never changes under its id."""
    number = served.register("rows-value", V1)
    registry = served.reading()

    found = [registry.parsed(number) for _ in range(3)]

    assert found == [V1] * 3
    assert served.registry.requests == [(f"/schemas/ids/{number}", None)]


@needs_client
@both
def test_rows_of_two_versions_look_alike_with_a_pinned_schema(served: Served) -> None:
    """A field that was added has its default in older rows."""
    key = served.register("rows-key", '"string"')
    first, second = served.register("rows-value", V1), served.register("rows-value", V2)
    codec = AvroUpserts(served.reading(), Needs(options={"reader_schema": json.dumps(V2)}))
    of_a = message(key, "string", "a")

    changes = [
        codec.changes(of_a, message(first, V1, {"id": 1}), None),
        codec.changes(of_a, message(second, V2, {"id": 2, "name": "b"}), None),
    ]

    assert first != second
    assert changes == [
        [Change("upsert", b'"a"', b'{"id":1,"name":"nobody"}')],
        [Change("upsert", b'"a"', b'{"id":2,"name":"b"}')],
    ]


@needs_client
@both
def test_rows_of_two_versions_differ_without_a_pinned_schema(served: Served) -> None:
    """Each row is then as its writer wrote it."""
    first, second = served.register("rows-value", V1), served.register("rows-value", V2)
    decoder = AvroDecoder(served.reading())

    assert decoder.decode(message(first, V1, {"id": 1})) == {"id": 1}
    assert decoder.decode(message(second, V2, {"id": 2, "name": "b"})) == {"id": 2, "name": "b"}


@needs_client
@both
def test_what_a_schema_refers_to_is_found_with_what_that_refers_to(served: Served) -> None:
    """References are resolved over subjects, each of them asked for once."""
    money = {"type": "fixed", "name": "Money", "namespace": "bank", "size": 2}
    line = {
        "type": "record", "name": "shop.Line", "fields": [{"name": "price", "type": "bank.Money"}]
    }  # fmt: skip
    order = {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "lines", "type": {"type": "array", "items": "Line"}},
            {"name": "paid", "type": "bank.Money"},
        ],
    }
    served.register("money", money)
    served.register("line", line, ("bank.Money", "money", 1))
    number = served.register("order", order, ("shop.Line", "line", 1), ("bank.Money", "money", 1))

    data = AvroDecoder(served.reading()).decode(b"\0" + number.to_bytes(4, "big") + b"\2ab\0cd")

    assert data == {"lines": [{"price": "YWI="}], "paid": "Y2Q="}
    assert [path for path, _ in served.registry.requests] == [
        f"/schemas/ids/{number}",
        "/subjects/line/versions/1",
        "/subjects/money/versions/1",
    ]


@needs_client
def test_a_schema_is_found_by_its_guid(served: Served) -> None:
    """As newer clients name it in a header."""
    number = served.register("rows-value", V1)
    guid = b"\1" + uuid.UUID(int=number).bytes

    data = AvroDecoder(served.reading()).decode(b"\2", [("__value_schema_id", guid)])

    assert data == {"id": 1}


@needs_client
@both
def test_an_id_that_the_registry_does_not_know_is_a_bad_record(served: Served) -> None:
    """It is not asked for again with every record."""
    decoder = AvroDecoder(served.reading())

    for _ in range(3):
        with pytest.raises(DecodeError, match="could not decode Avro value: schema id is unknown"):
            decoder.decode(b"\0\x7f\0\0\7\2")

    asked = [path for path, _ in served.registry.requests]
    assert asked == [f"/schemas/ids/{0x7F000007}", "/schemas/types"]


@needs_client
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        pytest.param({"schema": "{}", "schemaType": "JSON"}, "is no Avro schema", id="JSON"),
        pytest.param({"schema": "{}"}, "is no Avro schema", id="damaged"),
        pytest.param({"schema": '"shop.Line"'}, "names a type that is not defined", id="a name"),
        pytest.param(
            {
                "schema": '"shop.Line"',
                "references": [{"name": "shop.Line", "subject": "line", "version": 1}],
            },
            "refers to one that is unknown",
            id="a reference to nothing",
        ),
    ],
)
def test_a_schema_that_cannot_be_read_with_is_a_bad_record(
    served: Served, schema: dict[str, Any], reason: str
) -> None:
    """One bad schema is no reason to stop."""
    number = served.registry.register("rows-value", schema)

    with pytest.raises(SchemaUnknown, match=f"its schema {reason}"):
        served.reading().parsed(number)


@needs_client
def test_a_registry_that_is_away_is_no_bad_record() -> None:
    """The pipeline stops, naming the url, but not who is named in it."""
    port = free_port()
    registry = Registry({"url": f"http://user:hunter2@127.0.0.1:{port}"}, 0.2)

    with pytest.raises(AwayError) as caught:
        AvroDecoder(registry).decode(b"\0\0\0\0\1\2")

    assert caught.value.message.startswith(
        f"could not reach the schema registry at http://127.0.0.1:{port} for 0 s: "
    )
    assert "hunter2" not in str(caught.value)
    assert caught.value.hint == "Check the registry's url and that it is up."


@needs_client
@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param([(503, b"<html>later</html>"), (429, b"{}"), (500, b"")], id="busy"),
        pytest.param([None, None], id="connections that break"),
    ],
)
def test_a_registry_that_comes_back_is_waited_for(
    served: Served, trouble: list[tuple[int, bytes] | None]
) -> None:
    """Nobody notices but for the wait."""
    number = served.register("rows-value", V1)
    served.registry.answers = list(trouble)

    assert served.reading().parsed(number) == V1
    assert len(served.registry.requests) == len(trouble) + 1


@needs_client
@pytest.mark.parametrize(
    ("answers", "fact"),
    [
        pytest.param([(401, b"{}")], "it refuses us, HTTP status 401", id="a password"),
        pytest.param([(403, b"{}")], "it refuses us, HTTP status 403", id="no access"),
        pytest.param([(405, b"")], "it does not serve schemas, HTTP status 405", id="another"),
        pytest.param([(404, b"<html>")] * 2, "it knows no schema types", id="a wrong path"),
        pytest.param([(200, b"<html>")], "its answer is no JSON", id="a page"),
    ],
)
def test_what_is_no_registry_for_us_is_no_bad_record(
    served: Served, answers: list[tuple[int, bytes] | None], fact: str
) -> None:
    """Waiting would not help; the message says what to look at."""
    served.registry.answers = answers

    with pytest.raises(SourceError) as caught:
        served.reading().parsed(1)

    assert caught.value.message == f"cannot read from the schema registry at {served.url}: {fact}"
    assert caught.value.hint is not None


@needs_client
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({"basic.auth.user.info": "me:pw"}, "Basic bWU6cHc=", id="a user"),
        pytest.param(
            {
                "bearer.auth.credentials.source": "STATIC_TOKEN",
                "bearer.auth.token": "t0ken",
                "bearer.auth.logical.cluster": "c",
                "bearer.auth.identity.pool.id": "p",
                "timeout": "5",
            },
            "Bearer t0ken",
            id="a token",
        ),
    ],
)
def test_settings_reach_the_registry(
    served: Served, settings: dict[str, str], expected: str
) -> None:
    """Who asks is in each request."""
    number = served.register("rows-value", V1)

    assert served.reading(**settings).parsed(number) == V1
    assert served.registry.requests == [(f"/schemas/ids/{number}", expected)]


@needs_client
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="no url"),
        pytest.param({"url": "ftp://user:hunter2@there"}, id="another protocol"),
        pytest.param({"url": "http://there", "basic.auth.user.info": "hunter2"}, id="no password"),
        pytest.param({"url": "http://there", "colour": "hunter2"}, id="an unknown setting"),
        pytest.param({"url": "http://there", "timeout": "soon"}, id="no number"),
        pytest.param({"url": "http://there", "ssl.ca.location": "/not/there"}, id="no file"),
    ],
)
def test_settings_that_the_client_refuses_are_told(settings: dict[str, str]) -> None:
    """No secret is repeated."""
    with pytest.raises(ConfigError, match="cannot make a client of the schema registry") as caught:
        Registry(settings)

    assert "hunter2" not in str(caught.value)


def test_a_client_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only topics in Avro need it."""
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)

    with pytest.raises(ConfigError) as caught:
        Registry({"url": "http://127.0.0.1"})

    assert caught.value.hint == 'Install "confluent-kafka[schemaregistry]".'


COLUMNS = (Column("id", "BIGINT"), Column("n", "INTEGER"))


def written_plan(topic: str, kind: str = "INTEGER", **options: Any) -> Plan:
    """A plan with an output by a registry to this topic, by default in Avro."""
    columns = (Column("id", "BIGINT"), Column("n", kind))
    source = Input("rows", ("rows",), "debezium-json", columns=columns, key=("id",))
    output = replace(Output("out", "current", topic, "avro"), **options)
    return Plan("p", (source,), (Upsert("current", "rows"),), (output,))


@needs_client
@both
def test_schemas_of_outputs_are_registered_once(served: Served) -> None:
    """Their ids are those that readers find them by."""
    topic = f"t{uuid.uuid4().hex}"
    plan = written_plan(topic)

    found = registered(plan, {"url": served.url})

    assert registered(plan, {"url": served.url}) == found
    shape, reading = shape_of(plan, plan.outputs[0]), served.reading()
    assert [reading.parsed(number) for number in found["out"]] == [
        key_schema(shape),
        value_schema(shape),
    ]
    assert registered(replace(plan, outputs=()), {"url": served.url}) == {}


@needs_client
@both
def test_a_schema_that_is_not_compatible_is_told_before_a_start(served: Served) -> None:
    """By its subject, with what to do; a start ends by it, too."""
    topic = f"t{uuid.uuid4().hex}"
    url = {"url": served.url}
    settings = Settings("c", {"bootstrap.servers": "b"}, registry=url)
    plan, other = written_plan(topic), written_plan(topic, "VARCHAR")

    assert [check.status for check in schema_checks(plan, settings)] == ["ok", "ok"]
    registered(plan, url)
    served.registry.demand_compatible(f"{topic}-value")
    assert [check.status for check in schema_checks(plan, settings)] == ["ok", "ok"]

    key, value = schema_checks(other, settings)
    assert key.status == "ok"
    assert (value.check, value.status) == (f'subject "{topic}-value"', "failed")
    assert "Name another topic" in (value.remedy or "")
    with pytest.raises(ConfigError, match=f'cannot write output "out" under .* "{topic}-value"'):
        registered(other, url)


@needs_client
@pytest.mark.cdc
@pytest.mark.timeout(900)
@pytest.mark.parametrize("served", ["apicurio"], indirect=True)
@pytest.mark.parametrize("form", ["avro", "debezium-avro", "json-schema", "protobuf"])
@pytest.mark.parametrize("subjects", ["topic", "record", "topic-record"])
def test_a_real_registry_takes_a_column_more_and_no_other_type(
    served: Served, form: str, subjects: str
) -> None:
    """Under the subjects of each strategy; what it would refuse is told before a start."""
    topic, url = f"t{uuid.uuid4().hex}", {"url": served.url}
    settings = Settings("c", {"bootstrap.servers": "b"}, registry=url)
    written: dict[str, Any] = {"format": form, "subjects": subjects}
    plan, other = written_plan(topic, **written), written_plan(topic, "VARCHAR", **written)
    before = registered(plan, url)["out"]
    _, of_value = subjects_of(plan, plan.outputs[0])
    served.registry.demand_compatible(of_value.name)
    columns = (*COLUMNS, Column("more", "DECIMAL(9,2)"))
    more = replace(plan, inputs=(replace(plan.inputs[0], columns=columns),))

    assert [check.status for check in schema_checks(more, settings)] == ["ok", "ok"]
    assert [check.status for check in schema_checks(other, settings)] == ["ok", "failed"]
    after = registered(more, url)["out"]

    assert after.key == before.key
    assert after.value != before.value
    with pytest.raises(ConfigError, match=f'cannot write output "out" under .* "{of_value.name}"'):
        registered(other, url)


@needs_client
@both
@pytest.mark.parametrize("form", ["avro", "json-schema", "protobuf"])
def test_an_output_by_a_registry_is_read_back(
    served: Served, form: str, broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """By `ikebana.follow` and the commands, which find the registry among the settings."""
    topic = topic_name("written")
    plan = written_plan(topic, format=form)
    ids, shape = registered(plan, {"url": served.url})["out"], shape_of(plan, plan.outputs[0])
    codec = OUTPUT_FORMATS[form].schemas
    assert codec is not None
    written = Written(broker.bootstrap_servers, topic)
    key, old, new = b'{"id":1}', b'{"id":1,"n":1}', b'{"id":1,"n":2}'
    for time, facts in ((1, [(key, old, 1, 1)]), (2, [(key, old, 2, -1), (key, new, 2, 1)])):
        messages, _ = to_upserts(facts)
        written.producer.begin_transaction()
        for of_key, value, headers in framed(encoded(codec().writers(shape), messages)[0], ids):
            written.producer.produce(topic, value, of_key, partition=0, headers=headers)
        written.producer.commit_transaction(30)
        written.progress(time + 1, 1)
    config = {"schema.registry.url": served.url}

    with ikebana.follow(
        topic, bootstrap_servers=written.servers, format=form, config=config, wait=False
    ) as found:
        updates = [update[1:] for batch in found for update in batch.updates]

    assert updates == [(key, old, 1, 1), (key, old, 2, -1), (key, new, 2, 1)]
    file = tmp_path / "client.properties"
    file.write_text(f"schema.registry.url={served.url}\n")
    options = ["--format", form, "--bootstrap-servers", written.servers]
    told = CliRunner().invoke(cli, ["snapshot", topic, *options, "--config", str(file)])
    assert json.loads(told.output) == {"key": {"id": 1}, "value": {"id": 1, "n": 2}, "count": 1}
    refused = CliRunner().invoke(cli, ["snapshot", topic, *options])
    assert "needs a schema registry" in str(refused.exception)
