"""What the driver publishes of a batch: its progress, from the markers of its shards alone."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ikebana.codecs.progress import ProgressRecord, add_times
from ikebana.processor.deciding.commits import Marker
from ikebana.processor.planning import planner
from ikebana.processor.planning.plan import Output, Plan


class Closing(NamedTuple):
    """An output's batch is over: its progress, and how many updates it had by time.

    The times are counted where the output's format says them (`formatting.Formatted`).
    """

    output: Output
    record: ProgressRecord
    times: dict[int, int]


def closings(
    plan: Plan,
    batch: Sequence[Marker],
    ends: Mapping[str, dict[int, int]],
    new: Collection[str] = (),
) -> list[Closing]:
    """What to publish of a batch that all shards have committed, for each output.

    `ends` are by topic and partition, behind the batch's last commit: all of its updates lie
    before them.  `new` outputs begin at 0, wherever their operators do: what is before that
    is closed, and empty.
    """
    first = batch[0]
    found = []
    for output in plan.published:
        lower, upper = first.intervals[output.name]
        record = ProgressRecord(
            checkpoint=first.checkpoint,
            pipeline=plan.name,
            topic=output.topic,
            batch=first.batch,
            lower=0 if output.name in new else lower,
            upper=upper,
            count=sum(marker.counts.get(output.name, 0) for marker in batch),
            ends=ends[output.topic],
            promise=planner.promise(plan, output),
        )
        times: dict[int, int] = {}
        for marker in batch:
            add_times(times, marker.times.get(output.name, ()))
        found.append(Closing(output, record, times))
    return found
