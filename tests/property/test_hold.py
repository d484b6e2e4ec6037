"""Hold against its definition: an update is released when its time is closed, not before."""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import Update, accumulate, consolidate
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import hold
from support.stores import CountingStore
from support.strategies import cuts, unhurried

# Few data, so that they meet; None is not the empty key, and long data differ at the end.
data = st.sampled_from(
    [(None, b""), (b"", b""), (b"k", b""), (b"k", b"v" * 999 + b"1"), (b"k", b"v" * 999 + b"2")]
)
diffs = st.sampled_from([-2, -1, 1, 1, 2])
updates_of_times = st.lists(
    st.builds(lambda d, t, n: KeyedUpdate(d[0], d[1], t, n), data, st.integers(0, 12), diffs),
    max_size=30,
)

Triple = Update[tuple[bytes | None, bytes]]


def triples(updates: Iterable[KeyedUpdate]) -> list[Triple]:
    """Updates of (key, value)."""
    return [Update((key, value), time, diff) for key, value, time, diff in updates]


def entries(store: MemoryStore) -> list[tuple[bytes, bytes]]:
    """Every update that a store holds; from where on it looks is no part of that."""
    return [each for each in store.scan(b"") if hold.OUT.layout.divided(*each, lambda _: 0)]


def fed(pieces: Sequence[Sequence[KeyedUpdate]]) -> list[tuple[list[KeyedUpdate], int]]:
    """Batches, each with the upper that closes two times more; none is late."""
    return [
        ([update._replace(time=max(update.time, 2 * at)) for update in piece], 2 * (at + 1))
        for at, piece in enumerate(pieces)
    ]


@unhurried
@given(st.data(), updates_of_times)
def test_what_is_released_is_what_came_in(data: st.DataObject, updates: list[KeyedUpdate]) -> None:
    """All batches together release the sum of all updates, each at its own time."""
    store, batches = MemoryStore(), fed(data.draw(cuts(updates)))
    released = [u for given_, upper in batches for u in hold.step(store, given_, upper)]
    released += hold.step(store, [], 100)

    assert set(consolidate(triples(released))) == set(
        consolidate(triples(u for given_, _ in batches for u in given_))
    )
    assert entries(store) == []


@unhurried
@given(st.data(), updates_of_times)
def test_an_update_is_released_by_the_batch_that_closes_its_time(
    data: st.DataObject, updates: list[KeyedUpdate]
) -> None:
    """Not before, not later, and the collection at every closed time is complete."""
    store, lower = MemoryStore(), 0
    came: list[KeyedUpdate] = []
    released: list[KeyedUpdate] = []
    for batch, upper in fed(data.draw(cuts(updates))):
        came += batch
        fresh = hold.step(store, batch, upper)
        released += fresh

        assert all(lower <= update.time < upper for update in fresh)
        assert accumulate(triples(released), upper - 1) == accumulate(triples(came), upper - 1)
        assert hold.due_times(store) == sorted(
            time for _, time, _ in consolidate(triples(came)) if time >= upper
        )
        lower = upper


@unhurried
@given(st.data(), updates_of_times, st.integers(0, 12))
def test_any_cut_leaves_the_same_held(
    data: st.DataObject, updates: list[KeyedUpdate], upper: int
) -> None:
    """What is held, and what has been released, does not depend on which came together."""
    whole, cut = MemoryStore(), MemoryStore()
    at_once = hold.step(whole, updates, upper)
    bit_by_bit = [u for part in data.draw(cuts(updates)) for u in hold.step(cut, part, upper)]

    assert set(triples(at_once)) == set(consolidate(triples(bit_by_bit)))
    assert entries(whole) == entries(cut)


