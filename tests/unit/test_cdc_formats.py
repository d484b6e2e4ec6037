"""What holds of every format whose messages alone tell of a row."""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ikebana.codecs import canonical
from ikebana.codecs.canal import Canal
from ikebana.codecs.change import Change, Codec, Ignored, Needs
from ikebana.codecs.dms import Dms
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.goldengate import GoldenGate
from ikebana.codecs.maxwell import Maxwell
from support.damaged_messages import MARKER, damaged
from support.golden_messages import golden, refusal_of
from support.strategies import unhurried


class Format(NamedTuple):
    """A codec, its stored messages, what is wanted of them, and their column of names."""

    name: str
    codec: Callable[[Needs], Codec]
    messages: dict[str, bytes]
    wanted: Needs
    others: list[Needs]
    column: str = "name"


THREE = ("id", "name", "note")
CANAL = Format(
    "Canal",
    Canal,
    golden("canal"),
    Needs(columns=("id", "name"), key=("id",), before=True),
    [
        Needs(),
        Needs(columns=("big", "photo"), tables="shop.*", options={"row_image": "minimal"}),
    ],
)
DMS = Format(
    "DMS",
    Dms,
    golden("dms"),
    Needs(columns=THREE, key=("id",), before=True),
    [
        Needs(),
        Needs(
            columns=("name",),
            key=("id",),
            before=True,
            tables="shop.*",
            options={"before_prefix": "BI_"},
        ),
    ],
)
GOLDEN_GATE = Format(
    "GoldenGate",
    GoldenGate,
    golden("goldengate"),
    Needs(columns=("ID", "NAME", "NOTE"), key=("ID",), before=True),
    [
        Needs(before=True),
        Needs(columns=("NAME",), tables=r"SHOP\..*", options={"row_image": "full"}),
    ],
    column="NAME",
)
MAXWELL = Format(
    "Maxwell",
    Maxwell,
    golden("maxwell"),
    Needs(columns=THREE, key=("id",), before=True),
    [Needs(), Needs(columns=THREE, tables="shop.*", options={"row_image": "minimal"})],
)
each = pytest.mark.parametrize(
    "form", [pytest.param(form, id=form.name) for form in (CANAL, DMS, GOLDEN_GATE, MAXWELL)]
)


@each
def test_the_kafka_key_tells_nothing(form: Format) -> None:
    """It may be the table's name, a hash, or the new key of a row that has moved."""
    codec = form.codec(form.wanted)

    assert codec.key(b'{"id":1}') is None
    assert codec.key(b"\xff") is None
    assert codec.key(None) is None


@each
def test_a_null_message_is_a_tombstone(form: Format) -> None:
    """The format has none of its own; a compacted topic may."""
    assert form.codec(form.wanted).changes(b"1", None, None) == Ignored("tombstone")


@each
def test_a_message_cut_off_anywhere_is_refused(form: Format) -> None:
    """No beginning of a message is a message."""
    message = form.messages["insert"].rstrip()

    for length in range(len(message)):
        refusal_of(form.codec(form.wanted), form.name, message[:length])


@each
def test_a_value_may_be_long(form: Format) -> None:
    """Ten million bytes are a value like any other."""
    long = "x" * 10_000_000
    message = form.messages["insert"].replace(b"hunter2 Ann", long.encode())

    (change, *_) = form.codec(form.wanted).changes(None, message, None)

    assert isinstance(change, Change)
    assert change.after is not None
    assert json.loads(change.after)[form.column] == long


@each
@unhurried
@given(st.data())
def test_of_a_damaged_message_only_a_decode_error_leaves(
    form: Format, data: st.DataObject
) -> None:
    """Its reason has nothing of the message in it; what is decoded is canonical."""
    message = data.draw(damaged(form.messages.values()))
    wanted = data.draw(st.sampled_from([form.wanted, *form.others]))
    try:
        changes: Sequence[Change] | Ignored = form.codec(wanted).changes(None, message, None)
    except DecodeError as error:
        reason, written = str(error), [error.key]
    else:
        reason = ""
        written = [
            part
            for change in ([] if isinstance(changes, Ignored) else changes)
            for part in (change.key, change.after, change.before)
        ]

    assert MARKER not in reason
    for part in written:
        assert part is None or canonical.canonical(part) == part
