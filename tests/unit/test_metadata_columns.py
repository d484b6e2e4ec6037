"""What Kafka says of a message, as columns of its row."""

from typing import Any

import pytest

import ikebana as ik
from ikebana.errors import PlanError
from ikebana.processor.authoring import pipeline
from ikebana.processor.planning.plan import Metadata
from ikebana.testing import Run
from support.sql_oracle import rows_at

METADATA: dict[str, Metadata] = {
    "ts": "timestamp",
    "part": "partition",
    "off": "offset",
    "h": "headers",
    "t": "topic",
}
COLUMNS = [ik.Column("n", "BIGINT")]


def test_metadata_belongs_to_the_message_that_set_the_value() -> None:
    """So the same value in another message is another row, where its metadata is read."""
    shop = ik.Pipeline("shop", time="offset")
    rows = shop.topic("numbers", columns=COLUMNS, metadata=METADATA).upsert()
    rows.select("n", "ts", "part", "off", "t").to("all")
    rows.select("n").named("plain").to("plain")

    found = shop.evaluate(numbers=[("a", {"n": 1}, 0), ("b", {"n": 2}, 5), ("a", {"n": 1}, 2500)])

    row = {"n": 1, "part": 0, "t": "numbers"}
    first = {**row, "ts": "1970-01-01T00:00:00", "off": 1}
    assert [(value, diff) for (key, value), _, diff in found["all"] if key == "a"] == [
        (first, 1),
        (first, -1),
        ({**row, "ts": "1970-01-01T00:00:02.5", "off": 3}, 1),
    ]
    assert [diff for (key, _), _, diff in found["plain"] if key == "a"] == [1]


def test_views_and_event_time_read_metadata() -> None:
    """And rows that stay."""
    shop = ik.Pipeline("shop")
    event = ik.EventTime(of="ts + INTERVAL 1 SECOND")
    rows = shop.topic("numbers", columns=COLUMNS, metadata=METADATA, event_time=event).rows()
    rows.select("n", "ts").to("rows")
    view = "SELECT part, max(ts) AS last, count(*) AS n FROM numbers GROUP BY part"
    shop.sql(view, name="view").to("view")

    found = shop.evaluate(numbers=[(1, {"n": 1}, 0), (2, {"n": 2}, 1500)])

    assert [(value, time) for (_, value), time, _ in found["rows"]] == [
        ({"n": 1, "ts": "1970-01-01T00:00:00"}, 1000),
        ({"n": 2, "ts": "1970-01-01T00:00:01.5"}, 2500),
    ]
    assert rows_at(found["view"], 3000) == [{"last": "1970-01-01T00:00:01.5", "n": 2, "part": 0}]


def test_what_is_not_read_is_not_in_the_state() -> None:
    """Only the columns that somebody reads are added to rows; a whole row has all of them."""
    shop = ik.Pipeline("shop")
    rows = shop.topic("numbers", columns=COLUMNS, metadata=METADATA).upsert()
    rows.to("whole")

    ((_, value), *_), *_ = shop.evaluate(numbers=[(1, {"n": 1}, 0)])["whole"]

    assert value == {
        "h": {},
        "n": 1,
        "off": 1,
        "part": 0,
        "t": "numbers",
        "ts": "1970-01-01T00:00:00",
    }


def test_headers_by_name() -> None:
    """Their values are bytes; of several with one name the last is there."""
    plan = ik.Plan(
        "shop",
        (ik.Input("numbers", ("numbers",), columns=tuple(COLUMNS), metadata=(("h", "headers"),)),),
        (
            ik.Upsert("rows", "numbers"),
            ik.Linear("out", "rows", (ik.steps.select({"source": "decode(h['source'])"}),)),
        ),
        (ik.Output("out", "out", "out"),),
    )
    run = Run(plan)
    headers = [("source", b"x"), ("source", b"web")]
    run.topics.send("numbers", b"1", b'{"n":1}', headers=headers)
    run.batch()

    assert [value for (_, value), _, _ in run.updates("out")] == [{"source": "web"}]


