"""Upserts that wait in blocks come out as those that wait one by one, and go with their keys."""

from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Interval
from ikebana.processor.base.rows import KeyedUpdate, Partial, Upserts
from ikebana.processor.base.sharding import shard_of
from ikebana.processor.checkpoint.parts import to_new_shards
from ikebana.processor.engine.testing.run import rescaled
from ikebana.processor.kernels import upsert, upsert_waiting
from ikebana.processor.kernels.layout import operator_part
from support.stores import entries
from support.strategies import unhurried

KEYS = [b"key %d" % number for number in range(9)]
Message = tuple[int, bytes, bytes | None, str]

_messages = st.lists(
    st.tuples(
        st.integers(0, 39),
        st.sampled_from(KEYS),
        st.none() | st.sampled_from([b"{}", b'{"a":1}', b'{"a":2}']),
        st.sampled_from(["plain"] * 12 + ["bad", "partial", "twice"]),
    ),
    max_size=12,
)
_batches = st.lists(
    st.tuples(st.lists(_messages, max_size=3), st.integers(0, 40)), min_size=1, max_size=5
)


def chunk(partition: int, first: int, messages: Sequence[Message], lower: int) -> Upserts:
    """A chunk of a partition, whose offsets begin at `first`."""
    made = Upserts("in", 0, partition, [], [], [], [])
    assert isinstance(made.times, list)
    for at, (time, key, value, kind) in enumerate(messages):
        # The second row of a message has another key, as when a row's key changes.
        for each in (key, KEYS[KEYS.index(key) - 1])[: 1 + (kind == "twice")]:
            index = len(made.keys)
            made.times.append(max(time, lower))
            made.keys.append(each)
            made.values.append(value if kind in ("plain", "twice") else None)
            made.offsets.append(first + at)
            if kind == "bad":
                made.bad[index] = b"bad %d" % at
            if kind == "partial":
                made.partial[index] = Partial(b'{"b":1}', ("a",), b"partial %d" % at)
    return made


def chunks_of(given_: Sequence[Sequence[Message]], at: int, lower: int) -> list[Upserts]:
    return [
        chunk(partition, 100 * at, messages, lower) for partition, messages in enumerate(given_)
    ]


def told(changes: upsert.UpsertChanges) -> tuple[list[KeyedUpdate], list[KeyedUpdate]]:
    return sorted(changes.updates), sorted(changes.errors)


@unhurried
@given(batches=_batches, block=st.sampled_from([1, 2, 5, 256]))
def test_blocks_of_any_size_say_the_same(
    batches: list[tuple[list[list[Message]], int]], block: int
) -> None:
    """As if every upsert waited in an entry of its own."""
    whole, one_by_one, lower = MemoryStore(), MemoryStore(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upsert_waiting, "_BLOCK", block)
        for at, (given_, upper) in enumerate([*batches, ([], 50)]):
            interval = Interval(lower, max(lower, upper))
            chunks = chunks_of(given_, at, lower)
            found = told(upsert.step(whole, chunks, interval))
            with pytest.MonkeyPatch.context() as alone:
                alone.setattr(upsert, "_plain_rows", lambda _: None)
                assert told(upsert.step(one_by_one, chunks, interval)) == found
            upper = interval.upper
            assert upsert.waiting_times(whole) == upsert.waiting_times(one_by_one)
            assert upsert.waiting(whole, upper, 1_000) == len(upsert.waiting_times(whole))
            assert bool(upsert.waiting(whole, upper, 1)) == bool(upsert.waiting_times(whole))
            assert all(time >= upper for time in upsert.waiting_times(whole))
            lower = upper
        assert upsert.waiting_times(whole) == []
        assert entries(whole) == entries(one_by_one)


@unhurried
@given(
    first=st.lists(_messages, min_size=1, max_size=3),
    second=st.lists(_messages, max_size=2),
    shards=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    upper=st.integers(0, 40),
)
def test_a_rescale_takes_each_waiting_upsert_to_the_shard_of_its_key(
    first: list[list[Message]], second: list[list[Message]], shards: list[int], upper: int
) -> None:
    """From one shard to many and back: blocks are split, and those of one place united."""
    alone = MemoryStore()
    upsert.step(operator_part(alone, "current"), chunks_of(first, 0, 0), Interval(0, 0))
    stores = [alone]
    reference = [*entries(alone)]
    for count in [*shards, 1]:
        at = partial(shard_of, shards=count)
        stores = rescaled(stores, count)
        for shard, store in enumerate(stores):
            assert {owner for owner, _ in to_new_shards(store.scan(b""), at)} <= {shard}
    (united,) = stores

    assert entries(united) == reference
    (whole, again) = MemoryStore(), united
    upsert.step(operator_part(whole, "current"), chunks_of(first, 0, 0), Interval(0, 0))
    for store_upper, given_ in ((upper, second), (50, [])):
        interval = Interval(0 if given_ is second else upper, store_upper)
        chunks = chunks_of(given_, 1, 0)
        assert told(upsert.step(operator_part(again, "current"), chunks, interval)) == told(
            upsert.step(operator_part(whole, "current"), chunks, interval)
        )


