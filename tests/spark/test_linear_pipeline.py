"""Linear operators, every output format and temporal filters, through Kafka and Spark."""

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ikebana.codecs import canonical, cdcv2, cdcv2_avro
from ikebana.codecs.change import Ignored, Needs
from ikebana.codecs.debezium import Debezium
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.base.diff_reader import Cdcv2Reader
from ikebana.processor.engine.evaluate import Evaluation
from support.output_judge import committed
from support.pipeline_processes import Run, Written, WrittenOver
from support.shops import Collection, shown
from support.waiting import patient, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

FORMATS = ("diff", "upsert", "debezium-json", "cdcv2-json", "cdcv2-avro")


def sections(name: str) -> dict[str, Any]:
    """Orders of a shop: large ones in every format, their lines, those that are still valid."""
    columns = {"id": "BIGINT", "amount": "DECIMAL(12,2)", "lines": "JSON", "expires": "BIGINT"}
    return {
        "inputs": {
            "orders": {
                "topic": f"{name}.orders",
                "format": "debezium-json",
                "key": "id",
                "tables": r"shop\.orders",
                "columns": columns,
            }
        },
        "operators": {
            "current": {"upsert": "orders"},
            "large": {"linear": "current", "where": "amount > 20", "select": ["id", "amount"]},
            "lines": {
                "linear": "current",
                "steps": [
                    {"where": "id > 3", "flat_map": {"line": "lines"}},
                    {"select": {"sku": "line"}, "key": "{'order': id, 'sku': line}"},
                    {"explode": "shop_functions:twice"},
                ],
            },
            "valid": {"linear": "current", "select": ["id"], "valid_until": "expires"},
            "both": {"concat": ["large", "lines"]},
        },
        "outputs": {
            **{
                form: {"from": "large", "topic": f"{name}.{form}", "format": form}
                for form in FORMATS
            },
            **{
                each: {"from": each, "topic": f"{name}.{each}"}
                for each in ("lines", "valid", "both")
            },
        },
    }


@pytest.fixture
def pipeline(written_over: WrittenOver) -> Written:
    found = written_over("orders", partitions=1, limit=40)
    return found.having(sections(found.name))


def messages(expires: int) -> list[tuple[bytes, bytes | None]]:
    """Creates, updates, key changes, deletes; some messages that are none of its business."""

    def event(op: str, before: object, after: object, table: str = "orders") -> bytes:
        source = {"db": "shop", "table": table}
        return json.dumps({"op": op, "before": before, "after": after, "source": source}).encode()

    def row(number: int, amount: float) -> dict[str, Any]:
        valid = expires if number % 2 else expires + 3_600_000
        return {
            "id": number,
            "amount": amount,
            "lines": [f"sku{number}", f"sku{number % 4}"],
            "expires": valid,
            "unread": "x" * 50,
        }

    found: list[tuple[bytes, bytes | None]] = []
    for number in range(60):
        key = b'{"id":%d}' % number
        found.append((key, event("c", None, row(number, number))))
        if number % 3 == 0:
            found.append((key, event("u", row(number, number), row(number, number + 7.25))))
        if number % 5 == 0:
            found.append((key, event("d", row(number, number), None)))
            found.append((key, None))
        if number % 10 == 1:
            found.append((key, event("c", None, {**row(number, 1), "id": -number}, "others")))
    found.append((b'{"id":7}', event("u", row(7, 7), row(700, 7.5))))
    found.append((b'{"id":8}', b"{not json"))
    found.append((b'{"id":11}', event("u", row(11, 999), row(11, 11.5))))
    found.append((b'{"id":9}', event("u", None, {**row(9, 9), "amount": "much"})))
    return found


def expected(pipeline: Written, given: list[tuple[bytes, bytes | None]]) -> dict[str, Any]:
    """What `evaluate` says of the same file and messages, without Kafka and Spark."""
    plan = parse(json.dumps(pipeline.document()), "file", environ={}).plan
    evaluation = Evaluation(plan)
    found = evaluation.advance({"orders": [(key, value, 1) for key, value in given]}, 2)
    # By then everything that expires has.
    later = evaluation.advance({}, 1 << 62)
    sums: dict[str, Collection] = {}
    for name in found:
        sums[name] = Counter()
        for data, _, diff in found[name] + (later[name] if name == "errors" else []):
            sums[name][data if name != "errors" else ("error", data["reason"])] += diff
    return sums


