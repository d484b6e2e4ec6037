"""A store's tables in MariaDB, what happens to them, and what the producers say of it.

`samples` and `emptied` see one thing of each kind, the same in every run, and their
messages are stored.  What happens to `goods` and `orders` is random; `orders` has a key of
two columns and is never truncated, since Maxwell says nothing of a TRUNCATE.  `everything` has a
column of every type, and is also captured by Debezium without schemas.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from confluent_kafka import Message

from cdc import canal, connect, every_mariadb, mariadb, maxwell
from cdc.fetched import Unavailable
from cdc.mariadb import MariaDb
from cdc.registry import ApicurioRegistry
from cdc.workload import statements
from support.output_judge import committed
from support.pipeline_processes import create, ends_of
from support.recorded_mariadb import CONNECTORS
from support.waiting import wait_until

SCHEMA = "store"
TABLES = ("samples", "emptied", "goods", "orders")
# The producers beside the connectors of Debezium.
OTHERS = {"maxwell": maxwell.installed, "canal": canal.installed}
# The last row of each table; once all have it, everything is there.
MARKER = "-- the end --"

COLUMNS = """
    name varchar(40), amount decimal(12,2), ratio double, small float, active tinyint(1),
    big bigint unsigned, born date, wakes time(3), seen datetime(6), changed timestamp(3) NULL,
    settings json, photo varbinary(16), mood enum('sad','happy'), flags set('a','b','c'),
    since year, note text
"""
_MAKE = f"""
CREATE DATABASE {SCHEMA} CHARACTER SET utf8mb4;
CREATE USER debezium@'%' IDENTIFIED BY 'debezium';
GRANT ALL ON *.* TO debezium@'%';
USE {SCHEMA};
CREATE TABLE samples (id bigint PRIMARY KEY, {COLUMNS});
CREATE TABLE emptied (id int PRIMARY KEY, name varchar(40));
CREATE TABLE goods (id int PRIMARY KEY, {COLUMNS});
CREATE TABLE orders (region varchar(10), number int, {COLUMNS}, PRIMARY KEY (region, number));
{every_mariadb.MAKE}
"""
# The connector without schemas.
PLAIN = "plain"

_FULL_ROW = """
INSERT INTO samples VALUES ({id}, 'Zoë "Ünal" 🌷', -123456.70, 0.1, 0.1, 1,
    18446744073709551615, '1969-12-31', '23:59:59.5', '1901-02-03 04:05:06.000007',
    '2024-01-31 10:34:56.789', '{{"b": [1, 2.50], "a": null}}', x'00ff10', 'happy', 'a,c',
    1999, 'long');
