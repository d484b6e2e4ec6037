"""Updates out as upserts: one message a key and time, which make the collection again."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana import Update, accumulate
from ikebana.codecs.cdcv2 import Fact
from ikebana.codecs.output_messages import Violation, to_upserts, violation_record

A, B, C = b'"a"', b'"b"', b'"c"'


@pytest.mark.parametrize(
    ("updates", "messages"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([(b"1", A, 7, 1)], [(b"1", A, 7)], id="new key"),
        pytest.param([(b"1", A, 7, -1)], [(b"1", None, 7)], id="tombstone"),
        pytest.param([(b"1", A, 7, -1), (b"1", B, 7, 1)], [(b"1", B, 7)], id="replaced"),
        pytest.param([(b"1", B, 7, 1), (b"1", A, 7, -1)], [(b"1", B, 7)], id="in any order"),
        pytest.param([(b"1", A, 7, -1), (b"1", A, 7, 1)], [], id="unchanged"),
        pytest.param(
            [(b"1", A, 7, 1), (b"1", A, 7, -1), (b"1", B, 7, 1)], [(b"1", B, 7)], id="cancelled"
        ),
        pytest.param(
            [(b"1", A, 7, 2), (b"1", A, 7, -1)], [(b"1", A, 7)], id="consolidated to one"
        ),
        pytest.param([(b"1", b"null", 7, 1)], [(b"1", b"null", 7)], id="null is a value"),
        pytest.param([(b"", b"", 7, 1)], [(b"", b"", 7)], id="no bytes are a key and a value"),
        pytest.param(
            [(b"2", A, 8, 1), (b"1", A, 8, -1), (b"1", A, 7, 1), (b"2", A, 9, -1)],
            [(b"1", A, 7), (b"1", None, 8), (b"2", A, 8), (b"2", None, 9)],
            id="by time and key",
        ),
    ],
)
def test_updates_become_the_final_value(
    updates: Sequence[Fact], messages: Sequence[tuple[bytes, bytes | None, int]]
) -> None:
    """The value or a tombstone, with its time in a header; nothing where nothing changed."""
    expected = [(key, value, [("time", b"%d" % time)]) for key, value, time in messages]

    assert to_upserts(updates) == (expected, [])


@pytest.mark.parametrize(
    ("updates", "reason"),
    [
        pytest.param(
            [(b"1", A, 7, 1), (b"1", B, 7, 1)], "more than one value comes", id="two come"
        ),
        pytest.param(
            [(b"1", A, 7, 1), (b"1", B, 7, 1), (b"1", C, 7, -1)],
            "more than one value comes",
            id="two for one",
        ),
        pytest.param([(b"1", A, 7, -1), (b"1", B, 7, -1)], "more than one value goes", id="go"),
        pytest.param(
            [(b"1", A, 7, -1), (b"1", B, 7, -1), (b"1", C, 7, 1)],
            "more than one value goes",
            id="one for two",
        ),
        pytest.param([(b"1", A, 7, 2)], "a value comes or goes more than once", id="twice"),
        pytest.param([(b"1", A, 7, -2)], "a value comes or goes more than once", id="twice gone"),
        pytest.param(
            [(b"1", A, 7, -1), (b"1", B, 7, 2)], "a value comes or goes more than once", id="two"
        ),
        pytest.param([(None, A, 7, 1)], "there is no key", id="no key"),
    ],
)
def test_a_key_with_more_than_one_value_is_a_violation(
    updates: Sequence[Fact], reason: str
) -> None:
    """It gets no message at this time; other keys and times do."""
    messages, violations = to_upserts([(b"0", A, 7, 1), *updates, (b"1", C, 8, 1)])

    assert violations == [(updates[0][0], 7, reason)]
    assert [message[:2] for message in messages] == [(b"0", A), (b"1", C)]


def test_the_error_record_names_output_time_and_key() -> None:
    """The key is in base64, since it may be any bytes; there is no value."""
    record = violation_record("people", Violation(b"\xff", 7, "more than one value comes"))

    assert json.loads(record) == {
        "reason": "output people at time 7: more than one value comes",
        "topic": None,
        "partition": None,
        "offset": None,
        "key": "/w==",
        "value": None,
    }
    assert json.loads(violation_record("people", Violation(None, 7, "")))["key"] is None


@st.composite
def upsert_collections(draw: st.DrawFn) -> list[Fact]:
    """Updates of a collection with one value a key, in disorder, some of them for nothing."""
    keys, values = st.sampled_from([b"1", b"2", b"3"]), st.sampled_from([A, B, C])
    upsert = st.tuples(st.integers(0, 6), keys, st.one_of(st.none(), values))
    current: dict[bytes, bytes] = {}
    updates: list[Fact] = []
    for time, key, value in sorted(draw(st.lists(upsert, max_size=16)), key=lambda one: one[0]):
        if key in current:
            updates.append((key, current.pop(key), time, -1))
        if value is not None:
            updates.append((key, value, time, 1))
            current[key] = value
    for key, value, time in draw(st.lists(st.tuples(keys, values, st.integers(0, 6)), max_size=3)):
        updates += [(key, value, time, 1), (key, value, time, -1)]
    return draw(st.permutations(updates))


def collection_at(updates: Sequence[Fact], time: int) -> dict[bytes, bytes]:
    """The values by key, which are one each."""
    found = accumulate((Update((key, value), at, diff) for key, value, at, diff in updates), time)
    assert set(found.values()) <= {1}
    return {key: value for key, value in found if key is not None}


@given(upsert_collections())
def test_upserts_applied_in_order_make_the_collection_at_every_time(updates: list[Fact]) -> None:
    """And each of them changes something."""
    messages, violations = to_upserts(updates)
    current: dict[bytes, bytes] = {}
    left = [(int(message.headers[0][1]), message) for message in messages]
    for time in range(-1, 8):
        changed = set()
        while left and left[0][0] == time:
            _, (key, value, _headers) = left.pop(0)
            assert key is not None
            assert current.get(key) != value
            changed.add(key)
            if value is None:
                del current[key]
            else:
                current[key] = value

        before, now = collection_at(updates, time - 1), collection_at(updates, time)
        assert current == now
        assert changed == {key for key in before | now if before.get(key) != now.get(key)}
    assert not left
    assert violations == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, b"1", b"2"]),
            st.sampled_from([A, B]),
            st.integers(0, 2),
            st.integers(-2, 2).filter(bool),
        ),
        max_size=12,
    ),
    st.data(),
)
def test_order_of_updates_does_not_matter(updates: list[Fact], data: st.DataObject) -> None:
    """What is written is a function of the consolidated updates."""
    assert to_upserts(updates) == to_upserts(data.draw(st.permutations(updates)))
