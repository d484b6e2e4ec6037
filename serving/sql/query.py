"""Run a query over collections at one time, in a sandbox, with limits.

Each query has an in-memory database of its own.  The collections that it names are copied there;
then files, networks, extensions, Python's variables and settings are locked, and the query runs
with limits on its memory, its time and its result.
"""

import threading
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

import duckdb
import pyarrow as pa

from ikebana.serving.common_times import check_kinds, newest
from ikebana.serving.sql.parsed import SqlError, parsed
from ikebana.serving.sql.tables import LoadLimits, load
from ikebana.serving.view import CollectionView


class Limits(NamedTuple):
    """Limits of a query: seconds, bytes to read, bytes of memory, rows of the result.

    The memory limit also applies to the bytes of the result, which DuckDB does not count.  They
    are summed as they arrive, so the 2,048 rows that DuckDB makes at once may exceed the limit.
    """

    seconds: float = 30.0
    read_bytes: int = 256 << 20
    memory_bytes: int = 1 << 30
    rows: int = 100_000


class Result(NamedTuple):
    """The rows of a query, and the time as of which all its collections were read."""

    as_of: int | None
    table: pa.Table


_INTERRUPT_EVERY_S = 0.05
# The size of rows is only known when they arrive, so batches are small.
_BATCH_ROWS = 100
_CONFIG = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "threads": "2",
}


def run(
    text: str,
    view_of: Callable[[str], CollectionView],
    as_of: int | None = None,
    limits: Limits = Limits(),  # noqa: B008 - immutable
) -> Result:
    """Run one SELECT over the collections that it names, all as of one time.

    Raises:
        SqlError: it is refused, fails, or exceeds a limit.
        MixedTimesError: the times of its collections are of different kinds.
        UnknownCollectionError: it names a collection that is not there.
        UnreadableTimeError: a collection cannot be read as of the time.
    """
    begun = monotonic()
    query = parsed(text)
    views = [view_of(name) for name in query.tables]
    check_kinds(views)
    if views and as_of is None:
        as_of = newest(views)
    config = {**_CONFIG, "memory_limit": f"{limits.memory_bytes // (1 << 20)}MiB"}
    with duckdb.connect(":memory:", config=config) as database:
        database.execute("SET TimeZone = 'UTC'").fetchall()
        loading = LoadLimits(limits.read_bytes, begun + limits.seconds)
        for view in views:
            assert as_of is not None
            view.check(as_of)
            equalities = query.equalities.get(view.meta.topic)
            try:
                load(database, view, as_of, equalities, loading)
            except duckdb.Error as error:
                raise _failed(error) from error
        database.execute("SET lock_configuration = true")
        left = max(0.0, limits.seconds - (monotonic() - begun))
        return Result(as_of, _answer(database, text, left, limits))


def _answer(
    database: duckdb.DuckDBPyConnection, text: str, seconds: float, limits: Limits
) -> pa.Table:
    done, ended = threading.Event(), threading.Event()

    def end() -> None:
        wait = seconds
        # An interrupt that comes before DuckDB has begun has no effect, so it is repeated.
        while not done.wait(wait):
            ended.set()
            database.interrupt()
            wait = _INTERRUPT_EVERY_S

    timer = threading.Thread(target=end, daemon=True)
    timer.start()
    try:
        reader = database.sql(text).to_arrow_reader(_BATCH_ROWS)
        batches: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in reader:
            rows += batch.num_rows
            size += batch.nbytes
            if rows > limits.rows:
                raise SqlError(
                    f"the query gives more than {limits.rows:,} rows", hint="Give it a LIMIT."
                )
            if size > limits.memory_bytes:
                raise SqlError(
                    f"the query gives more than {limits.memory_bytes:,} bytes",
                    hint="Give it a LIMIT, or fewer columns.",
                )
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)
    except duckdb.InterruptException as error:
        raise SqlError("the query took too long", hint="Read fewer rows.") from error
    except (duckdb.Error, pa.ArrowException) as error:
        if ended.is_set():
            raise SqlError("the query took too long", hint="Read fewer rows.") from error
        raise _failed(error) from error
    finally:
        done.set()
        timer.join()


def _failed(error: Exception) -> SqlError:
    return SqlError(f"the query failed: {str(error).strip()}")
