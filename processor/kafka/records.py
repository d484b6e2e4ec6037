"""Read a few records to look at: at a place, or some of the earliest and newest of a topic.

The time of each read is bounded: a record may have been deleted.

While a pipeline runs, some messages of each input are looked at for probable mistakes (notices).
The driver reads them beside the run, which does no work for this.  An input is looked at again,
at pauses that double, until it has had enough messages and there is no notice about them.  After
its first row its newest messages are looked at too, later once a minute, for new columns.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka import Message as KafkaMessage

from ikebana.errors import IkebanaError, SourceError
from ikebana.processor.authoring.proposing.formats import Sample
from ikebana.processor.authoring.proposing.look import Look, look, new_columns, notices
from ikebana.processor.base.diff_reader import kind_of, mixed
from ikebana.processor.base.notices import Notice
from ikebana.processor.base.offsets import progress_topic
from ikebana.processor.base.rows import MessagePlace
from ikebana.processor.kafka import client, topics
from ikebana.processor.kafka.progress_topic import last_progress
from ikebana.processor.kafka.reader import Range, RangeReader, timestamp_of
from ikebana.processor.kafka.registry import Registry
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.topics.input_codec import needs_registry
from ikebana.processor.topics.messages import Message

_PARTITIONS = 8
_EACH_END = 50
# Messages may be large, and a run that looks at a few keeps its memory for other things.
_FEW = 10
_FEW_PARTITIONS = 3
_PATIENCE_S = 10.0


class Record(NamedTuple):
    """The key and the value of a record, as they are in Kafka."""

    key: bytes | None
    value: bytes | None


class RecordReader:
    """Reads records for several threads, one after the other, with one consumer."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._reader: RangeReader | None = None
        self._lock = threading.Lock()

    def at(self, place: MessagePlace) -> Record | None:
        """Read the record at a place; None if it has been deleted.

        Raises: AwayError, if the brokers do not answer.
        """
        with self._lock:
            if self._reader is None:
                self._reader = RangeReader(self._settings)
            return record_at(self._reader, place)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None


def record_at(reader: RangeReader, place: MessagePlace) -> Record | None:
    """Read the record at a place; None if it, or its topic, has been deleted.

    Raises: AwayError, if the brokers do not answer.
    """
    topic, partition, offset = place
    try:
        low, high = reader.watermarks(topic, partition)
        if not low <= offset < high:
            return None
        single = Range(topic, partition, offset, offset + 1)
        for _, messages in reader.read([single], _PATIENCE_S):
            for message in messages:
                return Record(message.key(), message.value())
    except SourceError:
        return None
    return None


def sampled(settings: Mapping[str, str], topic: str) -> list[Sample]:
    """Read the first and the last messages of the first partitions that have any.

    Raises:
        SourceError: there is no such topic, or its messages did not come in time.
    """
    return [
        Sample(m.key(), m.value(), tuple(m.headers() or ()), m.partition() or 0)
        for m in _read(settings, topic, _EACH_END, _EACH_END)
    ]


def newest(settings: Mapping[str, str], topic: str) -> list[Message]:
    """Read the last messages of the first partitions that have any.

    Raises:
        SourceError: there is no such topic, or its messages did not come in time.
    """
    return _messages(settings, topic, 0, _EACH_END)


def first_and_last(settings: Mapping[str, str], topic: str) -> list[Message]:
    """Read a few of the first and last messages of a few partitions that have any.

    Raises:
        SourceError: there is no such topic, or its messages did not come in time.
    """
    return _messages(settings, topic, _FEW, _FEW, _FEW_PARTITIONS)


def _messages(
    settings: Mapping[str, str], topic: str, first: int, last: int, partitions: int = _PARTITIONS
) -> list[Message]:
    return [
        Message(m.offset(), m.key(), m.value(), m.headers(), timestamp_of(m))
        for m in _read(settings, topic, first, last, partitions)
    ]


def _read(
    settings: Mapping[str, str], topic: str, first: int, last: int, most: int = _PARTITIONS
) -> list[KafkaMessage]:
    """Read messages of the first partitions that have any, `most` of them."""
    admin = client.admin(settings)
    described = topics.describe(admin, [topic])
    if topic not in described:
        raise SourceError(
            f'there is no topic "{topic}" at {settings["bootstrap.servers"]}',
            hint="Name one with --topic, and its brokers with --brokers.",
        )
    partitions = {topic: described[topic].partitions}
    begins, ends = (
        topics.beginnings(admin, partitions)[topic],
        topics.ends(admin, partitions)[topic],
    )
    ranges = []
    for partition in [p for p, end in sorted(ends.items()) if begins[p] < end][:most]:
        low, high = begins[partition], ends[partition]
        middle = min(low + first, high)
        ranges.append(Range(topic, partition, low, middle))
        ranges.append(Range(topic, partition, max(middle, high - last), high))
    reader = RangeReader(settings)
    try:
        return [m for _, messages in reader.read(ranges, _PATIENCE_S) for m in messages]
    finally:
        reader.close()