"""
_BEFORE = f"""
USE {SCHEMA};
{_FULL_ROW.format(id=1)}
INSERT INTO samples (id, name) VALUES (2, NULL);
INSERT INTO emptied VALUES (1, 'one');
INSERT INTO goods (id, name, amount) VALUES (1, 'one', 1.10), (2, 'two', 5.00);
INSERT INTO orders (region, number, amount) VALUES ('north', 1, 0.01), ('south', 1, 100);
{every_mariadb.insert(1)}
"""
# A snapshot's rows; Canal takes the statements from the binary log instead.
_ROWS_BEFORE = {"samples": 2, "emptied": 1, "goods": 2, "orders": 2, "everything": 3}
_STATEMENTS_BEFORE = 8

# Its transactions have a domain of their own, so that their GTIDs are the same every time.
DOMAIN = 7
_SCENARIO = f"""
USE {SCHEMA};
SET SESSION gtid_domain_id = {DOMAIN};
{_FULL_ROW.format(id=3)}
BEGIN;
INSERT INTO samples (id, name, amount) VALUES (4, 'Di', 5.00), (5, 'Ed', NULL);
UPDATE samples SET name = 'Zoe', amount = 5.00, photo = '' WHERE id = 1;
COMMIT;
UPDATE samples SET id = 40 WHERE id = 4;
DELETE FROM samples WHERE id = 2;
BEGIN;
UPDATE samples SET name = 'never';
ROLLBACK;
INSERT INTO emptied VALUES (2, 'two');
TRUNCATE TABLE emptied;
INSERT INTO emptied VALUES (3, 'three');
ALTER TABLE samples ADD COLUMN extra int DEFAULT 7;
INSERT INTO samples (id, name) VALUES (6, 'Fe');
UPDATE samples SET extra = 8 WHERE id = 3;
INSERT INTO samples (id, name) VALUES (999, '{MARKER}');
INSERT INTO emptied (id, name) VALUES (999, '{MARKER}');
"""

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Store:
    """What the tables are in the end, what was said of the scenario, and how long it took.

    `messages` are those until the end of the scenario, by topic.  All of them are still on
    the brokers at `servers`, and their schemas in `registry`.
    """

    servers: str
    registry: ApicurioRegistry
    tables: dict[str, Rows]
    messages: dict[str, list[Message]]
    # Producers that cannot be had here, with the reason.
    missing: dict[str, str]
    # From the last change in the database to the last message, by producer.
    seconds: dict[str, float]
    # The rows of `everything`, by their ids.
    everything: dict[int, dict[str, Any]]


@dataclass
class _Watch:
    """Waits for messages while all producers live."""

    servers: str
    checks: list[Callable[[], None]]
    _ends: dict[str, int] = field(default_factory=dict)

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Return once the condition holds; fail, with the reason, if a producer has ended."""

        def reached() -> bool:
            for check in self.checks:
                check()
            return condition()

        wait_until(reached, 300, what)

    def has(self, topic: str, marked: bytes, times: int) -> bool:
        """Whether so many messages of a topic have a mark in them."""
        end = sum(ends_of(self.servers, [topic]).values())
        if self._ends.get(topic) == end:
            return False
        self._ends[topic] = end
        values = [message.value() or b"" for message in committed(self.servers, topic)]
        return sum(marked in value for value in values) >= times

    def every(self, what: str, wanted: Mapping[str, Callable[[], bool]]) -> dict[str, float]:
        """Wait for all conditions; how long each took."""
        begun = time.monotonic()
        seconds: dict[str, float] = {}

        def all_hold() -> bool:
            for name in wanted.keys() - seconds.keys():
                if wanted[name]():
                    seconds[name] = time.monotonic() - begun
            return len(seconds) == len(wanted)

        self.until(what, all_hold)
        return seconds


def topic_of(producer: str, table: str) -> str:
    """Where a producer writes the changes of a table; Maxwell and Canal have one for all."""
    of_one = producer in CONNECTORS or producer == PLAIN
    return f"{producer}.{SCHEMA}.{table}" if of_one else producer


def require() -> None:
    """Raises: Unavailable, if MariaDB or its connector cannot be had here."""
    mariadb.installed()
    connect.installed("mariadb")


@contextmanager
def captured(
    servers: str, registry: ApicurioRegistry, database: MariaDb, seed: int
) -> Iterator[Store]:
    """Let everything happen and be captured; only the topics are left after that."""
    missing = _missing()
    producers = [*CONNECTORS, *(each for each in OTHERS if each not in missing)]
    topics = sorted({topic_of(producer, table) for producer in producers for table in TABLES})
    every = sorted({topic_of(each, "everything") for each in (*producers, PLAIN)})
    topics = sorted({*topics, *every})
    database.run(_MAKE + _BEFORE)
    # A connector writes DDL to a topic of its own name, and waits for it if it is not there.
    for topic in (*topics, *CONNECTORS, PLAIN, "json.transaction"):
        create(servers, topic, 1)
    with ExitStack() as stack:
        worker = connect.running(servers, "mariadb", _connectors(database, registry))
        watch = _Watch(servers, [stack.enter_context(worker).check])
        if "canal" in producers:
            running = canal.running(servers, database, SCHEMA, "canal")
            watch.checks.append(stack.enter_context(running))
        if "maxwell" in producers:
            running = maxwell.running(servers, database, "maxwell")
            watch.checks.append(stack.enter_context(running))
            watch.until("Maxwell has begun", lambda: _has_begun(database))
            for table in TABLES:
                database.run(_BOOTSTRAP.format(schema=SCHEMA, table=table))
        watch.every("the rows of before", _first_rows(watch, producers))
        database.run(f"USE {SCHEMA};\n{every_mariadb.insert(11)}")
        watch.every("every type", _every_row(watch, producers))
        everything = every_mariadb.rows_of(database)
        database.run(_SCENARIO)
        tables = {table: rows_of(database, table) for table in ("samples", "emptied")}
        watch.every("the scenario", _last_rows(watch, producers, ("samples", "emptied")))
        messages = {
            topic: committed(servers, topic) for topic in (*topics, "json.transaction", "json")
        }
        database.run(f"USE {SCHEMA};\n{statements(Random(seed), MARKER)}")
        seconds = watch.every("the workload", _last_rows(watch, producers, ("goods", "orders")))
        tables |= {table: rows_of(database, table) for table in ("goods", "orders")}
    yield Store(servers, registry, tables, messages, missing, seconds, everything)


