"""`ikebana sql`: query served collections, or topics, in SQL as of a time."""

import functools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ikebana.errors import ConfigError
from ikebana.processor.cli import connection
from ikebana.processor.cli.connection import BROKERS, CONFIG, SERVED, client_settings
from ikebana.processor.cli.http_options import Credentials, with_credentials
from ikebana.processor.kafka import following, reading_rights

if TYPE_CHECKING:
    import pyarrow as pa

    from ikebana.serving.reads import Reads

# The attempts with local copies of topics, as a copy may be damaged.
_COPIES = 2
# The time to wait for a new server's first closed times.
_FIRST_S = 20.0
_AGAIN_S = 0.25


@click.command("sql")
@click.argument("query")
@click.argument("topics", metavar="[TOPIC...]", nargs=-1)
@click.option("--url", metavar="URL", help="Ask the `ikebana serve` there.")
@with_credentials
@click.option(
    "--data",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Read the folder that an `ikebana serve` writes.",
)
@click.option(
    "--as-of",
    type=connection.time,
    metavar="T",
    help="The time of all collections.  [default: the newest that all of them have]",
)
@click.option(
    "--output",
    type=click.Choice(["table", "json", "csv"]),
    help="json: an object a line.  [default: table on a terminal, else json]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(SERVED),
    default="diff",
    show_default=True,
    help="The format of all TOPICs.",
)
@BROKERS
@CONFIG
def sql_command(
    query: str,
    topics: tuple[str, ...],
    *,
    url: str | None,
    credentials: Credentials,
    data: Path | None,
    as_of: int | None,
    output: str | None,
    form: str,
    bootstrap_servers: str | None,
    config: Path | None,
) -> None:
    """Run QUERY, one SELECT over collections, all of them as of one time.

    \b
    ikebana sql "SELECT count(*) FROM totals"
    ikebana sql "SELECT * FROM totals WHERE product = 'tea'" --url http://127.0.0.1:8080

    Collections are in an `ikebana serve` (--url or --data), or they are output topics TOPIC...,
    by default the topics in FROM.  Topics are first read whole.  Each field of a key or
    value that is a JSON object is a column.
    """
    if url is None and data is None and not topics:
        topics = _named(query)
    if sum((url is not None, data is not None, bool(topics))) != 1:
        raise ConfigError(
            "cannot run the query: give one of --url, --data, and topics",
            hint="With none of them, the topics are those that the query names in FROM.",
        )
    if topics:
        settings = client_settings(bootstrap_servers, config)
        table = _of_topics(query, topics, form, settings, as_of)
    else:
        table = _served(query, url, credentials, data, as_of)
    _print(table, output or ("table" if sys.stdout.isatty() else "json"))


def _named(query: str) -> tuple[str, ...]:
    """Return the topics that a query names in FROM, and print a note about them."""
    # Imported here, so that `--help` does not wait for it.
    from ikebana.processor.base.log_lines import note
    from ikebana.processor.relational.sql import tables_of

    topics = tuple(dict.fromkeys(tables_of(query)))
    if topics:
        note(f"reading the topics that FROM names: {', '.join(topics)}")
    return topics


def _served(
    query: str, url: str | None, credentials: Credentials, data: Path | None, as_of: int | None
) -> "pa.Table":
    """Run the query over an `ikebana serve`.  Raises: CopyError, if its copy is damaged."""
    from ikebana.serving.service import CopyError

    with _reads(url, credentials, data) as reads:
        answer = _first_closed(lambda: _answer(reads, query, as_of))
        if as_of is None:
            _say_how_far(reads, query)
    if isinstance(answer, str):
        raise CopyError(
            f"cannot run the query: a local copy in {data} cannot be read: {answer}",
            hint="Ask again if `ikebana serve` is building it again; `ikebana serve --rebuild` "
            "builds all that it serves.",
        )
    return answer


def _say_how_far(reads: "Reads", query: str) -> None:
    """Note if a collection is behind others, which are then read as of its newest time.

    A collection that begins after that time is empty as of it.
    """
    from ikebana.processor.base.log_lines import note
    from ikebana.processor.base.texts import moment
    from ikebana.processor.relational.sql import tables_of

    named = set(tables_of(query))
    far = {each.name: each.upper for each in reads.collections() if each.name in named}
    times = sorted({upper for upper in far.values() if upper is not None})
    if len(times) > 1:
        behind = ", ".join(name for name, upper in far.items() if upper == times[0])
        ahead = ", ".join(name for name, upper in far.items() if upper != times[0])
        note(
            f"all are read as of {moment(times[0] - 1)}, the newest time of {behind}; "
            f"{ahead} may have newer rows"
        )


