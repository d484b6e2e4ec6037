"""What a JSON text is as a type, and what no type takes since it would be another value."""

from decimal import Decimal as D

import pytest

from ikebana.codecs.sql_type import parsed
from ikebana.processor.linear.database import rows_of
from ikebana.processor.linear.typed_json import fit, from_json
from ikebana.processor.topics.input_codec import misfits

# By type: texts that fit it, and texts that do not.
FITTING: dict[str, tuple[list[str], list[str]]] = {
    "BIGINT": (
        ["1", "-5", '"27"', "9223372036854775807"],
        [
            "27.5",
            "true",
            '"27.5"',
            '"x"',
            "[1]",
            "1e-7",
            "9223372036854775808",
            '"0x1F"',
            '"1_0"',
            '""',
            "{}",
        ],
    ),
    "TINYINT": (["127"], ["128"]),
    "HUGEINT": (["170141183460469231731687303715884105727"], ["1.5"]),
    "DOUBLE": (
        ["1.5", "1", "1e-7", '"1.5"', "0.12345678901234567890"],
        ["true", '"x"', '"1_0"', "[1]"],
    ),
    "DECIMAL(12,2)": (
        ["1.23", "5", '"1.50"', '"1.500"', "-1.2", "1234567890.12", '"1.5e1"'],
        ["1.239", "1e-7", '"1.239"', "true", "12345678901.5", "[1]", '"x"'],
    ),
    "DECIMAL(12,8)": (["1e-7", "1.5e-7", "0.00000015"], ["1e-9", "1.23e-8"]),
    "DECIMAL(38,38)": (["1e-7", "-1.5e-7", "9.9e-1", "0.5", "1e-38"], ["1e-39", "1", "1.5"]),
    "DECIMAL(38,10)": (["0.1234567891"], ["1E-310"]),
    "BOOLEAN": (["true", "false", "0", "1", '"true"'], ["2", '"x"', "1.5", "[true]"]),
    "DATE": (
        [
            '"2024-01-31"',
            '"2024-01-31T00:00:00"',
            '"infinity"',
            '"10000-01-01"',
            '"+10000-01-01"',
            '"-0043-03-15"',
            '"0044-03-15 (BC)"',
            '"2024-01-31T00:00:00Z"',
        ],
        ['"2024-01-31T10:00:00"', '"2024-02-31"', "5", "20240131", '"2024-01-31T00:00:00+02:00"'],
    ),
    "TIMESTAMP": (
        [
            '"2024-01-31T10:00:00"',
            '"2024-01-31T10:00:00+02:00"',
            '"2024-01-31 10:00:00.123456"',
            '"2024-01-31"',
            '"2024-01-31T10:00:00Z"',
            '"infinity"',
            '"2024-01-31T10:00:00.1234560"',
        ],
        ['"2024-01-31T10:00:00.1234567"', "1706695200000", '"x"'],
    ),
    "TIMESTAMP_S": (['"2024-01-31T10:00:00"'], ['"2024-01-31T10:00:00.5"']),
    "TIMESTAMP_MS": (['"2024-01-31T10:00:00.123"'], ['"2024-01-31T10:00:00.1234"']),
    "TIMESTAMP_NS": (
        ['"2024-01-31T10:00:00.123456789"', '"2024-01-31T10:00:00.123456789Z"', '"2024-01-31"'],
        ['"2024-01-31T10:00:00+02:00"'],
    ),
    "TIMESTAMP WITH TIME ZONE": (
        ['"2024-01-31T10:00:00+02:00"', '"2024-01-31T10:00:00"'],
        ['"2024-01-31T10:00:00.1234567Z"'],
    ),
    "TIME": (
        ['"10:00:00"', '"10:00:00.5"', '"24:00:00"', '"10:00:00Z"', '"10:00"'],
        ['"10:00:00+02"', "12", '"10:00:00.1234567"'],
    ),
    "TIME WITH TIME ZONE": (['"10:00:00+02"', '"10:00:00"'], ["12"]),
    "UUID": (
        ['"A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"'],
        ['"x"', "11111111111111111111111111111111"],
    ),
    "INTERVAL": (['"1 month 2 days"', '"01:00:00.5"'], ["5", '"x"']),
    "BLOB": (['"YWJj"', '""'], ['"YW"', "1234"]),
    "VARCHAR": (['"x"', "5", "[1]"], []),
    "BIGINT[]": (["[1,2,null]", "[]", '["5"]'], ["[1.5]", "[true]", "1", '{"a":1}']),
    "DECIMAL(38,20)[]": (["[0.12345678901234567890]"], ["[0.123456789012345678901]"]),
    "TIMESTAMP[]": (['["2024-01-31T10:00:00+02:00"]'], ["[5]"]),
    "BIGINT[2]": (["[1,2]"], ["[1]", "[1,2.5]"]),
    "STRUCT(a BIGINT, b VARCHAR[])": (
        ['{"a":1,"b":["x"]}', '{"a":null,"b":null}', '{"c":1}', '{"a":1}', "{}", '{"A":"x"}'],
        ['{"a":1.5,"b":null}', "[1]", "1", '"a"', "true", '{"b":{}}', '"{}"'],
    ),
    "STRUCT(a STRUCT(b BIGINT, c STRUCT(d BIGINT)))[]": (
        ["[]", "[null]", '[{"a":{"b":1,"x":1}},{"z":1},{"a":null}]', '[{"a":{"c":{"e":1}}}]'],
        ["[1]", '[{"a":{"b":1}},{"a":[]}]', '[{"a":{"c":{"d":"x"}}}]', '[{},{"a":{"c":5}}]'],
    ),
    "MAP(VARCHAR, STRUCT(a DECIMAL(4,2), b STRUCT(c DATE)[]))": (
        ['{"k":{"a":1.5}}', '{"k":{"z":1},"l":null}', '{"k":{"b":[{"x":1},null]}}'],
        ['{"k":{"a":1.555}}', '{"k":1}', '{"k":{"b":[{"c":"x"}]}}', '{"k":{"b":{"c":null}}}'],
    ),
    'STRUCT("a\'b" BIGINT, "c""d" BIGINT, "é" BIGINT)': (
        ['{"a\'b":1,"c\\"d":2,"é":3}', '{"x":1}'],
        ['{"a\'b":"x"}', '{"c\\"d":"x"}', '{"é":"x"}'],
    ),
    'STRUCT(a BIGINT[], "b c" STRUCT(d DATE))': (
        ['{"a":[1],"b c":{"d":"2024-01-01"}}'],
        ['{"b c":{"d":"2024-01-01T10:00:00"}}'],
    ),
    "MAP(VARCHAR, BIGINT)": (['{"a":1}', "{}"], ['{"a":1.5}', "[1]"]),
    "MAP(BIGINT, BIGINT)": (['{"1":1}'], ['{"a":1}', '{"1.5":1}']),
    "ENUM('z', 'a')": (['"z"'], ['"q"', "1"]),
    "ENUM('z', 'a')[]": (['["z"]'], ['["q"]']),
}