@pytest.mark.full
def test_a_file_means_the_same_as_in_process(pipeline: Written) -> None:
    """Every output of every format comes to what `evaluate` says of the same messages."""
    # Nothing leaves before the run ends, however long that takes.
    expires = time.time_ns() // 1_000_000 + 3_600_000
    given = messages(expires)
    pipeline.send_to("orders", given)
    servers, name = pipeline.servers, pipeline.name

    with pipeline.start("--once") as run:
        assert run.wait(120) == 0, run.text
        assert "leak" not in run.text
    wanted = expected(pipeline, given)
    truth = wanted["diff"]

    assert truth
    assert shown(pipeline, "diff") == truth
    assert shown(pipeline, "lines") == wanted["lines"]
    assert shown(pipeline, "both") == truth + wanted["lines"]
    assert shown(pipeline, "valid") == wanted["valid"]
    assert upserts_of(servers, f"{name}.upsert") == truth
    assert debezium_of(servers, f"{name}.debezium-json") == truth
    assert facts_of(servers, f"{name}.cdcv2-json", cdcv2.decode) == truth
    assert facts_of(servers, f"{name}.cdcv2-avro", cdcv2_avro.decode) == truth
    assert reasons(pipeline) == wanted["errors"]
    assert "table messages ignored" in run.text
    assert "1 old images unlike the state" in run.text


@pytest.mark.full
def test_rows_leave_on_time(pipeline: Written) -> None:
    """What is valid until a time is gone after it, though nothing comes in any more."""
    with pipeline.start() as run:
        run.wait_for("waiting for records")
        expires = time.time_ns() // 1_000_000 + int(patient(4) * 1000)
        given = messages(expires)
        pipeline.send_to("orders", given)
        odd = {key["id"] % 2 for key, _ in _eventually(pipeline, run, 2)}
        left = _eventually(pipeline, run, 1)
        assert run.stop() == 0

    assert odd == {0, 1}
    assert {key["id"] % 2 for key, _ in left} == {0}


def _eventually(pipeline: Written, run: Run, kinds: int) -> Collection:
    """What is valid as soon as it has rows of so many kinds of ids, even and odd."""
    found: list[Collection] = []

    def there() -> bool:
        assert run.poll() is None, run.text
        found[:] = [shown(pipeline, "valid")]
        return len({key["id"] % 2 for key, _ in found[0]}) == kinds

    wait_until(there, 60, f"{kinds} kinds of valid rows")
    return found[0]


def upserts_of(servers: str, topic: str) -> Collection:
    """What a topic of upserts says in the end."""
    last: dict[Any, Any] = {}
    for message in committed(servers, topic):
        value = message.value()
        last[canonical.decode(message.key())] = value and canonical.decode(value)
    return Counter((key, value) for key, value in last.items() if value is not None)


def debezium_of(servers: str, topic: str) -> Collection:
    """What a topic of Debezium's messages says in the end."""
    codec = Debezium(Needs())
    last: dict[Any, Any] = {}
    for message in committed(servers, topic):
        changes = codec.changes(message.key(), message.value(), None)
        assert not isinstance(changes, Ignored)
        for change in changes:
            assert change.key is not None
            last[canonical.decode(change.key)] = change.after and canonical.decode(change.after)
    return Counter((key, value) for key, value in last.items() if value is not None)


def facts_of(
    servers: str, topic: str, decode: Callable[[bytes | None], cdcv2.Cdcv2Message]
) -> Collection:
    """What the complete times of a CDCv2 topic come to; facts count twice on purpose."""
    reader = Cdcv2Reader()
    counts: Collection = Counter()
    for message in [m for m in committed(servers, topic) for _ in range(2)]:
        reader.feed(decode(message.value()))
        for _, updates in reader.take():
            for key, value, _, diff in updates:
                assert key is not None
                counts[canonical.decode(key), canonical.decode(value)] += diff
    return Counter({data: count for data, count in counts.items() if count})


def reasons(pipeline: Written) -> Collection:
    """How many errors there are in the end, by reason."""
    records = shown(pipeline, "errors").elements()
    return Counter(("error", record["reason"]) for _, record in records)
