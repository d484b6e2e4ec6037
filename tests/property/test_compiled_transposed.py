"""Changes that compiled code takes apart are put together as they were, by it and by Python."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.arrangements import run
from ikebana.arrangements.run import EntryChange, Streams, changes_of, divide_changes
from support.strategies import unhurried

pytest.importorskip(
    "ikebana.compiled._taking_apart",
    reason="the modules of compiled/ are not built here, or are switched off",
    exc_type=ImportError,
)

from ikebana.compiled._putting_together import put_together

_PIECES = (
    *(b"", b"0", b"00", b"7", b"10", b"999999999999999999", b"1000000000000000000", b"-12.50"),
    *(b'{"ok":', b',"price":', b"}", b'":"', b"key ", b"\xc4", b"\xc4\x05", b"\xc4\x30", b"\xcf"),
    *(b"\x00", b"\x00\x00\x01\x8b\xd0\x40\xf5\x80", b"\x00" * 8, b"\x00\x00\x00\x13"),
    *(b"\xff" * 9, b"0" * 30, b"9" * 40, "ąę".encode(), b"x" * 300),
)
_texts = st.lists(
    st.one_of(
        st.sampled_from(_PIECES),
        st.integers(0, 2**64).map(lambda number: b"%d" % number),
        st.integers(0, 2**64 - 1).map(lambda number: number.to_bytes(8, "big")),
        st.binary(max_size=12),
    ),
    max_size=8,
).map(b"".join)
_changes = st.lists(st.tuples(_texts, st.one_of(st.none(), _texts)), max_size=40)


def _streams(packed: bytes) -> Streams:
    return msgspec.msgpack.decode(packed, type=Streams)


@unhurried
@given(changes=_changes)
def test_changes_come_back_whatever_they_are(changes: list[EntryChange]) -> None:
    """By the compiled code, and by the Python that reads them where there is none."""
    packed = divide_changes(changes)

    assert packed is not None
    assert run.restore_changes(packed) == changes
    assert list(changes_of(_streams(packed))) == changes


@pytest.mark.parametrize("count", [300, 70_000])
def test_many_texts_take_wider_numbers_or_are_left_as_they_are(count: int) -> None:
    changes: list[EntryChange] = [
        (b"key " + b"abcdefghij"[at % 10 :] * 2, None) for at in range(9)
    ]
    changes += [
        (bytes(97 + at // 26**place % 26 for place in range(4)), b"") for at in range(count)
    ]
    packed = divide_changes(changes)

    if count > 65_535:
        assert packed is None
    else:
        assert packed is not None
        assert _streams(packed).width == 2
        assert run.restore_changes(packed) == changes == [*changes_of(_streams(packed))]


def test_numbers_of_neighbours_are_stored_as_differences() -> None:
    """Those that go up take a byte each, those that are like random as many as they have."""
    draw = random.Random(1).randrange
    changes: list[EntryChange] = [
        (b"%d" % (10**12 + 3 * at), b'{"of":%d}' % draw(1_000)) for at in range(500)
    ]
    packed = divide_changes(changes)
    assert packed is not None

    columns = {len(each.planes): each for each in _streams(packed).columns if each.count}
    assert columns[500 * 6].differ
    assert not columns[500 * 2].differ


def _put_together(streams: Streams) -> list[EntryChange] | str:
    of = streams
    columns = [(each.kind, each.differ, each.count, each.planes) for each in of.columns]
    try:
        return put_together(of.entries, of.texts, of.lengths, of.ends, of.width, of.ids, columns)
    except ValueError:
        return "refused"


def _in_python(streams: Streams) -> list[EntryChange] | str:
    try:
        return list(changes_of(streams))
    except ValueError:
        return "refused"


@unhurried
@given(changes=_changes, data=st.data())
def test_streams_that_do_not_fit_together_are_refused_by_both(
    changes: list[EntryChange], data: st.DataObject
) -> None:
    """Or are read as the same: a checksum does not say what wrote them."""
    packed = divide_changes(changes)
    assert packed is not None
    fields = msgspec.to_builtins(_streams(packed), builtin_types=(bytes,))
    place = data.draw(st.integers(0, len(fields) - 1))
    fields[place] = data.draw(_otherwise(fields[place]))
    try:
        damaged = msgspec.convert(fields, type=Streams)
    except msgspec.ValidationError:
        return

    assert _put_together(damaged) == _in_python(damaged)


def _otherwise(value: object) -> st.SearchStrategy[object]:
    """Another value of a type: a number, bytes, or a list with one item otherwise."""
    if isinstance(value, int):
        return st.integers(-2, 300)
    if isinstance(value, bytes):
        cut = st.integers(0, len(value)).map(lambda at: value[:at])
        return st.one_of(cut, st.binary(max_size=4).map(lambda more: value + more), st.just(b""))
    assert isinstance(value, list)
    if not value:
        return st.just([])
    return st.integers(0, len(value) - 1).flatmap(
        lambda at: _otherwise(value[at]).map(lambda item: [*value[:at], item, *value[at + 1 :]])
    )
