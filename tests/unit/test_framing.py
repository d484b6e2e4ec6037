"""Where a message's schema id is: before the body, or in a header."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs.avro_schema import Framing, locate
from ikebana.codecs.errors import DecodeError

GUID = bytes(range(16))
GUID_TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f"


@pytest.mark.parametrize(
    ("framing", "message", "expected"),
    [
        pytest.param("confluent", "00 0000002a 3606", (42, 5), id="Confluent's four bytes"),
        pytest.param("confluent", "00 ffffffff", (2**32 - 1, 5), id="the greatest id"),
        pytest.param("confluent", "01" + GUID.hex() + "36", (GUID_TEXT, 17), id="a GUID"),
        pytest.param("apicurio", "00 000000000000002a 36", (42, 9), id="Apicurio's eight bytes"),
    ],
)
def test_an_id_stands_before_the_body(
    framing: Framing, message: str, expected: tuple[int | str, int]
) -> None:
    """The body begins right after the id, and may be empty."""
    assert locate(framing, "value", bytes.fromhex(message)) == expected


@pytest.mark.parametrize(
    ("framing", "headers", "expected"),
    [
        pytest.param("confluent", [("__value_schema_id", b"\1" + GUID)], GUID_TEXT, id="GUID"),
        pytest.param("headers", [("__value_schema_id", b"\0\0\0\0\7")], 7, id="id"),
        pytest.param(
            "headers", [("apicurio.value.contentId", b"\0" * 7 + b"\7")], 7, id="content"
        ),
        pytest.param("apicurio", [("apicurio.value.globalId", b"\0" * 7 + b"\7")], 7, id="global"),
        pytest.param(
            "headers",
            [
                ("trace", None),
                ("__value_schema_id", b"?"),
                ("__key_schema_id", b"?"),
                ("__value_schema_id", b"\0\0\0\0\7"),
            ],
            7,
            id="the last of several, among others",
        ),
    ],
)
def test_an_id_in_a_header_comes_first(
    framing: Framing, headers: Any, expected: int | str
) -> None:
    """The whole message is then the body, whatever it begins with."""
    assert locate(framing, "value", b"\0\0\0\0\1", headers) == (expected, 0)


@pytest.mark.parametrize(
    "headers", [None, [], [("__key_schema_id", b"\0\0\0\0\7")], [("x", None)]]
)
def test_headers_that_name_no_schema_of_this_part_are_no_matter(headers: Any) -> None:
    """A key's schema says nothing about the value."""
    assert locate("confluent", "value", b"\0\0\0\0\1", headers) == (1, 5)


@pytest.mark.parametrize(
    ("framing", "message", "headers", "reason"),
    [
        pytest.param("confluent", b"", None, "it is empty", id="empty"),
        pytest.param(
            "confluent", b"\0\0\0\0", None, "it is too short for a schema id", id="short"
        ),
        pytest.param("apicurio", b"\0" * 8, None, "it is too short for a schema id", id="short 8"),
        pytest.param("confluent", b"\1abc", None, "it is too short for a schema id", id="GUID"),
        *(
            pytest.param(
                framing, first, None, "it does not begin with the byte of a schema id", id=of
            )
            for framing, first, of in (
                ("confluent", b"{}   ", "JSON"),
                ("apicurio", b"\1" * 17, "a GUID of Confluent's"),
                ("confluent", b"\xff" * 9, "another byte"),
            )
        ),
        pytest.param("headers", b"\0\0\0\0\1", None, "no header names its schema", id="no header"),
        *(
            pytest.param(
                "confluent",
                b"",
                [("__value_schema_id", value)],
                'header "__value_schema_id" is no schema id',
                id=f"header {value!r}",
            )
            for value in (None, b"", "text", b"\1abc", b"\2" + GUID, b"\0" * 17)
        ),
        pytest.param(
            "apicurio",
            b"",
            [("apicurio.value.contentId", b"7")],
            'header "apicurio.value.contentId" is no schema id',
            id="no eight bytes",
        ),
        pytest.param(
            "confluent",
            b"",
            [("apicurio.value.globalId", b"\0" * 8)],
            'header "apicurio.value.globalId" is a global id: it needs framing apicurio',
            id="an id of another kind",
        ),
    ],
)
def test_a_message_without_an_id_is_refused(
    framing: Framing, message: bytes, headers: Any, reason: str
) -> None:
    """The reason says what is missing, not what is there instead."""
    with pytest.raises(DecodeError) as caught:
        locate(framing, "value", message, headers)

    assert (caught.value.codec, caught.value.reason) == ("Avro value", reason)


@given(st.sampled_from(["confluent", "apicurio", "headers"]), st.binary(max_size=30))
def test_any_bytes_have_an_id_or_are_refused(framing: Framing, message: bytes) -> None:
    """Nothing but DecodeError is raised, and a body begins within the message."""
    start = 0
    with contextlib.suppress(DecodeError):
        _, start = locate(framing, "key", message)

    assert start <= len(message)
