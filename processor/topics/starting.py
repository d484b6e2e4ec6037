"""Where a new checkpoint begins to read: at offsets of its inputs, or before these.

An input with a history begins with its files.


A diff topic that was compacted begins at a snapshot, and its earlier contents are not known.  So
the plan begins at the latest time of the snapshots: earlier updates of all inputs count at that
time, and outputs have no earlier times.
"""

# Decision (checkpoints begin at a topic's beginning): Rows of other inputs may be older than a
# snapshot, and would be late. Readers of one topic, which have no such inputs, begin at the
# newest snapshot.

from collections.abc import Mapping, Sequence

from ikebana.codecs.snapshot_record import SnapshotRecord, topic_of
from ikebana.processor.base.offsets import Positions
from ikebana.processor.planning import progress
from ikebana.processor.planning.plan import Plan
from ikebana.processor.topics.input_times import Base, InputTimes, RowFile
from ikebana.processor.topics.source_offset import SourceOffset


def started(
    plan: Plan,
    positions: Positions,
    topic_ids: Mapping[str, str],
    snapshots: Mapping[str, SnapshotRecord],
    histories: Mapping[str, Sequence[RowFile]] = {},
) -> SourceOffset:
    """Make the offset before the first batch.

    It begins at the `snapshots` by topic, and has the files of the `histories` by input.
    """
    begin = max((record.time for record in snapshots.values()), default=0)
    times = {}
    for source in plan.inputs:
        if source.traits.kind == "updates" and (snapshot := snapshots.get(source.topics[0])):
            times[source.name] = InputTimes(
                progress_at=snapshot.progress_at,
                checkpoint=snapshot.last.checkpoint,
                base=Base(topic_of(source.topics[0]), snapshot.starts, snapshot.ends),
            )
        if files := histories.get(source.name):
            times[source.name] = InputTimes(
                base=Base(
                    source.history_topic,
                    dict.fromkeys(range(len(files)), 0),
                    {at: file.rows for at, file in enumerate(files)},
                    [*files],
                )
            )
    return SourceOffset(
        batch=-1,
        lower=begin,
        upper=begin,
        positions={**positions, **{topic: dict(r.last.ends) for topic, r in snapshots.items()}},
        plan=plan.fingerprint(),
        frontiers=dict.fromkeys(progress.edges(plan), begin) if begin else {},
        topic_ids=dict(topic_ids),
        input_times=times,
    )


# The offset at which the rebuild of a lost checkpoint's state begins.
#
# All records, those that the lost checkpoint had processed and later ones, count from one time on,
# which is beyond all times that it has written.  `base.transition` describes the rebuild.
