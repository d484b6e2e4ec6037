"""Outputs in Avro through a real registry and a real sink of Kafka Connect into PostgreSQL.

The sink is Debezium's, which makes the tables by the schemas of the messages.  Whatever is
inserted, updated and deleted, each table has the rows of its collection, also after an edit has
given it another column.
"""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cdc import connect, postgres
from cdc.fetched import Unavailable
from cdc.postgres import Postgres
from ikebana.codecs.avro import AvroDecoder
from ikebana.processor.kafka.broker import Broker
from ikebana.processor.kafka.registry import Registry
from support.output_judge import committed
from support.pipeline_processes import create, produce, written
from support.waiting import wait_until

pytestmark = [pytest.mark.cdc, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]

COLUMNS = {
    "id": "BIGINT",
    "name": "VARCHAR",
    "price": "DECIMAL(12,2)",
    "day": "DATE",
    "at": "TIMESTAMP",
    "code": "UUID",
    "is_new": "BOOLEAN",
    "photo": "BLOB",
}
ROW = {
    "name": "tea",
    "price": 12.5,
    "day": "2024-01-31",
    "at": "2024-01-31T12:00:00.000001",
    "code": "123e4567-e89b-12d3-a456-426614174000",
    "is_new": True,
    "photo": "/w==",
}
SHOWN = (
    "SELECT json_build_object('id', id, 'name', name, 'price', price, 'day', day, 'at', \"at\", "
    "'code', code, 'is_new', is_new, 'photo', encode(photo, 'base64'){}) FROM {} ORDER BY id"
)


def sections(name: str, registry: str, more: str = "") -> dict[str, Any]:
    """Goods as upserts and as Debezium's envelopes, by their key."""
    taken = ", ".join(f'"{column}"' for column in COLUMNS)
    goods = {"sql": f"SELECT {taken}{more} FROM good", "key": "{'id': id}"}
    source = {"topic": f"{name}.source", "columns": COLUMNS}
    return {
        "inputs": {"goods": source},
        "operators": {"good": {"upsert": "goods"}, "all": goods},
        "outputs": {
            form.replace("-", "_"): {
                "from": "all",
                "topic": f"{name.replace('-', '_')}_{form.replace('-', '_')}",
                "format": form,
            }
            for form in ("avro", "debezium-avro")
        },
        "registry": {"url": registry},
    }


def upserts(*numbers: int, **other: Any) -> list[tuple[bytes, bytes]]:
    """Rows by their keys."""
    return [(b"%d" % at, json.dumps({"id": at, **ROW, **other}).encode()) for at in numbers]


def wait_for(database: Postgres, table: str, rows: list[dict[str, Any]], more: str = "") -> None:
    """Wait until a table has these rows."""
    found: list[Any] = []

    def has() -> bool:
        if database.run(f"SELECT to_regclass('{table}') IS NOT NULL").strip() != "t":
            return False
        columns = (
            f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}'"
        )
        if more and "twice" not in database.run(columns).split():
            return False
        found[:] = database.rows(SHOWN.format(more, table))
        return found == rows

    wait_until(has, 120, f"{table} has {rows}")


def shown(number: int, **other: Any) -> dict[str, Any]:
    """A row as PostgreSQL writes it."""
    return {"id": number, **ROW, **other}


def test_a_sink_of_connect_keeps_tables_by_outputs_in_avro(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path, request: Any
) -> None:
    """Types, updates, deletes and an added column, with upserts and with envelopes."""
    servers, name = broker.bootstrap_servers, topic_name("goods")
    try:
        connect.installed("jdbc")
        with ExitStack() as stack, ThreadPoolExecutor() as pool:
            starting = pool.submit(stack.enter_context, postgres.running())
            registry = request.getfixturevalue("apicurio")
            database = starting.result()
            _kept(stack, servers, name, tmp_path, registry, database)
    except Unavailable as reason:
        pytest.skip(str(reason))


def _kept(
    stack: ExitStack, servers: str, name: str, folder: Path, registry: Any, database: Postgres
) -> None:
    create(servers, f"{name}.source", 1)
    produce(servers, f"{name}.source", upserts(1, 2, 3))
    made = sections(name, registry.url)
    tables = [output["topic"] for output in made["outputs"].values()]
    written(folder, servers, name, made).drained()
    _read_by_the_registry(servers, tables, registry.url)

    converters = connect.avro(registry.own_url, headers=False)
    sink = {**connect.jdbc_sink(database, ",".join(tables)), **converters}
    worker = stack.enter_context(connect.running(servers, "jdbc", {"sink": sink}))
    for table in tables:
        wait_for(database, table, [shown(1), shown(2), shown(3)])
    worker.check()

    produce(servers, f"{name}.source", [*upserts(2, name="milk"), (b"3", None)])
    edited = sections(name, registry.url, ", price * 2 AS twice")
    written(folder, servers, name, edited).drained()
    for table in tables:
        rows = [shown(1, twice=25), shown(2, name="milk", twice=25)]
        wait_for(database, table, rows, ", 'twice', twice")
    worker.check()


def _read_by_the_registry(servers: str, topics: list[str], url: str) -> None:
    """Messages name schemas that are registered."""
    schemas = Registry({"url": url}, 30)
    for topic in topics:
        for message in committed(servers, topic):
            assert AvroDecoder(schemas, part="key").decode(message.key()) in (
                {"id": n} for n in (1, 2, 3)
            )
            row = AvroDecoder(schemas).decode(message.value())
            assert row.get("after", row)["name"] == "tea"
