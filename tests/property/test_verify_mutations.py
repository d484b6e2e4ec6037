"""A stream that keeps its promise is ok; whatever is done to one is found."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ikebana.codecs.diff import ProgressRecord, Promise
from ikebana.processor.base.diff_reader import (
    PlacedUpdate,
    portions,
    split,
    split_history,
    without_repeats,
)
from ikebana.processor.base.verify import Summary, Verifier
from support.strategies import few
from support.sums import summed

PARTITIONS = 3


@dataclass(frozen=True)
class Batch:
    """What a batch says of itself, and the updates (key, value, time, diff) that it has."""

    number: int
    lower: int
    upper: int
    count: int
    updates: tuple[tuple[bytes, bytes, int, int], ...]


@dataclass(frozen=True)
class Topic:
    """A diff topic as it lies on the brokers."""

    progress: list[ProgressRecord]
    records: list[PlacedUpdate]


@st.composite
def batches(draw: st.DrawFn, promise: Promise, least: int = 1) -> list[Batch]:
    """Good batches: consolidated updates of values that change over time."""
    found = []
    upper = 0
    held: Counter[tuple[bytes, bytes]] = Counter()
    data = st.tuples(
        st.sampled_from([b"a", b"b", b"c", b"d"]), st.sampled_from([b"x", b"y", b"z"])
    )
    for number in range(draw(st.integers(least, 5))):
        lower, upper = upper, upper + draw(st.integers(1, 4))
        updates: list[tuple[bytes, bytes, int, int]] = []
        for time in range(lower, upper):
            if promise == "upserts":
                wanted = dict.fromkeys(dict(draw(st.lists(data, max_size=4))).items(), 1)
                keys = {key for key, _ in wanted} | draw(st.sets(st.sampled_from([b"a", b"b"])))
                after = Counter({d: n for d, n in held.items() if d[0] not in keys})
                after.update(wanted)
            else:
                counts = st.integers(0 if promise == "collection" else -2, 3)
                after = Counter({**held, **draw(st.dictionaries(data, counts, max_size=4))})
            for datum in sorted({*held, *after}):
                if diff := after[datum] - held[datum]:
                    updates.append((*datum, time, diff))
            held = after
        found.append(
            Batch(number, lower, upper, len(updates), tuple(draw(st.permutations(updates))))
        )
    return found


def laid_out(stream: list[Batch], promise: Promise) -> Topic:
    """Give every update an offset; transaction markers take one after each batch."""
    ends = dict.fromkeys(range(PARTITIONS), 0)
    progress, records = [], []
    for batch in stream:
        for key, value, time, diff in batch.updates:
            partition = key[0] % PARTITIONS
            records.append(PlacedUpdate(key, value, time, diff, partition, ends[partition]))
            ends[partition] += 1
        ends = {partition: end + 1 for partition, end in ends.items()}
        said = (batch.number, batch.lower, batch.upper, batch.count)
        progress.append(ProgressRecord("c", "p", "t", *said, dict(ends), promise))
    return Topic(progress, records)


def verified(topic: Topic, most: int = 1_000_000, *, complete: bool = True) -> Verifier:
    """Read a topic in portions of `most` offsets, and verify it."""
    verifier = Verifier("t", complete=complete)
    middle = not complete
    cut = portions(without_repeats(topic.progress, None), {}, most, first_alone=middle)
    for portion in cut:
        ends = portion.ends()
        found = [
            record
            for record in topic.records
            if portion.starts.get(record.partition, 0) <= record.offset < ends[record.partition]
        ]
        if middle:
            history, found = split_history(portion.batches[0], found)
            verifier.feed(history)
            middle = False
        found.sort(key=attrgetter("partition", "offset"))
        for batch in split(portion, [[update] for update in found]):
            verifier.feed(batch)
    return verifier


Random = random.Random
Mutation = Callable[[list[Batch], Random], list[Batch]]


def _some(stream: list[Batch], rng: Random) -> tuple[int, int]:
    """A batch that has updates, and one of them."""
    full = [i for i, batch in enumerate(stream) if batch.updates]
    assume(full)
    chosen = rng.choice(full)
    return chosen, rng.randrange(len(stream[chosen].updates))


def _with(
    stream: list[Batch], i: int, updates: list[tuple[bytes, bytes, int, int]]
) -> list[Batch]:
    return [*stream[:i], replace(stream[i], updates=tuple(updates)), *stream[i + 1 :]]


def drop(stream: list[Batch], rng: Random) -> list[Batch]:
    """Lose an update."""
    i, j = _some(stream, rng)
    return _with(stream, i, [u for k, u in enumerate(stream[i].updates) if k != j])


def double(stream: list[Batch], rng: Random) -> list[Batch]:
    """Write an update twice."""
    i, j = _some(stream, rng)
    return _with(stream, i, [*stream[i].updates, stream[i].updates[j]])


def change_diff(stream: list[Batch], rng: Random) -> list[Batch]:
    """Write another diff, which a collection without a bound could have meant."""
    i, j = _some(stream, rng)
    updates = list(stream[i].updates)
    key, value, time, diff = updates[j]
    updates[j] = key, value, time, rng.choice([d for d in (-2, -1, 1, 2) if d != diff])
    return _with(stream, i, updates)


def change_time(stream: list[Batch], rng: Random) -> list[Batch]:
    """Write a time that is not one of the batch's."""
    i, j = _some(stream, rng)
    updates = list(stream[i].updates)
    key, value, _, diff = updates[j]
    outside = rng.choice([stream[i].lower - 1, stream[i].upper, stream[i].upper + 3])
    updates[j] = key, value, outside, diff
    return _with(stream, i, updates)


