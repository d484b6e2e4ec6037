"""Spark's format "ikebana": collections as of a time, streams of closed batches, and upserts."""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ikebana.codecs import diff
from ikebana.processor.base.machine import find_java
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.broker import Broker
from ikebana.processor.kafka.compacting import Compaction
from ikebana.processor.kafka.reader import Range, RangeReader
from ikebana.processor.kafka.topics import partition_of
from support.docstring_examples import run_example
from support.sums import summed
from support.waiting import patient
from support.written_topics import Row, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SERVING = Path(__file__).resolve().parents[2] / "docs" / "serving.md"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """One session for the module, with the format, in a JVM that starts as that of a run does.

    Its Python processes are forks, because the first of a stream has ten seconds to start.
    """
    from pyspark.sql import SparkSession

    import ikebana
    from ikebana.processor.spark.jvm import Jvm
    from ikebana.processor.spark.session import DEFAULTS
    from ikebana.processor.spark.workers.host import MODULES
    from ikebana.processor.spark.workers.starting import PROGRAM, Workers

    modules = [name for name in MODULES if name.startswith("pyspark.")]
    modules.append("ikebana.processor.spark.topic_source")
    folder = tmp_path_factory.mktemp("spark")
    workers = Workers(folder, None, modules)
    patch = pytest.MonkeyPatch()
    for name, value in {**workers.environment, "PYSPARK_PYTHON": str(PROGRAM)}.items():
        patch.setenv(name, value)
    options = {
        **DEFAULTS,
        "spark.app.name": "topics",
        "spark.python.daemon.module": "pyspark.daemon",
        "spark.master": "local[2]",
        "spark.driver.memory": "512m",
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "false",
    }
    jvm = Jvm(options, find_java(os.environ), folder, None)
    try:
        jvm.context()
        session = SparkSession.builder.config(map=options).getOrCreate()
        ikebana.register(session)
        yield session
    finally:
        jvm.end()
        workers.end()
        patch.undo()


@pytest.fixture
def written(broker: Broker, topic_name: Callable[[str], str]) -> Written:
    """An empty topic."""
    return Written(broker.bootstrap_servers, topic_name("diffs"), "collection")


def _row(number: int, value: str, time: int, change: int) -> Row:
    key = b'{"id":%d}' % number
    return (
        partition_of(key, 2),
        key,
        b'{"name":"%s","n":%d}' % (value.encode(), time),
        time,
        change,
    )


def _life(written: Written) -> dict[int, Counter[tuple[bytes, bytes]]]:
    """Three batches; the collection at each time."""
    batches = [
        ([_row(n, "a", 1, 1) for n in range(20)], 3),
        ([(*_row(n, "a", 1, -1)[:3], 4, -1) for n in range(5)], 6),
        ([_row(n, "b", 7, 2) for n in range(3)], 9),
    ]
    now: Counter[tuple[bytes, bytes]] = Counter()
    at = {}
    for rows, upper in batches:
        written.batch(rows, upper)
        for time in range(upper - 3, upper):
            for _, key, value, when, change in rows:
                if when == time:
                    assert key is not None
                    now[key, value] += change
            at[time] = Counter({datum: count for datum, count in now.items() if count})
    return at


def _read(spark: "SparkSession", written: Written, **options: object) -> "DataFrame":
    reader = spark.read.format("ikebana").option("topic", written.name)
    reader = reader.option("kafka.bootstrap.servers", written.servers)
    return reader.options(**options).load()


def _collection(frame: "DataFrame") -> Counter[tuple[bytes, bytes]]:
    rows = frame.collect()
    found = Counter({(bytes(row.key), bytes(row.value)): row.diff for row in rows})
    # Each datum comes once.
    assert len(found) == len(rows)
    return found


