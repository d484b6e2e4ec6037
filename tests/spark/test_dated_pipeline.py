"""Inputs with times of their own, through Kafka and Spark: event time, and topics of updates."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ikebana.codecs import canonical
from ikebana.processor.authoring.pipeline import parse
from ikebana.processor.engine.evaluate import Evaluation
from ikebana.processor.kafka.broker import Broker
from ikebana.processor.kafka.compacting import Compaction
from support.output_judge import committed, progress_of
from support.pipeline_processes import Written, WrittenOver, create, produce, upserts, written
from support.waiting import wait_until
from support.written_topics import Row
from support.written_topics import Written as HandWritten

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.kafka]

Update = tuple[bytes, int]


def updates(servers: str, topic: str) -> Counter[Update]:
    """All updates of a diff topic, summed by data and time."""
    found: Counter[Update] = Counter()
    for message in committed(servers, topic):
        headers = {name: int(value) for name, value in message.headers()}
        data = canonical.encode(
            [canonical.decode(message.key()), canonical.decode(message.value())]
        )
        found[data, headers["time"]] += headers["diff"]
    return Counter({update: diff for update, diff in found.items() if diff})


def evaluated(found: list[Any]) -> Counter[Update]:
    """The updates of an output of `evaluate`, in the same form."""
    return Counter({(canonical.encode(list(u.data)), u.time): u.diff for u in found})


def test_shuffled_history_gives_what_ordered_history_does(written_over: WrittenOver) -> None:
    """Within the lateness, over two partitions, a restart and a death."""
    choice = Random(5)
    pipeline = written_over("readings")
    servers, name = pipeline.servers, pipeline.name
    sections = {
        "inputs": {
            "readings": {
                "topic": f"{name}.readings",
                "columns": {"at": "BIGINT", "level": "INTEGER"},
                "event_time": {"of": '"at"', "lateness": "50ms", "idle": "never"},
            }
        },
        "operators": {
            "current": {"upsert": "readings"},
            "levels": {"reduce": "current", "by": "level", "aggregates": {"n": "count(*)"}},
        },
        "outputs": {
            each: {"from": each, "topic": f"{name}.{each}"} for each in ("current", "levels")
        },
    }
    pipeline = pipeline.having(sections)
    history = [
        (f"s{choice.randrange(20)}", {"at": 1_000 + 3 * at, "level": choice.randrange(4)})
        for at in range(600)
    ]
    shuffled = sorted(history, key=lambda one: one[1]["at"] + choice.uniform(0, 49))

    def send(records: list[tuple[str, dict[str, int]]]) -> None:
        # The order of a key is what its times say, so partitions need not keep it.
        for partition in range(2):
            own = [(json.dumps(k).encode(), json.dumps(row).encode()) for k, row in records]
            pipeline.send_to("readings", own[partition::2], partition)

    send(shuffled[:300])
    pipeline.drained()
    send(shuffled[300:])
    send([("end", {"at": 1_000_000, "level": 9})] * 2)
    pipeline.dies(f"after_commit:{max(pipeline.log('commits')) + 2}:0")
    done = pipeline.drained()

    plan = parse(json.dumps(pipeline.document()), "file", environ={}).plan
    frontier = 1_000_000 - 50
    found = Evaluation(plan).advance(
        {"readings": [(key, row, at) for at, (key, row) in enumerate(history)]}, frontier
    )
    assert "late" not in done.text
    for name in ("current", "levels"):
        assert progress_of(servers, f"{pipeline.name}.{name}")[-1].upper == frontier
        assert updates(servers, f"{pipeline.name}.{name}") == evaluated(found[name]), name
        assert found[name]


def kill_at_random(pipelines: list[Written], send: Callable[[int], None], choice: Random) -> None:
    """Let pipelines run at once, and kill everything of each in the middle of some batch."""
    runs = {}
    more = iter([True] * 40)
    try:
        for pipeline in pipelines:

            def begun(of: Written = pipeline) -> bool:
                return bool(of.log("commits"))

            runs[pipeline.name] = pipeline.start()
            # Without the topic of the one before it the next would be refused.
            wait_until(begun, 240, f"{pipeline.name} runs")
        for pipeline in pipelines:
            seen = max(pipeline.log("commits"), default=-1) + choice.randint(1, 3)

            def in_the_middle(of: Written = pipeline, after: int = seen) -> bool:
                done = max(of.log("commits"), default=-1)
                if done >= after and max(of.log("offsets")) > done:
                    return True
                # As long as it has nothing to do there is nothing to be in the middle of.
                if max(of.log("offsets"), default=-1) == done and next(more, False):
                    send(20)
                return False

            wait_until(in_the_middle, 240, f"a batch of {pipeline.name} after {seen}")
            runs[pipeline.name].kill()
            runs[pipeline.name] = pipeline.start()
    finally:
        for run in runs.values():
            run.kill()


CHAINED_OPERATORS = {
    "by_value": {"reduce": "current", "by": "value", "aggregates": {"n": "count(*)"}},
    "some": {"linear": "current", "where": "(value->>'v')::INTEGER > 1"},
}


@pytest.mark.parametrize("form", ["diff", "cdcv2-json"])
def test_chained_pipelines_are_as_one(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path, form: str
) -> None:
    """Killed at random while they run, two give update for update what one gives."""
    servers, choice = broker.bootstrap_servers, Random(7)
    source, between = topic_name("changes"), topic_name("between")
    create(servers, source, 1)
    names = [topic_name(name) for name in ("first", "second", "whole")]
    upsert = {
        "inputs": {"changes": {"topic": source}},
        "operators": {"current": {"upsert": "changes"}},
    }
    shown = {name: {"from": name} for name in CHAINED_OPERATORS}
    first = written(
        tmp_path,
        servers,
        names[0],
        {**upsert, "outputs": {"out": {"from": "current", "topic": between, "format": form}}},
        "offset",
    )
    second = written(
        tmp_path,
        servers,
        names[1],
        {
            "inputs": {"current": {"topic": between, "format": form}},
            "operators": CHAINED_OPERATORS,
            "outputs": {n: {**o, "topic": f"{names[1]}.{n}"} for n, o in shown.items()},
        },
    )
    whole = written(
        tmp_path,
        servers,
        names[2],
        {
            "inputs": upsert["inputs"],
            "operators": {**upsert["operators"], **CHAINED_OPERATORS},
            "outputs": {n: {**o, "topic": f"{names[2]}.{n}"} for n, o in shown.items()},
        },
        "offset",
    )

    def send(count: int) -> None:
        made = list(upserts(count, 25, choice))
        produce(servers, source, [(b'"%b"' % key, value) for key, value in made])

    send(200)
    if form == "diff":
        kill_at_random([first, second], send, choice)
    for pipeline in (first, second, whole):
        pipeline.drained()

    upper = progress_of(servers, f"{names[2]}.by_value")[-1].upper
    for name in CHAINED_OPERATORS:
        assert progress_of(servers, f"{names[1]}.{name}")[-1].upper == upper
        chained = updates(servers, f"{names[1]}.{name}")
        assert chained == updates(servers, f"{names[2]}.{name}"), name
        assert chained


def test_a_pipeline_begins_at_a_snapshot(
    broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Of a topic that has lost its beginning; and goes on after a restart, and more compaction."""
    servers, name = broker.bootstrap_servers, topic_name("counts")
    topic = HandWritten(servers, topic_name("between"))
    rows: list[Row] = [
        (n % 2, b'"%d"' % n, b'{"v":%d}' % (n % 3), 1 + n // 6 * 3, 1) for n in range(12)
    ]
    topic.batch(rows[:6], 3)
    topic.batch(rows[6:], 6)

    def compacted(upto: int) -> int:
        compaction = Compaction({"bootstrap.servers": servers}, topic.name)
        done = compaction.compact(upto)
        compaction.delete(1)
        compaction.close()
        assert done is not None
        return done.record.time

    assert compacted(5) == 5
    pipeline = written(
        tmp_path,
        servers,
        name,
        {
            "inputs": {"current": {"topic": topic.name, "format": "diff"}},
            "operators": {
                "by_value": {"reduce": "current", "by": "value", "aggregates": {"n": "count(*)"}}
            },
            "outputs": {"by_value": {"from": "by_value", "topic": f"{name}.by_value"}},
        },
    )
    topic.batch([(0, b'"0"', b'{"v":0}', 7, -1)], 9)
    pipeline.drained()
    topic.batch([(0, b'"2"', b'{"v":2}', 10, -1)], 12)
    # What the pipeline has not read is still there.
    assert compacted(8) == 8
    pipeline.drained()

    told = progress_of(servers, f"{name}.by_value")
    assert (told[0].lower, told[-1].upper) == (5, 12)
    found: dict[int, Counter[bytes]] = {}
    for (datum, time), diff in updates(servers, f"{name}.by_value").items():
        found.setdefault(time, Counter())[datum] += diff
    assert {time: sum(found[time].values()) for time in found} == {5: 3, 7: 0, 10: 0}
    assert {json.loads(datum)[1]["n"] for datum in found[5]} == {4}
    for time in (7, 10):
        changed = {json.loads(datum)[1]["n"]: diff for datum, diff in found[time].items()}
        assert changed == {4: -1, 3: 1}