@unhurried
@given(updates_of_times, updates_of_times)
def test_a_batch_releases_no_two_updates_of_one_datum_and_time(
    before: list[KeyedUpdate], batch: list[KeyedUpdate]
) -> None:
    """R11. Held and new updates of one datum and time are one, and none when they cancel."""
    store = MemoryStore()
    hold.step(store, [update._replace(time=update.time + 10) for update in before], 10)
    released = triples(hold.step(store, [u._replace(time=u.time + 10) for u in batch], 100))

    assert set(released) == set(consolidate(released))
    assert len(released) == len(set(released))


@unhurried
@given(updates_of_times)
def test_what_cancels_before_it_is_due_is_never_seen(updates: list[KeyedUpdate]) -> None:
    """R11. It is not released, and nothing is left of it in the store."""
    store = MemoryStore()
    negated = [update._replace(diff=-update.diff) for update in updates]
    released = hold.step(store, [u._replace(time=u.time + 10) for u in updates], 10)
    released += hold.step(store, [u._replace(time=u.time + 10) for u in negated], 10)

    assert entries(store) == []
    assert released + hold.step(store, [], 100) == []


@pytest.mark.parametrize(("due", "most"), [(0, 1), (5, 6)])
def test_a_batch_looks_only_at_what_is_due(due: int, most: int) -> None:
    """With 10,000 waiting, no more than what is due and one beyond is read."""
    store = CountingStore()
    later = [KeyedUpdate(b"%d" % at, b"v", 1_000 + at, 1) for at in range(10_000)]
    hold.step(store, [*later, *(KeyedUpdate(b"%d" % at, b"v", 20, 1) for at in range(due))], 10)
    store.scanned = 0

    assert len(hold.step(store, [KeyedUpdate(b"new", b"v", 2_000, 1)], 30)) == due
    assert store.scanned <= most