def _first_closed(answer: "Callable[[], pa.Table | str]") -> "pa.Table | str":
    """Answer as soon as a time is closed; note the wait, as a new server has none at first."""
    from ikebana.processor.base.log_lines import note
    from ikebana.serving.view import UnreadableTimeError

    deadline, said = time.monotonic() + _FIRST_S, False
    while True:
        try:
            return answer()
        except UnreadableTimeError as error:
            if error.upper is not None or time.monotonic() > deadline:
                raise
            if not said:
                note(f"{error.message}; waiting for {_FIRST_S:.0f} s at most")
            said = True
        time.sleep(_AGAIN_S)


@contextmanager
def _reads(url: str | None, credentials: Credentials, data: Path | None) -> Iterator["Reads"]:
    if url is not None:
        from ikebana.serving.client import connect

        with connect(url, token=credentials.token, tls=credentials.tls) as connected:
            yield connected
    else:
        from ikebana.serving import folder

        assert data is not None
        with folder.open(data) as opened:
            yield opened


def _answer(reads: "Reads", query: str, as_of: int | None) -> "pa.Table | str":
    """Run the query; if a local copy is damaged, return the error as text.

    A raised error would keep its frames, and with them open scans that lock the copy's folder.
    """
    # Imported here, so that `--help` does not wait for it.
    from ikebana.arrangements.rocks import LocalDamageError
    from ikebana.arrangements.shared_rocks import ClosedError

    try:
        return reads.sql(query, as_of=as_of)
    except (LocalDamageError, ClosedError) as error:
        return str(error)


def _of_topics(
    query: str, topics: Sequence[str], form: str, settings: dict[str, str], as_of: int | None
) -> "pa.Table":
    """Run the query over local copies of topics; damaged copies are made again once.

    Raises:
        CopyError: the second copies are damaged, too.
    """
    from ikebana.arrangements.rocks import LocalDamageError
    from ikebana.processor.base.log_lines import note
    from ikebana.serving.service import CopyError

    reading_rights.reach(settings, dict.fromkeys(topics, form))
    answer: pa.Table | str = ""
    for left in reversed(range(_COPIES)):
        try:
            with _copied(topics, form, settings, as_of) as reads:
                answer = _answer(reads, query, as_of)
                if as_of is None:
                    _say_how_far(reads, query)
        except LocalDamageError as error:
            answer = str(error)
        if not isinstance(answer, str):
            return answer
        if left:
            note(f"a local copy is damaged: {answer}; the topics are read again")
    raise CopyError(
        f"cannot run the query: local copies of the topics are damaged: {answer}",
        hint="Is the disk of the folder for temporary files sound? TMPDIR names another folder.",
    )


@contextmanager
def _copied(
    topics: Sequence[str], form: str, settings: dict[str, str], as_of: int | None
) -> Iterator["Reads"]:
    """Read topics up to their present frontiers, into a temporary folder."""
    from ikebana.processor.base.log_lines import note
    from ikebana.serving.arrangement import EVERYTHING
    from ikebana.serving.reads import LocalReads
    from ikebana.serving.service import Service, ServiceOptions

    with tempfile.TemporaryDirectory(prefix="ikebana-sql-") as folder:
        request = ServiceOptions(dict.fromkeys(topics, form), Path(folder), EVERYTHING)
        since = None if as_of is None else following.Since(lambda *_: as_of)
        open_topic = functools.partial(following.follow, settings, since=since)
        service = Service(request, open_topic, note)
        service.start()
        try:
            while any(service.progress(name).caught_up_s is None for name in service.names()):
                if service.failure is not None:
                    raise service.failure
                service.pause(0.1)
            yield LocalReads(service)
        finally:
            service.close()


def _print(table: "pa.Table", output: str) -> None:
    # Imported here, so that `--help` does not wait for it.
    from ikebana.serving.wire import rows_of

    match output:
        case "json":
            encode = msgspec.json.Encoder(decimal_format="number").encode
            for row in rows_of(table):
                named = dict(zip(table.column_names, row, strict=True))
                print(encode(named).decode())
        case "csv":
            print(_csv_text(table), end="")
        case _:
            print_table(table)


def print_table(result: "pa.Table") -> None:
    """Print a table with lines, as wide as the terminal."""
    # Imported here, so that `--help` does not wait for it.
    from ikebana.serving.wire import rows_of

    table = Table()
    for name in result.column_names:
        table.add_column(Text(name))
    for row in rows_of(result):
        table.add_row(*("" if each is None else Text(str(each)) for each in row))
    Console(highlight=False).print(table)


def _csv_text(table: "pa.Table") -> str:
    """Write a table as CSV with a header."""
    # Imported here, so that `--help` does not wait for it.
    import pyarrow as pa
    from pyarrow import csv

    from ikebana.serving.wire import flat_for_csv

    sink = pa.BufferOutputStream()
    csv.write_csv(flat_for_csv(table), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content.decode()