def test_the_example_of_its_docstring_runs(spark: "SparkSession", written: Written) -> None:
    """The newest collection."""
    import ikebana

    at = _life(written)
    names = {"whereabouts": written.name, "localhost:9092": written.servers}

    found = run_example(ikebana.register, names, ikebana=ikebana, spark=spark)

    assert _collection(found["frame"]) == at[max(at)]


def test_columns_that_the_topic_tells_need_no_schema(
    spark: "SparkSession", written: Written
) -> None:
    """They have the types that the pipeline knows; a topic that tells none is refused."""
    from pyspark.errors import PySparkException

    _life(written)
    with pytest.raises(PySparkException, match="does not tell the types of its columns"):
        _read(spark, written, columns="true")
    written.columns = {"name": "VARCHAR", "n": "DECIMAL(9,2)"}
    written.batch([_row(30, "c", 10, 1)], 12)

    frame = _read(spark, written, columns="true")

    assert frame.dtypes[:2] == [("name", "string"), ("n", "decimal(9,2)")]
    rows = [(row.name, row.n, row.time, row.diff) for row in frame.collect() if row.n == 10]
    assert rows == [("c", 10, 11, 1)]


def test_a_collection_is_read_as_of_each_time(spark: "SparkSession", written: Written) -> None:
    """Of several partitions, compacted or not; and a time that cannot be read is refused."""
    from pyspark.errors import AnalysisException, PySparkException

    at = _life(written)
    for time in (1, 4, 8):
        assert _collection(_read(spark, written, as_of=time)) == at[time]
    newest = _read(spark, written)
    assert newest.rdd.getNumPartitions() == 2
    assert {row.time for row in newest.collect()} == {8}
    compaction = Compaction({"bootstrap.servers": written.servers}, written.name)
    compaction.compact(5)
    compaction.delete(1)
    compaction.close()
    assert _collection(_read(spark, written)) == at[8]
    assert _collection(_read(spark, written, as_of=5)) == at[5]
    for time, reason in ((9, "its frontier is 9"), (4, "can be read as of 5 and later")):
        with pytest.raises((AnalysisException, PySparkException), match=reason):
            _read(spark, written, as_of=time).collect()


def test_columns_are_fields_of_keys_and_values(spark: "SparkSession", written: Written) -> None:
    """With the types of the schema, and the count."""
    from pyspark.errors import PySparkException

    _life(written)
    options = {"topic": written.name, "kafka.bootstrap.servers": written.servers, "as_of": "8"}
    reader = spark.read.format("ikebana").options(**options)
    frame = reader.schema("id INT, name STRING, n BIGINT, count BIGINT, missing DATE").load()
    found = {tuple(row) for row in frame.where("name = 'b'").collect()}
    assert found == {(n, "b", 7, 2, None) for n in range(3)}
    with pytest.raises(PySparkException, match=r"cannot read column name of .* as int"):
        reader.schema("name INT").load().collect()
    with pytest.raises(PySparkException, match="Nested JSON comes as STRING"):
        reader.schema("name ARRAY<INT>").load().collect()


