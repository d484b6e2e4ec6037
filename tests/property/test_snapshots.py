"""Where readers of a compacted topic begin: always where all that follows is still there."""

from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs.diff import ProgressRecord, SnapshotRecord
from ikebana.processor.checkpoint.refusal import Reason, Refusal
from ikebana.processor.kafka.snapshots import (
    Available,
    choose,
    refuse_deleted,
    retained_snapshots,
    usable,
)

TOPIC = "t"
PARTITIONS = (0, 1)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[SnapshotRecord], Available]:
    """Snapshots of a topic that grows, some of one made anew, and what is left of everything.

    What an attempt that was never completed has written takes offsets, too.
    """
    records = []
    ends, at, written, upper = {0: 0, 1: 0}, 0, {1: 0, 2: 0}, 1
    for number in range(draw(st.integers(0, 5))):
        ends = {p: end + draw(st.integers(0, 4)) for p, end in ends.items()}
        at += draw(st.integers(0, 3))
        upper += draw(st.integers(0, 3))
        starts = {p: end + draw(st.integers(0, 3)) for p, end in written.items()}
        written = {p: start + draw(st.integers(0, 4)) for p, start in starts.items()}
        last = ProgressRecord("c", "p", TOPIC, number, 0, upper, 0, ends, "collection")
        topic_id = draw(st.sampled_from(["now", "now", "now", "before"]))
        records.append(SnapshotRecord(last, at, topic_id, starts, written, 0, ""))

    def low(most: int) -> int:
        return draw(st.sampled_from([0, 0, draw(st.integers(0, most))]))

    begins = {p: low(end + 2) for p, end in ends.items()}
    left = {p: low(end) for p, end in written.items()}
    return records, Available(TOPIC, "now", begins, low(at), left)


@given(histories(), st.none() | st.integers(0, 20))
def test_the_newest_snapshot_that_can_be_used_is_chosen(
    history: tuple[list[SnapshotRecord], Available], as_of: int | None
) -> None:
    """Not after the time asked for; else the beginning, else a refusal with the first time."""
    records, kept = history
    whole = all(kept.begins[p] == 0 for p in PARTITIONS)
    good = [
        record
        for record in records
        if record.topic_id == "now"
        and not any(kept.begins[p] > record.last.ends[p] for p in PARTITIONS)
        and not any(kept.snapshot_begins[p] > record.starts[p] for p in (1, 2))
        and record.progress_at >= kept.progress_begin
    ]
    old_enough = [record for record in good if as_of is None or record.time <= as_of]

    found = choose(records, kept, as_of)

    assert {record.time for record in usable(records, kept)} == {record.time for record in good}
    if old_enough:
        assert isinstance(found, SnapshotRecord)
        assert found in old_enough
        assert found.time == max(record.time for record in old_enough)
    elif whole:
        assert found is None
    else:
        assert isinstance(found, Refusal)
        assert found.reason is Reason.LOST_BEGINNING
        if good:
            assert f"as of {min(record.time for record in good)} " in found.message
        lenient = choose(records, kept, as_of, strict=False)
        if good:
            assert isinstance(lenient, SnapshotRecord)
            assert lenient.time == min(record.time for record in good)
        else:
            assert isinstance(lenient, Refusal)


@given(histories(), st.integers(1, 3))
def test_what_is_deleted_before_a_kept_snapshot_leaves_all_that_are_kept(
    history: tuple[list[SnapshotRecord], Available], keep: int
) -> None:
    """After deletion up to the oldest that is kept, each of them can still be used."""
    records, _ = history
    held = retained_snapshots(records, "now", keep)
    assert [record.time for record in held] == sorted({record.time for record in held})
    if not held:
        return
    oldest = held[0]
    starts = {p: min(record.starts[p] for record in held) for p in (1, 2)}
    after = Available(TOPIC, "now", oldest.last.ends, oldest.progress_at, starts)
    assert usable(records, after)[-len(held) :] == held


def test_a_sink_that_is_behind_what_was_deleted_has_a_remedy() -> None:
    """It has no token to leave out, and no option."""
    refusal = refuse_deleted("home", 7, ())

    assert refusal.hint is not None
    assert "a sink begins again under another name" in refusal.hint
