"""A served arrangement reads as a list of updates does, as of every time that it still has."""

import contextlib
import copy
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements.rocks import LocalDamageError
from ikebana.arrangements.shared_rocks import DatabaseReader
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.serving.arrangement import ServedArrangement
from ikebana.serving.view import ArrangementView, Bounds, UnreadableTimeError, read_meta
from support.served_collections import KEYS, Batch, Oracle, arrangement, batches, closed


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as path:
        yield Path(path) / "things"


def _read(view: ArrangementView, bounds: Bounds, time: int, most: int) -> list[tuple[object, ...]]:
    """All rows, page by page."""
    rows, begin = [], None
    while True:
        page = view.page(bounds, time, begin, most)
        assert len(page.rows) <= most
        rows += page.rows
        if (begin := page.then) is None:
            return [(key, value, count) for key, values in rows for value, count in values.items()]


def _agrees(view: ArrangementView, oracle: Oracle) -> None:
    """Every time that can be read is right, and every other one is refused."""
    meta = view.meta
    for time in range(max(meta.since, -4), meta.upper):
        expected = oracle.collection(time)
        rows = _read(view, Bounds(), time, 3)
        assert {(key, value): count for key, value, count in rows} == expected
        assert len(rows) == len(expected)
        keys = [(key is not None, key or value) for key, value, _ in rows]
        assert [k for k, _ in keys] == sorted(k for k, _ in keys)
        assert [k for _, k in keys if _] == [k for _, k in keys if _]
        found = view.count(Bounds(), time)
        assert (found.data, found.total) == (len(expected), sum(expected.values()))
        assert found.keys == len({key if key is not None else (value,) for key, value in expected})
        for key in {update.key for update in oracle.updates if update.key is not None}:
            assert view.get(key, time) == oracle.values(key, time)
    for time in (meta.since - 1, meta.upper):
        with pytest.raises(UnreadableTimeError) as refusal:
            view.check(time)
        assert (refusal.value.since, refusal.value.upper) == (meta.since, meta.upper)


def _filled(path: Path, given: list[Batch], retain: int) -> tuple[ServedArrangement, Oracle]:
    oracle, made = Oracle(), arrangement(path, retain)
    for number, batch in enumerate(given):
        oracle.add(batch.updates)
        made.apply(closed(batch, number))
    return made, oracle


@given(batches(), st.integers(0, 12), st.data())
def test_every_time_between_since_and_upper_is_exact(
    given_: list[Batch], retain: int, data: st.DataObject
) -> None:
    """After every batch, with restarts between, whatever was deleted."""
    with _folder() as path:
        oracle, made = Oracle(), arrangement(path, retain)
        since = given_[0].lower
        for number, batch in enumerate(given_):
            oracle.add(batch.updates)
            made.apply(closed(batch, number))
            if data.draw(st.booleans(), "restart"):
                made.close()
                made = arrangement(path, retain)
                assert made.position == b"%d" % number
            view = made.view()
            assert view.meta.since == max(since, batch.upper - 1 - retain)
            since = view.meta.since
            _agrees(view, oracle)
        made.close()


@given(batches(), st.integers(0, 12), st.data())
def test_a_view_stays_what_it_is_while_batches_come(
    given_: list[Batch], retain: int, data: st.DataObject
) -> None:
    """Also a view that is read while, or after, its times have passed out of retention."""
    with _folder() as path:
        oracle, made = Oracle(), arrangement(path, retain)
        used: list[tuple[ArrangementView, Oracle]] = []
        for number, batch in enumerate(given_):
            oracle.add(batch.updates)
            made.apply(closed(batch, number))
            for view, then in used:
                _agrees(view, then)
                _changes_agree(view, then)
            used = [each for each in used if data.draw(st.booleans(), "still used")]
            used.append((made.view(), copy.deepcopy(oracle)))
        for view, then in used:
            _agrees(view, then)
        made.close()


@given(batches(), st.integers(0, 12), st.data())
def test_a_scan_is_of_one_state_while_batches_come(
    given_: list[Batch], retain: int, data: st.DataObject
) -> None:
    """Batches are written between the rows that it gives."""
    with _folder() as path:
        oracle, made = Oracle(), arrangement(path, retain)
        first, *later = enumerate(given_)
        oracle.add(first[1].updates)
        made.apply(closed(first[1], 0))
        view = made.view()
        time = data.draw(st.integers(max(view.meta.since, -4), view.meta.upper - 1), "as of")
        expected, found = oracle.collection(time), {}
        rows = view.rows(Bounds(), time)
        for key, values in rows:
            found.update({(key, value): count for value, count in values.items()})
            for number, batch in later[: data.draw(st.integers(0, len(later)), "batches")]:
                made.apply(closed(batch, number))
                del later[0]
        assert found == expected
        made.close()


def _changes_agree(view: ArrangementView, oracle: Oracle) -> None:
    above, upto = max(view.meta.since, -4), view.meta.upper - 1
    page = view.changes(above, upto, None, 1000)
    found = {(key, value, time): diff for key, value, time, diff in page.updates}
    assert found == oracle.changes(above, upto)


