"""A CDCv2 input batch by batch, over shards, against the reader that sees all facts at once."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.codecs.cdcv2 import Cdcv2Message, Fact, Progress, UpdateFacts
from ikebana.codecs.diff import add_times, pack_times
from ikebana.processor.base.diff_reader import Cdcv2Reader, ContradictionError
from ikebana.processor.base.rows import NO_KEY, KeyedUpdate
from ikebana.processor.base.sharding import shard_of
from ikebana.processor.kernels import facts
from ikebana.processor.topics.input_times import Coverage, add_statements, packed, unpacked
from support.cdcv2_facts import contradictory, facts_of, histories, statements_of, tellings
from support.strategies import cuts, unhurried


class Batch(NamedTuple):
    """What a batch reads, and over how many shards it runs."""

    messages: Sequence[Cdcv2Message]
    shards: int


@st.composite
def batches(draw: st.DrawFn, messages: Sequence[Cdcv2Message]) -> list[Batch]:
    """Messages cut into batches, with restarts in between that may change the shards."""
    pieces = [piece for cut in draw(cuts(messages)) for piece in draw(cuts(cut))]
    return [Batch(piece, draw(st.integers(1, 3))) for piece in pieces]


class Input:
    """The shards and the driver of a pipeline, which know each other by JSON only."""

    def __init__(self) -> None:
        self.logged = logged(Coverage())
        self.interval = Interval(0, 0)
        self.released: list[KeyedUpdate] = []
        self.repeated = 0
        self.stores = [MemoryStore()]

    @property
    def coverage(self) -> Coverage:
        """As a driver that has just started reads it."""
        return msgspec.convert(json.loads(self.logged), Coverage, strict=False)

    def run(self, batch: Batch) -> None:
        """Run one batch; what it saw moves the frontier of the next one."""
        coverage = self.coverage
        self.stores = rescaled(self.stores, batch.shards)
        self.interval = Interval(self.interval.upper, coverage.frontier)
        statements, found = list[Progress](), dict[int, int]()
        for shard, store in enumerate(self.stores):
            arriving = [KeyedUpdate(*fact) for fact in facts_of(batch.messages)]
            own = [u for u in arriving if home(u.key, u.value, batch.shards) == shard]
            step = facts.step(store, own, self.interval)
            assert all(update.time in self.interval for update in step.updates)
            self.released += step.updates
            self.repeated += step.repeated
            told = [s for s in statements_of(batch.messages) if s.lower % batch.shards == shard]
            commit = json.dumps([packed(told), pack_times(step.counts)])
            packed_statements, times = json.loads(commit)
            statements += unpacked(packed_statements)
            add_times(found, times)
        self.logged = logged(add_statements(coverage, statements, found))


def logged(coverage: Coverage) -> str:
    """As the offset log has it."""
    return json.dumps(msgspec.to_builtins(coverage, str_keys=True))


def home(key: bytes | None, value: bytes, shards: int) -> int:
    """The shard of a fact."""
    return shard_of(NO_KEY if key is None else key, shards)


def rescaled(stores: Sequence[MemoryStore], shards: int) -> list[MemoryStore]:
    """Every entry in the shard that its repetitions come to."""
    found = [MemoryStore() for _ in range(shards)]
    for store in stores:
        for entry in store.scan(b""):
            for shard in facts.PART.layout.divided(*entry, partial(shard_of, shards=shards)):
                found[shard].put(*entry)
    return found


def published(reader: Cdcv2Reader) -> list[Fact]:
    """All that the reader gives away, as facts."""
    return [update for step in reader.take() for update in step.updates]


def in_order(updates: Iterable[Fact]) -> list[Fact]:
    """By time, key and value; what is there twice stays there twice."""
    return sorted(
        updates,
        key=lambda fact: (fact[2], fact[0] is not None, fact[0] or b"", fact[1], fact[3]),
    )


@unhurried
@given(st.data(), histories())
def test_what_is_released_is_the_collection(data: st.DataObject, history: list[Fact]) -> None:
    """Each update once, whatever the cut, the shards and the repetitions; nothing is left."""
    messages = data.draw(tellings(history))
    input_ = Input()
    for batch in data.draw(batches(messages)):
        input_.run(batch)
    input_.run(Batch([], 2))

    assert in_order(input_.released) == in_order(history)
    assert input_.repeated == sum(1 for _ in facts_of(messages)) - len(history)
    assert input_.coverage == Coverage(max(one.upper for one in statements_of(messages)))
    assert [entry for store in input_.stores for entry in store.scan(b"")] == []


def lessened(messages: Sequence[Cdcv2Message]) -> st.SearchStrategy[list[Cdcv2Message]]:
    """Without some of the messages: gaps, and times of which something is missing."""
    gone = st.sets(st.integers(0, len(messages) - 1), max_size=3)
    return gone.map(lambda places: [m for at, m in enumerate(messages) if at not in places])


@unhurried
@given(st.data(), histories())
def test_the_frontier_is_that_of_the_reader_before_the_batch(
    data: st.DataObject, history: list[Fact]
) -> None:
    """R9. Whatever is missing, each batch releases what the reader has published before it."""
    there = data.draw(tellings(history).flatmap(lessened))
    reader, input_ = Cdcv2Reader(), Input()
    before = list[Fact]()
    for batch in [*data.draw(batches(there)), Batch([], 1)]:
        lower, upper = input_.interval.upper, reader.upper
        input_.run(batch)
        assert input_.interval == Interval(lower, upper)
        assert in_order(input_.released) == in_order(before)
        for message in batch.messages:
            reader.feed(message)
        before += published(reader)
        assert input_.coverage.frontier == reader.upper
        times = [statement.lower for statement in unpacked(input_.coverage.stated)]
        assert all(time >= reader.upper for time in times)

    assert input_.interval.upper == reader.upper
    assert in_order(input_.released) == in_order(before)


@st.composite
def changed(draw: st.DrawFn, messages: Sequence[Cdcv2Message]) -> list[Cdcv2Message]:
    """Messages and one more, which says something else than one of them does."""
    other: Cdcv2Message
    match draw(st.sampled_from(messages)):
        case UpdateFacts([(key, value, time, diff), *_]):
            data = st.sampled_from([(key, value, time, diff + 3), (key, b"new", time, diff)])
            other = UpdateFacts([draw(data)])
        case Progress(lower, upper, counts) if lower < upper:
            time = draw(st.integers(lower, min(upper - 1, lower + 9)))
            others = {other: count for other, count in counts.items() if other != time}
            count = draw(st.sampled_from([0, 1, 2, 9]))
            other = Progress(lower, upper, {**others, time: count} if count else others)
        case same:
            other = same
    at = draw(st.integers(0, len(messages)))
    return [*messages[:at], other, *messages[at:]]


@unhurried
@given(st.data(), histories())
def test_facts_that_cannot_all_be_true_are_an_error_as_long_as_both_are_known(
    data: st.DataObject, history: list[Fact]
) -> None:
    """No later than the reader finds out; never without reason; else both publish the same."""
    messages = data.draw(tellings(history).flatmap(changed))
    reader, input_ = Cdcv2Reader(), Input()
    before = list[Fact]()
    for batch in [*data.draw(batches(messages)), Batch([], 1)]:
        try:
            input_.run(batch)
        except ContradictionError:
            assert contradictory(messages)
            return
        for message in batch.messages:
            reader.feed(message)
        before += published(reader)
        assert input_.coverage.frontier == reader.upper

    assert in_order(input_.released) == in_order(before)


@unhurried
@given(st.data(), histories())
def test_in_one_batch_every_contradiction_is_an_error(
    data: st.DataObject, history: list[Fact]
) -> None:
    """All is known then, also beyond a gap; and what is none is no error."""
    messages = data.draw(tellings(history).flatmap(changed).flatmap(lessened))
    raised = False
    try:
        Input().run(Batch(messages, data.draw(st.integers(1, 3))))
    except ContradictionError:
        raised = True

    assert raised == contradictory(messages)


@unhurried
@given(st.data(), histories())
def test_what_is_known_does_not_depend_on_the_cut(
    data: st.DataObject, history: list[Fact]
) -> None:
    """Bit by bit it comes to the same coverage, in the same words, as all at once."""
    some = data.draw(tellings(history).flatmap(lessened))
    at_once = add_statements(
        Coverage(), statements_of(some), Counter(fact[2] for fact in set(facts_of(some)))
    )
    input_ = Input()
    for batch in data.draw(batches(some)):
        input_.run(batch)

    assert input_.coverage == at_once
