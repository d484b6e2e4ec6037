"""Make the progress records of a batch from the markers of its shards."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ikebana.codecs.progress import ProgressRecord, add_times
from ikebana.processor.checkpoint.commits import Marker
from ikebana.processor.planning import promises
from ikebana.processor.planning.catalog import output_types
from ikebana.processor.planning.plan import Output, Plan
from ikebana.processor.topics import kinds_of_time


class Closing(NamedTuple):
    """The end of a batch for an output: its progress record, and its numbers of updates by time.

    Only formats that publish these numbers have them (`formatting.Formatted`).
    """

    output: Output
    record: ProgressRecord
    times: dict[int, int]


def closings(
    plan: Plan,
    batch: Sequence[Marker],
    ends: Mapping[str, dict[int, int]],
    new: Collection[str] = (),
    begin: int = 0,
    before: Mapping[str, dict[int, int]] = MappingProxyType({}),
) -> list[Closing]:
    """Make the records to publish for each output of a batch that all shards have committed.

    `ends` has, by topic and partition, offsets after the batch's last commit, so all of its
    updates lie before them.  The first interval of `new` outputs begins at `begin`, wherever
    their operators begin: earlier times are closed and empty.  Outputs of which only a portion was
    written have the ends that were published `before`.  If there are none, the ends are 0 in each
    partition: nothing is closed, and the next start compares the number of partitions.
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
            count=sum(marker.counts.get(output.name, 0) for marker in batch),
            ends=before.get(output.name, dict.fromkeys(ends[output.topic], 0))
            if first.transition.freezes(output.name)
            else ends[output.topic],
            promise=promises.promise(plan, output),
            times=kinds_of_time.of_plan(plan),
            columns=dict(output_types(plan, output)),
            # An output that had closed no time gives up none.
            given_up=given_up if 0 < lower < given_up else 0,
        )
        times: dict[int, int] = {}
        for marker in batch:
            add_times(times, marker.times.get(output.name, ()))
        result.append(Closing(output, record, times))
    return result
