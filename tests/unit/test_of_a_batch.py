"""What is decided of a batch: adopted or computed, published, trimmed, learned."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ikebana.arrangements.files import Folder
from ikebana.arrangements.manifest import Dropped, Manifest
from ikebana.arrangements.rocks import LocalDatabases
from ikebana.arrangements.run import RunEntry
from ikebana.codecs.change import Column
from ikebana.codecs.diff import pack_times
from ikebana.errors import CheckpointError, FencedError
from ikebana.processor.base.rows import Tick, TimesReport, Upserts, pack
from ikebana.processor.base.transition import Phase, Replayed, Transition
from ikebana.processor.checkpoint.commits import (
    Adopt,
    CommitRecord,
    Compute,
    Holder,
    computable,
    first_commit,
    reports_of,
    verdict,
)
from ikebana.processor.checkpoint.refusal import Reason, Refusal
from ikebana.processor.engine import task
from ikebana.processor.engine.task import Job, ShardPlace
from ikebana.processor.kafka.own_topics import UnreadExchanges
from ikebana.processor.kafka.progress_topic import closings
from ikebana.processor.planning import outputs
from support.histories import PLAN, born, commit, offset

STATE = Manifest("ours", 0, 3, [RunEntry("a run", 0, 3, "state", 1, 1, 1, 0)])
OTHER_STATE = replace(STATE, version=4)


def tick(batch: int, **changed: Any) -> Tick:
    logged = offset(batch)
    made = Tick(
        batch=batch,
        lower=batch,
        upper=batch + 1,
        offset=logged.digest(),
        plan=logged.plan,
        intervals={"current": (batch, batch + 1)},
        behind=0,
        adopted=False,
    )
    return replace(made, **changed)


def last(batch: int, **changed: Any) -> CommitRecord:
    return commit(0, batch, manifest=STATE, **changed)


@pytest.mark.parametrize(
    ("found", "asked", "state", "expected"),
    [
        pytest.param(last(4), tick(5), STATE, Compute(STATE), id="the next batch"),
        pytest.param(last(5), tick(5), OTHER_STATE, Adopt(last(5)), id="committed already"),
        pytest.param(last(5), tick(5, adopted=True), STATE, Adopt(last(5)), id="adopted whole"),
        pytest.param(
            last(4), tick(5, adopted=True), STATE, Reason.OTHER_BATCH, id="adopted and not there"
        ),
        pytest.param(last(4), tick(6), STATE, Reason.OTHER_BATCH, id="one is left out"),
        pytest.param(last(5), tick(4), STATE, Reason.OTHER_BATCH, id="one of before"),
        pytest.param(
            last(5, offset="other"), tick(5), STATE, Reason.OTHER_OFFSET, id="another offset"
        ),
        pytest.param(
            last(5, plan="other"), tick(5), STATE, Reason.OTHER_OFFSET, id="another plan"
        ),
        pytest.param(last(4), tick(5), OTHER_STATE, Reason.OTHER_STATE, id="another state"),
        pytest.param(
            last(4, epoch=0), tick(5), OTHER_STATE, Reason.OTHER_STATE, id="not rescaled since"
        ),
        pytest.param(last(4, incarnation=2), tick(5), STATE, Reason.REPLACED, id="replaced"),
        pytest.param(
            last(5, incarnation=2), tick(5), STATE, Reason.REPLACED, id="replaced, and committed"
        ),
        pytest.param(last(4, incarnation=0), tick(5), STATE, Reason.REPLACED, id="not claimed"),
        pytest.param(None, tick(5), STATE, Reason.NO_COMMIT_RECORD, id="no commit record"),
    ],
)
def test_a_task_adopts_computes_or_stops(
    found: CommitRecord | None, asked: Tick, state: Manifest, expected: object
) -> None:
    """R4, R5, R19. A replay adopts what is committed, and computes nothing twice."""
    made = verdict(Holder(PLAN, 0, 1, 0), asked, found, state)

    assert (made.reason if isinstance(made, Refusal) else made) == expected


@pytest.mark.parametrize(
    ("kept", "asked", "state", "expected"),
    [
        pytest.param(last(4), tick(5), STATE, Compute(STATE), id="the next batch"),
        pytest.param(None, tick(5), STATE, None, id="nothing is kept"),
        pytest.param(last(5), tick(5), OTHER_STATE, None, id="committed already"),
        pytest.param(last(5), tick(5), STATE, None, id="committed, and Spark does not know"),
        pytest.param(last(3), tick(5), STATE, None, id="another process ran one"),
        pytest.param(last(5), tick(4), STATE, None, id="one of before"),
        pytest.param(last(4), tick(5, adopted=True), STATE, None, id="adopted and not there"),
        pytest.param(last(4), tick(5), OTHER_STATE, None, id="another state"),
        pytest.param(last(4, incarnation=0), tick(5), STATE, None, id="of an older instance"),
        pytest.param(last(4, incarnation=2), tick(5), STATE, None, id="of a newer instance"),
        pytest.param(last(5, offset="other"), tick(5), STATE, None, id="another offset"),
        pytest.param(
            last(4, epoch=0), tick(5), OTHER_STATE, None, id="of before a rescaling, other state"
        ),
    ],
)
def test_a_process_goes_on_only_from_the_batch_right_before(
    kept: CommitRecord | None, asked: Tick, state: Manifest, expected: object
) -> None:
    """R5, R19. In every other case it fences and looks, and what it finds decides."""
    assert computable(Holder(PLAN, 0, 1, 0), asked, kept, state) == expected


def test_after_a_rescaling_the_state_is_a_new_one() -> None:
    """The last commit record's manifest was of other shards."""
    made = verdict(Holder(PLAN, 1, 1, 0), tick(5), last(4, epoch=0), OTHER_STATE)

    assert made == Compute(OTHER_STATE)


