"""What the real Debezium says of PostgreSQL's transactions is what we take it to say.

Messages are stored in `tests/golden/debezium_transactions`, as in `test_postgres.py`.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc import bank
from cdc.bank import Bank
from cdc.fetched import Unavailable
from cdc.shop import require
from ikebana.codecs.debezium_position import Boundaries, PositionReader
from ikebana.processor.kafka.broker import running
from support.output_judge import committed, progress_of
from support.waiting import patient

pytestmark = [pytest.mark.cdc, pytest.mark.kafka, pytest.mark.timeout(900)]

GOLDEN = Path(__file__).parents[1] / "golden" / "debezium_transactions"

# What is another one in each run: times, LSNs, ids of transactions and of Java's objects.
_OTHER = {"ts_ms", "ts_us", "ts_ns", "lsn", "txId", "sequence", "xmin", "__debezium.context.runId"}
_VARIABLE = re.compile(r"^\d+:\d+$|@[0-9a-f]+$")


@pytest.fixture(scope="module")
def captured() -> Iterator[Bank]:
    try:
        require()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with running() as broker, bank.captured(broker.bootstrap_servers) as found:
        yield found


@pytest.mark.parametrize("server", bank.CONNECTORS)
@pytest.mark.parametrize("name", bank.TOPICS)
def test_debezium_says_what_is_stored(captured: Bank, server: str, name: str) -> None:
    """The codec's tests read messages as this Debezium writes them."""
    # What has no key lies in any partition: a truncate.
    messages = sorted(captured.messages[f"{server}.{name}"], key=lambda each: each.key() is None)
    found = [
        {
            "partition": None if message.key() is None else message.partition(),
            "key": None if message.key() is None else json.loads(message.key()),
            "value": None if message.value() is None else json.loads(message.value()),
        }
        for message in messages
    ]
    path = GOLDEN / f"{server}.{name}.json"
    if os.environ.get("IKEBANA_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in found)
        path.write_text(f"[\n{lines}\n]\n")

    assert _without_other(found) == _without_other(json.loads(path.read_text()))


@pytest.mark.parametrize("server", bank.CONNECTORS)
def test_ends_come_in_the_order_of_commits(captured: Bank, server: str) -> None:
    """Their LSNs grow, and each transaction has one, even with nothing in it that is read."""
    ends = _ends(captured, server)

    assert [end.transaction for end in ends] == captured.commits
    assert [end.lsn for end in ends] == sorted({end.lsn for end in ends})


@pytest.mark.parametrize("server", bank.CONNECTORS)
def test_the_time_of_a_transaction_is_where_the_one_before_it_ended(
    captured: Bank, server: str
) -> None:
    """It is the same for all of its changes, of whichever table and partition."""
    ends = _ends(captured, server)
    expected = dict(zip(captured.commits, [0, *(end.lsn for end in ends)], strict=False))
    found: dict[str, set[int | None]] = {}
    for position in _positions(captured, server):
        if position.transaction is not None:
            found.setdefault(position.transaction, set()).add(position.time)

    assert len(found) == len(expected) - 1  # one has nothing in it that is read
    assert found == {transaction: {expected[transaction]} for transaction in found}


@pytest.mark.parametrize("server", bank.CONNECTORS)
def test_own_lsns_do_not_tell_the_order_of_commits(captured: Bank, server: str) -> None:
    """Else they would be the simpler time."""
    first: dict[str, int] = {}
    for position in _positions(captured, server):
        if position.transaction is not None and position.lsn is not None:
            lsn = position.lsn
            first[position.transaction] = min(lsn, first.get(position.transaction, lsn))
    order = [first[each] for each in captured.commits if each in first]

    assert order != sorted(order)


@pytest.mark.parametrize("server", bank.CONNECTORS)
def test_as_many_changes_come_as_an_end_counts(captured: Bank, server: str) -> None:
    """A changed key is two and a truncate is one a table; tombstones are none."""
    found: dict[str, Counter[str]] = {}
    for position in _positions(captured, server):
        if position.transaction is not None:
            found.setdefault(position.transaction, Counter())[position.collection] += 1
    told = {
        end.transaction: {
            name: count for name, count in end.counts.items() if name.startswith("public.")
        }
        for end in _ends(captured, server)
    }

    assert {name: counts for name, counts in told.items() if counts} == found


@pytest.mark.spark
@pytest.mark.parametrize("server", bank.CONNECTORS)
def test_a_pipeline_shows_whole_transactions(captured: Bank, server: str, tmp_path: Path) -> None:
    """Through Kafka and Spark, few records a batch: every update has the time of one."""
    tables = ("accounts", "entries")
    path = tmp_path / "pipeline.json"
    path.write_text(json.dumps(_pipeline(captured, server, tables, tmp_path)))
    command = [str(Path(sys.executable).with_name("ikebana")), "run", str(path), "--once"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=patient(300), check=False
    )
    assert done.returncode == 0, done.stderr

    last = _ends(captured, server)[-1].lsn
    times = {p.time for p in _positions(captured, server) if p.time is not None}
    for table in tables:
        found = committed(captured.servers, f"{server}.{table}.now")
        shown = {int(dict(message.headers())["time"]) for message in found}
        assert shown <= times
        assert progress_of(captured.servers, f"{server}.{table}.now")[-1].upper == last
    rows: Counter[bytes] = Counter()
    for message in committed(captured.servers, f"{server}.accounts.now"):
        rows[message.value()] += int(dict(message.headers())["diff"])
    # A truncate of several partitions is an error record: what it removed is still there.
    assert {json.loads(row)["number"] for row in +rows} == {1, 2, 3, 4, 5, 6, 77, 8, 10, 11}


def _pipeline(
    captured: Bank, server: str, tables: tuple[str, ...], folder: Path
) -> dict[str, Any]:
    told = {"clock": "transaction", "transactions": f"{server}.transaction"}
    return {
        "pipeline": f"whole-{server}",
        "inputs": {
            table: {
                "topic": f"{server}.public.{table}",
                "format": "debezium-json",
                "event_time": told,
            }
            for table in tables
        },
        "operators": {f"{table}_now": {"upsert": table} for table in tables},
        "outputs": {
            table: {"from": f"{table}_now", "topic": f"{server}.{table}.now"} for table in tables
        },
        "kafka": {"bootstrap.servers": captured.servers},
        "source": {"max_records_per_batch": 20},
        "run": {
            "checkpoint": str(folder / "checkpoint"),
            "local_directory": str(folder / "local"),
            "shards": 2,
            "master": "local[2]",
            "driver_memory": "512m",
        },
    }


def _ends(captured: Bank, server: str) -> list[Any]:
    boundaries = Boundaries()
    found = [boundaries.of(each.value()) for each in captured.messages[f"{server}.transaction"]]
    return [each for each in found if each is not None and each.status == "END"]


def _positions(captured: Bank, server: str) -> Iterator[Any]:
    positions = PositionReader()
    for name in ("public.accounts", "public.entries"):
        for message in captured.messages[f"{server}.{name}"]:
            if (found := positions.of(message.value())) is not None:
                yield found


def _collection(item: Any) -> str:
    return str(item.get("data_collection", "")) if isinstance(item, dict) else ""


def _without_other(data: Any) -> Any:
    if isinstance(data, dict):
        return {k: "…" if k in _OTHER else _without_other(v) for k, v in data.items()}
    if isinstance(data, list):
        # Java tells the collections of a transaction in no order.
        return sorted((_without_other(item) for item in data), key=_collection)
    return _VARIABLE.sub("…", data) if isinstance(data, str) else data
