"""Joins of real data, all flights from New York, beside what DuckDB makes of the tables."""

import json
from collections import Counter
from datetime import datetime
from random import Random
from typing import Any, NamedTuple

import duckdb
import pandas as pd

from flights import departures
from ikebana import Output, Plan, Upsert
from ikebana.processor.cli import demo
from ikebana.processor.planning.joins.query import AsOfJoin, DeltaJoin, JoinInput
from support.dated_upserts import Play, dated

Table = Any
DAYS = "month == 1 and day <= 10"


def test_each_departure_has_the_weather_of_its_time() -> None:
    """As DuckDB's ASOF JOIN has it, of ten days whose first morning has no weather."""
    flights = demo.table("flights").query(DAYS)
    weather = demo.table("weather").query(f"{DAYS} and temp == temp and (day > 1 or hour > 8)")
    join = AsOfJoin(
        "departed",
        JoinInput("d", "departures"),
        JoinInput("w", "weather"),
        ("d.origin = w.origin",),
        (("temp", "w.temp"), ("wind", "w.wind_speed")),
        outer=True,
    )
    plan = Plan(
        "p",
        (
            dated("departures", "origin VARCHAR"),
            dated("weather", "origin VARCHAR", "temp DOUBLE", "wind_speed DOUBLE"),
        ),
        (Upsert("departures", "departures"), Upsert("weather", "weather"), join),
        (Output("o", "departed", "o"),),
    )
    said = [
        (round(message.time.timestamp() * 1000), "departures", message.key, message.value)
        for message in departures(flights)
        if json.loads(message.value)["departed"]
    ]
    for row in weather.itertuples():
        at = round(datetime.fromisoformat(row.time_hour).timestamp() * 1000)
        wind = {"origin": row.origin, "temp": row.temp, "wind_speed": _known(row.wind_speed)}
        key = json.dumps(row.origin).encode()
        said.append((at, "weather", key, json.dumps(wind).encode()))
    said.sort(key=lambda each: each[0])
    play = Play(plan, shards=2, most=3)
    for number, (at, topic, key, value) in enumerate(said):
        play.say(topic, key, value, at)
        if number % 4_000 == 0:
            play.run.batch()
    last = said[-1][0]
    play.close(last + 1)

    expected = duckdb.sql(
        """
        SELECT strftime(make_date(year, month, day), '%Y-%m-%d') || ' ' || carrier || flight
                || ' ' || d.origin,
            w.temp, w.wind_speed, epoch_ms(d.departed)
        FROM (
            SELECT *, time_hour::TIMESTAMPTZ + to_minutes((minute + dep_delay)::BIGINT) AS departed
            FROM flights WHERE dep_time IS NOT NULL AND NOT isnan(dep_time)
        ) AS d
        ASOF LEFT JOIN (SELECT origin, temp, wind_speed, time_hour::TIMESTAMPTZ AS at FROM weather)
            AS w ON d.origin = w.origin AND d.departed >= w.at
        """
    ).fetchall()
    assert play.errors() == []
    found = [(key, _known(t), _known(w), at) for key, t, w, at, _ in play.updates("o")]
    assert len(found) > 8_000
    assert any(temp is None for _, temp, _, _ in found)
    assert Counter(found) == Counter((k, t, _known(w), at) for k, t, w, at in expected)


def _known(number: Any) -> float | None:
    return None if number is None or number != number else float(number)


class Change(NamedTuple):
    """What a table says of a key at a time; None: it is gone."""

    time: int
    table: str
    key: str
    row: dict[str, Any] | None


TABLES = {
    "flights": (("carrier", "tailnum", "origin", "dest"), "id"),
    "planes": (("tailnum", "model", "seats"), "tailnum"),
    "airlines": (("carrier", "name"), "carrier"),
    "airports": (("faa", "name", "alt"), "faa"),
}
TYPES = {"seats": "BIGINT", "alt": "BIGINT"}
END = 100


def changes(tables: dict[str, Table], choice: Random) -> list[Change]:
    """Rows that come, most of them early; then some change their columns, and some go."""
    found = []
    for name, (columns, key) in TABLES.items():
        rows = json.loads(tables[name][[*{*columns, key}]].to_json(orient="records"))
        for row in rows:
            at = choice.randrange(END // 2)
            of, own = row[key], {column: row[column] for column in columns}
            found.append(Change(at, name, of, own))
            for _ in range(choice.choice([0, 0, 0, 1, 2])):
                at = choice.randrange(at, END)
                other = choice.choice(rows)
                own = {**own, columns[-1]: other[columns[-1]]}
                gone = choice.random() < 0.3
                found.append(Change(at, name, of, None if gone else own))
    # Of equal times the order is kept, in which a key's rows were made.
    return sorted(found, key=lambda change: change.time)


JOINED = """
    SELECT f.id, p.model, p.seats, l.name, a.name, a.alt
    FROM flights AS f
    JOIN planes AS p ON f.tailnum = p.tailnum
    JOIN airlines AS l ON f.carrier = l.carrier
    JOIN airports AS a ON f.dest = a.faa
    WHERE p.seats > 20
"""


def held(said: list[Change], time: int) -> Any:
    """DuckDB with the tables as they are at a time."""
    database = duckdb.connect()
    for name, (columns, _) in TABLES.items():
        rows: dict[str, dict[str, Any]] = {}
        for change in said:
            if change.time <= time and change.table == name:
                rows.pop(change.key, None)
                if change.row is not None:
                    rows[change.key] = change.row
        made = [(key, *row.values()) for key, row in rows.items()]
        database.register(name, pd.DataFrame(made, columns=["id", *columns]))
    return database


def test_flights_with_their_planes_airlines_and_airports() -> None:
    """With updates and deletes on every table, at the end and at times in the middle."""
    flights = demo.table("flights").query("month == 6 and day <= 2").reset_index()
    tables = {
        "flights": flights.assign(id=flights.index.astype(str)),
        "planes": demo.table("planes").query("tailnum in @flights.tailnum"),
        "airlines": demo.table("airlines"),
        "airports": demo.table("airports").query("faa in @flights.dest"),
    }
    join = DeltaJoin(
        "known",
        (
            JoinInput("f", "flights"),
            JoinInput("p", "planes"),
            JoinInput("l", "airlines"),
            JoinInput("a", "airports"),
        ),
        (
            "f.tailnum = p.tailnum AND f.carrier = l.carrier AND f.dest = a.faa",
            "p.seats > 20",
        ),
        (
            ("c1", "p.model"),
            ("c2", "p.seats"),
            ("c3", "l.name"),
            ("c4", "a.name"),
            ("c5", "a.alt"),
        ),
    )
    inputs = tuple(
        dated(name, *(f"{column} {TYPES.get(column, 'VARCHAR')}" for column in columns))
        for name, (columns, _) in TABLES.items()
    )
    upserts = (Upsert(name, name) for name in TABLES)
    play = Play(
        Plan("p", inputs, (*upserts, join), (Output("o", "known", "o"),)), shards=2, most=3
    )
    choice = Random(1)
    said = changes(tables, choice)
    for at, name, key, row in said:
        play.say(name, key, row, at)
        if choice.random() < 0.002:
            play.run.batch()
    play.close(END)

    assert play.errors() == []
    for time in (END // 3, 2 * END // 3, END - 1):
        expected = Counter(held(said, time).sql(JOINED).fetchall())
        assert len(expected) > 100
        assert play.shown("o", time) == expected
