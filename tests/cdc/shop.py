"""A shop's tables, what happens to them, and what Debezium says of it.

`customers` has replica identity DEFAULT, `accounts` has FULL, and the same happens to
both, but that only `customers` is truncated.  `papers` shows what no reader can know,
`oddities` values that are rare; of these two there are only the messages.  `everything` has a
column of every type, and is also captured in Avro.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from cdc import connect, every_postgres, postgres
from cdc.postgres import Postgres
from cdc.reading import payload
from cdc.registry import ApicurioRegistry
from support.output_judge import committed
from support.pipeline_processes import create, ends_of
from support.waiting import wait_until

# The last row of every table; once it is in a topic, so is all else.
MARKER = 999

# Long and not to be compressed: stored apart, and not sent again when it has not changed.
_LONG = "(SELECT string_agg(md5(n::text), '') FROM generate_series({0}, {0} + 280) n)"

# One connector as Debezium is by default, whose messages carry schemas, and one without
# schemas, whose decimals would be unreadable bytes by default.
CONNECTORS = {
    "typed": {"publication.name": "shop"},
    "plain": {"publication.name": "shop", **connect.WITHOUT_SCHEMAS},
}
# What captures `everything`.
EVERYTHING = (*CONNECTORS, "avro")
TABLES = ("customers", "accounts")
# How many rows the snapshot of each table has.
_SNAPSHOTS = {"customers": 3, "accounts": 3, "papers": 1, "oddities": 2}

_COLUMNS = """(
    id integer PRIMARY KEY, name text NOT NULL, email varchar(100), points bigint,
    balance numeric(12,3), score numeric, ratio double precision, active boolean,
    born date, wakes time, seen timestamp(3), changed timestamp, created timestamptz,
    settings jsonb, photo bytea, tags text[], sizes integer[], reference uuid, note text
)"""

_MAKE = f"""
CREATE TABLE customers {_COLUMNS};
CREATE TABLE accounts {_COLUMNS};
CREATE TABLE papers (id integer PRIMARY KEY, title text, body text);
CREATE TYPE mood AS ENUM ('sad', 'happy');
CREATE TABLE oddities (
    id serial PRIMARY KEY, span interval, price money, feeling mood, address inet,
    bits bit(4), flags varbit, day date, local timestamp, moment timestamptz,
    exact numeric(12,3), free numeric, double double precision, single real, place point,
    numbers int4range, clock timetz, midnight time, document xml, original json,
    code char(5), days date[], moments timestamptz[], prices numeric(10,2)[],
    blobs bytea[], whole numeric(30,0), matrix integer[]
);
ALTER TABLE customers ALTER note SET STORAGE EXTERNAL;
ALTER TABLE accounts ALTER note SET STORAGE EXTERNAL, REPLICA IDENTITY FULL;
ALTER TABLE papers ALTER body SET STORAGE EXTERNAL;
{every_postgres.MAKE}
CREATE PUBLICATION shop FOR TABLE customers, accounts, papers, oddities, everything;
"""

# One row of every type, with values that are easily got wrong.
_FULL_ROW = """
INSERT INTO {table} VALUES (1, 'Zoë "Ünal" 🌷', 'zoe@example.com', 9007199254740993,
    -123456.700, 12345678901234567890.123456789, 0.1, true,
    '1969-12-31', '23:59:59.5', '2024-01-31 12:34:56.789', '1901-02-03 04:05:06.000007',
    '2024-01-31 12:34:56.789+02', '{{"b": [1, 2.50], "a": null}}', '\\x00ff10', '{{a,NULL,"b c"}}',
    '{{1,-2}}', '6f1c2d9e-0a3b-4c5d-8e7f-001122334455', {long});
"""

_SNAPSHOT = (
    _FULL_ROW
    + """
