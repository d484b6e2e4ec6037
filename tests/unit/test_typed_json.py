"""What a JSON text is as a type, and what no type takes since it would be another value."""

import pytest

from ikebana.processor.linear.database import asked
from ikebana.processor.linear.typed_json import from_json, reads

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
        ['{"a":1,"b":["x"]}', '{"a":null,"b":null}'],
        ['{"a":1.5,"b":null}', '{"c":1}', "[1]", '{"a":1}'],
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

    assert [text for text in fitting if not reads(text, kind)] == []
    assert [text for text in others if reads(text, kind)] == []


@pytest.mark.parametrize("kind", FITTING)
def test_null_is_null_of_any_type(kind: str) -> None:
    """As SQL has it, and as JSON has it."""
    found = asked(f"SELECT {from_json('t', kind)} FROM (VALUES ('null'), (NULL)) AS v(t)")

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
    ((found,),) = asked(f"SELECT ({from_json('t', kind)})::VARCHAR FROM (SELECT ? AS t)", text)

    assert found == expected
