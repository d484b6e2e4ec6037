"""The steps of a take-over on brokers in memory, with an older instance in between.

The brokers here do what Kafka's transactions do for one id: whoever fences it last can commit,
and nobody else; what is committed is read.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from ikebana.errors import CheckpointError, FencedError
from ikebana.processor.base.offsets import TopicInfo
from ikebana.processor.checkpoint.checkpoint import CheckpointMetadata, Logged
from ikebana.processor.checkpoint.commits import CommitRecord, Lease, first_commit
from ikebana.processor.checkpoint.refusal import Reason, Refusal
from ikebana.processor.checkpoint.takeover import (
    Claim,
    OutputState,
    TakeoverState,
    claim,
    last_digest,
    take_over,
)
from ikebana.processor.planning.plan import Output
from support.histories import PLAN, SHARDS, born, commit, lease, offset, shown, topics


@dataclass
class Shard:
    """A partition of commit records: who holds its transactional id, and what is committed."""

    fences: int = 0
    commits: list[CommitRecord] = field(default_factory=list)


@dataclass
class InMemory:
    """Brokers that remember what they were asked, and let others in before an answer."""

    existing: dict[str, TopicInfo]
    leases: list[Lease]
    shards: dict[int, Shard]
    before: dict[str, Callable[[], None]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def _asks(self, what: str) -> None:
        # Once: what others do is over then.
        if act := self.before.pop(what, None):
            act()
        self.asked.append(what)

    def hold_lease(self) -> None:
        self._asks("hold lease")

    def topics(self, names: Iterable[str]) -> Mapping[str, TopicInfo]:
        self._asks("topics")
        return {name: self.existing[name] for name in names if name in self.existing}

    def last_lease(self) -> Lease | None:
        self._asks("last lease")
        return self.leases[-1] if self.leases else None

    def fence(self, shard: int) -> Callable[[CommitRecord], None]:
        self._asks(f"fence {shard}")
        return self.fenced(shard)

    def fenced(self, shard: int) -> Callable[[CommitRecord], None]:
        found = self.shards.setdefault(shard, Shard())
        found.fences += 1
        fence = found.fences

        def commit(record: CommitRecord) -> None:
            # Until somebody else fences it.
            if found.fences != fence:
                raise FencedError("fenced")
            found.commits.append(record)

        return commit

    def last_commit(self, shard: int) -> CommitRecord | None:
        self._asks(f"last commit {shard}")
        found = self.shards.get(shard, Shard()).commits
        return found[-1] if found else None

    def shown(self, output: Output, existing: Mapping[str, TopicInfo]) -> OutputState:
        self._asks(f"shown {output.name}")
        return shown(1, output.topic) if output.progress_topic in existing else OutputState()

    def make_topics(self, existing: Mapping[str, TopicInfo]) -> None:
        self._asks("make topics")
        self.existing = topics()

    def commit_lease(self, lease: Lease) -> None:
        self._asks("commit lease")
        self.leases.append(lease)


def ran(batch: int = 1, shards: int = SHARDS) -> InMemory:
    """What instance 1 has left that has committed batches up to this in all shards."""
    committed = {n: Shard(1, [commit(n, at) for at in range(batch + 1)]) for n in range(shards)}
    return InMemory(topics(), [lease()], committed)


def taken(
    brokers: InMemory,
    metadata: CheckpointMetadata | None = None,
    look: Callable[[], Logged] = lambda: Logged(offset(1), 1, 1),
    accepted: Callable[[], None] = lambda: None,
    own: int = 0,
) -> TakeoverState:
    return take_over(PLAN, metadata or born(), brokers, look, accepted, "a test", former=own)


def test_a_restarted_run_fences_nobody_who_has_taken_over_since() -> None:
    """R20. Its brokers were away, or it stood still, while a newer instance began."""
    brokers = ran()
    brokers.leases.append(replace(lease(), incarnation=2, holder="another machine"))

    with pytest.raises(FencedError, match="instance 2 has taken over its checkpoint"):
        taken(brokers, own=1)
    assert brokers.asked == ["topics", "last lease"]


@pytest.mark.parametrize(
    "last", [lease(), replace(lease(), incarnation=2, holder="a test")], ids=["own", "later"]
)
def test_a_restarted_run_goes_on_after_its_own_starts(last: Lease) -> None:
    """A start that failed when it had taken over has left a lease of the same run."""
    brokers = ran()
    brokers.leases.append(last)

    assert taken(brokers, own=1).lease.incarnation == last.incarnation + 1


def test_a_first_start_makes_everything_and_is_instance_1() -> None:
    """R4. Nothing is read that cannot be there; every shard has a commit record of nothing."""
    brokers = InMemory({}, [], {})
    made = taken(brokers, look=lambda: Logged(None, -1, -1))

    assert made.lease.incarnation == 1
    assert made.continuation.new == {output.name for output in PLAN.published}
    assert {n: s.commits for n, s in brokers.shards.items()} == {
        n: [replace(first_commit(born(), PLAN, n), incarnation=1)] for n in range(SHARDS)
    }
    assert brokers.leases == [lease()]
    assert "last lease" not in brokers.asked


def test_the_lease_is_held_before_anything_is_asked() -> None:
    """R20. An older driver can publish nothing once we have begun to look."""
    brokers = ran()
    taken(brokers)

    assert brokers.asked[0] == "hold lease"


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_shard_is_fenced_before_its_commit_is_read(shard: int) -> None:
    """R5. At the first look and at the claim: what comes after has to fence us."""
    brokers = ran()
    taken(brokers)

    steps = [step for step in brokers.asked if step.endswith(f" {shard}")]
    assert steps == [f"fence {shard}", f"last commit {shard}"] * 2


def test_what_was_committed_right_before_our_fence_is_seen() -> None:
    """R5. A commit record that is read before the fence may be old by then."""
    brokers = ran(batch=0)

    def old_commits(shard: int) -> None:
        older = brokers.fenced(shard)
        older(commit(shard, 1))

    looks = Logged(offset(1), 1, 0)
    brokers.before = {f"fence {n}": functools.partial(old_commits, n) for n in range(SHARDS)}
    made = taken(brokers, look=lambda: looks)

    assert made.adopted == offset(1).digest()
    assert [s.commits[-1].batch for s in brokers.shards.values()] == [1, 1]


def test_a_commit_committed_between_look_and_claim_is_not_taken_back() -> None:
    """R5. The older instance fences us once more and commits a batch; it is adopted, not lost."""
    brokers = ran(batch=0)

    def old_commits() -> None:
        for shard in range(SHARDS):
            brokers.fenced(shard)(commit(shard, 1))

    made = taken(brokers, look=lambda: Logged(offset(1), 1, 0), accepted=old_commits)

    assert made.adopted == offset(1).digest()
    assert [s.commits[-1] for s in brokers.shards.values()] == [
        commit(shard, 1, incarnation=2) for shard in range(SHARDS)
    ]


def test_a_task_that_fences_us_while_we_claim_is_fenced_again() -> None:
    """R5. It read the commit record before it had our incarnation, and commits one batch more."""
    brokers = ran(batch=0)

    def begins() -> None:
        # Between our fence and our commit; it commits after our commit has failed.
        older = brokers.fenced(0)
        brokers.before["fence 0"] = lambda: older(commit(0, 1))

    def accepted() -> None:
        brokers.before["last commit 0"] = begins

    taken(brokers, look=lambda: Logged(offset(1), 1, 0), accepted=accepted)

    assert brokers.shards[0].commits[-1] == commit(0, 1, incarnation=2)


def test_an_even_newer_instance_is_left_alone() -> None:
    """R5. The older one of two stops, and it is us."""
    brokers = ran()

    def newer() -> None:
        brokers.fenced(0)(commit(0, 1, incarnation=7))

    with pytest.raises(FencedError, match=r"instance 7 has taken over shard \d+ of checkpoint"):
        taken(brokers, accepted=newer)
    assert brokers.shards[0].commits[-1].incarnation == 7


def test_the_log_is_read_after_the_commits() -> None:
    """An older instance logs a batch before it commits it: no commit record is beyond this log."""
    brokers = ran()
    asked: list[str] = []

    def look() -> Logged:
        asked.extend(brokers.asked)
        return Logged(offset(1), 1, 1)

    taken(brokers, look=look)

    assert {f"last commit {n}" for n in range(SHARDS)} <= {*asked}
    assert "shown out" in asked


@pytest.mark.parametrize(
    ("logged", "leases"),
    [
        pytest.param(Logged(offset(0), 0, 0), [lease()], id="of the history"),
        pytest.param(Logged(offset(1), 1, 1), [lease(checkpoint="other")], id="of the lease"),
    ],
)
def test_a_refusal_writes_nothing(logged: Logged, leases: list[Lease]) -> None:
    """R4. Of a refused start there is no trace but the fences."""
    brokers = ran()
    brokers.leases = leases

    with pytest.raises(CheckpointError):
        taken(brokers, look=lambda: logged, accepted=pytest.fail)

    assert len(brokers.leases) == 1
    assert {s.commits[-1].incarnation for s in brokers.shards.values()} == {1}
    assert "make topics" not in brokers.asked


def test_shards_that_a_rescaling_took_away_are_told() -> None:
    """R4. Instances of before find in their commit records that they have been replaced."""
    brokers = ran(shards=3)
    brokers.existing[PLAN.commits_topic] = TopicInfo("m", 4)
    metadata = born(epoch=1, first_batch=2, start=offset(1))
    made = taken(brokers, metadata, look=lambda: Logged(None, 1, 1))

    assert [s.commits[-1].incarnation for s in brokers.shards.values()] == [2, 2, 2]
    assert [s.commits[-1].retired for s in brokers.shards.values()] == [False, False, True]
    assert made.adopted == offset(1).digest()


FIRST = commit(0, 1, epoch=1, incarnation=0, seen=[])


@pytest.mark.parametrize(
    ("first", "found", "expected"),
    [
        pytest.param(FIRST, None, replace(FIRST, incarnation=3), id="never ran"),
        pytest.param(
            FIRST,
            commit(0, 4, epoch=1),
            commit(0, 4, epoch=1, incarnation=3),
            id="goes on",
        ),
        pytest.param(
            FIRST,
            commit(0, 1, epoch=0, facts={"in": [5, 1]}),
            replace(FIRST, incarnation=3, facts={"in": [5, 1]}),
            id="rescaled after this batch",
        ),
        pytest.param(
            FIRST, commit(0, 2, epoch=0), Reason.RAN_AFTER_RESCALING, id="ran after a rescaling"
        ),
        pytest.param(
            FIRST,
            commit(0, 0, epoch=0, retired=True),
            replace(FIRST, incarnation=3),
            id="was gone before",
        ),
        pytest.param(FIRST, commit(0, 1, incarnation=4), Reason.REPLACED, id="a newer instance"),
        pytest.param(
            FIRST,
            commit(0, 1, epoch=1, incarnation=3),
            commit(0, 1, epoch=1, incarnation=3),
            id="claimed already",
        ),
    ],
)
def test_how_a_shard_is_claimed(
    first: CommitRecord, found: CommitRecord | None, expected: CommitRecord | Reason
) -> None:
    """R5. By instance 3."""
    made = claim(first, found, 3)

    assert (made.reason if isinstance(made, Refusal) else made.commit) == expected
    if isinstance(made, Claim):
        assert made.offset == made.commit.offset


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        pytest.param(["a", "a"], "a", id="all"),
        pytest.param(["a", "b"], None, id="one has not"),
        pytest.param(["b", "a"], None, id="the first has not"),
    ],
)
def test_a_batch_is_adopted_whole_if_all_shards_have_it(
    offsets: list[str], expected: str | None
) -> None:
    """R19. What is adopted whole is not even read."""
    assert last_digest(offsets) == expected