def retract_another_value(stream: list[Batch], rng: Random) -> list[Batch]:
    """Let a retraction carry a value that never was."""
    places = [(i, j) for i, b in enumerate(stream) for j, u in enumerate(b.updates) if u[3] < 0]
    assume(places)
    i, j = rng.choice(places)
    updates = list(stream[i].updates)
    key, _, time, diff = updates[j]
    updates[j] = key, b"never", time, diff
    return _with(stream, i, updates)


def move(stream: list[Batch], rng: Random) -> list[Batch]:
    """Write an update into another batch."""
    assume(len(stream) > 1)
    i, j = _some(stream, rng)
    other = rng.choice([k for k in range(len(stream)) if k != i])
    without = _with(stream, i, [u for k, u in enumerate(stream[i].updates) if k != j])
    return _with(without, other, [*without[other].updates, stream[i].updates[j]])


def swap_contents(stream: list[Batch], rng: Random) -> list[Batch]:
    """Write two batches' updates in each other's place."""
    pairs = [i for i in range(len(stream) - 1) if stream[i].updates or stream[i + 1].updates]
    assume(pairs)
    i = rng.choice(pairs)
    first, second = stream[i].updates, stream[i + 1].updates
    return _with(_with(stream, i, list(second)), i + 1, list(first))


def alter_count(stream: list[Batch], rng: Random) -> list[Batch]:
    """Count one more or less."""
    i = rng.randrange(len(stream))
    altered = replace(stream[i], count=stream[i].count + rng.choice([-1, 1]))
    return [*stream[:i], altered, *stream[i + 1 :]]


ANY: list[Mutation] = [drop, double, change_time, move, swap_contents, alter_count]
ONLY_UPSERTS: list[Mutation] = [change_diff, retract_another_value]
PROMISES: list[Promise] = ["upserts", "collection", "changes"]


@pytest.mark.parametrize("promise", PROMISES)
@few
@given(st.data())
def test_a_good_stream_is_ok_however_it_is_read(promise: Promise, data: st.DataObject) -> None:
    """The verdict and the sums are those of the stream, for portions of any size."""
    topic = laid_out(data.draw(batches(promise)), promise)
    left = summed(((update.key, update.value), update.diff) for update in topic.records)
    verifier = verified(topic, data.draw(st.integers(1, 30)))
    summary = verifier.summary()

    assert verifier.offence is None
    assert verifier.verdict() == "ok"
    assert summary == Summary(
        batches=len(topic.progress),
        updates=len(topic.records),
        history=0,
        verified_from=0,
        frontier=topic.progress[-1].upper,
        keys=len({key for key, _ in left}),
        data=len(left),
        total=sum(left.values()),
    )