def test_a_column_that_no_message_has_is_said(
    written: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, once for a read and once for a stream; one that is there is not."""
    from pyspark.sql.types import IntegerType, StringType, StructType

    from ikebana.processor.spark.topic_source import IkebanaTopic

    _life(written)
    options = {"topic": written.name, "kafka.bootstrap.servers": written.servers}
    source, schema = IkebanaTopic(options), StructType()
    schema.add("id", IntegerType()).add("nam", StringType())

    source.reader(schema).partitions()

    warning = f'ikebana: warning: topic "{written.name}": no message of '
    words = capsys.readouterr().err
    assert words.startswith(warning)
    assert words.count("warning") == 1
    assert words.endswith('they have id, n, name; did you mean "name"?\n')
    stream = source.streamReader(schema)
    end = stream.latestOffset({}, None)
    for _ in range(2):
        stream.partitions({}, end)
    stream.stop()
    assert capsys.readouterr().err.count(warning) == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "name the topic"),
        ({"topic": "t"}, "name the brokers"),
        ({"topik": "t"}, 'there is no option "topik"; did you mean "topic"'),
        ({"topic": "t", "kafka.bootstrap.servers": "x", "format": "cdcv2-json"}, "cannot be read"),
        ({"topic": "t", "kafka.bootstrap.servers": "x", "as_of": "soon"}, "is a whole number"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], reason: str) -> None:
    """Before anything is read."""
    from ikebana.errors import ConfigError
    from ikebana.processor.spark.topic_source import read_options

    with pytest.raises(ConfigError, match=reason):
        read_options(options)


def test_updates_without_a_key_are_read_in_one_task(
    spark: "SparkSession", written: Written
) -> None:
    """Because their places say nothing; and a key in two partitions is refused by name."""

    written.batch([(0, None, b"1", 1, 1), (1, None, b"1", 2, 1), (1, None, b"2", 2, 1)], 3)
    written.batch([(0, None, b"2", 4, -1)], 6)
    rows = [(row.key, bytes(row.value), row.diff) for row in _read(spark, written).collect()]
    assert rows == [(None, b"1", 2)]


def test_a_key_in_another_partition_is_refused(spark: "SparkSession", written: Written) -> None:
    """Reading the partitions apart would give two counts of it."""
    from pyspark.errors import PySparkException

    written.batch([(p, b'{"id":1}', b"1", 1, 1) for p in (0, 1)], 3)
    with pytest.raises(PySparkException, match="not all updates of a key are in one partition"):
        _read(spark, written).collect()
    assert [row.diff for row in _read(spark, written, tasks=1).collect()] == [2]


def test_upserts_are_read_as_a_collection(spark: "SparkSession", written: Written) -> None:
    """As of a time: the value that each key had then."""
    for value, time in ((b'"a"', 1), (b'"b"', 4)):
        written.producer.begin_transaction()
        partition = partition_of(b"7", 2)
        headers = diff.headers(time, 1)[:1]
        written.producer.produce(written.name, value, b"7", partition=partition, headers=headers)
        written.producer.commit_transaction(30)
        written.progress(time + 1, 1)
    for time, value in ((2, b'"a"'), (4, b'"b"')):
        frame = _read(spark, written, as_of=time, format="upsert")
        assert _collection(frame) == {(b"7", value): 1}


def _streamed(
    spark: "SparkSession", written: Written, folder: Path, **options: object
) -> list[list[tuple[bytes, bytes, int, int]]]:
    """All micro-batches that there are now, each with its rows in order."""
    batches: list[list[tuple[bytes, bytes, int, int]]] = []

    def take(frame: "DataFrame", _: int) -> None:
        rows = [(bytes(r.key), bytes(r.value), r.time, r.diff) for r in frame.collect()]
        batches.append(sorted(rows))

    stream = spark.readStream.format("ikebana").option("topic", written.name)
    stream = stream.option("kafka.bootstrap.servers", written.servers).options(**options)

    query = (
        stream.load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(int(patient(120)))
    return batches


def test_a_stream_has_whole_closed_batches_once(
    spark: "SparkSession", written: Written, tmp_path: Path
) -> None:
    """Also where it goes on after a restart, and where it begins at a snapshot."""
    at = _life(written)
    written.updates([_row(1, "open", 10, 1)])
    first = _streamed(spark, written, tmp_path / "one", max_offsets=1)
    assert [{row[2] for row in batch} for batch in first] == [{1}, {4}, {7}]
    written.progress(12, 1)
    [second] = _streamed(spark, written, tmp_path / "one", max_offsets=1)
    assert [row[2] for row in second] == [10]

    compaction = Compaction({"bootstrap.servers": written.servers}, written.name)
    compaction.compact(5)
    compaction.delete(1)
    compaction.close()
    later = _streamed(spark, written, tmp_path / "two")
    some = [row for batch in later for row in batch if row[2] < 9]
    assert all(time >= 5 for _, _, time, _ in some)
    assert summed(((key, value), change) for key, value, _, change in some) == at[8]


def test_a_stream_goes_on_when_the_time_that_it_began_at_is_gone(written: Written) -> None:
    """What compaction has deleted is needed by streams alone that begin."""
    from pyspark.sql.types import BinaryType, StructType

    from ikebana.errors import SourceError
    from ikebana.processor.spark.topic_source import IkebanaTopic

    _life(written)
    options = {"topic": written.name, "kafka.bootstrap.servers": written.servers, "since": "1"}
    source, schema = IkebanaTopic(options), StructType().add("key", BinaryType())
    stream = source.streamReader(schema)
    place = stream.latestOffset({}, None)
    stream.stop()
    with closing(Compaction({"bootstrap.servers": written.servers}, written.name)) as compaction:
        compaction.compact(5)
        compaction.delete(1)
    written.batch([_row(1, "open", 10, 1)], 12)

    stream = source.streamReader(schema)
    stream.prepareForTriggerAvailableNow()
    reported = stream.reportLatestOffset()
    end = stream.latestOffset(place, None)

    assert reported is not None
    assert (reported["upper"], end["upper"]) == (12, 12)
    with pytest.raises(SourceError, match="it was compacted"):
        stream.latestOffset({}, None)
    stream.stop()


def test_the_recipe_for_parquet_gives_the_collection(
    spark: "SparkSession", written: Written, tmp_path: Path
) -> None:
    """As the documentation has it: as of any time, over two runs, and if a batch runs again."""
    names: dict[str, Any] = {}
    for recipe in (each for each in _blocks() if "def merge(" in each or "def as_of(" in each):
        exec(compile(recipe, "the recipe", "exec"), names)
    at = _life(written)
    assert _collection(names["as_of"](spark, written.servers, written.name, 4)) == at[4]
    folder = str(tmp_path / "table")

    def follow() -> None:
        names["follow"](spark, written.servers, written.name, folder)

    follow()
    written.batch([(*_row(1, "b", 7, 0)[:3], 9, -2), _row(30, "c", 9, 1)], 12)
    follow()

    at[9] = at[8].copy()
    del at[9][_datum(_row(1, "b", 7, 0))]
    at[9][_datum(_row(30, "c", 9, 1))] = 1
    again = spark.createDataFrame(spark.read.parquet(f"{folder}/batch=1").collect())
    names["merge"](again, 1, folder)
    for time, expected in ((None, at[9]), (5, at[5]), (8, at[8])):
        found: Counter[tuple[bytes, bytes]] = Counter()
        for row in names["table"](spark, folder, time).collect():
            found[bytes(row["key"]), bytes(row["value"])] = row["count"]
        assert found == expected


def _blocks() -> list[str]:
    """The Python of the documentation."""
    return re.findall(r"```python\n(.*?)```", SERVING.read_text(), re.S)


def _datum(row: Row) -> tuple[bytes, bytes]:
    assert row[1] is not None
    return row[1], row[2]


def test_a_condition_on_the_key_reads_one_partition(
    spark: "SparkSession", written: Written
) -> None:
    """With `=` and IN; other conditions read all, and Spark judges every row itself."""
    at = _life(written)
    key = b'{"id":7}'
    wanted = {datum: count for datum, count in at[8].items() if datum[0] == key}
    frame = _read(spark, written)

    one = frame.where(frame.key == key)
    assert one.rdd.getNumPartitions() == 1
    assert _collection(one) == wanted
    several = frame.where(frame.key.isin(key, b"none")).where("diff = 1")
    assert _collection(several) == wanted
    other = frame.where((frame.key == key) | (frame.diff > 1))
    assert other.rdd.getNumPartitions() == 2
    texts = spark.read.format("ikebana").option("topic", written.name)
    texts = texts.option("kafka.bootstrap.servers", written.servers).schema("key STRING, n INT")
    assert [row.n for row in texts.load().where(f"key = '{key.decode()}'").collect()] == [1]


def test_a_stream_of_net_rows_has_each_key_once(
    spark: "SparkSession", written: Written, tmp_path: Path
) -> None:
    """Its new value, or its old one with -1; and a key of several values is refused."""
    from pyspark.errors import PySparkException

    old, new = _row(1, "a", 1, 1), _row(1, "b", 4, 1)
    gone = _row(2, "a", 1, 1)
    written.batch([old, gone, _row(3, "a", 1, 1), (*_row(3, "a", 1, 1)[:3], 2, -1)], 3)
    [first] = _streamed(spark, written, tmp_path / "c", rows="net")
    written.batch([(*old[:3], 4, -1), new, (*gone[:3], 5, -1)], 6)

    [second] = _streamed(spark, written, tmp_path / "c", rows="net")

    assert first == [(*_datum(old), 2, 1), (*_datum(gone), 2, 1)]
    assert second == [(*_datum(new), 5, 1), (*_datum(gone), 5, -1)]
    written.batch([_row(4, "a", 7, 2)], 9)
    with pytest.raises(PySparkException, match="comes or goes more than once"):
        _streamed(spark, written, tmp_path / "c", rows="net")


def test_a_stream_tells_how_far_it_is_behind(
    spark: "SparkSession", written: Written, tmp_path: Path
) -> None:
    """Its progress has the offsets of what it has read and of what is closed."""
    _life(written)
    stream = spark.readStream.format("ikebana").option("topic", written.name)
    stream = stream.option("kafka.bootstrap.servers", written.servers).option("max_offsets", 1)
    query = (
        stream.load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(int(patient(120)))

    [source] = query.recentProgress[0]["sources"]
    read, closed = (json.loads(source[name]) for name in ("endOffset", "latestOffset"))
    assert read["upper"] == 3
    assert closed["upper"] == 9
    assert sum(closed["ends"].values()) - sum(read["ends"].values()) > 8


def _messages(servers: str, topic: str) -> list[tuple[bytes, bytes | None]]:
    """All committed messages of a topic of one partition."""
    settings = {"bootstrap.servers": servers}
    [end] = topics.high_watermarks(client.admin(settings), {topic: 1})[topic].values()
    with closing(RangeReader(settings)) as reader:
        read = reader.read([Range(topic, 0, 0, end)])
        return [(m.key(), m.value()) for _, messages in read for m in messages]


def _write(
    spark: "SparkSession", frame: "DataFrame", servers: str, folder: Path, **options: object
) -> None:
    query = (
        frame.writeStream.format("ikebana")
        .option("kafka.bootstrap.servers", servers)
        .options(**options)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(int(patient(120)))


def test_the_recipe_for_writing_makes_upserts_of_a_stream(
    spark: "SparkSession", written: Written, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """As the documentation has it: net rows of one topic are the upserts of another."""
    names: dict[str, Any] = {}
    [recipe] = [block for block in _blocks() if "def copy(" in block]
    exec(compile(recipe, "the recipe", "exec"), names)
    topic = topic_name("copied")
    topics.create(client.admin({"bootstrap.servers": written.servers}), topic, 1, 1, {})
    rows = [_row(number, "a", 1, 1) for number in range(4)]
    written.batch(rows, 3)
    names["copy"](spark, written.servers, written.name, topic, str(tmp_path))
    written.batch([(*rows[0][:3], 4, -1), (*rows[1][:3], 4, -1), _row(1, "b", 4, 1)], 6)

    names["copy"](spark, written.servers, written.name, topic, str(tmp_path))

    copied = _messages(written.servers, topic)
    changed = [(rows[0][1], None), _datum(_row(1, "b", 4, 1))]
    assert (sorted(copied[:4]), sorted(copied[4:])) == ([*map(_datum, rows)], changed)


def test_a_stream_is_written_as_upserts_once(
    spark: "SparkSession", broker: Broker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The greatest `order` of a key wins; a batch that Spark runs again writes nothing."""
    from pyspark.errors import PySparkException

    servers, topic = broker.bootstrap_servers, topic_name("orders")
    topics.create(client.admin({"bootstrap.servers": servers}), topic, 1, 1, {})
    source, checkpoint = tmp_path / "in", tmp_path / "c"
    source.mkdir()
    schema = "id INT, at TIMESTAMP, price DECIMAL(9,2), tags MAP<STRING, INT>, v INT, gone BOOLEAN"
    rows = [
        '{"id":1,"at":"2024-02-29T12:00:00Z","price":1.5,"tags":{"a":1},"v":2,"gone":false}',
        '{"id":1,"at":"2024-02-29T12:00:00Z","price":1.0,"v":1,"gone":false}',
        '{"id":2,"v":1}',
    ]
    (source / "one.json").write_text("\n".join(rows))
    frame = spark.readStream.schema(schema).json(str(source))
    options = {"topic": topic, "writer": "w", "key": "id", "order": "v", "deleted": "gone"}
    _write(spark, frame, servers, checkpoint, **options)
    first = _messages(servers, topic)
    (source / "two.json").write_text('{"id":2,"v":3,"gone":true}')
    _write(spark, frame, servers, checkpoint, **options)
    second = _messages(servers, topic)
    # Spark has not heard that the batch was committed.
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)

    _write(spark, frame, servers, checkpoint, **options)

    value = b'{"at":"2024-02-29T12:00:00Z","price":1.5,"tags":{"a":1}}'
    assert first == [(b'{"id":1}', value), (b'{"id":2}', b'{"at":null,"price":null,"tags":null}')]
    assert second == [*first, (b'{"id":2}', None)]
    assert _messages(servers, topic) == second
    with pytest.raises(PySparkException, match="0 is there already"):
        _write(spark, frame, servers, tmp_path / "other", **options)
    unordered = {**options, "writer": "x"}
    del unordered["order"]
    with pytest.raises(PySparkException, match="nothing says which of them is the last"):
        _write(spark, frame.drop("v"), servers, tmp_path / "third", **unordered)