def test_a_replaced_task_stops_for_good_and_a_rolled_back_one_is_told() -> None:
    """R5. They are different errors: one says that all is well elsewhere."""
    newer = verdict(Holder(PLAN, 0, 1, 0), tick(5), last(4, incarnation=2), STATE)
    rolled_back = verdict(Holder(PLAN, 0, 1, 0), tick(5), last(7), STATE)

    assert isinstance(newer, Refusal)
    assert isinstance(rolled_back, Refusal)
    assert isinstance(newer.error(), FencedError)
    assert "(number 1)" in newer.message
    assert isinstance(rolled_back.error(), CheckpointError)


@pytest.mark.parametrize("ticks", [0, 2])
def test_a_shard_gets_one_tick(ticks: int) -> None:
    """R1. Without it, or with another batch's, what has come is not a whole batch."""
    with pytest.raises(AssertionError, match=f"{ticks} ticks"):
        task.unpacked([pack(tick(5))] * ticks)


def job(folder: Path, retained: int) -> Job:
    return Job(
        plan=PLAN,
        kafka={},
        writing_kafka={},
        checkpoint="ours",
        epoch=0,
        incarnation=1,
        first_batch=0,
        location=str(folder / "checkpoint"),
        local=str(folder / "local"),
        groups=(0, 1),
        seeds={},
        retained=retained,
        max_batch_s=60,
    )


def test_a_batch_keeps_the_files_of_as_many_batches_as_are_retained(tmp_path: Path) -> None:
    """R12. What a batch drops is deleted when no restorable manifest names it any more."""
    run = job(tmp_path, retained=3)
    shard = Folder.at(run.location, "shards", "0000")
    place = ShardPlace(shard, LocalDatabases(tmp_path / "local", "ours"))
    upserts = Upserts("changes", 0, 0, 0, [b'"k"'], [b"0"], [0])
    manifest = task.compute(run, tick(0), Manifest("ours", 0), [upserts], place).manifest
    dropped, _ = shard.write("000000000001-000000000000-delta", ".run", [b"dropped"])
    manifest = replace(manifest, dropped=[Dropped(4, dropped)])

    there = []
    for batch in (5, 6, 7):
        upserts = Upserts("changes", 0, 0, batch, [b'"k"'], [b"%d" % batch], [batch])
        manifest = task.compute(run, tick(batch), manifest, [upserts], place).manifest
        there.append((dropped in shard.names(), dropped in {d.name for d in manifest.dropped}))

    assert there == [(True, True), (True, True), (False, False)]


BATCH = [
    commit(
        shard,
        4,
        counts={"out": 2 + shard},
        times={"out": pack_times({4: 1 + shard})},
        intervals={"out": (4, 5), "errors": (3, 5)},
    )
    for shard in range(2)
]
ENDS = {output.topic: {0: 7} for output in PLAN.published}


def test_progress_is_made_of_the_commits_of_all_shards() -> None:
    """R3, R4. Counts are added up, intervals are those of the outputs."""
    found = {c.output.name: c for c in closings(PLAN, BATCH, ENDS)}

    out, errors = found["out"].record, found["errors"].record
    assert (out.checkpoint, out.pipeline, out.batch) == ("ours", "shop", 4)
    assert (out.lower, out.upper, out.count, out.ends) == (4, 5, 5, {0: 7})
    assert (errors.lower, errors.upper, errors.count) == (3, 5, 0)
    assert (out.promise, errors.promise) == ("upserts", outputs.promise(PLAN, PLAN.published[-1]))
    assert found["out"].times == {4: 3}


def test_progress_tells_the_types_of_columns() -> None:
    """As SQL names them in full, for whoever reads the topic."""
    columns = (Column("d", "date"), Column("n", "numeric(9,2)[]"), Column("j", "JSON"))
    plan = dataclasses.replace(
        PLAN, inputs=(dataclasses.replace(PLAN.inputs[0], columns=columns),)
    )

    found = {c.output.name: c.record.columns for c in closings(plan, BATCH, ENDS)}

    assert found == {"out": {"d": "DATE", "n": "DECIMAL(9,2)[]"}, "errors": {}}


def test_the_progress_of_a_new_output_begins_at_0() -> None:
    """What is before its operator's first time is closed, and empty."""
    found = {c.output.name: c.record.lower for c in closings(PLAN, BATCH, ENDS, {"out"})}

    assert found == {"out": 0, "errors": 3}


