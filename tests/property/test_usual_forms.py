"""What a decoder knows of usual values is what SQL says of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ikebana import Column, Input
from ikebana.codecs import canonical
from ikebana.codecs.errors import DecodeError
from ikebana.codecs.sql_type import parsed
from ikebana.processor.linear.typed_json import fit
from ikebana.processor.topics.input_codec import ColumnTypes, Usual
from support.strategies import numbers, unhurried

# The types, each with a value that it takes.
KINDS = {
    **dict.fromkeys(("TINYINT", "BIGINT", "HUGEINT", "UBIGINT", "DOUBLE", "FLOAT"), "7"),
    **{"BOOLEAN": "true", "UUID": f'"{"0" * 8}-0000-0000-0000-{"f" * 12}"'},
    **{"DECIMAL(12,2)": "1.25", "DECIMAL(38,0)": "9", "DECIMAL(3,3)": "0.125"},
    **{"DATE": '"2024-02-29"', "TIME": '"12:30:59.5"', "TIMESTAMP": '"2024-02-29T12:30:59"'},
    **{"TIMESTAMP WITH TIME ZONE": '"2024-02-29T12:30:59Z"', "INTEGER[]": "[1]"},
    **{"DECIMAL(12,2)[]": "[1.25]", "MAP(VARCHAR, DECIMAL(3,3))": '{"a":0.125}'},
    "STRUCT(a BIGINT, b VARCHAR, c DECIMAL(12,2), d DATE, e BIGINT[])": (
        '{"a":1,"b":"x","c":1.25,"d":"2024-02-29","e":[2]}'
    ),
    "JSON[]": "[1]",
    "STRUCT(a STRUCT(b DECIMAL(12,2))[], c MAP(VARCHAR, DECIMAL(4,1)[]))": (
        '{"a":[{"b":1.25}],"c":{"k":[0.5]}}'
    ),
    "MAP(DATE, DATE)": '{"2024-02-29":"2024-02-29"}',
    'STRUCT("a""b" BIGINT, c BIGINT)': '{"a\\"b":1,"c":2}',
    "STRUCT(a JSON)[2]": '[{"a":1},{"a":"x"}]',
}
digits = st.sampled_from(
    [
        "00",
        "01",
        "02",
        "09",
        "12",
        "13",
        "19",
        "20",
        "23",
        "24",
        "28",
        "29",
        "30",
        "31",
        "59",
        "60",
        "99",
    ]
)
days = st.builds("{}{}-{}-{}".format, digits, digits, digits, digits)
times = st.builds(
    "{}:{}:{}{}{}".format,
    digits,
    digits,
    digits,
    st.sampled_from(["", ".5", ".123456", ".1234567"]),
    st.sampled_from(["", "Z", "+02:00", "-13:59", "+14:00", "+02:60"]),
)
texts = st.one_of(
    numbers().map(lambda number: number.text),
    st.sampled_from(["true", "false", "null", "[]", "[1]", "{}", '""', '"5"', '" 5"']),
    st.one_of(days, times, st.builds("{}T{}".format, days, times)).map('"{}"'.format),
    st.sampled_from([f'"{"0" * 8}-0000-0000-0000-{"f" * 12}"', f'"{"0" * 32}"']),
)
_names = st.sampled_from(['"a"', '"b"', '"c"', '"d"', '"e"', '"a\\"b"', '"2024-01-01"'])


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    fields = st.dictionaries(_names, inner, max_size=3)
    return st.one_of(
        st.lists(inner, max_size=2).map(lambda items: f"[{','.join(items)}]"),
        fields.map(lambda all_: "{" + ",".join(f"{n}:{v}" for n, v in all_.items()) + "}"),
    )


texts = st.one_of(texts, _nested(texts), st.recursive(texts, _nested, max_leaves=6))


def canonical_of(text: str) -> str | None:
    """The text in canonical form; None of what is none."""
    try:
        return canonical.canonical(text.encode()).decode()
    except DecodeError:
        return None


@pytest.mark.parametrize("kind", KINDS)
@settings(unhurried, max_examples=max(30, settings().max_examples // 3))
@given(st.lists(texts, min_size=1, max_size=3))
def test_rows_are_wrong_where_a_type_does_not_take_their_values(
    kind: str, written: list[str]
) -> None:
    """Neither the usual ones, which are not asked about, nor others, nor several together."""
    found = [text for each in written if (text := canonical_of(each)) is not None]
    types = ColumnTypes(Input("t", ("t",), columns=(Column("x", kind),)))
    rows = [b'{"a":{"x":[]},"x":%b}' % text.encode() for text in found]

    fitting = fit([text.encode() for text in found], parsed(kind))
    expected = [at for at, fits in enumerate(fitting) if not fits]

    assert sorted(types.wrong(rows)) == expected
    usual = Usual({"x": kind})
    assert not any(usual.takes([rows[at]]) for at in expected)


@pytest.mark.parametrize(("kind", "text"), KINDS.items())
def test_a_type_takes_values(kind: str, text: str) -> None:
    """A statement that fails for all values would refuse them wherever it is asked."""
    types = ColumnTypes(Input("t", ("t",), columns=(Column("x", kind),)))

    takes, takes_others = fit([text.encode(), b'{"no":"such"}'], parsed(kind))

    assert takes
    assert not takes_others or "STRUCT" in kind
    assert types.wrong([b'{"x":%b}' % text.encode()]) == {}
    assert list(types.wrong([b'{"x":5}', b'{"x":"no"}'])) != []