# An input with so many messages and without a notice is not looked at again.
_ENOUGH = 10
_AGAIN_S = 5.0
_LATEST_S = 60.0
_REGISTRY_S = 5.0
# How long the end of a run waits for a look that is under way.
_END_WITHIN_S = 10.0


class FirstMessages:
    """A thread that looks at the messages of a plan's inputs; `tell` gets its notices."""

    def __init__(
        self,
        plan: Plan,
        kafka: Mapping[str, str],
        registry: Mapping[str, str],
        tell: Callable[[Sequence[Notice]], None],
    ) -> None:
        self._plan = plan
        self._kafka = kafka
        self._registry = registry
        self._tell = tell
        self._notices: dict[str, list[Notice]] = {}
        # The names of the columns of the first rows, by input.  A start has declared all columns
        # of inputs that add them.
        self._had: dict[str, frozenset[str]] = {
            source.name: frozenset(column.name for column in source.columns)
            for source in plan.inputs
            if source.on_new_column == "add"
        }
        self._new: dict[str, Notice] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ikebana-look", daemon=True)

    def begin(self) -> None:
        """Start the thread, if it does not run yet."""
        if self._thread.ident is None:
            self._thread.start()

    def end(self, within_s: float = _END_WITHIN_S) -> None:
        """Stop the thread; a look that has begun, such as the first one, is finished."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join(within_s)

    def _run(self) -> None:
        left, pause_s = list(self._plan.inputs), _AGAIN_S
        while left or self._had:
            for source in self._plan.inputs:
                if source.name in self._had:
                    self._look_for_new(source)
            left = [source for source in left if not self._is_done(source)]
            noticed = [notice for each in self._notices.values() for notice in each]
            self._tell([*noticed, *self._new.values(), *_of_times(self._plan, self._kafka)])
            if self._ends.wait(pause_s):
                return
            pause_s = min(2 * pause_s, _LATEST_S)

    def _is_done(self, source: Input) -> bool:
        """Look at an input; return whether it need not be looked at again."""
        try:
            messages, seen = looked_at(source, self._kafka, self._registry)
        except (IkebanaError, KafkaException):
            return False  # the run itself says what is wrong with the topic, if it lasts
        self._notices[source.name] = notices(self._plan, source, messages, seen)
        if source.columns and seen.rows:
            names = frozenset(name for row in seen.rows for name in row)
            self._had.setdefault(source.name, names)
        return seen.read >= _ENOUGH and not self._notices[source.name]

    def _look_for_new(self, source: Input) -> None:
        """Look for new columns in the newest messages of an input; their notice stays."""
        try:
            _, seen = looked_at(source, self._kafka, self._registry, newest)
        except (IkebanaError, KafkaException):
            return  # as above
        if (notice := new_columns(source, self._had[source.name], seen)) is not None:
            self._new[source.name] = notice


def _of_times(plan: Plan, kafka: Mapping[str, str]) -> list[Notice]:
    """Notice that the times of dated inputs are of different kinds.

    Where the plan determines the kinds, it was checked that they are equal
    (`planning.plan_problems`).
    """
    dated = [source for source in plan.inputs if source.is_dated]
    diffs = [source for source in dated if source.traits.kind == "updates"]
    if not diffs or len(dated) == 1:
        return []
    kinds = {
        source.name: None if source.event_time is None else source.event_time.times
        for source in dated
    }
    try:
        with closing(RangeReader(kafka)) as reader:
            for source in diffs:
                last = last_progress(reader, progress_topic(source.topics[0]))
                kinds[source.name] = None if last is None else kind_of(last.times, last.upper)
    except (IkebanaError, KafkaException):
        return []
    if (words := mixed(kinds)) is None:
        return []
    remedy = "no time of both is ever closed: join topics of pipelines with the same `time`"
    return [Notice("times", diffs[0].name, diffs[0].name, f"{words}; {remedy}")]


def looked_at(
    source: Input,
    kafka: Mapping[str, str],
    registry: Mapping[str, str],
    read: Callable[[Mapping[str, str], str], list[Message]] = first_and_last,
) -> tuple[list[Message], Look]:
    """Read messages of an input's topics, and look at them.

    Raises: IkebanaError, KafkaException: they cannot be read.
    """
    messages = [message for topic in source.topics for message in read(kafka, topic)]
    schemas = None
    if needs_registry(source) and registry:
        schemas = Registry(dict(registry), _REGISTRY_S)
    return messages, look(source, messages, schemas)
