"""Publish and read the progress of outputs."""

# Decision (high watermarks): Ends are taken after the last commit has returned. Delivery reports
# would be a Python callback for each record.

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from confluent_kafka.admin import AdminClient

from ikebana.codecs.diff import ProgressRecord, add_times
from ikebana.errors import AwayError, CheckpointError
from ikebana.processor.base.offsets import Offsets, Positions
from ikebana.processor.checkpoint.commits import CommitRecord
from ikebana.processor.kafka import topics
from ikebana.processor.kafka.client import PATIENCE_S, enqueue
from ikebana.processor.kafka.reader import RangeReader, progress_record
from ikebana.processor.kafka.transactions import TransactionalProducer, last_message
from ikebana.processor.planning import outputs
from ikebana.processor.planning.catalog import output_types
from ikebana.processor.planning.plan import Output, Plan


def last_progress(
    reader: RangeReader, topic: str, end: int | None = None
) -> ProgressRecord | None:
    """Read the last progress record of a topic, or None; for `end` see `last_record`."""
    message = last_message(reader, topic, 0, end)
    return None if message is None else progress_record(message, CheckpointError)


def publish(
    plan: Plan,
    driver: TransactionalProducer,
    admin: AdminClient,
    commits: Iterable[CommitRecord],
    new: Collection[str] = (),
    begin: int = 0,
    last: Offsets = MappingProxyType({}),
) -> list[ProgressRecord]:
    """Publish a batch's progress, from its commit records, for all outputs in one transaction.

    `new` outputs have had no progress before, and begin at the time `begin`.  The end offsets
    are high watermarks taken after the batch's last commit returned: all of its updates lie
    before them.  `last` has the last published ends by topic, as far as there are any; outputs
    that write a portion only keep them.

    Raises:
        AwayError: the brokers did not answer, or only with ends from before the batch.
    """
    commits = list(commits)
    ends = _ends(plan, admin, commits, last)
    batch = closings(plan, commits, ends, new, begin, last)
    with driver.transaction() as producer:
        for output, record, times in batch:
            enqueue(producer, output.progress_topic, key=record.key(), value=record.encode())
            if output.traits.facts is not None:
                facts = output.traits.facts()
                for message in facts.encode_progress(record.lower, record.upper, times):
                    enqueue(producer, output.topic, value=message)
    return [closing.record for closing in batch]


def _ends(
    plan: Plan,
    admin: AdminClient,
    commits: Sequence[CommitRecord],
    last: Offsets,
) -> Positions:
    """Read the ends of outputs.  Raises: AwayError, if they stay those from before the batch."""
    described = topics.describe(admin, [output.topic for output in plan.published])
    partitions = {name: topic.partitions for name, topic in described.items()}
    written = {
        output.topic: sum(commit.counts.get(output.name, 0) for commit in commits)
        for output in plan.published
        if output.traits.as_updates and not commits[0].transition.freezes(output.name)
    }

    def are_old(ends: Positions) -> bool:
        return any(
            sum(ends[topic].values()) - sum(last[topic].values()) < count
            for topic, count in written.items()
            if topic in last
        )

    ends = topics.from_leaders(
        lambda: topics.high_watermarks(admin, partitions), admin, are_old, PATIENCE_S
    )
    if are_old(ends):
        raise AwayError(
            f"could not reach the leaders of outputs for {PATIENCE_S:.0f} s: brokers answer with "
            "ends that lie before what the batch has written",
            hint="Check that the brokers are up, and which of them lead the outputs' topics.",
        )
    return ends


class Closing(NamedTuple):
    """The end of a batch for an output: its progress record, and its numbers of updates by time.

    Only formats that publish these numbers have them (`formatting.Formatted`).
    """

    output: Output
    record: ProgressRecord
    times: dict[int, int]


def closings(
    plan: Plan,
    batch: Sequence[CommitRecord],
    ends: Mapping[str, dict[int, int]],
    new: Collection[str] = (),
    begin: int = 0,
    last: Offsets = MappingProxyType({}),
) -> list[Closing]:
    """Make the records to publish for each output of a batch that all shards have committed.

    `ends` has, by topic and partition, offsets after the batch's last commit, so all of its
    updates lie before them.  The first interval of `new` outputs begins at `begin`, wherever
    their operators begin: earlier times are closed and empty.  Outputs of which only a portion
    was written keep those in `last`, the last published ends by topic.  If there are none, the
    ends are 0 in each partition: nothing is closed, and the next start compares the number of
    partitions.
    """
    first = batch[0]
    given_up = first.transition.gives_up
    result = []
    for output in plan.published:
        lower, upper = first.intervals[output.name]
        record = ProgressRecord(
            checkpoint=first.checkpoint,
            pipeline=plan.name,
            topic=output.topic,
            batch=first.batch,
            lower=begin if output.name in new else lower,
            upper=upper,
            count=sum(commit.counts.get(output.name, 0) for commit in batch),
            ends=dict(last.get(output.topic, dict.fromkeys(ends[output.topic], 0)))
            if first.transition.freezes(output.name)
            else ends[output.topic],
            promise=outputs.promise(plan, output),
            times=plan.times,
            columns=dict(output_types(plan, output)),
            # An output that had closed no time gives up none.
            given_up=given_up if 0 < lower < given_up else 0,
        )
        times: dict[int, int] = {}
        for commit in batch:
            add_times(times, commit.times.get(output.name, ()))
        result.append(Closing(output, record, times))
    return result
