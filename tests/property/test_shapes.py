"""Objects of one shape have the canonical bytes that any JSON has."""

import random
import struct

from hypothesis import example, given
from hypothesis import strategies as st

from ikebana.codecs.canonical import canonical
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.shapes import Objects
from support.strategies import json_data, numbers, unhurried, written

# Texts of numbers as sources write them, near the limits of what is canonical as it stands.
NUMBER = rb"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?"
OTHERS = [b"0.0", b"-0", b"-0.0", b"1.50", b"0.0001", b"1e3", b"null", b'"1.5"', b"[1.0]"]
TEXTS = st.one_of(
    numbers().map(written), st.from_regex(NUMBER, fullmatch=True), st.sampled_from(OTHERS)
)
NAMES = ("b", "a", "é", "id", "f1")


def outcome(messages: list[bytes], decode: Objects | None) -> list[bytes] | str:
    """The canonical bytes of messages, or the reason why there are none."""
    try:
        return decode.canonical(messages) if decode else list(map(canonical, messages))
    except DecodeError as error:
        return error.reason


def of_texts(texts: tuple[bytes, ...]) -> bytes:
    """An object of the names and these values."""
    fields = zip(NAMES, texts, strict=True)
    return b"{" + b", ".join(b'"%b": %b' % (name.encode(), text) for name, text in fields) + b"}"


@unhurried
@given(st.lists(st.lists(st.tuples(*[TEXTS] * len(NAMES)), min_size=1, max_size=4), max_size=4))
def test_objects_of_one_shape_are_written_as_any_json(
    batches: list[list[tuple[bytes, ...]]],
) -> None:
    """Batch after batch, whatever the numbers are."""
    objects = Objects()
    for batch in batches:
        messages = list(map(of_texts, batch))
        assert outcome(messages, objects) == outcome(messages, None)


@unhurried
@given(st.lists(st.lists(json_data(), min_size=1, max_size=3), max_size=4))
def test_objects_of_many_shapes_are_written_as_any_json(batches: list[list[object]]) -> None:
    """And what is no object is, too."""
    objects = Objects()
    for batch in batches:
        messages = list(map(written, batch))
        assert outcome(messages, objects) == outcome(messages, None)


TWO = [b'{"a":1}{"a":2}', b'{"a":1}\n{"a":2}']
PARTS = [b'{"a":1}', b'{"a":', b"1}", b'{"a":1}}', b"{", b"}", b" ", b"\n", b'"', b",", *TWO]
SPLIT = st.sampled_from(PARTS)


@unhurried
@given(st.lists(st.lists(SPLIT, max_size=4).map(b"".join), min_size=1, max_size=5))
@example([b'{"a":1}\n{"a":2}', b'{"a":1}'])
@example([b'{"a":{"a":1}', b'{"a":1}}', b'{"a":1}{"a":2}'])
def test_no_object_reaches_from_a_message_into_the_next(messages: list[bytes]) -> None:
    """Damaged messages that would be whole if they were one are still damaged."""
    objects = Objects()
    objects.canonical([b'{"a":1}'])

    assert outcome(messages, objects) == outcome(messages, None)


def test_any_double_is_written_as_in_any_json() -> None:
    """Of 20,000 doubles of all magnitudes, in the forms of Python and of C."""
    draw = random.Random(1)
    doubles = [struct.unpack("<d", draw.randbytes(8))[0] for _ in range(5_000)]
    doubles += [draw.uniform(-(10**n), 10**n) for n in range(-8, 17) for _ in range(200)]
    texts = [form(x) for x in doubles if abs(x) < 1e300 for form in (repr, "{:.6f}".format)]
    messages = [b'{"a":%b,"b":1.5,"c":1.5}' % text.encode() for text in texts]
    objects = Objects()

    assert outcome(messages, objects) == outcome(messages, None)
