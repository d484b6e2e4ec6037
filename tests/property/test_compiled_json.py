"""What the compiled code says of a JSON text is what Python says; of most texts it says it."""

import copy
import gc
import pickle
import random
import re
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ikebana.codecs import canonical
from ikebana.codecs.errors import DecodeError
from support.strategies import json_data, unhurried, written

_WHY = "the compiled code is not built, or switched off"
json_text = pytest.importorskip("ikebana.compiled._json_text", reason=_WHY, exc_type=ImportError)
nesting = pytest.importorskip("ikebana.compiled._nesting", reason=_WHY, exc_type=ImportError)
row_images = pytest.importorskip("ikebana.compiled._row_images", reason=_WHY, exc_type=ImportError)

# Parts of texts, from which whole and damaged ones are made.
PARTS = [
    *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"\\u00e9", b"\\ud83d\\ude00", b"\\/"),
    *(b"\\n", b"\\u0022", b"\\u001f", b'"a"', b'"b"', b'"a":', b'"b":1', b"null", b"true"),
    *(b"false", b"0", b"-0", b"-0.0", b"1.50", b"12.0", b"0.0001", b"1e3", b"1E-2", b"-", b"."),
    *(b"123456789012345678", b"1234567890123456789", b"123456789.123456", b"0.00", b"01", b"+1"),
    *(b" ", b"\n", b"\t", b"\r", b"\x00", b"\x7f", b"\xc3\xa9", b"\xc3", b"\xed\xa0\x80"),
    *(b"\xf0\x9f\x98\x80", b"\xf4\x90\x80\x80", b"\xe2\x80\xa8", b"eight chars and more ", b"e"),
]
TEXTS = st.one_of(
    json_data().map(written),
    st.lists(st.sampled_from(PARTS), max_size=12).map(b"".join),
    st.lists(st.sampled_from(PARTS), max_size=6).map(lambda parts: b'{"a":[' + b"".join(parts)),
)


def in_python(message: bytes) -> bytes | str:
    """The canonical bytes of a text, or the reason why there are none."""
    try:
        return canonical.canonical(message)
    except DecodeError as error:
        return error.reason


@unhurried
@given(st.lists(TEXTS, max_size=6))
@example([b'{"b":1,"a":2}', b'{"b":1,"a":2}', b'{"b":1,"b":2}', b'{"a":2,"b":1}'])
@example([b'"' + b"x" * n + b for n in range(10) for b in (b'"', b"\\n", b"\xc3\xa9", b"\x1f")])
def test_a_text_has_its_canonical_bytes(messages: list[bytes]) -> None:
    """One after the other, of one rewriter, which remembers the order of fields."""
    rewriter = json_text.Canonical()
    for message in messages:
        found = rewriter.text(message)

        assert found is None or found == in_python(message)


@unhurried
@given(json_data(), st.data())
def test_no_damage_goes_unnoticed(value: Any, data: st.DataObject) -> None:
    """Bytes are changed, put in, and cut off."""
    message = written(value)
    at = data.draw(st.integers(0, len(message)))
    until = data.draw(st.integers(at, min(len(message), at + 2)))
    damaged = message[:at] + data.draw(st.binary(max_size=2)) + message[until:]
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]

    found = json_text.Canonical().text(damaged)

    assert found is None or found == in_python(damaged)


@unhurried
@given(st.lists(TEXTS, max_size=4), st.sets(st.sampled_from(["a", "b", "é", "\n", '"'])))
def test_the_columns_of_a_row_are_those_that_python_picks(
    messages: list[bytes], columns: set[str]
) -> None:
    """What is no object is left to Python."""
    names = sorted(columns)
    pick = canonical._by_name(names)
    rows = row_images.Rows(names, ())
    for message in messages:
        if (found := rows.row(message)) is not None:
            assert found == pick(message)


def test_usual_texts_are_not_left_to_python() -> None:
    """Rows of texts, short fractions and numbers: nine tenths of what is random here."""
    draw = random.Random(1)
    rewriter, taken = json_text.Canonical(), 0
    for _ in range(1_000):
        row = {
            f"c{at}": draw.choice(
                [at, draw.randrange(10**9) / 100, f"größe {at} \n", None, True, [at, {"b": at}]]
            )
            for at in range(draw.randrange(1, 40))
        }
        taken += rewriter.text(msgspec.json.encode(row)) is not None

    assert taken >= 900


@pytest.mark.parametrize("deep", [63, 64, 65, 200, 100_000])
def test_deep_texts_end_no_process(deep: int) -> None:
    """What is nested deeper than the compiled code goes is left to Python."""
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        text = opening * deep + b"1" + closing * deep
        found = json_text.Canonical().text(text)

        assert found == (text if deep <= 64 else None)
        assert json_text.Canonical().text(opening * deep) is None