INSERT INTO {table} (id, name) VALUES (2, 'Bo');
INSERT INTO {table} (id, name, balance, note) VALUES (3, 'Cy', 0, 'short');
"""
)

_CHANGES = """
INSERT INTO {table} (id, name, balance, score, points) VALUES (4, 'Di', 10.500, 1e3, -1);
UPDATE {table} SET email = 'bo@example.com', active = false WHERE id = 2;
UPDATE {table} SET name = 'Zoe', photo = '' WHERE id = 1;
UPDATE {table} SET id = 40 WHERE id = 4;
DELETE FROM {table} WHERE id = 3;
"""

_TRUNCATE = "TRUNCATE customers;"

_AGAIN = (
    """
DELETE FROM {table} WHERE id IN (1, 2);
"""
    + _FULL_ROW
    + """
INSERT INTO {table} (id, name) VALUES (2, 'Bo again'), (5, 'Ed'), (6, 'Fe');
UPDATE {table} SET points = points + 1, created = '2024-06-30 23:59:59+00' WHERE id = 1;
UPDATE {table} SET note = {other} WHERE id = 5;
UPDATE {table} SET name = 'Eddy', tags = '{{}}' WHERE id = 5;
BEGIN;
UPDATE {table} SET id = 60 WHERE id = 6;
UPDATE {table} SET name = 'Fey' WHERE id = 60;
UPDATE {table} SET name = 'Faye', note = NULL WHERE id = 60;
COMMIT;
DELETE FROM {table} WHERE id = 2;
INSERT INTO {table} (id, name) VALUES (2, 'Bo, once more');
BEGIN;
UPDATE {table} SET name = 'never';
ROLLBACK;
"""
)

_FIRST_PAPER = f"INSERT INTO papers VALUES (1, 'One', {_LONG.format(1)});"

# When the key changes no message has the body: it is known only under the old key.
_PAPERS = """
UPDATE papers SET title = 'Two' WHERE id = 1;
UPDATE papers SET id = 10 WHERE id = 1;
"""

# Snapshots and streams are decoded by different code.
_ODDITIES = """
INSERT INTO oddities VALUES (DEFAULT,
    '1 year 2 months 3 days 04:05:06.7', '-1234.50', 'happy', '10.0.0.1/8',
    '1010', '101010101', '0044-03-15 BC', '12024-03-15 12:00:00.000001', '0044-03-15 12:00 BC',
    -0.001, 1e-20, -1e300, 0.1, '(1,2)',
    '[1,5)', '12:34:56.789+02', '24:00:00', '<a>1</a>', '{"a": 1.10,  "a": 2}',
    'ab', '{2024-01-31,NULL}', '{2024-01-31 12:34:56.5+02}', '{1.50,NULL,-2}',
    '{"\\\\x00ff"}', 123456789012345678901234567890, '{{1,2},{3,4}}');
INSERT INTO oddities (day, local, moment, exact, free, double, single, days, moments) VALUES
    ('infinity', '-infinity', 'infinity', 'NaN', 'Infinity', 'NaN', '-Infinity',
    '{infinity}', '{-infinity}');