@given(batches(), st.integers(0, 12))
def test_changes_are_the_updates_between_two_times(given_: list[Batch], retain: int) -> None:
    """Added to the collection at the first, they make the one at the second."""
    with _folder() as path:
        made, oracle = _filled(path, given_, retain)
        view = made.view()
        times = range(max(view.meta.since, -4), view.meta.upper)
        for above in times:
            for upto in times[times.index(above) :]:
                updates: list[KeyedUpdate] = []
                begin = None
                while True:
                    page = view.changes(above, upto, begin, 2)
                    updates += page.updates
                    if (begin := page.then) is None:
                        break
                found = {(key, value, time): diff for key, value, time, diff in updates}
                assert found == oracle.changes(above, upto)
                assert len(found) == len(updates)
        made.close()


@given(
    batches(),
    st.builds(Bounds, st.none() | KEYS, st.none() | KEYS, st.none() | KEYS),
    st.integers(1, 4),
)
def test_a_scan_gives_the_keys_within_bounds_in_their_order(
    given_: list[Batch], bounds: Bounds, most: int
) -> None:
    """At every time, in pages of any size."""
    with _folder() as path:
        made, oracle = _filled(path, given_, 100)
        view = made.view()
        for time in range(max(view.meta.since, -4), view.meta.upper):
            rows = _read(view, bounds, time, most)
            expected = {
                (key, value, count)
                for (key, value), count in oracle.collection(time).items()
                if bounds == Bounds() or (key is not None and _within(key, bounds))
            }
            assert set(rows) == expected
            keys: list[Any] = [row[0] for row in rows if row[0] is not None]
            assert keys == sorted(keys)
            assert view.count(bounds, time).data == len(expected)
        made.close()


def _within(key: bytes, bounds: Bounds) -> bool:
    return (
        (bounds.start is None or key >= bounds.start)
        and (bounds.end is None or key < bounds.end)
        and (bounds.prefix is None or key.startswith(bounds.prefix))
    )


@given(batches())
def test_nothing_is_left_of_what_has_expired(given_: list[Batch]) -> None:
    """The database of a collection that is emptied and passed by has its metadata alone."""
    with _folder() as path:
        made, oracle = _filled(path, given_, 2)
        upper = given_[-1].upper
        left = oracle.collection(upper)
        undone = [KeyedUpdate(key, value, upper, -count) for (key, value), count in left.items()]
        made.apply(closed(Batch(upper, upper + 1, undone)))
        # The view before a batch is in use while the batch is written, so history outlives it.
        made.apply(closed(Batch(upper + 1, upper + 9, [])))
        made.apply(closed(Batch(upper + 9, upper + 10, [])))
        assert [key for key, _ in made.view().database.scan(b"", None)] == [b"m"]
        assert made.view().count(Bounds(), upper + 9) == made.view().meta.totals.read()
        assert made.view().meta.totals.keys == made.view().meta.totals.bytes == 0
        made.close()


@given(batches(), st.integers(0, 12), st.integers(0, 5))
def test_a_load_with_a_horizon_ends_as_one_without(
    given_: list[Batch], retain: int, ahead: int
) -> None:
    """What is not written would have been deleted; meanwhile no time before `since` is read."""
    with _folder() as path:
        horizon = given_[-1].upper
        oracle, made = Oracle(), arrangement(path, retain)
        for batch in given_:
            oracle.add(batch.updates)
            made.apply(closed(batch), max(horizon - ahead, batch.upper))
        _agrees(made.view(), oracle)
        made.close()


@given(batches(), st.data())
def test_a_torn_copy_is_a_whole_earlier_state_or_is_refused(
    given_: list[Batch], data: st.DataObject
) -> None:
    """The end of the log is cut off anywhere, as by a failure of the machine."""
    with _folder() as path:
        oracle, made = Oracle(), arrangement(path, 100)
        uppers = {given_[0].lower}
        for number, batch in enumerate(given_):
            oracle.add(batch.updates)
            made.apply(closed(batch, number))
            uppers.add(batch.upper)
        torn_path = path.with_name("copy")
        shutil.copytree(path, torn_path)
        made.close()
        [log] = torn_path.glob("*.log")
        whole = log.read_bytes()
        log.write_bytes(whole[: data.draw(st.integers(0, len(whole)), "bytes of the log")])
        try:
            torn = arrangement(torn_path, 100)
        except LocalDamageError:
            return
        meta = torn.view().meta
        assert not torn.position or meta.upper in uppers
        if torn.position:
            number = int(torn.position)
            assert meta.upper == given_[number].upper
            before = Oracle()
            for batch in given_[: number + 1]:
                before.add(batch.updates)
            _agrees(torn.view(), before)
        torn.close()


@given(batches())
def test_a_reader_sees_whole_batches_only(given_: list[Batch]) -> None:
    """While the writer goes on, a reader of its folder catches up with every batch."""
    with _folder() as path:
        oracle, made = Oracle(), arrangement(path, 5)
        made.apply(closed(Batch(given_[0].lower - 1, given_[0].lower, [])))
        reader = DatabaseReader(path)
        for number, batch in enumerate(given_):
            oracle.add(batch.updates)
            made.apply(closed(batch, number))
            reader.catch_up()
            meta = read_meta(reader)
            assert meta == made.view().meta
            assert meta is not None
            _agrees(ArrangementView(reader, meta), oracle)
        reader.close()
        made.close()
