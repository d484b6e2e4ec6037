"""Reclocking: batches minted step by step read every offset once, each at its time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import Input, Output, Plan, Upsert
from ikebana.processor.base.offsets import Positions
from ikebana.processor.planning.plan import TimeDomain
from ikebana.processor.topics.batch_selection import MintingState
from ikebana.processor.topics.reclock import BatchTrigger, mint
from ikebana.processor.topics.slices import slices
from ikebana.processor.topics.source_offset import SourceOffset
from support.strategies import unhurried


class Read(msgspec.Struct, frozen=True):
    """One offset that a batch reads."""

    input: str
    topic: str
    partition: int
    offset: int
    order: int
    time: int


@dataclass
class Log:
    """What was minted for a plan, and what a reader made of it."""

    plan: Plan
    minted: list[SourceOffset]
    begins: Positions
    ends: Positions = field(default_factory=dict)

    @property
    def last(self) -> SourceOffset:
        """The last minted offset."""
        return self.minted[-1]

    def lag(self) -> int:
        """How many offsets are left to read."""
        return sum(
            end - self.last.positions.get(topic, {}).get(p, self.begins[topic][p])
            for topic, by in self.ends.items()
            for p, end in by.items()
        )

    def mint(self, limit: int | None, now_ms: int) -> SourceOffset:
        """Mint the next batch; in the offset domain there may be none."""
        look = MintingState(self.ends, self.begins)
        new = mint(self.plan, self.last, look, BatchTrigger(now_ms, limit, heartbeat=True))
        if new.batch != self.last.batch:
            self.minted.append(new)
        return new

    def reads(self) -> list[list[Read]]:
        """What each batch reads."""
        return [
            read(self.plan, start, end)
            for start, end in zip(self.minted, self.minted[1:], strict=False)
        ]


def read(plan: Plan, start: SourceOffset, end: SourceOffset) -> list[Read]:
    """What a batch reads, record by record, in the order of its slices."""
    return [
        Read(
            piece.input,
            piece.place.topic,
            piece.place.partition,
            offset,
            piece.place.order,
            piece.place.base + (offset - piece.place.start) * piece.place.each,
        )
        for piece in slices(plan, start, end)
        for offset in range(piece.place.start, piece.end)
    ]


def planned(time: TimeDomain, *topics: tuple[str, ...]) -> Plan:
    """One input for each tuple of topics."""
    names = [f"input{at}" for at in range(len(topics))]
    return Plan(
        "p",
        inputs=tuple(Input(name, own) for name, own in zip(names, topics, strict=True)),
        operators=(Upsert("current", names[0]),),
        outputs=(Output("out", "current", "out"),),
        time=time,
    )


def fresh(plan: Plan) -> Log:
    """A log with nothing in it and no partition known."""
    topics = [topic for source in plan.inputs for topic in source.topics]
    start = SourceOffset(-1, 0, 0, {}, plan.fingerprint(), topic_ids={"a": "id of a"})
    return Log(plan, [start], {topic: {} for topic in topics}, {topic: {} for topic in topics})


DOMAINS: tuple[TimeDomain, ...] = ("ingest", "offset")
# The topics of each input.
TOPICS: tuple[list[tuple[str, ...]], ...] = (
    [("a",)],
    [("b", "a")],
    [("b", "a"), ("d", "c")],
    [("z",), ("a",)],
)
limits = st.none() | st.integers(1, 30)


@st.composite
def logs(draw: st.DrawFn, domains: Sequence[TimeDomain] = DOMAINS) -> Log:
    """Topics that grow and get partitions, minted with limits by a clock that strays."""
    found = fresh(planned(draw(st.sampled_from(domains)), *draw(st.sampled_from(TOPICS))))
    for _ in range(draw(st.integers(1, 6))):
        for topic in found.ends:
            if draw(st.integers(0, 2)) == 0 or not found.ends[topic]:
                partition, begin = len(found.ends[topic]), draw(st.integers(0, 5))
                found.begins[topic][partition] = found.ends[topic][partition] = begin
            for partition in found.ends[topic]:
                found.ends[topic][partition] += draw(st.integers(0, 9))
        found.mint(draw(limits), draw(st.integers(0, 40)))
    return found


@unhurried
@given(logs())
def test_intervals_are_contiguous_and_batches_are_numbered_through(log: Log) -> None:
    """The lower of each batch is the upper of the one before, and no batch is without time."""
    for before, after in zip(log.minted, log.minted[1:], strict=False):
        assert after.batch == before.batch + 1
        assert after.lower == before.upper < after.upper
        assert after.frontiers == {"current": after.upper}
        assert after.topic_ids == before.topic_ids
        assert after.plan == log.plan.fingerprint()


@unhurried
@given(logs())
def test_every_offset_is_read_once_and_in_order(log: Log) -> None:
    """Each partition is read from its beginning to its position, without gap or repeat."""
    seen: dict[tuple[str, int], list[int]] = {}
    for one in (record for batch in log.reads() for record in batch):
        seen.setdefault((one.topic, one.partition), []).append(one.offset)
    expected = {
        (topic, partition): list(range(log.begins[topic][partition], position))
        for topic, by in log.last.positions.items()
        for partition, position in by.items()
    }

    assert seen == {place: offsets for place, offsets in expected.items() if offsets}


@unhurried
@given(logs(), st.integers(0, 40))
def test_without_a_limit_a_batch_reads_up_to_the_ends(log: Log, now_ms: int) -> None:
    """What the limit has left behind comes later; nothing is left for good."""
    log.mint(None, now_ms)

    assert log.lag() == 0
    assert log.last.behind == 0


@unhurried
@given(logs(), st.integers(1, 30), st.integers(0, 40))
def test_a_limited_batch_reads_about_that_much_and_always_something(
    log: Log, limit: int, now_ms: int
) -> None:
    """Beyond the limit there is at most one offset for each partition that lags."""
    lag, before = log.lag(), log.last
    end = log.mint(limit, now_ms)
    count = len(read(log.plan, before, end)) if end.batch != before.batch else 0
    partitions = sum(len(by) for by in log.ends.values())

    assert min(lag, limit) <= count <= min(lag, limit + partitions)
    assert end.behind == lag - count


@unhurried
@given(logs(["ingest"]))
def test_in_the_ingest_domain_a_batch_has_one_time_the_last_of_its_interval(log: Log) -> None:
    """The clock may stand still or go back; time does neither."""
    for end, batch in zip(log.minted[1:], log.reads(), strict=True):
        assert {one.time for one in batch} <= {end.upper - 1}
        assert end.lower <= end.upper - 1


@unhurried
@given(logs(["offset"]))
def test_in_the_offset_domain_each_record_has_a_time_of_its_own(log: Log) -> None:
    """A time is the lower plus the rank by input, topic, partition and offset."""
    topics = [topic for source in log.plan.inputs for topic in source.topics]
    for end, batch in zip(log.minted[1:], log.reads(), strict=True):
        ranked = sorted(batch, key=lambda r: (topics.index(r.topic), r.partition, r.offset))

        assert [one.time for one in ranked] == list(range(end.lower, end.upper))
        assert batch == ranked


@unhurried
@given(logs())
def test_topics_are_ordered_as_the_plan_lists_them(log: Log) -> None:
    """Each input has the order of its own topics, whatever other inputs there are."""
    ranks = {t: at for source in log.plan.inputs for at, t in enumerate(source.topics)}

    assert all(one.order == ranks[one.topic] for batch in log.reads() for one in batch)


@unhurried
@given(logs())
def test_a_replay_from_the_offset_log_reads_the_same(log: Log) -> None:
    """Two logged offsets are all that a batch depends on."""
    logged = [msgspec.json.encode(offset.to_json()) for offset in log.minted]
    again = [SourceOffset.from_json(msgspec.json.decode(offset)) for offset in logged]

    assert again == log.minted
    assert [offset.digest() for offset in again] == [offset.digest() for offset in log.minted]
    for at in range(1, len(again)):
        pieces = list(slices(log.plan, again[at - 1], again[at]))
        assert pieces == list(slices(log.plan, log.minted[at - 1], log.minted[at]))


@unhurried
@given(logs(), st.integers(0, 40))
def test_a_heartbeat_moves_time_in_the_ingest_domain_only(log: Log, now_ms: int) -> None:
    """With nothing to read: an empty batch there, the last one again in the offset domain."""
    log.mint(None, now_ms)
    last, end = log.last, log.mint(None, now_ms)

    if log.plan.time == "offset":
        assert end is last
    else:
        assert end.upper == max(now_ms, last.upper) + 1
        assert read(log.plan, last, end) == []


def test_a_new_partition_starts_where_it_begins() -> None:
    """What was deleted from it before it was first seen is not asked for."""
    log = fresh(planned("offset", ("a",)))
    log.begins, log.ends = {"a": {0: 3}}, {"a": {0: 5}}
    first = log.mint(None, 0)
    log.begins, log.ends = {"a": {0: 4, 1: 7}}, {"a": {0: 5, 1: 8}}
    second = log.mint(None, 0)

    assert (first.begins, second.begins) == ({"a": {0: 3}}, {"a": {1: 7}})
    assert [[(r.partition, r.offset, r.time) for r in batch] for batch in log.reads()] == [
        [(0, 3, 0), (0, 4, 1)],
        [(1, 7, 2)],
    ]


def test_a_partition_that_is_not_named_stays_where_it_was() -> None:
    """Ends that leave a partition out, once, do not have it read again from its beginning."""
    log = fresh(planned("ingest", ("a", "b")))
    log.begins = {"a": {0: 0, 1: 0}, "b": {0: 0}}
    log.ends = {"a": {0: 2, 1: 2}, "b": {0: 1}}
    log.mint(None, 10)
    log.ends = {"a": {0: 3}}
    log.mint(None, 20)
    log.ends = {"a": {0: 3, 1: 3}, "b": {0: 1}}
    log.mint(None, 30)

    assert [[(r.topic, r.partition, r.offset) for r in batch] for batch in log.reads()[1:]] == [
        [("a", 0, 2)],
        [("a", 1, 2)],
    ]


@pytest.mark.parametrize(
    ("now_ms", "upper"),
    [
        pytest.param(100, 101, id="the clock has gone on"),
        pytest.param(50, 51, id="it stands at the frontier"),
        pytest.param(20, 51, id="it has gone back"),
    ],
)
def test_the_upper_is_one_millisecond_after_the_clock_or_the_last_upper(
    now_ms: int, upper: int
) -> None:
    """A batch is at least one millisecond long."""
    plan = planned("ingest", ("a",))
    last = SourceOffset(4, 40, 50, {"a": {0: 1}}, plan.fingerprint())

    look = MintingState({"a": {0: 1}}, {})

    assert mint(plan, last, look, BatchTrigger(now_ms, heartbeat=True)).upper == upper


OFFSET = SourceOffset(
    3, 5, 9, {"a": {0: 1, 12: 2}}, "plan", {"op": 9}, {"a": {12: 1}}, {"a": "id"}, 4
)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(lambda o: msgspec.structs.replace(o, batch=4), id="batch"),
        pytest.param(lambda o: msgspec.structs.replace(o, lower=6), id="lower"),
        pytest.param(lambda o: msgspec.structs.replace(o, upper=10), id="upper"),
        pytest.param(
            lambda o: msgspec.structs.replace(o, positions={"a": {0: 1}}), id="positions"
        ),
        pytest.param(lambda o: msgspec.structs.replace(o, plan="nalp"), id="plan"),
        pytest.param(lambda o: msgspec.structs.replace(o, frontiers={"op": 8}), id="frontiers"),
        pytest.param(lambda o: msgspec.structs.replace(o, begins={}), id="begins"),
        pytest.param(lambda o: msgspec.structs.replace(o, topic_ids={"a": "di"}), id="topic ids"),
        pytest.param(lambda o: msgspec.structs.replace(o, behind=0), id="behind"),
    ],
)
def test_the_digest_differs_when_anything_differs(
    changed: Callable[[SourceOffset], SourceOffset],
) -> None:
    """A commit record with this digest is of this batch and no other."""
    other = changed(OFFSET)

    assert other.digest() != OFFSET.digest()
    assert SourceOffset.from_json(other.to_json()).digest() == other.digest()


def test_the_digest_does_not_depend_on_the_order_of_partitions() -> None:
    """Brokers name partitions in any order."""
    turned = msgspec.structs.replace(OFFSET, positions={"a": {12: 2, 0: 1}})

    assert turned.digest() == OFFSET.digest()


def test_the_digest_of_a_batch_is_the_same_in_every_version() -> None:
    """Commit records hold it: if this changes, running checkpoints are refused."""
    offset = SourceOffset(3, 1, 2, {"a": {0: 4}}, "p", {"x": 2}, {"a": {0: 1}}, {"a": "i"}, 5)

    assert offset.digest() == "7cff73e0689468e0"