@pytest.mark.parametrize(
    ("options", "schema", "reason"),
    [
        ({}, "key BINARY, value BINARY", "name the topic"),
        ({"topic": "t", "kafka.bootstrap.servers": "x"}, "key BINARY", "name the writer"),
        ({"writer": "w", "order": "n"}, "id INT", 'no column "n"'),
        ({"writer": "w"}, "id INT, value STRING", "name the columns of the key"),
        ({"writer": "w", "key": "idd"}, "id INT", 'no column "idd"; did you mean "id"'),
        ({"writer": "w", "key": "id", "deleted": "n"}, "id INT, n INT", "it is BOOLEAN"),
        ({"writer": "w"}, "key INT, value STRING", "key is BINARY or STRING"),
        ({"writer": "w", "ordr": "n"}, "id INT", 'no option "ordr"; did you mean "order"'),
    ],
)
def test_what_cannot_be_written_is_refused(
    options: dict[str, str], schema: str, reason: str
) -> None:
    """Before anything is written."""
    from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

    from ikebana.errors import ConfigError
    from ikebana.processor.spark.topic_source import IkebanaTopic

    kinds = {"INT": IntegerType(), "STRING": StringType(), "BINARY": BinaryType()}
    fields = StructType()
    for column in schema.split(", "):
        name, kind = column.split()
        fields.add(name, kinds[kind])

    if "writer" in options:
        options = {"topic": "t", "kafka.bootstrap.servers": "x", **options}
    with pytest.raises(ConfigError, match=reason):
        IkebanaTopic(options).streamWriter(fields, overwrite=False)
