"""A bank's tables, transactions that overlap, and what Debezium says of them.

Transactions begin in another order than they commit in.  `audits` is published, but the
connectors leave it out; `drafts` is not even published.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Message

from cdc import connect, postgres
from cdc.postgres import Postgres
from cdc.reading import payload
from cdc.session import session
from support.output_judge import committed
from support.pipeline_processes import create, ends_of
from support.waiting import wait_until

_PROVIDED = {
    "publication.name": "bank",
    "table.include.list": "public.accounts,public.entries",
    "provide.transaction.metadata": "true",
}
# With and without schemas.
CONNECTORS = {
    "typed": _PROVIDED,
    "plain": {
        **_PROVIDED,
        "key.converter": connect.JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": connect.JSON,
        "value.converter.schemas.enable": "false",
    },
}
_TABLES = ("public.accounts", "public.entries")
# Topics, as far as they are told by what follows the prefix, and their partitions.
TOPICS = {"public.accounts": 3, "public.entries": 2, "transaction": 1, "message": 1}

_MAKE = """
CREATE TABLE accounts (number integer PRIMARY KEY, amount integer);
CREATE TABLE entries (number integer PRIMARY KEY, account integer);
CREATE TABLE audits (number integer PRIMARY KEY);
CREATE TABLE drafts (number integer PRIMARY KEY);
CREATE PUBLICATION bank FOR TABLE accounts, entries, audits;
INSERT INTO accounts SELECT n, 10 * n FROM generate_series(1, 6) n;
INSERT INTO entries VALUES (1, 1);
"""
_SNAPSHOT = 7


@dataclass(frozen=True)
class Bank:
    """All messages, by topic, and the ids of the published transactions as they committed.

    The messages are still on the brokers at `servers`.
    """

    messages: dict[str, list[Message]]
    commits: list[str]
    servers: str


@contextmanager
def captured(servers: str) -> Iterator[Bank]:
    """Let everything happen and be captured; only the messages are left after that."""
    with postgres.running() as database:
        database.run(_MAKE)
        topics = [f"{server}.{name}" for server in CONNECTORS for name in TOPICS]
        for topic in topics:
            create(servers, topic, TOPICS[topic.partition(".")[2]])
        connectors = {
            name: {**connect.postgres_connector(name, database), **settings}
            for name, settings in CONNECTORS.items()
        }
        with connect.running(servers, "postgres", connectors) as worker:

            def snapshot_taken() -> bool:
                worker.check()
                return sum(ends_of(servers, topics).values()) == len(CONNECTORS) * _SNAPSHOT

            wait_until(snapshot_taken, 120, "the snapshots are in their topics")
            commits = _happened(database)

            def all_there() -> bool:
                worker.check()
                return all(_is_there(servers, server, commits[-1]) for server in CONNECTORS)

            wait_until(all_there, 60, "the last transaction, and what all count, is in the topics")
        messages = {topic: committed(servers, topic) for topic in topics}
    yield Bank(messages, commits, servers)


def _is_there(servers: str, server: str, last: str) -> bool:
    """Whether the last transaction has ended, and the changes that all of them count are there.

    Connect's producer writes to topics side by side, so an end may come before what it counts.
    """
    told = [payload(each.value()) for each in committed(servers, f"{server}.transaction")]
    if not told or told[-1]["status"] != "END":
        return False
    if str(told[-1]["id"]).partition(":")[0] != last:
        return False
    counts = Counter[str]()
    for each in told:
        for collection in each.get("data_collections") or ():
            counts[collection["data_collection"]] += collection["event_count"]
    return all(_changes_in(servers, f"{server}.{name}") >= counts[name] for name in _TABLES)


def _changes_in(servers: str, topic: str) -> int:
    """How many messages of a topic are of transactions; tombstones are of none."""
    values = [each.value() for each in committed(servers, topic)]
    return sum(bool(payload(value)["transaction"]) for value in values if value is not None)


def _happened(database: Postgres) -> list[str]:
    """The ids of transactions as they committed."""
    commits = []
    with session(database) as one, session(database) as other, session(database) as third:
        # The second to begin is the first to commit.
        first, second = one.begin(), other.begin()
        one.run("INSERT INTO accounts VALUES (7, 0);")
        other.run("INSERT INTO accounts VALUES (8, 0); INSERT INTO entries VALUES (8, 8);")
        last = third.begin()
        third.run("INSERT INTO entries VALUES (9, 9);")
        one.run("INSERT INTO entries VALUES (7, 7);")
        other.run("UPDATE accounts SET amount = 80 WHERE number = 8; COMMIT;")
        # What is rolled back doesn't count, a changed key counts twice.
        one.run("SAVEPOINT a; INSERT INTO entries VALUES (70, 7); ROLLBACK TO a;")
        one.run("SAVEPOINT b; INSERT INTO entries VALUES (71, 7); RELEASE b;")
        one.run("UPDATE accounts SET number = 77 WHERE number = 7; COMMIT;")
        # Nor do tables that are left out.
        third.run("INSERT INTO audits VALUES (1); INSERT INTO drafts VALUES (1);")
        third.run("DELETE FROM entries WHERE number = 1; COMMIT;")
        commits += [second, first, last]
        for statements in (
            "INSERT INTO audits VALUES (2);",
            "SELECT pg_logical_emit_message(true, 'p', 'c'); INSERT INTO accounts VALUES (10, 0);",
            "UPDATE accounts SET amount = amount + 1;",
            "TRUNCATE accounts, entries;",
            "INSERT INTO accounts VALUES (11, 0);",
        ):
            commits.append(one.begin())
            one.run(f"{statements} COMMIT;")
            # Nobody is told of these.
            other.run("BEGIN; INSERT INTO accounts VALUES (12, 0); ROLLBACK;")
            other.run("INSERT INTO drafts SELECT coalesce(max(number), 0) + 1 FROM drafts;")
    return commits