@pytest.mark.parametrize("bracket", [b"[", b"{"])
@pytest.mark.parametrize("size", [0, 1, 199, 254, 255, 256, 700])
def test_brackets_are_counted_wherever_they_stand(bracket: bytes, size: int) -> None:
    """Also at the ends of the blocks that are counted at once."""
    text = b"x" * size + bracket * 3 + b"}]" * size + bracket

    assert nesting.any_opens_more([None, b"", text], 3)
    assert not nesting.any_opens_more([None, b"", text], 4)


@unhurried
@given(st.lists(st.sampled_from([*PARTS, b"9" * 150, b"e99", b"E+100", b"1e-", b"7"]), max_size=9))
def test_texts_that_python_refuses_as_they_are_no_utf_8_or_out_of_range_are_doubtful(
    parts: list[bytes],
) -> None:
    """In any field; and what the compiled code doubts, the form in Python does."""
    for text in (b"".join(parts), b'["a",' + b"".join(parts) + b"]"):
        found = nesting.doubtful(text)

        assert found <= canonical.doubtful_in_python(text)
        reason = str(in_python(text))
        assert found or not ("UTF-8" in reason or "too many digits" in reason)


@pytest.mark.parametrize("before", range(18))
@pytest.mark.parametrize(
    ("text", "doubts"),
    [
        (b"\xc3\xa9", False),
        (b"\xc3", True),
        (b'"', False),
        (b"1e400", False),
        (b'",1e400', True),
        (b'\\"1e400', False),
        (b'\\\\",1E+400', True),
        (b'",1e-40', False),
        (b'",' + b"9" * 100, False),
        (b'",' + b"9" * 320, True),
    ],
)
def test_doubts_do_not_depend_on_the_place(before: int, text: bytes, doubts: bool) -> None:  # noqa: FBT001
    """Texts are looked through by eights and sixteens; strings are passed over."""
    assert nesting.doubtful(b'{"' + b"x" * before + text) == doubts


def test_an_array_of_texts_keeps_its_tombstones() -> None:
    """And what the compiled code does not take is asked of the function that is given."""
    made = json_text.Canonical().texts([b"1.0", None, b"1e3"], lambda text: b"asked " + text)

    assert made == [b"1", None, b"asked 1e3"]
    with pytest.raises(DecodeError, match=re.escape("JSON")):
        json_text.Canonical().texts([b"1", b"{"], canonical.canonical)


def test_a_copy_reads_what_the_first_one_does() -> None:
    """A run that is copied or sent elsewhere takes its rewriters along."""
    rows = row_images.Rows(("a", "b"), ("b",), before=True)
    event = b'{"op":"u","before":{"c":0,"b":1,"a":0},"after":{"c":2,"b":1,"a":1.0}}'
    for one in (copy.deepcopy(rows), pickle.loads(pickle.dumps(rows))):
        assert one.event(event) == (True, b'{"b":1}', b'{"a":1,"b":1}', b'{"a":0,"b":1}')
    assert copy.deepcopy(json_text.Canonical()).text(b"1.0") == b"1"


def test_columns_without_a_name_are_columns() -> None:
    """And what is no text is refused, not read."""
    assert row_images.Rows(None, ()).row(b'{"":1.0}') == b'{"":1}'
    for read in (json_text.Canonical().text, row_images.Rows(None, ()).event):
        with pytest.raises(TypeError):
            read(None)


def test_a_large_text_leaves_no_large_buffers() -> None:
    """The texts after it are read as before."""
    rewriter = json_text.Canonical()
    large = b"{" + b",".join(b'"%d":1' % at for at in range(400_000, 0, -1)) + b"}"

    assert rewriter.text(large) == canonical.canonical(large)
    assert rewriter.text(b'{"b":1,"a":2.0}') == b'{"a":2,"b":1}'
    assert rewriter.text(large) == canonical.canonical(large)


def test_a_finalizer_does_not_read_into_what_is_being_read() -> None:
    """It may run wherever Python data are made; its message is left to Python."""
    rows = row_images.Rows(None, ("a",))
    large = b'{"op":"c","after":{%b,"a":1}}' % b",".join(b'"c%d":1' % at for at in range(500))
    found = []

    class Finalized:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            found.append(rows.event(large))

    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            Finalized()
        thresholds = gc.get_threshold()
        gc.set_threshold(1)
        gc.enable()
        event = rows.event(b'{"op":"c","after":{"a":1,"b":[2]}}')
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()

    assert event == (False, b'{"a":1}', b'{"a":1,"b":[2]}', None)