class SlowToForget(MemoryStore):
    """Counts the deleted keys that scans pass, as RocksDB does until it has merged its files."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: set[bytes] = set()
        self.passed = 0

    def put(self, key: bytes, value: bytes) -> None:
        self.deleted.discard(key)
        super().put(key, value)

    def delete(self, key: bytes, size: int = 0) -> None:
        self.deleted.add(key)
        super().delete(key, size)

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        last = prefix + start
        for key, value in super().scan(prefix, start):
            self.passed += sum(last <= gone < key for gone in self.deleted)
            last = key
            yield key, value


def test_a_batch_does_not_pass_what_earlier_ones_have_released() -> None:
    """It begins where the last one ended, so that a batch costs the same after any number."""
    store = SlowToForget()
    hold.step(store, [KeyedUpdate(b"%d" % at, b"v", at, 1) for at in range(100)], 0)
    for upper in range(1, 90):
        store.passed = 0

        assert len(hold.step(store, [KeyedUpdate(b"new", b"v", upper + 200, 1)], upper)) == 1
        assert store.passed <= 1


@unhurried
@given(updates_of_times, updates_of_times, st.integers(0, 12))
def test_a_frontier_that_goes_back_loses_nothing(
    before: list[KeyedUpdate], batch: list[KeyedUpdate], upper: int
) -> None:
    """A plan may get a source that begins anew: what comes before what was held is found."""
    store = MemoryStore()
    released = hold.step(store, before, 9)
    released += hold.step(store, batch, upper)
    released += hold.step(store, [], 100)

    assert set(consolidate(triples(released))) == set(consolidate(triples(before + batch)))
    assert entries(store) == []


@pytest.mark.parametrize("time", [0, 255, 256, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_every_time_of_64_bits_is_held_and_released(time: int) -> None:
    """Large times are kept in the order of numbers."""
    store = MemoryStore()
    hold.step(store, [KeyedUpdate(b"k", b"v", time, 1), KeyedUpdate(b"l", b"v", 256, 1)], 0)

    assert hold.due_times(store) == sorted([time, 256])
    assert KeyedUpdate(b"k", b"v", time, 1) in hold.step(store, [], time + 1)


@pytest.mark.parametrize("time", [-1, 1 << 64])
@pytest.mark.parametrize("upper", [-5, 0, 10])
def test_a_time_that_is_none_is_a_broken_invariant(time: int, upper: int) -> None:
    """It is neither released nor held, and nothing of its batch is."""
    store = MemoryStore()

    with pytest.raises(AssertionError, match=f"time {time} is none of 64 bits"):
        hold.step(store, [KeyedUpdate(b"k", b"v", 20, 1), KeyedUpdate(b"k", b"v", time, 1)], upper)

    assert entries(store) == []


@unhurried
@given(updates_of_times, updates_of_times)
@example([KeyedUpdate(None, b"v", 5, 1)], [])
def test_a_restart_between_two_batches_changes_nothing(
    before: list[KeyedUpdate], batch: list[KeyedUpdate]
) -> None:
    """All that hold knows lies in the store."""
    store = MemoryStore()
    hold.step(store, before, 6)
    copy = deepcopy(store)
    late = [update._replace(time=update.time + 6) for update in batch]

    assert hold.step(store, late, 9) == hold.step(copy, late, 9)
    assert entries(store) == entries(copy)


def test_the_shard_of_an_entry_goes_by_its_key_or_its_value() -> None:
    """What has no key goes by its value, as it does when it is placed first."""
    store = MemoryStore()
    updates = [KeyedUpdate(b"k", b"v", 5, 1), KeyedUpdate(None, b"w", 6, 1)]
    hold.step(store, updates, 0)

    decided = [
        hold.OUT.layout.divided(*entry, {b"k": 0, b"w": 1}.__getitem__) for entry in entries(store)
    ]
    assert [list(by_shard) for by_shard in decided] == [[0], [1]]


@unhurried
@given(st.data(), updates_of_times, st.integers(1, 3))
def test_in_blocks_the_same_is_released(
    data: st.DataObject, updates: list[KeyedUpdate], size: int
) -> None:
    """Each update by the batch that closes its time, whatever lies in one block with it."""
    store, whole = MemoryStore(), hold._BLOCK
    came: list[KeyedUpdate] = []
    released: list[KeyedUpdate] = []
    hold._BLOCK = size
    try:
        for batch, upper in fed(data.draw(cuts(updates))):
            came += batch
            assert hold.is_due(store, upper) == any(time < upper for time in hold.due_times(store))
            released += hold.step_in_blocks(store, batch, upper)

            assert accumulate(triples(released), upper - 1) == accumulate(triples(came), upper - 1)
            assert all(update.time < upper for update in released)
            assert len(released) + len(hold.due_times(store)) == len(came)
        released += hold.step_in_blocks(store, [], 100)
    finally:
        hold._BLOCK = whole

    assert sorted(released, key=repr) == sorted(came, key=repr)
    assert entries(store) == []


@unhurried
@given(updates_of_times, st.integers(2, 4))
def test_blocks_come_apart_and_together_by_shard(updates: list[KeyedUpdate], shards: int) -> None:
    """No update is in the shard of another key, and none is lost or doubled."""
    store = MemoryStore()
    hold.step_in_blocks(store, updates, 0)
    stores, layout = [MemoryStore() for _ in range(shards)], hold.OUT.layout
    for place, entry in entries(store):
        for shard, own in layout.divided(place, entry, lambda key: len(key) % shards).items():
            stores[shard].put(place, own)
    for shard, own_store in enumerate(stores):
        held = hold.step_in_blocks(deepcopy(own_store), [], 100)
        assert {len(u.value if u.key is None else u.key) % shards for u in held} <= {shard}
    united = MemoryStore()
    for own_store in stores:
        for place, entry in entries(own_store):
            (known,) = united.get_many([place])
            both = entry if known is None else layout.united(place, known, entry)
            assert both is not None
            united.put(place, both)

    assert sorted(hold.step_in_blocks(united, [], 100), key=repr) == sorted(updates, key=repr)
    # What was held one by one is released as well.
    singles = MemoryStore()
    hold.step(singles, updates, 0)
    found = hold.step_in_blocks(singles, [], 100)
    assert set(consolidate(triples(found))) == set(consolidate(triples(updates)))
