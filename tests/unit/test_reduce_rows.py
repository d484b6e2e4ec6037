"""What a function makes of the rows of a key: what it gets, what shows, what is kept."""

from collections.abc import Iterable
from typing import Any

import pytest

from ikebana.arrangements.store import MemoryStore, Overlay
from ikebana.arrangements.update import Interval
from ikebana.codecs import canonical
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kernels import reduce_rows
from ikebana.processor.kernels.reduce_rows import RowsFunction
from ikebana.processor.kernels.user_calls import Refused

KEY = b'"k"'


def update(row: bytes, time: int = 0, diff: int = 1) -> KeyedUpdate:
    return KeyedUpdate(KEY, row, time, diff)


def values(updates: Iterable[KeyedUpdate]) -> list[tuple[bytes, int, int]]:
    return [(value, time, diff) for _, value, time, diff in updates]


def test_it_is_called_once_for_each_time_at_which_rows_change() -> None:
    """Not where updates cancel, and not when no row is left."""
    calls: list[int] = []

    def function(key: Any, rows: list[tuple[Any, int]]) -> list[Any]:
        calls.append(len(rows))
        return [len(rows)]

    updates = [
        update(b"3", 4),
        update(b"1", 1),
        update(b"2", 1),
        update(b"9", 2),
        update(b"9", 2, -1),
        *(update(row, 5, -1) for row in (b"1", b"2", b"3")),
    ]
    found = reduce_rows.step(MemoryStore(), updates, Interval(0, 6), function)

    assert calls == [2, 3]
    assert values(found.updates) == [(b"2", 1, 1), (b"2", 4, -1), (b"3", 4, 1), (b"3", 5, -1)]


def raising(key: Any, rows: list[tuple[Any, int]]) -> list[Any]:
    raise LookupError("always")


def refusing(key: Any, rows: list[tuple[Any, int]]) -> list[Any]:
    raise Refused("not these")


def halfway(key: Any, rows: list[tuple[Any, int]]) -> Iterable[Any]:
    yield 1
    raise LookupError


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        pytest.param(raising, "reduce {}:raising raised LookupError: always", id="raises"),
        pytest.param(halfway, "reduce {}:halfway raised LookupError", id="raises on the way"),
        pytest.param(refusing, "not these", id="refuses"),
        pytest.param(
            lambda key, rows: "text",
            "reduce {}:<lambda> gave a str in place of a collection",
            id="gives text",
        ),
        pytest.param(
            lambda key, rows: None,
            "reduce {}:<lambda> gave a NoneType in place of a collection",
            id="gives nothing",
        ),
        pytest.param(
            lambda key, rows: [1, {1: object()}],
            "reduce {}:<lambda> gave data that have no JSON form",
            id="gives what JSON has no form of",
        ),
    ],
)
def test_what_fails_shows_nothing_and_is_an_error(function: RowsFunction, reason: str) -> None:
    """Until the rows change and it succeeds; what showed before is retracted."""
    store = MemoryStore()

    def unless_two(key: Any, rows: list[tuple[Any, int]]) -> Iterable[Any]:
        return [rows[0][0]]

    reduce_rows.step(store, [update(b"1")], Interval(0, 1), unless_two)
    failed = reduce_rows.step(store, [update(b"2", 1)], Interval(1, 2), function)
    again = reduce_rows.step(store, [update(b"3", 2)], Interval(2, 3), function)
    well = reduce_rows.step(store, [update(b"1", 3, -1)], Interval(3, 4), unless_two)

    assert values(failed.updates) == [(b"1", 1, -1)]
    (error,) = failed.errors
    record = canonical.decode(error.value)
    assert (error.key, error.time, error.diff) == (None, 1, 1)
    assert record["reason"] == reason.format(__name__)
    assert record["key"] == "Imsi"
    assert again == ([], [])
    assert values(well.updates) == [(b"2", 3, 1)]
    assert well.errors == [KeyedUpdate(None, error.value, 3, -1)]


def test_a_change_of_one_row_writes_one_row() -> None:
    """All rows are read for a call, but those that stay are not written, nor those that return."""
    store = MemoryStore()
    many = [update(b"%d" % number) for number in range(1_000)]
    reduce_rows.step(store, many, Interval(0, 1), lambda key, rows: [len(rows)])
    assert len(list(store.scan(b""))) == 1_001
    one, passing = Overlay(store), Overlay(store)

    reduce_rows.step(one, [update(b"7", 1)], Interval(1, 2), lambda key, rows: [len(rows)])
    there_and_back = [update(b"7", 1), update(b"-1", 1), update(b"7", 2, -1), update(b"-1", 2, -1)]
    found = reduce_rows.step(
        passing, there_and_back, Interval(1, 3), lambda key, rows: [len(rows)]
    )

    assert list(one.changes.values()) == [b"2\n7"]
    assert [(u.value, u.time, u.diff) for u in found.updates] == [
        (b"1000", 1, -1),
        (b"1001", 1, 1),
        (b"1001", 2, -1),
        (b"1000", 2, 1),
    ]
    assert passing.changes == {}


def test_a_key_has_its_own_rows_also_where_it_begins_another() -> None:
    """And every entry tells its key."""
    keys = [b"1", b"12", b"123", b'"k"', b'"k\\u0000"']
    store = MemoryStore()
    rows = [KeyedUpdate(key, key, 0, 1) for key in keys]
    found = reduce_rows.step(
        store, rows, Interval(0, 1), lambda key, rows: [row for row, _ in rows]
    )

    assert sorted(found.updates) == sorted(rows)
    layout = reduce_rows.PART.layout
    owners = [at for entry in store.scan(b"") for at in layout.divided(*entry, keys.index)]
    assert sorted(owners) == sorted([*range(len(keys))] * 2)