YAML = """
pipeline: shop
inputs:
  numbers: {topic: numbers, columns: {n: BIGINT}, metadata: {ts: timestamp, part: partition}}
operators:
  late: {sql: "SELECT n FROM numbers WHERE ts > '1970-01-01 00:00:01' AND part = 0"}
outputs:
  late: {from: late, topic: late}
kafka: {bootstrap.servers: localhost:9092}
run: {checkpoint: ./checkpoint}
"""
SQL = """
CREATE PIPELINE shop WITH (
    kafka = (bootstrap.servers = 'localhost:9092'), run = (checkpoint = './checkpoint'));
CREATE SOURCE numbers (n BIGINT)
    FROM KAFKA (topic = numbers, metadata = (ts = timestamp, part = partition));
CREATE VIEW late AS SELECT n FROM numbers WHERE ts > '1970-01-01 00:00:01' AND part = 0;
CREATE SINK late FROM late INTO KAFKA (topic = late);
"""


def test_a_file_declares_metadata() -> None:
    """In YAML and in SQL alike."""
    plan, other = (
        pipeline.parse(text, name, environ={}).plan
        for text, name in ((YAML, "f.yaml"), (SQL, "f.sql"))
    )
    found = ik.evaluate(plan, {"numbers": [(1, {"n": 1}, 0), (2, {"n": 2}, 2000)]})

    assert plan == other
    assert rows_at(found["late"], 2000) == [{"n": 2}]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"metadata": (("n", "offset"),)}, "metadata.n: is a column already"),
        ({"metadata": (("key", "offset"),)}, "metadata.key: no column of metadata can be named"),
        ({"metadata": (("a", "size"),)}, 'metadata.a: "size" is none of timestamp, partition'),
        ({"value_format": "debezium-json", "mode": "diffs"}, "metadata: an old image does not"),
        ({"value_format": "diff", "columns": ()}, "metadata: updates of diff are no longer"),
        ({"value_format": "bytes", "columns": ()}, "metadata: bytes have no columns"),
    ],
)
def test_metadata_that_cannot_be(given: dict[str, Any], problem: str) -> None:
    of: dict[str, Any] = {"columns": tuple(COLUMNS), "metadata": (("o", "offset"),), **given}
    source = ik.Input("numbers", ("numbers",), **of)
    name = "numbers" if source.is_collection else "rows"
    operators = () if source.is_collection else (ik.Upsert("rows", "numbers"),)

    with pytest.raises(PlanError) as told:
        ik.evaluate(ik.Plan("p", (source,), operators, (ik.Output("o", name, "o"),)), {})

    assert problem in str(told.value)


def of_metadata(*columns: str) -> ik.Plan:
    """A plan whose one output has these columns."""
    source = ik.Input(
        "numbers", ("numbers",), columns=tuple(COLUMNS), metadata=tuple(METADATA.items())
    )
    step = ik.steps.select({name: name for name in columns})
    operators = (ik.Upsert("rows", "numbers"), ik.Linear("out", "rows", (step,)))
    return ik.Plan("shop", (source,), operators, (ik.Output("out", "out", "out"),))


def test_a_replay_and_an_edit_read_the_same_metadata() -> None:
    """Also where an edit reads metadata that was not read before: it is in the topic."""
    run = Run(of_metadata("n", "off"))
    for key, number in ((b"1", 7), (b"2", 8), (b"1", 9)):
        run.topics.send("numbers", key, {"n": number}, timestamp=1000 * number)
    run.crash(committed=[0])
    run.restart()
    run.read()
    assert run.collection("out") == [(1, {"n": 9, "off": 2}), (2, {"n": 8, "off": 1})]

    run.restart(of_metadata("n", "off", "ts"))
    run.topics.send("numbers", b"2", {"n": 8}, timestamp=10_000)
    run.read()

    assert run.collection("out") == [
        (1, {"n": 9, "off": 2, "ts": "1970-01-01T00:00:09"}),
        (2, {"n": 8, "off": 3, "ts": "1970-01-01T00:00:10"}),
    ]
    run.recover()
    run.read()
    assert [value["off"] for _, value in run.collection("out")] == [2, 3]