@pytest.mark.parametrize("kind", FITTING)
def test_a_type_takes_what_it_holds_without_loss(kind: str) -> None:
    """Nothing is rounded, cut off or made true, and no zone is dropped; nested types as well."""
    fitting, others = FITTING[kind]
    texts = [text.encode() for text in (*fitting, *others)]

    assert fit(texts, parsed(kind)) == [True] * len(fitting) + [False] * len(others)


@pytest.mark.parametrize(
    ("kind", "text", "path", "inner"),
    [
        ("BIGINT", '"x"', "", "BIGINT"),
        ("STRUCT(a BIGINT)", "[1]", "", "STRUCT(a BIGINT)"),
        ("STRUCT(id BIGINT, city VARCHAR)", '{"city":"x","id":"x"}', ".id", "BIGINT"),
        ('STRUCT("B c" STRUCT(d DATE))', '{"B c":{"d":5}}', '."B c".d', "DATE"),
        ("STRUCT(a BIGINT)[]", '[{"a":1},{"a":"x"},7]', "[2].a", "BIGINT"),
        ("STRUCT(a BIGINT)[]", "[null,7]", "[2]", "STRUCT(a BIGINT)"),
        ("BIGINT[2]", "[1]", "", "BIGINT[2]"),
        ("MAP(VARCHAR, STRUCT(a TIME))", '{"secret":{"a":"x"}}', "[…].a", "TIME"),
        ("STRUCT(a BIGINT, b DATE, c BIGINT)", '{"a":1,"b":"x","c":"x"}', ".c", "BIGINT"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(
    kind: str, text: str, path: str, inner: str
) -> None:
    """The innermost value that does not; keys of maps are data, and stay out of it."""
    found = misfits([text.encode(), text.encode()], parsed(kind))

    assert [(where, str(type_)) for where, type_ in found] == [(path, inner)] * 2


def test_a_field_that_is_not_there_is_null() -> None:
    """At any depth; numbers beside it keep all of their digits."""
    sql = from_json("t", "STRUCT(a BIGINT, b STRUCT(c DECIMAL(30,20), d JSON))[]")
    text = '[{"x":1,"b":{"c":1.00000000000000000001,"d":1.00000000000000000002,"e":1}},{}]'

    ((found,),) = rows_of(f"SELECT {sql} FROM (SELECT ? AS t)", text)

    assert found == [
        {"a": None, "b": {"c": D("1.00000000000000000001"), "d": "1.00000000000000000002"}},
        {"a": None, "b": None},
    ]


@pytest.mark.parametrize("kind", FITTING)
def test_null_is_null_of_any_type(kind: str) -> None:
    """As SQL has it, and as JSON has it."""
    found = rows_of(f"SELECT {from_json('t', kind)} FROM (VALUES ('null'), (NULL)) AS v(t)")

    assert found == [(None,), (None,)]


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ('"2024-01-01T00:00:00+02:00"', "TIMESTAMP", "2023-12-31 22:00:00"),
        ('"2024-01-01 00:00:00.5-0330"', "TIMESTAMP", "2024-01-01 03:30:00.5"),
        ('["2024-01-01T00:00:00+02:00"]', "TIMESTAMP[]", "['2023-12-31 22:00:00']"),
        ('"2024-01-01T00:00:00"', "TIMESTAMP WITH TIME ZONE", "2024-01-01 00:00:00+00"),
        ('"2024-01-31T00:00:00Z"', "DATE", "2024-01-31"),
        ('"27"', "BIGINT", "27"),
        ("1e-7", "DECIMAL(12,8)", "0.00000010"),
        ("[0.12345678901234567890]", "DECIMAL(38,20)[]", "[0.12345678901234567890]"),
        ('{"1":1}', "MAP(BIGINT, BIGINT)", "{1=1}"),
        ("0", "BOOLEAN", "false"),
    ],
)
def test_a_text_is_read_as_its_type(text: str, kind: str, expected: str) -> None:
    """A timestamp with an offset is that instant in UTC, a text that spells a number is it."""
    ((found,),) = rows_of(f"SELECT ({from_json('t', kind)})::VARCHAR FROM (SELECT ? AS t)", text)

    assert found == expected