@pytest.mark.parametrize(
    ("begin", "given_up"), [(0, (0, 0)), (4, (0, 4)), (5, (5, 5))], ids=["no recovery", "4", "5"]
)
def test_the_last_batch_of_a_recovery_has_the_times_that_are_given_up(
    begin: int, given_up: tuple[int, int]
) -> None:
    """From where an output was closed up to where the new state begins, if there are any."""
    batch = [replace(each, transition=Transition(at=begin, phase=Phase.REBUILT)) for each in BATCH]
    found = {c.output.name: c.record.given_up for c in closings(PLAN, batch, ENDS)}

    assert (found["out"], found["errors"]) == given_up


@pytest.mark.parametrize(
    ("last", "ends"),
    [
        pytest.param({PLAN.outputs[0].topic: {0: 3}}, {0: 3}, id="something"),
        pytest.param({}, {0: 0}, id="nothing"),
    ],
)
def test_an_output_that_was_written_in_part_ends_where_it_was_closed(
    last: dict[str, dict[int, int]], ends: dict[int, int]
) -> None:
    """Where nothing was, no record is closed, and the partitions are named all the same."""
    batch = [
        replace(each, transition=Transition(phase=Phase.WRITE, writing=["out"])) for each in BATCH
    ]
    found = {c.output.name: c.record.ends for c in closings(PLAN, batch, ENDS, last=last)}

    assert found == {"out": ends, "errors": {0: 7}}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param([["a", "b"], ["b"]], {"b"}, id="all shards"),
        pytest.param([["a"], []], set(), id="one shard"),
    ],
)
def test_a_new_join_has_begun_when_all_shards_say_so(
    found: list[list[str]], expected: set[str]
) -> None:
    """R16. Until then its first stage stands still."""
    commits = [commit(shard, 3, replayed=Replayed(names)) for shard, names in enumerate(found)]

    assert {*reports_of(commits).replayed.joins} == expected


def test_an_edit_is_filled_when_all_shards_say_so() -> None:
    """R16. Until then a portion of the state may be missing."""
    filled, fills = Replayed(is_filled=True), Replayed(["a"])

    assert Replayed.by_all([filled, filled]).is_filled
    assert not Replayed.by_all([filled, fills]).is_filled


def test_only_the_last_batch_tells_of_new_joins() -> None:
    """R16. What is in the exchange topic since then is not read yet."""
    commits = [commit(shard, batch, replayed=Replayed(["a"])) for shard, batch in ((0, 3), (1, 2))]

    assert reports_of(commits).replayed == Replayed()


def test_shards_that_are_gone_report_of_the_last_batch_before_the_rescaling_only() -> None:
    """R16. What they have seen counts; a transition does not wait for them."""
    seen = TimesReport("in", "topic", 0, greatest=7)
    done = commit(0, 3, replayed=Replayed(["a"]), facts={"in": [5, 1]})
    gone = commit(1, 3, retired=True, seen=[seen], facts={"in": [5, 2]})
    long_gone = commit(2, 1, retired=True, facts={"in": [5, 4]})

    reports = reports_of([done, gone, long_gone])

    assert (reports.batch, reports.replayed.joins, reports.seen) == (3, ["a"], [seen])
    assert reports.facts == [{"in": [5, 1]}, {"in": [5, 2]}]


@dataclass
class Trimmed:
    """What is to be trimmed after each of some batches, if it is done each time."""

    unread: UnreadExchanges
    found: list[dict[int, int]] = field(default_factory=list)

    def after(self, *batches: dict[int, int]) -> list[dict[int, int]]:
        for at, begins in enumerate(batches):
            due = self.unread.after([commit(s, at, exchanges_from=f) for s, f in begins.items()])
            self.unread.trimmed(due)
            self.found.append(dict(due))
        return self.found


def test_records_are_trimmed_that_no_retained_batch_reads() -> None:
    """R13. Batch 2 is the third: with two retained, the first is not run again."""
    found = Trimmed(UnreadExchanges(2)).after(
        {0: 5, 1: 0}, {0: 9, 1: 1}, {0: 9, 1: 3}, {0: 10, 1: 4}
    )

    assert found == [{}, {}, {0: 5}, {0: 9, 1: 1}]


def test_what_is_trimmed_is_not_trimmed_again() -> None:
    """While nothing exchanges the brokers are not asked."""
    assert Trimmed(UnreadExchanges(1)).after({0: 5}, {0: 5}, {0: 5}) == [{}, {0: 5}, {}]


def test_a_first_commit_is_of_the_batch_before_the_first() -> None:
    """R4. A checkpoint that was rescaled goes on from its seeds."""
    seeded = born(first_batch=6, seeds={0: STATE}, epoch=1)

    first = first_commit(seeded, PLAN, 0)
    assert (first.batch, first.epoch, first.manifest) == (5, 1, STATE)
    assert first_commit(seeded, PLAN, 1).manifest == Manifest("ours", 1)
