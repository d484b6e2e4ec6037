"""A source task: from offsets of Kafka to packed rows for the shards."""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from ikebana.codecs.snapshot_record import topic_of
from ikebana.processor.kafka import client
from ikebana.processor.kafka.reader import Range, RangeReader
from ikebana.processor.planning import planner
from ikebana.processor.planning.plan import Input, Plan
from ikebana.processor.spark.shares import Share, range_of
from ikebana.processor.spark.source_config import SourceConfig
from ikebana.processor.spark.source_rows import messages, rows_taken_back
from ikebana.processor.topics.codec_of import needs_headers, needs_timestamps
from ikebana.processor.topics.decoding import Decoding
from ikebana.processor.topics.intake import Intake
from ikebana.processor.topics.slice_reading import reading_of, rows_in
from ikebana.processor.topics.source_dating import BoundaryReading
from ikebana.processor.topics.update_intake import UpdateIntake, intake_of

if TYPE_CHECKING:
    from ikebana.processor.kafka.registry import Registry

# The wait of one attempt of a task; Spark makes four attempts before a query fails.
_REGISTRY_PATIENCE_S = client.PATIENCE_S / 4


def packed_rows(
    config: SourceConfig, share: Share, reader: RangeReader
) -> Iterator[Sequence[tuple[int, bytes]]]:
    """Yield the packed rows of a task, each with its shard; `reader` reads the inputs."""
    shards = len(config.labels)
    if share.ticks:
        yield share.ticks
    registry = tuple(sorted(config.registry.items()))

    def intake(of: Input) -> Intake | UpdateIntake:
        return _intake(config.plan, of, registry)

    # Offsets are read once, and decoded for each input that reads them.
    by_range: dict[Range, list[Decoding | BoundaryReading]] = {}
    for each in share.slices:
        reading = reading_of(config.plan, each, intake, shards)
        if each.file is not None:
            source = config.plan.input(each.input)
            for of_file in rows_in(source, each):
                if rows := [*reading.add(of_file)]:
                    yield rows
            yield [*reading.finish()]
            continue
        by_range.setdefault(range_of(each), []).append(reading)
    with closing(reader.read(share.hops)) as reading_hops:
        for at, hopped in reading_hops:
            yield [(at.partition, message.value()) for message in hopped]
    if share.read_back:
        of_outputs = connected(config.own_kafka)
        yield from rows_taken_back(config.plan, of_outputs, share.read_back, shards)
    if not by_range:
        return
    with_headers = {topic for i in config.plan.inputs if needs_headers(i) for topic in i.topics}
    with_headers |= {topic_of(topic) for topic in with_headers}
    dated = {topic for i in config.plan.inputs if needs_timestamps(i) for topic in i.topics}
    with closing(reader.read(list(by_range))) as fetching:
        for at, records in fetching:
            read = messages(records, headers=at.topic in with_headers, dated=at.topic in dated)
            for reading in by_range[at]:
                if rows := [*reading.add(read)]:
                    yield rows
    for reading in itertools.chain.from_iterable(by_range.values()):
        if rows := [*reading.finish()]:
            yield rows


def connected(settings: Mapping[str, str]) -> RangeReader:
    """Return the process's reader for these settings of Kafka's client."""
    return _reader(tuple(sorted(settings.items())))


@functools.lru_cache(maxsize=32)
def _intake(
    plan: Plan, source: Input, registry: tuple[tuple[str, str], ...]
) -> Intake | UpdateIntake:
    # Cached for the worker, because each task gets a new reader and compiling is expensive.
    named = plan.shares_topics(plan.input(source.name))
    return intake_of(source, planner.physical(plan), _registry(registry), named=named)


@functools.lru_cache(maxsize=4)
def _registry(settings: tuple[tuple[str, str], ...]) -> "Registry | None":
    if not settings:
        return None
    # Its client takes a while to import, and few need it.
    from ikebana.processor.kafka.registry import Registry

    return Registry(dict(settings), _REGISTRY_PATIENCE_S)


@functools.lru_cache(maxsize=4)
def _reader(settings: tuple[tuple[str, str], ...]) -> RangeReader:
    # Cached for the worker, because connecting in each batch would cost more than reading.
    return RangeReader(dict(settings))
