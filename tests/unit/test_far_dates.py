"""Infinity, and years that Python's dates do not have, from change data to results."""

from typing import Any

import pytest

import ikebana as ik

DAY_MICROS = 86_400_000_000
COLUMNS = [
    ik.Column("d", "DATE", encoding="date"),
    ik.Column("ts", "TIMESTAMP", encoding="timestamp-micros"),
    ik.Column("z", "TIMESTAMP WITH TIME ZONE"),
]
# Messages as Debezium writes them for Postgres, and the values that SQL makes of them.
ROWS: dict[int, tuple[tuple[int, int, str], tuple[str, str, str]]] = {
    1: (
        (2**31 - 1, 9_223_372_036_825_200_000, "infinity"),
        ("infinity", "infinity", "infinity"),
    ),
    2: (
        (-(2**31), -9_223_372_036_832_400_000, "-infinity"),
        ("-infinity", "-infinity", "-infinity"),
    ),
    3: (
        (2_932_897, 2_932_897 * DAY_MICROS, "+10000-01-01T00:00:00Z"),
        ("10000-01-01", "10000-01-01T00:00:00", "10000-01-01T00:00:00Z"),
    ),
    4: (
        (-719_163, -719_163 * DAY_MICROS, "-0043-03-15T12:00:00.000000Z"),
        ("0000-12-31", "0000-12-31T00:00:00", "-0043-03-15T12:00:00Z"),
    ),
    5: (
        (19_753, 19_753 * DAY_MICROS, "2024-01-31T00:00:00Z"),
        ("2024-01-31", "2024-01-31T00:00:00", "2024-01-31T00:00:00Z"),
    ),
}


def records() -> list[Any]:
    names = [column.name for column in COLUMNS]
    return [
        ({"id": key}, {"op": "c", "after": dict(zip(names, values, strict=True))}, 0)
        for key, (values, _) in ROWS.items()
    ]


def read(pipeline: ik.Pipeline) -> ik.Collection[Any, Any]:
    return pipeline.topic("t", format="debezium-json", columns=COLUMNS).upsert()


def test_far_dates_are_values_of_their_types() -> None:
    pipeline = ik.Pipeline("p")
    read(pipeline).select("d", "ts", "z").to("out")

    found = pipeline.evaluate(t=records())

    assert found["errors"] == []
    assert {u.data[0]["id"]: tuple(u.data[1].values()) for u in found["out"]} == {
        key: values for key, (_, values) in ROWS.items()
    }


@pytest.mark.parametrize("name", [column.name for column in COLUMNS])
def test_far_dates_stand_in_the_order_of_time(name: str) -> None:
    """In aggregates as in an order, whose ends are infinite."""
    pipeline = ik.Pipeline("p")
    rows = read(pipeline)
    rows.reduce(by="1", all=f"list({name})", least=f"min({name})", last=f"max({name})").to("out")

    ((_, result), _, _) = pipeline.evaluate(t=records())["out"][-1]

    at = [column.name for column in COLUMNS].index(name)
    in_order = [ROWS[key][1][at] for key in (2, 4, 5, 3, 1)]
    assert result == {"all": in_order, "least": "-infinity", "last": "infinity"}
