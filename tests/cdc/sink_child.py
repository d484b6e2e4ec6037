"""A process that delivers a drawn story into PostgreSQL, over topics in its own memory.

It is forked from a server that has imported everything, so that it can be killed often.
"""

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

from ikebana.delivering.postgres import PostgresSink
from ikebana.delivering.sink import Batch, Mode, Table
from support.sink_conformance import Crashing, delivered, story, tables_of

NAME = "killed"


def begun(
    conninfo: str, seed: int, length: int, mode: Mode
) -> tuple[ForkServerProcess, Connection]:
    """Start a process; the connection says when it is open, and then of each batch it applies."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    ready, told = context.Pipe(duplex=False)
    process = context.Process(target=_deliver, args=(told, conninfo, seed, length, mode))
    process.start()
    told.close()
    return process, ready


class _Telling(Crashing):
    """Tells of what is done."""

    def __init__(self, told: Connection, conninfo: str) -> None:
        super().__init__(PostgresSink(NAME, conninfo), None)
        self._told = told

    def open(self, tables: Sequence[Table]) -> str | None:
        token = super().open(tables)
        self._told.send("open")
        return token

    def apply(self, batch: Batch) -> None:
        super().apply(batch)
        self._told.send(batch.upper)


def _deliver(told: Connection, conninfo: str, seed: int, length: int, mode: Mode) -> None:
    delivered(_Telling(told, conninfo), tables_of(mode), story(seed, length).topics())
