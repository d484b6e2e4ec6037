"""A column that a table of PostgreSQL gets comes to the tables of sinks by itself.

Debezium writes the table's changes in JSON with schemas, and in Avro
by a registry.  One run reads all of them with `on_new_column: add`, beside a sink into PostgreSQL
and one into Iceberg.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc import connect, postgres
from cdc.fetched import Unavailable
from cdc.postgres import Postgres
from ikebana.processor.kafka.broker import Broker
from support.pipeline_processes import Run, create, ends_of, written
from support.waiting import wait_until

pytestmark = [pytest.mark.cdc, pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]

FORMS = {"typed": "debezium-json", "avro": "debezium-avro"}
MAKE = """
CREATE TABLE goods (id integer PRIMARY KEY, name text);
INSERT INTO goods VALUES (1, 'tea'), (2, 'rice');
CREATE PUBLICATION goods FOR TABLE goods;
"""
CHANGE = """
ALTER TABLE goods ADD COLUMN price numeric(10,2);
INSERT INTO goods VALUES (3, 'milk', 1.50);
UPDATE goods SET price = 2.25 WHERE id = 1;
"""
BEFORE = [(1, "tea"), (2, "rice")]
PRICES = [(1, "tea", "2.25"), (2, "rice", None), (3, "milk", "1.50")]


def sections(name: str, registry: str, database: Postgres, catalog: dict[str, str]) -> Any:
    """The table as each form has it, and its tables in both targets."""
    goods = {"columns": {"id": "INTEGER", "name": "VARCHAR"}, "on_new_column": "add"}
    tables = {form: {"from": form, "key": "id"} for form in FORMS}
    connection = f"host=127.0.0.1 port={database.port} user=postgres dbname=postgres"
    return {
        "inputs": {
            f"{form}_goods": {"topic": f"{name}_{form}.public.goods", "format": of, **goods}
            for form, of in FORMS.items()
        },
        "operators": {
            **{f"{form}_good": {"upsert": f"{form}_goods"} for form in FORMS},
            **{form: {"sql": f"SELECT * FROM {form}_good", "key": "id"} for form in FORMS},
        },
        "outputs": {form: {"from": form, "topic": f"{name}.{form}"} for form in FORMS},
        "registry": {"url": registry},
        "deliver": {
            "database": {"postgres": {"connection": connection}, "tables": tables},
            "lake": {"iceberg": {"catalog": catalog, "namespace": "shop"}, "tables": tables},
        },
    }


class Targets:
    """What the tables of both targets have, each row a tuple of texts."""

    def __init__(self, database: Postgres, catalog: dict[str, str]) -> None:
        self._database, self._catalog = database, catalog

    def all(self) -> list[list[tuple[Any, ...]]]:
        """The rows of each table in order; empty before there is one."""
        return [rows for form in FORMS for rows in (self._of_postgres(form), self._of_lake(form))]

    def _of_postgres(self, form: str) -> list[tuple[Any, ...]]:
        if self._database.run(f"SELECT to_regclass('{form}') IS NULL").strip() == "t":
            return []
        rows = self._database.rows(f"SELECT to_jsonb(t) FROM {form} AS t ORDER BY id")
        return [tuple(map(_plain, row.values())) for row in rows]

    def _of_lake(self, form: str) -> list[tuple[Any, ...]]:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = load_catalog("lake", **self._catalog).load_table(f"shop.{form}")
        except NoSuchTableError:
            return []
        rows = table.scan().to_arrow().sort_by("id").to_pylist()
        return [tuple(map(_plain, row.values())) for row in rows]


def _plain(value: Any) -> Any:
    """A price of JSON is a text."""
    return str(value).strip('"') if isinstance(value, str | Decimal) else value


def test_an_added_column_comes_to_the_tables_of_sinks(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path, request: Any
) -> None:
    """With the values of new and changed rows, and null in the others; nobody starts anything."""
    name = topic_name("added").replace("-", "_")
    try:
        connect.installed("postgres")
        with ExitStack() as stack, ThreadPoolExecutor() as pool:
            starting = pool.submit(stack.enter_context, postgres.running())
            registry = request.getfixturevalue("apicurio")
            database = starting.result()
            _captured(stack, broker.bootstrap_servers, name, registry, database)
            place = f"sqlite:///{tmp_path}/catalog.db"
            catalog = {"type": "sql", "uri": place, "warehouse": f"file://{tmp_path}/lake"}
            plan = sections(name, registry.url, database, catalog)
            with written(tmp_path, broker.bootstrap_servers, name, plan).start() as run:
                _followed(run, database, Targets(database, catalog))
    except Unavailable as reason:
        pytest.skip(str(reason))


def _captured(
    stack: ExitStack, servers: str, name: str, registry: Any, database: Postgres
) -> None:
    """Let Debezium capture the table in each form."""
    database.run(MAKE)
    topics = [f"{name}_{form}.public.goods" for form in FORMS]
    for topic in topics:
        create(servers, topic, 1)
    forms: dict[str, dict[str, str]] = {
        "typed": {},
        "avro": connect.avro(registry.own_url, headers=False),
    }
    worker = stack.enter_context(
        connect.running(
            servers,
            "postgres",
            {
                form: {
                    **connect.postgres_connector(f"{name}_{form}", database),
                    "publication.name": "goods",
                    **settings,
                }
                for form, settings in forms.items()
            },
        )
    )

    def captured() -> bool:
        worker.check()
        return all(end == len(BEFORE) for end in ends_of(servers, topics).values())

    wait_until(captured, 120, "the snapshot of the table in each topic")


def _followed(run: Run, database: Postgres, targets: Targets) -> None:
    def have(rows: list[tuple[Any, ...]]) -> bool:
        assert run.poll() is None, run.text
        return all(found == rows for found in targets.all())

    wait_until(lambda: have(BEFORE), 180, f"the rows of the snapshot in all tables: {run.log}")
    database.run(CHANGE)
    wait_until(lambda: have(PRICES), 240, f"the prices in all tables: {run.log}")
    assert run.stop() == 0, run.text
