"""Spark's format "ikebana": an output's collection as of a time, or its closed batches.

    ikebana.register(spark)
    spark.read.format("ikebana").option("topic", "whereabouts").option("as_of", ...).load()
    spark.readStream.format("ikebana").option("topic", "whereabouts").load()
    frame.writeStream.format("ikebana").option("topic", "orders").option("writer", "billing")

The driver plans offsets once, and tasks read them, one for each partition of the topic.  A batch
read gives each datum once, with its count.  A stream gives each update once, or only the net
change of each key; a micro-batch consists of whole closed batches, so it has all updates of its
times.

The columns `key`, `value`, `time` and `diff` are the fields of the update, and `count` is another
name of `diff`.  Any other column is a field of the key, if that is a JSON object with this field,
or else of the value.

`topic_writer` is the sink.
"""

import datetime
import decimal
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    EqualTo,
    Filter,
    In,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from ikebana.codecs.encodings import INTEGERS
from ikebana.codecs.formats import SINGLE_VALUE_FORMATS
from ikebana.codecs.output_messages import changed, violation
from ikebana.codecs.sql_type import Decimal, type_of
from ikebana.errors import AwayError, ConfigError, SourceError
from ikebana.processor.authoring.proposing.look import absent_words
from ikebana.processor.base import diff_reader, texts
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.texts import suggestion
from ikebana.processor.kafka import client, records
from ikebana.processor.kafka.diff_topic import (
    DiffTopic,
    PartitionPiece,
    TopicPlace,
    TopicRanges,
    output_reader,
)
from ikebana.processor.kafka.reader import RangeReader
from ikebana.processor.kafka.topics import partition_of
from ikebana.processor.spark.topic_writer import TopicWriter, write_options

