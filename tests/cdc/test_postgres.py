"""From a real PostgreSQL through the real Debezium: what we have is what its tables are.

Messages are stored in `tests/golden/debezium_captured`, a file a kind, for the codecs'
own tests; IKEBANA_GOLDEN=write stores them anew.  Where PostgreSQL is not installed, or
Debezium's jars cannot be fetched, these tests are skipped.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from cdc import every_postgres, shop
from cdc.declared import declared
from cdc.every_postgres import LOST
from cdc.fetched import Unavailable
from cdc.reading import collection
from cdc.shop import Shop
from ikebana.codecs.change import Change, Ignored, Needs
from ikebana.codecs.debezium import Debezium
from ikebana.processor.kafka.broker import running
from support.output_judge import committed
from support.pipeline_processes import Run, ends_of
from support.waiting import patient

pytestmark = [pytest.mark.cdc, pytest.mark.kafka, pytest.mark.timeout(900)]

GOLDEN = Path(__file__).parents[1] / "golden" / "debezium_captured"

# Where each kind is among a table's messages.
KINDS = {
    "snapshot": ("customers", slice(0, 3)),
    "insert": ("customers", slice(3, 4)),
    "update": ("customers", slice(4, 5)),
    "toast": ("customers", slice(5, 6)),
    "key_change": ("customers", slice(6, 9)),
    "delete": ("customers", slice(9, 11)),
    "truncate": ("customers", slice(11, 12)),
    "full_update": ("accounts", slice(4, 5)),
    "full_key_change": ("accounts", slice(6, 9)),
    "full_delete": ("accounts", slice(9, 11)),
    "toast_key_change": ("papers", slice(2, 5)),
    "oddities": ("oddities", slice(0, 4)),
}

# What is another one in each run.
_OTHER = {"ts_ms", "ts_us", "ts_ns", "lsn", "txId", "sequence", "xmin", "__debezium.context.runId"}


@pytest.fixture(scope="module")
def captured(request: pytest.FixtureRequest) -> Iterator[Shop]:
    try:
        shop.require()
    except Unavailable as reason:
        pytest.skip(str(reason))
    registry = request.getfixturevalue("apicurio")
    with running() as broker, shop.captured(broker.bootstrap_servers, registry) as found:
        yield found


@pytest.mark.parametrize("kind", KINDS)
def test_debezium_says_what_is_stored(captured: Shop, kind: str) -> None:
    """The codecs' tests read messages as this Debezium writes them."""
    table, place = KINDS[kind]
    found = {
        server: [
            _told(message) for message in captured.messages[f"{server}.public.{table}"][place]
        ]
        for server in shop.CONNECTORS
    }
    path = GOLDEN / f"{kind}.json"
    if os.environ.get("IKEBANA_GOLDEN") == "write":
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")

    assert _without_other(found) == _without_other(json.loads(path.read_text()))


@pytest.mark.parametrize("server", shop.EVERYTHING)
def test_every_type_is_read_as_new_alone_declares_it(
    captured: Shop, server: str, tmp_path: Path
) -> None:
    """The rows are those of the database: by the schema in messages, in the registry, or none."""
    topic = f"{server}.public.everything"
    found = declared(
        tmp_path, topic, captured.messages[topic], captured.servers, captured.registry.url
    )
    rows = captured.everything_plain if server == "plain" else captured.everything

    assert found.rows.keys() == rows.keys() == {1, 2, 3, 11, 12, 13}
    for number, row in rows.items():
        there = {name: every_postgres.shown(name, of) for name, of in found.rows[number].items()}
        lost = {name: there.pop(name) for name in row if (server, number, name) in LOST}
        wanted = {name: every_postgres.shown(name, of) for name, of in row.items()}
        assert there == {name: of for name, of in wanted.items() if name not in lost}
        assert all(of is None for of in lost.values()), "it is not lost any more"


@pytest.mark.parametrize("server", shop.CONNECTORS)
@pytest.mark.parametrize("table", ["customers", "accounts"])
def test_what_debezium_says_comes_to_the_table(captured: Shop, server: str, table: str) -> None:
    """Nothing is lost on the way to us, so what we lose is our fault."""
    said = captured.messages[f"{server}.public.{table}"]

    assert collection(said) == captured.rows(server, table)


@pytest.mark.parametrize("server", shop.CONNECTORS)
@pytest.mark.parametrize("key", [(), ("id",)], ids=["of Kafka", "of the row"])
def test_the_codec_reads_the_table(captured: Shop, server: str, key: tuple[str, ...]) -> None:
    """What is absent is as it was."""
    found = _folded(Debezium(Needs(key=key)), captured.messages[f"{server}.public.customers"])

    assert found == captured.rows(server, "customers")


def test_declared_encodings_make_up_for_a_schema(captured: Shop) -> None:
    """What is text without a schema stays text."""
    encodings = {
        "born": "date",
        "wakes": "time-micros",
        "seen": "timestamp-millis",
        "changed": "timestamp-micros",
    }
    codec = Debezium(Needs(encodings=encodings))
    texts = ("balance", "score", "created")
    rows = zip(captured.typed["customers"], captured.plain["customers"], strict=True)
    expected = [typed | {name: plain[name] for name in texts} for typed, plain in rows]

    assert _folded(codec, captured.messages["plain.public.customers"]) == expected


