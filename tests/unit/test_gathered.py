"""Updates gather in bounded memory, and are read as they came."""

import tracemalloc
from collections.abc import Iterator

import pytest

from ikebana.processor.base.rows import KeyedUpdate, updates_of
from ikebana.processor.base.sharding import exchange_chunks
from ikebana.processor.engine.budget import GatheredUpdates


def updates(count: int, size: int = 4) -> Iterator[KeyedUpdate]:
    for at in range(count):
        key = None if at % 7 == 0 else b"%d" % at
        yield KeyedUpdate(key, b"%0*d" % (size, at), at, (-1) ** at * ((1 << 63) - 1))


@pytest.mark.parametrize("count", [0, 1, 9_999, 10_000, 10_001, 45_000])
@pytest.mark.parametrize("each", [1, 3_000, 50_000])
def test_they_are_read_in_order_and_again(count: int, each: int) -> None:
    """Those in the file are before those in memory, however they were added."""
    wanted = list(updates(count))
    gathered = GatheredUpdates(most=20_000)
    for begin in range(0, count, each):
        gathered += wanted[begin : begin + each]

    assert len(gathered) == count
    assert bool(gathered) == bool(count)
    # Twice, and without a diff of thousands of lines where it fails.
    assert all(gathered == wanted for _ in range(2))
    assert gathered != wanted[1:] or not count


def test_reading_goes_on_while_others_read() -> None:
    """Readers have no common place in the file."""
    wanted = list(updates(30_000))
    gathered = GatheredUpdates(wanted, most=10_000)

    assert list(zip(gathered, gathered, strict=True)) == list(zip(wanted, wanted, strict=True))


def test_what_is_cleared_is_gone() -> None:
    """It can be added to again."""
    gathered = GatheredUpdates(updates(30_000), most=10_000)
    gathered.clear()
    gathered += updates(2)

    assert list(gathered) == list(updates(2))


def test_memory_is_bounded_by_the_number_of_updates() -> None:
    """100,000 updates take no more than the 20,000 that may be kept."""
    some = list(updates(10_000, 100))
    tracemalloc.start()
    try:
        gathered = GatheredUpdates(most=20_000)
        for _ in range(10):
            gathered += [each._replace(time=1) for each in some]
        kept = sum(1 for _ in gathered)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept == 100_000
    # A portion of 10,000 is read at a time, with keys and values of its own.
    assert peak < 12 << 20


def test_memory_is_bounded_by_the_size_of_updates() -> None:
    """A few large ones are as much as many small ones."""
    tracemalloc.start()
    try:
        gathered = GatheredUpdates(KeyedUpdate(b"k", bytes(14_000), 1, 1) for _ in range(40_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(gathered) == 40_000
    assert peak < 400 << 20


def test_an_exchange_takes_them_from_the_file() -> None:
    """In chunks for the shards of their keys; those without a key have one there."""
    wanted = list(updates(30_000))
    found = [
        update
        for _, row in exchange_chunks({"totals": GatheredUpdates(wanted, most=10_000)}, 4)
        for update in updates_of(row)
    ]

    assert sorted(found, key=lambda update: update.time) == [
        update if update.key is not None else update._replace(key=b"null") for update in wanted
    ]