SCHEMA = "key BINARY, value BINARY, time BIGINT, diff BIGINT"
_ROWS = 10_000
_RAW = ("key", "value")
_NUMBERS = ("time", "diff", "count")
FieldReader = Callable[[Any], Any]
# Numbers keep all of their digits, for columns that are decimals.
_decode = msgspec.json.Decoder(float_hook=decimal.Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode
# Spark's types for SQL types; any other type becomes STRING.
_COLUMNS = {
    **{name: name for name in ("BOOLEAN", "TINYINT", "SMALLINT", "BIGINT", "DOUBLE", "FLOAT")},
    **{"INTEGER": "INT", "UTINYINT": "SMALLINT", "USMALLINT": "INT", "UINTEGER": "BIGINT"},
    **{"UBIGINT": "DECIMAL(20,0)", "HUGEINT": "DECIMAL(38,0)", "DATE": "DATE"},
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS"), "TIMESTAMP"),
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
}


def schema_of(columns: Mapping[str, str]) -> str:
    """The schema of rows with columns of SQL types, and their time and count.

    >>> schema_of({"id": "BIGINT", "a`b": "DECIMAL(9,2)", "l": "BIGINT[]"})
    '`id` BIGINT, `a``b` DECIMAL(9,2), `l` STRING, time BIGINT, diff BIGINT'
    """
    fields = []
    for name, kind in columns.items():
        if name not in (*_RAW, *_NUMBERS):
            of_spark = kind if isinstance(type_of(kind), Decimal) else _COLUMNS.get(kind, "STRING")
            fields.append(f"`{name.replace('`', '``')}` {of_spark}")
    return ", ".join([*fields, "time BIGINT, diff BIGINT"])


def net_rows(updates: Iterable[KeyedUpdate], time: int, topic: str) -> Iterator[KeyedUpdate]:
    """Sum updates up to one row, at `time`, for each key that changes.

    The row has the key's new value with a diff of 1, or its old one with -1 if the key is gone.

    >>> ups = [KeyedUpdate(b"1", b"a", 3, -1), KeyedUpdate(b"1", b"b", 4, 1)]
    >>> list(net_rows(ups, 5, "t"))
    [KeyedUpdate(key=b'1', value=b'b', time=5, diff=1)]

    Raises:
        SourceError: a key has several values, or a value several times.
    """
    for _, key, diffs in changed((key, value, time, diff) for key, value, _, diff in updates):
        if (reason := violation(key, diffs)) is not None:
            raise SourceError(
                f'cannot read net rows of "{topic}": key {key!r}: {reason}',
                hint="Read all updates: they say how often a key has each of its values.",
            )
        value, diff = max(diffs.items(), key=lambda of_value: of_value[1])
        yield KeyedUpdate(key, value, time, diff)


class RowMaker:
    """Makes the rows of a schema.

    Raises:
        ConfigError: a column has a type that it cannot have.
    """

    def __init__(self, topic: str, schema: StructType) -> None:
        self._topic = topic
        self._schema = schema
        self._arrow = to_arrow_schema(schema, timezone="UTC")
        self._fields = {
            field.name: _field(field.name, field.dataType)
            for field in schema.fields
            if field.name not in (*_RAW, *_NUMBERS)
        }
        self._texts = {}
        for field in schema.fields:
            if field.name in _NUMBERS and not isinstance(field.dataType, LongType):
                raise _wrong(field.name, field.dataType, "BIGINT")
            if field.name in _RAW:
                if not isinstance(field.dataType, (BinaryType, StringType)):
                    raise _wrong(field.name, field.dataType, "BINARY or STRING")
                self._texts[field.name] = isinstance(field.dataType, StringType)

    def absent(self, messages: Sequence[tuple[bytes | None, bytes | None]]) -> list[str]:
        """Describe the columns that none of these keys and values has."""
        fields = [
            set().union(*(part for part in map(_object, message)))
            for message in messages
            if message[1] is not None
        ]
        there = set().union(*fields)
        others = there - self._fields.keys()
        return [
            "".join(absent_words(len(fields), name, "column", there, others))
            for name in self._fields
            if fields and name not in there
        ]

    def batches(self, updates: Iterable[KeyedUpdate]) -> Iterator[pa.RecordBatch]:
        """Make batches of rows.

        Raises:
            SourceError: a key or value is not what the schema says, or a count is beyond 64 bits.
        """
        iterator = iter(updates)
        while rows := list(islice(iterator, _ROWS)):
            fields = [self._decoded(update) for update in rows] if self._fields else []
            columns = [
                pa.array(self._column(name, rows, fields), self._arrow.field(at).type)
                for at, name in enumerate(self._arrow.names)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self._arrow)

    def _column(
        self, name: str, rows: list[KeyedUpdate], fields: list[dict[str, Any]]
    ) -> list[Any]:
        if name in self._fields:
            return [self._value(name, row.get(name)) for row in fields]
        if name == "time":
            return [update.time for update in rows]
        if name in _NUMBERS:
            diffs = [update.diff for update in rows]
            if not all(diff in INTEGERS for diff in diffs):
                raise SourceError(
                    f'cannot read column {name} of "{self._topic}": a count is beyond 64 bits',
                    hint="A stream has its updates, and `ikebana snapshot` prints it.",
                )
            return diffs
        raw = [update.key if name == "key" else update.value for update in rows]
        if not self._texts[name]:
            return raw
        try:
            return [None if each is None else each.decode() for each in raw]
        except UnicodeDecodeError:
            raise SourceError(
                f'cannot read "{self._topic}": a {name} is not UTF-8',
                hint=f"Give the column {name} the type BINARY.",
            ) from None

    def _decoded(self, update: KeyedUpdate) -> dict[str, Any]:
        """Decode the fields of a value and, over them, of a key."""
        fields: dict[str, Any] = {}
        try:
            for data in (update.value, update.key):
                decoded = None if data is None else _decode(data)
                if isinstance(decoded, dict):
                    fields |= decoded
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise SourceError(
                f'cannot read columns of "{self._topic}": a key or a value is not JSON',
                hint="Give no schema, or one of key, value, time and diff.",
            ) from None
        return fields

    def _value(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        try:
            return self._fields[name](value)
        except (ValueError, TypeError, ArithmeticError):
            kind = self._schema[name].dataType.simpleString()
            raise SourceError(
                f'cannot read column {name} of "{self._topic}" as {kind}: a value is not one',
                hint="Give the column the type STRING, which takes everything.",
            ) from None


def _object(data: bytes | None) -> dict[str, Any]:
    """The fields of a JSON object; none of anything else."""
    try:
        decoded = None if data is None else _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _field(name: str, kind: DataType) -> FieldReader:
    match kind:
        case StringType():
            return _text
        case ByteType() | ShortType() | IntegerType() | LongType():
            return _integer
        case DoubleType() | FloatType():
            return _number
        case BooleanType():
            return _boolean
        case DecimalType():
            return _decimal
        case DateType():
            return datetime.date.fromisoformat
        case TimestampType():
            return _timestamp
        case _:
            types = "STRING, BOOLEAN, whole numbers, DOUBLE, DECIMAL, DATE, TIMESTAMP"
            raise _wrong(name, kind, types)


def _wrong(name: str, kind: DataType, types: str) -> ConfigError:
    return ConfigError(
        f"cannot read column {name} as {kind.simpleString()}: it can be {types}",
        hint="Nested JSON comes as STRING, for from_json.",
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _encode(value).decode()


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, decimal.Decimal)):
        raise TypeError(value)
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _decimal(value: Any) -> decimal.Decimal:
    if isinstance(value, bool):
        raise TypeError(value)
    return decimal.Decimal(value)


def _timestamp(value: Any) -> datetime.datetime:
    """Milliseconds since 1970, or text, which is in UTC unless it says otherwise."""
    if isinstance(value, str):
        instant = datetime.datetime.fromisoformat(value)
        return instant if instant.tzinfo is not None else instant.replace(tzinfo=datetime.UTC)
    return datetime.datetime.fromtimestamp(_number(value) / 1000, datetime.UTC)


# Decision (Spark's tasks read a partition each): They check that keys are where Kafka's hash
# says; only then is a count of one task the whole count. Else one task reads all: a data source
# cannot shuffle.

NAME = "ikebana"
_KAFKA = "kafka."
_OPTIONS = ("topic", "format", "as_of", "since", "tasks", "max_offsets", "columns", "rows")
# The rows of a stream: all updates, or the new value of each key that a micro-batch changes.
_ROWS_OF_STREAMS = ("updates", "net")
# Formats whose values are rows.
_OF_ROWS = ("diff", "upsert")
# Options that Spark adds itself.
_OF_SPARK = ("path",)


class TopicReadOptions(msgspec.Struct, frozen=True):
    """The options of a read."""

    topic: str
    kafka: dict[str, str]
    form: str = "diff"
    as_of: int | None = None
    since: int | None = None
    tasks: str = "partitions"
    max_offsets: int = 1_000_000
    columns: bool = False
    """Whether rows have the columns that the topic declares, not keys and values as bytes."""
    net: bool = False
    """Whether a stream has one row for each key that a micro-batch changes."""


def register(spark: SparkSession) -> None:
    """Register the format "ikebana" with a Spark session: outputs of pipelines as data frames.

    An example::

        ikebana.register(spark)
        frame = (
            spark.read.format("ikebana")
            .option("kafka.bootstrap.servers", "localhost:9092")
            .load("whereabouts")
        )

    A batch read is the collection of the topic as of its newest closed time, or of the option
    `as_of`; a stream is of its updates.  A stream that is written in this format becomes upserts
    of a topic.  Options that are missing or wrong are errors of the read or the write, not of
    this call.

    The session's `spark.sql.python.filterPushdown.enabled` is set: a condition on `key` then
    reads one partition of the topic.
    """
    spark.dataSource.register(IkebanaTopic)
    # Without it Spark refuses every reader that takes conditions.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


class IkebanaTopic(DataSource):  # type: ignore[misc]
    """The data source as Spark registers it."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        options = read_options(dict(self.options))
        if not options.columns:
            return SCHEMA
        client.reach(options.kafka)
        topic = DiffTopic(options.kafka, options.topic, options.form)
        try:
            last = topic.last_closed()
        finally:
            topic.close()
        if last is None or not last.columns:
            raise _refused(
                f'"{options.topic}" does not tell the types of its columns, or nothing of it is '
                "closed yet; give a schema"
            )
        return schema_of(last.columns)

    def reader(self, schema: StructType) -> "BatchReader":
        options = read_options(dict(self.options))
        if options.since is not None:
            raise _refused("since is of streams; a batch read takes as_of")
        if options.net:
            raise _refused("rows is of streams; a batch read has one row for each datum")
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> "TopicStreamReader":
        options = read_options(dict(self.options))
        if options.as_of is not None:
            raise _refused("as_of is of batch reads; a stream takes since")
        if options.form != "diff":
            raise _refused(f"a stream is of the format diff, and not of {options.form}")
        return TopicStreamReader(options, schema)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - as Spark calls it
    ) -> DataSourceStreamWriter:
        return TopicWriter(write_options(dict(self.options)), schema, replaces=overwrite)


def read_options(options: dict[str, str]) -> TopicReadOptions:
    """Read the options of a read.

    Raises:
        ConfigError: one is missing, unknown, or has a wrong value.
    """
    kafka = {name[len(_KAFKA) :]: v for name, v in options.items() if name.startswith(_KAFKA)}
    others = {name: v for name, v in options.items() if not name.startswith(_KAFKA)}
    for name in others:
        if name not in (*_OPTIONS, *_OF_SPARK):
            raise _refused(f'there is no option "{name}"{suggestion(name, _OPTIONS)}')
    topic = others.get("topic") or others.get("path")
    if not topic:
        raise _refused('name the topic: .option("topic", "whereabouts"), or .load("whereabouts")')
    if "bootstrap.servers" not in kafka:
        raise _refused('name the brokers: .option("kafka.bootstrap.servers", "host:9092")')
    form = others.get("format", "diff")
    if form not in (formats := ("diff", *SINGLE_VALUE_FORMATS)):
        choices = ", ".join(formats)
        raise _refused(f"the format {form} cannot be read; it can be {choices}")
    tasks = others.get("tasks", "partitions")
    if tasks not in ("partitions", "1"):
        raise _refused('tasks is "partitions" or "1"')
    most = others.get("max_offsets", "1000000")
    if not most.isdecimal() or int(most) == 0:
        raise _refused(f"max_offsets is a number from 1 on, and not {most}")
    columns = others.get("columns", "false")
    if columns not in ("true", "false"):
        raise _refused('columns is "true" or "false"')
    rows = others.get("rows", "updates")
    if rows not in _ROWS_OF_STREAMS:
        raise _refused(f'rows is "updates" or "net", and not "{rows}"')
    return TopicReadOptions(
        topic,
        kafka,
        form,
        _time(others, "as_of"),
        _time(others, "since"),
        tasks,
        int(most),
        columns == "true",
        rows == "net",
    )


def _time(options: dict[str, str], name: str) -> int | None:
    if name not in options:
        return None
    try:
        return texts.parse_moment(options[name])
    except ValueError:
        raise _refused(
            f"{name} is a whole number, or a date like 2024-02-29T12:30:00Z, and not "
            f'"{options[name]}"'
        ) from None


def _refused(why: str) -> ConfigError:
    return ConfigError(f"cannot read a topic with Spark: {why}")


@dataclass
class Task(InputPartition):  # type: ignore[misc]
    """The offsets that one task reads.

    With `partitions`, each key has to be in the partition of Kafka's hash.
    """

    pieces: list[PartitionPiece]
    time: int
    partitions: int | None = None


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """Reads the collection as of a time; conditions on `key` restrict which partitions."""

    def __init__(self, options: TopicReadOptions, schema: StructType) -> None:
        self._options = options
        self._rows = RowMaker(options.topic, schema)
        self._keys: set[bytes] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the keys that conditions name; Spark evaluates all conditions itself, too."""
        for condition in filters:
            match condition:
                case EqualTo(attribute=("key",), value=value):
                    keys = {_bytes(value)}
                case In(attribute=("key",), value=values):
                    keys = {_bytes(value) for value in values if value is not None}
                case _:
                    continue
            self._keys = keys if self._keys is None else self._keys & keys
        return filters

    def partitions(self) -> list[Task]:
        options = self._options
        client.reach(options.kafka)
        ranges = TopicRanges(options.kafka, options.topic, options.form)
        try:
            plan = ranges.as_of(options.as_of)
        finally:
            ranges.close()
        if not plan.pieces:
            return []
        _warn(options, self._rows)
        if not plan.by_key or options.tasks == "1":
            return [Task(plan.pieces, plan.time)]
        needed: Collection[int] = range(plan.partitions)
        if self._keys is not None:
            needed = {partition_of(key, plan.partitions) for key in self._keys}
        pieces = (piece for piece in plan.pieces if piece.partition in needed)
        return [Task([piece], plan.time, plan.partitions) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        options = self._options
        counts: dict[tuple[bytes | None, bytes], int] = {}
        for piece in partition.pieces:
            updates = _updates(options, piece)
            if partition.partitions is not None:
                updates = _in_place(updates, options.topic, piece.partition, partition.partitions)
            for update in updates:
                if update.time > partition.time:
                    continue
                if self._keys is not None and update.key not in self._keys:
                    continue
                datum = update.key, update.value
                if count := counts.get(datum, 0) + update.diff:
                    counts[datum] = count
                else:
                    del counts[datum]
        at = partition.time
        yield from self._rows.batches(KeyedUpdate(*d, at, count) for d, count in counts.items())


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads closed batches; an offset is a `TopicPlace`, or empty at the beginning."""

    def __init__(self, options: TopicReadOptions, schema: StructType) -> None:
        self._options = options
        self._rows = RowMaker(options.topic, schema)
        self._open_ranges: TopicRanges | None = None
        self._has_looked = False
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        latest = self._ranges.last()
        return _offset(latest) if latest.upper else None

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ranges.last().batch

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = _place(start)
        place = self._ranges.first(self._options.since) if begin is None else begin
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        reached = self._ranges.after(place, most, self._target)
        if begin is None:
            if reached.upper == 0:
                return start
            reached = msgspec.structs.replace(reached, base=place.base)
        elif reached.batch <= begin.batch:
            return start
        return _offset(reached)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Task]:
        before, after = _place(start), _place(end)
        if after is None:
            return []
        if not self._has_looked:
            self._has_looked = True
            _warn(self._options, self._rows)
        partitions = len(after.ends) if self._options.net else None
        pieces = self._ranges.between(before, after)
        return [Task([piece], after.upper, partitions) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        for piece in partition.pieces:
            updates = _updates(self._options, piece)
            if partition.partitions is not None:
                topic = self._options.topic
                updates = _in_place(updates, topic, piece.partition, partition.partitions)
                updates = net_rows(updates, partition.time - 1, topic)
            yield from self._rows.batches(updates)

    def stop(self) -> None:
        if self._open_ranges is not None:
            self._open_ranges.close()

    @property
    def _ranges(self) -> TopicRanges:
        # Not before it is needed: the reader is also sent to tasks.
        if self._open_ranges is None:
            options = self._options
            client.reach(options.kafka)
            self._open_ranges = TopicRanges(options.kafka, options.topic, options.form)
        return self._open_ranges

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open_ranges": None}


def _warn(options: TopicReadOptions, rows: RowMaker) -> None:
    """Say on standard error, which Spark passes on, which columns of the schema are all null."""
    if options.form not in _OF_ROWS:
        return
    try:
        messages = [
            (each.key, each.value) for each in records.first_and_last(options.kafka, options.topic)
        ]
    except (AwayError, SourceError):
        return  # the read itself says what is wrong, if it lasts
    for words in rows.absent(messages):
        print(f'ikebana: warning: topic "{options.topic}": {words}', file=sys.stderr, flush=True)


def _in_place(
    updates: Iterable[KeyedUpdate], topic: str, partition: int, partitions: int
) -> Iterator[KeyedUpdate]:
    """Pass on the updates of a partition; each key must be in the partition of its hash.

    Raises:
        SourceError: a key is not, so other updates of it may be in another partition.
    """
    placed: set[bytes] = set()
    for update in updates:
        if update.key not in placed:
            if update.key is None or partition_of(update.key, partitions) != partition:
                raise SourceError(
                    f'cannot read the partitions of "{topic}" apart from each other: '
                    "not all updates of a key are in one partition",
                    hint='Read it with .option("tasks", "1"), or a stream with '
                    '.option("rows", "updates").',
                )
            placed.add(update.key)
        yield update


def _bytes(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else bytes(key)


def _offset(place: TopicPlace) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(place, str_keys=True)
    return built


def _place(offset: dict[str, Any]) -> TopicPlace | None:
    return msgspec.convert(offset, TopicPlace, strict=False) if offset else None


def _updates(options: TopicReadOptions, piece: PartitionPiece) -> Iterator[KeyedUpdate]:
    """Read the updates of a piece, those of its snapshot first."""
    decode = _decoding(options)
    reader = RangeReader(options.kafka)
    try:
        for span in piece.ranges:
            for _, messages in reader.read([span]):
                for message in messages:
                    yield from decode(span.topic, message)
    finally:
        reader.close()


def _decoding(options: TopicReadOptions) -> Callable[[str, Any], list[KeyedUpdate]]:
    messages = output_reader(options.kafka, options.topic, options.form)
    if messages is not None:

        def read(_: str, message: Any) -> list[KeyedUpdate]:
            at = message.partition(), message.offset()
            updates = messages.read(at, message.key(), message.value(), message.headers())
            return [KeyedUpdate(*update[:4]) for update in updates]

        return read

    def decode(topic: str, message: Any) -> list[KeyedUpdate]:
        at = message.partition(), message.offset()
        update = diff_reader.decode(topic, at, message.key(), message.value(), message.headers())
        return [KeyedUpdate(*update[:4])]

    return decode
