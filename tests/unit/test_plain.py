"""Tables as values: what Python has no date for is text, and so it is printed."""

from datetime import UTC, date, datetime
from math import inf, nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from ikebana.processor.cli.main import cli
from ikebana.serving.wire import rows_of

US, NS, UTC_US = pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("us", "UTC")
NOON = 1_709_208_000
MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (US, [NOON * 10**6, None], [datetime(2024, 2, 29, 12), None]),  # noqa: DTZ001
        (US, [MOST, -MOST, NOON * 10**6], ["infinity", "-infinity", datetime(2024, 2, 29, 12)]),  # noqa: DTZ001
        (US, [MOST - 1], ["294247-01-10T04:00:54.775806"]),
        (UTC_US, [NOON * 10**6, MOST - 1], None),
        (pa.timestamp("s"), [-62_135_596_801], ["0000-12-31T23:59:59"]),
        (pa.timestamp("ms"), [-62_135_596_800_001], ["0000-12-31T23:59:59.999"]),
        (NS, [NOON * 10**9 + 1], ["2024-02-29T12:00:00.000000001"]),
        (NS, [NOON * 10**9], [datetime(2024, 2, 29, 12)]),  # noqa: DTZ001
        (pa.date32(), [0, 2**31 - 1, 1 - 2**31], [date(1970, 1, 1), "infinity", "-infinity"]),
        (
            pa.list_(NS),
            [[NOON * 10**9 + 1, None], None],
            [["2024-02-29T12:00:00.000000001", None], None],
        ),
        (pa.struct({"a": US, "b": pa.int8()}), [{"a": MOST, "b": 1}], [{"a": "infinity", "b": 1}]),
        (pa.map_(pa.int8(), US), [[(1, MOST)]], [[(1, "infinity")]]),
        (pa.float64(), [1.5, inf, -inf, nan, None], [1.5, "Infinity", "-Infinity", "NaN", None]),
        (pa.float32(), [0.1, -inf, None], [0.1, "-Infinity", None]),
        (pa.list_(pa.float32()), [[0.5, nan], None], [[0.5, "NaN"], None]),
        (
            pa.struct({"a": pa.float64(), "t": US}),
            [{"a": inf, "t": None}],
            [{"a": "Infinity", "t": None}],
        ),
        (pa.map_(pa.string(), pa.float64()), [[("a", nan)]], [{"a": "NaN"}]),
    ],
)
def test_what_python_has_no_date_for_is_text(
    kind: pa.DataType, given: list[Any], expected: list[Any] | None
) -> None:
    """Alone: the other values of its column are what they are."""
    if expected is None:
        expected = [datetime(2024, 2, 29, 12, tzinfo=UTC), "294247-01-10T04:00:54.775806Z"]

    assert rows_of(pa.table({"t": pa.array(given, kind)})) == [[each] for each in expected]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("json", '{"t":"infinity","n":1,"d":"Infinity"}\n'),
        ("table", "infinity"),
        ("table", "Infinity"),
    ],
)
def test_a_query_prints_them(tmp_path: Path, output: str, expected: str) -> None:
    """In both forms."""
    query = "SELECT TIMESTAMP 'infinity' AS t, 1 AS n, 10 / 0 AS d"
    found = CliRunner().invoke(cli, ["sql", query, f"--data={tmp_path}", f"--output={output}"])

    assert found.exit_code == 0, found.exception
    assert expected in found.output