@few
@given(st.data())
def test_edits_of_the_promise_lose_nothing(data: st.DataObject) -> None:
    """Upserts keep each promise: whatever their batches promise, they come to the same."""
    topic = laid_out(data.draw(batches("upserts")), "upserts")
    edited = [
        msgspec.structs.replace(record, promise=data.draw(st.sampled_from(PROMISES)))
        for record in topic.progress
    ]
    expected, verifier = verified(topic), verified(Topic(edited, topic.records))

    assert verifier.verdict() == "ok"
    assert (verifier.digest(), verifier.summary()) == (expected.digest(), expected.summary())


@pytest.mark.parametrize(
    ("promise", "mutation"),
    [
        *[pytest.param(p, m, id=f"{m.__name__}-{p}") for p in PROMISES for m in ANY],
        *[pytest.param("upserts", m, id=f"{m.__name__}-upserts") for m in ONLY_UPSERTS],
    ],
)
@few
@given(st.data())
def test_a_mutated_stream_has_an_offence(
    promise: Promise, mutation: Mutation, data: st.DataObject
) -> None:
    """Whatever happens to one update or one count is found."""
    good = data.draw(batches(promise))
    mutated = mutation(good, data.draw(st.randoms(use_true_random=False)))

    assert verified(laid_out(mutated, promise)).verdict() == "offence"


@pytest.mark.parametrize("promise", PROMISES)
@few
@given(st.data())
def test_a_missing_progress_record_is_found(promise: Promise, data: st.DataObject) -> None:
    """Unless it is the last one, or the first one of a batch that is empty."""
    topic = laid_out(data.draw(batches(promise, least=2)), promise)
    i = data.draw(st.integers(0, len(topic.progress) - 2))
    assume(i > 0 or topic.progress[0].count)
    less = replace(topic, progress=topic.progress[:i] + topic.progress[i + 1 :])

    assert verified(less).verdict() == "offence"


@few
@given(st.data())
def test_progress_out_of_order_is_found(data: st.DataObject) -> None:
    """Two progress records in each other's place do not follow each other."""
    topic = laid_out(data.draw(batches("upserts", least=2)), "upserts")
    i = data.draw(st.integers(0, len(topic.progress) - 2))
    records = list(topic.progress)
    records[i : i + 2] = reversed(records[i : i + 2])

    assert verified(replace(topic, progress=records)).verdict() == "offence"


@few
@given(st.data())
def test_repeated_progress_changes_nothing(data: st.DataObject) -> None:
    """A batch that is published twice is read once."""
    topic = laid_out(data.draw(batches("upserts")), "upserts")
    i = data.draw(st.integers(0, len(topic.progress) - 1))
    repeated = replace(topic, progress=[*topic.progress[: i + 1], *topic.progress[i:]])

    assert verified(repeated).summary() == verified(topic).summary()
    assert verified(repeated).verdict() == "ok"


@pytest.mark.parametrize("promise", PROMISES)
@few
@given(st.data())
def test_progress_that_begins_in_the_middle_comes_to_the_same(
    promise: Promise, data: st.DataObject
) -> None:
    """Without its oldest progress a topic is verified from a later time, with equal sums."""
    topic = laid_out(data.draw(batches(promise, least=2)), promise)
    i = data.draw(st.integers(1, len(topic.progress) - 1))
    later = verified(replace(topic, progress=topic.progress[i:]), complete=False)
    whole, part = verified(topic).summary(), later.summary()

    assert later.verdict() == "ok"
    assert part.verified_from == topic.progress[i].lower
    assert part.history + part.updates == whole.updates
    assert (part.keys, part.data, part.total) == (whole.keys, whole.data, whole.total)
