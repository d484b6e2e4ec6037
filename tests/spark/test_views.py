"""Views through Kafka and Spark: a file of SQL over change data, against DuckDB's answers."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from confluent_kafka import Message

from ikebana.processor.kafka.broker import Broker
from support.files_in_sql import in_sql
from support.output_judge import committed, progress_of
from support.pipeline_processes import Written, create
from support.sql_oracle import Change, Row, answer, plain, tables_at
from support.tpch import QUERIES, TABLES, history

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long]

TIMES = 4
LIMIT = 30
# A group, a join with the first rows, a total, a left join whose groups are grouped, and EXISTS.
FIVE = ("q1", "q3", "q6", "q13", "q4")
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_Positions = dict[str, dict[str, int]]


@dataclass(frozen=True)
class InSql(Written):
    """A pipeline whose file is SQL, and which keeps the log of all of its batches."""

    def document(self) -> dict[str, Any]:
        told = super().document()
        return {**told, "run": {**told["run"], "retained_batches": 1000}}

    def file(self) -> Path:
        path = self.folder / f"{self.name}.sql"
        path.write_text(in_sql(self.document()))
        return path

    def read_before(self) -> dict[int, _Positions]:
        """The upper times of batches, with the positions in topics up to which they have read."""
        found = {}
        for batch in self.log("offsets"):
            text = (self.place / "offsets" / str(batch)).read_text()
            told = json.loads(text.splitlines()[2])
            found[int(told["upper"])] = told["positions"]
        return found


def sections(name: str, queries: Sequence[str]) -> dict[str, Any]:
    """The tables that queries read, as change data, and a view and an output of each."""
    text = " ".join(QUERIES[query] for query in queries)
    return {
        "inputs": {
            table: {
                "topic": f"{name}.{table}",
                "format": "debezium-json",
                "columns": dict(columns),
            }
            for table, columns in TABLES.items()
            if table in text
        },
        "operators": {query: {"sql": QUERIES[query]} for query in queries},
        "outputs": {query: {"from": query, "topic": f"{name}.{query}"} for query in queries},
    }


def change(given: Change) -> tuple[bytes, bytes]:
    """A change as Debezium tells it: what a row becomes, or that it is gone."""
    key, row, _ = given
    op = "d" if row is None else "u"
    value = {"op": op, "before": None, "after": row, "source": {}}
    return json.dumps({"id": key}).encode(), json.dumps(value).encode()


def rows_before(messages: Iterable[Message], names: Sequence[str], time: int) -> Counter[Row]:
    """The rows of a diff topic before a time, with their counts."""
    found: Counter[Row] = Counter()
    for message in messages:
        headers = dict(message.headers())
        if int(headers["time"]) < time:
            value = _decode(message.value())
            found[tuple(plain(value[name]) for name in names)] += int(headers["diff"])
    return Counter({row: count for row, count in found.items() if count})


def table_of(messages: Iterable[Message], ends: dict[str, int]) -> list[dict[str, Any]]:
    """The rows of a table after the changes before these offsets of each partition."""
    rows: dict[bytes, dict[str, Any]] = {}
    for message in messages:
        if message.offset() < ends[str(message.partition())]:
            rows.pop(message.key(), None)
            after = json.loads(message.value())["after"]
            if after is not None:
                rows[message.key()] = after
    return list(rows.values())


def assert_answered(
    pipeline: InSql, tables: Iterable[str], query: str, last: Mapping[str, list[dict[str, Any]]]
) -> None:
    """A view is DuckDB's answer over what was read at every closed time, at last over `last`."""
    name, servers = pipeline.name, pipeline.servers
    topic, read = f"{name}.{query}", pipeline.read_before()
    sent = {table: committed(servers, f"{name}.{table}") for table in tables}
    messages, answers = committed(servers, topic), []
    # At first nothing is closed.
    uppers = sorted({each.upper for each in progress_of(servers, topic)} - {0})
    assert read.keys() >= {*uppers}
    for upper in uppers:
        ends = read[upper]
        rows = {table: table_of(each, ends[f"{name}.{table}"]) for table, each in sent.items()}
        names, expected = answer(TABLES, {**dict.fromkeys(TABLES, ()), **rows}, QUERIES[query])
        assert rows_before(messages, names, upper) == expected, (query, upper)
        answers.append(expected)
    _, expected = answer(TABLES, {**dict.fromkeys(TABLES, ()), **last}, QUERIES[query])
    assert answers[-1] == expected
    assert any(one != other for one, other in pairwise(answers)), f"{query} never changed"


def test_views_in_a_file_of_sql_are_what_duckdb_answers(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """At every closed time, with updates and deletes, and a death between two batches."""
    servers, name = broker.bootstrap_servers, topic_name("views")
    told = sections(name, FIVE)
    pipeline = InSql(
        *(tmp_path, servers, name, "", "ingest", tmp_path / "kept"),
        limit=LIMIT,
        sections=json.dumps(told),
    )
    changes = {table: history(Random(7), TIMES)[table] for table in told["inputs"]}
    for table in changes:
        create(servers, f"{name}.{table}", 2)

    def send(first: int, last: int) -> None:
        for table, each in changes.items():
            own = [change(one) for one in each if first <= one[2] <= last]
            pipeline.send_to(table, own)

    send(0, 0)
    pipeline.dies("after_commit:1:1")
    send(1, TIMES - 1)
    pipeline.drained(timeout_s=240)

    last = tables_at(changes, TIMES)
    for query in FIVE:
        assert_answered(pipeline, list(changes), query, last)
