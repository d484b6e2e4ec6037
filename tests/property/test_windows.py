"""Windows of time in views and in YAML, against DuckDB's windows over all rows at every time."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ikebana as ik
from ikebana import evaluate
from ikebana.errors import ConfigError
from ikebana.processor.authoring import pipeline
from support.sql_oracle import Change, answer, plan_of, records_of, shown_at, tables_at
from support.time_windows import hopping, sessions

TABLES = {"t": {"a": "BIGINT", "ts": "TIMESTAMP", "n": "BIGINT"}}
TIMES = 4
MOMENTS = (
    *(None, "1969-12-31 23:58:00.500001"),
    *(f"2024-01-01 00:{minute:02}:00" for minute in range(0, 40, 3)),
)


TUMBLE = "tumble(t, ts, INTERVAL '10 minutes')"
HOP = "hop(t, ts, INTERVAL 5 MINUTE, INTERVAL 15 MINUTE)"
CASES = {
    TUMBLE: hopping("t", "ts", "10 minutes", "10 minutes"),
    HOP: hopping("t", "ts", "15 minutes", "5 minutes"),
    "hop(t, ts, INTERVAL 5 MINUTE, INTERVAL 12 MINUTE)": hopping(
        "t", "ts", "12 minutes", "5 minutes"
    ),
    "tumble(t, ts, INTERVAL '10 minutes', INTERVAL '-3 minutes')": hopping(
        "t", "ts", "10 minutes", "10 minutes", "-3 minutes"
    ),
    "hop(t, ts, INTERVAL 5 MINUTE, INTERVAL 12 MINUTE, INTERVAL 61 SECOND)": hopping(
        "t", "ts", "12 minutes", "5 minutes", "61 seconds"
    ),
    "session(t, ts, INTERVAL '5 minutes')": sessions("t", "ts", "5 minutes"),
    "session(t, ts, INTERVAL '5 minutes', a)": sessions("t", "ts", "5 minutes", "a"),
    "session(t, ts, INTERVAL '5 minutes', a, n)": sessions("t", "ts", "5 minutes", "a", "n"),
}
IN_YAML = {
    "{tumble: t, over: ts, size: 10m}": hopping("t", "ts", "10 minutes", "10 minutes"),
    "{hop: t, over: ts, size: 12m, every: 5m}": hopping("t", "ts", "12 minutes", "5 minutes"),
    "{tumble: t, over: ts, size: 10m, offset: 7m}": hopping(
        "t", "ts", "10 minutes", "10 minutes", "7 minutes"
    ),
    "{session: t, over: ts, gap: 5m, partition: a}": sessions("t", "ts", "5 minutes", "a"),
}


def history(choice: Random) -> dict[str, list[Change]]:
    """Rows of few keys that come, change and go."""
    changes: list[Change] = []
    for time in range(TIMES):
        for key in choice.sample(range(6), choice.randint(0, 4)):
            row = {
                "a": choice.choice([None, 1, 2]),
                "ts": choice.choice(MOMENTS),
                "n": choice.randint(0, 3),
            }
            changes.append((key, None if choice.random() < 0.25 else row, time))
    return {"t": changes}


@settings(max_examples=2, deadline=None)
@given(st.randoms(use_true_random=False))
@pytest.mark.parametrize("windows", CASES)
def test_rows_are_in_their_windows_at_every_time(windows: str, choice: Random) -> None:
    """Also where a late row joins two sessions, and where one that goes splits one."""
    changes = history(choice)
    queries = {
        "rows": "SELECT * FROM {} w",
        "groups": "SELECT a, window_start, window_end, count(*) AS c FROM {} w GROUP BY ALL",
    }
    made = {name: query.format(windows) for name, query in queries.items()}

    found = evaluate(plan_of(TABLES, made), records_of(changes), TIMES, shards=2)

    assert found["errors"] == []
    for name, query in queries.items():
        for time in range(TIMES):
            columns, expected = answer(
                TABLES, tables_at(changes, time), query.format(CASES[windows])
            )
            assert shown_at(found[name], columns, time) == expected, (time, changes)


def in_yaml(operator: str, folder: Path) -> pipeline.ConfiguredPlan:
    path = folder / "windows.yaml"
    path.write_text(
        f"""
pipeline: windows
inputs: {{t_changes: {{topic: t, columns: {{a: BIGINT, ts: TIMESTAMP, n: BIGINT}}}}}}
operators:
  t: {{upsert: t_changes}}
  out: {operator}
