"""Updates out as Debezium envelopes: what comes and goes, in pairs where it is clear."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import canonical
from ikebana.codecs.cdcv2 import Fact, consolidate
from ikebana.codecs.change import Codec, Ignored, Needs
from ikebana.codecs.debezium_out import MOST_MESSAGES, EnvelopeOrigin, to_envelopes
from ikebana.codecs.output_messages import to_upserts

ORIGIN = EnvelopeOrigin("home", "people")
K1, K2 = b'{"id":1}', b'{"id":2}'
A, B, C = b'{"id":1,"n":"a"}', b'{"id":1,"n":"b"}', b'{"id":1,"n":"c"}'

# (key, before, after, op, time); a tombstone has no op.
Written = tuple[bytes | None, bytes | None, bytes | None, str | None, int]


def written(updates: Sequence[Fact], origin: EnvelopeOrigin = ORIGIN) -> list[Written]:
    """The messages of updates that have no violation, taken apart."""
    messages, violations = to_envelopes(updates, origin)
    assert violations == []
    found: list[Written] = []
    for key, value, headers in messages:
        time = int(dict(headers)["time"])
        envelope = json.loads(value or b'{"before":null,"after":null,"op":null}')
        before, after = (
            None if envelope[name] is None else canonical.encode(envelope[name])
            for name in ("before", "after")
        )
        found.append((key, before, after, envelope["op"], time))
    return found


def test_an_envelope_is_what_debezium_writes_without_a_schema() -> None:
    """Names are JSON strings, and the times are the logical time."""
    (message,), _ = to_envelopes(
        [(K1, A, 7, -1), (K1, B, 7, 1)], EnvelopeOrigin('say "hi"', "people")
    )

    assert message == (
        K1,
        b'{"before":{"id":1,"n":"a"},"after":{"id":1,"n":"b"},"source":{"connector":"ikebana",'
        b'"name":"say \\"hi\\"","ts_ms":7,"db":"say \\"hi\\"","table":"people"},'
        b'"op":"u","ts_ms":7}',
        [("time", b"7")],
    )


@pytest.mark.parametrize(
    ("updates", "messages"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([(K1, A, 7, 1)], [(K1, None, A, "c", 7)], id="create"),
        pytest.param(
            [(K1, A, 7, -1)], [(K1, A, None, "d", 7), (K1, None, None, None, 7)], id="delete"
        ),
        pytest.param([(K1, B, 7, 1), (K1, A, 7, -1)], [(K1, A, B, "u", 7)], id="update"),
        pytest.param([(K1, A, 7, 1), (K1, A, 7, -1)], [], id="cancelled"),
        pytest.param(
            [(K2, A, 7, 1), (K1, A, 7, -1)],
            [(K1, A, None, "d", 7), (K1, None, None, None, 7), (K2, None, A, "c", 7)],
            id="another key",
        ),
        pytest.param([(K1, A, 7, 3)], [(K1, None, A, "c", 7)] * 3, id="three times"),
        pytest.param(
            [(K1, A, 7, -2)],
            [(K1, A, None, "d", 7)] * 2 + [(K1, None, None, None, 7)],
            id="one tombstone for all",
        ),
        pytest.param(
            [(K1, C, 7, 1), (K1, B, 7, 1), (K1, A, 7, -1)],
            [(K1, A, None, "d", 7), (K1, None, B, "c", 7), (K1, None, C, "c", 7)],
            id="deletes before creates",
        ),
        pytest.param(
            [(None, B, 7, 1), (None, A, 7, -1)],
            [(None, A, None, "d", 7), (None, None, B, "c", 7)],
            id="without a key",
        ),
        pytest.param([(None, A, 7, -1)], [(None, A, None, "d", 7)], id="nothing to bury"),
        pytest.param(
            [(K1, A, 7, -2), (K1, B, 7, 2)],
            [(K1, A, None, "d", 7)] * 2 + [(K1, None, B, "c", 7)] * 2,
            id="two for two",
        ),
        pytest.param(
            [(K1, B, 9, 1), (K2, A, 8, 1), (K1, A, 9, -1), (K1, A, 8, 1)],
            [(K1, None, A, "c", 8), (K2, None, A, "c", 8), (K1, A, B, "u", 9)],
            id="by time and key",
        ),
    ],
)
def test_updates_become_envelopes(updates: Sequence[Fact], messages: list[Written]) -> None:
    """One goes and one comes is an update; everything else is deletes, then creates."""
    assert written(updates) == messages


def test_tombstones_can_be_left_out() -> None:
    """For a topic that is not compacted, or whose keys have more than one row."""
    origin = EnvelopeOrigin("home", "people", tombstones=False)

    assert written([(K1, A, 7, -1)], origin) == [(K1, A, None, "d", 7)]


@pytest.mark.parametrize("row", [b"null", b"1", b'"{}"', b"[{}]", b"true"])
def test_a_row_that_is_no_object_is_a_violation(row: bytes) -> None:
    """A row of null could not be told from none; other keys and times are written."""
    messages, violations = to_envelopes(
        [(K1, A, 7, -1), (K1, row, 7, 1), (K2, A, 7, 1), (K1, A, 8, 1)], ORIGIN
    )

    assert violations == [(K1, 7, "a value is no JSON object")]
    assert [message.key for message in messages] == [K2, K1]


facts = st.lists(
    st.tuples(
        st.sampled_from([None, K1, K2]),
        st.sampled_from([A, B, C]),
        st.integers(0, 3),
        st.integers(-3, 3).filter(bool),
    ),
    max_size=12,
)


@given(facts, st.data())
def test_befores_and_afters_are_the_updates(updates: list[Fact], data: st.DataObject) -> None:
    """-before +after gives the consolidated updates back, in one order for all."""
    messages = written(updates)
    read: list[Fact] = []
    for key, before, after, _, time in messages:
        read += [(key, before, time, -1)] if before is not None else []
        read += [(key, after, time, 1)] if after is not None else []

    assert sorted(consolidate(read), key=repr) == sorted(consolidate(updates), key=repr)
    assert written(data.draw(st.permutations(updates))) == messages
    for (key, *_, op, time), (next_key, *_, next_op, next_time) in pairwise(messages):
        assert time <= next_time
        if (key, time, op, next_op) == (next_key, next_time, "c", "d"):
            raise AssertionError("a create before a delete")


def decoder() -> Codec:
    """The codec that reads what Debezium writes, once there is one."""
    module: Any = pytest.importorskip("ikebana.codecs.debezium")
    codec: Codec = module.Debezium(Needs(key=("id",), before=True, tables="home.people"))
    return codec


upserts = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from([1, 2]), st.sampled_from([None, "a", "b"])),
    max_size=12,
).map(lambda found: sorted(found, key=lambda upsert: upsert[0]))


def test_the_debezium_codec_reads_back_the_same_upserts() -> None:
    """A round trip: `to_upserts` of the same updates says the same."""
    codec = decoder()

    @given(upserts)
    def reads_back(history: list[tuple[int, int, str | None]]) -> None:
        current: dict[int, bytes] = {}
        updates: list[Fact] = []
        for time, number, name in history:
            key = canonical.encode({"id": number})
            if (old := current.pop(number, None)) is not None:
                updates.append((key, old, time, -1))
            if name is not None:
                current[number] = canonical.encode({"id": number, "n": name})
                updates.append((key, current[number], time, 1))

        read = []
        for at, value, headers in to_envelopes(updates, ORIGIN)[0]:
            changes = codec.changes(at, value, headers)
            if not isinstance(changes, Ignored):
                read += [(change.key, change.after) for change in changes if value is not None]

        assert read == [message[:2] for message in to_upserts(updates)[0]]

    reads_back()


@pytest.mark.parametrize("key", [K1, None])
@pytest.mark.parametrize("diffs", [(2**63 - 1,), (-(2**62),), (MOST_MESSAGES // 2 + 1,) * 2])
def test_a_count_that_no_transaction_could_carry_is_a_violation(
    key: bytes | None, diffs: tuple[int, ...]
) -> None:
    """By key and time, and at once; what else there is at the time is written."""
    counted = [(key, row, 7, diff) for row, diff in zip((A, B), diffs, strict=False)]

    messages, (violation,) = to_envelopes([*counted, (K2, C, 7, 1)], ORIGIN)

    assert (violation.key, violation.time) == (key, 7)
    assert "more than 10000 times at once" in violation.reason
    assert [message.key for message in messages] == [K2]


def test_as_many_messages_as_may_be_are_written() -> None:
    """The limit itself is none too many."""
    messages, violations = to_envelopes([(None, A, 7, MOST_MESSAGES)], ORIGIN)

    assert (len(messages), violations) == (MOST_MESSAGES, [])