@pytest.mark.parametrize("server", shop.CONNECTORS)
def test_full_images_need_no_state(captured: Shop, server: str) -> None:
    """With REPLICA IDENTITY FULL the old rows and the new ones add up to the table."""
    codec = Debezium(Needs(before=True))
    found: Counter[bytes] = Counter()
    for change in _changes(codec, captured.messages[f"{server}.public.accounts"]):
        assert not change.absent
        if change.before is not None:
            found[change.before] -= 1
        if change.after is not None:
            found[change.after] += 1

    assert set(found.values()) == {0, 1}
    assert sorted(map(_row, +found), key=_id) == captured.rows(server, "accounts")


# What the pipeline has: the connector and the table that it reads, and whether it keeps rows.
SHOWN = {
    "with schemas": ("typed", "customers", "upsert"),
    "without schemas": ("plain", "customers", "upsert"),
    "stateless": ("typed", "accounts", "diffs"),
}


@pytest.fixture(scope="module")
def shown(captured: Shop, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The rows of each output, of one run of one pipeline."""
    folder = tmp_path_factory.mktemp("shop")
    path = folder / "pipeline.yaml"
    path.write_text(json.dumps(_pipeline(captured, folder)))
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(folder), "TMPDIR": str(folder)}
    command = [_ikebana(), "run", str(path), "--once"]
    with Run(command, environment, folder / "run.log", folder / "once") as run:
        assert run.wait(240) == 0, run.text
    assert ends_of(captured.servers, ["shop.errors"]), "no error topic"
    assert [message.value() for message in committed(captured.servers, "shop.errors")] == []
    return {name: _snapshot(captured.servers, _topic(name)) for name in SHOWN}


@pytest.mark.spark
@pytest.mark.parametrize("name", SHOWN)
def test_the_collection_is_the_table(
    captured: Shop, shown: dict[str, list[Any]], name: str
) -> None:
    """Through key changes, unchanged long values and a truncate."""
    server, table, mode = SHOWN[name]
    found = shown[name]

    assert [line["count"] for line in found] == [1] * len(found)
    assert sorted((line["value"] for line in found), key=_id) == captured.rows(server, table)
    if mode == "upsert":
        assert all(line["key"] == {"id": line["value"]["id"]} for line in found)


def _changes(codec: Debezium, messages: list[Message]) -> Iterator[Change]:
    for message in messages:
        found = codec.changes(message.key(), message.value(), message.headers())
        if not isinstance(found, Ignored):
            yield from found


def _folded(codec: Debezium, messages: list[Message]) -> list[Any]:
    found: dict[bytes, dict[str, Any]] = {}
    for change in _changes(codec, messages):
        if change.kind == "truncate":
            found.clear()
            continue
        assert change.key is not None
        if change.kind == "delete":
            found.pop(change.key, None)
        else:
            row = _row(change.after)
            found[change.key] = row | {name: found[change.key][name] for name in change.absent}
    return sorted(found.values(), key=_id)


def _row(data: bytes | None) -> Any:
    assert data is not None
    return json.loads(data, parse_float=Decimal)


def _id(row: Any) -> Any:
    return row["id"]


def _pipeline(captured: Shop, folder: Path) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    operators: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for name, (server, table, mode) in SHOWN.items():
        shown = source = f"{server}_{table}"
        topic = f"{server}.public.{table}"
        inputs[source] = {"topic": topic, "format": "debezium-json", "key": ["id"]}
        if mode == "upsert":
            shown = f"{source}_now"
            operators[shown] = {"upsert": source}
        else:
            inputs[source]["mode"] = mode
        outputs[f"{source}_out"] = {"from": shown, "topic": _topic(name)}
    return {
        "pipeline": "shop",
        "inputs": inputs,
        "operators": operators,
        "outputs": outputs,
        "kafka": {"bootstrap.servers": captured.servers},
        "run": {
            "checkpoint": str(folder / "checkpoint"),
            "local_directory": str(folder / "local"),
            "shards": 2,
            "master": "local[2]",
            "driver_memory": "512m",
        },
    }


def _topic(name: str) -> str:
    return f"shop.{name.replace(' ', '-')}"


def _snapshot(servers: str, topic: str) -> list[Any]:
    command = [_ikebana(), "snapshot", topic, "--bootstrap-servers", servers]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=patient(60), check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line, parse_float=Decimal) for line in done.stdout.splitlines()]


def _ikebana() -> str:
    return str(Path(sys.executable).with_name("ikebana"))


def _told(message: Message) -> dict[str, Any]:
    key, value = message.key(), message.value()
    return {
        "key": None if key is None else json.loads(key),
        "value": None if value is None else json.loads(value),
        "headers": {name: data.decode() for name, data in message.headers() or ()},
    }


def _without_other(data: Any) -> Any:
    if isinstance(data, dict):
        return {k: "…" if k in _OTHER else _without_other(v) for k, v in data.items()}
    if isinstance(data, list):
        return [_without_other(item) for item in data]
    return data
