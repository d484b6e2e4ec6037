"""Outputs that may have several values a key: who is told, and what readers hold."""

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.store import MemoryStore
from ikebana.arrangements.update import sums
from ikebana.codecs import canonical
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.base.sharding import shard_of
from ikebana.processor.kernels import single_value
from ikebana.processor.kernels.single_value import COUNT_REASON, MANY_REASON, NO_KEY_REASON
from support.sums import summed

K1, K2, A, B, C = b"1", b"2", b'"a"', b'"b"', b'"c"'
UPDATES = st.lists(
    st.builds(
        KeyedUpdate,
        st.sampled_from([K1, K2, None]),
        st.sampled_from([A, B, C]),
        st.integers(0, 6),
        st.sampled_from([-1, 1, 1, 2]),
    ),
    max_size=25,
)


def reason_of(rows: Counter[bytes]) -> str | None:
    """What is wrong with the rows of a key, by definition."""
    held = {row: count for row, count in rows.items() if count}
    if len(held) > 1:
        return MANY_REASON
    return COUNT_REASON if held and set(held.values()) != {1} else None


def rows_at(updates: Iterable[KeyedUpdate], key: bytes | None, time: int) -> Counter[bytes]:
    """The collection of a key at a time."""
    return summed((u.value, u.diff) for u in updates if u.key == key and u.time <= time)


def run(
    batches: Sequence[Sequence[KeyedUpdate]], shards: int = 1
) -> list[single_value.KeyChanges]:
    """What comes out of shards to which updates go by key, or by value without one."""
    stores = [MemoryStore() for _ in range(shards)]
    return [
        single_value.step(
            stores[shard],
            [u for u in batch if shard_of(u.value if u.key is None else u.key, shards) == shard],
            "out",
        )
        for batch in batches
        for shard in range(shards)
    ]


def cut(updates: Sequence[KeyedUpdate], at: int) -> list[list[KeyedUpdate]]:
    """Two batches of closed times."""
    return [[u for u in updates if u.time < at], [u for u in updates if u.time >= at]]


@given(UPDATES, st.integers(0, 7), st.integers(1, 3))
def test_a_key_is_told_as_long_as_it_is_not_right(
    updates: list[KeyedUpdate], at: int, shards: int
) -> None:
    """At every time its error slot says what is wrong, however batches and shards are cut."""
    found = run(cut(updates, at), shards)

    errors = [error for changes in found for error in changes.errors]
    for time in range(7):
        expected: Counter[tuple[str, bytes | None]] = Counter()
        for key in (K1, K2):
            if reason := reason_of(rows_at(updates, key, time)):
                expected[reason, key] += 1
        if keyless := rows_at(updates, None, time).total():
            expected[NO_KEY_REASON, None] += keyless
        told: Counter[tuple[str, bytes | None]] = Counter()
        for error in errors:
            if error.time <= time:
                record = canonical.decode(error.value)
                of = {None: None, "MQ==": K1, "Mg==": K2}[record["key"]]
                told[record["reason"].removeprefix("output out: "), of] += error.diff
        assert {k: v for k, v in told.items() if v} == dict(expected)


@given(UPDATES, st.integers(0, 7))
def test_readers_hold_the_one_value_of_a_right_key(updates: list[KeyedUpdate], at: int) -> None:
    """And what was right last of one that is not; a key is empty when no row is left."""
    found = run(cut(updates, at))

    changes = [change for each in found for change in each.keys]
    assert [(c.time, c.key) for c in changes] == sorted((c.time, c.key) for c in changes)
    held: dict[bytes, bytes | None] = {}
    for change in changes:
        rows = rows_at(updates, change.key, change.time)
        assert change.before == held.get(change.key)
        held[change.key] = change.after
        assert change.empty == (not rows)
        if reason_of(rows) is None:
            assert change.after == next(iter(rows), None)
        else:
            assert change.after == change.before
    summed = sums(u for u in updates if u.key is not None)
    changed = {(time, key) for (key, _, time), diff in summed.items() if diff}
    assert changed == {(change.time, change.key) for change in changes}


def test_only_what_is_not_right_lies_in_rows() -> None:
    """A key that is right has one entry, and one that is empty has none."""
    store = MemoryStore()
    single_value.step(store, [KeyedUpdate(K1, A, 0, 1), KeyedUpdate(K2, A, 0, 1)], "out")
    assert len(list(store.scan(b""))) == 2
    single_value.step(store, [KeyedUpdate(K1, B, 1, 1)], "out")
    divided = (single_value.PART.layout.divided(*e, [K1].index) for e in store.scan(b"r"))
    assert {shard for each in divided for shard in each} == {0}
    single_value.step(store, [KeyedUpdate(K1, A, 2, -1), KeyedUpdate(K2, A, 2, -1)], "out")
    assert [place for place, _ in store.scan(b"")] == [b"k" + K1]


@pytest.mark.parametrize("diff", [1, -1])
def test_without_a_key_nothing_is_wrong_where_none_is_needed(diff: int) -> None:
    """Envelopes tell a row's own coming and going."""
    found = single_value.step(MemoryStore(), [KeyedUpdate(None, A, 0, diff)], "o", keyless=True)

    assert found == ([], [])
