"""Choose the snapshot at which a reader of a diff topic begins.

A snapshot can be used if it belongs to this topic, and everything after it still exists: the
updates of the topic after its last batch, the progress from that batch on, and the snapshot
itself.  Readers begin at the newest snapshot at or before their time, or at the beginning of the
topic.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ikebana.codecs.diff import SnapshotRecord
from ikebana.errors import SourceError
from ikebana.processor.base.texts import moment
from ikebana.processor.checkpoint.refusal import Reason, Refusal


class Available(NamedTuple):
    """What the brokers still have: first offsets of the topic, its progress, and its snapshots."""

    topic: str
    topic_id: str
    begins: Mapping[int, int]
    progress_begin: int
    snapshot_begins: Mapping[int, int]

    @property
    def is_whole(self) -> bool:
        """Whether the topic has its beginning."""
        return not any(self.begins.values())


def usable(records: Sequence[SnapshotRecord], available: Available) -> list[SnapshotRecord]:
    """List the snapshots at which reading can begin, in order of time; the last of equal ones."""
    by_time = {record.time: record for record in records if _is_usable(record, available)}
    return [by_time[time] for time in sorted(by_time)]


def _is_usable(record: SnapshotRecord, available: Available) -> bool:
    return (
        record.topic_id == available.topic_id
        and record.progress_at >= available.progress_begin
        and all(begin <= record.last.ends.get(p, 0) for p, begin in available.begins.items())
        and all(available.snapshot_begins.get(p, at) <= at for p, at in record.starts.items())
    )


def chosen(
    records: Sequence[SnapshotRecord],
    available: Available,
    as_of: int | None,
    *,
    strict: bool = True,
) -> SnapshotRecord | Refusal | None:
    """Choose where to begin so that the collection as of a time can be read; None: the beginning.

    Without a time, it is the newest snapshot.  Unless `strict`, it is the oldest snapshot if none
    is old enough.
    """
    candidates = usable(records, available)
    before = [record for record in candidates if as_of is None or record.time <= as_of]
    if before:
        return before[-1]
    if available.is_whole:
        return None
    if candidates and not strict:
        return candidates[0]
    if candidates and as_of is not None:
        return before_snapshots(available.topic, as_of, candidates[0].time)
    partition, low = next(at for at in sorted(available.begins.items()) if at[1] > 0)
    return Refusal(
        Reason.LOST_BEGINNING,
        f'cannot accumulate "{available.topic}": the beginning of {available.topic}[{partition}] '
        f"was deleted, its first record is at or after offset {low}"
        + (", and none of its snapshots is followed by all later updates" if records else ""),
        "Diff topics need retention.ms=-1 and retention.bytes=-1, or snapshots that "
        "`ikebana compact` takes before records are deleted. What was deleted can only be made "
        "again, by a new checkpoint with new output topics.",
        SourceError,
    )


def before_snapshots(topic: str, asked: int, first: int) -> Refusal:
    """Refuse a time before the oldest snapshot of a topic that has lost its beginning."""
    return Refusal(
        Reason.LOST_BEGINNING,
        f'cannot read "{topic}" as of {moment(asked)}: it was compacted, and can be read as of '
        f"{moment(first)} and later times",
        f"Ask for {moment(first)} or a later time.",
        SourceError,
    )


def passed(topic: str, upper: int, usable: Sequence[SnapshotRecord]) -> Refusal:
    """Refuse to go on at a frontier after which updates of the topic were deleted."""
    where = f"; it can be read as of {moment(usable[0].time)} and later times" if usable else ""
    return Refusal(
        Reason.LOST_BEGINNING,
        f'cannot go on reading "{topic}" at time {moment(upper)}: updates that follow were '
        f"deleted{where}",
        "Begin again: leave the token out, or give --rebuild.",
        SourceError,
    )


def kept_snapshots(
    records: Sequence[SnapshotRecord], topic_id: str, number: int
) -> list[SnapshotRecord]:
    """List the newest `number` snapshots of a topic in order of time, which have to be kept."""
    by_time = {record.time: record for record in records if record.topic_id == topic_id}
    return [by_time[time] for time in sorted(by_time)][-number:]