outputs: {{out: {{from: out, topic: out}}}}
kafka: {{bootstrap.servers: localhost:9092}}
run: {{checkpoint: ./checkpoint}}
"""
    )
    return pipeline.read(path, environ={})


@pytest.mark.parametrize("operator", IN_YAML)
def test_a_section_is_the_same(operator: str, tmp_path: Path) -> None:
    changes = history(Random(operator))

    found = evaluate(in_yaml(operator, tmp_path).plan, records_of(changes), TIMES)

    for time in range(TIMES):
        query = f"SELECT * FROM {IN_YAML[operator]}"
        columns, expected = answer(TABLES, tables_at(changes, time), query)
        assert shown_at(found["out"], columns, time) == expected


@pytest.mark.parametrize("windows", [TUMBLE, HOP, "session(t, ts, INTERVAL '5 minutes')"])
@pytest.mark.parametrize("kind", ["TIMESTAMP", "DATE"])
def test_an_infinite_time_is_in_a_window_that_begins_and_ends_there(
    windows: str, kind: str
) -> None:
    """As SQL's time_bucket has it; each end of time is one session."""
    ends = ("infinity", "-infinity", "infinity")
    changes = {"t": [(key, {"a": 1, "ts": ts, "n": 0}, 0) for key, ts in enumerate(ends)]}
    changes["t"].append((9, {"a": 1, "ts": "2024-01-01", "n": 0}, 0))
    tables = {"t": {**TABLES["t"], "ts": kind}}
    query = f"SELECT ts, window_start, window_end FROM {windows} w WHERE NOT isfinite(ts)"

    found = evaluate(plan_of(tables, {"view": query}), records_of(changes), 1)

    assert found["errors"] == []
    names = ["ts", "window_start", "window_end"]
    assert shown_at(found["view"], names, 0) == {
        ("infinity",) * 3: 2,
        ("-infinity",) * 3: 1,
    }


@pytest.mark.parametrize("day", ["2024-03-31", "1969-12-31"])
def test_the_last_nanoseconds_of_a_day_are_in_its_window(day: str) -> None:
    """As the greatest times of SQL Server's datetime2(7) are, which a cast would round up."""
    tables = {"t": {"ts": "TIMESTAMP_NS"}}
    query = "SELECT window_start AS day FROM tumble(t, ts, INTERVAL '1 day')"
    changes = {"t_changes": [(1, {"ts": f"{day} 23:59:59.9999999"}, 0)]}

    found = evaluate(plan_of(tables, {"view": query}), changes, 1)

    assert found["errors"] == []
    assert shown_at(found["view"], ["day"], 0) == {(f"{day} 00:00:00",): 1}


def minute(number: int) -> int:
    return number * 60_000


def updates_of(query: str, rows: Sequence[tuple[int, int]]) -> list[tuple[object, int, int]]:
    """The updates of a view over rows (key, minute), in event time."""
    shop = ik.Pipeline("shop")
    when = ik.event_time("ts", lateness=timedelta(minutes=3))
    columns = [ik.Column("ts", "TIMESTAMP")]
    shop.topic("t", columns=columns, event_time=when).upsert("t.rows")
    shop.sql(query, name="view").to("view")
    records = [(key, {"ts": f"1970-01-01T00:{at:02}:00"}, 0) for key, at in rows]
    return [(data[1], time, diff) for data, time, diff in shop.evaluate(t=records)["view"]]


def test_a_window_that_has_closed_is_told_once() -> None:
    """Whatever its rows were before; a window that is corrected is told at each change."""
    rows = [(1, 1), (2, 4), (3, 2), (4, 12), (5, 9), (6, 31)]
    counted = (
        "SELECT window_end, count(*) AS n FROM tumble(t, ts, INTERVAL '10 minutes') GROUP BY 1"
    )

    early = updates_of(counted, rows)
    closed = updates_of(f"SELECT n FROM ({counted}) w WHERE window_end <= ikebana_now()", rows)

    assert len([each for each in early if each[0]["window_end"].endswith("10:00")]) == 7  # type: ignore[index]
    assert closed == [
        ({"n": 4}, minute(10), 1),
        ({"n": 1}, minute(20), 1),
        ({"n": 1}, minute(40), 1),
    ]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT * FROM tumble(t, ts)", "tumble() is written as tumble(orders, placed, INTERVAL"),
        ("SELECT * FROM tumble(t, n, INTERVAL 1 DAY)", "must be a date or a timestamp; is BIGINT"),
        ("SELECT * FROM tumble(t, ts, INTERVAL 1 MONTH)", "must be an INTERVAL without months"),
        (
            "SELECT * FROM tumble(t, ts, INTERVAL 1 DAY, INTERVAL 1 MONTH)",
            "must be an INTERVAL without months",
        ),
        (
            "SELECT * FROM hop(t, ts, INTERVAL 1 DAY, INTERVAL 1 DAY, INTERVAL 1 DAY, a)",
            "hop() is written as hop(orders, placed, INTERVAL",
        ),
        ("SELECT * FROM tumble(t, ts, a)", "must be an INTERVAL without months"),
        ("SELECT * FROM hop(t, ts, INTERVAL 2 DAY, INTERVAL 1 DAY)", "leave rows out"),
        ("SELECT * FROM session(t, ts, INTERVAL 1 DAY, b)", 'there is no column "b"'),
        ("SELECT * FROM session((SELECT 1), ts, INTERVAL 1 DAY)", "make a view of the query"),
        ("SELECT * FROM tumble(no, ts, INTERVAL 1 DAY)", 'there is no input or operator "no"'),
    ],
)
def test_what_is_no_window_is_refused_with_its_place(query: str, told: str) -> None:
    shop = ik.Pipeline("shop")
    shop.topic("t", columns=[ik.Column(*each) for each in TABLES["t"].items()]).upsert()

    with pytest.raises(ConfigError) as refused:
        shop.sql(query, name="view")

    assert told in str(refused.value)
    assert "line 1, column 15" in str(refused.value)