def split(whole: Upserts, shards: int) -> list[Upserts]:
    """A chunk as those of the shards of its keys."""
    found = []
    for shard in range(shards):
        own = [at for at, key in enumerate(whole.keys) if shard_of(key, shards) == shard]
        assert isinstance(whole.times, list)
        made = Upserts("in", 0, whole.partition, [whole.times[at] for at in own], [], [], [])
        for index, at in enumerate(own):
            made.keys.append(whole.keys[at])
            made.values.append(whole.values[at])
            made.offsets.append(whole.offsets[at])
            if at in whole.bad:
                made.bad[index] = whole.bad[at]
            if at in whole.partial:
                made.partial[index] = whole.partial[at]
        found.append(made)
    return found


@unhurried
@given(
    given_=st.lists(_messages, min_size=1, max_size=3),
    shards=st.integers(2, 4),
    uppers=st.lists(st.integers(1, 40), max_size=5).map(sorted),
    block=st.sampled_from([1, 2, 256]),
)
def test_shards_that_become_one_lose_nothing_that_waits(
    given_: list[list[Message]], shards: int, uppers: list[int], block: int
) -> None:
    """Rows of one message, which have one rank, may wait in several shards and in one then."""
    whole, united = MemoryStore(), MemoryStore()
    chunks = chunks_of(given_, 0, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upsert_waiting, "_BLOCK", block)
        upsert.step(operator_part(whole, "current"), chunks, Interval(0, 0))
        for shard in range(shards):
            store = MemoryStore()
            own = [split(each, shards)[shard] for each in chunks]
            upsert.step(operator_part(store, "current"), own, Interval(0, 0))
            (united,) = rescaled([united, store], 1)
        lower = 0
        for upper in [*uppers, 50]:
            left = [
                upsert.waiting_times(operator_part(each, "current")) for each in (whole, united)
            ]
            assert left[0] == left[1]
            one, other = (
                upsert.step(operator_part(each, "current"), [], Interval(lower, upper))
                for each in (whole, united)
            )
            assert told(one) == told(other)
            lower = upper


def test_the_rest_of_a_block_takes_no_place_in_which_something_lies() -> None:
    """Two rows of the message 2 have one rank; they waited in two shards, which became one."""
    united = MemoryStore()
    for times, keys, offsets in (
        ([20, 50], [b"first", b"old"], [1, 2]),
        ([25, 50], [b"second", b"other"], [3, 2]),
        ([50], [b"new"], [2]),
    ):
        store = MemoryStore()
        chunk = Upserts("in", 0, 0, times, keys, [b"1"] * len(keys), offsets)
        upsert.step(store, [chunk], Interval(0, 5))
        for place, entry in store.scan(b""):
            assert united.get_many([place]) == [None]
            united.put(place, entry)

    found = []
    for lower, upper in ((5, 22), (22, 30), (30, 60)):
        updates, _ = told(upsert.step(united, [], Interval(lower, upper)))
        found.append([update.key for update in updates])

    assert found == [[b"first"], [b"second"], [b"new", b"old", b"other"]]


def test_an_entry_tells_which_upserts_wait_in_it() -> None:
    """As the command that shows the state prints them."""
    store = MemoryStore()
    messages: list[Message] = [
        (7, KEYS[1], b"1", "plain"),
        (5, KEYS[2], None, "plain"),
    ]
    upsert.step(store, [chunk(0, 0, messages, 0)], Interval(0, 5))
    ((place, entry),) = store.scan(b"")

    assert upsert.waiting_in(place, entry) == [(5, KEYS[2]), (7, KEYS[1])]


def test_rows_of_one_message_that_come_apart_all_wait() -> None:
    """Two chunks whose first rows have one rank have entries of their own."""
    store = MemoryStore()
    one, other = (
        Upserts("in", 0, 0, [7, 8], [key, b"c"], [b"1", b"2"], [3, 4 + at])
        for at, key in enumerate([b"a", b"b"])
    )
    upsert.step(store, [one, other], Interval(0, 5))

    assert upsert.waiting_times(store) == [7, 7, 8, 8]
    found, _ = told(upsert.step(store, [], Interval(5, 9)))
    assert {(u.key, u.value) for u in found} == {(b"a", b"1"), (b"b", b"1"), (b"c", b"2")}
