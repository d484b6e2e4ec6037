"""Sinks that deliver drawn stories into real targets, one after the other, and are judged."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random
from typing import Protocol

import psutil

from cdc import fetched, postgres
from cdc.postgres_target import PostgresTarget
from chaos.going import gone
from chaos.http_faults import Fault, FaultyHttp
from chaos.plans import UPSERT
from chaos.runs import Unavailable, Wrong, wait
from chaos.scenario import Result, Scenario
from deploy import object_store, tools
from ikebana.delivering.sink import MODES, TargetTable
from ikebana.processor.authoring.deliver_section import Mode
from ikebana.processor.kafka.broker import free_port
from support.lake_targets import TARGETS, DeltaTarget, IcebergTarget, ParquetTarget
from support.process_trees import kill
from support.sink_child import Drawn, FirstRows, Limits, Told, begun
from support.sink_conformance import ORDERS, Story, Target, judge, story, tables_of
from support.waiting import patient

# A story of so many batches.
_LENGTH = 40
_WAITS_S = 120.0
FIRST_ROWS = FirstRows(1_000_000, 100)
# The updates of `FIRST_ROWS` have 160 MiB.
_SMALL = Limits(16 << 20, "128MiB")


class Server(Protocol):
    """The process of targets, whose files outlive it."""

    def kill(self) -> None: ...

    def start(self) -> None: ...

    def become(self, fault: Fault, share: float = 1.0) -> None:
        """Answer a share of all requests so from now on."""

    def target(self, kind: str, folder: Path) -> Target: ...


_LOCAL: Mapping[str, Callable[[Path], Target]] = TARGETS


class Files:
    """Tables on the local disk: there is nothing to kill."""

    def kill(self) -> None:
        raise NotImplementedError

    start = kill

    def become(self, fault: Fault, share: float = 1.0) -> None:
        raise NotImplementedError

    def target(self, kind: str, folder: Path) -> Target:
        return _LOCAL[kind](folder)


class Database(Files):
    """A PostgreSQL."""

    def __init__(self, server: postgres.Postgres, stack: ExitStack) -> None:
        self._server, self._stack = server, stack

    def kill(self) -> None:
        """Kill the server with the processes of its connections."""
        first = psutil.Process(self._server.pid)
        every = [first, *first.children(recursive=True)]
        kill(every)
        psutil.wait_procs(every, patient(20))

    def start(self) -> None:
        self._stack.enter_context(postgres.started(self._server))

    def target(self, kind: str, folder: Path) -> Target:
        return PostgresTarget(self._server)


class Bucket:
    """An object store with the files of lakes, and what becomes of requests to it."""

    def __init__(self, store: object_store.Store, answers: FaultyHttp) -> None:
        self.kill, self.start, self.become = store.kill, store.start, answers.become
        self._url, self._store_url = f"http://127.0.0.1:{answers.port}", store.url

    def target(self, kind: str, folder: Path) -> Target:
        if kind == "delta":
            return DeltaTarget(folder, self._url, self._store_url)
        return IcebergTarget(folder, self._url)


@contextmanager
def serving(kind: str, folder: Path) -> Iterator[Server]:
    """Run the server for scenarios of a kind.  Raises: Unavailable."""
    with ExitStack() as stack:
        try:
            match kind:
                case "sink-database":
                    yield Database(stack.enter_context(postgres.running()), stack)
                case "sink-bucket":
                    store = stack.enter_context(object_store.serving(folder))
                    answers = FaultyHttp(free_port(), store.port)
                    yield Bucket(store, stack.enter_context(answers))
                case _:
                    yield Files()
        except (fetched.Unavailable, tools.MissingToolError) as error:
            raise Unavailable(str(error)) from error


class Delivered:
    """Sinks, one for each scenario, with a target of its own."""

    def __init__(self, folder: Path, server: Server, seed: int) -> None:
        self.folder = folder
        self.server = server
        self.seed = seed
        self.choice = Random(seed)
        self.did: list[str] = []
        self.plan = UPSERT
        self._number = 0
        self._target: Target | None = None
        self._tables: Sequence[TargetTable] = ()
        self._story = Story([])
        self._told: Told = FIRST_ROWS
        self._limits = Limits()
        self._process: ForkServerProcess | None = None
        self._said: Connection | None = None
        self._compared = self._kills = 0

    def go(self, scenario: Scenario, *, judged: bool = True) -> Result:
        """Bring about a fault, see the sink go on, and judge the tables."""
        return gone(self, scenario, judged=judged)

    def under_load(self) -> "nullcontext[None]":
        """A sink has its story to deliver."""
        return nullcontext()

    def begin(self, kind: str) -> None:
        """Start a sink of a kind over a new story, in any mode that it has."""
        mode: Mode = "changes" if kind == "parquet" else self.choice.choice(MODES)
        self._story = story(self.choice.randrange(1 << 30), _LENGTH)
        self._told, self._limits = Drawn(self._story), Limits()
        self._begin(kind, tables_of(mode), mode)

    def begin_first_rows(self, kind: str) -> None:
        """Start a sink whose first batch has `FIRST_ROWS`, and which may keep little in memory."""
        mode: Mode = "changes" if kind == "parquet" else "current"
        self._story = Story([(ORDERS, FIRST_ROWS.upper, [*FIRST_ROWS.updates()])])
        self._told, self._limits = FIRST_ROWS, _SMALL
        self._begin(kind, tables_of(mode)[:1], mode)

    def at_some_batch(self) -> None:
        """Wait until the sink is within the third batch from now."""
        self.go_on()
        # The first one may come after a pause, in which the sink has waited for its target.
        self._hear()
        begun_s = time.monotonic()
        self._hear()
        self.wait(time.monotonic() - begun_s)

    def go_on(self) -> None:
        """Start a sink that was killed."""
        if self._process is None:
            self.start_sink()

    def wait(self, longest_s: float) -> None:
        """Wait for a time of the seed's."""
        wait(self.choice.uniform(0, longest_s))

    def start_sink(self) -> None:
        """Start a process of the sink; return when it has opened its target, or has ended."""
        assert self._target is not None
        self._process, self._said = begun(self._target, self._tables, self._told, self._limits)
        self._hear()

    def kill_sink(self) -> None:
        """Kill the process of the sink, if there is one."""
        if self._process is not None:
            self._kills += self._process.is_alive()
            self._process.kill()
            self._process.join()
            self._process = None

    def kill_server(self) -> None:
        """Kill the server of the target, and forget what the sink has said before."""
        assert self._said is not None
        assert self._process is not None
        self._kills += self._process.is_alive()
        self.server.kill()
        self.wait(1)
        while self._said.poll() and self._hear() is not None:
            pass

    def start_server(self) -> None:
        """Start the server of the target again."""
        self.server.start()

    def compare(self) -> int:
        """Compare the tables with the collections at their frontiers.  Raises: Wrong."""
        assert self._target is not None
        self._compared += 1
        try:
            return judge(self._target, self._tables, self._story)
        except AssertionError as error:
            raise Wrong(f"a table differs: {error}") from error

    def recovered(self) -> tuple[float, list[str]]:
        """Wait until the sink has applied another batch; start it if it was killed."""
        begun_s = time.monotonic()
        if self._target is None:
            return 0.0, []
        self.go_on()
        while not isinstance(heard := self._hear(), int) and heard is not None:
            pass
        took_s = time.monotonic() - begun_s
        if not isinstance(self._target, ParquetTarget):
            self.compare()
        return took_s, []

    def judge(self) -> None:
        """Let the sink come to its end, and compare all of its tables."""
        last: int | str | None = None
        while (heard := self._hear()) is not None:
            last = heard
        if (upper := self.compare()) != self._story.upper:
            raise Wrong(f"it ends at {upper}, and the topics at {self._story.upper}")
        self.did += [f"{self._kills} kills under way", f"{self._compared} comparisons"]
        self.did.append(f"memory at most {last}")
        self.kill_sink()
        self._target = None

    def close(self) -> None:
        """Leave nothing running."""
        self.kill_sink()

    def _begin(self, kind: str, tables: Sequence[TargetTable], mode: Mode) -> None:
        self._number += 1
        self._compared = self._kills = 0
        self._target = self.server.target(kind, self.folder / str(self._number))
        self._tables = tables
        self.did.append(mode)
        self.start_sink()

    def _hear(self) -> int | str | None:
        """What the sink says next; None when it has ended.  Raises: Wrong."""
        assert self._said is not None
        assert self._process is not None
        if not self._said.poll(patient(_WAITS_S)):
            raise Wrong(f"the sink has applied nothing for {patient(_WAITS_S):.0f} s")
        try:
            heard: int | str = self._said.recv()
        except EOFError:
            self._process.join()
            if status := self._process.exitcode:
                raise Wrong(f"the sink has ended with status {status}") from None
            return None
        return heard