"""

_END = f"""
INSERT INTO customers (id, name) VALUES ({MARKER}, 'marker');
INSERT INTO accounts (id, name) VALUES ({MARKER}, 'marker');
INSERT INTO papers (id, title) VALUES ({MARKER}, 'marker');
INSERT INTO oddities (id) VALUES ({MARKER});
"""

# The columns whose JSON is not PostgreSQL's own.  A decoded row has UTC as Z, bytes as
# base64 and JSON as its text.
_TYPED = """jsonb_build_object(
    'created', (to_jsonb(created AT TIME ZONE 'UTC') #>> '{}') || 'Z',
    'photo', encode(photo, 'base64'), 'settings', settings::text)"""

# Without a schema nothing tells that a number is a time: days, and milliseconds or
# microseconds.
_PLAIN = """jsonb_build_object(
    'balance', balance::text, 'score', score::text, 'born', born - date '1970-01-01',
    'created', to_char(created AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    'wakes', (extract(epoch FROM wakes) * 1000000)::bigint,
    'seen', (extract(epoch FROM seen) * 1000)::bigint,
    'changed', (extract(epoch FROM changed) * 1000000)::bigint)"""

Row = dict[str, Any]


@dataclass(frozen=True)
class Shop:
    """What the tables are in the end, and all messages, by topic.

    Of `everything` there are the rows by their ids, as messages with schemas show them, and in
    `everything_plain` as those without.
    """

    servers: str
    registry: ApicurioRegistry
    typed: dict[str, list[Row]]
    plain: dict[str, list[Row]]
    messages: dict[str, list[Message]]
    everything: dict[int, Row]
    everything_plain: dict[int, Row]

    def rows(self, server: str, table: str) -> list[Row]:
        """A table in the end, as its rows are read from one connector's messages."""
        return (self.plain if server == "plain" else self.typed)[table]


def require() -> None:
    """Raises: Unavailable, if PostgreSQL or the connector cannot be had here."""
    postgres.installed()
    connect.installed("postgres")


@contextmanager
def captured(servers: str, registry: ApicurioRegistry) -> Iterator[Shop]:
    """Let everything happen and be captured; only the topics are left after that."""
    with postgres.running() as database:
        rows = every_postgres.insert(1)
        database.run(_MAKE + _both(_SNAPSHOT) + _FIRST_PAPER + _ODDITIES + rows)
        snapshots = {
            f"{server}.public.{table}": rows
            for server in CONNECTORS
            for table, rows in _SNAPSHOTS.items()
        }
        marked = list(snapshots)
        everything = {f"{server}.public.everything": 3 for server in EVERYTHING}
        snapshots |= everything
        topics = list(snapshots)
        for topic in topics:
            # The order of a truncate and of rows holds in one partition only.
            create(servers, topic, 1)
        connectors = {
            name: {**connect.postgres_connector(name, database), **settings}
            for name, settings in {**CONNECTORS, "avro": _in_avro(registry)}.items()
        }
        with connect.running(servers, "postgres", connectors) as worker:

            def snapshot_taken() -> bool:
                worker.check()
                ends = ends_of(servers, topics)
                return {topic: end for (topic, _), end in ends.items()} == snapshots

            wait_until(snapshot_taken, 120, "the snapshot of every table is in its topic")
            changes = _both(_CHANGES) + _TRUNCATE + _both(_AGAIN) + _PAPERS + _ODDITIES
            database.run(changes + every_postgres.insert(11) + _END)

            def all_there() -> bool:
                worker.check()
                ends = ends_of(servers, list(everything))
                return all(end == 6 for end in ends.values()) and all(
                    _ended(servers, topic) for topic in marked
                )

            wait_until(all_there, 60, "the marker row of every table is in its topic")
        messages = {topic: committed(servers, topic) for topic in topics}
        typed = {table: _rows(database, table, _TYPED) for table in TABLES}
        plain = {table: _rows(database, table, f"{_TYPED} || {_PLAIN}") for table in TABLES}
        rows_of = [every_postgres.rows_of(database, plain=of) for of in (False, True)]
    yield Shop(servers, registry, typed, plain, messages, *rows_of)


def _in_avro(registry: ApicurioRegistry) -> dict[str, str]:
    return {
        **connect.avro(registry.own_url, headers=False),
        "publication.name": "shop",
        "table.include.list": "public.everything",
    }


def _both(statements: str) -> str:
    texts = {"long": _LONG.format(1), "other": _LONG.format(5000)}
    return "".join(statements.format(table=table, **texts) for table in TABLES)


def _ended(servers: str, topic: str) -> bool:
    last = committed(servers, topic)[-1]
    return bool(payload(last.key()) == {"id": MARKER})


def _rows(database: Postgres, table: str, written: str) -> list[Row]:
    return database.rows(f"SELECT to_jsonb(t) || {written} FROM {table} t ORDER BY id;")
