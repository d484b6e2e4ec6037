"""A process that delivers a drawn story into tables of files, over topics in its own memory.

It is forked from a server that has imported everything, so that it can be killed often.
"""

import multiprocessing
import os
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from ikebana.delivering.sink import Batch, Mode, Table
from support.lake_targets import TARGETS
from support.sink_conformance import Crashing, delivered, judge, story, tables_of
from support.waiting import patient

# A story of so many batches takes a process some seconds.
_LENGTH = 40


class _Telling(Crashing):
    """Tells of what is done."""

    def __init__(self, told: Connection, kind: str, folder: Path) -> None:
        super().__init__(TARGETS[kind](folder).sink(), None)
        self._told = told

    def open(self, tables: Sequence[Table]) -> str | None:
        token = super().open(tables)
        self._told.send("open")
        return token

    def apply(self, batch: Batch) -> None:
        super().apply(batch)
        self._told.send(batch.upper)


def killed(kind: str, folder: Path, mode: Mode, seed: int, kills: int) -> int:
    """Kill sinks so often, then let one end; return how many kills were within the work."""
    draw, within, number = random.Random(seed), 0, 0
    tables = tables_of(mode)
    own, told = folder / "0", story(seed, _LENGTH)
    for _ in range(kills):
        process, said = _begun(kind, own, seed, mode)
        with suppress(EOFError):
            # The process is within another batch then, or ends.
            for _ in range(draw.randint(0, 8)):
                said.recv()
        time.sleep(draw.random() * 0.2)
        process.kill()
        process.join()
        upper = judge(TARGETS[kind](own), tables, told)
        within += 0 < upper < told.upper
        if upper == told.upper:
            seed, number = seed + 1000, number + 1
            own, told = folder / str(number), story(seed, _LENGTH)
    process, _ = _begun(kind, own, seed, mode)
    process.join(patient(300))
    assert process.exitcode == 0
    assert judge(TARGETS[kind](own), tables, told) == told.upper
    return within


def _begun(kind: str, folder: Path, seed: int, mode: Mode) -> tuple[ForkServerProcess, Connection]:
    """Start a process; the connection says when it is open, and then of each batch it applies."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    ready, told = context.Pipe(duplex=False)
    process = context.Process(target=_deliver, args=(told, kind, folder, seed, mode))
    process.start()
    told.close()
    return process, ready


def _deliver(told: Connection, kind: str, folder: Path, seed: int, mode: Mode) -> None:
    os.nice(5)
    delivered(_Telling(told, kind, folder), tables_of(mode), story(seed, _LENGTH).topics())