def rows_of(database: MariaDb, table: str) -> Rows:
    """A table as MariaDB writes it in JSON, but for JSON (a text) and bytes (base64).

    Of an enum and a set there are the numbers, too.
    """
    asked = f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{SCHEMA}'"
    names = database.run(f"{asked} AND table_name = '{table}' ORDER BY ordinal_position;")
    written = {
        "settings": "concat(settings, '')",
        "photo": "to_base64(photo)",
        # Else it has six digits.
        "small": "cast(small AS double)",
        "mood": "mood, 'mood number', mood + 0",
        "flags": "flags, 'flags number', flags + 0",
    }
    fields = ", ".join(f"'{name}', {written.get(name, name)}" for name in names.split())
    return database.rows(f"SELECT json_object({fields}) FROM {SCHEMA}.{table};")


# Maxwell takes a snapshot of a table when it is told to, in a table of its own.
_BOOTSTRAP = """
INSERT INTO maxwell.bootstrap (database_name, table_name) VALUES ('{schema}', '{table}');
"""


def _has_begun(database: MariaDb) -> bool:
    asked = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'maxwell'"
    if database.run(f"{asked} AND table_name IN ('positions', 'bootstrap');").strip() != "2":
        return False
    return database.run("SELECT count(binlog_position) FROM maxwell.positions;").strip() != "0"


def _missing() -> dict[str, str]:
    missing = {}
    for name, installed in OTHERS.items():
        try:
            installed()
        except Unavailable as reason:
            missing[name] = str(reason)
    return missing


def _connectors(database: MariaDb, registry: ApicurioRegistry) -> dict[str, dict[str, str]]:
    settings = {
        "json": {"provide.transaction.metadata": "true"},
        "headers": connect.avro(registry.own_url, headers=True),
        "confluent": {
            **connect.avro(registry.own_url, headers=False),
            # Else the upper half of unsigned numbers is negative.
            "bigint.unsigned.handling.mode": "precise",
        },
    }
    settings[PLAIN] = {
        **connect.WITHOUT_SCHEMAS,
        "table.include.list": f"{SCHEMA}.everything",
    }
    return {
        name: {**connect.mariadb_connector(name, database, SCHEMA, 4711 + number), **of}
        for number, (name, of) in enumerate(settings.items())
    }


def _first_rows(watch: _Watch, producers: Sequence[str]) -> dict[str, Callable[[], bool]]:
    """What has to be there before anything else happens."""
    wanted = {
        topic_of(name, table): partial(watch.has, topic_of(name, table), b"", rows)
        for name in CONNECTORS
        for table, rows in _ROWS_BEFORE.items()
    }
    if "maxwell" in producers:
        wanted["maxwell"] = partial(watch.has, "maxwell", b'"bootstrap-complete"', len(TABLES))
    if "canal" in producers:
        wanted["canal"] = partial(watch.has, "canal", b'"INSERT"', _STATEMENTS_BEFORE)
    return {**wanted}


def _every_row(watch: _Watch, producers: Sequence[str]) -> dict[str, Callable[[], bool]]:
    """All rows of `everything`; Maxwell tells only those that come while it runs."""
    found: dict[str, Callable[[], bool]] = {}
    for name in (*producers, PLAIN):
        mark = b"" if name in (*CONNECTORS, PLAIN) else b'"table":"everything"'
        count = 3 if name == "maxwell" else 6
        # Canal tells of the table's creation, too.
        count += name == "canal"
        topic = topic_of(name, "everything")
        found[topic] = partial(watch.has, topic, mark, count)
    return found


def _last_rows(
    watch: _Watch, producers: Sequence[str], tables: Sequence[str]
) -> dict[str, Callable[[], bool]]:
    """The markers of these tables, and of all before them where a topic has all tables."""
    before = TABLES.index(tables[-1]) + 1
    wanted = {
        topic_of(name, table): partial(
            watch.has, topic_of(name, table), MARKER.encode(), 1 if name in CONNECTORS else before
        )
        for name in producers
        for table in tables
    }
    return {**wanted}
