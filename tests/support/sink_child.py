"""A process that delivers topics of its own memory into a target, and can be killed often.

It is forked from a server that has imported everything.
"""

import multiprocessing
import os
import resource
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Protocol

from ikebana.delivering import lake
from ikebana.delivering.delivery import DeliveredTopics, Delivery
from ikebana.delivering.sink import Batch, TargetTable
from ikebana.processor.base import processes
from ikebana.processor.base.rows import KeyedUpdate
from ikebana.processor.kafka.following import ClosedTimes, Following, Piece, Resume
from support.sink_conformance import ORDERS, Crashing, Story, Target

_PIECE = 10_000


class Told(Protocol):
    """Topics that a process makes for itself."""

    def follow(self, topic: str, form: str, resume: Resume | None) -> Following: ...


@dataclass(frozen=True)
class Drawn:
    """The topics of a story."""

    story: Story

    def follow(self, topic: str, form: str, resume: Resume | None) -> Following:
        return self.story.topics().follow(topic, form, resume)


@dataclass(frozen=True)
class FirstRows:
    """A topic whose first batch has many orders, which are made when they are read."""

    count: int
    length: int
    """The number of letters of a name."""
    upper = 5

    def updates(self) -> Iterator[KeyedUpdate]:
        """Yield all rows, at one time."""
        for number in range(self.count):
            name = str(number).rjust(self.length, "x")
            value = b'{"name":"%s","price":%d}' % (name.encode(), number % 100)
            yield KeyedUpdate(b'{"id":%d}' % number, value, 3, 1)

    def follow(self, topic: str, form: str, resume: Resume | None) -> Following:
        return _Generated(self, done=resume is not None)


class _Generated:
    topic = ORDERS

    def __init__(self, rows: FirstRows, *, done: bool) -> None:
        self._rows, self._done = rows, done

    def pieces(self) -> Iterator[Piece | ClosedTimes]:
        if self._done:
            return
        some: list[KeyedUpdate] = []
        for update in self._rows.updates():
            some.append(update)
            if len(some) == _PIECE:
                yield Piece(some)
                some = []
        self._done = True
        yield ClosedTimes(0, self._rows.upper, some, "1")

    def closed(self) -> Iterator[ClosedTimes]:
        raise AssertionError("a delivery reads pieces")

    def horizon(self) -> int | None:
        return self._rows.upper

    def behind(self) -> int:
        return 0

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Limits:
    """What a sink may keep in memory; the rest is in files."""

    spool_bytes: int = 1 << 20
    sums: str = "1GiB"


def begun(
    target: Target, tables: Sequence[TargetTable], told: Told, limits: Limits = Limits()
) -> tuple[ForkServerProcess, Connection]:
    """Start a process; it says when it is open, each applied frontier, and its peak memory."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "support.lake_targets"])
    ready, said = context.Pipe(duplex=False)
    process = context.Process(target=_deliver, args=(said, target, tables, told, limits))
    process.start()
    said.close()
    return process, ready


class _Telling(Crashing):
    """Tells of what is done."""

    def __init__(self, said: Connection, target: Target) -> None:
        super().__init__(target.sink(), None)
        self._said = said

    def open(self, tables: Sequence[TargetTable]) -> str | None:
        token = super().open(tables)
        self._said.send("open")
        return token

    def apply(self, batch: Batch) -> None:
        super().apply(batch)
        self._said.send(batch.upper)


def _deliver(
    said: Connection, target: Target, tables: Sequence[TargetTable], told: Told, limits: Limits
) -> None:
    os.nice(5)
    lake._MEMORY = limits.sums
    # A target that is away is asked again soon, however often it was away in the last minute.
    processes._LONGEST_PAUSE_S = 0.5
    formats = dict.fromkeys((table.collection for table in tables), "diff")
    topics = DeliveredTopics(told.follow, formats, limits.spool_bytes)
    Delivery(_Telling(said, target), tables, topics, print, wait=False).run()
    said.send(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")
