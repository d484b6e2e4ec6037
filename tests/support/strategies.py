"""Hypothesis strategies that tests share: messages, upserts, histories, cuts, JSON."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from hypothesis import settings
from hypothesis import strategies as st

from support.upsert_oracle import NULL, BadValue, FailedValue, KeyedUpsert, PartialValue

Item = TypeVar("Item")

# How long an example takes says more of the machine than of the code.
unhurried = settings(deadline=None)
# Those that play whole pipelines, with statements of their own to compile, or have many cases.
few = settings(deadline=None, max_examples=max(8, settings().max_examples // 3))

# Each message with its canonical bytes, written by hand: the codec is on trial too.
CANONICAL: dict[bytes, bytes] = {
    b'"frank"': b'"frank"',
    b'"fr\\u0061nk"': b'"frank"',
    b'""': b'""',
    b"null": b"null",
    b"1": b"1",
    b"1.0": b"1",
    b"10e-1": b"1",
    b"true": b"true",
    b'"1"': b'"1"',
    b"{}": b"{}",
    b'{"b": {"y": 1, "x": []}, "a": null}': b'{"a":null,"b":{"x":[],"y":1}}',
    b'{"a":null,"b":{"x":[],"y":1.0}}': b'{"a":null,"b":{"x":[],"y":1}}',
    b'{"b":{"x":[],"y":1}}': b'{"b":{"x":[],"y":1}}',
}
UNREADABLE = (b"", b"{", b'"\xff"', b"oz")

good_messages = st.sampled_from(sorted(CANONICAL))
bad_messages = st.sampled_from(UNREADABLE)
# Few keys, so that they meet often.
key_messages = st.one_of(
    st.sampled_from([b'"frank"', b'"fr\\u0061nk"', b"1", b"1.0", b"true", b"null"]),
    st.sampled_from([None, b"{"]),
)
value_messages = st.one_of(st.none(), bad_messages, good_messages, good_messages)


# What a key may have had; few values, so that they meet often.
kept_values = st.sampled_from([b"", b"7", b'{"a":1}', b'{"a":1,"b":2}', b'{"a":3}'])
_rows = st.sampled_from([b"7", b'{"a":1}', b'{"a":1,"b":2}', b'{"a":3}', b'{"b":2}'])
_unusable: st.SearchStrategy[BadValue | FailedValue] = st.one_of(
    st.just(BadValue(b"record")), st.just(FailedValue(b"record"))
)
_partial = st.builds(
    lambda partial: PartialValue(partial[0], partial[1], b"record"),
    st.sampled_from(
        [(b'{"a":3}', ("b",)), (b"{}", ("a", "b")), (b'{"b":2}', ("a", "c")), (b'{"b":5}', ())]
    ),
)
# All that a message can say of a key: of values as they are, and of rows.
plain_values = st.one_of(kept_values, kept_values, st.none(), _unusable)
row_values = st.one_of(_rows, _rows, st.none(), _unusable, _partial, _partial, _partial, _partial)


class Arrival(NamedTuple):
    """Messages that arrive together, and the frontier that is reached with them."""

    records: list[tuple[bytes | None, bytes | None, int]]
    upper: int


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    """Messages cut into batches; none is older than the frontier that it meets."""
    frontier, found = 0, []
    arriving = st.lists(st.tuples(key_messages, value_messages, st.integers(0, 4)), max_size=8)
    for records, step in draw(st.lists(st.tuples(arriving, st.integers(0, 3)), max_size=8)):
        timed = [(key, value, frontier + delay) for key, value, delay in records]
        frontier += step
        found.append(Arrival(timed, frontier))
    return found


def history_of(batches: Sequence[Arrival]) -> list[KeyedUpsert]:
    """What the messages say, in the order in which they arrive; records are numbers."""
    records = [record for batch in batches for record in batch.records]
    found = []
    for number, (key, value, time) in enumerate(records):
        bad = BadValue(b"%d" % number)
        if key is None:
            # All that have no key share a slot, which one without a value empties.
            found.append(KeyedUpsert(NULL, None if value is None else bad, time))
        elif key not in CANONICAL:
            found.append(KeyedUpsert(None, bad, time))
        else:
            known = None if value is None else CANONICAL.get(value, bad)
            found.append(KeyedUpsert(CANONICAL[key], known, time))
    return found


@st.composite
def cuts(draw: st.DrawFn, items: Sequence[Item]) -> list[Sequence[Item]]:
    """A sequence cut into consecutive pieces, some of them empty."""
    places = sorted(draw(st.lists(st.integers(0, len(items)), max_size=4)))
    return [
        items[start:end] for start, end in zip([0, *places], [*places, len(items)], strict=True)
    ]


class Number(NamedTuple):
    """A JSON number as it is written."""

    text: str


def numbers() -> st.SearchStrategy[Number]:
    """Numbers in all spellings, many of them of equal value."""
    digits = st.text("0123456789", max_size=24)
    few = st.sampled_from(["", "0", "00", "1", "10", "5"])
    exponent = st.one_of(
        st.just(""),
        st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), few),
        st.builds("e{}".format, st.integers(-330, 320)),
    ).filter(lambda text: text == "" or text[-1].isdigit())
    whole = st.one_of(
        st.sampled_from(["0", "1", "10", "100"]),
        st.integers(0, 10**22).map(str),
        st.builds("1{}".format, st.integers(0, 320).map(lambda n: "0" * n)),
    )
    fraction = st.one_of(st.just(""), st.builds(".{}{}".format, few, digits))
    return st.builds(
        lambda sign, whole, fraction, exponent: Number(sign + whole + fraction + exponent),
        st.sampled_from(["", "-"]),
        whole,
        fraction.filter(lambda text: text != "."),
        exponent,
    )


def strings() -> st.SearchStrategy[str]:
    """Text without lone surrogates, which UTF-8 cannot carry."""
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


def json_data() -> st.SearchStrategy[Any]:
    """JSON data whose numbers are `Number`s, so that `written` can spell them."""
    leaves = st.one_of(st.none(), st.booleans(), numbers(), strings())
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(strings(), inner, max_size=4)
        ),
        max_leaves=8,
    )


def written(data: Any) -> bytes:
    """A message that says `data`, each number as it was spelt."""
    if isinstance(data, Number):
        return data.text.encode()
    if isinstance(data, list):
        return b"[" + b", ".join(written(item) for item in data) + b"]"
    if isinstance(data, dict):
        fields = [json.dumps(name).encode() + b": " + written(of) for name, of in data.items()]
        return b"{" + b",".join(fields) + b"}"
    return json.dumps(data).encode()
